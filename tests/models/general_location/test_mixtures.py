"""Quantiles of mixtures of normals, against SciPy's root of the distribution function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from surveysynth._support.types import FloatArray
from surveysynth.models.general_location.mixtures import EXACT, FARTHEST, Mixture


def mixtures(rows: int, parts: int, apart: float, seed: int) -> Mixture:
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(parts, 0.5), rows)
    mean = apart * rng.standard_normal((rows, parts))
    return Mixture(share, mean, np.exp(rng.standard_normal((rows, parts))))


def tail(law: Mixture, row: int, v: float, above: bool) -> float:
    t = (v - law.mean[row]) / law.sd[row]
    return float(law.share[row] @ (norm.sf(t) if above else norm.cdf(t)))


def quantile(law: Mixture, row: int, g: float) -> float:
    """By bisection of the log of the smaller tail."""
    goal = norm.logcdf(-abs(g))
    ends = law.mean[row] + law.sd[row] * g

    def off(v: float) -> float:
        return float(np.log(max(tail(law, row, v, g > 0), 1e-300)) - goal)

    if off(ends.min()) * off(ends.max()) >= 0:  # the components are alike
        return float(ends.min())
    return float(brentq(off, ends.min(), ends.max(), xtol=1e-13, rtol=1e-14))


@given(
    parts=st.integers(1, 9),
    apart=st.sampled_from([0.0, 0.3, 3.0]),
    g=st.floats(-FARTHEST, FARTHEST),
    seed=st.integers(0, 10**6),
)
def test_quantiles_are_roots_of_the_distribution_function(
    parts: int, apart: float, g: float, seed: int
) -> None:
    law = mixtures(3, parts, apart, seed)
    found = law.at_score(np.full(3, g))
    expected = [quantile(law, row, g) for row in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(law.score(found), g, atol=2.0 * EXACT)


@pytest.mark.parametrize("apart", [3.0, 100.0])
def test_quantiles_of_components_far_apart_rise_and_have_their_scores(apart: float) -> None:
    """Between them the distribution function is flat, and any point will do."""
    nodes = np.linspace(-9.0, 9.0, 73)
    law = mixtures(50, 4, apart, 5)
    wide = Mixture(law.share[:, None], law.mean[:, None], law.sd[:, None])
    found: FloatArray = wide.at_score(np.broadcast_to(nodes, (50, 73)))
    assert (np.diff(found, axis=1) >= 0.0).all()
    np.testing.assert_allclose(wide.score(found), np.broadcast_to(
        np.clip(nodes, -FARTHEST, FARTHEST), found.shape), atol=1e-6)  # fmt: skip
    one_by_one = [law.at_score(np.full(50, g)) for g in nodes]
    np.testing.assert_allclose(found, np.stack(one_by_one, axis=1), rtol=1e-6, atol=1e-6)
