"""Tables as a person reads them. Truth: titles, symbols and flags written out by hand.

The interval of an amount that cannot be negative is compared with the formula in plain NumPy.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surveysynth.config.sections import LabelSection
from surveysynth.estimation.combining import Combined, positive_interval
from surveysynth.release.tables.layout import AnyRounding, Labels, Presentation, Warranted, lay_out
from surveysynth.release.tables.table import (
    ReleaseTable,
    TableNumbers,
    make_table,
    policy_of,
)
from surveysynth.release.writers.figures import estimates_with_intervals
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

label_of = LabelSection.model_construct

LABELS = Labels({
    "field": label_of(title="Field"), "GDP": label_of(title="GDP class"),
    "salary": label_of(title="Annual salary", unit="US dollars"),
})  # fmt: skip
UNITS: dict[tuple[str, str | None], AnyRounding] = {
    ("count", None): Warranted(), ("mean", "salary"): Warranted(), ("share", "salary"): Warranted(),
}  # fmt: skip
SHOWN = Presentation(
    "Survey", "", "Privacy.", "", LABELS, UNITS, universe="doctorate holders",
    place="United States, 2026", numbers={"count": 1, "mean": 2}, notes=("Read me.",),
)  # fmt: skip


def table(statistic: str, estimate: list[float], se: list[float], **more: object) -> ReleaseTable:
    d = len(estimate)
    cells = pd.DataFrame({"field": ["All", *map(str, range(1, d))]})
    cells["GDP"] = "All"
    cells["is_margin"] = [True] + [False] * (d - 1)
    x, error = np.array(estimate), np.array(se)
    df = np.full(d, 50.0)
    numbers = TableNumbers(x, error, df, 50.0, x - 2 * error, x + 2 * error, np.full(d, 99))
    numbers = replace(numbers, **{k: v for k, v in more.items() if k in ("n", "df")})  # type: ignore[arg-type]
    outcome = None if statistic == "count" else "salary"
    return make_table(
        statistic, outcome, cells, numbers, level=0.95, method="Method.",
        flags=policy_of("nchs"),
    )  # fmt: skip


def test_a_title_says_number_statistic_universe_and_place() -> None:
    mean = lay_out([table("mean", [73_512.0, 70_100.0], [1_200.0, 2_500.0])], SHOWN)
    assert mean.title == (
        "Table 2. Mean annual salary of doctorate holders, by field and GDP class: United States, "
        "2026"
    )
    assert mean.subtitle == "Survey · In US dollars"
    count = lay_out([table("count", [900.0, 400.0], [0.0, 20.0])], SHOWN)
    assert count.title.startswith("Table 1. Number of doctorate holders, by field and GDP class:")
    assert count.subtitle == "Survey"
    bare = replace(SHOWN, universe="", place="", numbers={}, title="")
    plain = lay_out([table("mean", [1.0, 2.0], [0.1, 0.1])], bare)
    assert (plain.title, plain.subtitle) == (
        "Mean annual salary, by field and GDP class", "In US dollars",
    )  # fmt: skip
    assert mean.notes[0] == "Read me."
    assert mean.notes[-2:] == ("Method.", "Privacy.")


def test_a_known_total_is_a_symbol_and_its_details_need_not_add() -> None:
    layout = lay_out([table("count", [54_321.0, 30_111.0, 24_210.0], [1e-9, 420.0, 420.0])], SHOWN)
    total, *cells = ([cell.text for cell in row.cells[:4]] for row in layout.rows)
    assert total == ["54,321", "†", "†", "†"]
    assert cells[0] == ["30,100", "400", "29,300", "31,000"]
    (footnote,) = [text for mark, text in layout.footnotes if mark in layout.rows[0].cells[0].marks]
    assert footnote.startswith("A known total")
    assert "Details may not add to totals because of rounding." in layout.notes
    mean = lay_out([table("mean", [5.0, 6.0], [0.0, 1.0])], SHOWN)
    assert "†" not in [cell.text for cell in mean.rows[0].cells]
    assert not any("add to totals" in note for note in mean.notes)


@pytest.mark.parametrize(
    ("df", "n", "flag"), [(50.0, 99, ""), (3.0, 99, "C; R"), (2.0, 99, "U"), (50.0, 8, "U")]
)
def test_nchs_rules_know_degrees_of_freedom_and_withhold_small_means(
    df: float, n: int, flag: str
) -> None:
    """The same relative error of 20%: 2 t .2 is .80, 1.27 and 1.72."""
    size = np.full(2, n)
    made = table("mean", [1000.0, 1000.0], [200.0, 200.0], df=np.full(2, df), n=size)
    assert made.frame["flag"].tolist() == [flag] * 2
    assert made.frame["estimate"].isna().all() == (flag == "U")


def test_an_amount_that_cannot_be_negative_has_no_negative_bound() -> None:
    log, any_sign = Transform("log"), Transform("identity")
    for outcome, positive in (
        (Outcome("y", transform=log), True),
        (Outcome("y", transform=any_sign), False),
        (Outcome("y", transform=any_sign, lower=0.0), True),
        (Outcome("y", transform=Transform("log", shift=5.0)), False),
    ):  # fmt: skip
        assert outcome.is_positive == positive
    x, se, df = np.array([83_819.0]), np.array([41_000.0]), np.array([4.3])
    lower, upper = positive_interval(Combined(x, se, df, 90.0, se, se))
    half = stats.t.ppf(0.975, df) * se / x
    assert x - half * x < 0
    np.testing.assert_allclose([lower, upper], [x / np.exp(half), x * np.exp(half)])


def test_totals_are_out_of_the_scale_of_a_figure_whose_marks_have_a_key() -> None:
    made = table("count", [54_321.0, 3_111.0, 4_210.0], [1e-9, 420.0, 420.0])
    figure = estimates_with_intervals([made], SHOWN)
    (panel,) = figure.axes
    assert panel.get_xlim()[1] < 10_000
    assert "54,300 ▸" in [text.get_text() for text in panel.texts]
    legend = panel.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["cell", "95% confidence interval, with privacy noise"]
    assert str(figure.get_label()).startswith("Figure 1. Number of doctorate holders")
