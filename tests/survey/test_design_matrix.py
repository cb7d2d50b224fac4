"""The model matrix against indicator columns written out by hand and dense least squares."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.survey.design_matrix import (
    INTERACTION_SCALE,
    DesignMatrix,
    build_design_matrix,
    distinct_rows,
    records_per_coefficient,
)
from surveysynth.survey.formula import MOST_COLUMNS
from surveysynth.survey.survey import least_squares_residuals


def sample(n: int = 800, seed: int = 5) -> pd.DataFrame:
    """Public columns of a sample in which every field x gender cell has many records."""
    rng = np.random.default_rng(seed)
    field = rng.integers(1, 5, n)
    return pd.DataFrame({
        "field": field,
        "gender": rng.choice(["M", "F"], n),
        "division": np.where(field < 3, "life", "physical"),
        "age": rng.integers(20, 60, n),
        "family size": rng.integers(1, 5, n),
        "income": rng.normal(size=n),
    })  # fmt: skip


def build(frame: pd.DataFrame, formula: str | None, **changes: Any) -> DesignMatrix:
    settings: dict[str, Any] = {
        "by": ["field", "gender"],
        "strata": "field",
        "outcome_names": ["salary"],
        "weight_name": "weight",
    }
    return build_design_matrix(frame, formula, **{**settings, **changes})


def dense(matrix: DesignMatrix) -> np.ndarray[Any, Any]:
    return matrix.x_cells[matrix.cell]


def message(frame: pd.DataFrame, formula: str | None, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        build(frame, formula, **changes)
    return str(caught.value)


def test_main_effects_by_hand() -> None:
    frame = sample()
    matrix = build(frame, "field + gender + age")
    expected = np.column_stack(
        [np.ones(len(frame))]
        + [frame["field"] == level for level in (2, 3, 4)]
        + [frame["gender"] == "M", frame["age"]]
    ).astype(float)
    np.testing.assert_array_equal(dense(matrix), expected)
    assert matrix.columns == (
        "Intercept", "field[T.2]", "field[T.3]", "field[T.4]", "gender[T.M]", "age",
    )  # fmt: skip
    assert matrix.n == len(frame)
    assert matrix.n_columns == 6


def test_interaction_by_hand() -> None:
    """Main effects by hand; the ridge on the interaction is that of a deviation for each cell."""
    frame = sample()
    matrix = build(frame, "field * gender")
    male = (frame["gender"] == "M").to_numpy()
    field = [(frame["field"] == level).to_numpy() for level in (2, 3, 4)]
    expected = np.column_stack([np.ones(len(frame)), *field, male])
    np.testing.assert_array_equal(dense(matrix)[:, ~matrix.ridged], expected.astype(float))
    assert matrix.x_cells.shape == (8, 8)
    assert matrix.columns[5:] == ("field:gender[1]", "field:gender[2]", "field:gender[3]")
    np.testing.assert_array_equal(matrix.ridged, [False] * 5 + [True] * 3)
    own = matrix.x_cells[:, 5:]
    centred = [np.eye(size) - 1.0 / size for size in (4, 2)]
    order = np.lexsort((expected[:, 4], expected[:, 1:4] @ [1, 2, 3]))
    rows = dense(matrix)[order][:, 5:][np.flatnonzero(np.diff(matrix.cell[order], prepend=-1))]
    np.testing.assert_allclose(rows @ rows.T, np.kron(*centred), atol=1e-11)
    np.testing.assert_allclose(own.T @ own, np.eye(3), atol=1e-11)


def cells_of(frame: pd.DataFrame, names: list[str]) -> FloatArray:
    """Indicators (n, C) of the combinations of some columns that occur."""
    return pd.get_dummies(frame[names].astype(str).agg("/".join, axis=1)).to_numpy(float)


def ridge_fit(matrix: DesignMatrix, z: FloatArray) -> FloatArray:
    """Fitted values with the ridge, main effects free."""
    x = dense(matrix)
    ridge = np.diag(np.where(matrix.ridged, INTERACTION_SCALE**-2, 0.0))
    return np.asarray(x @ np.linalg.solve(x.T @ x + ridge, x.T @ z))


def test_the_ridge_is_a_random_deviation_of_every_cell() -> None:
    """Three interactions with empty cells against generalized least squares: deviations of all
    cells are part of the covariance, I + scale^2 J J', and main effects are free."""
    rng = np.random.default_rng(4)
    n = 260
    frame = pd.DataFrame({"a": rng.choice(list("pqrst"), n), "b": rng.choice(list("xyz"), n),
                          "c": rng.choice(list("uv"), n)})  # fmt: skip
    frame = frame[~((frame.a == "q") & (frame.b != "x")) & ~((frame.a == "r") & (frame.c == "u"))]
    frame = frame.reset_index(drop=True)
    matrix = build(frame, None, by=["a", "b", "c"], strata=None)
    assert matrix.formula == "a + b + c + a:b + a:c + b:c"
    z = rng.normal(size=len(frame))
    pairs = [["a", "b"], ["a", "c"], ["b", "c"]]
    deviations = np.hstack([cells_of(frame, pair) for pair in pairs])
    covariance = np.eye(len(frame)) + INTERACTION_SCALE**2 * deviations @ deviations.T
    mains = np.hstack([np.ones((len(frame), 1)), *(cells_of(frame, [n])[:, 1:] for n in "abc")])
    inverse = np.linalg.inv(covariance)
    beta = np.linalg.solve(mains.T @ inverse @ mains, mains.T @ inverse @ z)
    residual = z - mains @ beta
    expected = mains @ beta + (covariance - np.eye(len(frame))) @ inverse @ residual
    np.testing.assert_allclose(ridge_fit(matrix, z), expected, atol=1e-9)
    # Treatment coding with the same ridge is another model.
    treatment = mains[:, 1:5, None] * mains[:, None, 5:7]
    x = np.hstack([mains, treatment.reshape(len(frame), -1)])
    wrong = np.diag(np.r_[np.zeros(mains.shape[1]), np.full(8, INTERACTION_SCALE**-2)])
    fit = x @ np.linalg.solve(x.T @ x + wrong, x.T @ z)
    assert np.abs(fit - expected).max() > 0.05


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_neither_the_order_of_levels_nor_of_records_changes_a_shrunken_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame, z = sample(150, seed), rng.normal(size=150)
    names = dict(zip([1, 2, 3, 4], rng.permutation([1, 2, 3, 4]), strict=True))
    order = rng.permutation(150)
    other = frame.assign(field=frame["field"].map(names)).iloc[order].reset_index(drop=True)
    one, two = build(frame, None), build(other, None)
    np.testing.assert_allclose(ridge_fit(two, z[order]), ridge_fit(one, z)[order], atol=1e-9)
    first, second = (records_per_coefficient(each)[each.cell] for each in (one, two))
    np.testing.assert_allclose(second, first[order], rtol=1e-9)


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        (None, 3),
        ("field * gender", 3),
        ("field * gender * age", 3),
        ("field * gender * C(age > 40)", 3 + 3 + 1 + 3),
            # An interaction without a main effect holds that main effect, too.
        ("field * gender + gender:C(age > 40)", 3),
        ("field:gender", 0),
        ("field + gender", 0),
    ],
)
def test_interactions_of_categories_are_shrunken(formula: str | None, columns: int) -> None:
    matrix = build(sample(), formula)
    ridged = np.array(matrix.columns)[matrix.ridged]
    assert matrix.ridged.shape == (matrix.n_columns,)
    assert len(ridged) == columns
    assert all(":" in name and not name.endswith("age") for name in ridged)


def test_codes_of_by_variables_are_categories_even_when_numbers() -> None:
    frame = sample()
    expected = ("Intercept", "field[T.2]", "field[T.3]", "field[T.4]", "gender[T.M]")
    assert build(frame, "field + gender").columns == expected
    text = frame.astype({"field": str})
    np.testing.assert_array_equal(
        dense(build(frame, "field + gender")), dense(build(text, "field + gender"))
    )


@pytest.mark.parametrize("size", [0, 1, 2, 19, 20])
def test_a_small_cell_costs_no_interaction(size: int) -> None:
    counts = {("a", "M"): 50, ("a", "F"): 50, ("b", "M"): 50, ("c", "M"): 5, ("c", "F"): 5,
              ("b", "F"): size}  # fmt: skip
    rows = [cell for cell, count in counts.items() for _ in range(count)]
    matrix = build(pd.DataFrame(rows, columns=["field", "gender"]), None)
    assert matrix.formula == "field + gender + field:gender"
    assert matrix.left_out == ()
    # An empty cell has no column.
    assert matrix.shrunken == (2 if size else 1)


def test_default_has_all_interactions_of_two_and_none_of_three() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({name: rng.choice(["x", "y"], 400) for name in ("a", "b", "c")})
    matrix = build(frame, None, by=["a", "b", "c"], strata=None)
    assert matrix.formula == "a + b + c + a:b + a:c + b:c"


def test_interactions_of_hardly_any_records_are_left_out_the_largest_first() -> None:
    rng = np.random.default_rng(1)
    n = 400
    frame = pd.DataFrame({
        "state": rng.integers(0, 40, n), "age": rng.integers(0, 3, n), "sex": rng.integers(0, 2, n)
    }).astype(str)  # fmt: skip
    matrix = build(frame, None, by=["state", "age", "sex"], strata=None)
    assert matrix.formula == "state + age + sex + state:sex + age:sex"
    assert matrix.left_out == ("state:age",)
    assert matrix.shrunken <= MOST_COLUMNS * n


def test_default_leaves_out_what_another_variable_determines() -> None:
    frame = sample()
    matrix = build(frame, None, by=["division", "gender"], strata="field")
    assert matrix.formula == "field + gender + field:gender"
    finer_by = build(frame, None, by=["field", "gender"], strata="division")
    assert finer_by.formula == "field + gender + field:gender"


def test_default_leaves_out_a_class_that_strata_determine_and_spans_the_same() -> None:
    """Strata that are classes of size but for one, which holds the medium and the large."""
    records = [20, 10, 10, 9, 8, 7]
    size = np.repeat(["small", "medium", "large", "small", "medium", "large"], records)
    stratum = np.repeat(["1", "2", "3", "4", "5", "5"], records)
    frame = pd.DataFrame({"size": size, "stratum": stratum})
    matrix = build(frame, None, by=["size"], strata="stratum")
    own = np.equal.outer(stratum, np.unique(stratum)) * 1.0
    whole = np.column_stack([own, np.equal.outer(size, np.unique(size)) * 1.0])
    mains = dense(matrix)[:, ~matrix.ridged]
    rank = np.linalg.matrix_rank(whole)
    assert mains.shape[1] == rank < whole.shape[1]
    assert np.linalg.matrix_rank(np.column_stack([mains, whole])) == rank
    # The release writes the formula, from which the tables are rebuilt.
    again = build(frame.iloc[::-1], matrix.formula, by=["size"], strata="stratum")
    assert set(again.columns) == set(matrix.columns)
    assert "collinear" in message(frame, "stratum + size", by=["size"], strata="stratum")


def many_strata(n: int) -> pd.DataFrame:
    """Records in 60 strata by sex: 120 cells, as many records in each."""
    place = np.arange(n)
    return pd.DataFrame({
        "stratum": (place % 60).astype(str), "sex": np.where(place // 60 % 2, "f", "m"),
    })  # fmt: skip


def test_many_strata_with_few_records_in_a_cell_are_no_predictors_by_default() -> None:
    few, enough = many_strata(30 * 120 - 1), many_strata(30 * 120)
    given: dict[str, Any] = {"by": ["sex"], "strata": "stratum"}
    assert build(few, None, **given).formula == "sex"
    assert build(enough, None, **given).formula == "stratum + sex + stratum:sex"
    # A by column keeps its effects, and so do strata that a formula names.
    tabulated = build(few, None, by=["stratum", "sex"], strata="stratum")
    assert tabulated.formula == "stratum + sex + stratum:sex"
    assert "stratum" in build(few, "stratum + sex", **given).formula
    # Strata in 100 cells are few.
    few["stratum"] = (np.arange(len(few)) % 50).astype(str)
    assert build(few.head(400), None, **given).formula == "stratum + sex + stratum:sex"


def test_default_with_one_level_or_nothing() -> None:
    frame = sample().assign(field="1")
    assert build(frame, None).formula == "gender"
    assert build(frame, None, by=[], strata=None).columns == ("Intercept",)
    assert dense(build(frame, None, by=[], strata=None)).shape == (len(frame), 1)


NAMES = ["sex (self-reported)", "C", "I", "np", "Q", "contr", "log", "class", "lambda", "None"]
NAMES += ["True", "größe", "2015", "a:b", "a+b", "x.y", "it's", 'a"b', "Intercept", "[x]", "{x}"]
NAMES += [" x ", "__class__", "a\\b", "%in%", "-1"]


@pytest.mark.parametrize("name", NAMES)
def test_default_takes_any_column_name(name: str) -> None:
    frame = sample().rename(columns={"gender": name})
    matrix = build(frame, None, by=["field", name])
    assert matrix.x_cells.shape == (8, 8)
    np.testing.assert_array_equal(dense(matrix), dense(build(sample(), None)))


@pytest.mark.parametrize("name", ["0", "1", ".", "~", "|", "", "a`b"])
def test_default_refuses_names_that_cannot_be_quoted(name: str) -> None:
    frame = sample().rename(columns={"gender": name})
    assert "rename it" in message(frame, None, by=["field", name])


@pytest.mark.parametrize(
    ("formula", "missing"),
    [
        ("field", ["'gender'"]),
        ("gender + age", ["'field'"]),
        ("1", ["'field'", "'gender'"]),
        ("division + gender", ["'field'"]),
        ("gender + income", ["'field'"]),
    ],
)
def test_strata_and_by_must_be_in_the_column_space(formula: str, missing: list[str]) -> None:
    text = message(sample(), formula)
    for name in missing:
        assert name in text
    assert "add '+ " in text
    if "'field'" in missing:
        assert "strata" in text


def test_containment_is_decided_by_rank_not_by_names() -> None:
    frame = sample()
    # Cell means coding names no main effect, yet spans them; so does a recoding of the strata.
    assert build(frame, "0 + field:gender").n_columns == 8
    recoded = frame.assign(stratum=frame["field"].map({1: "d", 2: "c", 3: "b", 4: "a"}))
    assert build(recoded, "stratum + gender").n_columns == 5
    # A numeric predictor that separates the strata gives cells of X, but not their effects.
    assert "'field'" in message(frame.assign(number=frame["field"] * 1.5), "number + gender")


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("field + gender + division", "division"),
        ("field + gender + age + I(2 * age)", "2 * age"),
        ("field + gender + zero", "zero"),
        ("field + gender + age + copy", "copy"),
    ],
)
def test_collinear_predictors_are_named(formula: str, named: str) -> None:
    frame = sample().assign(zero=0, copy=lambda f: 3 - f["age"])
    text = message(frame, formula)
    assert "collinear" in text
    assert named in text


def test_an_empty_cell_of_an_interaction_has_no_column() -> None:
    frame = sample()
    frame = frame[~((frame["field"] == 2) & (frame["gender"] == "F"))].reset_index(drop=True)
    matrix = build(frame, "field * gender")
    assert matrix.shrunken == 2
    assert np.linalg.matrix_rank(matrix.x_cells) == matrix.n_columns == 7
    # Of an interaction that is not shrunken it is named.
    text = message(frame, "field * gender * age")
    assert "a column of 'field:gender:age'" in text
    assert "[T." not in text  # a level may be a value that slipped in


def test_nearly_collinear_is_accepted() -> None:
    frame = sample().assign(year=lambda f: 2000 + f["age"])
    matrix = build(frame, "field + gender + year + I(year ** 2)")
    assert matrix.n_columns == 7


def test_more_columns_than_records() -> None:
    frame = sample(60)
    text = message(frame, "field * gender + C(age) + C(income)")
    assert "columns" in text
    assert "60 records" in text
    text = message(sample(), "field * gender * C(age) * C(income)")
    assert "columns" in text


@pytest.mark.parametrize("name", ["salary", "weight"])
@pytest.mark.parametrize("formula", ["field + gender + {}", "field * gender + log({})"])
def test_confidential_columns_are_refused(name: str, formula: str) -> None:
    text = message(sample().assign(salary=1.0, weight=2.0), formula.format(name))
    assert "confidential" in text
    assert repr(name) in text


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        ("field + gendr", "Did you mean 'gender'"),
        ("field + gender + zzz", "'zzz'"),
        ("", "empty"),
        ("~", "empty"),
        ("field +", "cannot be parsed"),
        (")field(", "cannot be parsed"),
        ("field + gender + 'a'", "cannot be parsed"),
        ("y ~ field", "several parts"),
        ("field | gender", "several parts"),
        ("field + gender + log(age - 20)", "not finite"),
        ("field + gender + log(field)", "cannot be evaluated"),
        ("field + gender + bs(age, df='a')", "cannot be evaluated"),
        ("field + gender + lgo(age)", "Did you mean 'log'"),
        ("0", "no columns"),
    ],
)
def test_formulas_that_cannot_be_used(formula: str, part: str) -> None:
    assert part in message(sample(), formula)


@pytest.mark.parametrize(
    "factor",
    [
        "__import__('os').getcwd()",
        "np.sqrt(age)",
        "age.__class__",
        "{[x for x in (1, 2)]}",
        "{(lambda: 1)()}",
        "eval('1')",
        "lag(age)",
        "I(age if True else 1)",
        "contr.__class__",
    ],
)
def test_formulas_run_no_python_of_the_caller(factor: str) -> None:
    marker = 1  # a local name that the formula must not see
    assert marker == 1
    message(sample(), f"field + gender + {factor}")
    message(sample(), "field + gender + marker")


@pytest.mark.parametrize(
    "formula",
    [
        "field + gender + log(`family size`) + exp(age / 100)",
        "field + gender + poly(age, 2)",
        "field + gender + bs(age, df=4)",
        "field + gender + center(age) + scale(income)",
        "field + gender + C(age, contr.treatment(base=30))",
        "~ field + gender + I(age > 30)",
    ],
)
def test_formulas_that_work(formula: str) -> None:
    frame = sample()
    assert np.isfinite(dense(build(frame, formula))).all()


def test_functions_of_whole_columns_see_every_record() -> None:
    frame = sample()
    matrix = build(frame, "field + gender + scale(age)")
    expected = (frame["age"] - frame["age"].mean()) / frame["age"].std(ddof=1)
    np.testing.assert_allclose(dense(matrix)[:, -1], expected, rtol=1e-12)


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 40), st.integers(1, 4)),
        elements=st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e300, 5e-324]),
    )
)
def test_distinct_rows_equal_unique(rows: np.ndarray[Any, Any]) -> None:
    cells, cell = distinct_rows(rows)
    np.testing.assert_array_equal(cells[cell], rows)
    assert cells.shape == np.unique(rows, axis=0).shape
    first = [int(np.flatnonzero(cell == g)[0]) for g in range(cells.shape[0])]
    assert first == sorted(first)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_residuals_equal_dense_least_squares(seed: int) -> None:
    frame = sample(200, seed)
    matrix = build(frame, "field * gender + age")
    values = np.random.default_rng(seed).normal(size=(200, 2))
    x = dense(matrix)
    expected = values - x @ np.linalg.lstsq(x, values, rcond=None)[0]
    np.testing.assert_allclose(least_squares_residuals(matrix, values), expected, atol=1e-10)


TOKENS = ["field", "gender", "age", "`family size`", "salary", "C(", "bs(", "log(", "I(", "eval("]
TOKENS += [*"+-*:/^|~(){}[],012.\\=`#\né∞", "**", "-1", "%in%", "'a'", "lambda", "__class__"]


@given(st.lists(st.sampled_from(TOKENS), max_size=8).map(" ".join) | st.text(max_size=20))
@settings(deadline=None, max_examples=150)
def test_any_text_gives_a_matrix_or_an_input_error(text: str) -> None:
    message = ""
    try:
        matrix = build(sample(100), "field + gender + " + text)
    except InputError as error:
        message = str(error)
    else:
        assert matrix.n == 100
        assert np.isfinite(matrix.x_cells).all()
        assert np.linalg.matrix_rank(matrix.x_cells) == matrix.n_columns
    assert "formulaic" not in message


def test_a_million_records_in_few_cells_stay_few_rows() -> None:
    frame = sample(1_000_000).drop(columns="income").astype({"field": str})
    matrix = build(frame, "field * gender + age")
    assert matrix.x_cells.shape == (4 * 2 * 40, 9)


def test_powers_of_whole_numbers_do_not_overflow() -> None:
    frame = sample()
    matrix = build(frame, "field + gender + I(age ** 20)")
    expected = [float(age) ** 20 for age in frame["age"]]  # beyond 2**63
    np.testing.assert_allclose(dense(matrix)[:, -1], expected, rtol=1e-14)
    assert "C(age)[T.25]" in build(frame, "field + gender + C(age)").columns


def test_rank_does_not_depend_on_units() -> None:
    frame = sample().assign(tiny=lambda f: f["age"] * 1e-14, huge=lambda f: f["income"] * 1e14)
    assert build(frame, "field + gender + tiny + huge").n_columns == 7
    assert "'I(2 * tiny)'" in message(frame, "field + gender + huge + tiny + I(2 * tiny)")


def test_zeros_of_either_sign_are_one_row() -> None:
    frame = sample().assign(sign=lambda f: 2 * (f["age"] % 2) - 1, flag=0)
    frame.loc[0, "flag"] = 1
    matrix = build(frame, "field + gender + I(sign * flag)")
    assert matrix.x_cells.shape[0] == np.unique(dense(matrix) + 0.0, axis=0).shape[0] == 9


def test_effects_of_units_stand_for_strata_and_for_nothing_else() -> None:
    frame = sample()
    free = {"by": ["gender"], "strata": "field"}
    assert "strata 'field'" in message(frame, "gender", **free)
    assert build(frame, "gender", **free, unit_effects=True).columns == ("Intercept", "gender[T.M]")
    assert "the by variable 'gender'" in message(frame, "age", **free, unit_effects=True)
    both = {"by": ["field", "gender"], "strata": "field", "unit_effects": True}
    assert "'field'" in message(frame, "gender", **both)  # tables have rows of it
