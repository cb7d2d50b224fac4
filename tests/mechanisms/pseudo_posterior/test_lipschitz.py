"""Streamed extremes against the whole matrix S x n, held at once."""

import numpy as np
import pytest

from surveysynth.mechanisms.pseudo_posterior.fit import (
    LikelihoodExtremes,
    largest_by_draw,
    likelihood_extremes,
    weighted_bounds,
)


def blocks(matrix, size, order):
    for begin in range(0, order.size, size):
        rows = order[begin : begin + size]
        yield rows, matrix[:, rows]


@pytest.fixture
def matrix():
    rng = np.random.default_rng(1)
    return rng.normal(-2.0, 3.0, (40, 101))


@pytest.mark.parametrize("size", [1, 7, 101])
def test_extremes_do_not_depend_on_blocks_or_order(matrix, size):
    order = np.random.default_rng(size).permutation(101)
    extremes = likelihood_extremes(blocks(matrix, size, order), 101)
    np.testing.assert_array_equal(extremes.lipschitz, np.abs(matrix).max(axis=0))
    np.testing.assert_array_equal(extremes.oscillation, np.ptp(matrix, axis=0))
    np.testing.assert_array_equal(
        extremes.risk, np.maximum(np.abs(matrix).max(axis=0), np.ptp(matrix, axis=0))
    )
    alpha = np.random.default_rng(2).random(101)
    np.testing.assert_allclose(
        largest_by_draw(blocks(matrix, size, order), alpha, 40), np.abs(matrix * alpha).max(axis=1)
    )
    bounds = weighted_bounds(extremes, alpha)
    weighted = matrix * alpha
    assert bounds.realised == pytest.approx(
        max(np.abs(weighted).max(), np.ptp(weighted, axis=0).max()), rel=1e-15
    )


def test_a_log_likelihood_that_is_not_finite_makes_the_risk_infinite():
    extremes = LikelihoodExtremes(
        lowest=np.array([-np.inf, np.nan, -1.0]), highest=np.array([0.0, 1.0, 2.0])
    )
    np.testing.assert_array_equal(extremes.lipschitz, [np.inf, np.inf, 2.0])
    np.testing.assert_array_equal(extremes.oscillation, [np.inf, np.inf, 3.0])
    bounds = weighted_bounds(extremes, np.array([0.0, 0.0, 0.5]))
    np.testing.assert_array_equal(bounds.lipschitz, [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(bounds.oscillation, [0.0, 0.0, 1.5])
