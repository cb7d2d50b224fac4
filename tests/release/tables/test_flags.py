"""Truth: the published rules, applied by hand at and beside every threshold; R's survey package's
formula for Korn-Graubard intervals through scipy's binomial distribution."""

import inspect

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from surveysynth.estimation.combining import korn_graubard
from surveysynth.release.tables.table import (
    FlagPolicy,
    Published,
    ReleaseTable,
    TableNumbers,
    make_table,
    policy_of,
    stacked_frame,
)


def published(statistic: str, rows: list[tuple[float, float, float, int]]) -> Published:
    """Rows of estimate, se, df, n; the interval is two standard errors to each side."""
    estimate, se, df, n = (np.array(column) for column in zip(*rows, strict=True))
    return Published(statistic, estimate, se, df, 4 * se, n.astype(np.int64))


def codes(rules: object, statistic: str, *rows: tuple[float, float, float, int]) -> list[str]:
    found = policy_of(rules).codes(published(statistic, list(rows)))
    return ["".join(row) for row in found]


@pytest.mark.parametrize("statistic", ["count", "total", "mean", "proportion"])
def test_statcan_by_coefficient_of_variation(statistic: str) -> None:
    cv = [0.0, 0.1655, 0.166, 0.333, 0.3334, 0.9]
    assert codes("statcan", statistic, *((-100.0, 100 * each, 50.0, 9) for each in cv)) == (
        ["", "", "E", "E", "F", "F"]
    )
    odd = [(0.0, 1.0, 50.0, 9), (0.0, 0.0, 50.0, 9), (5.0, np.nan, np.nan, 1), (1.0, 9.0, 9.0, 0)]
    assert codes("statcan", statistic, *odd) == ["F", "", "F", ""]


def test_nchs_proportions_step_by_step() -> None:
    def row(p: float, n: int, effective: float, df: float = 1000.0) -> tuple:
        return p, float(np.sqrt(p * (1 - p) / effective)), df, n

    assert codes("nchs", "proportion", row(0.5, 29, 29), row(0.5, 400, 29.9)) == ["U", "U"]
    # Half of 43: interval about 0.31 wide; half of 60: 0.26, and 0.26/0.5 < 130%.
    assert codes("nchs", "proportion", row(0.5, 41, 41), row(0.5, 60, 60)) == ["U", ""]
    # 4% of 200: from about 1.7% to 7.7%, wider than 5 points and than 130% of 4%.
    assert codes("nchs", "proportion", row(0.04, 200, 200), row(0.96, 200, 200)) == ["U", "C"]
    # 1% of 1,000: narrower than 5 points, hence shown although wider than 130% of it.
    assert codes("nchs", "proportion", row(0.01, 1000, 1000)) == [""]
    assert codes("nchs", "proportion", row(0.5, 400, 400, 7.9), row(0.5, 400, 400, 8)) == ["R", ""]
    # What no binomial has: none of them, all of them, more than all, no standard error.
    rest = [(0.0, 0.0, 50.0, 99), (1.0, 0.0, 50.0, 99), (1.02, 0.01, 50.0, 99)]
    assert codes("nchs", "proportion", *rest, (0.4, np.nan, np.nan, 99)) == ["R", "R", "U", "U"]


def test_nchs_counts() -> None:
    # exp(t rse) - exp(-t rse) = 1.6 at t rse = log(0.8 + sqrt(1.64)) = 0.73267, t = 1.96234 (999).
    limit = 0.7326682 / 1.9623415
    rows = [(500.0, 500 * limit * f, 999.0, 40) for f in (0.9999, 1.0001)]
    assert codes("nchs", "count", *rows) == ["", "U"]
    assert codes("nchs", "count", (500.0, 5.0, 99.0, 9), (500.0, 5.0, 99.0, 10)) == ["U", ""]
    assert codes("nchs", "count", (500.0, 5.0, 7.0, 40), (500.0, 0.0, 99.0, 40)) == ["R", ""]
    assert codes("nchs", "count", (-5.0, 1.0, 99.0, 40)) == ["U"]


@pytest.mark.parametrize("statistic", ["mean", "total"])
def test_nchs_means_and_totals(statistic: str) -> None:
    rows = [(10.0, 1.0, 99.0, 29), (10.0, 1.0, 99.0, 59), (10.0, 1.0, 99.0, 60)]
    assert codes("nchs", statistic, *rows) == ["U", "C", ""]
    rows = [(10.0, 2.99, 99.0, 60), (10.0, 3.0, 99.0, 60), (10.0, 3.0, 5.0, 60)]
    assert codes("nchs", statistic, *rows) == ["", "C", "CR"]


def test_korn_graubard_is_the_exact_binomial_interval_at_the_effective_size() -> None:
    p, n = np.array([0.2, 0.5]), np.array([50.0, 80.0])
    infinite = np.full(2, 1e9)
    lower, upper = korn_graubard(p, n, n, n - 1)
    for each in range(2):
        x = int(p[each] * n[each])
        assert binom.sf(x - 1, n[each], lower[each]) == pytest.approx(0.025, rel=1e-9)
        assert binom.cdf(x, n[each], upper[each]) == pytest.approx(0.025, rel=1e-9)
    # Fewer degrees of freedom widen it, more than n - 1 do not shrink it below that of n.
    wide = korn_graubard(p, n, n, np.full(2, 5.0))
    assert (wide[0] < lower).all()
    assert (wide[1] > upper).all()
    assert np.allclose(korn_graubard(p, n, n, infinite), (lower, upper))


def test_an_effective_size_above_the_sample_s_counts_as_the_sample_s() -> None:
    p, n, df = np.array([0.3]), np.array([50.0]), np.array([20.0])
    # A design twice as good as simple sampling: 100 x (t_49 / t_20)^2 = 92.8, cut at 50.
    limits = korn_graubard(p, 2 * n, n, df)
    assert limits == korn_graubard(p, n, n, n - 1)
    # Half as good: not cut, and smaller by the factor for 20 degrees of freedom.
    lower, _ = korn_graubard(p, n / 2, n, df)
    size = 25 * (2.0095752 / 2.0859634) ** 2
    assert lower == pytest.approx(beta.ppf(0.025, 0.3 * size, 0.7 * size + 1), rel=1e-6)


def test_thresholds_of_the_caller() -> None:
    rules = {"mark": {"rse": 0.2, "n": 30}, "suppress": {"relative_width": 2.0, "df": 4.0}}
    rows = [
        (10.0, 2.0, 9.0, 30), (10.0, 2.01, 9.0, 30), (10.0, 1.0, 9.0, 29),
        (10.0, 5.0, 9.0, 30), (10.0, 5.01, 9.0, 30), (10.0, 1.0, 3.9, 30),
        (10.0, np.nan, np.nan, 1),
    ]  # fmt: skip
    assert codes(rules, "mean", *rows) == ["", "M", "M", "M", "S", "S", "S"]
    assert [flag.code for flag in policy_of(rules).rules.flags] == ["S", "M"]
    only = policy_of({"mark": {"rse": 0.2}})
    assert [flag.code for flag in only.rules.flags] == ["M"]
    assert "above 20%" in " ".join(only.legend(["M"]))


def _table(rules: str):  # type: ignore[no-untyped-def]
    cells = pd.DataFrame({"g": list("abcd"), "is_margin": False})
    estimate = np.array([100.0, 100.0, 100.0, np.nan])
    se, n = np.array([10.0, 20.0, 40.0, np.nan]), np.array([50, 40, 3, 0])
    numbers = TableNumbers(estimate, se, 0 * se + 9, 9.0, estimate - 2 * se, estimate + 2 * se, n)
    policy = policy_of(rules)
    return make_table("total", "y", cells, numbers, level=0.95, flags=policy)


def test_what_a_flag_does() -> None:
    numbers = ["estimate", "se", "df", "ci_lower", "ci_upper"]
    suppressed, marked = _table("statcan"), _table("statcan_marked")
    for table in (suppressed, marked):
        assert table.frame["flag"].tolist() == ["", "E", "n<5; F", "no sample"]
        assert table.frame["n"].tolist() == [50, 40, 3, 0]
    assert suppressed.frame[numbers].isna().all(axis=1).tolist() == [False, False, True, True]
    assert marked.frame[numbers].isna().all(axis=1).tolist() == [False, False, False, True]
    legends = [" ".join(each.flags.legend(["F", "E"])) for each in (suppressed, marked)]
    assert ["withheld" in legend for legend in legends] == [True, False]
    assert all("F too unreliable to be published (CV above 33.3%)" in each for each in legends)


def test_the_legend_has_the_marks_of_the_table_alone() -> None:
    policy = policy_of("nchs")
    (both,) = policy.legend(["R", "U"])
    assert [f" {code} " in both for code in "UCR"] == [True, False, True]
    (one,) = policy.legend(["C"])
    assert "withheld" not in one
    assert policy.legend([]) == ()


def test_no_rules_add_nothing() -> None:
    table = _table("none")
    assert table.frame["flag"].tolist() == ["", "", "n<5", "no sample"]
    assert table.notes == ()
    assert table.flag_codes == ()


@given(st.lists(st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 3,
                          st.integers(0, 10**6)), min_size=1, max_size=6),
       st.sampled_from(["nchs", "statcan"]),
       st.sampled_from(["count", "total", "mean", "proportion"]))  # fmt: skip
def test_any_numbers_are_judged(rows: list, rules: str, statistic: str) -> None:
    rows = [(estimate, abs(se), df, n) for estimate, se, df, n in rows]
    with np.errstate(over="ignore"):
        found = policy_of(rules).codes(published(statistic, rows))
    for row, given_codes in zip(rows, found, strict=True):
        assert len(set(given_codes)) == len(given_codes)
        # Nothing without a standard error passes, and no flag stands beside a withheld number.
        if row[3] > 0 and np.isnan(row[1]):
            assert given_codes[0] in ("U", "F")
        assert given_codes[1:] == () or given_codes == ("C", "R")


def test_rules_see_published_quantities_alone() -> None:
    assert set(Published.__dataclass_fields__) == {"statistic", "estimate", "se", "df", "width",
                                                   "n"}  # fmt: skip
    # estimated: which rows have a number, though a synthetic dataset has no record there.
    assert list(inspect.signature(FlagPolicy.codes).parameters) == ["self", "table", "estimated"]


def test_nchs_proportions_of_thirty_records() -> None:
    """90% of 30: the interval by hand from 73% to 98%, narrower than 30 points and than 130% of
    90%, wider than that of the complement."""

    def row(n: int, effective: float) -> tuple:
        return 0.9, float(np.sqrt(0.09 / effective)), 1e6, n

    assert codes("nchs", "proportion", row(30, 30.0000001), row(29, 29)) == ["C", "U"]
    assert codes("nchs", "proportion", row(400, 30.0000001), row(400, 29.9)) == ["C", "U"]
    exactly = (0.5, np.sqrt(0.25 / 64), 1e6, 64)  # every number of it is a double
    assert codes("nchs", "proportion", exactly) == [""]


# Flags of sizes and missing numbers, cell by cell (methods 5).

N = np.array([0, 1, 4, 5])


def _four(statistic: str, outcome: str | None = None) -> ReleaseTable:
    cells = pd.DataFrame({"g": ["All", "a", "b", "c"], "is_margin": [True, False, False, False]})
    ones = np.ones(4)
    numbers = TableNumbers(2 * ones, ones, 7 * ones, 9.0, ones, 3 * ones, N)
    return make_table(statistic, outcome, cells, numbers, level=0.9)  # type: ignore[arg-type]


def test_columns_are_the_contract() -> None:
    assert list(_four("count").frame.columns) == (
        ["g", "is_margin", "estimate", "se", "df", "df_design", "ci_lower", "ci_upper", "n", "flag"]
    )


@pytest.mark.parametrize("statistic", ["count", "total", "mean", "proportion"])
def test_flags_and_missing_numbers(statistic: str) -> None:
    frame = _four(statistic).frame
    assert frame["flag"].tolist() == ["no sample", "n<5", "n<5", ""]
    assert frame["n"].tolist() == N.tolist()
    assert frame["estimate"].isna().tolist() == [True, False, False, False]
    without_se = [True, statistic in ("mean", "proportion"), False, False]
    for column in ("se", "df", "ci_lower", "ci_upper"):
        assert frame[column].isna().tolist() == without_se
    assert frame["df_design"].tolist()[1:] == [9.0, 9.0, 9.0]


def test_several_outcomes_are_stacked_with_their_name() -> None:
    frame = stacked_frame([_four("mean", "salary"), _four("mean", "bonus")])
    assert frame.columns[0] == "outcome"
    assert frame["outcome"].tolist() == ["salary"] * 4 + ["bonus"] * 4
    assert "outcome" not in stacked_frame([_four("mean", "salary")])
