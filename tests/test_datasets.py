"""The surveys of ``ss.datasets`` are what they say, and the same for the same seed."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.errors import InputError
from tests.test_docstrings import problems_of, run_examples

MADE = {name: getattr(ss.datasets, name) for name in ("example", "clustered", "several_outcomes")}


@pytest.mark.parametrize("name", [*MADE, "Dataset"])
def test_docstrings_are_complete_and_their_examples_run(name: str) -> None:
    target = getattr(ss.datasets, name)
    assert list(problems_of(target)) == []
    assert run_examples(target, name) == ""


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_frame_columns_and_survey_agree(make: Callable[..., "ss.datasets.Dataset"]) -> None:
    data = make(n=400, seed=5)
    design, hidden = data.survey.design, data.survey.confidential
    assert len(data.frame) == design.n == 400
    assert list(data.columns) == list(data.frame)
    assert data.name in MADE
    assert all(word in repr(data) for word in (data.name, data.description, *data.columns))
    np.testing.assert_array_equal(hidden.sampling_weight, data.frame["weight"])
    for position, outcome in enumerate(design.outcomes):
        column = data.frame[outcome.name]
        values = hidden.outcome[:, position]
        shown = outcome.labels(values) if outcome.levels else values
        assert list(shown) == list(column)
    said = {name for name, words in data.columns.items() if "confidential" in words}
    assert said == {*design.outcome_names, "weight"}
    # Weights expand to the population, within what a sample of 400 leaves.
    assert data.frame["weight"].sum() == pytest.approx(design.population_size, rel=0.15)
    with pytest.raises(FrozenInstanceError):
        data.name = "mine"


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_seed_makes_one_survey(make: Callable[..., "ss.datasets.Dataset"]) -> None:
    one, same, other = make(n=200, seed=1), make(n=200, seed=1), make(n=200, seed=2)
    pd.testing.assert_frame_equal(one.frame, same.frame)
    assert not one.frame.equals(other.frame)


def test_clusters_are_whole_and_nested() -> None:
    frame = ss.datasets.clustered(n=400).frame
    assert set(frame.groupby("school").size()) == {20}
    assert frame.groupby("school")["region"].nunique().max() == 1
    assert set(frame.groupby("region")["school"].nunique()) == {4}


@pytest.mark.parametrize("n", [0, 100, 250, 1010])
def test_schools_come_whole(n: int) -> None:
    with pytest.raises(InputError, match="multiple of 100"):
        ss.datasets.clustered(n=n)


def test_several_outcomes_have_something_to_find() -> None:
    frame = ss.datasets.several_outcomes(n=2000).frame
    zero = frame["income"] == 0
    assert 0.05 < np.average(zero, weights=frame["weight"]) < 0.25
    # Records of large incomes were likelier to be drawn, so that they weigh less.
    rich = frame["income"] > frame["income"].median()
    assert frame["weight"][rich].mean() < 0.8 * frame["weight"][~rich].mean()
    yes = (frame["insured"] == "yes").groupby(rich).mean()
    assert yes[True] > yes[False] + 0.1
