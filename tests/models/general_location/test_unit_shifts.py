"""Shifts of coefficients against effects of PSUs: directions between units, and the laws of shifts
against the log-likelihood of the records. A unit lies in two regions; wrong laws are rejected."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.general_location.psu_amounts import AmountSums
from surveysynth.models.general_location.psu_logits import PsuLogit
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.general_location.records import GeneralRecords
from surveysynth.models.parts.psu_effects import PSU_EFFECT
from surveysynth.sampling.sweeps import Streams
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    SICK,
    WORK,
    draw,
    general_design,
    model_for,
    random_theta,
)
from tests.models.general_location.test_general_clusters import PSUS, codes


def directions_of(design: PublicDesign) -> BetweenDirections:
    matrix = design.matrix
    return BetweenDirections.of(
        matrix.x_cells, matrix.cell, codes(design), np.flatnonzero(matrix.ridged)
    )


def test_directions_between_units_are_those_of_strata() -> None:
    """Region is constant in PSUs, sex and its interactions are not."""
    design = general_design(300, (SICK,), psus=PSUS, ridged=True)
    matrix, found = design.matrix, directions_of(design)
    plain = ~matrix.ridged
    assert found.constant
    assert found.coefficients.shape == (plain.size, 3)
    np.testing.assert_array_equal(found.coefficients[matrix.ridged], 0.0)
    changed = (matrix.x_cells @ found.coefficients)[matrix.cell]
    np.testing.assert_allclose(changed, found.along[codes(design)], atol=1e-12)
    # Coefficients of three columns: the constant and two regions.
    np.testing.assert_allclose(found.coefficients[3], 0.0, atol=1e-12)


def test_a_unit_in_two_regions_leaves_the_directions_but_not_constant() -> None:
    design = general_design(300, (SICK,), psus=PSUS, ridged=True, astride=5)
    found = directions_of(design)
    assert not found.constant
    assert found.coefficients.shape[1] == 3
    changed = (design.matrix.x_cells @ found.coefficients)[design.matrix.cell]
    # Of length one, and nearly all of it between units.
    np.testing.assert_allclose((changed**2).sum(0), 1.0, rtol=1e-9)
    within = ((changed - found.along[codes(design)]) ** 2).sum(0)
    assert 1e-4 < within.max() < 0.1
    one = general_design(300, (SICK,), psus=PSUS, ridged=True)
    both = BetweenDirections.of_chains([directions_of(one), found], 1)
    assert not both.constant
    assert both.along.shape == (2, PSUS, 3)


def astride(n: int, outcomes: tuple[Outcome, ...]) -> tuple[GeneralRecords, FloatArray, Theta]:
    """Records whose first unit lies in two regions, risk weights, and one draw (1, ...)."""
    design, model = general_design(n, outcomes, psus=PSUS, astride=n // 20), model_for()
    theta, rng = random_theta(model, design, 1), np.random.default_rng(4)
    simulated = model.simulate(draw(theta, 0), design, rng)
    return model.records_from_simulated(design, simulated), rng.random(n), theta


def shifted(
    theta: Theta, name: str, at: tuple[int, ...], column: int, between: BetweenDirections,
    shift: FloatArray,
) -> Theta:  # fmt: skip
    """Draws (S, ...) with coefficients shifted against effects, by shift (S, r)."""
    count = len(shift)
    theta = {key: np.repeat(values, count, axis=0) for key, values in theta.items()}
    k = len(between.coefficients)
    theta[name][(slice(None), slice(k), *at)] += shift @ between.coefficients.T
    theta[PSU_EFFECT][..., column] -= shift @ between.along.T
    return theta


def log_likelihood(theta: Theta, records: GeneralRecords, alpha: FloatArray) -> FloatArray:
    """Weighted, of draws (S,), record by record."""
    blocks = model_for().log_lik_blocks(theta, records)
    return np.sum([values @ alpha[rows] for rows, values in map(copied, blocks)], axis=0)


def copied(block: tuple[IntArray, FloatArray]) -> tuple[IntArray, FloatArray]:
    return block[0], block[1].copy()


def test_likelihood_of_a_shift_of_amounts_is_that_of_the_records() -> None:
    """It is quadratic: differences of the log-likelihood of records give it exactly."""
    records, alpha, theta = astride(200, (BENEFIT, INCOME, SICK))
    model, layout = model_for(), records.layout
    (psus,) = model.compress(records, alpha).psus
    sums = AmountSums([psus], BetweenDirections.of_chains([psus.between], 1))
    q, first = layout.q, layout.amount_effects.start
    slopes, means = np.zeros((1, q, q)), np.zeros((1, layout.width, q))
    variance = np.zeros((1, q))
    for j, part in enumerate(layout.regressions):
        core, size = theta[f"coefficients_{part.name}"], part.columns.size
        slopes[:, j, part.earlier], means[:, part.columns, j] = core[:, size:], core[:, :size]
        variance[:, j] = theta[f"variance_{part.name}"][:, 0]
    r, precision = psus.between.coefficients.shape[1], sums.precision(slopes, variance)
    pairs = np.array([np.eye(r)[i] + np.eye(r)[k] for i in range(r) for k in range(r)])
    points = np.vstack([np.zeros((1, r)), np.eye(r), -np.eye(r), pairs])
    for j, part in enumerate(layout.regressions):
        name = f"coefficients_{part.name}"
        moved = shifted(theta, name, (), first + j, psus.between, points)
        value = log_likelihood(moved, records, alpha)
        linear = 0.5 * (value[1 : 1 + r] - value[1 + r : 1 + 2 * r])
        own = value[1 : 1 + r] - value[0]
        both = value[1 + 2 * r :].reshape(r, r) - value[0] - own[:, None] - own
        found = sums.shift_likelihood(j, theta[PSU_EFFECT][..., first:], means, precision)
        np.testing.assert_allclose(found[0][0], -both, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found[1][0], linear, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("outcome", [SICK, WORK])
def test_shifts_of_a_logit_have_their_law(outcome: Outcome) -> None:
    """Along one direction, against the density on a grid; taken for constant they have not."""
    records, alpha, theta = astride(400, (outcome,))
    model = model_for()
    stats_ = model.compress(records, 0.3 * alpha)
    (psus,), (sums,) = stats_.psus, stats_.logits
    name, columns = records.layout.logits[0].name, records.layout.logit_effects[0]
    # The direction in which predictors vary most within units.
    last = psus.between.coefficients[:, :1]
    grid, c = np.linspace(-60.0, 60.0, 4001), columns.stop - 1
    prior, chains, moves = 1e-3, 100, 130
    one = replace(psus.between, coefficients=last)
    between = BetweenDirections.of_chains([one], chains)
    at = shifted(theta, f"logit_{name}", (c,), c, one, grid[:, None])
    value = log_likelihood(at, records, 0.3 * alpha) - 0.5 * prior * grid**2
    law = np.exp(value - value.max())
    cumulated = np.cumsum(law) / law.sum()

    def error(between: BetweenDirections) -> float:
        """Of uniform values, by KS, in its standard errors."""
        rng = Streams.of(np.random.default_rng(9), 1, chains)
        logit = PsuLogit(sums, [psus.logits[0]], np.ones(sums.x.shape[-1]), between, rng)
        begin = logit.b = np.repeat(theta[f"logit_{name}"], chains, axis=0)
        logit.begin(np.repeat(theta[PSU_EFFECT][..., columns], chains, axis=0))
        length, kept = (last**2).sum(), []
        for i in range(moves):
            if i % 16 == 0:
                logit.draw_random_numbers(16)
            now = ((logit.b - begin)[:, : len(last), c] @ last)[:, 0] / length
            own = np.full((chains, 1, 1), prior)
            logit.shift(i % 16, c, own, -prior * now[:, None])
            kept.append(now)
        uniform = np.interp(np.concatenate(kept[10::3]), grid, cumulated)
        statistic = stats.kstest(uniform, "uniform").statistic
        return float(statistic * np.sqrt(uniform.size))

    assert error(between) < 1.95  # p = 0.001
    assert error(replace(between, constant=True)) > 4.0
