"""The prior of the parameters, and scales of groups drawn given what they scale. Truth: the prior
written out, with what coordinates stretch; densities on a grid."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.amount_law import AmountLaw
from surveysynth.mechanisms.noisy_statistics.posterior.category_law import CategoryLaw
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters, Point
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.survey.outcome import Outcome
from tests.mechanisms.noisy_statistics.law_cases import AGE, BENEFIT, PAY, WORKS, released

PRIORS = {**GeneralLocation.default_priors, "residual_scale": 1.3, "coefficient_scale": 1.7}
KAPPA = PRIORS["interaction_scale"]


def parameters_of(outcomes: tuple[Outcome, ...], grouped: bool = True) -> Parameters:
    """The last column of X shrunken; spreads that differ."""
    table = released(outcomes, np.random.default_rng(1), grouped=grouped)
    spread = np.linspace(0.7, 2.1, table.shape.q)
    layout = replace(table.shape.layout, ridged=(2,))
    return Parameters(layout, replace(table, spread=spread), PRIORS)


def half_t(values: FloatArray, df: float, scale: float) -> FloatArray:
    """Log density of the log of a half-t variable."""
    return np.asarray(stats.t(df).logpdf(values / scale) + np.log(values))


def of_column(posterior: Parameters, point: Point, j: int) -> Any:
    """The log prior (b,) of the regression of column j: of coefficients, deviations, slopes and log
    variances of groups, and logs of scales."""
    layout = posterior.layout
    pairs = np.flatnonzero(posterior.row == j)
    earlier, s = posterior.column[pairs], np.exp(point.log_s[:, j])
    typical = np.exp(0.5 * point.log_variance[:, j].mean(1))  # residual SD of groups
    tau, columns = np.exp(point.log_tau[:, j]), layout.regressions[j].columns
    unit = posterior.spread[j] / posterior.spread[earlier]
    wide = max(posterior.spread[j], 1.0)
    value: Any = half_t(s, 3.0, PRIORS["residual_scale"] * wide)
    value = value + half_t(tau, 3.0, PRIORS["coefficient_scale"] * wide)
    value = value + stats.norm(0.0, unit).logpdf(point.core[:, pairs]).sum(1)
    for k in columns:
        own = point.coefficients[:, :, k]
        if k in layout.ridged:
            left = own[:, j] - (point.core[:, pairs] * own[:, earlier]).sum(1)
            value = value + stats.norm(0.0, KAPPA * typical).logpdf(left)
        else:
            value = value + stats.norm(0.0, tau).logpdf(own[:, j])
    if not layout.grouped:
        return value
    for e in range(layout.width - layout.columns):
        own = point.deviations[..., e]
        if layout.columns + e in columns:
            left = own[:, j] - np.einsum("bs,bsg->bg", point.core[:, pairs], own[:, earlier])
            value = value + stats.norm(0.0, KAPPA * typical[:, None]).logpdf(left).sum(1)
        else:
            assert not own[:, j].any()
    contrasts, nu = posterior.contrasts, np.exp(point.log_nu[:, j])
    value = value + half_t(nu, 1.0, PRIORS["pooling_df"]) - nu / 1e4
    effects = point.of_levels[:, j]
    value = value + stats.norm(0.0, 2.0 * KAPPA).logpdf(effects).sum(1)
    about, half = np.exp(2.0 * point.log_s[:, j, None] + effects @ contrasts), 0.5 * nu[:, None]
    variance = np.exp(point.log_variance[:, j])
    law = stats.invgamma(half, scale=half * about)
    value = value + (law.logpdf(variance) + np.log(variance)).sum(1)
    if not pairs.size:
        return value
    t = np.exp(point.log_t[:, j])
    value = value + half_t(t, 3.0, PRIORS["slope_scale"])
    effects = point.slopes_of_levels[:, pairs]
    value = value + stats.norm(0.0, KAPPA * unit[:, None]).logpdf(effects).sum((1, 2))
    off = point.slopes[:, pairs] - point.core[:, pairs, None] - effects @ contrasts
    return value + stats.norm(0.0, t[:, None, None]).logpdf(off).sum((1, 2))


def stretched(posterior: Parameters, x: FloatArray, j: int) -> Any:
    """What coordinates stretch these by, in log volumes (b,), and the prior of idle coordinates."""
    point, part, layout = posterior.point(x), posterior.parts(x), posterior.layout
    pairs = np.flatnonzero(posterior.row == j)
    typical, tau = np.exp(0.5 * point.log_variance[:, j].mean(1)), np.exp(point.log_tau[:, j])
    # tau = least (1 + e^x): the spread of an amount, a twentieth of that of the weight.
    least = posterior.spread[j] * (1.0 if layout.regressions[j].outcome is not None else 0.05)
    assert (tau > least).all()
    value = np.log1p(-least / tau) + len(layout.ridged) * np.log(KAPPA * typical)
    if not layout.grouped:
        return value
    for e in range(layout.width - layout.columns):
        if layout.columns + e in layout.regressions[j].columns:
            value = value + posterior.groups * np.log(KAPPA * typical)
        else:
            value = value + stats.norm.logpdf(part["deviations"][:, j, :, e]).sum(1)
    value = value - 0.5 * posterior.groups * np.log(0.5 * np.exp(point.log_nu[:, j]))
    if not pairs.size:
        return value + stats.norm.logpdf(part["log_t"][:, j])
    return value + posterior.groups * pairs.size * point.log_t[:, j]


def log_volume(posterior: Parameters, x: FloatArray, i: int) -> FloatArray:
    """Of coefficients of a logit by coordinates, by differences."""
    places, step = np.arange(posterior.dimension)[posterior.slices[f"logit {i}"]], 1e-5
    columns = []
    for place in places:
        change = step * (np.arange(posterior.dimension) == place)
        ends = [posterior.point(x + sign * change).logits[i] for sign in (1.0, -1.0)]
        columns.append((ends[0] - ends[1]).reshape(len(x), -1) / (2.0 * step))
    return np.asarray(np.linalg.slogdet(np.stack(columns, axis=-1))[1])


@pytest.mark.parametrize("grouped", [True, False], ids=["groups", "one group"])
@pytest.mark.parametrize(
    "outcomes", [(AGE, PAY), (WORKS, BENEFIT, AGE)], ids=["amounts", "kinds"]
)
def test_the_density_is_that_of_the_prior_where_nothing_is_known(
    outcomes: tuple[Outcome, ...], grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        AmountLaw, "__call__",
        lambda self, means, cov: (np.zeros(len(means)), 0.0 * means, 0.0 * cov),
    )  # fmt: skip
    monkeypatch.setattr(
        CategoryLaw, "__call__",
        lambda self, log_p, means, cov: (
            np.zeros(len(means)), 0.0 * log_p, 0.0 * means, [0.0 * each for each in cov]
        ),
    )  # fmt: skip
    posterior = parameters_of(outcomes, grouped)
    x = 0.5 * np.random.default_rng(2).standard_normal((6, posterior.dimension))
    point = posterior.point(x)
    expected = sum(
        of_column(posterior, point, j) + stretched(posterior, x, j) for j in range(posterior.q)
    )
    for part, own in zip(posterior.layout.logits, point.logits, strict=True):
        ridged = np.isin(part.columns, posterior.layout.ridged)
        sd = np.where(ridged, 2.0 * KAPPA, PRIORS["logit_sd"])[:, None]
        expected = expected + stats.norm(0.0, sd).logpdf(own).sum((1, 2))
    for i in range(len(posterior.logits)):
        expected = expected + log_volume(posterior, x, i)
    found, _ = posterior(x)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("outcomes", [(AGE, PAY), (WORKS, BENEFIT, AGE)], ids=["amounts", "kinds"])
def test_scales_and_shared_values_are_drawn_given_what_has_them(
    outcomes: tuple[Outcome, ...],
) -> None:
    """What has them stays where it is. After many draws each is one of its law given all the rest:
    on a grid, where ranks are uniform, and not those of values a third of an SD away."""
    posterior, rng = parameters_of(outcomes), np.random.default_rng(3)
    start = np.tile(0.8 * rng.standard_normal(posterior.dimension), (600, 1))
    x = start
    for _ in range(30):
        x = posterior.redraw_scales(x, rng)
    before, after = posterior.point(start), posterior.point(x)
    for name in ("coefficients", "deviations", "log_variance", "slopes"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=1e-9)
    idle = posterior.parts(x)["deviations"] - posterior.parts(start)["deviations"]
    assert not np.where(posterior.levels[:, None], 0.0, idle).any()
    for j in range(posterior.q):
        places = [(name, j) for name in ("log_s", "log_tau", "log_nu", "log_t")]
        places += [("core", pair) for pair in np.flatnonzero(posterior.row == j).tolist()]
        for name, place in places if posterior.sloped[j] else places[:3]:
            values = getattr(after, name)[:, place]
            grid = np.linspace(values.min() - 3.0, values.max() + 3.0, 301)
            if name == "log_tau":
                grid = np.linspace(posterior.least_tau[j], values.max() + 3.0, 301)
            changed = np.repeat(getattr(after, name)[:, None], grid.size, axis=1)
            changed[:, :, place] = grid
            drawn = {name: changed.reshape(-1, changed.shape[-1])}
            repeated = {
                each.name: getattr(after, each.name) for each in fields(Point)
                if each.name not in (name, "logits")
            }  # fmt: skip
            repeated = {key: np.repeat(each, grid.size, axis=0) for key, each in repeated.items()}
            point = Point(logits=(), **repeated, **drawn)
            log_density = of_column(posterior, point, j).reshape(len(x), -1)
            density = np.exp(log_density - log_density.max(1, keepdims=True))
            below = np.zeros_like(density)
            below[:, 1:] = (density[:, 1:] + density[:, :-1]).cumsum(1)
            below /= below[:, -1:]
            for shift, right in ((0.0, True), (0.3 * values.std(), False)):
                pairs = zip(values + shift, below, strict=True)
                shares = [np.interp(value, grid, own) for value, own in pairs]
                assert (stats.kstest(shares, "uniform").pvalue > 1e-3) == right, (name, place)


def test_points_beyond_what_a_law_can_have_are_outside() -> None:
    posterior = parameters_of((AGE,))
    x = np.zeros((3, posterior.dimension))
    x[1] = 1e3
    x[2, posterior.slices["log_s"]] = 40.0
    value, gradient = posterior(x)
    assert np.isfinite(value).tolist() == [True, False, False]
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("log_nu", [8.0, 15.0, 30.0, 45.0])
def test_groups_that_do_not_differ_leave_nothing_but_the_prior_of_nu(log_nu: float) -> None:
    """It falls as exp(-nu / 10^4) / nu; rounding once made it rise by 10^8, and chains stood."""
    posterior = parameters_of((AGE, PAY))
    x = np.zeros((2, posterior.dimension))
    x[0, posterior.slices["log_nu"]] = log_nu
    x[1, posterior.slices["log_nu"]] = log_nu + 1.0
    nu = PRIORS["pooling_df"] * np.exp(x[:, posterior.slices["log_nu"]])
    value, gradient = posterior(x)
    fall = (1.0 + np.diff(nu, axis=0) / 1e4).sum()
    assert value[1] - value[0] == pytest.approx(-fall, rel=1e-4)
    np.testing.assert_allclose(
        gradient[:, posterior.slices["log_nu"]], -1.0 - nu / 1e4, rtol=1e-4
    )


@pytest.mark.parametrize(
    "outcomes", [(AGE, PAY), (WORKS, BENEFIT, AGE)], ids=["amounts", "kinds"]
)
def test_groups_meet_each_other_through_the_rest_alone(outcomes: tuple[Outcome, ...]) -> None:
    """A step in what one group has to itself changes no gradient of another group, but its own and
    those of the rest; and those of others where the unit of what is shrunken moves."""
    whole = parameters_of(outcomes)
    apart, dimension = whole.apart(), whole.dimension
    assert np.unique(apart).size == apart.size
    x = 0.3 * np.random.default_rng(3).standard_normal(dimension)
    posterior = whole.about(x)
    assert posterior(x[None])[0] == pytest.approx(whole(x[None])[0], rel=1e-12)
    rest = np.setdiff1d(np.arange(dimension), apart)
    assert not any(np.isin(rest, np.arange(dimension)[posterior.slices["group"]]))
    for g, own in enumerate(apart):
        moved = x.copy()
        moved[own] += 0.1
        change = np.diff(posterior(np.stack([x, moved]))[1], axis=0)[0]
        others = np.delete(apart, g, axis=0)
        assert not change[others].any()
        assert np.diff(whole(np.stack([x, moved]))[1], axis=0)[0, others].any()
        assert change[own].any()
        assert change[rest].any()
    assert parameters_of(outcomes, grouped=False).apart().size == 0


def test_the_gradient_is_that_of_the_density() -> None:
    """By central differences, in every coordinate."""
    posterior = parameters_of((WORKS, BENEFIT, AGE))
    x = 0.3 * np.random.default_rng(4).standard_normal(posterior.dimension)
    steps = 1e-5 * np.eye(posterior.dimension)
    slope = (posterior(x + steps)[0] - posterior(x - steps)[0]) / 2e-5
    gradient = posterior(x[None])[1][0]
    np.testing.assert_allclose(slope, gradient, rtol=1e-5, atol=1e-4 * np.abs(gradient).max())
