"""Sums of one block in Python's own whole numbers, the noise against its claim, files that are
damaged, records that are anything."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationDesign,
    LocationStatistics,
    LocationSums,
    location_statistics,
    released,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import SQUARES
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

BUDGET = Budget.of_epsilon(3.6, 1e-6)
CELLS = np.array([[1.0, a == 1, a == 2, b] for a in range(3) for b in range(2)])
CLIPPING = Clipping(np.array([10.0, 3.0]), np.array([0.5, 0.6]))
OUTCOMES = (Outcome("income", transform=Transform("identity")),)


def design_of(cells: FloatArray) -> LocationDesign:
    group = np.zeros(len(cells), dtype=np.int64)
    return LocationDesign.optimal(LocationShape(cells, group, OUTCOMES, weighted=True), CLIPPING)


DESIGN = design_of(CELLS)
RNG = np.random.default_rng(1)
N = 400
CODES = RNG.integers(0, 6, N)
Z = RNG.normal([10.2, 3.1], [0.6, 0.8], (N, 2))


def sums_of(design: LocationDesign, codes: Any, z: FloatArray) -> LocationSums:
    sums = LocationSums(design)
    sums.add(codes, np.zeros_like(codes), z)
    return sums


def run(z: FloatArray, codes: Any = CODES, **given: Any) -> LocationStatistics:
    source = SeededNoise(np.random.default_rng(7))
    category = np.zeros((len(codes), 1), dtype=np.int64)
    chosen = {"budget": BUDGET, "source": source, **given}
    return location_statistics(DESIGN, codes, category, z, **chosen)


def test_sums_are_those_of_whole_numbers() -> None:
    exact, (block,) = sums_of(DESIGN, CODES, Z), DESIGN.blocks
    u, rows = CLIPPING.on_grid(Z).tolist(), block.noise.rows.tolist()
    cross, squares = [[0, 0] for _ in range(block.noise.basis.shape[1])], [[0, 0], [0, 0]]
    for record, cell in zip(u, CODES.tolist(), strict=True):
        for j in range(2):
            for k in range(block.noise.basis.shape[1]):
                cross[k][j] += rows[cell][k] * record[j]
            for k in range(2):
                squares[j][k] += record[j] * record[k]
    assert exact.cross(block).tolist() == cross
    assert exact.squares_of(block).tolist() == squares


def test_sums_outgrow_64_bits_unharmed() -> None:
    n, design = 2**22 + 1, design_of(np.eye(2))
    codes, (block,) = np.arange(n) % 2, design.blocks
    exact = sums_of(design, codes, np.tile([1e6, 3.0], (n, 1)))
    (u,) = CLIPPING.on_grid(np.array([[1e6, 3.0]])).tolist()
    assert exact.squares_of(block)[0, 0] == n * u[0] ** 2 > 2**63
    first, second = block.noise.rows.astype(object)
    expected = u[0] * ((n // 2 + 1) * first + n // 2 * second)
    assert exact.cross(block)[:, 0].tolist() == expected.tolist()


def test_the_noise_is_the_one_claimed() -> None:
    """Errors of 300 releases over their SDs, against a float computation of clipped moments."""
    u = (Z - CLIPPING.centre) / CLIPPING.spread
    u *= np.minimum(1.0, CLIPPING.radius / np.linalg.norm(u, axis=1, keepdims=True))
    sums, source = sums_of(DESIGN, CODES, Z), SeededNoise(np.random.default_rng(7))
    made = [released(DESIGN, sums, budget=BUDGET, source=source) for _ in range(300)]
    exact = (CELLS @ made[0].basis[0])[CODES].T @ u
    upper = np.triu_indices(2)
    sd = np.where(upper[0] == upper[1], *made[0].squares_sd)
    errors = np.array([
        [
            *((each.cross[0] - exact) / each.sigma).ravel(),
            *((each.squares[0] - u.T @ u)[upper] / sd),
        ]
        for each in made
    ])  # fmt: skip
    assert stats.kstest(errors.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(errors.ravel() * 1.3, "norm").pvalue < 1e-4
    for column in errors.T:
        assert 1e-5 < stats.chi2.cdf((column**2).sum(), 300) < 1 - 1e-5
    correlation = np.corrcoef(errors.T) - np.eye(errors.shape[1])
    assert np.abs(correlation).max() < 4.5 / np.sqrt(300)
    sigma = CLIPPING.radius * np.sqrt((2 + SQUARES + 1 / SQUARES) / (2 * BUDGET.rho))
    assert made[0].sigma == pytest.approx(sigma, rel=1e-9)


extreme = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.7e308, -1.7e308, 5e-324, 1e300, -1e-300]),
)


@settings(deadline=None)
@given(hnp.arrays(np.float64, (6, 2), elements=extreme))
def test_it_answers_whatever_the_records_are(z: FloatArray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(z, np.arange(6))
    assert np.isfinite(found.cross[0]).all()
    assert np.isfinite(found.squares[0]).all()
    told, others = (
        {name: value for name, value in each.to_dict().items() if name not in ("cross", "squares")}
        for each in (found, run(np.zeros((6, 2)), np.arange(6)))
    )
    assert told == others  # everything else is public


def test_tiny_budgets_and_large_units_stay_finite() -> None:
    for epsilon, records in ((1e-8, 1000), (1e4, 1)):
        found = run(Z, budget=Budget.of_epsilon(epsilon, 1e-6), records=records, source=None)
        assert np.isfinite(found.cross[0]).all()
        assert found.is_private
        assert found.noise == "system"
    one, many = (run(Z, records=k).sigma for k in (1, 40))
    assert many == pytest.approx(40 * one)


def test_damaged_files() -> None:
    good = run(Z).to_dict()
    damaged = [
        {name: value for name, value in good.items() if name != "sigma"},
        {**good, "more": 1},
        {**good, "squares": [[[1.0]]]},
        {**good, "cross": [[["a"]]]},
        {**good, "cross": [1.0]},
        {**good, "basis": [1.0]},
        {**good, "cross": [np.full((4, 2), np.nan).tolist()]},
        {**good, "counts": [np.nan]},
    ]
    for each in damaged:
        match = "fit together" if set(each) == set(good) else "missing or unknown"
        with pytest.raises(InputError, match=f"Noisy statistics .*{match}"):
            LocationStatistics.from_dict(each)
