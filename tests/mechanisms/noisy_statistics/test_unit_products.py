"""Products between primary sampling units (PSUs): whole numbers, their sensitivity and noise.

Truth: products written out record by record; the distance of two databases from their exact
products, climbed over pairs of records and where the means of the other records lie; fractions."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.unit_products import (
    SCALE,
    UnitProducts,
    UnitSizes,
    block_of_columns,
    divided,
    exact_products,
    exact_sums,
    noise_variances,
    unit_products,
)
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform
from tests.mechanisms.noisy_statistics.location_cases import small_design, two_sided_design


def amounts_design() -> LocationDesign:
    """Two amounts and a log weight, without categories."""
    outcomes = tuple(Outcome(name, transform=Transform("identity")) for name in "ab")
    shape = LocationShape(np.ones((1, 1)), np.zeros(1, int), outcomes, weighted=True)
    return LocationDesign.optimal(shape, Clipping(np.zeros(3), np.ones(3), 3.0))


def levels_design() -> LocationDesign:
    """Three outcomes of three levels each and a log weight: four blocks."""
    outcomes = tuple(Outcome(name, "categorical", levels=tuple("xyz")) for name in "abc")
    shape = LocationShape(np.ones((1, 1)), np.zeros(1, int), outcomes, weighted=True)
    return LocationDesign.optimal(shape, Clipping(np.zeros(1), np.ones(1), 2.0))


DESIGNS = {
    "amounts": amounts_design(), "kinds": small_design(), "two sides": two_sided_design(),
    "levels": levels_design(),
}  # fmt: skip
RHO = Fraction(1, 5)
Record = tuple[np.ndarray, np.ndarray]


def whole_products(name: str, psu: np.ndarray, records: list[Record]) -> np.ndarray:
    design = DESIGNS[name]
    category, z = (np.array(each) for each in zip(*records, strict=True))
    sums = exact_sums(design.shape, design.clipping, psu, category, z)
    return exact_products(sums, np.bincount(psu))


def products_of(name: str, psu: np.ndarray, records: list[Record]) -> np.ndarray:
    """Entries that are released; zero elsewhere."""
    block = block_of_columns(DESIGNS[name].shape)
    return np.where(block[:, None] == block, whole_products(name, psu, records), 0)


def cost(change: np.ndarray, variances: tuple[int, int]) -> float:
    """rho of a change of B, from its diagonal and what is above it."""
    upper = np.triu_indices(len(change), 1)
    diagonal = sum(int(each) ** 2 for each in np.diag(change))
    above = sum(int(each) ** 2 for each in change[upper])
    return float(Fraction(diagonal, 2 * variances[0]) + Fraction(above, 2 * variances[1]))


def climbed(name: str, n: int, variances: tuple[int, int], seed: int) -> float:
    """The largest rho found: a pair of records, and one record of which a PSU has n - 1."""
    design, rng = DESIGNS[name], np.random.default_rng(seed)
    sizes = [each.categories for each in design.shape.outcomes]
    psu = np.zeros(n, dtype=np.int64)

    def drawn() -> Record:
        return np.array([rng.integers(k) for k in sizes]), rng.normal(0.0, 3.0, design.shape.q)

    def spent(one: Record, other: Record, rest: Record) -> float:
        found = [products_of(name, psu, [each] + [rest] * (n - 1)) for each in (one, other)]
        return cost(found[1] - found[0], variances)

    tried = [drawn(), drawn(), drawn()]
    tried[1], tried[2] = (tried[0][0].copy(), -tried[0][1]), tried[0]
    best = spent(*tried)
    for _ in range(150):
        which = int(rng.integers(3))
        category, z = (each.copy() for each in tried[which])
        if rng.random() < 0.2:
            j = rng.integers(len(sizes))
            category[j] = rng.integers(sizes[j])
        else:
            z = z + rng.normal(0.0, 3.0, z.size) * (rng.random(z.size) < 0.6)
        other = [*tried]
        other[which] = category, z
        value = spent(*other)
        if value >= best:
            best, tried = value, other
    return best


@pytest.mark.parametrize("n", [1, 3, 21, 400])
def test_climbing_attains_the_budget_of_amounts_and_no_more(n: int) -> None:
    """Two records at a right angle for n = 1; from 3 on opposite ones, others with one of them."""
    design = DESIGNS["amounts"]
    variances = noise_variances(design.shape, design.clipping, RHO, np.array([n]))
    best = max(climbed("amounts", n, variances, seed) for seed in range(3))
    assert 0.98 * RHO < best <= RHO


@pytest.mark.parametrize("name", ["kinds", "two sides"])
def test_climbing_over_categories_and_amounts_stays_below(name: str) -> None:
    """An amount that is lacking or on another side leaves a little of the bound."""
    design = DESIGNS[name]
    variances = noise_variances(design.shape, design.clipping, RHO, np.array([7]))
    best = max(climbed(name, 7, variances, seed) for seed in range(3))
    assert 0.4 * RHO < best <= RHO


def test_blocks_of_levels_attain_the_budget_and_a_whole_matrix_would_exceed_it() -> None:
    """Every block moves by its most at once, but for the angle between three levels. Products
    between outcomes are not paid for."""
    design, n = DESIGNS["levels"], 21
    variances = noise_variances(design.shape, design.clipping, RHO, np.array([n]))
    best = max(climbed("levels", n, variances, seed) for seed in range(3))
    assert 0.9 * RHO < best <= RHO
    one, other = (np.zeros(3, int), np.array([9.0])), (np.full(3, 2), np.array([-9.0]))
    psu = np.zeros(n, dtype=np.int64)
    found = [whole_products("levels", psu, [each] + [one] * (n - 1)) for each in (one, other)]
    assert cost(found[1] - found[0], variances) > 1.5 * RHO
    assert cost(products_of("levels", psu, [other] + [one] * (n - 1))
                - products_of("levels", psu, [one] * n), variances) <= RHO  # fmt: skip


def test_wrong_noise_is_found() -> None:
    """That of smaller PSUs, and half the variance above the diagonal."""
    design = DESIGNS["amounts"]
    small = noise_variances(design.shape, design.clipping, RHO, np.array([2]))
    assert climbed("amounts", 40, small, 0) > 1.1 * RHO
    right = noise_variances(design.shape, design.clipping, RHO, np.array([40]))
    assert climbed("amounts", 40, (right[0], right[1] // 2), 0) > 1.1 * RHO


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 30), st.sampled_from(sorted(DESIGNS)))
def test_no_pair_of_records_costs_more(seed: int, n: int, name: str) -> None:
    design, rng = DESIGNS[name], np.random.default_rng(seed)
    variances = noise_variances(design.shape, design.clipping, RHO, np.array([n, 1]))
    sizes = [each.categories for each in design.shape.outcomes]
    scale, q = 10.0 ** rng.uniform(-2, 300), design.shape.q
    records = [
        (np.array([rng.integers(k) for k in sizes]), scale * rng.standard_normal(q))
        for _ in range(n + 1)
    ]
    psu = np.append(np.zeros(n, dtype=np.int64), 1)
    changed = [(np.array([rng.integers(k) for k in sizes]), scale * rng.standard_normal(q))]
    moved = products_of(name, psu, changed + records[1:]) - products_of(name, psu, records)
    assert cost(moved, variances) <= RHO


def test_a_unit_of_protection_over_several_psus_costs_no_more() -> None:
    design, far = DESIGNS["amounts"], np.array([9.0, 9.0, 9.0])
    zero = np.zeros(2, dtype=np.int64)
    others = [(zero, far)] * 9
    for psu in (np.arange(12) % 3, np.repeat([0, 1, 2], [10, 1, 1])):
        variances = noise_variances(
            design.shape, design.clipping, RHO, np.bincount(psu), records=3
        )
        before = products_of("amounts", psu, [(zero, far)] * 3 + others)
        after = products_of("amounts", psu, [(zero, -far)] * 3 + others)
        found = cost(after - before, variances)
        assert found <= RHO
    assert found > 0.4 * RHO  # all in one PSU of ten


def test_amounts_with_their_zeros_are_one_block_and_each_other_outcome_one() -> None:
    # Two amounts and the log weight, works in two categories, benefit with its zeros.
    assert block_of_columns(DESIGNS["kinds"].shape).tolist() == [0, 0, 0, 1, 1, 0, 0]
    made = unit_products(
        DESIGNS["kinds"].shape, DESIGNS["kinds"].clipping, np.arange(8) % 2,
        np.zeros((8, 3), int), np.zeros((8, 3)), rho=Fraction(1, 2), source=SeededNoise(
            np.random.default_rng(1)
        ),
    )  # fmt: skip
    released = np.zeros((7, 7), dtype=bool)
    released[made.entries] = True
    np.testing.assert_array_equal(made.products != 0, released | released.T)
    assert not released[3, 5]
    assert released[0, 5]


def test_products_are_those_of_the_records() -> None:
    design, rng, n = DESIGNS["kinds"], np.random.default_rng(4), 40
    psu = rng.integers(0, 6, n)
    psu[:6] = np.arange(6)
    category = np.column_stack([rng.integers(0, 2, n), rng.integers(0, 2, n), np.zeros(n, int)])
    z = rng.normal(0.0, 1.0, (n, 3))
    sums = exact_sums(design.shape, design.clipping, psu, category, z)
    made = exact_products(sums, np.bincount(psu)).astype(float) * design.clipping.step**2
    expected = np.zeros((7, 7))
    for unit in range(6):
        own, total = np.flatnonzero(psu == unit), np.zeros(7)
        for i in own:
            there = design.shape.layout.present(category[i : i + 1])[0]
            flags = [category[i, j] == np.arange(2) for j in (0, 1)]
            total[:3] += np.where(there, z[i], 0.0)
            total[3:] += SCALE * (np.concatenate(flags) - 0.5)
        expected += np.outer(total, total) / len(own)
    np.testing.assert_allclose(made, expected, atol=1e-3)


def test_noise_has_its_variance_and_comes_back_from_a_file() -> None:
    design, rng = DESIGNS["amounts"], np.random.default_rng(6)
    psu, category = np.repeat(np.arange(5), 4), np.zeros((20, 2), dtype=np.int64)
    made = [
        unit_products(
            design.shape, design.clipping, psu, category, np.zeros((20, 3)), rho=Fraction(1, 2),
            source=SeededNoise(rng),
        )
        for _ in range(400)
    ]  # fmt: skip
    # R = 3 and n = 4: 4 R^2 (1 - 1/n) = 27, and as much is the SD at rho 1/2.
    assert made[0].sd == pytest.approx(27.0, rel=1e-4)
    values = np.stack([each.products for each in made])
    assert np.diagonal(values, axis1=1, axis2=2).std() == pytest.approx(27.0, rel=0.07)
    assert values[:, 0, 1].std() == pytest.approx(27.0 / 2**0.5, rel=0.1)
    np.testing.assert_array_equal(values, values.swapaxes(1, 2))
    given = json.loads(json.dumps(made[0].to_dict()))
    assert UnitProducts.from_dict(given).to_dict() == made[0].to_dict()
    with pytest.raises(InputError, match="do not fit together"):
        UnitProducts.from_dict({**given, "products": [[1.0, 2.0]]})


@given(st.floats(1e-6, 100.0), st.floats(0.01, 0.9))
def test_both_parts_together_spend_no_more_than_the_budget(rho: float, share: float) -> None:
    spent, left = divided(Budget(rho, 1.0, 1e-6), share)
    assert spent + Fraction(left.rho) <= Fraction(rho)
    assert float(spent + Fraction(left.rho)) == pytest.approx(rho, rel=1e-12)


def test_the_error_of_an_intraclass_correlation_is_that_of_simulated_units() -> None:
    """One amount of 60 units of 20 records without clustering, its products with noise."""
    rng, units, size, share, noise = np.random.default_rng(2), 60, 20, 0.25, 30.0
    means = rng.standard_normal((4000, units)) / size**0.5
    products = size * (means**2).sum(1) + noise / share**0.5 * rng.standard_normal(4000)
    found = (products - units) / (units * (size - 1))
    sizes = UnitSizes(units, units * size, 300.0, 50.0, noise)
    error = float(sizes.icc_error(np.array([share]), icc=0.0)[0])
    assert found.std() == pytest.approx(error, rel=0.08)


def test_the_best_share_weighs_means_against_standard_errors() -> None:
    """More where the noise of products is larger, less where that of sums is."""
    best = UnitSizes(100, 2000, 200.0, 60.0, 100.0).best_share()
    assert UnitSizes(100, 2000, 200.0, 60.0, 400.0).best_share() > best
    assert UnitSizes(100, 2000, 50.0, 600.0, 100.0).best_share() < best
