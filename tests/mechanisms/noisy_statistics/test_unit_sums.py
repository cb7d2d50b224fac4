"""Sums by primary sampling unit of outcomes of several kinds: whole numbers and their noise.

Truth: sums written out record by record; the distance of two databases from their exact sums,
climbed over pairs of records; fractions."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release import unit_sums as module
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.unit_sums import (
    UnitSums,
    divided,
    exact_sums,
    squared_distance,
    unit_sums,
    unit_variances,
)
from tests.mechanisms.noisy_statistics.location_cases import small_design, two_sided_design

DESIGNS = {"kinds": small_design(), "two sides": two_sided_design()}
Record = tuple[np.ndarray, np.ndarray]


def sums_of(name: str, psu: np.ndarray, records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    design = DESIGNS[name]
    category, z = (np.array(each) for each in zip(*records, strict=True))
    return exact_sums(design.shape, design.clipping, psu, category, z)


def spent(name: str, one: Record, other: Record, variances: module.UnitVariances) -> Fraction:
    """rho between two databases that differ in a record, from their exact sums."""
    before, after = (sums_of(name, np.array([0]), [each]) for each in (one, other))
    amounts, counts = (int(((b - a) ** 2).sum()) for a, b in zip(before, after, strict=True))
    return Fraction(amounts, 2 * variances.amounts) + Fraction(counts) / (2 * variances.counts)


def climbed(name: str, variances: module.UnitVariances, seed: int) -> Fraction:
    """The largest rho found by changing one coordinate of a pair of records at a time."""
    design, rng = DESIGNS[name], np.random.default_rng(seed)
    sizes = [each.categories for each in design.shape.outcomes]

    def drawn() -> Record:
        return np.array([rng.integers(k) for k in sizes]), rng.normal(0.0, 3.0, design.shape.q)

    pair = [drawn(), drawn()]
    best = spent(name, *pair, variances)
    for _ in range(400):
        which = rng.integers(2)
        category, z = (each.copy() for each in pair[which])
        if rng.random() < 0.3:
            j = rng.integers(len(sizes))
            category[j] = rng.integers(sizes[j])
        else:
            z = z + rng.normal(0.0, 2.0, z.size) * (rng.random(z.size) < 0.6)
        tried = [*pair]
        tried[which] = category, z
        value = spent(name, *tried, variances)
        if value >= best:
            best, pair = value, tried
    return best


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_climbing_over_pairs_of_records_attains_the_budget_and_no_more(
    name: str, share: float
) -> None:
    design, rho = DESIGNS[name], Fraction(1, 5)
    discrete = len(design.shape.discrete)
    variances = unit_variances(design.clipping, rho, discrete, share)
    best = max(climbed(name, variances, seed) for seed in range(4))
    assert 0.95 * rho < best <= rho


def test_wrong_noise_is_found() -> None:
    """Half the variance, counts that do not add to the distance, and outcomes that do not."""
    design, rho = small_design(), Fraction(1, 5)
    right = unit_variances(design.clipping, rho, 2, 1.0)
    alone = unit_variances(design.clipping, rho, 0, 1.0)
    one = unit_variances(design.clipping, rho, 1, 1.0)
    halved = module.UnitVariances(right.amounts // 2, right.counts / 2)
    for wrong in (halved, alone, one):
        assert max(climbed("kinds", wrong, seed) for seed in range(4)) > 1.1 * rho


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.25, 3.0]), st.sampled_from(sorted(DESIGNS)))
def test_no_pair_of_records_costs_more(seed: int, share: float, name: str) -> None:
    design, rng = DESIGNS[name], np.random.default_rng(seed)
    variances = unit_variances(
        design.clipping, Fraction(1, 7), len(design.shape.discrete), share
    )
    sizes = [each.categories for each in design.shape.outcomes]
    scale = 10.0 ** rng.uniform(-2, 300)
    pair = [
        (np.array([rng.integers(k) for k in sizes]), scale * rng.standard_normal(design.shape.q))
        for _ in range(2)
    ]
    assert spent(name, *pair, variances) <= Fraction(1, 7)


def test_a_unit_of_protection_over_several_psus_costs_no_more() -> None:
    """Three records in three PSUs, all turned about: the sum of their squares, below (3 D)^2."""
    design, rho = small_design(), Fraction(1, 5)
    variances = unit_variances(design.clipping, rho, 2, 1.0, records=3)
    far = np.array([9.0, 9.0, 9.0])
    before = [(np.array([0, 0, 0]), far)] * 3
    after = [(np.array([1, 0, 0]), -far)] * 3
    for psu in (np.array([0, 1, 2]), np.array([0, 0, 0])):
        moved = [b - a for a, b in zip(sums_of("kinds", psu, before), sums_of("kinds", psu, after),
                                       strict=True)]  # fmt: skip
        cost = Fraction(int((moved[0] ** 2).sum()), 2 * variances.amounts)
        cost += Fraction(int((moved[1] ** 2).sum())) / (2 * variances.counts)
        assert cost <= rho
    assert cost > 0.7 * rho  # all in one PSU: 9 (4 + 2) of 9 (4 + 4)


def test_sums_are_those_of_the_records() -> None:
    design, rng, n = small_design(), np.random.default_rng(4), 40
    psu = rng.integers(0, 6, n)
    psu[:6] = np.arange(6)
    category = np.column_stack([rng.integers(0, 2, n), rng.integers(0, 2, n), np.zeros(n, int)])
    z = rng.normal(0.0, 1.0, (n, 3))
    amounts, counts = exact_sums(design.shape, design.clipping, psu, category, z)
    for unit in range(6):
        expected, numbers = np.zeros(3), [0, 0, 0, 0]
        for i in np.flatnonzero(psu == unit):
            there = design.shape.layout.present(category[i : i + 1])[0]
            expected += np.where(there, z[i], 0.0)
            numbers[category[i, 0]] += 1
            numbers[2 + category[i, 1]] += 1
        np.testing.assert_allclose(amounts[unit] * design.clipping.step, expected, atol=1e-4)
        assert counts[unit].tolist() == numbers


def test_noise_has_its_variance_and_comes_back_from_a_file() -> None:
    design, rng, n = small_design(), np.random.default_rng(6), 4000
    psu, category = np.arange(n), np.zeros((n, 3), dtype=np.int64)
    made = unit_sums(
        design.shape, design.clipping, psu, category, np.zeros((n, 3)), rho=Fraction(1, 2),
        source=SeededNoise(rng),
    )  # fmt: skip
    # 4 + 2 x 2, R = 4, rho 1/2: sigma^2 = 8 x 16, and 8 of counts.
    assert (made.sigma, made.count_sd) == pytest.approx((128**0.5, 8**0.5), rel=1e-4)
    there = made.amounts[:, 2]  # the log weight, at its centre; zeros elsewhere
    assert there.std() == pytest.approx(made.sigma, rel=0.05)
    assert (made.counts - [1, 0, 1, 0]).std() == pytest.approx(made.count_sd, rel=0.03)
    given = json.loads(json.dumps(made.to_dict()))
    assert UnitSums.from_dict(given).to_dict() == made.to_dict()
    with pytest.raises(InputError, match="do not fit together"):
        UnitSums.from_dict({**given, "counts": [*given["counts"], [0] * 4]})


@given(st.floats(1e-6, 100.0), st.floats(0.01, 0.9))
def test_both_stages_together_spend_no_more_than_the_budget(rho: float, share: float) -> None:
    cost, left = divided(Budget(rho, 1.0, 1e-6), share)
    assert cost + Fraction(left.rho) <= Fraction(rho)
    assert float(cost + Fraction(left.rho)) == pytest.approx(rho, rel=1e-12)
    assert squared_distance(3, 2.0) == 16
