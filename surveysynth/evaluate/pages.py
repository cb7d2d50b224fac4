"""What the confidential pages share: headings, and tables with the stub of a release."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.tables.labels import Labels
from surveysynth.release.tables.stub import stub_rows

if TYPE_CHECKING:
    import pandas as pd


def heading_of(labels: Labels, statistic: str, outcome: str | None) -> str:
    """Title and unit of a table."""
    kind = statistic_of(statistic)
    words = f"{kind.title} (%)" if kind.percent else kind.title
    return words if outcome is None else f"{words}: {labels.titled_with_unit(outcome)}"


def body_lines(
    frame: "pd.DataFrame", by: Sequence[str], labels: Labels, cells: Sequence[str], span: int
) -> Iterator[str]:
    """Lines of a table of ``span`` columns, a row of ``frame`` each, with ``cells`` (HTML) after
    its label and number of records; groups have headings."""
    group = ""
    rows = zip(stub_rows(frame, by, labels), frame["n"], cells, strict=True)
    for row, n, rest in rows:
        if row.group != group:
            group = row.group
            yield f'<tr class="group"><th colspan="{span}">{escape(group)}</th></tr>'
        kind = ' class="strong"' if row.strong else ""
        indent = ' class="indent"' if row.indent else ""
        yield f"<tr{kind}><th{indent}>{escape(row.label)}</th><td>{int(n):,}</td>{rest}</tr>"
