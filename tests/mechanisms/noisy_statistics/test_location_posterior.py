"""Draws from noisy counts and moments. Truth: the ordinary fit to the records, where noise is next
to nothing; for coefficients about the declared center, the same draws with another center."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior import draws
from surveysynth.mechanisms.noisy_statistics.posterior.draws import posterior_draws
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    release_statistics,
    table_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation, GeneralRecords
from surveysynth.sampling.convergence import NotConvergedError
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    SICK,
    TAX,
    confidential_of,
    draw,
    general_design,
    model_for,
    random_theta,
)

PLAN = SamplingPlan(32, 100, 100)
N = 80_000
#: Of each cell of ``general_design``: groups are sexes.
GROUP = np.tile([0, 1], 3)


def split(flat: FloatArray, fitted: Theta) -> list[FloatArray]:
    """Numbers (d,) by parameter."""
    return np.split(flat, np.cumsum([values.size for values in fitted.values()])[:-1])


def record_scores(fitted: Theta, records: GeneralRecords, design: PublicDesign) -> FloatArray:
    """Gradients (n, d) of SciPy's log density of each record, by differences."""

    def log_density(flat: FloatArray) -> FloatArray:
        parts = zip(fitted.items(), split(flat, fitted), strict=True)
        theta = {name: own.reshape(values.shape) for (name, values), own in parts}
        return record_density(theta, records, design)

    flat, step = np.concatenate([values.ravel() for values in fitted.values()]), 1e-5
    axes = step * np.eye(flat.size)
    return np.column_stack(
        [(log_density(flat + axis) - log_density(flat - axis)) / (2 * step) for axis in axes]
    )


def record_density(theta: Theta, records: GeneralRecords, design: PublicDesign) -> FloatArray:
    """Log density (n,) of methods 3.1, with slopes (groups, k) and log variances of each group."""
    layout, z, category = records.layout, records.z, records.category
    tilde = layout.tilde(design.matrix.x_cells[records.cell], category)
    there, result = layout.present(category), np.zeros(len(z))
    residual = np.zeros_like(z)
    for part in layout.logits:
        eta = tilde[:, part.columns] @ theta[f"logit_{part.name}"]
        eta = np.column_stack([np.zeros(len(z)), eta])
        result += log_softmax(eta, axis=1)[np.arange(len(z)), category[:, part.outcome]]
    group = GROUP[records.cell] % len(theta[f"variance_{layout.regressions[0].name}"])
    for part in layout.regressions:
        own = there[:, part.position]
        mean = tilde[:, part.columns] @ theta[f"coefficients_{part.name}"]
        left = z[:, part.position] - mean
        expected = (residual[:, part.earlier] * theta[f"slopes_{part.name}"][group]).sum(1)
        sd = np.exp(0.5 * theta[f"variance_{part.name}"][group])
        result += np.where(own, stats.norm.logpdf(left, expected, sd), 0.0)
        residual[:, part.position] = np.where(own, left, 0.0)
    return result


def ordinary_fit(
    theta: Theta, records: GeneralRecords, design: PublicDesign
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Estimates of maximum likelihood and their standard errors, by scores from theta."""
    fitted: Theta = {}
    for part in records.layout.regressions:
        core, variance = theta[f"coefficients_{part.name}"], theta[f"variance_{part.name}"]
        fitted[f"coefficients_{part.name}"] = core[: part.columns.size].copy()
        own = theta.get(f"slopes_{part.name}", np.zeros((variance.size, part.earlier.size)))
        fitted[f"slopes_{part.name}"] = core[part.columns.size :] + own
        fitted[f"variance_{part.name}"] = np.log(variance)
    for part in records.layout.logits:
        fitted[f"logit_{part.name}"] = theta[f"logit_{part.name}"].copy()
    for _ in range(8):
        scores = record_scores(fitted, records, design)
        covariance = np.linalg.inv(scores.T @ scores)
        step, sd = covariance @ scores.sum(0), np.sqrt(np.diag(covariance))
        fitted = {
            name: values + own.reshape(values.shape)
            for (name, values), own in zip(fitted.items(), split(step, fitted), strict=True)
        }
    assert np.abs(step / sd).max() < 0.01
    pairs = zip(fitted.items(), split(sd, fitted), strict=True)
    return {name: (values.ravel(), own) for (name, values), own in pairs}


def told(theta: Theta, layout: Layout, draws: int) -> dict[str, FloatArray]:
    """Parameters (draws, d) that records tell: slopes of each group, not what groups share."""
    result = {k: v.reshape(draws, -1) for k, v in theta.items() if k.startswith("logit_")}
    for part in layout.regressions:
        result[f"variance_{part.name}"] = np.log(theta[f"variance_{part.name}"].reshape(draws, -1))
        core = theta[f"coefficients_{part.name}"].reshape(draws, -1)
        means, slopes = np.split(core, [part.columns.size], axis=1)
        if f"slopes_{part.name}" in theta:
            own = theta[f"slopes_{part.name}"].reshape(draws, -1, slopes.shape[1])
            slopes = slopes[:, None] + own
        result[f"coefficients_{part.name}"] = means
        result[f"slopes_{part.name}"] = slopes.reshape(draws, -1)
    return result


def away_from_splits(theta: Theta, layout: Layout, outcomes: tuple) -> None:
    """Amounts beside a split at a fifth of their scale about 1.5, where their laws are not cut."""
    scale = np.ones(layout.q)
    for position, (j, _) in enumerate(layout.amounts):
        scale[position] = 1.0 if outcomes[j].split is None else 0.2
    for part in layout.regressions:
        own, ratio = scale[part.position], scale[part.position] / scale[part.earlier]
        core = theta[f"coefficients_{part.name}"]
        core *= np.append(np.full(part.columns.size, own), ratio)
        if own < 1.0:
            core[0] = 1.5
        theta[f"variance_{part.name}"] *= own**2
        if f"slopes_{part.name}" in theta:
            theta[f"slopes_{part.name}"] *= ratio


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcomes", "by", "weighted"),
    [((SICK, BENEFIT), ("sex",), True), ((BENEFIT,), (), True), ((BENEFIT, INCOME), (), False),
     ((INCOME,), ("sex",), True), ((TAX, INCOME), ("sex",), True)],
    ids=["kinds", "one group", "public weight", "continuous", "two sides"],
)  # fmt: skip
def test_next_to_no_noise_is_the_ordinary_fit(
    outcomes: tuple, by: tuple[str, ...], weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means and SDs of parameters beside estimates and standard errors from the records alone.

    The ordinary fit knows of no levels that deviate by group."""
    monkeypatch.setattr(draws, "Parameters", partial(Parameters, deviating=False))
    design = replace(general_design(N, outcomes, weighted=weighted), population_size=40 * N)
    model = model_for(by)
    theta = draw(random_theta(model, design, 1), 0)
    away_from_splits(theta, Layout.of(design, bool(by)), outcomes)
    rng = np.random.default_rng(4)
    survey = confidential_of(design, model.simulate(theta, design, rng, "sample"))
    # Amounts beside a split are small here: noise is next to nothing beside a like spread only.
    spreads = {o.name: 0.7 if o.split is None else 0.1 for o in outcomes if o.is_amount}
    amounts = {name: Declared(0.0, spread) for name, spread in spreads.items()}
    below = {o.name: Declared(-1.5, 0.1) for o in outcomes if o.split is not None}
    settings = NoisySettings(
        Budget.of_rho(1e6, 1e-6), amounts, Declared(0.0, 0.7), m=1600, radius=60.0, plan=PLAN,
        declared_below=below,
    )  # fmt: skip
    statistics = release_statistics(
        model, design, survey, settings, SeededNoise(np.random.default_rng(5))
    )
    result, _ = posterior_draws(model, design, statistics, settings, np.random.default_rng(6))
    records = model.records(design, survey)
    own_told = told(result.theta, records.layout, 1600)
    for name, (truth, sd) in ordinary_fit(theta, records, design).items():
        own = own_told[name]
        # About 300 independent draws.
        gap = np.abs(own.mean(0) - truth) / sd
        assert gap.max(initial=0.0) < 0.3, (name, gap)
        assert np.abs(np.log(own.std(0) / sd)).max(initial=0.0) < 0.25, (name, own.std(0) / sd)


def released(
    outcomes: tuple, by: tuple[str, ...], plan: SamplingPlan
) -> tuple[GeneralLocation, PublicDesign, NoisySettings, LocationStatistics]:
    """Noisy statistics of 120 records, with what they are released under."""
    design = replace(general_design(120, outcomes, weighted=True), population_size=4_800)
    model = model_for(by)
    theta = draw(random_theta(model, design, 1), 0)
    survey = confidential_of(
        design, model.simulate(theta, design, np.random.default_rng(4), "sample")
    )
    settings = NoisySettings(
        Budget.of_rho(20.0, 1e-6), {"income": Declared(0.0, 1.5)}, Declared(0.0, 1.5), m=8,
        plan=plan,
    )  # fmt: skip
    noise = SeededNoise(np.random.default_rng(5))
    statistics = release_statistics(model, design, survey, settings, noise)
    assert isinstance(statistics, LocationStatistics)
    return model, design, settings, statistics


def test_chains_are_fewer_where_each_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """But enough for m draws, and never more than the plan's."""
    model, design, _, statistics = released((INCOME,), (), SamplingPlan(4, 10, 20))
    shape = table_of(model, design)
    table = NoisyTable.of(shape, design.matrix.cell, statistics, draws.alike(design.matrix))
    plan = SamplingPlan(32, 100, 60)
    assert draws.chains_side_by_side(table, plan, 20) == 32
    monkeypatch.setattr(draws, "BUSY", 1)
    assert draws.chains_side_by_side(table, plan, 20) == draws.LEAST_CHAINS
    assert draws.chains_side_by_side(table, plan, 60 * 20 - 1) == 20
    assert draws.chains_side_by_side(table, SamplingPlan(4, 10, 20), 20) == 4


@pytest.mark.parametrize(("r_hat", "rounds"), [(1.09, (20, 40)), (1.2, (20, 40))])
def test_chains_that_were_near_keep_their_rounds(
    r_hat: float, rounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were far warm up again, by as many rounds as there were."""
    model, design, settings, statistics = released((INCOME,), (), SamplingPlan(4, 10, 20))
    seen, warm = list[FloatArray](), list[int]()
    warm_up = draws.HamiltonianChains.warm_up

    def counted(self: draws.HamiltonianChains, number: int) -> None:
        warm.append(number)
        warm_up(self, number)

    def judged(functionals: dict[str, FloatArray], least: object) -> tuple[dict, dict]:
        seen.append(functionals["means"])
        if len(seen) == 1:
            failed = NotConvergedError("not yet")
            failed.r_hat = r_hat
            raise failed
        return {"means": 1.0}, {"means": 100.0}

    monkeypatch.setattr(draws.HamiltonianChains, "warm_up", counted)
    monkeypatch.setattr(draws, "check_convergence", judged)
    said = list[str]()
    _, record = posterior_draws(
        model, design, statistics, settings, np.random.default_rng(6), said.append
    )
    assert tuple(each.shape[1] for each in seen) == rounds
    assert (record.rounds, record.chains) == (rounds[1], 4)
    near = r_hat < draws.NEAR
    assert warm == ([10] if near else [10, 20])
    assert np.array_equal(seen[1][:, :20], seen[0]) == near
    assert len(said) == 1
    assert "20 more rounds" in said[0]


def test_chains_that_never_meet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, design, settings, statistics = released((INCOME,), (), SamplingPlan(4, 5, 5))

    def never(functionals: dict[str, FloatArray], least: object) -> None:
        failed = NotConvergedError("not yet")
        failed.r_hat = 1.08
        raise failed

    monkeypatch.setattr(draws, "check_convergence", never)
    with pytest.raises(RefusedError, match=r"have not converged: R-hat is 1\.08 .* used again"):
        posterior_draws(model, design, statistics, settings, np.random.default_rng(6))


def test_what_the_prior_says_of_effects_does_not_depend_on_where_amounts_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another center of the weight moves its intercept, and nothing else.

    With a prior about zero it makes the scale of all effects as large as itself: where a category
    has no records, weights were exp(10) times too large. The same random numbers serve both."""
    model, design, settings, statistics = released(
        (SICK, INCOME), ("sex",), SamplingPlan(4, 10, 10)
    )
    monkeypatch.setattr(draws, "check_convergence", lambda *given: ({}, {}))
    moved = replace(statistics, centre=statistics.centre + np.array([0.0, 10.0]))
    found = []
    for each in (statistics, moved):
        drawn, _ = posterior_draws(model, design, each, settings, np.random.default_rng(6))
        found.append(drawn.theta)
    before, after = found
    intercept = before["coefficients_weight"] * 0.0
    intercept[..., 0] = 10.0
    np.testing.assert_allclose(
        after["coefficients_weight"], before["coefficients_weight"] + intercept, rtol=1e-9
    )
    for name in set(before) - {"coefficients_weight"}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
