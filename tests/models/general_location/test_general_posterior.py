"""Draws of the general location model: NUTS on its density (which ``test_general_density.py`` holds
against SciPy), quadrature of an intercept, the prior where no record counts, and mixing where
categories are rare, groups many and coefficients near zero. Wrong samplers are rejected."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammainccinv

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location import layout, prior_rows
from surveysynth.models.general_location.coefficients import Coefficients
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.prior_rows import of_interactions
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.general_location.scales import Scales
from surveysynth.models.general_location.stats import GeneralStats, GroupRows
from surveysynth.models.parts.logit import LogitBlocks, LogitSums
from surveysynth.sampling.convergence import effective_sample_size, r_hat
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.outcome import Outcome
from tests import oracles
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    BY,
    INCOME,
    WORK,
    confidential_of,
    draw,
    general_design,
    model_for,
    random_theta,
)
from tests.oracles.general_location import unconstrain


def statistics_of(
    model: GeneralLocation,
    n: int,
    outcomes: tuple,
    seed: int = 3,
    full: float = 0.7,
    ridged: bool = False,
    pseudo: float = 0.0,
) -> GeneralStats:
    """Of a database simulated from arbitrary parameters; a share of the records has weight one."""
    design = general_design(n, outcomes, ridged=ridged, pseudo=pseudo)
    theta = draw(random_theta(model, design, 1, seed=seed), 0)
    rng = np.random.default_rng(seed)
    survey = confidential_of(design, model.simulate(theta, design, rng, "sample"))
    alpha = np.where(rng.random(n) < full, 1.0, rng.random(n))
    return model.compress(model.records(design, survey), alpha)


def watched(model: GeneralLocation, theta: Theta) -> FloatArray:
    """Scalars (chains, draws, d) that converge: all but those of the prior's scales."""
    return np.concatenate(list(model.monitored(theta).values()), axis=-1)


def largest_z(one: FloatArray, two: FloatArray) -> float:
    """Of the differences of means and of log SDs."""
    z = []
    for power in (1, 2):
        centre = one.mean((0, 1)) if power == 2 else 0.0
        first, second = (np.abs(u - centre) ** power if power == 2 else u for u in (one, two))
        error = [u.var((0, 1)) / effective_sample_size(u) for u in (first, second)]
        z.append(np.abs(first.mean((0, 1)) - second.mean((0, 1))) / np.sqrt(sum(error)))
    return float(np.max(z))


@pytest.mark.parametrize(
    ("outcomes", "by", "ridged", "pseudo"),
    [
        pytest.param((BENEFIT, WORK), (), True, 0.0, id="two-part and categorical"),
        pytest.param((INCOME, BENEFIT), ("region",), False, 0.0, id="groups"),
        pytest.param((INCOME,), BY, True, 0.0, id="cells"),
        pytest.param((BENEFIT, WORK), (), True, 10.0, id="pseudo-records"),
        pytest.param((INCOME, BENEFIT), ("region",), False, 10.0, id="pseudo-records by group"),
    ],
)
def test_draws_satisfy_the_identities_of_the_density(
    outcomes: tuple, by: tuple[str, ...], ridged: bool, pseudo: float
) -> None:
    """E grad log p(u) = 0 and E u_j d log p / du_j = -1 by parts: sampler and density agree.

    Draws 1.3 times as far from their mean are rejected."""
    model = model_for(by)
    statistics = statistics_of(model, 120, outcomes, ridged=ridged, pseudo=pseudo)
    drawn = model.sample(statistics, SamplingPlan(4, 300, 1600), np.random.default_rng(1))
    u = unconstrain({name: values[0] for name, values in drawn.items()}, pseudo)
    assert largest_error(model, u, statistics) < 4.5
    mean = u.mean((0, 1))
    assert largest_error(model, mean + 1.3 * (u - mean), statistics) > 8.0


def plain_ridge(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """tau in the place of the ridge."""
    return replace(statistics, layout=replace(statistics.layout, ridged=()))


def wide_ridge(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """Three times the scale of interactions."""
    monkeypatch.setattr(
        prior_rows, "of_interactions", lambda layout, _: of_interactions(layout, 0.9)
    )
    return statistics


def with_df(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variances drawn under another df than the one that is kept."""
    sound = Scales.update_variances

    def wrong(self: Scales, i: int, total: FloatArray, squares: FloatArray, prior: tuple) -> None:
        sound(self, i, total, squares, prior)
        shape = 0.5 * (factor * self.nu[..., None] + total)
        gamma = np.maximum(gammainccinv(shape, self.u_variance[i, 0]), 1e-200)
        pull = factor * (self.nu * self.s_0**2)[..., None]
        self.variance = np.clip(0.5 * (squares + pull) / gamma, 1e-200, 1e200)

    monkeypatch.setattr(Scales, "update_variances", wrong)


def weak_pooling(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """A third of the degrees of freedom."""
    with_df(1 / 3, monkeypatch)
    return statistics


def no_pooling(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """Every group by itself."""
    with_df(1e-3, monkeypatch)
    return statistics


def uncentred(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """Slopes on earlier columns themselves."""

    def earlier(self: Coefficients, residual: FloatArray) -> FloatArray:
        return np.asarray(self.all_z[..., self.part.earlier] * self.there)

    def observe(self: Coefficients, rows: GroupRows) -> None:
        sound(self, rows)
        self.all_z = rows.z

    def rest(self: Regressions) -> None:
        sound_rest(self)
        told = self.parts[0].all_z @ self.slopes.swapaxes(-1, -2)
        self.rest = self.residual - self.present * told

    sound, sound_rest = Coefficients.observe, Regressions._set_rest
    monkeypatch.setattr(Coefficients, "observe", observe)
    monkeypatch.setattr(Coefficients, "_earlier", earlier)
    monkeypatch.setattr(Regressions, "_set_rest", rest)
    return statistics


def plain_logits(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """The prior of main effects for interactions of a logit."""
    monkeypatch.setattr(layout, "LOGIT_RIDGE", 2.5 / 0.3)
    return statistics


def wide_logits(statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch) -> GeneralStats:
    """Three times the prior SD of interactions of a logit."""
    monkeypatch.setattr(layout, "LOGIT_RIDGE", 6.0)
    return statistics


def no_records_of_the_prior(
    statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch
) -> GeneralStats:
    """Sums of squares of pseudo-records, but not their number."""
    pseudo = statistics.pseudo
    assert pseudo is not None
    return replace(statistics, pseudo=replace(pseudo, count=0.0 * pseudo.count))


def no_effects_in_the_prior(
    statistics: GeneralStats, monkeypatch: pytest.MonkeyPatch
) -> GeneralStats:
    """Effects of categories with tau alone."""
    pseudo = statistics.pseudo
    assert pseudo is not None
    x = pseudo.x.copy()
    x[:, statistics.layout.columns :] = 0.0
    return replace(statistics, pseudo=replace(pseudo, x=x))


@pytest.mark.parametrize("wrong", [no_records_of_the_prior, no_effects_in_the_prior])
def test_wrong_pseudo_records_are_rejected(
    wrong: Callable[[GeneralStats, pytest.MonkeyPatch], GeneralStats],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the identities of the density, of few records."""
    model = model_for()
    statistics = statistics_of(model, 40, (BENEFIT,), pseudo=20.0)
    drawn = model.sample(
        wrong(statistics, monkeypatch), SamplingPlan(4, 150, 400), np.random.default_rng(1)
    )
    u = unconstrain({name: values[0] for name, values in drawn.items()})
    assert largest_error(model, u, statistics) > 8.0


@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [
        *((each, INCOME) for each in (plain_ridge, wide_ridge, weak_pooling, no_pooling)),
        (uncentred, INCOME), (plain_logits, WORK), (wide_logits, WORK),
    ],
)  # fmt: skip
def test_wrong_shrinkage_and_uncentred_slopes_are_rejected(
    wrong: Callable[[GeneralStats, pytest.MonkeyPatch], GeneralStats],
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the identities of the density."""
    model = model_for(BY)
    statistics = statistics_of(model, 200, (outcome,), ridged=True)
    seen = wrong(statistics, monkeypatch)
    drawn = model.sample(seen, SamplingPlan(4, 150, 400), np.random.default_rng(1))
    u = oracles.unconstrain(model, {name: values[0] for name, values in drawn.items()})
    assert largest_error(model, u, statistics) > 8.0


def largest_error(model: GeneralLocation, u: FloatArray, statistics: GeneralStats) -> float:
    """Largest distance of the two identities from zero, in standard errors."""
    gradient = oracles.log_density(model, u, statistics)[1]
    result = []
    for each in (gradient, 1.0 + (u - u.mean((0, 1))) * gradient):
        error = each.std((0, 1)) / np.sqrt(effective_sample_size(each))
        result.append(np.abs(each.mean((0, 1)) / error).max())
    return float(max(result))


def logit_draws(sums: LogitSums, plan: SamplingPlan, seed: int = 1, sd: float = 2.5) -> FloatArray:
    """(databases, chains, draws, d)"""

    class Alone(LogitBlocks):
        def state(self) -> Theta:
            return {"b": self.b}

    streams = Streams.of(np.random.default_rng(seed), sums.counts.shape[0], plan.chains)
    return run_sweeps(Alone(sums, sd, streams), plan)["b"]


@pytest.mark.parametrize(("zero", "one"), [(10.3, 4.9), (200.0, 0.0), (0.4, 0.7), (0.0, 0.0)])
def test_a_saturated_share_has_the_posterior_of_quadrature(zero: float, one: float) -> None:
    """Fractional counts, an empty category, next to no data."""
    sums = LogitSums(np.ones((1, 1, 1)), np.array([[[zero, one]]]))
    drawn = logit_draws(sums, SamplingPlan(4, 100, 4000))[0]
    b = np.linspace(-25.0, 25.0, 20_001)
    log = one * b - (zero + one) * np.logaddexp(0.0, b) + stats.norm.logpdf(b, 0, 2.5)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    for function in (lambda v: v, expit, lambda v: v**2):
        mean = mass @ function(b)
        sd = np.sqrt(mass @ (function(b) - mean) ** 2)
        values = function(drawn)
        error = sd / np.sqrt(effective_sample_size(values)[0])
        assert abs(values.mean() - mean) < 4.5 * error
    if zero + one > 5 and one:
        # Up to the prior the share is that of the weighted counts; a prior ten times as strong
        # is rejected.
        share = one / (zero + one)
        assert abs(expit(drawn).mean() - share) < 0.15 * np.sqrt(share * (1 - share) / (zero + one))


def test_logits_of_rare_and_absent_categories_mix() -> None:
    rng = np.random.default_rng(3)
    region, sex = np.divmod(np.arange(12), 2)
    x = np.column_stack([np.ones(12), region[:, None] == np.arange(1, 6), sex]).astype(float)
    size = rng.integers(300, 1500, 12)
    size[5] = 11
    rare = rng.binomial(size, 0.0005)
    counts = 0.2 * np.stack([size - rare, rare, 0 * rare, 3 + 0 * rare], axis=-1)
    drawn = logit_draws(LogitSums(x[None], counts[None]), SamplingPlan(4, 250, 250))[0]
    assert effective_sample_size(drawn).min() > 250.0
    assert r_hat(drawn).max() < 1.03


def test_many_groups_with_few_records_mix() -> None:
    design = general_design(1500, ALL, regions=12)
    model = model_for(BY)
    theta = draw(random_theta(model, design, 1, size=0.1), 0)
    rng = np.random.default_rng(5)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    statistics = model.compress(model.records(design, survey), 0.15 * rng.random(1500))
    assert statistics.groups > 10
    theta = model.sample(statistics, SamplingPlan(), np.random.default_rng(1))
    one = {name: values[0] for name, values in theta.items()}
    scales = [np.log(one[name])[..., None] for name in one if "scale" in name or "df" in name]
    everything = np.concatenate([watched(model, one), *scales], axis=-1)
    assert effective_sample_size(everything).min() > 100.0
    assert r_hat(everything).max() < 1.05


def test_means_mix_where_the_weight_follows_the_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in samples by size: a correlation of -.995. Regression by regression, means creep."""
    model, design = model_for(), general_design(400, (INCOME,))
    theta = draw(random_theta(model, design, 1), 0)
    theta["coefficients_weight"][-1] = -1.0
    theta["variance_1"][:], theta["variance_weight"][:] = 1.0, 0.01
    survey = confidential_of(design, model.simulate(theta, design, np.random.default_rng(1)))
    statistics = model.compress(model.records(design, survey), np.full(400, 0.5))
    least = []
    for means in (Regressions._means, lambda self, i: None):
        monkeypatch.setattr(Regressions, "_means", means)
        drawn = model.sample(statistics, SamplingPlan(4, 100, 300), np.random.default_rng(1))
        one = {name: values[0] for name, values in drawn.items()}
        least.append(effective_sample_size(watched(model, one)).min())
    assert least[0] > 300.0
    assert least[1] < 100.0


def test_without_records_draws_are_those_of_the_prior() -> None:
    """Scales against SciPy, by quantiles; a half-t of twice the scale is rejected."""
    model = model_for(("region",))
    design = general_design(60, (INCOME, BENEFIT))
    theta = draw(random_theta(model, design, 1), 0)
    survey = confidential_of(design, model.simulate(theta, design, np.random.default_rng(1)))
    statistics = model.compress(model.records(design, survey), np.zeros(60))
    drawn = model.sample(statistics, SamplingPlan(8, 300, 1500), np.random.default_rng(2))
    one = {name: values[0] for name, values in drawn.items()}
    laws = {
        "coefficient_scale_1": stats.t(3, scale=10.0),
        "coefficient_scale_weight": stats.t(3, scale=10.0),
        "pooled_scale_2": stats.t(3, scale=10.0),
        "slope_scale_2": stats.t(3, scale=1.0),
        "slope_scale_weight": stats.t(3, scale=1.0),
        "pooled_df_weight": stats.t(1, scale=20.0),
        "logit_2": stats.norm(0, 2.5),
    }
    for name, law in laws.items():
        values = one[name].reshape(8, 1500, -1)[..., :1]
        values = np.abs(values)
        for probability in (0.2, 0.5, 0.8):
            point = law.ppf(0.5 + 0.5 * probability)
            below = (values < point).astype(float)
            error = np.sqrt(probability * (1 - probability) / effective_sample_size(values)[0])
            assert abs(below.mean() - probability) < 4.5 * error, (name, probability)
            wrong = (2.0 * values < point).mean()
            assert abs(wrong - probability) > 4.5 * error, (name, probability)


def test_databases_one_by_one_draw_as_in_a_batch() -> None:
    model = model_for(("region",))
    databases = [statistics_of(model, n, ALL, seed=n) for n in (600, 700)]
    plan = SamplingPlan(2, 10, 8)

    def generators() -> list[np.random.Generator]:
        return [np.random.default_rng(seed) for seed in (7, 8)]

    both = model.sample(GeneralStats.stacked(databases), plan, generators())
    for i, (statistics, rng) in enumerate(zip(databases, generators(), strict=True)):
        alone = model.sample(statistics, plan, rng)
        for name, values in alone.items():
            np.testing.assert_allclose(both[name][i], values[0], rtol=1e-7, atol=1e-9)


def test_draws_move_smoothly_with_the_risk_weights() -> None:
    """Common random numbers: nearly all draws of two close fits are close."""
    model, design = model_for(("region",)), general_design(500, (BENEFIT, WORK))
    theta = draw(random_theta(model, design, 1), 0)
    survey = confidential_of(design, model.simulate(theta, design, np.random.default_rng(1)))
    records, alpha = model.records(design, survey), np.full(500, 0.8)
    fits = [
        model.sample(model.compress(records, weight), SamplingPlan(2, 20, 40), generator)
        for weight, generator in (
            (alpha, np.random.default_rng(1)),
            (alpha * (1 - 1e-9), np.random.default_rng(1)),
            (alpha, np.random.default_rng(2)),
        )
    ]
    u = [watched(model, {name: values[0] for name, values in fit.items()}) for fit in fits]
    spread = u[0].std((0, 1))
    close, apart = (np.median(np.abs(u[0] - other) / spread) for other in u[1:])
    assert close < 1e-3
    assert apart > 0.1
