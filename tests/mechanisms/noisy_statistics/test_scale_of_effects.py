"""Scales of effects, and slopes given them. Truth: densities on a grid, above the declared spread
for amounts and anywhere for the weight, and normals of SciPy."""

from dataclasses import replace

import numpy as np
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.conditionals import Conditionals
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.sampling.sweeps import Streams
from tests.long_runs.location_sbc import CASES, one_target

CASE, CHAINS, ROUNDS = CASES["Continuous, three groups"], 1500, 12
AMOUNT, WEIGHT = 0, 1
#: Far below the spread, about as large, and far above.
SIZES = (0.05, 0.7, 6.0)


def sweeps_of(chains: int) -> tuple[LocationSweeps, Streams]:
    target = one_target(CASE, chains, np.random.default_rng(7))
    streams = Streams((np.random.default_rng(8),), 1)
    return LocationSweeps(CASE.layout, target, CASE.all_priors, streams, 1), streams


def drawn(size: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draws of log tau (2, CHAINS), sums of squares of all effects (2,), and their number (2,)."""
    sweeps, streams = sweeps_of(CHAINS)
    assert sweeps.moves is not None
    parameters, point = sweeps.moves.parameters, sweeps.moves.point
    point = replace(point, means=np.full_like(point.means, size))
    conditionals = Conditionals(parameters, streams, CHAINS)
    conditionals.draw_random_numbers(ROUNDS)
    for i in range(ROUNDS):
        assert (point.log_tau[AMOUNT] >= np.log(CASE.spread)).all()
        point = conditionals._draw_tau(i, point)
    return point.log_tau, parameters.squares(point)[:, 0], parameters.count[:, 0]


def law(squares: float, count: float, least: float) -> tuple[FloatArray, FloatArray]:
    """Values of log tau, and how much of its law lies below each."""
    grid = np.linspace(np.log(max(least, 1e-9)), 12.0, 400_001)
    tau = np.exp(grid)
    log_density = stats.t.logpdf(tau / CASE.all_priors["coefficient_scale"], 3) + grid
    log_density += -count * grid - 0.5 * squares / tau**2
    below = np.cumsum(np.exp(log_density - log_density.max()))
    return grid, below / below[-1]


def far_from(log_tau: FloatArray, squares: float, count: float, least: float) -> float:
    """Probability of so large a distance between draws and their law."""
    grid, below = law(squares, count, least)
    return float(stats.kstest(log_tau, lambda x: np.interp(x, grid, below)).pvalue)


def test_tau_has_the_law_of_its_density_above_the_floor() -> None:
    for size in SIZES:
        log_tau, squares, count = drawn(size)
        least = CASE.spread
        assert far_from(log_tau[AMOUNT], squares[AMOUNT], count[AMOUNT], least) > 1e-3, size
        assert far_from(log_tau[WEIGHT], squares[WEIGHT], count[WEIGHT], 0.0) > 1e-3, size
        if size < 1.0:
            assert far_from(log_tau[AMOUNT], squares[AMOUNT], count[AMOUNT], 0.0) < 1e-12
            assert far_from(log_tau[WEIGHT], squares[WEIGHT], count[WEIGHT], least) < 1e-12


def test_a_point_below_the_floor_is_impossible() -> None:
    moves = sweeps_of(4)[0].moves
    assert moves is not None
    for column, possible in ((AMOUNT, False), (WEIGHT, True)):
        log_tau = moves.point.log_tau.copy()
        log_tau[column] = np.log(CASE.spread) - 0.01
        found = moves.parameters.log_prior(replace(moves.point, log_tau=log_tau))
        assert (np.isfinite(found) == possible).all()


def test_common_slopes_have_the_scale_of_the_spreads() -> None:
    """Spreads of 0.7 (amount) and 2.1 (weight): a slope of the weight is N(0, 3^2)."""
    target = one_target(CASE, CHAINS, np.random.default_rng(7))
    target = replace(target, spread=np.array([1.0, 3.0]) * target.spread)
    streams = Streams((np.random.default_rng(9),), 1)
    sweeps = LocationSweeps(CASE.layout, target, CASE.all_priors, streams, 1)
    assert sweeps.moves is not None
    parameters, point = sweeps.moves.parameters, sweeps.moves.point
    core = point.core.copy()
    core[WEIGHT, AMOUNT] = np.linspace(-9.0, 9.0, CHAINS)
    without = replace(point, core=0.0 * core)
    found = parameters.log_prior(replace(point, core=core)) - parameters.log_prior(without)
    law = stats.norm(0.0, 3.0)
    np.testing.assert_allclose(found, law.logpdf(core[WEIGHT, AMOUNT]) - law.logpdf(0.0))
    # Given slopes 2, 4 and 6 of groups, whose deviations have the scale 2.
    total, log_t = np.array([2.0, 4.0, 6.0]), np.log(2.0)
    slopes = np.zeros_like(point.slopes)
    slopes[WEIGHT, AMOUNT] = total
    point = replace(without, slopes=slopes, log_t=np.full_like(point.log_t, log_t))
    conditionals = Conditionals(parameters, streams, CHAINS)
    conditionals.draw_random_numbers(1)
    drawn = conditionals._draw_core(0, point).core[WEIGHT, AMOUNT]
    for sd, right in ((3.0, True), (1.0, False)):
        precision = sd**-2 + 3.0 / 2.0**2
        given = stats.norm(total.sum() / 2.0**2 / precision, precision**-0.5)
        assert (stats.kstest(drawn, given.cdf).pvalue > 1e-3) == right
