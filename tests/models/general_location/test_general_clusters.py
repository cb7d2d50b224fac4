"""Effects of PSUs in the general location model: identities of its density for its draws (the
density is held against SciPy in ``test_general_density.py``), the prior where no record counts,
moments of records as they are, moments of simulated units. Wrong samplers are rejected."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.models.base import stacked
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.psu_amounts import AmountSums
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.general_location.psu_sampler import ClusteredGibbs
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.general_location.stats import GeneralStats, GroupRows
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.sampling.convergence import effective_sample_size
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign, Survey
from tests import oracles
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    SICK,
    WORK,
    confidential_of,
    draw,
    general_design,
    layout_of,
    model_for,
    random_theta,
)
from tests.models.general_location.test_general_posterior import largest_error

PSUS = 12


def statistics_of(
    outcomes: tuple[Outcome, ...],
    n: int = 150,
    seed: int = 3,
    *,
    ridged: bool = False,
    pseudo: float = 0.0,
) -> GeneralStats:
    """Of a simulated database; some records have weight one, a unit lies in two regions."""
    design = general_design(n, outcomes, 3, psus=PSUS, ridged=ridged, pseudo=pseudo, astride=9)
    model = model_for()
    theta = draw(random_theta(model, design, 1, seed=seed), 0)
    rng = np.random.default_rng(seed)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    alpha = np.where(rng.random(n) < 0.7, 1.0, rng.random(n))
    return model.compress(model.records(design, survey), alpha)


def error_of(statistics: GeneralStats, draws: int) -> float:
    model = model_for()
    drawn = model.sample(statistics, SamplingPlan(4, 200, draws), np.random.default_rng(1))
    u = oracles.unconstrain(model, {name: values[0] for name, values in drawn.items()})
    return largest_error(model, u, statistics)


@pytest.mark.parametrize(
    ("outcomes", "ridged", "pseudo"),
    [((BENEFIT, SICK), True, 0.0), ((WORK,), False, 0.0), ((BENEFIT,), False, 20.0)],
    ids=["two-part and binary", "categorical", "pseudo-records"],
)
def test_draws_satisfy_the_identities_of_the_density(
    outcomes: tuple[Outcome, ...], ridged: bool, pseudo: float
) -> None:
    assert error_of(statistics_of(outcomes, ridged=ridged, pseudo=pseudo), 700) < 4.8


def test_shifts_that_forget_pseudo_records_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Regressions.told_by_prior

    def wrong(self: Regressions, j: int) -> tuple[FloatArray, FloatArray]:
        precision, score = sound(self, j)
        return np.zeros_like(precision), np.zeros_like(score)

    monkeypatch.setattr(Regressions, "told_by_prior", wrong)
    assert error_of(statistics_of((BENEFIT,), n=60, pseudo=60.0), 1600) > 8.0


def wide_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales of the effects 1.3 times too large after every sweep."""
    sound = ClusteredGibbs.sweep

    def wrong(self: ClusteredGibbs, i: int) -> None:
        sound(self, i)
        self.block.covariance = 1.3**2 * self.block.covariance

    monkeypatch.setattr(ClusteredGibbs, "sweep", wrong)


def dropped_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regressions of the columns of z themselves."""
    sound = AmountSums.rows

    def wrong(self: AmountSums, effects: FloatArray) -> GroupRows:
        return sound(self, np.zeros_like(effects))

    monkeypatch.setattr(AmountSums, "rows", wrong)


def loose_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shifts of effects against coefficients under a tenth of the effects' precision."""
    sound = ClusteredGibbs._shift_law

    def wrong(
        self: ClusteredGibbs, column: int, core: FloatArray, prior: FloatArray, own: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        return sound(self, column, core, prior, 0.1 * own)

    monkeypatch.setattr(ClusteredGibbs, "_shift_law", wrong)


def blind_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shifts of amounts that do not see what changes within units."""
    sound = AmountSums.shift_likelihood

    def wrong(self: AmountSums, *given: Any) -> tuple[FloatArray, FloatArray]:
        precision, linear = sound(self, *given)
        return np.zeros_like(precision), np.zeros_like(linear)

    monkeypatch.setattr(AmountSums, "shift_likelihood", wrong)


@pytest.mark.parametrize("wrong", [wide_scales, dropped_effects, loose_shifts, blind_shifts])
def test_wrong_samplers_are_rejected(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the identities of the density."""
    statistics = statistics_of((BENEFIT,))
    wrong(monkeypatch)
    assert error_of(statistics, 1200) > 8.0


def test_without_records_the_covariance_is_that_of_the_prior() -> None:
    """Scales half-t, correlations of LKJ: (1 + r) / 2 is Beta(a, a), a = lkj - 1 + D / 2."""
    design, model = general_design(60, (BENEFIT,), psus=PSUS), model_for(psu_scale=1.5, lkj=2.0)
    simulated = model.simulate(
        draw(random_theta(model, design, 1), 0), design, np.random.default_rng(1)
    )
    records = model.records_from_simulated(design, simulated)
    nothing = model.compress(records, np.zeros(design.n))
    drawn = model.sample(nothing, SamplingPlan(4, 100, 500), np.random.default_rng(2))
    covariance = drawn[PSU_COVARIANCE][0]
    scale = np.sqrt(np.einsum("csdd->csd", covariance))
    correlation = covariance / (scale[..., :, None] * scale[..., None, :])
    pairs = correlation[..., *np.tril_indices(3, -1)]
    uniform = np.concatenate(
        [2.0 * stats.t.cdf(scale, 3.0, scale=1.5) - 1.0,
         stats.beta.cdf(0.5 + 0.5 * pairs, 2.5, 2.5)],
        axis=-1,
    )  # fmt: skip
    for power in (1, 2):
        each = uniform**power
        error = each.std((0, 1)) / np.sqrt(effective_sample_size(each))
        assert (np.abs(each.mean((0, 1)) - 1.0 / (1 + power)) / error).max() < 4.5


def test_rows_have_the_moments_of_the_records_less_the_effects() -> None:
    outcomes, n = (BENEFIT, INCOME, SICK), 200
    design, model = general_design(n, outcomes, psus=PSUS), model_for()
    rng, layout = np.random.default_rng(4), layout_of(model, design)
    records = model.records_from_simulated(
        design, model.simulate(draw(random_theta(model, design, 1), 0), design, rng)
    )
    alpha = rng.random(n)
    psus = model.compress(records, alpha).psus
    sums = AmountSums(psus, BetweenDirections.of_chains([psus[0].between], 1))
    assert design.psu is not None
    effects = rng.standard_normal((1, int(design.psu.max()) + 1, layout.q))
    rows = sums.rows(effects)
    there = layout.present(records.category)
    x = layout.tilde(design.matrix.x_cells[design.matrix.cell], records.category)
    z = there * (records.z - effects[0, design.psu])
    size = rows.x.shape[2] // len(sums.present)
    for k, present in enumerate(sums.present):
        own, here = slice(k * size, (k + 1) * size), (there == present).all(1)
        found = np.hstack([rows.x[0, 0, own], rows.z[0, 0, own]])
        truth = np.sqrt(alpha[here])[:, None] * np.hstack([x[here], z[here]])
        np.testing.assert_allclose(found.T @ found, truth.T @ truth, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(rows.total[0, 0], alpha @ there, rtol=1e-12)


def codes(design: PublicDesign) -> IntArray:
    assert design.psu is not None
    return design.psu


def test_units_of_a_simulated_sample_have_the_covariance_of_the_draw() -> None:
    """Log odds given the effects of a unit, and sums of amounts by unit: normal, with T."""
    n, units = 60_000, 600
    design = general_design(n, (SICK, INCOME), psus=units)
    model = model_for()
    theta = draw(random_theta(model, design, 1), 0)
    simulated = model.simulate(theta, design, np.random.default_rng(5))
    assert simulated.effects is not None
    assert simulated.category is not None
    unit = codes(design)
    effects = np.zeros((int(unit.max()) + 1, 3))
    effects[unit] = simulated.effects
    count = len(effects)
    found = effects.T @ effects / count
    bound = 4.5 * np.sqrt(2.0 / count)
    sd = np.sqrt(np.diag(theta[PSU_COVARIANCE]))
    assert (np.abs(found - theta[PSU_COVARIANCE]) / np.outer(sd, sd)).max() < bound
    x = design.matrix.x_cells[design.matrix.cell]
    eta = (x @ theta["logit_1"])[:, 0]
    sick = simulated.category[:, 0]

    def score(predictor: FloatArray) -> float:
        """Standardized sum of what an effect explains beyond the predictor."""
        share = 1.0 / (1.0 + np.exp(-predictor))
        own = simulated.effects[:, 0]  # type: ignore[index]
        return float((own * (sick - share)).sum() / np.sqrt((own**2 * share * (1 - share)).sum()))

    assert abs(score(eta + simulated.effects[:, 0])) < 4.0
    assert score(eta) > 10.0
    # Weights as drawn have the mean that the smoothed ones state, in every unit.
    ratio = np.exp(simulated.z[:, -1]) / model.smooth_weight(theta, design, simulated)
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(n)
    by_unit = np.bincount(unit, ratio - 1.0) / np.sqrt(np.bincount(unit)) / ratio.std()
    assert abs((by_unit**2).mean() - 1.0) < 4.5 * np.sqrt(2.0 / count) * stats.kurtosis(ratio)


def test_databases_one_by_one_draw_as_in_a_batch() -> None:
    """To the bit, as with one chain a database."""
    model, plan = model_for(), SamplingPlan(2, 10, 20)
    parts = [statistics_of((BENEFIT, SICK), seed=seed) for seed in (3, 4)]
    both = model.sample(stacked(parts), plan, [np.random.default_rng(s) for s in (7, 8)])
    for b, (part, seed) in enumerate(zip(parts, (7, 8), strict=True)):
        one = model.sample(part, plan, np.random.default_rng(seed))
        for name, values in one.items():
            np.testing.assert_allclose(both[name][b], values[0], rtol=1e-6, atol=1e-9)


def test_draws_move_smoothly_with_the_risk_weights() -> None:
    model, plan = model_for(), SamplingPlan(2, 20, 60)
    design = general_design(150, (BENEFIT,), psus=PSUS)
    simulated = model.simulate(
        draw(random_theta(model, design, 1), 0), design, np.random.default_rng(3)
    )
    records = model.records_from_simulated(design, simulated)
    drawn = [
        model.sample(model.compress(records, weight * np.ones(150)), plan, np.random.default_rng(1))
        for weight in (0.9, 0.9 + 1e-8)
    ]
    for name in ("logit_1", PSU_COVARIANCE, PSU_EFFECT):
        np.testing.assert_allclose(drawn[0][name], drawn[1][name], rtol=1e-4, atol=1e-5)


def test_scales_of_effects_on_amounts_follow_those_of_residuals() -> None:
    design, model = general_design(60, (BENEFIT, SICK), psus=PSUS), model_for()
    theta = random_theta(model, design, 3)
    moved = model.with_log_scales(theta, model.log_scales(theta) + np.log([2.0, 3.0]))
    factor = np.array([1.0, 1.0, 2.0, 3.0])
    expected = theta[PSU_COVARIANCE] * np.outer(factor, factor)
    np.testing.assert_allclose(moved[PSU_COVARIANCE], expected, rtol=1e-12)


def test_what_effects_are_not_combined_with_is_refused() -> None:
    clustered = general_design(60, (BENEFIT,), psus=PSUS)
    assert get_model("fbs").of(clustered).clustered
    assert get_model("fbp").of(clustered).clustered
    with pytest.raises(InputError, match="lkj"):
        get_model("fbs", priors={"lkj": 2.0}).of(replace(clustered, psu=None))
    assert get_model("fbs", priors={"lkj": 2.0}).of(clustered).priors["lkj"] == 2.0


@pytest.mark.parametrize(
    ("schools", "predictors", "name", "groups"),
    [
        (20, None, "fbs", ("gender", "age")),
        # Units stand for strata that are no predictors, and have no cells.
        (20, "age", "fbs", ("age",)),
        # A mean in either gender leaves five units of seven to tell how they differ.
        (7, None, "fbs", None),
        (20, None, "fbp", ("gender", "age")),
    ],
)
def test_plain_amounts_in_units_have_a_spread_by_cell_where_units_tell_how_they_differ(
    schools: int, predictors: str | None, name: str, groups: tuple[str, ...] | None
) -> None:
    rng = np.random.default_rng(5)
    school = np.arange(400) % schools
    frame = pd.DataFrame(
        {
            "gender": np.where(school % 2, "f", "m"), "school": [f"{each:02}" for each in school],
            "age": rng.choice(["old", "young"], 400), "salary": rng.lognormal(10.0, 0.5, 400),
            "weight": rng.lognormal(3.0, 0.3, 400),
        }
    )  # fmt: skip
    design = Survey.from_frame(
        frame, outcome="salary", weight="weight", strata="gender", psu="school", by="age",
        predictors=predictors, population_size=10_000,
    ).design  # fmt: skip
    model = get_model(name, covariance_by=None).of(design)
    assert isinstance(model, GeneralLocation) == (groups is not None)
    assert getattr(model, "covariance_by", None) == groups
    assert not isinstance(get_model(name).of(design), GeneralLocation)
