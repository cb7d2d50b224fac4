"""What the confidential pages share: headings, and tables with the stub of a release."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.compare.tables import Key
from surveysynth.release.facts import labels_of
from surveysynth.release.tables.labels import Labels, where_words
from surveysynth.release.tables.rounding import ABSENT
from surveysynth.release.tables.row_layout import (
    StubRow,
    level_heading,
    level_rows,
    stub_heading,
    stub_rows,
)

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec



def heading_of(labels: Labels, statistic: str, outcome: str | None) -> str:
    """Title and unit of a table."""
    kind = statistic_of(statistic)
    words = f"{kind.title} (%)" if kind.percent else kind.title
    return words if outcome is None else f"{words}: {labels.titled_with_unit(outcome)}"


def of_table(spec: "Spec") -> str:
    """The name and subpopulation of a table, to follow its heading; empty for the one table of all
    records."""
    section = spec.table
    name = f" (table {section.name})" if section.name else ""
    inside = f"; {where_words(section.where, labels_of(spec))}" if section.where else ""
    return f"{name}{inside}"


def stub_of(
    key: Key, frame: pd.DataFrame, by: Sequence[str], labels: Labels
) -> tuple[str, list[StubRow]]:
    """What heads the labels of a table's rows, and a line for every row of its ``frame``."""
    statistic, outcome = key
    if outcome is not None and statistic_of(statistic).by_level:
        return level_heading([outcome], labels), level_rows(frame, by, labels, outcome)
    return stub_heading(by, labels), stub_rows(frame, by, labels)


def body_lines(
    rows: Sequence[StubRow], n: Iterable[int], cells: Sequence[str], *, span: int
) -> Iterator[str]:
    """Lines of a table of ``span`` columns, with ``cells`` (HTML) after the label and number of
    records of each row, missing for rows by an outcome; groups have headings."""
    group = ""
    for row, records, rest in zip(rows, n, cells, strict=True):
        if row.group != group:
            group = row.group
            yield f'<tr class="group"><th colspan="{span}">{escape(group)}</th></tr>'
        kind = ' class="strong"' if row.strong else ""
        indent = ' class="indent"' if row.indent else ""
        known = ABSENT if pd.isna(records) else f"{records:,}"
        yield f"<tr{kind}><th{indent}>{escape(row.label)}</th><td>{known}</td>{rest}</tr>"
