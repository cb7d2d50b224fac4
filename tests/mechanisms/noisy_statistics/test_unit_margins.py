"""Moments of a record with effects of its primary sampling unit, and margins of draws with effects.

Truth: simulated records, for moments and their slopes; margins, which stay where they are; the
variance of a mean of effects. Each rejects a wrong implementation."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.posterior.between_units import (
    CellMoments,
    shifted_logit,
    with_effects,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.models.general_location.layout import residual_covariances, shares
from surveysynth.models.general_location.model import GeneralFBS
from surveysynth.models.units import PSU_COVARIANCE, UnitDesign
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    CAPPED,
    INCOME,
    SICK,
    WORK,
    draw,
    general_design,
    layout_of,
    random_theta,
)

KINDS = (WORK, BENEFIT, CAPPED, SICK)


def shape_of(model: GeneralFBS, design: PublicDesign) -> LocationShape:
    group = model.groups(design).cell
    return LocationShape(design.matrix.x_cells, group, design.outcomes, weighted=True)


def simulated_h(
    model: GeneralFBS, design: PublicDesign, theta: Theta, centre: FloatArray, spread: FloatArray,
    effects: FloatArray,
) -> FloatArray:  # fmt: skip
    """h of every record (n, H): amounts there are, and flags of categories."""
    given = np.broadcast_to(effects, (design.n, effects.size))
    data = model._simulation(theta, design, given).sample(np.random.default_rng(5))
    layout = layout_of(model, design)
    records = model.records_from_simulated(design, data)
    there = layout.present(records.category)
    columns = [np.where(there, (records.z - centre) / spread, 0.0)]
    for j, size in enumerate(layout.categories):
        if size > 1:
            columns.append(1.0 * (records.category[:, j, None] == np.arange(size)))
    return np.concatenate(columns, axis=1)


def by_cell(design: PublicDesign, values: FloatArray) -> FloatArray:
    cell = design.matrix.cell
    return np.stack([values[cell == c].mean(0) for c in range(len(design.matrix.x_cells))])


@pytest.mark.parametrize("by", [(), ("region",)])
def test_moments_and_slopes_are_those_of_simulated_records(by: tuple[str, ...]) -> None:
    design, model = general_design(60_000, KINDS), GeneralFBS(by)
    layout, theta = layout_of(model, design), draw(random_theta(model, design, 1), 0)
    rng = np.random.default_rng(2)
    centre, spread = rng.normal(0.0, 0.5, layout.q), rng.uniform(0.7, 1.5, layout.q)
    made = CellMoments.of(theta, shape_of(model, design), centre, spread)
    d, step = layout.amount_effects.stop, 0.05
    size = np.bincount(design.matrix.cell)[:, None]

    def h(effects: FloatArray) -> FloatArray:
        return simulated_h(model, design, theta, centre, spread, effects)

    plain = h(np.zeros(d))
    variance = np.einsum("chh->ch", made.covariance)
    z = (by_cell(design, plain) - made.mean) / np.sqrt(variance / size)
    assert np.abs(z).max() < 4.5
    for c in range(len(size)):
        off = plain[design.matrix.cell == c] - made.mean[c]
        products = off[:, :, None] * off[:, None]
        miss = np.abs(products.mean(0) - made.covariance[c])
        assert (miss < 5.0 * products.std(0) / size[c, 0] ** 0.5 + 1e-9).all()
    for k in range(d):
        # The same random numbers: few records change, and a handful says nothing.
        moved = (h(step * np.eye(d)[k]) - h(-step * np.eye(d)[k])) / (2.0 * step)
        error = np.stack([
            moved[design.matrix.cell == c].std(0) for c in range(len(size))
        ]) / np.sqrt(size)  # fmt: skip
        miss = np.abs(by_cell(design, moved) - made.slope[..., k])
        assert (miss < 5.0 * error + 2.5 / (step * size)).all()


def test_moments_without_the_chain_of_categories_are_rejected() -> None:
    design, model = general_design(30_000, KINDS), GeneralFBS()
    theta = draw(random_theta(model, design, 1), 0)
    zero, one = np.zeros(layout_of(model, design).q), np.ones(layout_of(model, design).q)
    plain = simulated_h(model, design, theta, zero, one, np.zeros(9))
    wrong = {name: values.copy() for name, values in theta.items()}
    wrong["logit_2"][design.matrix.x_cells.shape[1] :] = 0.0
    made = CellMoments.of(wrong, shape_of(model, design), zero, one)
    size = np.bincount(design.matrix.cell)[:, None]
    variance = np.einsum("chh->ch", made.covariance)
    z = (by_cell(design, plain) - made.mean) / np.sqrt(variance / size)
    assert np.abs(z).max() > 6.0


def test_absorbed_directions_are_the_mean_and_strata() -> None:
    """Six regions as predictors, 30 units in them; sex varies within units and is not absorbed."""
    design = general_design(3000, (SICK,), regions=6, psus=30)
    assert design.psu is not None
    made = UnitDesign.of(design.matrix.x_cells, design.matrix.cell, design.psu)
    assert (made.units, made.absorbed, made.free) == (30, 6, 24)
    made.check()
    few = general_design(300, (SICK,), regions=6, psus=10)
    assert few.psu is not None
    with pytest.raises(InputError, match="design_effect"):
        UnitDesign.of(few.matrix.x_cells, few.matrix.cell, few.psu).check()


# --- margins ------------------------------------------------------------------------------------


def test_log_odds_with_effects_keep_their_margins() -> None:
    rng = np.random.default_rng(3)
    rows = np.column_stack([np.ones(900), rng.integers(0, 2, (900, 3))]).astype(float)
    b, effects = rng.normal(0.0, 1.0, (4, 2)), rng.normal(0.0, 1.5, (90, 2)).repeat(10, axis=0)
    moved = shifted_logit(rows, b, effects, np.full(4, 1e6))
    before = rows.T @ shares(rows @ b)
    np.testing.assert_allclose(rows.T @ shares(rows @ moved + effects), before, atol=1e-4)
    assert np.abs(rows.T @ shares(rows @ b + effects) - before).max() > 5.0  # unshifted


def clustered(n: int = 3000, psus: int = 60) -> tuple[GeneralFBS, PublicDesign, Theta, FloatArray]:
    design, model = general_design(n, (SICK, BENEFIT, INCOME), psus=psus), GeneralFBS()
    given = draw(random_theta(model, design, 1), 0)
    theta = {name: values for name, values in given.items() if not name.startswith("psu_")}
    d = layout_of(model, design).amount_effects.stop
    return model, design, theta, 0.1 * np.eye(d) + 0.02


def moved(
    model: GeneralFBS, design: PublicDesign, theta: Theta, covariance: FloatArray, seed: int
) -> Theta:
    assert design.psu is not None
    layout, rng = layout_of(model, design), np.random.default_rng(seed)
    own = design.psu
    return with_effects(theta, covariance, covariance, design, layout, own, model.priors, rng)


def test_a_draw_with_effects_has_the_moments_of_the_one_without() -> None:
    """Over many draws and datasets: shares, means and variances of the whole sample."""
    model, design, theta, covariance = clustered()
    rng = np.random.default_rng(8)
    plain, effects, unmoved = ([], [], [])
    for seed in range(60):
        own = moved(model, design, theta, covariance, seed)
        plain.append(model.simulate(theta, replace(design, psu=None), rng))
        effects.append(model.simulate(own, design, rng))
        unmoved.append(model.simulate({**theta, PSU_COVARIANCE: covariance}, design, rng))

    def figures(datasets: list) -> FloatArray:
        rows = []
        for data in datasets:
            z, there = data.z, data.category[:, 1] == 0
            amount = z[there, 1]
            rows.append([(data.category[:, 0] == 1).mean(), there.mean(), amount.mean(),
                         z[:, 2].mean(), amount.var(), z[:, 2].var(), z[:, 3].var()])  # fmt: skip
        return np.array(rows)

    expected, found, wrong = (figures(each) for each in (plain, effects, unmoved))
    error = np.sqrt((expected.var(0) + found.var(0)) / 60)
    assert np.abs((found.mean(0) - expected.mean(0)) / error).max() < 3.5
    error = np.sqrt((expected.var(0) + wrong.var(0)) / 60)
    assert np.abs((wrong.mean(0) - expected.mean(0)) / error)[4:].max() > 5.0


def test_the_variance_of_effects_goes_between_draws() -> None:
    """Intercepts of the mean of income vary by the variance of a mean of the units' effects."""
    model, design, theta, covariance = clustered()
    assert design.psu is not None
    layout, k = layout_of(model, design), design.matrix.x_cells.shape[1]
    tilde = layout.tilde(
        design.matrix.x_cells[design.matrix.cell],
        model.simulate(theta, replace(design, psu=None), np.random.default_rng(1)).category,
    )  # fmt: skip
    part = next(each for each in layout.regressions if each.name == "3")
    means = []
    for seed in range(300):
        core = moved(model, design, theta, covariance, seed)["coefficients_3"]
        means.append((tilde[:, part.columns] @ core[: part.columns.size]).mean())
    size = np.bincount(design.psu) / design.n
    expected = covariance[layout.amount_effects.start + 1, layout.amount_effects.start + 1]
    ratio = np.var(means) / (expected * (size**2).sum())
    assert k == 4
    assert abs(np.log(ratio)) < 0.3


@pytest.mark.parametrize("by", [(), ("region",)])
def test_every_group_loses_the_covariance_of_effects(by: tuple[str, ...]) -> None:
    design, model = general_design(600, (SICK, BENEFIT, INCOME), psus=30), GeneralFBS(by)
    theta = draw(random_theta(model, replace(design, psu=None), 1), 0)
    layout = layout_of(model, design)
    covariance = 0.02 * np.eye(layout.amount_effects.stop) + 0.01
    own = moved(model, design, theta, covariance, 4)
    before, after = (residual_covariances(each, layout.regressions) for each in (theta, own))
    assert before.shape == (len(set(model.groups(design).cell)), 3, 3)
    within = covariance[layout.amount_effects, layout.amount_effects]
    np.testing.assert_allclose(after + within, before, rtol=1e-9)


def test_effects_larger_than_a_residual_leave_a_tenth_of_it() -> None:
    model, design, theta, _ = clustered(600, 20)
    d = layout_of(model, design).amount_effects.stop
    own = moved(model, design, theta, 50.0 * np.eye(d), 1)
    for name in ("variance_2", "variance_3", "variance_weight"):
        assert 0.0 < own[name][0] < theta[name][0]
