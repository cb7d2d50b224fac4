"""What groups that share a level have in common. Truth: the prior written out for every group, and
densities on a grid."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats
from surveysynth.mechanisms.noisy_statistics.posterior.location.conditionals import Conditionals
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters, Point

from surveysynth._support.types import FloatArray
from surveysynth.models.general_location.groups import CovarianceGroups
from surveysynth.sampling.sweeps import Streams
from tests.long_runs.location_sbc import CASES, crossed, one_target
from tests.mechanisms.noisy_statistics import mistakes

CASE, CHAINS = CASES["Levels"], 1500
KAPPA = CASE.all_priors["interaction_scale"]
AMOUNT, WEIGHT = 0, 1


def parts_of(chains: int) -> tuple[Parameters, Point, Conditionals]:
    """Spreads of 0.7 (amount) and 2.1 (weight)."""
    target = one_target(CASE, chains, np.random.default_rng(7))
    target = replace(target, spread=np.array([1.0, 3.0]) * target.spread)
    streams = Streams((np.random.default_rng(9),), 1)
    moves = LocationSweeps(CASE.layout, target, CASE.all_priors, streams, 1).moves
    assert moves is not None
    return moves.parameters, moves.point, Conditionals(moves.parameters, streams, chains)


def covariance_of_effects() -> FloatArray:
    """That of effects of all groups, of SD one before their mean is taken off."""
    result = np.zeros((3, 3))
    for own in map(np.array, CASE.level):
        levels = own.max() + 1
        result += (own[:, None] == own) - 1.0 / levels
    return result


def test_groups_have_effects_of_their_levels_that_add_up_to_zero() -> None:
    parameters, _, _ = parts_of(2)
    sd = parameters.level_precision**-0.5
    np.testing.assert_allclose(sd, [2.0 * KAPPA, 2.0 * KAPPA, 3.0 * KAPPA])
    found = parameters.levels.T @ parameters.levels
    np.testing.assert_allclose(found, covariance_of_effects(), atol=1e-12)


def test_many_levels_move_in_parts_that_hold_every_effect() -> None:
    """Of 40 levels and of two, of an amount and a weight: three values each."""
    case = crossed(40, 2)
    target = one_target(case, 4, np.random.default_rng(7))
    streams = Streams((np.random.default_rng(9),), 1)
    moves = LocationSweeps(case.layout, target, case.all_priors, streams, 1).moves
    assert moves is not None
    blocks = moves.learned.blocks
    places = np.concatenate([np.arange(each.start, each.stop) for each in blocks])
    np.testing.assert_array_equal(places, np.arange(3 * (1 + 39 + 1)))
    sizes = [(each.stop - each.start) // 3 for each in blocks]
    assert sizes == [1, 13, 13, 13, 1]
    assert moves.levels == 4


def test_the_density_of_effects_is_that_of_the_prior() -> None:
    parameters, point, _ = parts_of(50)
    rng = np.random.default_rng(3)
    level = rng.standard_normal(point.level.shape)
    log_variance = point.log_variance + rng.standard_normal(point.log_variance.shape)
    slopes = point.slopes.copy()
    slopes[WEIGHT, AMOUNT] += rng.standard_normal(slopes[WEIGHT, AMOUNT].shape)
    here = replace(point, level=level, log_variance=log_variance, slopes=slopes)
    there = replace(here, level=np.zeros_like(level))

    def log_density(point: Point) -> FloatArray:
        groups = parameters.log_group_prior(point).sum(-1)
        return np.asarray(parameters.log_prior(point) + groups)

    def written_out(point: Point) -> FloatArray:
        sd = np.array([2.0, 2.0, 3.0])[:, None, None] * KAPPA
        value = stats.norm(0.0, sd).logpdf(point.level).sum((0, 1))
        effects = np.einsum("plb,lg->pbg", point.level, parameters.levels)
        for j in (AMOUNT, WEIGHT):
            nu, scale = np.exp(point.log_nu[j])[:, None], 2.0 * point.log_s[j][:, None] + effects[j]
            variance = np.exp(point.log_variance[j])
            law = stats.invgamma(0.5 * nu, scale=0.5 * nu * np.exp(scale))
            value += (law.logpdf(variance) + np.log(variance)).sum(1)
        t = np.exp(point.log_t[WEIGHT])[:, None]
        return value + stats.norm(effects[2], t).logpdf(point.slopes[WEIGHT, AMOUNT]).sum(1)

    found = log_density(here) - log_density(there)
    np.testing.assert_allclose(found, written_out(here) - written_out(there), rtol=1e-9)


def test_effects_are_drawn_from_their_law_given_variances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one contrast."""
    parameters, point, conditionals = parts_of(CHAINS)
    monkeypatch.setattr(parameters, "levels", parameters.levels[:1])
    monkeypatch.setattr(parameters, "level_axes", np.eye(1))
    log_variance = np.broadcast_to([0.8, 0.5, -1.5], point.log_variance.shape)
    point = replace(
        point, log_variance=log_variance.copy(), log_s=np.zeros_like(point.log_s),
        log_nu=np.full_like(point.log_nu, np.log(3.0)), level=point.level[:, :1],
    )  # fmt: skip

    grid = np.linspace(-4.0, 4.0, 4001)
    off = grid[:, None] * parameters.levels[0] - log_variance[AMOUNT, 0]
    density = np.exp(1.5 * (off - np.exp(off)).sum(1)) * stats.norm(0.0, 2.0 * KAPPA).pdf(grid)
    below = integrate.cumulative_trapezoid(density, grid, initial=0.0)

    def far_from() -> float:
        now = point
        conditionals.draw_random_numbers(24)
        for i in range(24):
            now = conditionals._draw_levels(i, now)
        found = now.level[AMOUNT, 0]
        law = stats.kstest(found, lambda x: np.interp(x, grid, below / below[-1]))
        return float(law.pvalue)

    assert far_from() > 1e-3
    mistakes.wide_levels(monkeypatch)
    assert far_from() < 1e-9


def test_slopes_of_levels_are_drawn_from_their_law_given_slopes() -> None:
    """Of b and effects of levels together, a normal."""
    parameters, point, conditionals = parts_of(CHAINS)
    total, t = np.array([2.0, 4.0, -1.0]), 0.8
    slopes = np.zeros_like(point.slopes)
    slopes[WEIGHT, AMOUNT] = total
    point = replace(
        point, core=np.zeros_like(point.core), slopes=slopes, means=np.zeros_like(point.means),
        log_t=np.full_like(point.log_t, np.log(t)),
    )  # fmt: skip
    conditionals.draw_random_numbers(1)
    drawn = conditionals._draw_core(0, point)
    np.testing.assert_allclose(
        drawn.core[WEIGHT, AMOUNT][:, None] + drawn.slopes[WEIGHT, AMOUNT],
        np.broadcast_to(total, (CHAINS, 3)),
    )
    found = np.concatenate([drawn.core[WEIGHT, AMOUNT][None], drawn.level[2]])
    # What b and the contrasts are given sums of them and of noise of SD t.
    prior = np.diag([9.0, *np.full(len(parameters.levels), (3.0 * KAPPA) ** 2)])
    design = np.concatenate([np.ones((1, 3)), parameters.levels])
    gain = prior @ design @ np.linalg.inv(design.T @ prior @ design + t * t * np.eye(3))
    mean, cov = gain @ total, prior - gain @ design.T @ prior
    z = (found.mean(1) - mean) / np.sqrt(np.diag(cov) / CHAINS)
    assert np.abs(z).max() < 4.0
    white = np.linalg.solve(np.linalg.cholesky(cov), found - mean[:, None])
    assert np.abs(np.cov(white) - np.eye(len(white))).max() < 5.0 / np.sqrt(CHAINS)
    assert np.abs(np.cov(found) - prior).max() > 0.5


def test_a_small_scale_of_slopes_makes_nothing_inexact() -> None:
    """Three groups, four effects: their precision alone would be singular."""
    parameters, point, conditionals = parts_of(50)
    slopes = np.zeros_like(point.slopes)
    slopes[WEIGHT, AMOUNT] = [2.0, 4.0, -1.0]
    conditionals.draw_random_numbers(1)
    for t in (1e-6, 1e-12, 1e-60):
        small = replace(point, slopes=slopes, log_t=np.full_like(point.log_t, np.log(t)))
        drawn = conditionals._draw_core(0, small)
        off = parameters.of_groups(drawn) - parameters.about(drawn)
        assert np.abs(off[2]).max() < 10.0 * max(t, 1e-12)
        assert drawn.level[2].std(axis=1).max() > 0.5 * KAPPA


def test_slopes_vary_about_effects_of_levels() -> None:
    """The scale t, given deviations that are far smaller than effects."""
    parameters, point, conditionals = parts_of(CHAINS)
    level = 3.0 * np.random.default_rng(4).standard_normal(point.level.shape)
    off, slopes = np.array([0.1, -0.2, 0.3]), np.zeros_like(point.slopes)
    slopes[WEIGHT, AMOUNT] = level[2].T @ parameters.levels + off
    point = replace(point, level=level, slopes=slopes)
    conditionals.draw_random_numbers(12)
    for i in range(12):
        point = conditionals._draw_t(i, point)
    grid = np.linspace(-8.0, 6.0, 8001)
    scale = CASE.all_priors["slope_scale"]
    log_density = stats.t.logpdf(np.exp(grid) / scale, 3) + grid
    log_density += stats.norm(0.0, np.exp(grid)[:, None]).logpdf(off).sum(1)
    below = integrate.cumulative_trapezoid(np.exp(log_density), grid, initial=0.0)
    found = stats.kstest(point.log_t[WEIGHT], lambda x: np.interp(x, grid, below / below[-1]))
    assert found.pvalue > 1e-3


def test_columns_with_as_many_levels_as_groups_have_no_effects() -> None:
    labels = (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "x"))
    groups = CovarianceGroups(("region", "sex"), np.arange(5), labels)
    np.testing.assert_array_equal(groups.levels, [[0, 0, 1, 1, 2], [0, 1, 0, 1, 0]])
    alone = CovarianceGroups(("region",), np.arange(3), (("a",), ("b",), ("c",)))
    assert alone.levels.shape == (0, 3)
    nested = CovarianceGroups(
        ("stratum", "region"), np.arange(3), (("1", "a"), ("2", "a"), ("3", "b"))
    )
    np.testing.assert_array_equal(nested.levels, [[0, 0, 1]])
    constant = CovarianceGroups(("year", "sex"), np.arange(2), (("1", "x"), ("1", "y")))
    assert constant.levels.shape == (0, 2)
