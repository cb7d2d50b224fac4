"""The share of the budget for sums by unit. Truth: simulated units, with noise of these variances.

What a formula says of errors is compared with errors; the best share with that of the errors."""

from dataclasses import replace

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


def simulated_se_error(sizes: UnitNoise, share: float) -> float:
    """SD over mean of standard errors, by estimates that are correlations."""
    found = np.clip(estimated_icc(sizes, share, np.random.default_rng(3)), 0.0, 1.0)
    se = np.sqrt(1.0 + (sizes.size - 1.0) * found)
    return float(se.std() / se.mean())


@pytest.mark.parametrize("noise", [0.0004, 0.004, 0.04])
@pytest.mark.parametrize("share", [1 / 32, 1 / 8, 1 / 2])
def test_the_error_of_a_standard_error_is_that_of_simulated_units(
    share: float, noise: float
) -> None:
    sizes = replace(SIZES, of_units=noise)
    found = simulated_se_error(sizes, share)
    assert sizes.se_error(np.array([share]), ICC)[0] == pytest.approx(found, rel=0.1)
    # Estimates below zero would leave it far less sure.
    slope = 0.5 * (sizes.size - 1.0) / (1.0 + (sizes.size - 1.0) * ICC)
    if noise > 0.01 and share < 0.1:
        assert slope * sizes.icc_error(np.array([share]), ICC)[0] > 1.5 * found


def test_the_best_share_has_the_least_error_of_simulated_units() -> None:
    def loss(share: float) -> float:
        gain = SIZES.rmse_gain(np.array([share]), ICC)[0]
        return simulated_se_error(SIZES, share) + float(gain)

    best = SIZES.best_share(ICC)
    assert loss(best) <= min(map(loss, SHARES[::10])) * 1.01
    for wrong in (best / 4.0, 1.0 - best):
        assert loss(wrong) > 1.05 * loss(best)


@given(
    units=st.floats(2, 1e4), size=st.floats(1, 1e3), cell=st.floats(1, 1e6),
    of_units=st.floats(1e-9, 1e3), of_sums=st.floats(1e-6, 1e6),
)  # fmt: skip
def test_no_share_is_better_than_the_best_one(
    units: float, size: float, cell: float, of_units: float, of_sums: float
) -> None:
    sizes = UnitNoise(units, size, cell, of_units, of_sums)
    shares = np.append(SHARES[::10], sizes.best_share())
    loss = sizes.rmse_gain(shares) + sizes.se_error(shares)
    assert 1 / 65 < shares[-1] <= 0.5
    assert loss[-1] <= 1.03 * loss.min() + 1e-9  # two digits of the share


def test_more_noise_of_units_asks_for_a_larger_share_until_it_hides_them() -> None:
    noise = [0.0004, 0.004, 0.04, 40.0]
    best = [replace(SIZES, of_units=each).best_share() for each in noise]
    assert best[0] < best[1] < best[2]
    assert best[3] < 0.02


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_sizes_are_above_zero(wrong: float) -> None:
    with pytest.raises(InputError, match="expected five sizes above zero"):
        UnitNoise(units=wrong, size=20, cell=300, of_units=0.004, of_sums=60.0)
