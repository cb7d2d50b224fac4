"""Risk weights against literal transcriptions of their formulas, and their properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from surveysynth.mechanisms.pseudo_posterior import risk as weights

RISKS = arrays(np.float64, st.integers(1, 30), elements=st.floats(0.0, 1e6) | st.just(np.inf))


@given(RISKS, st.floats(1e-3, 1e3), st.floats(1.0, 10.0))
def test_capped_weights(risks, cap, more):
    alpha = weights.capped(risks, cap)
    assert ((alpha >= 0) & (alpha <= 1)).all()
    assert (alpha[np.isinf(risks)] == 0).all()
    assert (alpha[risks <= cap] == 1).all()
    finite = np.isfinite(risks)
    assert (alpha[finite] * risks[finite] <= cap * (1 + 1e-12)).all()
    assert (weights.capped(risks, cap * more) >= alpha).all()


@given(RISKS, st.floats(1e-3, 10.0), st.floats(0.0, 1.0))
def test_linear_weights_are_the_published_map(risks, scale, shift):
    alpha = weights.from_risks(weights.relative(risks), scale, shift)
    finite = risks[np.isfinite(risks)]
    expected = np.zeros(risks.size)
    for i, risk in enumerate(risks):
        if np.isfinite(risk):
            spread = finite.max() - finite.min()
            relative = (risk - finite.min()) / spread if spread > 0 else 0.0
            expected[i] = min(1.0, max(0.0, scale * (1.0 - relative) + shift))
    np.testing.assert_allclose(alpha, expected, rtol=1e-12, atol=1e-15)


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(0.0, 1.0) | st.just(np.inf)),
    st.floats(1e-3, 10.0),
    st.floats(-1.0, 1.0),
    st.floats(1.0, 10.0),
)
def test_weights_of_any_risks(risks, scale, shift, more):
    alpha = weights.from_risks(risks, scale, shift)
    expected = [
        0.0 if np.isinf(risk) else min(1.0, max(0.0, scale * (1.0 - risk) + shift))
        for risk in risks
    ]
    np.testing.assert_allclose(alpha, expected, rtol=1e-12, atol=1e-15)
    assert (weights.from_risks(risks, scale * more, shift) >= alpha).all()
    assert (weights.relative(np.full(3, 2.0)) == 0.0).all()


def test_reweighting_divides_by_the_record_and_leaves_zeros():
    alpha = np.array([0.0, 0.2, 0.5, 1.0])
    bounds = np.array([0.0, 0.5, 2.0, 0.1])
    result = weights.reweighted(alpha, bounds, target=2.0, factor=0.9)
    np.testing.assert_allclose(result, [0.0, 0.9 * 0.2 * 2 / 0.5, 0.9 * 0.5 * 1.0, 1.0])


@pytest.mark.parametrize("cap", [0.5, 2.0])
def test_repeated_reweighting_ends_at_the_fixed_point(cap):
    """With risks that stay as they are, eq. 2.1 repeated gives min(1, c / f) at once."""
    risks = np.array([0.1, 1.0, 4.0, 9.0])
    alpha = np.array([1.0, 0.8, 0.3, 0.01])
    for _ in range(3):
        alpha = weights.reweighted(alpha, alpha * risks, target=cap, factor=1.0)
    np.testing.assert_allclose(alpha, weights.capped(risks, cap))
