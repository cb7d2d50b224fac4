"""Truth: the flag rules of methods 5, written out cell by cell."""

import numpy as np
import pandas as pd
import pytest

from surveysynth.release.tables.table import ReleaseTable, TableNumbers, make_table, stacked_frame

N = np.array([0, 1, 4, 5])


def _table(statistic: str, outcome: str | None = None) -> ReleaseTable:
    cells = pd.DataFrame({"g": ["All", "a", "b", "c"], "is_margin": [True, False, False, False]})
    ones = np.ones(4)
    numbers = TableNumbers(2 * ones, ones, 7 * ones, 9.0, ones, 3 * ones, N)
    return make_table(statistic, outcome, cells, numbers, level=0.9)  # type: ignore[arg-type]


def test_columns_are_the_contract() -> None:
    assert list(_table("count").frame.columns) == (
        ["g", "is_margin", "estimate", "se", "df", "df_design", "ci_lower", "ci_upper", "n", "flag"]
    )


@pytest.mark.parametrize("statistic", ["count", "total", "mean", "proportion"])
def test_flags_and_missing_numbers(statistic: str) -> None:
    frame = _table(statistic).frame
    assert frame["flag"].tolist() == ["no sample", "n<5", "n<5", ""]
    assert frame["n"].tolist() == N.tolist()
    assert frame["estimate"].isna().tolist() == [True, False, False, False]
    without_se = [True, statistic in ("mean", "proportion"), False, False]
    for column in ("se", "df", "ci_lower", "ci_upper"):
        assert frame[column].isna().tolist() == without_se
    assert frame["df_design"].tolist()[1:] == [9.0, 9.0, 9.0]


def test_several_outcomes_are_stacked_with_their_name() -> None:
    frame = stacked_frame([_table("mean", "salary"), _table("mean", "bonus")])
    assert frame.columns[0] == "outcome"
    assert frame["outcome"].tolist() == ["salary"] * 4 + ["bonus"] * 4
    assert "outcome" not in stacked_frame([_table("mean", "salary")])
