"""Levels and interactions that a model pools, and the rows of X that result."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import RefusedError
from surveysynth.survey.design_matrix import build_design_matrix, records_per_coefficient
from surveysynth.survey.pooling import pool

LEVELS = list("abcdefg")


def frame_of(sizes, seed=1):
    """Levels with so many records, and a second column of two levels in turn."""
    rng = np.random.default_rng(seed)
    stratum = np.repeat(LEVELS[: len(sizes)], sizes)
    n = stratum.size
    return pd.DataFrame({
        "stratum": stratum, "sex": np.array(["f", "m"])[np.arange(n) % 2],
        "age": rng.normal(45.0, 12.0, n),
    })  # fmt: skip


def pooled(frame, formula, least, columns=("stratum", "sex")):
    """Return the matrix before and after pooling, and the pooled parts."""
    plain = build_design_matrix(frame, formula, by=columns, strata=None)
    return plain, *pool(frame, plain, columns, least)


def test_records_per_coefficient_are_one_over_the_leverage() -> None:
    frame = frame_of([9, 30, 41])
    x = build_design_matrix(frame, "stratum + sex + age", by=["stratum"], strata=None)
    rows = x.x_cells[x.cell]
    leverage = np.diag(rows @ np.linalg.inv(rows.T @ rows) @ rows.T)
    np.testing.assert_allclose(records_per_coefficient(x)[x.cell], 1.0 / leverage)
    assert np.mean(leverage) == pytest.approx(x.n_columns / x.n)


def test_a_saturated_cell_rests_on_its_own_records() -> None:
    frame = frame_of([20, 30, 40])
    x = build_design_matrix(frame, "stratum", by=["stratum"], strata=None)
    np.testing.assert_allclose(records_per_coefficient(x), [20, 30, 40])
    assert pooled(frame, "stratum", 20, ("stratum",))[2] is None  # just enough is enough


def test_enough_records_leave_the_very_matrix() -> None:
    plain, made, pooling = pooled(frame_of([60, 70, 80]), "stratum * sex", 20)
    assert made is plain
    assert pooling is None


def test_a_small_level_has_the_mean_row_of_the_others() -> None:
    frame = frame_of([4, 60, 30])
    _plain, made, pooling = pooled(frame, "stratum + sex", 20)
    assert pooling.levels == {"stratum": {"a": 4}}
    assert pooling.interactions == ()
    assert made.columns == ("Intercept", "stratum[T.c]", "sex[T.m]")
    rows = made.x_cells[made.cell]
    sex = (frame["sex"] == "m").to_numpy(float)
    expected = np.where(frame["stratum"] == "a", 30 / 90, frame["stratum"] == "c")
    np.testing.assert_allclose(rows, np.column_stack([np.ones(94), expected, sex]), atol=1e-15)
    np.testing.assert_array_equal(pooling.record, frame["stratum"] == "a")
    # Its fit is the average of the others' fits, by hand.
    z = np.random.default_rng(2).normal(size=94)
    fit = rows @ np.linalg.lstsq(rows, z, rcond=None)[0]
    of = {
        key: fit[(frame["stratum"] == key[0]) & (frame["sex"] == key[1])][0]
        for key in product("abc", "fm")
    }
    for s in "fm":
        assert of["a", s] == pytest.approx((60 * of["b", s] + 30 * of["c", s]) / 90)


def test_levels_of_the_same_region_stand_in_for_each_other() -> None:
    frame = frame_of([5, 40, 60, 50])
    frame["region"] = frame["stratum"].map(dict(zip("abcd", "NNSS", strict=True)))
    _, made, pooling = pooled(frame, "stratum", 20, ("stratum", "region"))
    assert list(pooling.levels["stratum"]) == ["a"]
    rows = pd.DataFrame(made.x_cells[made.cell]).groupby(frame["stratum"]).first()
    np.testing.assert_array_equal(rows.loc["a"], rows.loc["b"])


def test_cells_stay_apart_where_their_rows_have_become_the_same() -> None:
    frame = frame_of([5, 6, 60, 50])
    plain, made, _ = pooled(frame, "stratum", 20, ("stratum",))
    np.testing.assert_array_equal(made.cell, plain.cell)
    np.testing.assert_array_equal(made.x_cells[0], made.x_cells[1])


def test_a_small_cell_loses_what_is_its_own_and_no_other_does() -> None:
    """By hand: the fit in the small cell is that of main effects over the other cells, and these
    have their means."""
    rng = np.random.default_rng(7)
    sizes = {("a", "f"): 60, ("a", "m"): 40, ("b", "f"): 30, ("b", "m"): 55, ("c", "f"): 70,
             ("c", "m"): 11}  # fmt: skip
    rows = [cell for cell, n in sizes.items() for _ in range(n)]
    frame = pd.DataFrame(rows, columns=["stratum", "sex"]).sample(frac=1.0, random_state=3)
    frame = frame.reset_index(drop=True)
    plain, made, pooling = pooled(frame, "stratum * sex", 20)
    assert (made.formula, pooling.interactions, pooling.levels) == ("stratum * sex", (), {})
    assert pooling.cells == {"stratum:sex": (1, 11)}
    assert "one cell (11 records) of stratum:sex, modeled by the terms within it" in pooling.words
    cell = (frame["stratum"] == "c") & (frame["sex"] == "m")
    np.testing.assert_array_equal(pooling.record, cell)
    assert made.n_columns == plain.n_columns - 1
    # Without its 11 records every cell has its mean, and theirs is what main effects then say.
    z = rng.normal(size=len(frame))
    small = ((frame["stratum"] == "c") & (frame["sex"] == "m")).to_numpy()
    row = made.x_cells[made.cell]
    beta = np.linalg.lstsq(row[~small], z[~small], rcond=None)[0]
    means = pd.Series(z[~small]).groupby(
        [frame.loc[~small, "stratum"].to_numpy(), frame.loc[~small, "sex"].to_numpy()]).mean()
    for cell, mean in means.items():
        own = (frame["stratum"] == cell[0]) & (frame["sex"] == cell[1])
        np.testing.assert_allclose(row[own] @ beta, mean, atol=1e-12)
    additive = build_design_matrix(frame, "stratum + sex", by=["stratum", "sex"], strata=None)
    plain_row = additive.x_cells[additive.cell]
    of_others = np.linalg.lstsq(plain_row[~small], z[~small], rcond=None)[0]
    np.testing.assert_allclose(row[small] @ beta, plain_row[small] @ of_others, atol=1e-12)
    assert records_per_coefficient(made).min() >= 20


def test_a_level_with_small_cells_alone_keeps_its_main_effect() -> None:
    frame = frame_of([60, 30, 80])  # 15 records in each cell of b
    _, made, pooling = pooled(frame, "stratum * sex", 20)
    assert (pooling.interactions, pooling.cells) == ((), {"stratum:sex": (2, 30)})
    z = np.random.default_rng(2).normal(size=len(frame))
    residual = z - fitted(made, z)
    for level in "abc":
        assert abs(residual[frame["stratum"] == level].sum()) < 1e-10


def test_an_interaction_without_its_main_effects_gives_way_to_them() -> None:
    frame = frame_of([60, 30, 80])
    _, made, pooling = pooled(frame, "stratum:sex", 20)
    assert (made.formula, pooling.interactions) == ("stratum + sex", ("stratum:sex",))
    assert pooling.cells == {}


def test_the_smallest_cells_of_all_interactions_give_way_first() -> None:
    """Cells of the third order are smaller than those of pairs, and larger ones stay."""
    frame = frame_of([200, 30, 200])
    frame["half"] = np.where(np.arange(len(frame)) // 2 % 2, "x", "y")
    plain, made, pooling = pooled(frame, "stratum * sex * half", 20, ("stratum", "sex", "half"))
    assert records_per_coefficient(plain).min() < 20 <= records_per_coefficient(made).min()
    assert (pooling.interactions, pooling.levels) == ((), {})
    assert pooling.cells["stratum:sex:half"] == (4, 30)
    assert all(n <= 30 for _, n in pooling.cells.values())


def test_an_interaction_with_a_number_gives_way_before_large_cells() -> None:
    frame = frame_of([400, 60, 400])
    frame["score"] = np.where(np.arange(len(frame)) // 2 % 2, -1.0, 1.0)
    _, made, pooling = pooled(frame, "stratum * sex * score", 22)
    assert pooling.interactions == ("stratum:sex:score",)
    assert pooling.cells == {"stratum:sex": (2, 60)}
    assert records_per_coefficient(made).min() >= 22


def test_a_small_cell_of_an_interaction_with_a_number_has_the_fit_of_the_terms_within() -> None:
    """By hand, over the larger cells; without the intercept it would be another."""
    sizes = {("a", "f"): 260, ("a", "m"): 140, ("b", "f"): 230, ("b", "m"): 155, ("c", "f"): 170,
             ("c", "m"): 8}  # fmt: skip
    frame = pd.DataFrame([cell for cell, n in sizes.items() for _ in range(n)])
    frame.columns = pd.Index(["stratum", "sex"])
    frame["score"] = np.random.default_rng(1).uniform(0.0, 2.0, len(frame))
    _, made, pooling = pooled(frame, "stratum * sex * score", 10)
    assert (pooling.interactions, pooling.cells) == ((), {"stratum:sex:score": (1, 8)})
    b, c, m = (frame["stratum"] == "b"), (frame["stratum"] == "c"), (frame["sex"] == "m")
    score, small = frame["score"], (c & m).to_numpy()
    ones = np.ones(len(frame))
    within = np.column_stack([ones, b, c, m, score, b * score, c * score, m * score]).astype(float)
    own = (b * m * score).to_numpy()
    column = made.x_cells[made.cell][:, made.columns.index("stratum[T.b]:sex[T.m]:score")]
    np.testing.assert_array_equal(column[~small], own[~small])
    fits = [
        each[small] @ np.linalg.lstsq(each[~small], own[~small], rcond=None)[0]
        for each in (within, within[:, 1:])
    ]
    np.testing.assert_allclose(column[small], fits[0], atol=1e-12)
    assert np.abs(column[small] - fits[1]).min() > 1e-4


def test_a_small_level_alone_does_not_cost_an_interaction() -> None:
    _, made, pooling = pooled(frame_of([6, 80, 90]), "stratum * sex", 20)
    assert pooling.interactions == ()
    assert "stratum:sex[1]" in made.columns


def test_a_row_of_two_small_levels_is_short_where_neither_is_alone() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({
        "stratum": rng.permutation(np.repeat(["a", "b", "c"], [21, 200, 179])),
        "sex": rng.permutation(np.repeat(["f", "m"], [30, 370])),
    })  # fmt: skip
    plain, made, pooling = pooled(frame, "stratum + sex", 20)
    assert records_per_coefficient(plain).min() < 20 <= records_per_coefficient(made).min()
    assert pooling.levels == {"stratum": {"a": 21}}  # the smaller of the two


@pytest.mark.parametrize(
    ("formula", "words"),
    [("stratum + outlier", "logarithm"), ("few", "no level of 'few'")],
)
def test_what_pooling_cannot_mend_is_refused_with_a_remedy(formula, words) -> None:
    frame = frame_of([100, 100])
    frame["outlier"] = np.where(np.arange(200) == 7, 1e4, frame["age"])
    frame["few"] = [f"{i // 5:02d}" for i in range(200)]
    with pytest.raises(RefusedError, match=words) as caught:
        pooled(frame, formula, 20, ("few",) if formula == "few" else ("stratum",))
    assert "allow = ['small_strata']" in str(caught.value)


def test_knots_and_means_of_a_numeric_predictor_are_those_of_all_records() -> None:
    frame = frame_of([4, 150, 150])
    plain, made, _ = pooled(frame, "stratum + scale(age)", 10, ("stratum",))
    before, after = (m.x_cells[m.cell][:, m.columns.index("scale(age)")] for m in (plain, made))
    np.testing.assert_allclose(after, before)


# --- the rule, whatever the survey --------------------------------------------------------------

SIZES = st.lists(st.integers(1, 60), min_size=2, max_size=5)


def outcome_of(frame, formula, least):
    """Return the pooled parts, or the refusal."""
    try:
        _, made, pooling = pooled(frame, formula, least)
    except RefusedError:
        return "refused", None
    assert records_per_coefficient(made).min() >= least * (1 - 1e-6)
    assert np.linalg.matrix_rank(made.x_cells[made.cell]) == made.n_columns
    return pooling, made


def fitted(made, z):
    """Fitted values of least squares."""
    rows = made.x_cells[made.cell]
    return rows @ np.linalg.lstsq(rows, z, rcond=None)[0]


@settings(max_examples=15, deadline=None)
@given(sizes=SIZES, formula=st.sampled_from(["stratum + sex", "stratum * sex"]),
       seed=st.integers(0, 10**6))  # fmt: skip
def test_neither_the_order_of_records_nor_names_of_levels_matter(sizes, formula, seed) -> None:
    frame = frame_of([n + 1 for n in sizes])
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    names = dict(zip(LEVELS, rng.permutation(LEVELS), strict=True))
    other = frame.iloc[order].reset_index(drop=True)
    other["stratum"] = other["stratum"].map(names)
    (one, made), (two, again) = (outcome_of(each, formula, 12) for each in (frame, other))
    if one is None or one == "refused":
        assert two == one
        return
    renamed = {names[level]: n for level, n in one.levels.get("stratum", {}).items()}
    assert two.levels.get("stratum", {}) == renamed
    assert (two.interactions, two.cells) == (one.interactions, one.cells)
    z = rng.normal(size=len(frame))
    np.testing.assert_allclose(fitted(again, z[order]), fitted(made, z)[order], atol=1e-8)


@settings(max_examples=15, deadline=None)
@given(sizes=SIZES, more=st.integers(1, 40), where=st.integers(0, 4))
def test_more_records_never_make_a_sound_design_pool(sizes, more, where) -> None:
    """Of rows that are there: X'X grows, and every leverage falls."""
    sizes = [n + 1 for n in sizes]
    frame = frame_of(sizes)
    level = LEVELS[where % len(sizes)]
    twice = frame[frame["stratum"] == level]
    added = pd.concat([frame, *[twice.iloc[[i % len(twice)]] for i in range(more)]])
    added = added.reset_index(drop=True)
    before, after = (
        build_design_matrix(each, "stratum + sex", by=["stratum"], strata=None)
        for each in (frame, added)
    )
    first = records_per_coefficient(before)[before.cell]
    assert (records_per_coefficient(after)[after.cell][: len(frame)] >= first - 1e-9).all()
    if outcome_of(frame, "stratum + sex", 12)[0] is None:
        assert outcome_of(added, "stratum + sex", 12)[0] is None


def many_by(n=600, columns=4, seed=3):
    """By columns of three levels each, crossed at random."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({f"g{k}": rng.integers(0, 3, n).astype(str) for k in range(columns)})


@pytest.mark.parametrize("columns", [4, 5])
@pytest.mark.parametrize("written", [False, True])
def test_cells_give_way_one_by_one_where_all_together_leave_rows_short(columns, written) -> None:
    """No cell is small by itself; no interaction is given up as a whole for a few of them."""
    frame = many_by(columns=columns)
    formula = build_design_matrix(frame, None, by=tuple(frame), strata=None).formula
    plain, made, pooling = pooled(frame, formula if written else None, 20, tuple(frame))
    assert records_per_coefficient(plain).min() < 20 <= records_per_coefficient(made).min()
    assert (pooling.levels, pooling.interactions) == ({}, ())
    assert 0 < sum(cells for cells, _ in pooling.cells.values()) < 9 * len(pooling.cells)
    assert made.shrunken > 0.2 * plain.shrunken
    for name in frame:
        assert f"{name}[T.2]" in made.columns
    # Neither the order of records nor what levels are called decides.
    shuffled = frame.sample(frac=1, random_state=5).reset_index(drop=True)
    assert pooled(shuffled, None, 20, tuple(frame))[2].cells == pooling.cells
    renamed = frame.replace({"0": "z", "1": "y", "2": "x"})
    assert pooled(renamed, None, 20, tuple(frame))[2].cells == pooling.cells


def test_without_a_ridge_as_many_cells_give_way_as_have_too_few_records() -> None:
    frame = frame_of([60, 30, 80])
    plain = build_design_matrix(frame, None, by=("stratum", "sex"), strata=None)
    shrunken = pool(frame, plain, ("stratum", "sex"), 16)[1]
    alone = pool(frame, replace(plain, interaction_scale=np.inf), ("stratum", "sex"), 16)[1]
    assert shrunken is None
    assert alone.cells == {"stratum:sex": (2, 30)}


def test_a_default_whose_main_effects_are_short_is_refused_by_its_name() -> None:
    frame = many_by(n=150)
    formula = r"'g0 \+ g1 \+ g2 \+ g3'"
    with pytest.raises(RefusedError, match=rf"in the default predictors \({formula}\)"):
        pooled(frame, None, 25, tuple(frame))
