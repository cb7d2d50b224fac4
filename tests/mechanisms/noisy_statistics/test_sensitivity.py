"""The bound against maximisers over pairs of records on the grid, in exact fractions.

The change of the released whole numbers is found by running the sums on both databases; wrong
bounds (halved, or without second moments) are passed by the same maximiser.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationDesign,
    LocationSums,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    ONE_BLOCK,
    SQUARES,
    NoiseVariances,
    noise_variances,
    rho_spent,
)
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

RHO = 0.257
CELLS = np.array([[1.0, a == 1, a == 2, b] for a in range(3) for b in range(2)])
PLAIN = Transform("identity")


def design_of(q: int) -> LocationDesign:
    """Amounts of one block."""
    outcomes = tuple(Outcome(str(j), transform=PLAIN) for j in range(q))
    shape = LocationShape(CELLS, np.zeros(6, dtype=np.int64), outcomes, weighted=False)
    return LocationDesign.optimal(shape, Clipping(np.zeros(q), np.ones(q)))


def sums_of(design: LocationDesign, codes: IntArray, z: FloatArray) -> LocationSums:
    sums = LocationSums(design)
    sums.add(codes, np.zeros_like(codes), z)
    return sums


def spent(first: LocationSums, second: LocationSums, variances: NoiseVariances) -> Fraction:
    """The rho between two databases: half the squared changes over their variances."""
    (block,) = first.design.blocks
    change = (first.cross(block) - second.cross(block)).ravel().tolist()
    total = sum((Fraction(each**2, variances.cross) for each in change), Fraction(0))
    squares = first.squares_of(block) - second.squares_of(block)
    for j in range(len(squares)):
        total += Fraction(int(squares[j, j]) ** 2, variances.diagonal)
        for k in range(j + 1, len(squares)):
            total += Fraction(int(squares[j, k]) ** 2, variances.off_diagonal)
    return total / 2


def worst_pair(q: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Two records (q,) far beyond the ball whose change spends all: u'v = -R^2 / t, and -R^2 where
    there is one direction alone."""
    u, other = rng.standard_normal((2, q))
    u /= np.linalg.norm(u)
    if q == 1:
        return 1e6 * u, -1e6 * u
    other -= u * (u @ other)
    other /= np.linalg.norm(other)
    c = 1.0 / SQUARES
    return 1e6 * u, 1e6 * (-c * u + np.sqrt(1.0 - c * c) * other)


def pair_distance(u: FloatArray, v: FloatArray, leverage: float, radius: float) -> float:
    """The distance of the proof."""
    change = np.outer(u, u) - np.outer(v, v)
    first = leverage * float(((u - v) ** 2).sum())
    return math.sqrt(first + float((change**2).sum()) / (2 * radius**2))


def furthest(q: int, leverage: float, radius: float, rng: np.random.Generator) -> float:
    """The largest distance of two points of the ball that an optimizer finds."""

    def inside(flat: FloatArray) -> FloatArray:
        points = flat.reshape(2, q)
        norm = np.linalg.norm(points, axis=1, keepdims=True)
        return points * radius / np.maximum(norm, radius)

    best = 0.0
    for _ in range(20):
        start = rng.normal(size=2 * q) * radius * rng.choice([0.3, 1.0, 3.0])
        found = optimize.minimize(
            lambda flat: -pair_distance(*inside(flat), leverage, radius),
            start,
            method="Nelder-Mead" if q < 3 else "Powell",
        )
        best = max(best, -float(found.fun))
    return best


@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_the_largest_distance_of_two_records(q: int) -> None:
    rng = np.random.default_rng(q)
    for leverage in (1.0, 0.6, 0.25) if q > 1 else (1.0,):
        bound = 3.26 * math.sqrt(ONE_BLOCK) * (1 + leverage) / 2
        found = furthest(q, leverage, 3.26, rng)
        assert found <= bound * (1 + 1e-9)
        assert found > 0.99 * bound
        if leverage < 1:  # a bound that forgets second moments does not hold
            assert found > 1.02 * 2 * 3.26 * math.sqrt(leverage)


@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_neighbours_on_the_grid(q: int) -> None:
    """All cells, worst and random pairs: never above rho, and up to 99% of it."""
    rng = np.random.default_rng(q)
    design = design_of(q)
    variances = design.variances(RHO, 1.0, 1)
    halved = design.variances(4 * RHO, 1.0, 1)  # half the distance
    n = 12
    codes, z = rng.integers(0, 6, n), rng.normal(size=(n, q))
    largest = passed = Fraction(0)
    for trial in range(60):
        codes[0] = trial % 6
        first, second = z.copy(), z.copy()
        if trial % 2:
            first[0], second[0] = worst_pair(q, rng)
        else:
            first[0] = rng.normal(size=q) * 10.0 ** rng.integers(-2, 300)
            second[0] = rng.normal(size=q) * 1e6
        pair = [sums_of(design, codes, each) for each in (first, second)]
        largest = max(largest, spent(*pair, variances))
        passed = max(passed, spent(*pair, halved))
    assert largest <= Fraction(RHO)
    # One column has no u'v between -R^2 and R^2 at the edge: 4 of 2 + t + 1/t.
    most = Fraction(99, 100) if q > 1 else Fraction(63, 100)
    assert largest > Fraction(RHO) * most
    assert passed > 3 * most * Fraction(RHO)


@pytest.mark.parametrize("records", [2, 5])
def test_units_of_several_records(records: int) -> None:
    rng = np.random.default_rng(1)
    design = design_of(2)
    variances, single = (design.variances(RHO, 1.0, k) for k in (records, 1))
    codes = rng.integers(0, 6, 10)
    codes[:records] = 3  # of one cell, the worst case
    first = rng.normal(size=(10, 2))
    second = first.copy()
    first[:records], second[:records] = worst_pair(2, rng)
    pair = [sums_of(design, codes, each) for each in (first, second)]
    assert Fraction(99, 100) * Fraction(RHO) < spent(*pair, variances) <= Fraction(RHO)
    assert spent(*pair, single) > Fraction(RHO) * (records**2 - 1)  # a record's noise is too little
    # Replacing members in ways of their own, in cells of their own, never does more.
    for _ in range(30):
        codes[:records] = rng.integers(0, 6, records)
        second[:records] = rng.normal(size=(records, 2)) * 10
        pair = [sums_of(design, codes, each) for each in (first, second)]
        assert spent(*pair, variances) <= Fraction(RHO)


@settings(deadline=None)
@given(st.floats(1e-12, 1e6), st.integers(1, 1000), st.floats(0.01, 100.0), st.integers(1, 4))
def test_variances_are_the_least_whole_numbers_that_guarantee_rho(
    rho: float, records: int, radius: float, q: int
) -> None:
    clipping = Clipping(np.zeros(q), np.ones(q), radius)
    found = noise_variances(clipping, rho, records)
    assert rho_spent(found, clipping, records) <= Fraction(rho)
    assert float(rho_spent(found, clipping, records)) == pytest.approx(rho, rel=1e-9)
    sigma = 2 * records * clipping.radius / math.sqrt(2 * rho)
    assert found.cross_sd(clipping) == pytest.approx(sigma, rel=1e-9)
    sd = found.squares_sd(clipping)
    assert sd[0, 0] == pytest.approx(sigma * clipping.radius * math.sqrt(2), rel=1e-9)
    if q > 1:
        assert sd[0, 1] == sd[1, 0] == pytest.approx(sigma * clipping.radius, rel=1e-9)


def test_no_budget_no_noise() -> None:
    clipping = Clipping(np.zeros(1), np.ones(1))
    for rho, records in ((0.0, 1), (-1.0, 1), (math.inf, 1), (math.nan, 1), (1.0, 0)):
        with pytest.raises(InputError):
            noise_variances(clipping, rho, records)
