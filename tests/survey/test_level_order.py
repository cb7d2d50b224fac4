"""The order of categories in models, which compare with the middle one of three or more levels.
Truth: the order written out by hand; values that go to categories and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform


def outcome(levels: int, *, missing: bool = False) -> Outcome:
    names = tuple("abcdefghijklmnop"[:levels])
    return Outcome("x", "binary" if levels == 2 else "categorical", levels=names, missing=missing)


@pytest.mark.parametrize(
    ("levels", "order"),
    [(2, [0, 1]), (3, [1, 0, 2]), (4, [2, 0, 1, 3]), (8, [4, 0, 1, 2, 3, 5, 6, 7])],
)
def test_the_middle_level_comes_first(levels: int, order: list[int]) -> None:
    """Missing answers are the last, and categories of files and tables keep their order."""
    declared, positions = outcome(levels), np.arange(levels, dtype=np.float64)
    assert declared.model_order.tolist() == order
    assert outcome(levels, missing=True).model_order.tolist() == [*order, levels]
    assert declared.modelled(positions[order]).tolist() == list(range(levels))
    assert declared.category(positions).tolist() == list(range(levels))


def test_spikes_keep_their_order() -> None:
    benefit = Outcome("x", "semicontinuous", Transform("asinh", 100.0), spikes=(0.0, 50.0, 70.0))
    assert benefit.model_order.tolist() == [0, 1, 2, 3]


@given(st.integers(2, 16), st.booleans(), st.data())
def test_values_come_back_from_their_categories(levels, missing, data):
    declared = outcome(levels, missing=missing)
    drawn = data.draw(st.lists(st.integers(0, levels - 1 + missing), min_size=1, max_size=30))
    values = np.array([np.nan if each == levels else float(each) for each in drawn])
    place = declared.modelled(values)
    assert place.dtype == np.int64
    assert (place[np.isnan(values)] == declared.missing_category).all()
    category = declared.model_order[place]
    assert np.array_equal(category, declared.category(values))
    np.testing.assert_array_equal(declared.values(category, np.zeros(values.size)), values)
