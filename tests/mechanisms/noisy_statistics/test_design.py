"""Known optimal designs, lengths of rows in whole numbers, and the ball for any double."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.noise_design import (
    ROW_BITS,
    Clipping,
    NoiseDesign,
    optimal_basis,
)

CLIPPING = Clipping(np.zeros(2), np.ones(2))


def factors(*levels: int) -> FloatArray:
    """Cells of all combinations: an intercept and dummies."""
    rows = []
    for each in itertools.product(*(range(size) for size in levels)):
        dummies = [np.eye(size)[code][1:] for size, code in zip(levels, each, strict=True)]
        rows.append(np.concatenate([[1.0], *dummies]))
    return np.array(rows)


def precision(basis: FloatArray) -> FloatArray:
    """M^-1 (K, K)."""
    return basis @ basis.T


def lengths(cells: FloatArray, basis: FloatArray) -> FloatArray:
    return ((cells @ basis) ** 2).sum(axis=1)


def test_cells_of_their_own_get_the_same_noise_each() -> None:
    assert np.allclose(precision(optimal_basis(np.eye(5))), np.eye(5), atol=1e-6)


def test_quadratic_regression() -> None:
    """Ends and middle, a third each (Fedorov 1972)."""
    x = np.linspace(-1, 1, 201)
    cells = np.column_stack([np.ones_like(x), x, x * x])
    support = cells[[0, 100, 200]]
    expected = np.linalg.inv(support.T @ support)
    assert np.allclose(precision(optimal_basis(cells)), expected, atol=0.02)


@pytest.mark.parametrize("levels", [(8, 2), (3, 4, 5), (50,), (1,)])
def test_no_design_of_rows_up_to_one_has_less_noise(levels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    cells = factors(*levels)
    basis = optimal_basis(cells)
    assert lengths(cells, basis).max() <= 1.0
    assert lengths(cells, basis).max() > 1.0 - 1e-8
    best = np.linalg.slogdet(precision(basis))[1]
    for _ in range(50):
        p = rng.dirichlet(np.full(len(cells), rng.choice([1.0, 10.0, 1000.0])))
        other = np.linalg.inv((cells.T * p) @ cells)
        other /= np.einsum("ck,kl,cl->c", cells, other, cells).max()
        assert np.linalg.slogdet(other)[1] <= best + 2e-3 * cells.shape[1]


def test_continuous_rows_and_units() -> None:
    rng = np.random.default_rng(2)
    cells = np.column_stack([np.ones(3000), rng.normal(size=(3000, 5))])
    basis = optimal_basis(cells)
    assert 1 - 1e-8 < lengths(cells, basis).max() <= 1.0
    units = 10.0 ** np.arange(-6, 6, 2)
    again = optimal_basis(cells * units)
    rescaled = precision(again) * units[:, None] * units
    assert np.allclose(rescaled, precision(basis), atol=1e-6)


def test_columns_that_depend_on_others_change_nothing() -> None:
    cells = factors(3, 4)
    redundant = np.column_stack([cells, cells[:, 1] + cells[:, 2], 2 * cells[:, 0]])
    full, reduced = optimal_basis(cells), optimal_basis(redundant)
    assert reduced.shape == (redundant.shape[1], cells.shape[1])
    gram_full, gram_reduced = (
        a @ a.T for a in (cells @ full, redundant @ reduced)
    )  # between all pairs of cells
    assert np.allclose(gram_full, gram_reduced, atol=1e-9)


def test_nothing_but_zeros() -> None:
    with pytest.raises(InputError, match="intercept"):
        optimal_basis(np.zeros((3, 2)))


def test_rows_in_whole_numbers_are_no_longer_than_one() -> None:
    design = NoiseDesign.optimal(factors(8, 2), CLIPPING)
    for row in design.rows.tolist():
        assert sum(value * value for value in row) <= 4**ROW_BITS
    exact = design.exact_rows
    assert np.abs(exact - design.cells @ design.basis).max() < 2.0**-ROW_BITS
    assert (exact**2).sum(axis=1).max() == pytest.approx(1.0, abs=1e-7)


def test_rows_that_are_too_long_are_found() -> None:
    good = NoiseDesign.optimal(factors(4, 2), CLIPPING)
    for factor in (1.0001, 1e9):
        with pytest.raises(ValueError, match="no longer than 1"):
            NoiseDesign(CLIPPING, good.cells, factor * good.basis)


def test_the_default_radius_holds_a_normal_record_with_its_share() -> None:
    for q in (1, 2, 3, 4):
        clipping = Clipping(np.zeros(q), np.ones(q))
        assert stats.chi2.cdf(clipping.radius**2, q) == pytest.approx(0.995, abs=1e-6)
        assert clipping.steps * clipping.step == clipping.radius
        assert 2**20 <= clipping.steps < 2**21
        assert math.log2(clipping.step).is_integer()


extreme = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.7e308, -1.7e308, 5e-324, 1e300, -1e-300, 3.25, -3.2552471160888672]),
)


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, (4, 3), elements=extreme),
    st.sampled_from([1e-300, 1e-3, 1.0, 1e300]),
    st.sampled_from([0.0, 1e-5, 0.7, 4.0, 1e5]),
    st.sampled_from([0.0, -1e308, 1e308]),
)
def test_every_double_lands_inside_the_ball(
    z: FloatArray, spread: float, radius: float, centre: float
) -> None:
    clipping = Clipping(np.full(3, centre), np.full(3, spread), radius)
    for record in clipping.on_grid(z).tolist():
        assert sum(value * value for value in record) <= clipping.steps**2


def test_records_inside_keep_their_place_and_others_their_direction() -> None:
    rng = np.random.default_rng(3)
    clipping = Clipping(np.array([2.0, -1.0]), np.array([0.5, 3.0]))
    z = rng.normal([2, -1], [1.0, 6.0], (5000, 2))
    u = (z - clipping.centre) / clipping.spread
    norm = np.linalg.norm(u, axis=1, keepdims=True)
    expected = u * np.minimum(1.0, clipping.radius / norm)
    found = clipping.on_grid(z) * clipping.step
    inside = norm[:, 0] < clipping.radius - 3 * clipping.step
    assert 0.5 < inside.mean() < 0.9
    assert np.abs(found - expected)[inside].max() <= 0.5 * clipping.step
    assert np.abs(found - expected).max() <= 3.0 * clipping.step


def test_scales_that_are_none() -> None:
    one = np.ones(1)
    for centre, spread, radius in (
        (one, 0 * one, 0.0),
        (one, -one, 0.0),
        (one, np.inf * one, 0.0),
        (np.nan * one, one, 0.0),
        (one, one, -1.0),
        (one, one, np.inf),
        (one, np.ones(2), 0.0),
        (np.ones(0), np.ones(0), 1.0),
    ):
        with pytest.raises(InputError):
            Clipping(centre, spread, radius)


@pytest.mark.parametrize("columns", [5, 9, 16, 64])
def test_long_rows_are_found_where_their_squares_pass_64_bits(columns: int) -> None:
    """16 ones, or 4 twos, have a squared length of 2^64 in steps: zero in 64 bits."""
    clipping = Clipping(np.zeros(2), np.ones(2))
    for entry in (1.0, 2.0, 0.9):
        with pytest.raises(ValueError, match="no longer than 1"):
            NoiseDesign(clipping, np.eye(1), np.full((1, columns), entry))
    sound = NoiseDesign(clipping, np.eye(1), np.full((1, columns), 1 / np.sqrt(columns)))
    assert (sound.rows.astype(object) ** 2).sum() <= 4**30
