"""Tables of a subpopulation, records outside at u = 0.

Truth: R's subset of a survey design (tests/golden/subpopulation_survey.R wrote the figures); the
row of an ordinary table that holds the same records; the same condition on a public column, where
it is of a synthetic one. Leaving the records outside out of the file is rejected.
"""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import BoolArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import PartialSynthesis, t_interval
from surveysynth.estimation.domains import ByOutcome, build_domains, build_rows
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.linearised import Contrast
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.subpopulation import (
    WHERE,
    Subpopulation,
    build_public_rows,
    build_subpopulation,
    displayed_pairs,
    displayed_rows,
)
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.estimation.total_variance import TotalVariance, public_rows
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.where import parse_where
from tests.estimation.test_taylor_golden import FRAME, GOLDEN, LEVELS, sample_design

RESULTS: dict[str, Any] = json.loads((GOLDEN / "subpopulation_survey.json").read_text())
Y, WEIGHT = FRAME["y"].to_numpy(dtype=float), FRAME["weight"].to_numpy(dtype=float)
CLUSTERS = next(case for case in RESULTS["cases"] if case["name"].startswith("clusters: "))
STATUS = Outcome("status", "binary", levels=("no", "yes"))


def rows_inside(where: str, by: list[str], outcomes: tuple[Outcome, ...] = ()) -> Any:
    inside = Subpopulation(parse_where(where), FRAME, outcomes)
    return build_subpopulation(inside, by, LEVELS, {})


def made_of(
    rows: Any, design: SampleDesign, statistic: str, linearisation: Any = "plain"
) -> pd.DataFrame:
    """The lines of one table of the sample: its by columns, estimate, se and n."""
    estimates = Estimates(
        rows, design, [(statistic, 0)], linearisation=linearisation,
        population_size=RESULTS["population"] if linearisation == "ratio" else None,
    )  # fmt: skip
    estimates.add_alone(Y[:, None], WEIGHT)
    combined, lines = estimates.combined((statistic, 0)), estimates.lines((statistic, 0))
    share = getattr(combined, "of_share", None)  # of a quantile: the lower end of its share
    lower = np.full(combined.estimate.size, np.nan) if share is None else t_interval(share, 0.95)[0]
    return lines.cells.assign(
        estimate=combined.estimate[lines.held], se=combined.standard_error[lines.held], n=lines.n,
        share=lower[lines.held],
    )  # fmt: skip


def first_share(where: str, row: "pd.Series[Any]") -> float:
    """The share of the weight of a row that its smallest value has."""
    inside = Subpopulation(parse_where(where), FRAME, ()).inside()
    for name in ("a", "b"):
        inside &= (row[name] == "All") | (FRAME[name] == row[name]).to_numpy()
    return float(WEIGHT[inside][Y[inside].argmin()] / WEIGHT[inside].sum())


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])
def test_equals_r_survey(case: dict[str, Any], linearisation: str) -> None:
    rows, design = rows_inside(case["where"], ["a", "b"]), sample_design(case)
    expected_of = build_domains(FRAME, ["a", "b"], LEVELS).table
    for statistic, expected in case[linearisation].items():
        made = made_of(rows, design, statistic, linearisation)
        there = expected_of.merge(made, on=["a", "b"], how="left")  # levels without records drop
        several = there["n"] >= 2
        assert several.sum() >= 6
        for name in ("estimate", "se"):
            wanted = np.array(expected[name], dtype=float)
            compared = several.copy()
            if (statistic, name) == ("median", "se"):
                # Below the share of the first record this release of R takes the second value for
                # the first, and it has no error where one end is missing (test_quantile_tables).
                compared &= np.isfinite(wanted)
                compared &= np.array([
                    bool(n >= 2 and share > first_share(case["where"], row))
                    for n, share, (_, row) in zip(
                        there["n"], there["share"], expected_of.iterrows(), strict=True
                    )
                ])  # fmt: skip
            assert compared.sum() >= 3
            np.testing.assert_allclose(there.loc[compared, name], wanted[compared], rtol=1e-8)


@pytest.mark.parametrize("statistic", ["count", "total", "mean", "median"])
@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
def test_a_condition_that_is_one_cell_gives_its_row(statistic: str, linearisation: Any) -> None:
    design = sample_design(CLUSTERS)
    whole = made_of(build_domains(FRAME, ["a", "b"], LEVELS), design, statistic, linearisation)
    inside = made_of(rows_inside("a == 'a2'", ["b"]), design, statistic, linearisation)
    row = whole[whole["a"] == "a2"]
    for name in ("estimate", "se", "n"):
        np.testing.assert_allclose(inside[name], row[name], rtol=1e-12)
    assert list(inside["b"]) == ["All", "b1", "b2"]
    assert list(inside["is_margin"]) == [True, False, False]


def test_leaving_records_out_is_another_standard_error() -> None:
    """Which is what a user gets who filters the file first."""
    where, kept = "y >= 30000 and b == 'b1'", (FRAME["y"] >= 30000) & (FRAME["b"] == "b1")
    right = np.array(CLUSTERS["plain"]["total"]["se"], dtype=float)[0]
    made = made_of(rows_inside(where, ["a"]), sample_design(CLUSTERS), "total")["se"].iloc[0]
    np.testing.assert_allclose(made, right, rtol=1e-8)
    frame = FRAME[kept].reset_index(drop=True)
    design = SampleDesign(
        pd.factorize(frame["stratum"])[0], pd.factorize(frame["psu"])[0], lonely_psu="remove"
    )
    wrong = estimate_domains(
        build_domains(frame, [], {}), design, weight=frame["weight"].to_numpy(),
        outcome=frame["y"].to_numpy(), statistic="total", linearisation="plain",
    ).variance[0]  # fmt: skip
    assert abs(np.sqrt(wrong) / right - 1) > 0.05


def test_contrasts_are_of_the_rows_inside() -> None:
    """A difference of totals is a total of signed values, which knows no contrasts."""
    design, where = sample_design(CLUSTERS), "c == 'c1' or y > 50000"
    made = made_of(rows_inside(where, ["a", "b"]), design, "difference(total, b: b1 - b2)")
    inside = ((FRAME["c"] == "c1") | (FRAME["y"] > 50000)).to_numpy()
    sign = np.where(FRAME["b"] == "b1", 1.0, -1.0) * inside
    signed = estimate_domains(
        build_domains(FRAME, ["a"], LEVELS), design, weight=WEIGHT, outcome=Y * sign,
        statistic="total", linearisation="plain",
    )  # fmt: skip
    assert list(made.columns) == ["a", "is_margin", "estimate", "se", "n", "share"]
    both = np.isfinite(made["estimate"])  # in one field there are no records of the second row
    assert both.sum() == 4
    np.testing.assert_allclose(made["estimate"][both], signed.estimate[both], rtol=1e-10)
    np.testing.assert_allclose(made["se"][both] ** 2, signed.variance[both], rtol=1e-10)


PUBLIC = public_rows(*(pd.factorize(FRAME[name])[0] for name in ("a", "b", "c", "stratum", "psu")))


@pytest.mark.parametrize("rule", [PartialSynthesis(), TotalVariance(PUBLIC)],
                         ids=["partial synthesis", "total variance"])  # fmt: skip
@pytest.mark.parametrize("by", [["a"], ["a", "status"]])
def test_a_synthetic_condition_is_rows_by_that_outcome(rule: Any, by: list[str]) -> None:
    """A subpopulation of one level is the part of a table by the outcome that has the level."""
    outcomes = (Outcome("y"), STATUS, Outcome("kind", "categorical", levels=("p", "q", "r")))
    of = {"status": ByOutcome(1, STATUS)} if "status" in by else {}
    inside = Subpopulation(parse_where("kind in ('q', 'r') and c == 'c1'"), FRAME, outcomes)
    assert not inside.is_public
    rows = build_subpopulation(inside, by, LEVELS, of)
    # The same by a further by variable, an outcome made of the condition.
    both = Outcome("both", "binary", levels=("out", "in"))
    plain = build_rows(
        FRAME, ["both", *by], LEVELS, {"both": ByOutcome(3, both), **of}, {"both": "Any"}
    )
    design, rng = sample_design(CLUSTERS), np.random.default_rng(4)
    made, other = (
        Estimates(each, design, [("mean", 0), ("count", None)], linearisation="plain",
                  population_size=None, draws=2, replicates=2, rule=rule)
        for each in (rows, plain)
    )  # fmt: skip
    for draw in (1, 2):
        for replicate in (1, 2):
            values = Y * rng.uniform(0.8, 1.2, Y.size)
            status, kind = rng.integers(0, 2, Y.size), rng.integers(0, 3, Y.size)
            holds: BoolArray = (kind >= 1) & (FRAME["c"] == "c1").to_numpy()
            y = np.column_stack([values, status, kind, holds]).astype(float)
            dataset = SyntheticDataset(draw, replicate, y, WEIGHT, y, WEIGHT)
            made.add(dataset)
            other.add(dataset)
    for key in (("mean", 0), ("count", None)):
        one, two, lines = made.combined(key), other.combined(key), made.lines(key)
        # Levels without a record of c1 can have none inside, and are not shown.
        at = ((plain.table["both"] == "in") & plain.table["a"].isin(lines.cells["a"])).to_numpy()
        assert at.sum() >= 3
        for name in ("estimate", "standard_error", "df"):
            np.testing.assert_allclose(
                getattr(one, name)[lines.held], getattr(two, name)[at], rtol=1e-12
            )
        assert lines.by_dataset.all()
        assert list(lines.cells.columns) == [*by, "is_margin"]


def test_levels_that_the_condition_excludes_have_no_rows() -> None:
    rows = rows_inside("a in ('a1', 'a2') and b == 'b2'", ["a", "b"])
    table = rows.table[displayed_rows(rows)]
    assert sorted(set(table["a"])) == ["All", "a1", "a2"]
    assert sorted(set(table["b"])) == ["All", "b2"]
    assert len(table) == 6


KIND = Outcome("kind", "categorical", levels=("p", "q", "r"))


@pytest.mark.parametrize(
    ("where", "a", "kinds"),
    [
        ("a in ('a1', 'a2') and status == 'yes'", ["a1", "a2"], ["p", "q", "r"]),
        ("kind != 'q'", LEVELS["a"], ["p", "r"]),
        ("not (kind in ('p', 'q') or a == 'a3')", ["a1", "a2", "a4"], ["r"]),
        ("a == 'a1' and kind == 'p' or a != 'a1' and kind in ('p', 'q')", LEVELS["a"], ["p", "q"]),
        ("a == 'a1' or status == 'yes' and status == 'no'", ["a1"], ["p", "q", "r"]),
        ("a == 'a1' or kind == 'p'", LEVELS["a"], ["p", "q", "r"]),
        # Levels of one outcome that another rules out.
        ("(kind == 'p' or status == 'no') and status == 'yes'", LEVELS["a"], ["p"]),
    ],
)
def test_levels_that_a_condition_on_outcomes_excludes_have_no_rows(
    where: str, a: list[str], kinds: list[str]
) -> None:
    outcomes = (STATUS, KIND)
    inside = Subpopulation(parse_where(where), FRAME, outcomes)
    assert not inside.is_public
    rows = build_subpopulation(inside, ["a", "kind"], LEVELS, {"kind": ByOutcome(1, KIND)})
    table = rows.table[displayed_rows(rows)]
    assert list(table["a"].unique()) == ["All", *a]
    assert list(table["kind"].unique()) == ["All", *kinds]
    assert len(table) == (1 + len(a)) * (1 + len(kinds))
    # A contrast with one of the others is refused beforehand, with those that remain.
    for column, kept, of_all in (("a", a, LEVELS["a"]), ("kind", kinds, KIND.levels)):
        for level in of_all:
            contrast = Contrast("difference", column, level, None)
            if level in kept:
                assert displayed_pairs(contrast, rows).holds.any()
                continue
            with pytest.raises(InputError, match=f"{kept[-1]!r}, but names {level!r}"):
                displayed_pairs(contrast, rows)
    # What is told beforehand has the same rows, and the records that may be inside.
    public = build_public_rows(inside, ["a"], LEVELS)
    assert list(public.table["a"][displayed_rows(public)]) == ["All", *a]
    may_be = [
        any(inside.inside(np.full((len(FRAME), 2), [s, k], dtype=float))[i]
            for s in range(2) for k in range(3))
        for i in range(len(FRAME))
    ]  # fmt: skip
    np.testing.assert_array_equal(inside.may_be_inside, may_be)
    assert public.n[int((public.table[WHERE] == "inside").to_numpy().argmax())] == sum(may_be)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("y == '3'", "character 1: 'y' is a column of numbers; write its values without quotes"),
        ("b < 3", "compared with a number, but 2 of its 2 levels are not numbers"),
        ("a == 'a2' and b == 'B1'", "character 15: no record has the value that 'b' is compared"),
        ("a in ('a1', 'a9', 'a8')", "no record has 2 of the values that 'a' is compared with"),
        ("y < -1", "no record of the survey is in the subpopulation"),
    ],
)
def test_a_condition_that_columns_do_not_allow_is_told_without_their_values(
    where: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        rows_inside(where, ["a"])
    assert words in str(caught.value)
    assert "a3" not in str(caught.value)


def test_a_column_without_a_value_is_counted() -> None:
    frame = FRAME.assign(age=np.where(np.arange(len(FRAME)) < 3, np.nan, 40.0))
    with pytest.raises(InputError, match="3 records without a value of 'age'"):
        Subpopulation(parse_where("age > 30"), frame, ())


@pytest.mark.parametrize(
    "where",
    [
        "status == 'no' and status == 'yes'",
        "not (status == 'no' or kind in ('p', 'q')) and kind != 'r'",
        "status == 'yes' and b == 'b1' and b != 'b1'",
        "(kind == 'p' or b == 'b1') and kind == 'q' and b == 'b2'",
    ],
)
def test_a_condition_that_no_levels_satisfy_is_refused(where: str) -> None:
    outcomes = (STATUS, Outcome("kind", "categorical", levels=("p", "q", "r")))
    with pytest.raises(InputError, match="no record of the survey can be in the subpopulation"):
        Subpopulation(parse_where(where), FRAME, outcomes)
    for other in ("status == 'yes' and (kind == 'p' or b == 'b1')", f"kind == 'q' or {where}",
                  "status == 'no' and kind != 'q' and not (b == 'b2')"):  # fmt: skip
        assert not Subpopulation(parse_where(other), FRAME, outcomes).is_public


def test_more_levels_than_can_be_tried_are_not_refused() -> None:
    """Nobody may wait for 2 to the power of 40."""
    many = tuple(Outcome(f"o{k}", "binary") for k in range(40))
    where = " or ".join(f"(o{k} == 0 and o{k} == 1)" for k in range(40))
    assert not Subpopulation(parse_where(where), FRAME, many).is_public


def test_contrasts_have_the_rows_that_the_table_shows() -> None:
    rows, design = rows_inside("a in ('a1', 'a2')", ["a", "b"]), sample_design(CLUSTERS)
    made = made_of(rows, design, "difference(mean, b: margin)")
    assert set(made["a"]) == {"All", "a1", "a2"}
    assert made["estimate"].notna().all()


def test_a_contrast_with_a_level_outside_is_refused() -> None:
    rows = rows_inside("a in ('a1', 'a2')", ["a", "b"])
    assert displayed_pairs(Contrast("difference", "a", "a1", "a2"), rows).holds.any()
    for contrast in (Contrast("ratio", "a", "a3", "a1"), Contrast("ratio", "a", None, "a3")):
        with pytest.raises(InputError, match=r"has, which are 'a1', 'a2', but names 'a3'\."):
            displayed_pairs(contrast, rows)
    with pytest.raises(InputError, match=r"but names 'a3'\."):
        made_of(rows, sample_design(CLUSTERS), "difference(mean, a: a1 - a3)")


def test_numbers_compare_as_numbers_and_texts_as_texts() -> None:
    frame = pd.DataFrame({"age": ["9", "10", "18", "010"], "size": [1.0, 2.5, 2.5, 4.0]})

    def inside(where: str) -> list[bool]:
        return [bool(each) for each in Subpopulation(parse_where(where), frame, ()).inside()]

    assert inside("age >= 10") == [False, True, True, True]
    assert inside("age == '10'") == [False, True, False, False]
    assert inside("age == 10") == [False, True, False, True]
    assert inside("size in (2.5, 4)") == [False, True, True, True]
    assert inside("size not in (2.5)") == [True, False, False, True]
    assert inside("9 < age <= 18 and not size == 4") == [False, True, True, False]
    assert inside("age != '9' or size < 2") == [True, True, True, True]
