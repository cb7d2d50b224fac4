"""Count-based and pairwise risks against every pair of records, in exact arithmetic and n x n."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.mechanisms.pseudo_posterior.risk import (
    ball_edges,
    count_inside,
    count_risk,
    pairwise_risk,
)

#: Tenths, so that many values tie and many lie on the very end of a ball.
TENTHS = st.lists(st.integers(-60, 60), min_size=1, max_size=25)
#: Relative radii in tenths up to 1.
RADII = st.integers(1, 10)


def exact_inside(y, centre, radius, absolute):
    """Whether each value lies in the closed ball of each centre, in fractions."""
    reach = [radius if absolute else radius * abs(c) for c in centre]
    return np.array([[abs(h - c) <= r for h in y] for c, r in zip(centre, reach, strict=True)])


def exact_risks(tenths, codes, tenth, absolute=False):
    """IR and pairwise risk record by record and pair by pair, from their definitions."""
    y = [Fraction(each, 10) for each in tenths]
    inside = exact_inside(y, y, Fraction(tenth, 10), absolute)
    count, pairwise = [], []
    for i, code in enumerate(codes):
        members = [h for h, other in enumerate(codes) if other == code]
        count.append(1 - np.mean([inside[i, h] for h in members]))
        weights = [
            1 - np.mean([not (inside[i, h] or inside[j, h]) for h in members])
            for j in members
            if j != i
        ]
        pairwise.append(1 - np.mean(weights) if weights else count[-1])
    return np.array(count), np.array(pairwise)


@given(TENTHS, RADII, st.booleans(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_risks_are_those_of_every_pair_in_fractions(tenths, tenth, absolute, patterns, random):
    codes = np.array([random.randrange(patterns) for _ in tenths])
    codes = np.unique(codes, return_inverse=True)[1]
    count, pairwise = exact_risks(tenths, codes, tenth, absolute)
    y, radius = np.array(tenths) / 10, tenth / 10
    np.testing.assert_allclose(
        count_risk(y, radius, codes, absolute=absolute), count, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        pairwise_risk(y, radius, codes, absolute=absolute), pairwise, rtol=0, atol=1e-12
    )


def whole_matrix(y, radius, absolute, codes):
    """The same n x n and n x n x n, with floating-point balls as the definition reads."""
    reach = np.full(y.size, radius) if absolute else radius * np.abs(y)
    same = codes[:, None] == codes[None, :]
    inside = (np.abs(y[None, :] - y[:, None]) <= reach[:, None]) & same
    size = same.sum(axis=1)
    count = 1 - inside.sum(axis=1) / size
    pairwise = count.copy()
    for i in np.flatnonzero(size > 1):
        others = np.flatnonzero(same[i] & (np.arange(y.size) != i))
        either = inside[i][None, :] | inside[others]
        pairwise[i] = 1 - (either.sum(axis=1) / size[i]).mean()
    return count, pairwise


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_risks_are_those_of_the_whole_matrix(seed, absolute):
    """Skewed data with ties, zeros and negative values, patterns of one and of many."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([rng.lognormal(3, 1.5, 250), np.zeros(40), -rng.lognormal(2, 1, 60)])
    y = np.concatenate([y, rng.choice(y, 50)])
    codes = np.minimum(rng.geometric(0.3, y.size) - 1, 9)
    codes[0] = 10
    radius = 5.0 if absolute else 0.2
    count, pairwise = whole_matrix(y, radius, absolute, codes)
    found = count_risk(y, radius, codes, absolute=absolute)
    np.testing.assert_allclose(found, count, rtol=0, atol=1e-12)
    found_pairwise = pairwise_risk(y, radius, codes, absolute=absolute)
    np.testing.assert_allclose(found_pairwise, pairwise, rtol=0, atol=1e-12)
    # A pair has a union of two balls, so it is covered better than one record alone.
    assert (found_pairwise <= found + 1e-12).all()


@pytest.mark.parametrize("radius", [0.1, 0.3, 0.7, 0.9, 1.0])
def test_values_on_the_ends_of_a_ball_are_inside(radius):
    """Closed balls in decimal numbers, which are rounded: 0.7 + 0.1 < 0.8 to a computer."""
    y = np.arange(1, 2001) / 100
    tenth = round(10 * radius)
    ends = {(100 * each - 10 * tenth * each) for each in range(1, 2001)}
    assert any(end % 100 == 0 for end in ends)
    lower, upper = ball_edges(y, radius)
    for i in range(0, 2000, 37):
        centre = i + 1
        inside = [10 * abs(h - centre) <= tenth * centre for h in range(1, 2001)]
        np.testing.assert_array_equal((y >= lower[i]) & (y <= upper[i]), inside)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=40), st.floats(1e-6, 1.0))
def test_ends_rise_with_the_centre(values, radius):
    for absolute in (False, True):
        lower, upper = ball_edges(np.sort(values), radius, absolute=absolute)
        assert (np.diff(lower) >= 0).all()
        assert (np.diff(upper) >= 0).all()
        assert (lower <= np.sort(values)).all()
        assert (upper >= np.sort(values)).all()


def test_values_of_other_patterns_do_not_count():
    inside = count_inside(
        np.array([1.0, 1.0, 5.0]), np.array([0, 1, 1]),
        np.array([0.0, 0.0, 9.0]), np.array([2.0, 9.0, 9.5]), np.array([0, 1, 2]),
    )  # fmt: skip
    np.testing.assert_array_equal(inside, [1, 2, 0])


def test_order_of_records_and_units_do_not_matter():
    rng = np.random.default_rng(5)
    y, codes = rng.lognormal(2, 1, 400), rng.integers(0, 5, 400)
    order = rng.permutation(400)
    for risk in (count_risk, pairwise_risk):
        found = risk(y, 0.2, codes)
        np.testing.assert_array_equal(risk(y[order], 0.2, codes[order]), found[order])
        np.testing.assert_array_equal(risk(4.0 * y, 0.2, codes), found)


def test_all_records_alike_carry_no_risk():
    for risk in (count_risk, pairwise_risk):
        np.testing.assert_array_equal(risk(np.full(7, 3.0), 0.2, np.zeros(7, int)), np.zeros(7))
        np.testing.assert_array_equal(risk(np.array([9.0]), 0.2, np.zeros(1, int)), [0.0])
