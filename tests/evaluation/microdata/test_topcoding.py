"""Topcoding against NumPy's inverted-CDF quantiles and records repeated by their weight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.evaluation.microdata.identification import topcode


@given(
    st.lists(st.integers(-5, 30), min_size=1, max_size=40), st.sampled_from([0.1, 0.5, 0.9, 0.95])
)
def test_the_threshold_is_the_quantile(values, quantile):
    y = np.array(values, dtype=float)
    found = topcode(y, quantile)
    assert found.threshold == np.quantile(y, quantile, method="inverted_cdf")
    np.testing.assert_array_equal(found.outcome, np.where(found.coded, found.threshold, y))
    np.testing.assert_array_equal(found.coded, y > found.threshold)
    assert found.coded.mean() <= 1 - quantile + 1e-12
    assert list(found.to_frame()) == ["outcome", "coded"]


def test_weights_repeat_records():
    rng = np.random.default_rng(1)
    y, repeats = rng.lognormal(0, 1, 50), rng.integers(1, 6, 50)
    weighted = topcode(y, 0.8, repeats.astype(float))
    assert weighted.threshold == topcode(np.repeat(y, repeats), 0.8).threshold
    assert weighted.threshold != topcode(y, 0.8).threshold


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.1, float("nan")])
def test_quantiles_out_of_range(quantile):
    with pytest.raises(InputError, match="between 0 and 1"):
        topcode(np.ones(3), quantile)
