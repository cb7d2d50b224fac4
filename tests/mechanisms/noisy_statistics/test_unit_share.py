"""The share of the budget for sums by unit. Truth: simulated units, with noise of these variances.

What a formula says of errors is compared with errors; the best share with that of the errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.unit_share import SHARES, UnitNoise

SIZES = UnitNoise(units=60, size=20, cell=300, of_units=0.004, of_sums=60.0)
REPEATS = 20_000
ICC = 0.05


def estimated_icc(sizes: UnitNoise, share: float, rng: np.random.Generator) -> np.ndarray:
    """Estimates (repeats,) from noisy means of units, the variances of records and noise known."""
    units, size = int(sizes.units), sizes.size
    effects = rng.normal(size=(REPEATS, units)) * np.sqrt(ICC)
    means = effects + rng.normal(size=effects.shape) * np.sqrt((1.0 - ICC) / size)
    noise = sizes.of_units / share
    noisy = means + rng.normal(size=means.shape) * np.sqrt(noise)
    # var = rho + (1 - rho) / m + noise, solved for rho.
    return (noisy.var(axis=1, ddof=1) - noise - 1.0 / size) / (1.0 - 1.0 / size)


@pytest.mark.parametrize("share", [1 / 32, 1 / 8, 1 / 2])
def test_the_error_of_the_intraclass_correlation_is_that_of_simulated_units(share: float) -> None:
    found = estimated_icc(SIZES, share, np.random.default_rng(1)).std()
    formula = SIZES.icc_error(np.array([share]), ICC)[0]
    # By known variances: the formula leaves out the factor 1 / (1 - 1/m), of 5% here.
    assert found == pytest.approx(formula / (1.0 - 1.0 / SIZES.size), rel=0.03)
    assert found != pytest.approx(1.3 * formula, rel=0.1)


def test_the_error_of_a_mean_is_that_of_simulated_cells() -> None:
    rng, share = np.random.default_rng(2), 0.25
    each = int(SIZES.cell / SIZES.units)  # five records of every unit are in the cell
    effects = rng.normal(size=(REPEATS, 60)) * np.sqrt(ICC)
    means = effects.mean(axis=1) + rng.normal(size=REPEATS) * np.sqrt((1 - ICC) / (60 * each))
    unit = rng.normal(size=REPEATS) * np.sqrt(SIZES.of_sums) / SIZES.cell
    with_units, without = means + unit / np.sqrt(1.0 - share), means + unit
    gain = np.sqrt((with_units**2).mean() / (without**2).mean()) - 1.0
    assert SIZES.rmse_gain(np.array([share]), ICC)[0] == pytest.approx(gain, rel=0.1)


def test_the_best_share_has_the_least_error_of_simulated_units() -> None:
    """The error of a standard error from the estimates themselves, not by the formula's slope."""

    def loss(share: float) -> float:
        rng = np.random.default_rng(3)
        found = estimated_icc(SIZES, share, rng).std()
        true = 1.0 + (SIZES.size - 1.0) * ICC
        se = 0.5 * (SIZES.size - 1.0) * found / true
        return float(se + SIZES.rmse_gain(np.array([share]), ICC)[0])

    best = SIZES.best_share(ICC)
    assert loss(best) <= min(map(loss, SHARES[::10])) * 1.01
    for wrong in (best / 4.0, 1.0 - best):
        assert loss(wrong) > 1.05 * loss(best)


@given(
    units=st.floats(2, 1e4), size=st.floats(1, 1e3), cell=st.floats(1, 1e6),
    of_units=st.floats(1e-9, 1e3), of_sums=st.floats(1e-6, 1e6),
)  # fmt: skip
def test_more_noise_of_units_asks_for_no_smaller_share(
    units: float, size: float, cell: float, of_units: float, of_sums: float
) -> None:
    sizes = UnitNoise(units, size, cell, of_units, of_sums)
    more = UnitNoise(units, size, cell, 4.0 * of_units, of_sums)
    assert 1 / 65 < sizes.best_share() <= more.best_share() <= 0.5


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_sizes_are_above_zero(wrong: float) -> None:
    with pytest.raises(InputError, match="expected five sizes above zero"):
        UnitNoise(units=wrong, size=20, cell=300, of_units=0.004, of_sums=60.0)
