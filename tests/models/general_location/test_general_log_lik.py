"""Log-likelihoods of the general location model: each record's by its definition, outcome by
outcome; that they are those of a distribution: over its sample space they integrate to one; and
that chains are judged by what they depend on."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.records import Chain
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    BY,
    GAIN,
    INCOME,
    SICK,
    TAX,
    WORK,
    confidential_of,
    direct_log_lik,
    draw,
    general_design,
    layout_of,
    model_for,
    random_theta,
)

CASES = {
    "all kinds": (ALL, (), True),
    "all kinds by group": (ALL, BY, True),
    "continuous by group": ((INCOME,), ("region",), True),
    "amounts on two sides": ((TAX, SICK, INCOME, GAIN), ("region",), True),
    "one amount on two sides": ((GAIN,), (), False),
    "no weight": ((BENEFIT, SICK, INCOME), (), False),
    "categories alone": ((WORK, SICK), (), False),
    "a binary outcome and the weight": ((SICK,), BY, True),
    "all kinds in clusters": (ALL, (), True),
    "categories alone in clusters": ((WORK, SICK), (), False),
    "amounts on two sides in clusters": ((TAX, SICK, INCOME, GAIN), (), True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [90, 700])  # few records a block, and many: both ways to compute
def test_log_lik_of_each_record_is_its_definition(name: str, n: int) -> None:
    outcomes, by, weighted = CASES[name]
    design = general_design(n, outcomes, weighted=weighted, psus=7 * ("clusters" in name))
    model = model_for(by)
    theta = random_theta(model, design, 3)
    simulated = model.simulate(draw(theta, 0), design, np.random.default_rng(4))
    survey = confidential_of(design, simulated)
    found = np.full((3, n), np.nan)
    for rows, values in model.log_lik_blocks(theta, model.records(design, survey)):
        assert np.isnan(found[:, rows]).all()
        found[:, rows] = values
    for s in range(3):
        expected = direct_log_lik(model, draw(theta, s), design, survey)
        np.testing.assert_allclose(found[s], expected, rtol=1e-10, atol=1e-10)


def test_log_lik_integrates_to_one() -> None:
    """Two-part benefit, binary outcome, weight: sums over categories, quadrature of the rest."""
    points, weights = np.polynomial.legendre.leggauss(60)
    z, log_w = (grid.ravel() for grid in np.meshgrid(9.0 * points, 9.0 * points))
    area = np.outer(9.0 * weights, 9.0 * weights).ravel()
    small = general_design(6, (BENEFIT, SICK))
    cell = np.full(z.size, 3)
    matrix = replace(small.matrix, cell=cell)
    design = replace(small, matrix=matrix, frame=small.frame.iloc[cell])
    model = model_for()
    theta = random_theta(model, small, 1)
    total = 0.0
    for category in product((0, 1), repeat=2):
        simulated = Simulated(
            np.column_stack([z, 0.0 * z, log_w]), np.tile(category, (z.size, 1))
        )
        # Without an amount, z is not looked at: its integral over 18 is 18 times too large.
        size = area if category[0] == 0 else area / 18.0
        records = model.records_from_simulated(design, simulated)
        for rows, values in model.log_lik_blocks(theta, records):
            total += size[rows] @ np.exp(values[0])
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


def test_the_implied_normal_law_of_a_block_is_that_of_its_regressions() -> None:
    design = general_design(300, (BENEFIT, INCOME, SICK))
    model = model_for(("region",))
    theta, layout = random_theta(model, design, 2), layout_of(model, design)
    chain = Chain.of(theta, layout, 1, np.arange(3))
    coefficients, covariance = chain.normal()
    rng = np.random.default_rng(3)
    row, z = rng.standard_normal(layout.width), rng.standard_normal((1, 3))
    form = chain.form(row[None], z)
    for s in range(2):
        deviation = z[0] - row @ coefficients[s]
        log_density = -0.5 * deviation @ np.linalg.solve(covariance[s], deviation)
        log_density -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance[s])[1]
        np.testing.assert_allclose(form.constant[s, 0], log_density)


@pytest.mark.parametrize("by", [(), ("region",)], ids=["one covariance", "by group"])
def test_what_is_monitored_is_the_law_of_the_data(by: tuple[str, ...]) -> None:
    """Where b and d_g move against each other every record keeps its density, and chains are
    judged alike; where the density moves, they are not."""
    design, model = general_design(300, (BENEFIT, INCOME, TAX)), model_for(by)
    theta = {name: each[None] for name, each in random_theta(model, design, 4).items()}
    simulated = model.simulate(
        {name: each[0, 0] for name, each in theta.items()}, design, np.random.default_rng(2)
    )
    records = model.records_from_simulated(design, simulated)

    def told(theta: Theta) -> tuple[FloatArray, FloatArray]:
        flat = {name: each[0] for name, each in theta.items()}
        log_lik = np.hstack([each for _, each in model.log_lik_blocks(flat, records)])
        monitored = model.monitored(theta)
        assert all(each.shape[:2] == (1, 4) for each in monitored.values())
        return log_lik, np.concatenate(list(monitored.values()), axis=-1)

    moved = {**theta, "coefficients_weight": theta["coefficients_weight"].copy()}
    moved["coefficients_weight"][..., -1] += 0.5
    log_lik, monitored = told(theta)
    for found, then in zip(told(moved), (log_lik, monitored), strict=True):
        assert (found != then).any(-1).all()
    if by:
        moved["slopes_weight"] = theta["slopes_weight"].copy()
        moved["slopes_weight"][..., -1] -= 0.5
        for found, then in zip(told(moved), (log_lik, monitored), strict=True):
            np.testing.assert_allclose(found, then, rtol=1e-9, atol=1e-9)
