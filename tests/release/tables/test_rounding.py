"""Truth: numbers rounded by hand, and the bound of half a unit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.release.tables.layout import (
    ABSENT,
    Rounding,
    Warranted,
    rounding_of_column,
    show_ratio,
    to_digits,
    to_percent,
)


@pytest.mark.parametrize(
    ("rounding", "value", "shown"),
    [
        (Rounding(1.0, 0), 1234567.4, "1,234,567"),
        (Rounding(100.0, 0), 1234567.4, "1,234,600"),
        (Rounding(5.0, 0), 12.4, "10"),
        (Rounding(10.0, 0), -3.0, "0"),
        (to_digits(2), 1234.5678, "1,234.57"),
        (to_digits(0), -1234.5, "−1,234"),
        (to_percent(1), 0.12345, "12.3"),
        (to_digits(0), math.nan, ABSENT),
    ],
)
def test_rounded_by_hand(rounding, value, shown) -> None:
    assert rounding.show(value) == shown


def test_a_standard_error_that_is_not_zero_never_reads_as_zero() -> None:
    assert Rounding(100.0, 0).show(20.0, size=5000.0) == "<100"
    assert to_digits(1).show(0.01, size=3.0) == "<0.1"
    assert to_digits(0).show(0.0, size=3.0) == "0"
    # Floating-point noise, as in a count that is scaled to the population size.
    assert Rounding(1.0, 0).show(1e-9, size=1e5) == "0"


@given(st.floats(-1e12, 1e12), st.sampled_from([1, 5, 10, 250, 1000]))
def test_counts_are_multiples_within_half_a_base(value: float, base: int) -> None:
    shown = float(Rounding(float(base), 0).show(value).replace(",", "").replace("−", "-"))
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
    ("se", "estimates", "errors"),
    [
        # The median error is 2,100: thousands, and errors in 500; counts whose error is 480.
        ([1234.5, 2100.0, 9870.0], ["74,000", "1,000", "2,000"], ["1,000", "2,000", "10,000"]),
        ([480.0, 100.0, 1700.0], ["73,500", "1,000", "2,100"], ["500", "100", "1,700"]),
        ([0.04, 0.02, 0.3], ["73,512.38", "1,000.49", "2,060.00"], ["0.040", "0.020", "0.300"]),
        ([9.0, 3.0, 1.2], ["73,512", "1,000", "2,060"], ["9.0", "3.0", "1.0"]),
        ([10.0, 1.0, 20.0], ["73,510", "1,000", "2,060"], ["10", "<5", "20"]),
    ],
)
def test_a_column_has_the_unit_of_its_median_error(
    se: list[float], estimates: list[str], errors: list[str]
) -> None:
    estimate = np.array([73512.384, 1000.49, 2060.0])
    column = rounding_of_column(Warranted(), np.array(se), estimate)
    assert [column.show(each) for each in estimate] == estimates
    assert [column.show(e, size=x) for e, x in zip(se, estimate, strict=True)] == errors
    fixed = to_digits(1)
    assert rounding_of_column(fixed, np.array(se), estimate) is fixed


@pytest.mark.parametrize(
    ("estimate", "se", "shown"),
    [(100_000.0, 1e-10, "100,000"), (0.62, math.nan, "0.62000"), (512.0, math.nan, "512"),
     (math.nan, math.nan, ABSENT)],
)  # fmt: skip
def test_a_column_without_errors_has_whole_units_or_five_digits(
    estimate: float, se: float, shown: str
) -> None:
    column = rounding_of_column(Warranted(), np.array([se]), np.array([estimate]))
    assert column.show(estimate) == shown


@given(st.lists(st.floats(1.0, 1e6), min_size=3, max_size=9), st.floats(0.01, 1e5))
def test_details_add_to_their_total_within_rounding(parts: list[float], error: float) -> None:
    estimate = np.array([sum(parts), *parts])
    column = rounding_of_column(Warranted(), np.full(estimate.size, error), estimate)
    shown = [column.rounded(each) or 0.0 for each in estimate]
    assert column.base <= error * (1 + 1e-9)
    assert abs(shown[0] - sum(shown[1:])) <= column.base / 2 * estimate.size * (1 + 1e-6)
