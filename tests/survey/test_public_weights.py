"""Public weights, from a column or from stratum sizes: their effects and their messages.

Truth: weights and fractions by pandas, least squares on a column of log weights."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.survey.survey import Survey, require_variation
from surveysynth.survey.transforms import Transform
from tests.surveys import good

SIZES = {"01": 2_000, "02": 500.0, "03": 61, "04": 60}


def made(frame: pd.DataFrame | None = None, **changes: Any) -> Survey:
    given: dict[str, Any] = {
        "outcome": "salary", "by": ["field", "gender"], "strata": "field", "weights": "public",
        "weight": "weight", "statistics": ("count",),
    }  # fmt: skip
    return Survey.from_frame(good() if frame is None else frame, **{**given, **changes})


def by_sizes(frame: pd.DataFrame | None = None, **changes: Any) -> Survey:
    return made(frame, **{"weight": None, "population_size": SIZES, **changes})


def said(**changes: Any) -> str:
    def required() -> None:
        survey = made(**changes)
        require_variation(survey.design, survey.confidential)

    with pytest.raises(InputError) as caught:
        required()
    return str(caught.value)


def test_a_public_weight_is_in_the_public_half_alone() -> None:
    frame = good()
    survey = made(frame)
    assert survey.confidential.sampling_weight is None
    assert survey.design.weight_name is None
    assert survey.design.public_weight_name == "weight"
    assert survey.design.public_weight is not None
    np.testing.assert_array_equal(survey.design.public_weight, frame["weight"])
    np.testing.assert_array_equal(survey.sampling_weight, frame["weight"])
    np.testing.assert_array_equal(survey.design.frame["weight"], frame["weight"])
    assert "weight    weight, public" in repr(survey)
    order = np.argsort(frame["salary"].to_numpy())
    np.testing.assert_array_equal(survey.in_order(order).sampling_weight, frame["weight"][order])
    frame.loc[0, "weight"] = 1.0  # the survey has a copy
    assert survey.design.public_weight[0] != 1.0
    with pytest.raises(ValueError, match="read-only"):
        survey.design.public_weight[0] = 1.0


def test_a_confidential_weight_is_where_it_was() -> None:
    survey = made(weights="confidential")
    assert survey.design.public_weight is None
    assert survey.sampling_weight is survey.confidential.sampling_weight
    assert "weight" not in survey.design.frame


def test_stratum_sizes_make_weights_and_fractions() -> None:
    frame = good()
    design = by_sizes(frame).design
    size = frame["field"].map(SIZES)
    count = frame.groupby("field")["salary"].transform("size")
    np.testing.assert_allclose(design.public_weight, size / count, rtol=1e-15)
    assert design.fpc is not None
    np.testing.assert_allclose(design.fpc[design.strata], count / size, rtol=1e-15)
    assert (design.fpc_name, design.population_size) == ("sampling_fraction", None)
    # The name "weight" is free, since no column of that name has a part.
    assert design.public_weight_name == "weight"
    taken = by_sizes(frame, public_columns=["weight"], statistics=()).design
    assert taken.public_weight_name == "sampling_weight"


def test_sizes_count_the_records_that_are_left() -> None:
    frame = good()
    frame.loc[[0, 4], "salary"] = np.nan  # two of field 01
    design = by_sizes(frame, missing="drop").design
    kept = frame.dropna(subset="salary")
    expected = kept["field"].map(SIZES) / kept.groupby("field")["salary"].transform("size")
    np.testing.assert_allclose(design.public_weight, expected, rtol=1e-15)
    assert design.public_weight is not None
    assert design.public_weight.sum() == pytest.approx(sum(SIZES.values()))


def test_the_log_weight_enters_x_where_x_does_not_tell_it() -> None:
    frame = good()
    varying = made(frame).design
    typical = float(f"{np.exp(np.log(frame['weight']).mean()):.2g}")
    formula = f"field + gender + field:gender + log(weight / {typical:g})"
    assert varying.matrix.formula == formula
    x = varying.matrix.x_cells[varying.matrix.cell]
    column = varying.matrix.columns.index(f"log(weight / {typical:g})")
    np.testing.assert_allclose(x[:, column], np.log(frame["weight"] / typical), atol=1e-14)
    # The same whatever the unit of the weights: of a sample of millions, or of shares.
    for unit in (1e-9, 1e7):
        own = made(frame.assign(weight=unit * frame["weight"])).design.matrix
        np.testing.assert_allclose(own.x_cells[own.cell], x, atol=0.06)
    # Not where it is a function of X: a constant, of a stratum, of a cell, or up to rounding.
    cell = frame["field"].astype(int) + 10.0 * (frame["gender"] == "M")
    jittered = cell * (1.0 + 1e-13 * np.arange(len(cell)))
    for weight in (1.0, frame["field"].astype(float), cell, jittered):
        matrix = made(frame.assign(weight=weight)).design.matrix
        assert matrix.formula == "field + gender + field:gender"
    # Nor where the caller's own formula has it, in whatever form.
    for formula in ("field + gender + weight", "field * gender + log(weight) + log(weight)**2"):
        assert made(frame, predictors=formula).design.matrix.formula == formula
    assert by_sizes(frame).design.matrix.formula == "field + gender + field:gender"
    # A formula without what determines it does not.
    own = made(frame.assign(weight=cell), predictors="field + gender").design.matrix
    assert own.formula == "field + gender"
    quoted = made(frame.rename(columns={"weight": "my weight"}), weight="my weight").design
    assert quoted.matrix.formula.endswith(f"+ log(`my weight` / {typical:g})")


def test_a_confidential_weight_that_x_tells_is_refused_with_the_remedy() -> None:
    frame = good()
    frame["weight"] = frame["field"].astype(float)
    assert "weights = 'public'" in said(frame=frame, weights="confidential")
    assert made(frame).design.public_weight_name == "weight"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "open"}, "expected 'confidential' or 'public', got 'open'"),
        ({"weight": None}, "needs the column of the weights as weight, or population_size"),
        ({"population_size": SIZES}, "remove one of the two"),
        ({"weights": "confidential", "population_size": SIZES}, "set weights = 'public'"),
        ({"weight": None, "population_size": SIZES, "strata": None}, "the column of the strata"),
        ({"weight": None, "population_size": SIZES, "fpc": "fraction"}, "remove fpc"),
        ({"weight": None, "population_size": SIZES, "psu": "school"}, "primary sampling units"),
        ({"weight": None, "population_size": {"01": "many"}}, "expected numbers, got another"),
        ({"weight": None, "population_size": {**SIZES, "02": np.inf}}, "finite numbers above zero"),
        ({"weight": "salary"}, "'salary' is an outcome, which is confidential"),
        ({"weight": "wage"}, "there is no column 'wage'"),
        ({"frame": good().assign(weight=0.0)}, "240 records with a value of zero"),
        ({"frame": good().assign(weight="x")}, "with text that is not a number"),
        ({"frame": good().assign(weight=np.nan)}, "blank or missing cells"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)  # fmt: skip
def test_mistakes_are_named(changes: dict[str, Any], words: str) -> None:
    assert words in said(**changes)


@given(
    st.dictionaries(
        st.sampled_from(["01", "02", "03", "04", "05", "1", ""]) | st.text(max_size=3),
        st.one_of(st.integers(-5, 10**12), st.floats(), st.floats(59, 61)),
        max_size=6,
    )
)
@settings(max_examples=80, deadline=None)
def test_any_sizes_make_weights_or_say_which_stratum_is_wrong(sizes: dict[str, float]) -> None:
    frame = good(n=40)
    count = frame["field"].value_counts()
    fits = set(sizes) == set(count.index) and all(
        np.isfinite(size) and size >= count[name] for name, size in sizes.items()
    )
    try:
        design = by_sizes(frame, population_size=sizes, lonely_psu="remove").design
    except InputError as error:
        assert not fits
        text = str(error)
        if all(np.isfinite(size) and size > 0 for size in sizes.values()):
            undeclared = sum(n for level, n in count.items() if level not in sizes)
            assert (f"{undeclared} records have a level that is not listed" in text) == bool(
                undeclared
            )
            for level in count.index:
                if level in sizes and sizes[level] < count[level]:
                    assert re.search(f"below the number of sample records in .*{level}", text)
            if set(sizes) - set(count.index):
                assert "no record lies in" in text
    else:
        assert fits
        by_field = pd.Series(design.public_weight).groupby(frame["field"]).sum()
        np.testing.assert_allclose(by_field, [sizes[name] for name in by_field.index], rtol=1e-12)


def test_sizes_may_be_named_by_numbers() -> None:
    frame = good()
    frame["field"] = frame["field"].astype(int)
    design = by_sizes(frame, population_size={1: 100, 2: 200, 3: 300, 4: np.int64(400)}).design
    assert design.stratum_sizes == {"1": 100.0, "2": 200.0, "3": 300.0, "4": 400.0}
    assert design.public_weight is not None
    assert design.public_weight.sum() == pytest.approx(1000)


def test_transforms_and_outcomes_are_checked_as_ever() -> None:
    """The other checks do not go by whether there is a confidential weight."""
    frame = good().assign(second=good()["salary"] * 2)
    words = "one column of 'salary', 'second' is (nearly) a function"
    assert words in said(frame=frame, outcome=["salary", "second"])
    assert made(transforms=Transform("asinh")).design.transforms[0].kind == "asinh"
