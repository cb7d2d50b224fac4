"""Units of the population that FBP releases: the sample weighted by its own drawn weights, which is
what the population is, cell by cell, with errors by unit."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.model import GeneralFBP
from surveysynth.models.general_location.simulate import Population
from surveysynth.models.units import PSU_COVARIANCE, fresh_effects
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    PLAIN,
    SICK,
    WORK,
    draw,
    general_design,
    random_theta,
)

RECORDS, SIZE = 30_000, 5
BOUNDED = Outcome("bounded", "semicontinuous", transform=PLAIN, spikes=(0.0,), lower=0.0)
MISSING = Outcome("gap", "semicontinuous", transform=PLAIN, spikes=(0.0,), missing=True)


def clustered(outcome: Outcome) -> tuple[GeneralFBP, PublicDesign, Theta]:
    """Units of a few records in one cell of X, whose weights hang on outcomes and effects."""
    design = general_design(RECORDS, (outcome,))
    order = np.empty(RECORDS, dtype=np.int64)
    order[np.argsort(design.matrix.cell, kind="stable")] = np.arange(RECORDS)
    pairs = np.stack([order // SIZE, design.matrix.cell])
    psu = np.asarray(np.unique(pairs, axis=1, return_inverse=True)[1], dtype=np.int64)
    design = replace(design, psu=psu, psu_name="psu")
    model = GeneralFBP()
    theta = draw(random_theta(model, design, 1, seed=8), 0)
    theta["coefficients_weight"][design.matrix.x_cells.shape[1] :] = 0.7
    return model, design, theta


def features(outcome: Outcome, data: Simulated) -> FloatArray:
    """Indicators of categories, amounts, effects of units, products of some (f, n)."""
    assert data.category is not None
    assert data.effects is not None
    category, effects = data.category[:, 0], data.effects.T
    rows = [category == c for c in range(1, outcome.categories)]
    rows += [effects[k] for k in range(len(effects))] + [effects[0] * effects[-1]]
    for side in outcome.sides:
        amount = np.where(category == side, data.z[:, 0], 0.0)
        rows += [amount, amount**2, amount * effects[-1]]
    return np.array(rows, dtype=float)


def by_unit(values: FloatArray, psu: IntArray) -> FloatArray:
    """Sums (f, units) of values (f, n)."""
    return np.stack([np.bincount(psu, row) for row in values])


def gaps(
    outcome: Outcome, design: PublicDesign, one: Simulated, sample: Simulated, weight: FloatArray
) -> float:
    """The largest z of means of the release and weighted means of the sample, over cells."""
    assert design.psu is not None
    here, there, worst = features(outcome, one), features(outcome, sample), 0.0
    for cell in range(design.matrix.x_cells.shape[0]):
        rows = design.matrix.cell == cell
        psu = np.unique(design.psu[rows], return_inverse=True)[1]
        w = weight[rows]
        mean = here[:, rows].mean(1, keepdims=True)
        other = (there[:, rows] * w).sum(1, keepdims=True) / w.sum()
        residuals = (
            by_unit(here[:, rows] - mean, psu) / w.size,
            by_unit((there[:, rows] - other) * w, psu) / w.sum(),
        )
        error = np.sqrt(sum((each**2).sum(1, keepdims=True) for each in residuals))
        worst = max(worst, float((np.abs(mean - other) / np.where(error > 0, error, 1.0)).max()))
    return worst


@pytest.mark.parametrize("outcome", [BENEFIT, WORK, SICK, INCOME, BOUNDED],
                         ids=lambda outcome: outcome.name)  # fmt: skip
def test_the_population_is_the_sample_weighted_unit_by_unit(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, design, theta = clustered(outcome)
    sample = model.simulate(theta, design, np.random.default_rng(10), "sample")
    weight = model.drawn_weight(design, sample)
    released = model.simulate(theta, design, np.random.default_rng(9))
    assert gaps(outcome, design, released, sample, weight) < 4.8

    def as_sampled(self: Population, psu: IntArray, rng: np.random.Generator) -> Population:
        effects = fresh_effects(self.theta, psu, rng)
        assert isinstance(effects, np.ndarray)
        return replace(self, effects=effects)

    monkeypatch.setattr(Population, "with_units", as_sampled)
    wrong = model.simulate(theta, design, np.random.default_rng(9))
    assert gaps(outcome, design, wrong, sample, weight) > 8.0


@pytest.mark.parametrize("outcome", [BENEFIT, WORK, BOUNDED], ids=lambda outcome: outcome.name)
def test_the_weight_of_a_cell_is_the_mean_over_units(outcome: Outcome) -> None:
    model, design, theta = clustered(outcome)
    cell, psu = design.matrix.cell, design.psu
    assert psu is not None
    sample = model.simulate(theta, design, np.random.default_rng(10), "sample")
    drawn = model.drawn_weight(design, sample)
    smooth = model.smooth_weight(theta, design, sample)
    without = model.smooth_weight(
        {name: values for name, values in theta.items() if name != PSU_COVARIANCE}, design, sample
    )
    off = []
    for c in range(design.matrix.x_cells.shape[0]):
        rows = cell == c
        assert np.ptp(smooth[rows]) == 0.0
        total = np.bincount(np.unique(psu[rows], return_inverse=True)[1], drawn[rows])
        total = total[total > 0]
        error = total.std() * np.sqrt(total.size) / rows.sum()
        off.append([(each[rows][0] - drawn[rows].mean()) / error for each in (smooth, without)])
    found, wrong = np.array(off).T
    assert np.abs(found).max() < 4.5
    # All cells together: a chi-square with one degree of freedom each.
    assert stats.chi2.sf((found**2).sum(), found.size) > 1e-4
    assert stats.chi2.sf((wrong**2).sum(), found.size) < 1e-6


def test_effects_of_plain_amounts_are_tilted_by_those_of_the_weight_alone() -> None:
    """N(T e_w, T), whatever the cells of a unit."""
    model, design, theta = clustered(INCOME)
    psu = np.arange(RECORDS) // SIZE
    design = replace(design, psu=psu)
    effects = model.simulate(theta, design, np.random.default_rng(2)).effects
    assert effects is not None
    own, covariance = effects[::SIZE], theta[PSU_COVARIANCE]
    error = np.sqrt(np.diag(covariance) / len(own))
    assert (np.abs(own.mean(0) - covariance[:, -1]) / error).max() < 4.5
    np.testing.assert_allclose(np.cov(own.T), covariance, atol=0.03 * covariance.max())


def test_missing_answers_of_the_population_are_filled_given_units() -> None:
    """As records that were never missing: the law of the others in the same unit."""
    model, design, theta = clustered(MISSING)
    data = model.simulate(theta, design, np.random.default_rng(4))
    filled = model.completed(theta, design, data, np.random.default_rng(5))
    assert data.category is not None
    assert filled.category is not None
    lost = data.category[:, 0] == MISSING.missing_category
    assert 0.05 < lost.mean() < 0.95
    assert (filled.category < MISSING.missing_category).all()
    np.testing.assert_array_equal(filled.z[~lost], data.z[~lost])
    assert filled.effects is data.effects
    # Effects on the amount are in those that were filled.
    rows = lost & (filled.category[:, 0] == 0)
    assert data.effects is not None
    slope = np.polyfit(data.effects[rows, -2], filled.z[rows, 0], 1)[0]
    assert abs(slope - 1.0) < 0.25
