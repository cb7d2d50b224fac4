"""Truth: numbers rounded by hand, and the bound of half a unit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.release.tables.rounding import (
    ABSENT,
    Warranted,
    rounding_of_line,
    show_ratio,
    to_digits,
    to_multiples,
    to_percent,
)


@pytest.mark.parametrize(
    ("rounding", "value", "shown"),
    [
        (to_multiples(1), 1234567.4, "1,234,567"),
        (to_multiples(100), 1234567.4, "1,234,600"),
        (to_multiples(5), 12.4, "10"),
        (to_multiples(10), -3.0, "0"),
        (to_digits(2), 1234.5678, "1,234.57"),
        (to_digits(0), -1234.5, "−1,234"),
        (to_percent(1), 0.12345, "12.3"),
        (to_digits(0), math.nan, ABSENT),
    ],
)
def test_rounded_by_hand(rounding, value, shown) -> None:
    assert rounding.show(value) == shown


def test_a_standard_error_that_is_not_zero_never_reads_as_zero() -> None:
    assert to_multiples(100).show(20.0, size=5000.0) == "<100"
    assert to_digits(1).show(0.01, size=3.0) == "<0.1"
    assert to_digits(0).show(0.0, size=3.0) == "0"
    # Floating-point noise, as in a count that is scaled to the population size.
    assert to_multiples(1).show(1e-9, size=1e5) == "0"


@given(st.floats(-1e12, 1e12), st.sampled_from([1, 5, 10, 250, 1000]))
def test_counts_are_multiples_within_half_a_base(value: float, base: int) -> None:
    shown = float(to_multiples(base).show(value).replace(",", "").replace("−", "-"))
    assert shown % base == 0
    assert abs(shown - value) <= base / 2 * (1 + 1e-9) + 1e-3
    assert math.copysign(1, shown) == 1 or shown != 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [(3.14159, "3.14"), (-0.55, "−0.55"), (-0.001, "0.00"), (31.4159, "31.4"), (-1234.5, "−1,234"),
     (float("nan"), "–"), (float("inf"), "–")],
)  # fmt: skip
def test_ratios_have_about_three_digits(value: float, shown: str) -> None:
    assert show_ratio(value) == shown


@pytest.mark.parametrize(
    ("estimate", "se", "shown"),
    [
        (73512.384, 1234.5, ("73,500", "1,200")),
        (1.06935, 0.078514, ("1.069", "0.079")),
        (-12.3, 25.1, ("−12", "25")),
        (0.000123, 0.0000456, ("0.000123", "0.000046")),
        (100_000.0, 1e-10, ("100,000", "0")),  # known
        (0.62, math.nan, ("0.62000", ABSENT)),
        (math.nan, math.nan, (ABSENT, ABSENT)),
        (512.0, math.nan, ("512", ABSENT)),
        (9961.0, 996.0, ("9,960", "1,000")),
    ],
)
def test_two_digits_of_the_standard_error_are_warranted(
    estimate: float, se: float, shown: tuple[str, str]
) -> None:
    line = rounding_of_line(Warranted(), se, estimate)
    assert (line.show(estimate), line.show(se, size=estimate)) == shown
    fixed = to_digits(1)
    assert rounding_of_line(fixed, se, estimate) is fixed


@pytest.mark.parametrize(
    ("se", "estimate", "shown"),
    [(1234.5, 73512.384, "73,512"), (12.0, 340.6, "341"), (9.9, 340.62, "340.6"),
     (0.36, 29.0512, "29.05"), (0.0, 3.0, "3")],
)  # fmt: skip
def test_means_have_whole_units_and_the_decimals_that_errors_warrant(
    se: float, estimate: float, shown: str
) -> None:
    assert rounding_of_line(Warranted(least=0), se, estimate).show(estimate) == shown
