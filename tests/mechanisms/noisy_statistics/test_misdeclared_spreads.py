"""What wrong spreads do, against clipped records: the grid of Clipping; a chi-square identity."""

import numpy as np
import pytest
from scipy import stats

from surveysynth.mechanisms.noisy_statistics.expected_se import (
    clipped_normal,
    clipping_bias,
    outcome_moments,
    sample_error,
    share_outside,
)
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping

RADIUS = 3.2552  # of two columns, by default


@pytest.mark.parametrize("q", [1, 2, 3])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_squared_length_of_clipped_records(q: int, factor: float) -> None:
    """E min(|u|^2, R^2) = q P(chi2_{q+2} < R^2) + R^2 P(chi2_q > R^2), of which each has a q-th."""
    radius = factor * RADIUS
    expected = stats.chi2.cdf(radius**2, q + 2) + radius**2 / q * stats.chi2.sf(radius**2, q)
    found = clipped_normal(radius, q)
    assert found.mean == pytest.approx(0.0, abs=1e-12)
    assert found.variance == pytest.approx(expected, rel=1e-3)
    assert found.variance < 1.0


@pytest.mark.parametrize("factor", [0.5, 0.75])
def test_bias_is_that_of_records_clipped_as_a_release_does(factor: float) -> None:
    """Log-normal outcomes whose spread is declared too small, through the mechanism's own grid."""
    rng = np.random.default_rng(1)
    true, offset = np.array([0.5, 0.6]), 1.0
    declared = Clipping(np.array([11.0, 4.0]), factor * true)
    u = rng.standard_normal((400_000, 2))
    z = declared.centre + true * (u + np.array([offset, 0.0]))
    clipped = declared.on_grid(z) * declared.step * declared.spread + declared.centre
    at_centre = declared.on_grid(declared.centre + true * u) * declared.step * factor
    moments = clipped_normal(factor * declared.radius, 2, offset)
    assert clipped[:, 0].mean() == pytest.approx(11.0 + 0.5 * moments.mean, abs=2e-3)
    assert clipped[:, 0].std() == pytest.approx(0.5 * moments.variance**0.5, rel=5e-3)
    outside = (np.sqrt((u * u).sum(axis=1)) > factor * declared.radius).mean()
    assert outside == pytest.approx(share_outside(factor * declared.radius, 2), abs=2e-3)
    # A model of equal spread in all cells: mean from the cell, variance from those at the centre.
    shape = outcome_moments(Clipping(declared.centre, true), np.exp, 0)
    bias = np.exp(clipped[:, 0].mean() + 0.125 * at_centre[:, 0].var()) - np.exp(11.5 + 0.125)
    stated = clipping_bias(shape, factor * declared.radius, 2, offset)
    assert bias < 0
    # Slope and curvature are of a cell at the centre, exp(0.5) below this one.
    assert stated * np.exp(0.5) == pytest.approx(bias, rel=0.12)
    assert abs(clipping_bias(shape, declared.radius * 2, 2, offset)) < 0.02 * abs(stated)


def test_sample_error_is_that_of_a_weighted_mean() -> None:
    rng = np.random.default_rng(2)
    clipping = Clipping(np.array([11.0, 4.0]), np.array([0.5, 0.6]))
    u = rng.standard_normal((4000, 100, 2))
    y, w = np.moveaxis(np.exp(clipping.centre + clipping.spread * u), -1, 0)
    means = (w * y).sum(axis=1) / w.sum(axis=1)
    shape = outcome_moments(clipping, np.exp, 0)
    assert sample_error(shape, 100) == pytest.approx(means.std(), rel=0.04)
