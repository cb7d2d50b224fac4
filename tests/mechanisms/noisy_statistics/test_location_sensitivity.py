"""Sensitivity of counts and moments by block: a numerical maximiser on whole numbers never passes
the claim and comes within 1% of it; halved, the claim is passed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationDesign,
    LocationStatistics,
    LocationSums,
    location_statistics,
    released,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import ROW_BITS
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    SQUARES,
    largest_product,
    noise_variances,
    rho_spent,
    squared_sensitivity,
)
from tests.mechanisms.noisy_statistics.location_cases import (
    draw_records,
    known_law,
    small_design,
    small_shape,
    two_sided_design,
)


def distance(
    design: LocationDesign, cell: int, one: tuple[int, np.ndarray], other: tuple[int, np.ndarray],
    share: float, squares_weight: int = SQUARES,
) -> float:
    """(d/R)^2 between the sums of a record and of what it becomes, from the sums themselves."""
    each = []
    for combination, z in (one, other):
        sums = LocationSums(design)
        sums.add(np.array([cell]), np.array([combination]), z[None])
        each.append(sums)
    steps = Fraction(design.clipping.steps)
    total = Fraction(0)
    for block in design.blocks:
        cross = each[0].cross(block) - each[1].cross(block)
        squares = each[0].squares_of(block) - each[1].squares_of(block)
        total += Fraction(int((cross * cross).sum()), 4**ROW_BITS)
        total += squares_weight * Fraction(int((squares * squares).sum())) / (2 * steps**2)
    change = each[0].count - each[1].count
    total += Fraction(share) * steps**2 * int((change * change).sum())
    return float(total / steps**2)


def claimed(design: LocationDesign, share: float) -> float:
    product = max(largest_product(each.noise.rows, each.cell) for each in design.blocks)
    return float(squared_sensitivity(product, share, discrete=True))


DESIGNS = {"kinds": small_design, "two sides": two_sided_design}
each_design = pytest.mark.parametrize("name", DESIGNS)


def candidates(design: LocationDesign, seed: int) -> list[np.ndarray]:
    """Directions at the ball's edge, and inside."""
    rng = np.random.default_rng(seed)
    size = design.clipping.radius * np.array([1.0, 1.0, 1.0, 0.7, 0.0])
    points = rng.standard_normal((5, 3))
    return list(points / np.linalg.norm(points, axis=1, keepdims=True) * size[:, None])


@each_design
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.25, 1.0, 3.0]))
def test_no_pair_passes_the_claim(name: str, seed: int, share: float) -> None:
    design = DESIGNS[name]()
    rng = np.random.default_rng(seed)
    bound = claimed(design, share)
    points = candidates(design, seed)
    for cell in range(3):
        one, other = rng.integers(0, len(design.shape.combinations), 2)
        for u in points:
            for v in (points[0], -u, 1e300 * u):
                assert distance(design, cell, (one, u), (other, v), share) <= bound


@each_design
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_claim_is_nearly_attained(name: str, share: float) -> None:
    design = DESIGNS[name]()
    shape, d = design.shape, len(design.shape.combinations)
    bound, best = claimed(design, share), 0.0
    axis = np.array([0.0, 0.0, 1.0]) * design.clipping.radius  # the log weight, always there
    for block in design.blocks:
        combinations = np.unique(block.row % d)
        for cell in np.unique(block.cell):
            for one in combinations:
                for other in combinations:
                    rows = [
                        block.noise.exact_rows[block.row == cell * d + e][0] for e in (one, other)
                    ]
                    v = -float(rows[0] @ rows[1]) / SQUARES * axis
                    rest = np.sqrt(max(design.clipping.radius**2 - v @ v, 0.0))
                    # Along another column that is there, if there is one.
                    beside = np.flatnonzero(shape.present_in[other, :2])[:1]
                    v = v + rest * np.isin(np.arange(3), beside)
                    best = max(best, distance(design, cell, (one, axis), (other, v), share))
    assert 0.98 * bound <= best <= bound  # 1% of the distance is 2% of its square


@pytest.mark.parametrize("squares", [1, 2, SQUARES])
def test_a_record_that_keeps_its_row_attains_the_claim_of_groups(squares: int) -> None:
    """Over c = u'v at the edge of the ball, whatever the precision of squares."""
    design, share = small_design(), 1.0
    most = float(squared_sensitivity(Fraction(0), share, discrete=False, squares=squares))
    axis, beside = np.eye(3)[2] * design.clipping.radius, np.eye(3)[0] * design.clipping.radius
    there = int(np.flatnonzero(design.shape.present_in[:, 0])[0])
    found = []
    for cell in range(3):
        for c in np.linspace(-1.0, 1.0, 41):
            other = c * axis + np.sqrt(1.0 - c**2) * beside
            found.append(distance(design, cell, (there, axis), (there, other), share, squares))
    assert 0.98 * most <= max(found) <= most


def test_a_record_that_changes_sides_moves_two_blocks() -> None:
    """Its amount is the whole radius on either side: 2 R^2 and the squares for rows of full length,
    two counts besides, and no less; as one block with one column it would be less."""
    design, share = two_sided_design(), 1.0
    shape, radius = design.shape, design.clipping.radius
    np.testing.assert_array_equal(shape.patterns.sum(axis=1), [1, 2, 2])
    found = []
    for cell in range(3):
        for works in (0, 1):
            sides = [int(shape.combination_of(np.array([[works, side]]))[0]) for side in (0, 1)]
            ends = [radius * np.eye(3)[side] for side in (0, 1)]
            found.append(distance(design, cell, *zip(sides, ends, strict=True), share))
    most = 2.0 + SQUARES + 2.0 * share
    assert 0.98 * most <= max(found) <= most


def test_noise_spends_what_is_claimed() -> None:
    design = small_design()
    product = max(largest_product(each.noise.rows, each.cell) for each in design.blocks)
    for rho, share, records in ((0.257, 1.0, 1), (1.7, 0.3, 4)):
        distance = squared_sensitivity(product, share, discrete=True)
        given = {"distance": distance, "share": share, "squares": SQUARES}
        variances = noise_variances(design.clipping, rho, records, **given)
        spent = rho_spent(variances, design.clipping, records, **given)
        assert 0.999999 * rho <= float(spent) <= rho
        # Less noise of squares alone is seen.
        less = rho_spent(
            noise_variances(design.clipping, rho, records, **{**given, "squares": 2 * SQUARES}),
            design.clipping, records, **given,
        )  # fmt: skip
        assert float(less) == pytest.approx(2 * rho, rel=1e-5)
    for rho, share in ((0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0)):
        with pytest.raises(InputError, match="above 0"):
            noise_variances(design.clipping, rho, share=share)


def test_every_number_has_noise_of_the_size_that_is_told() -> None:
    """SDs over 400 releases of one survey, entry by entry: 3.5% of error each."""
    design, rng = small_design(), np.random.default_rng(8)
    sums = LocationSums(design)
    budget = Budget.of_epsilon(2.0, 1e-6)
    made = [
        released(design, sums, budget=budget, source=SeededNoise(rng)) for _ in range(400)
    ]
    first = made[0]

    def assert_sd(entries: list[np.ndarray], told: np.ndarray | float) -> None:
        values = np.array(entries)
        np.testing.assert_allclose(values.std(axis=0), told * np.ones(values[0].shape), rtol=0.18)

    assert_sd([each.counts for each in made], first.count_sd)
    widest = 0
    for block in range(len(design.blocks)):
        assert_sd([each.cross[block] for each in made], first.sigma)
        q = len(first.squares[block])
        sd = np.where(np.eye(q) > 0, *first.squares_sd)
        assert_sd([each.squares[block] for each in made], sd)
        widest = max(widest, q)
    assert widest > 1  # there are products of two columns


def test_the_largest_product_is_that_of_all_pairs() -> None:
    """In whole numbers of Python, over blocks of rows and cells in any order."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-(2**29), 2**29, (1300, 3))
    rows[7], rows[1200] = [2**30, 0, 0], [2**30 - 1, 5, 0]
    cell = rng.integers(0, 40, 1300)
    lists, largest = [list(map(int, row)) for row in rows], 0
    for each in range(40):
        own = [lists[i] for i in np.flatnonzero(cell == each)]
        for i, a in enumerate(own):
            for b in own[:i]:
                largest = max(largest, abs(sum(x * y for x, y in zip(a, b, strict=True))))
    assert largest_product(rows, cell) == Fraction(largest, 4**ROW_BITS) ** 2
    one = np.zeros(1300, dtype=np.int64)
    assert largest_product(rows, one) == Fraction(2**30 * (2**30 - 1), 4**ROW_BITS) ** 2
    one[1200] = 1  # of another cell: no pair
    assert largest_product(rows, one) < Fraction(9, 10)


def test_sums_do_not_depend_on_order_or_blocks() -> None:
    design, rng = small_design(), np.random.default_rng(1)
    cell = rng.integers(0, 3, 400)
    combination, z = draw_records(known_law(), cell, rng)
    whole, parts = LocationSums(design), LocationSums(design)
    whole.add(cell, combination, z)
    order = rng.permutation(400)
    for rows in np.array_split(order, 7):
        parts.add(cell[rows], combination[rows], z[rows])
    np.testing.assert_array_equal(whole.count, parts.count)
    for block in design.blocks:
        np.testing.assert_array_equal(whole.cross(block), parts.cross(block))
        np.testing.assert_array_equal(whole.squares_of(block), parts.squares_of(block))


def test_what_is_absent_is_nothing() -> None:
    """A value at a spike may be anything: it does not show."""
    design, shape = small_design(), small_shape()
    absent = int(np.flatnonzero(~shape.present_in[:, 0])[0])
    sums = []
    for value in (0.0, 3.0, np.nan):
        each = LocationSums(design)
        each.add(np.array([1]), np.array([absent]), np.array([[value, 0.3, -0.2]]))
        sums.append(each)
    for block in design.blocks:
        for other in sums[1:]:
            np.testing.assert_array_equal(sums[0].cross(block), other.cross(block))


def test_moments_are_those_of_the_records() -> None:
    """With next to no noise: sums made by hand."""
    design, rng, shape = small_design(), np.random.default_rng(2), small_shape()
    cell = rng.integers(0, 3, 300)
    combination, z = draw_records(known_law(), cell, rng)
    sums = LocationSums(design)
    sums.add(cell, combination, z)
    noisy = released(
        design, sums, budget=Budget.of_rho(1e9, 1e-6), source=SeededNoise(np.random.default_rng(5))
    )
    table = np.zeros((3, 4))
    np.add.at(table, (cell, combination), 1.0)
    np.testing.assert_allclose(noisy.counts.reshape(3, 4), table, atol=0.01)
    x = np.hstack([shape.x_cells[cell], shape.indicators[combination]])
    for b, block in enumerate(design.blocks):
        own = (shape.pattern[combination] == block.pattern) & (shape.group[cell] == block.group)
        there = np.flatnonzero(shape.patterns[block.pattern])
        u = z[own][:, there]
        np.testing.assert_allclose(
            noisy.cross[b], (x[own] @ block.noise.basis).T @ u, atol=2e-2
        )
        np.testing.assert_allclose(noisy.squares[b], u.T @ u, atol=2e-2)


def test_statistics_come_back_from_json() -> None:
    import json

    design, rng = small_design(), np.random.default_rng(4)
    cell = rng.integers(0, 3, 50)
    combination, z = draw_records(known_law(), cell, rng)
    category = small_shape().combinations[combination]
    noisy = location_statistics(
        design, cell, category, z, budget=Budget.of_rho(0.3, 1e-6),
        source=SeededNoise(np.random.default_rng(6)),
    )  # fmt: skip
    back = LocationStatistics.from_dict(json.loads(json.dumps(noisy.to_dict())))
    assert back.to_dict() == noisy.to_dict()
    assert not back.is_private
