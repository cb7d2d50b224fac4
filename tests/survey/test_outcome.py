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


SIDES = Outcome(
    "tax", "semicontinuous", Transform("yeo_johnson", scale=100.0, power=0.3), spikes=(0.0, 900.0),
    split=0.0, lower=-500.0, upper=1_000.0,
)  # fmt: skip


def test_sides_of_a_split_are_categories_before_the_spikes() -> None:
    values = np.array([250.0, -40.0, 0.0, 900.0, -1e-9])
    category = SIDES.category(values)
    np.testing.assert_array_equal(category, [0, 1, 2, 3, 1])
    assert SIDES.category_names == ("above 0", "below 0", "0", "900")
    np.testing.assert_array_equal(SIDES.regular(values), category < 2)
    # Yeo and Johnson's formula of the distance, alike on both sides.
    z = np.where(category == 0, ((1 + 2.5) ** 0.3 - 1) / 0.3, ((1 + 0.4) ** 0.3 - 1) / 0.3)
    z[4] = 1e-11
    np.testing.assert_allclose(SIDES.forward(values[:1]), z[:1])
    np.testing.assert_allclose(SIDES.forward(values[1:2], 1), z[1:2])
    np.testing.assert_allclose(SIDES.values(category, z), values)
    np.testing.assert_array_equal(
        SIDES.outside(np.array([-501.0, -500.0, 0.0, 900.0, 1_001.0])), [1, 0, 0, 0, 1]
    )
    about = Outcome("y", "semicontinuous", Transform("identity"), split=10.0)
    np.testing.assert_array_equal(about.category(np.array([10.0, 9.0, 11.0])), [0, 1, 0])
    assert about.category_names == ("10 or above", "below 10")
    np.testing.assert_array_equal(about.forward(np.array([12.5])), [2.5])
    np.testing.assert_array_equal(about.forward(np.array([6.0]), 1), [4.0])


@pytest.mark.parametrize("split", [0.0, 1e6, -3.7])
@pytest.mark.parametrize("spiked", [False, True])
def test_rounding_leads_to_no_other_side(split: float, spiked: bool) -> None:
    outcome = Outcome("y", "semicontinuous", Transform("asinh", scale=1e3),
                      spikes=(split,) if spiked else (), split=split)  # fmt: skip
    category = np.repeat([0, 1], 5)
    z = np.tile([0.0, -1e-17, 1e-300, 1e-14, 2.0], 2)
    np.testing.assert_array_equal(outcome.category(outcome.values(category, z)), category)


def test_transforms_of_both_sides_in_words() -> None:
    assert SIDES.model_words == (
        "tax, as yeo_johnson(tax/100, power 0.3) above 0 and yeo_johnson(-tax/100, power 0.3) "
        "below 0"
    )
    assert SIDES.public_words.endswith("spikes at 0, 900, split at 0, from -500 to 1,000")
    assert SIDES.as_dict()["split"] == 0.0
    log = Outcome("y", "semicontinuous", split=10.0)
    assert log.formulas == "log(y - 10) 10 or above and log(10 - y) below 10"
    scaled = Outcome("y", "semicontinuous", Transform("asinh", scale=5.0), split=-2.0)
    assert [scaled.formula(side) for side in (0, 1)] == ["asinh((y + 2)/5)", "asinh((-2 - y)/5)"]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"spikes": (0.0,)}, "semicontinuous"),
        ({"kind": "semicontinuous"}, "needs spikes"),
        ({"kind": "semicontinuous", "spikes": (0.0, 0.0)}, "list each spike once"),
        ({"kind": "semicontinuous", "spikes": (float("inf"),)}, "finite"),
        ({"kind": "categorical"}, "levels"),
        ({"kind": "categorical", "levels": ("a",)}, "levels"),
        ({"kind": "categorical", "levels": ("a", "a")}, "list each level once"),
        ({"kind": "binary", "levels": ("a", "b", "c")}, "levels"),
        ({"levels": ("a", "b")}, "levels"),
        ({"kind": "binary", "lower": 0.0}, "amounts"),
        ({"lower": 2.0, "upper": 1.0}, "lower below upper"),
        ({"split": 0.0}, "semicontinuous"),
        ({"kind": "categorical", "levels": ("a", "b"), "split": 0.0}, "semicontinuous"),
        ({"kind": "semicontinuous", "split": float("nan")}, "finite"),
        ({"kind": "semicontinuous", "split": 0.0, "lower": 1.0}, "between the bounds"),
        ({"kind": "semicontinuous", "split": 0.0, "upper": -1.0}, "between the bounds"),
        ({"kind": "semicontinuous", "split": 0.0, "upper": 0.0}, "between the bounds"),
    ],
)
def test_parts_that_disagree(given: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=r"outcomes\.y\..*" + word):
        Outcome("y", **given)  # type: ignore[arg-type]
