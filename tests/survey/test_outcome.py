"""Outcomes: categories and values against what they are by definition, and parts that disagree."""

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform


def test_values_come_back_from_categories() -> None:
    outcome = Outcome(
        "income", "semicontinuous", Transform("yeo_johnson", scale=100.0), spikes=(0.0, 150.0)
    )
    values = np.array([0.0, 3.0, 150.0, 149.0])
    category = outcome.category(values)
    np.testing.assert_array_equal(category, [1, 0, 2, 0])
    with np.errstate(all="raise"):
        back = outcome.values(category, outcome.transform.forward(values))
    np.testing.assert_allclose(back, values)
    assert outcome.categories == 3


def test_what_is_not_looked_at_may_be_anything() -> None:
    outcome = Outcome("benefit", "semicontinuous", spikes=(0.0,))
    values = outcome.values(np.array([1, 0]), np.array([np.nan, 0.0]))
    np.testing.assert_array_equal(values, [0.0, 1.0])
    binary = Outcome("works", "binary")
    np.testing.assert_array_equal(binary.values(np.array([1, 0]), np.full(2, np.nan)), [1.0, 0.0])


def test_levels_have_labels() -> None:
    outcome = Outcome("education", "categorical", levels=("none", "school", "university"))
    assert outcome.labels(np.array([2.0, 0.0])).tolist() == ["university", "none"]
    assert outcome.categories == 3
    assert Outcome("works", "binary").levels == ("0", "1")


def test_spikes_lie_outside_no_bound() -> None:
    outcome = Outcome("pay", "semicontinuous", spikes=(0.0, 90.0), lower=1.0, upper=80.0)
    outside = outcome.outside(np.array([0.0, 90.0, 0.5, 80.0, 81.0]))
    np.testing.assert_array_equal(outside, [False, False, True, False, True])


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"spikes": (0.0,)}, "semicontinuous"),
        ({"kind": "semicontinuous"}, "needs them"),
        ({"kind": "semicontinuous", "spikes": (0.0, 0.0)}, "spike may occur once"),
        ({"kind": "semicontinuous", "spikes": (float("inf"),)}, "finite"),
        ({"kind": "categorical"}, "levels"),
        ({"kind": "categorical", "levels": ("a",)}, "levels"),
        ({"kind": "categorical", "levels": ("a", "a")}, "level may occur once"),
        ({"kind": "binary", "levels": ("a", "b", "c")}, "levels"),
        ({"levels": ("a", "b")}, "levels"),
        ({"kind": "binary", "lower": 0.0}, "amounts"),
        ({"lower": 2.0, "upper": 1.0}, "below upper"),
    ],
)
def test_parts_that_disagree(given: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=r"outcomes\.y\..*" + word):
        Outcome("y", **given)  # type: ignore[arg-type]
