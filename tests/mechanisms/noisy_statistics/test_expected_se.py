"""Expected SEs against the spread of plug-in estimates over simulated samples with noise."""

from fractions import Fraction

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import rho_of
from surveysynth.mechanisms.noisy_statistics.expected_se import ExpectedErrors, expected_errors
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    noise_variances,
    squared_sensitivity,
)

CELLS = np.array([[1.0, *(np.arange(1, 8) == a), b] for a in range(8) for b in range(2)])
STRATUM = np.arange(16) // 2
STRATUM_SIZE = np.array([211, 180, 150, 130, 110, 90, 79, 50])
SECOND = np.array([0.3, 0.5, 0.4, 0.6, 0.2, 0.5, 0.45, 0.5])  # share of b = 1 by stratum
ROWS = np.vstack(
    [np.ones(16), *(np.arange(16) % 2 == b for b in (0, 1)), *np.eye(8).repeat(2, 1), np.eye(16)]
)
SPREAD = np.array([0.4, 0.57])
DESIGN = NoiseDesign.optimal(CELLS, Clipping(np.array([11.0, 4.6]), SPREAD))
COUNTS = np.column_stack([STRATUM_SIZE * (1 - SECOND), STRATUM_SIZE * SECOND]).round()
COUNTS = COUNTS.astype(np.int64).ravel()
#: Coefficients of u: cells away from the centre, by as much as populations are.
COEFFICIENTS = np.array(
    [[0.2, -0.5, 0.4, 0.8, -1.0, 0.3, 0.6, -0.4, -0.5],
     [-0.2, 0.4, -0.3, -0.6, 0.8, -0.2, -0.5, 0.3, 0.3]]
).T  # fmt: skip


def expected(epsilon: float, correlation: float = 0.0, records: int = 1) -> ExpectedErrors:
    return expected_errors(
        DESIGN, COUNTS, STRATUM, ROWS, [rho_of(epsilon, 1e-6)],
        inverse=np.exp, correlation=correlation, records=records,
    )  # fmt: skip


def plug_in(codes: FloatArray, u: FloatArray, rho: float, rng: np.random.Generator) -> FloatArray:
    """Counts and means (2, D) by the moments with noise, without any prior."""
    noise = noise_variances(DESIGN.clipping, rho)
    sigma, squares_sd = noise.cross_sd(DESIGN.clipping), noise.squares_sd(DESIGN.clipping)
    a = (CELLS @ DESIGN.basis)[codes]
    gram = a.T @ a
    cross = a.T @ u + sigma * rng.normal(size=(a.shape[1], 2))
    error = np.triu(rng.normal(size=(2, 2)))
    squares = u.T @ u + (error + np.triu(error, 1).T) * squares_sd
    fit = np.linalg.solve(gram, cross)
    residual = squares - cross.T @ fit + sigma**2 * np.trace(np.linalg.inv(gram)) * np.eye(2)
    covariance = residual / (len(u) - a.shape[1]) * SPREAD[:, None] * SPREAD
    cell_fit = CELLS @ DESIGN.basis @ fit * SPREAD
    mean = np.exp(cell_fit[:, 0] + covariance[0, 0] / 2 + covariance[0, 1])
    weight = np.exp(cell_fit[:, 1]) * np.bincount(codes, minlength=16)
    size = ROWS @ weight
    return np.array([size / size[0], ROWS @ (weight * mean) / size])


def simulated(epsilon: float, correlation: float, size: float, repetitions: int) -> FloatArray:
    """SDs of estimates with noise over SDs of the sample's own, (2, D)."""
    rng = np.random.default_rng(8)
    root = np.linalg.cholesky(np.array([[1.0, correlation], [correlation, 1.0]]))
    rho = rho_of(epsilon, 1e-6)
    noisy, own = [], []
    for _ in range(repetitions):
        strata = np.repeat(np.arange(8), STRATUM_SIZE)
        codes = 2 * strata + (rng.random(strata.size) < SECOND[strata])
        u = CELLS[codes] @ COEFFICIENTS * size + rng.normal(size=(strata.size, 2)) @ root.T
        noisy.append(plug_in(codes, u, rho, rng))
        y, w = np.exp(u * SPREAD).T
        count, total = (ROWS @ np.bincount(codes, each, minlength=16) for each in (w, w * y))
        own.append(np.array([count / count[0], total / count]))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.std(noisy, axis=0) / np.std(own, axis=0))


@pytest.mark.parametrize(
    ("epsilon", "correlation", "size"), [(10.8, 0.0, 0.0), (3.6, -0.58, 1.0), (1.0, -0.58, 1.0)]
)
def test_expected_ratios_are_those_of_repeated_samples(
    epsilon: float, correlation: float, size: float
) -> None:
    found = simulated(epsilon, correlation, size, 300)
    stated = expected(epsilon, correlation)
    for ratio in (stated.count[0, 1:] / found[0, 1:], stated.mean[0] / found[1]):
        assert np.median(ratio) == pytest.approx(1.0, abs=0.05)
        assert ratio.max() < 1.2
        assert ratio.min() > 0.82
    # Half the epsilon is told apart.
    other = expected(epsilon / 2, correlation)
    assert np.median(other.mean[0] / found[1]) > 1.12


def test_without_noise_nothing_is_worse_than_in_the_sample() -> None:
    """A saturated design, a normal outcome: the mean of a cell has variance (1/n + 1/(m n))."""
    spread = np.array([2.0, 0.5])
    design = NoiseDesign.optimal(np.eye(3), Clipping(np.array([7.0, 1.0]), spread))
    counts = np.array([30, 50, 20])
    found = expected_errors(
        design, counts, np.arange(3), np.vstack([np.ones(3), np.eye(3)]), [1e12],
        inverse=lambda z: z, m=10, replicates=5,
    )  # fmt: skip
    # Residual covariance with log w moves a mean too: 0.5^2 / (n - r) in u.
    variance = (1.1 * (1 / counts + 0.25 / 97) + 1 / counts / 50) * 4.0
    sample = np.exp(0.25) * 4.0 / counts
    assert found.mean[0, 1:] ** 2 == pytest.approx(variance / sample, rel=1e-6)
    # Each cell a stratum: its share in a calibrated count varies with the weights alone.
    n, share = 100, counts / 100
    model = 1.1 * 0.25 * np.array(
        [sum(c * ((k == j) - s) ** 2 for k, c in enumerate(counts)) for j, s in enumerate(share)]
    )  # fmt: skip
    own = np.array(
        [
            sum(
                c / (c - 1) * c * ((k == j) - s) ** 2 * (np.exp(0.25) - 1)
                for k, c in enumerate(counts)
            )
            for j, s in enumerate(share)
        ]
    )
    assert found.count[0, 1:] ** 2 == pytest.approx(model / own, rel=1e-6)
    assert np.isnan(found.count[0, 0])  # the whole is known
    assert n == counts.sum()


def test_public_weights_leave_counts_alone_and_means_by_hand() -> None:
    """No log weight among the columns. A saturated design, a normal outcome, one stratum: the mean
    of a row, sum a_c mean_c, has variance sum a_c^2 (1/n_c + (sigma/n_c)^2) from the posterior."""
    design = NoiseDesign.optimal(np.eye(3), Clipping(np.array([7.0]), np.array([2.0])))
    counts, weight = np.array([30, 50, 20]), np.array([5.0, 1.0, 12.0])
    rows, rho, m, r = np.vstack([np.ones(3), np.eye(3)]), rho_of(3.6, 1e-6), 10, 5
    found = expected_errors(
        design, counts, np.zeros(3, dtype=np.int64), rows, [rho], inverse=lambda z: z, m=m,
        replicates=r, scaled=False, weight=weight,
    )  # fmt: skip
    assert found.count[0, 1:] == pytest.approx(1.0)
    share = rows * counts * weight
    share /= share.sum(axis=1, keepdims=True)
    sample = (share**2 / counts).sum(axis=1)
    # The basis of this design is the identity up to the bits of its rows.
    sigma = noise_variances(design.clipping, rho).cross_sd(design.clipping)
    noisy = (share**2 * (1 / counts + (sigma / counts) ** 2)).sum(axis=1)
    assert found.mean[0] ** 2 == pytest.approx(
        ((1 + 1 / m) * noisy + sample / (m * r)) / sample, rel=1e-6
    )
    # The whole count varies between samples, since the weights do within the stratum.
    u = np.repeat(weight, counts)
    count_variance = 100 * u.var(ddof=1)
    total = (
        49.0 * count_variance
        + u.sum() ** 2 * 4.0 * np.array([1.0, found.mean[0, 0] ** 2]) * (sample[0])
    )
    assert found.total[0, 0] ** 2 == pytest.approx(total[1] / total[0], rel=1e-6)
    # Equal weights in a stratum: nothing varies, and nothing is told.
    fixed = expected_errors(
        design, counts, np.arange(3), rows, [rho], inverse=lambda z: z, scaled=False, weight=weight
    )
    assert np.isnan(fixed.count).all()


def test_noise_only_costs() -> None:
    grid = [expected(epsilon) for epsilon in (0.5, 1, 3.6, 10.8, 100)]
    for name in ("count", "mean", "total"):
        values = np.array([getattr(each, name)[0, 1:] for each in grid])
        assert (np.diff(values, axis=0) < 0).all()
        assert (getattr(expected(3.6, records=4), name)[0, 1:] > values[2]).all()
    rhos = [rho_of(epsilon, 1e-6) for epsilon in (1.0, 3.6)]
    both = expected_errors(DESIGN, COUNTS, STRATUM, ROWS, rhos, inverse=np.exp)
    assert both.mean.shape == (2, len(ROWS))
    assert (both.mean[1] == grid[2].mean[0]).all()


def test_rows_without_records_and_samples_without_residuals() -> None:
    counts = COUNTS * (np.arange(16) != 5)
    found = expected_errors(DESIGN, counts, STRATUM, ROWS, [0.257], inverse=np.exp)
    empty = np.flatnonzero(ROWS @ counts == 0)
    assert empty.size == 1
    for values in (found.count, found.mean, found.total):
        assert np.isnan(values[0, empty]).all()
    assert np.isfinite(np.delete(found.mean[0], empty)).all()
    few = expected_errors(
        NoiseDesign.optimal(np.eye(2), DESIGN.clipping), np.array([1, 1]), np.array([0, 0]),
        np.eye(2), [1.0], inverse=np.exp,
    )  # fmt: skip
    assert np.isnan(few.mean).all()


def test_shapes() -> None:
    with pytest.raises(InputError, match="16 cells"):
        expected_errors(DESIGN, COUNTS[1:], STRATUM, ROWS, [1.0], inverse=np.exp)


def test_statistics_by_group_have_more_noise_of_sums_and_less_of_squares() -> None:
    """Counts rest on sums alone: their errors are those of one block with so much less budget."""
    rho = rho_of(3.6, 1e-6)

    def of(rho: float, *, by_block: bool) -> ExpectedErrors:
        return expected_errors(
            DESIGN, COUNTS, STRATUM, ROWS, [rho], inverse=np.exp, by_block=by_block
        )

    groups, one_block = of(rho, by_block=True), of(rho, by_block=False)
    longer = float(squared_sensitivity(Fraction(0), 1.0, discrete=False)) / 4.0
    less = of(rho / longer, by_block=False)
    np.testing.assert_allclose(groups.count, less.count, rtol=1e-6)
    assert (groups.count[0, 1:] > one_block.count[0, 1:]).all()
    assert (groups.mean[0] < less.mean[0]).all()
