"""Quantiles, ranks and places. Truth: ``scipy.stats`` and ``np.searchsorted``, to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surveysynth._support.numeric import (
    Places,
    beta_quantile,
    blocks,
    chi_square_quantile,
    chi_square_tail,
    normal_density,
    t_quantile,
)
from surveysynth.sampling.convergence import _ranks

RNG = np.random.default_rng(7)
SHARES = (0.005, 0.025, 0.5, 0.84, 0.975, 0.9999)
DF = np.concatenate([
    RNG.uniform(0.01, 5.0, 500), RNG.uniform(1.0, 1e4, 500), np.arange(1.0, 200.0),
    [np.inf, np.nan, 0.0, -1.0, 1e10],
])  # fmt: skip


@pytest.mark.parametrize("p", SHARES)
def test_quantiles_are_those_of_scipy(p: float) -> None:
    np.testing.assert_array_equal(t_quantile(p, DF), stats.t.ppf(p, DF))
    k = np.arange(1, 60)
    np.testing.assert_array_equal(chi_square_quantile(p, k), stats.chi2.ppf(p, k))
    a, b = RNG.uniform(0.0, 5000.0, (2, 2000))
    a[:5], b[3:8] = [0.0, np.nan, 1e-12, 0.5, 1e6], 0.5
    np.testing.assert_array_equal(beta_quantile(p, a, b), stats.beta.ppf(p, a, b))


def test_tails_and_densities_are_those_of_scipy() -> None:
    x, z = RNG.uniform(0.0, 90.0, (40, 50)), RNG.normal(size=2000)
    k = np.arange(1, 41)[:, None]
    np.testing.assert_array_equal(chi_square_tail(x, k), stats.chi2.sf(x, k))
    np.testing.assert_array_equal(normal_density(z), stats.norm.pdf(z))


@pytest.mark.parametrize("n", [1, 2, 37, 1000])
def test_ranks_are_those_of_scipy(n: int) -> None:
    values = RNG.normal(size=(n, 6))
    values[:, 1] = RNG.integers(0, 3, n)
    values[:, 2] = 1.0
    values[0, 3] = np.inf
    values[-1, 4] = np.nan
    values[:, 5] = np.where(RNG.random(n) < 0.5, 0.0, -0.0)
    np.testing.assert_array_equal(_ranks(values), stats.rankdata(values, axis=0))
    if n > 2:  # ranks without averaged ties are others
        assert (stats.rankdata(values, axis=0, method="ordinal") != _ranks(values)).any()


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
    st.lists(st.floats(-1e9, 1e9), max_size=20),
    st.floats(-12.0, 0.0),
)
def test_places_are_those_of_a_binary_search(
    edges: list[float], values: list[float], log_unit: float
) -> None:
    """Also at edges, next to them, and where most of them are close together."""
    known = np.sort(np.array(edges))
    known = np.concatenate([known, known[-1] + 10.0**log_unit * np.arange(5)])
    near = np.concatenate([np.nextafter(known, -np.inf), known, np.nextafter(known, np.inf)])
    sought = np.concatenate([near, values])
    np.testing.assert_array_equal(
        Places(known).of(sought), np.searchsorted(known, sought, "right")
    )


@pytest.mark.parametrize("n", [0, 1, 2**15, 2**15 + 1, 100_000])
def test_blocks_are_all_records_in_order(n: int) -> None:
    records = np.arange(n)
    np.testing.assert_array_equal(
        np.concatenate([records[:0], *(records[block] for block in blocks(n))]), records
    )
