"""Trades of variances against slopes: what must stay stays, there and back is where one was, and
Jacobians are those of differences."""

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location import trades
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import (
    Parameters,
    Point,
    covariance,
)
from tests.long_runs.location_sbc import CASES, Case, one_target

TWO, FOUR = CASES["Continuous, three groups"], CASES["Several, two groups"]
#: A trade, a case, and the column or row that is given.
PLACES = [
    (trades.traded, TWO, 0), (trades.stretched, TWO, 1), (trades.traded, FOUR, 0),
    (trades.traded, FOUR, 1), (trades.stretched, FOUR, 1), (trades.stretched, FOUR, 2),
]  # fmt: skip


def parameters_of(case: Case) -> Parameters:
    target = one_target(case, 1, np.random.default_rng(3))
    return Parameters(case.layout, target, case.all_priors)


def point_of(parameters: Parameters, values: FloatArray) -> Point:
    """A point of one chain, values (p,) being all that a trade may move."""
    q, g, below = parameters.q, parameters.groups, (parameters.row, parameters.column)
    k = below[0].size
    sizes = np.cumsum([k, k * g, q * g, q])
    core, slopes, log_variance, log_s, log_t = np.split(values, sizes)
    point = Point(
        np.zeros((sum(parameters.sizes), 1)), np.zeros((q, q, 1)), np.zeros((q, q, 1, g)),
        log_variance.reshape(q, 1, g), log_s[:, None], np.zeros((q, 1)), log_t[:, None],
        np.zeros((q, 1)), np.zeros((q + k, 0, 1)),
    )  # fmt: skip
    point.core[below], point.slopes[below] = core[:, None], slopes.reshape(k, 1, g)
    return point


def values_of(parameters: Parameters, point: Point) -> FloatArray:
    below = parameters.row, parameters.column
    parts = point.core[below], point.slopes[below], point.log_variance, point.log_s, point.log_t
    return np.concatenate([part.ravel() for part in parts])


def some_values(parameters: Parameters) -> FloatArray:
    q, g, k = parameters.q, parameters.groups, parameters.row.size
    values = 0.5 * np.random.default_rng(8).standard_normal(k + k * g + q * g + 2 * q)
    values[-q:] -= 2.0  # t: what s_0 has to give
    return values


def sigma_of(point: Point) -> FloatArray:
    """Sigma (q, q, G) of all groups."""
    q = len(point.log_s)
    lower, variance = point.core[..., None] + point.slopes, np.exp(point.log_variance)
    return covariance(lower, variance, np.arange(q), np.ones(q))[:, :, 0]


@pytest.mark.parametrize(("trade", "case", "place"), PLACES)
def test_there_and_back(trade: trades.Trade, case: Case, place: int) -> None:
    parameters = parameters_of(case)
    values = some_values(parameters)
    for step in (0.05, -0.08):
        moved, there = trade(parameters, point_of(parameters, values), place, np.array([step]))
        back, again = trade(parameters, moved, place, np.array([-step]))
        np.testing.assert_allclose(values_of(parameters, back), values, rtol=0, atol=1e-10)
        np.testing.assert_allclose(there, -again, rtol=0, atol=1e-9)
        assert np.abs(values_of(parameters, moved) - values).max() > 0.02


@pytest.mark.parametrize(("trade", "case", "place"), PLACES)
def test_jacobians_are_those_of_differences(trade: trades.Trade, case: Case, place: int) -> None:
    parameters = parameters_of(case)
    values, step, h = some_values(parameters), np.array([0.05]), 1e-6

    def moved(off: FloatArray) -> FloatArray:
        point = point_of(parameters, values + off)
        return values_of(parameters, trade(parameters, point, place, step)[0])

    columns = [(moved(h * e) - moved(-h * e)) / (2.0 * h) for e in np.eye(values.size)]
    found = trade(parameters, point_of(parameters, values), place, step)[1]
    expected = np.linalg.slogdet(np.array(columns))[1]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert abs(expected) > 1e-3  # that of no move would do otherwise


@pytest.mark.parametrize("case", [TWO, FOUR], ids=["two", "several"])
def test_one_variance_moves_and_the_rest_of_covariances_stays(case: Case) -> None:
    parameters = parameters_of(case)
    point = point_of(parameters, some_values(parameters))
    for column in range(parameters.q - 1):
        moved, _ = trades.traded(parameters, point, column, np.array([0.3]))
        difference = sigma_of(moved) - sigma_of(point)
        own = np.exp(point.log_variance[column, 0]) * np.expm1(0.3)
        np.testing.assert_allclose(difference[column, column], own, rtol=1e-9)
        difference[column, column] = 0.0
        np.testing.assert_allclose(difference, 0.0, atol=1e-12)


@pytest.mark.parametrize("case", [TWO, FOUR], ids=["two", "several"])
def test_slopes_of_groups_stretch_and_whole_variances_stay(case: Case) -> None:
    parameters = parameters_of(case)
    point = point_of(parameters, some_values(parameters))
    for row in np.flatnonzero(parameters.earlier):
        moved, _ = trades.stretched(parameters, point, int(row), np.array([0.05]))
        np.testing.assert_allclose(moved.slopes[row], np.exp(0.05) * point.slopes[row])
        now, before = (np.einsum("jjg->jg", sigma_of(each))[row] for each in (moved, point))
        np.testing.assert_allclose(now, before, rtol=1e-12)


def test_no_variance_becomes_negative() -> None:
    """What slopes take at most is all of a variance: such a step is none."""
    parameters = parameters_of(TWO)
    values = some_values(parameters)
    for trade, place, step in [(trades.traded, 0, -9.0), (trades.stretched, 1, 9.0)]:
        with np.errstate(all="ignore"):
            moved, jacobian = trade(parameters, point_of(parameters, values), place,
                                    np.array([step]))  # fmt: skip
        assert np.isneginf(jacobian)
        np.testing.assert_array_equal(values_of(parameters, moved), values)


def test_columns_without_some_slope_are_left_alone() -> None:
    """Sigma with such a slope at zero has no room for the trade of a variance."""
    parameters = parameters_of(FOUR)
    own, rows = list(range(parameters.q - 1)), np.flatnonzero(parameters.earlier).tolist()
    assert trades.of(parameters) == [(trades.traded, own), (trades.stretched, rows)]
    parameters.row = parameters.row[1:]
    assert trades.of(parameters) == [(trades.traded, []), (trades.stretched, rows)]
    parameters.grouped = False
    assert trades.of(parameters) == []


def test_a_turn_keeps_sums_of_squares() -> None:
    parameters = parameters_of(TWO)
    point = point_of(parameters, some_values(parameters))
    after, jacobian = trades.turned(parameters, point, 0, np.array([0.2]))

    def squares(at: Point) -> FloatArray:
        size = np.exp(2.0 * at.log_s)
        return np.asarray(size[1] + at.core[1, 0] ** 2 * size[0])

    np.testing.assert_allclose(squares(after), squares(point), rtol=1e-12)
    np.testing.assert_allclose(jacobian, -(after.log_s - point.log_s)[1], rtol=1e-12)
