"""The sums in Python's own whole numbers, the noise against its claim, the file to the last bit."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release import statistics
from surveysynth.mechanisms.noisy_statistics.release.noise import ApproximateNoise, SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.statistics import (
    ExactSums,
    NoisyStatistics,
    noisy_statistics,
    released,
)

BUDGET = Budget.of_epsilon(3.6, 1e-6)
CELLS = np.array([[1.0, a == 1, a == 2, b] for a in range(3) for b in range(2)])
CLIPPING = Clipping(np.array([10.0, 3.0]), np.array([0.5, 0.6]))
DESIGN = NoiseDesign.optimal(CELLS, CLIPPING)
CLUSTERED = NoiseDesign.optimal(CELLS, CLIPPING, n_psu=20)
RNG = np.random.default_rng(1)
N = 400
CODES = RNG.integers(0, 6, N)
PSU = RNG.permutation(np.arange(N) % 20)
Z = RNG.normal([10.2, 3.1], [0.6, 0.8], (N, 2))


def seeded(seed: int = 7) -> SeededNoise:
    return SeededNoise(np.random.default_rng(seed))


def run(z: FloatArray = Z, seed: int = 7) -> NoisyStatistics:
    return noisy_statistics(CLUSTERED, CODES, z, psu=PSU, budget=BUDGET, source=seeded(seed))


def same(first: NoisyStatistics, second: NoisyStatistics) -> bool:
    return json.dumps(first.to_dict()) == json.dumps(second.to_dict())


def test_sums_are_those_of_whole_numbers() -> None:
    exact = ExactSums(CLUSTERED)
    exact.add(CODES, Z, PSU)
    u = CLIPPING.on_grid(Z).tolist()
    rows, steps = CLUSTERED.rows.tolist(), CLUSTERED.psu_steps
    rank = CLUSTERED.rank
    cross = [[0, 0] for _ in range(rank + 20)]
    squares = [[0, 0], [0, 0]]
    for record, cell, psu in zip(u, CODES.tolist(), PSU.tolist(), strict=True):
        for j in range(2):
            for k in range(rank):
                cross[k][j] += rows[cell][k] * record[j]
            cross[rank + psu][j] += steps * record[j]
            for k in range(2):
                squares[j][k] += record[j] * record[k]
    assert exact.cross().tolist() == cross
    assert exact.squares.tolist() == squares


def test_sums_outgrow_64_bits_unharmed() -> None:
    n = 2**22 + 1
    exact = ExactSums(NoiseDesign.optimal(np.eye(2), CLIPPING))
    codes = np.arange(n) % 2
    exact.add(codes, np.tile([1e6, 3.0], (n, 1)))
    (u,) = CLIPPING.on_grid(np.array([[1e6, 3.0]])).tolist()
    assert exact.squares[0, 0] == n * u[0] ** 2 > 2**63
    expected = [int(exact._design.rows[0, k]) * u[0] * (n // 2 + 1) for k in range(2)]
    expected = [
        each + int(exact._design.rows[1, k]) * u[0] * (n // 2) for k, each in enumerate(expected)
    ]
    assert exact.cross()[:, 0].tolist() == expected


def test_neither_order_nor_blocks_show(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = run()
    order = np.random.default_rng(2).permutation(N)
    shuffled = noisy_statistics(
        CLUSTERED, CODES[order], Z[order], psu=PSU[order], budget=BUDGET, source=seeded()
    )
    assert same(reference, shuffled)
    monkeypatch.setattr(statistics, "BLOCK", 7)
    assert same(reference, run())
    parts = ExactSums(CLUSTERED)
    for part in (slice(250, None), slice(0, 3), slice(3, 250)):
        parts.add(CODES[part], Z[part], PSU[part])
    assert same(reference, released(CLUSTERED, N, [parts], budget=BUDGET, source=seeded()))


def test_the_noise_is_the_one_claimed() -> None:
    """Errors of 300 releases over their SDs, against a float computation of clipped moments."""
    u = (Z - CLIPPING.centre) / CLIPPING.spread
    u *= np.minimum(1.0, CLIPPING.radius / np.linalg.norm(u, axis=1, keepdims=True))
    found = noisy_statistics(DESIGN, CODES, np.tile(Z, (300, 1, 1)), budget=BUDGET, source=seeded())
    cross = (found.cross - (CELLS @ found.basis)[CODES].T @ u) / found.sigma
    upper = np.triu_indices(2)
    squares = ((found.squares - u.T @ u) / found.squares_sd)[:, *upper]
    errors = np.hstack([cross.reshape(300, -1), squares])
    assert stats.kstest(errors.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(errors.ravel() * 1.3, "norm").pvalue < 1e-4
    for column in errors.T:
        assert 1e-5 < stats.chi2.cdf((column**2).sum(), 300) < 1 - 1e-5
    correlation = np.corrcoef(errors.T) - np.eye(errors.shape[1])
    assert np.abs(correlation).max() < 4.5 / np.sqrt(300)
    sigma = 2 * CLIPPING.radius / np.sqrt(2 * BUDGET.rho)
    assert found.sigma == pytest.approx(sigma, rel=1e-9)


def test_approximate_noise_has_the_same_size() -> None:
    source = ApproximateNoise(np.random.default_rng(1))
    found = noisy_statistics(DESIGN, CODES, np.tile(Z, (2000, 1, 1)), budget=BUDGET, source=source)
    assert found.cross.std(axis=0) == pytest.approx(found.sigma, rel=0.08)
    assert not found.is_private


def test_a_batch_is_its_databases_one_by_one() -> None:
    z = np.random.default_rng(3).normal([10, 3], 1, (3, N, 2))
    codes = np.random.default_rng(4).integers(0, 6, (3, N))
    batch = noisy_statistics(DESIGN, codes, z, budget=BUDGET, source=seeded())
    source = seeded()
    single = [
        noisy_statistics(DESIGN, each, data, budget=BUDGET, source=source)
        for each, data in zip(codes, z, strict=True)
    ]
    assert same(batch, NoisyStatistics.stacked(single))
    with pytest.raises(ValueError, match="same public constants"):
        NoisyStatistics.stacked([single[0], replace(single[1], sigma=1.0)])


extreme = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.7e308, -1.7e308, 5e-324, 1e300, -1e-300]),
)


@settings(deadline=None)
@given(hnp.arrays(np.float64, (6, 2), elements=extreme))
def test_it_answers_whatever_the_records_are(z: FloatArray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = noisy_statistics(DESIGN, np.arange(6), z, budget=BUDGET, source=seeded())
    assert np.isfinite(found.cross).all()
    assert np.isfinite(found.squares).all()
    assert {k: v for k, v in found.to_dict().items() if k not in ("cross", "squares")} == {
        k: v
        for k, v in noisy_statistics(
            DESIGN, np.arange(6), np.zeros((6, 2)), budget=BUDGET, source=seeded()
        )
        .to_dict()
        .items()
        if k not in ("cross", "squares")
    }  # everything else is public


def test_tiny_budgets_and_large_units_stay_finite() -> None:
    for epsilon, records in ((1e-8, 1000), (1e4, 1)):
        found = noisy_statistics(
            DESIGN, CODES, Z, budget=Budget.of_epsilon(epsilon, 1e-6), records=records
        )
        assert np.isfinite(found.cross).all()
        assert found.is_private
        assert found.noise == "system"
    one, many = (
        noisy_statistics(DESIGN, CODES, Z, budget=BUDGET, records=k).sigma for k in (1, 40)
    )
    assert many == pytest.approx(40 * one)


def test_the_file_comes_back_to_the_last_bit() -> None:
    found = run()
    again = NoisyStatistics.from_dict(json.loads(json.dumps(found.to_dict())))
    assert same(found, again)
    assert again.cross.tobytes() == found.cross.tobytes()
    rebuilt = again.design(CELLS)
    assert (rebuilt.rows == CLUSTERED.rows).all()
    assert rebuilt.clipping.steps == CLIPPING.steps
    assert (rebuilt.n_psu, rebuilt.psu_steps) == (20, CLUSTERED.psu_steps)


def test_damaged_files() -> None:
    good = run().to_dict()
    damaged = [
        {k: v for k, v in good.items() if k != "sigma"},
        {**good, "more": 1},
        {**good, "squares": [[1.0]]},
        {**good, "cross": [[["a"]]]},
        {**good, "cross": [1.0]},
        {**good, "basis": [1.0]},
        {**good, "centre": [1.0]},
        {**good, "cross": np.full((1, 24, 2), np.nan).tolist()},
    ]
    for each in damaged:
        with pytest.raises(InputError, match="Noisy statistics"):
            NoisyStatistics.from_dict(each)


def test_records_that_do_not_fit() -> None:
    for design, codes, z, psu in (
        (DESIGN, CODES, Z[:, :1], None),
        (DESIGN, CODES[1:], Z, None),
        (DESIGN, CODES + 1, Z, None),
        (DESIGN, CODES - 1, Z, None),
        (DESIGN, CODES, Z, PSU),
        (CLUSTERED, CODES, Z, None),
        (CLUSTERED, CODES, Z, PSU + 1),
    ):
        with pytest.raises(InputError):
            noisy_statistics(design, codes, z, psu=psu, budget=BUDGET, source=seeded())
