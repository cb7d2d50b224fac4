"""Transforms against their definitions at values known by hand, and round trips."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.survey.transforms import Transform, TransformKind

VALUES = st.floats(min_value=-1e9, max_value=1e9)


@pytest.mark.parametrize(
    ("transform", "value", "expected"),
    [
        (Transform("log"), math.e**2, 2.0),
        (Transform("log", shift=10.0), -9.0, 0.0),
        (Transform("identity"), -3.5, -3.5),
        (Transform("identity", scale=1000.0), 2500.0, 2.5),
        (Transform("asinh"), 0.0, 0.0),
        # asinh(x) = log(x + sqrt(x^2 + 1)) at x = 3/4 is log 2
        (Transform("asinh", scale=1000.0), 750.0, math.log(2.0)),
        (Transform("asinh", scale=1000.0), -750.0, -math.log(2.0)),
        # ((1 + 3)^(1/2) - 1)/(1/2) = 2; below zero the power is 2 - 1/2
        (Transform("yeo_johnson", scale=1e4), 3e4, 2.0),
        (Transform("yeo_johnson"), -3.0, -14.0 / 3.0),
        (Transform("yeo_johnson", power=0.0), math.e - 1.0, 1.0),
        (Transform("yeo_johnson", power=2.0), 1.0 - math.e, -1.0),
        (Transform("yeo_johnson", power=1.0), -7.0, -7.0),
    ],
)
def test_forward(transform: Transform, value: float, expected: float) -> None:
    assert transform.forward(np.array([value]))[0] == pytest.approx(expected, rel=1e-15, abs=1e-15)


@given(VALUES, st.floats(min_value=1e-3, max_value=1e6))
def test_inverse_undoes_forward(value: float, constant: float) -> None:
    outcome = np.array([value])
    for transform in (
        Transform("identity", scale=constant),
        Transform("asinh", scale=constant),
        *(Transform("yeo_johnson", scale=constant, power=power) for power in (0.3, 1.0, 1.7)),
    ):
        back = transform.inverse(transform.forward(outcome))
        np.testing.assert_allclose(back, outcome, rtol=1e-12, atol=1e-12 * constant)
    shifted = Transform("log", shift=constant - min(value, 0.0))
    back = shifted.inverse(shifted.forward(outcome))
    np.testing.assert_allclose(back, outcome, rtol=1e-12, atol=1e-10 * (constant + abs(value)))


@given(st.lists(VALUES, min_size=2, max_size=20, unique=True))
def test_order_is_kept(values: list[float]) -> None:
    ordered = np.sort(np.array(values))
    for transform in (
        Transform("asinh", scale=50.0),
        Transform("log", shift=2e9),
        Transform("yeo_johnson", scale=50.0, power=0.4),
    ):
        assert (np.diff(transform.forward(ordered)) >= 0).all()


def test_violations_are_counted() -> None:
    outcome = np.array([-2.0, -1.0, 0.0, 1.0, np.nan])
    assert Transform("log").violations(outcome) == 4
    assert Transform("log", shift=1.5).violations(outcome) == 2
    assert Transform("asinh").violations(outcome) == 0
    assert Transform("identity").violations(outcome) == 0


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (Transform("log"), "log(y)"),
        (Transform("log", shift=50.0), "log(y + 50)"),
        (Transform("identity"), "y"),
        (Transform("identity", scale=1000.0), "y/1000"),
        (Transform("asinh", scale=10000.0), "asinh(y/10000)"),
        (Transform("yeo_johnson", scale=1e4, power=0.4), "yeo_johnson(y/10000, power 0.4)"),
    ],
)
def test_describe(transform: Transform, expected: str) -> None:
    assert transform.describe("y") == expected


@pytest.mark.parametrize(
    ("kind", "scale", "shift", "word"),
    [
        ("log", 2.0, 0.0, "scale"),
        ("asinh", 1.0, 1.0, "shift"),
        ("identity", 1.0, 1.0, "shift"),
        ("asinh", 0.0, 0.0, "scale"),
        ("asinh", -1.0, 0.0, "scale"),
        ("asinh", math.inf, 0.0, "scale"),
        ("log", 1.0, math.nan, "shift"),
        ("sqrt", 1.0, 0.0, "'sqrt'"),
    ],
)
def test_constants_that_do_not_fit(
    kind: TransformKind, scale: float, shift: float, word: str
) -> None:
    with pytest.raises(InputError, match=word):
        Transform(kind, scale, shift)
