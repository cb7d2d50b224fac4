"""A table as readers see it, before any format: columns, rows of shown numbers, footnotes, notes.

One number logic for all formats. A writer arranges what is here and escapes it; it rounds nothing
and chooses no words of its own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from surveysynth.estimation.statistics import LEVEL, statistic_of
from surveysynth.release.tables.labels import Labels, listed
from surveysynth.release.tables.rounding import ABSENT, AnyRounding, Rounding, rounding_of_line
from surveysynth.release.tables.stub import (
    StubRow,
    level_heading,
    level_rows,
    stub_heading,
    stub_rows,
)
from surveysynth.release.tables.table import (
    EMPTY_DATASET_FLAG,
    FLAG_SEPARATOR,
    NO_SAMPLE_FLAG,
    POOLED_FLAG,
    SMALL_DATASET_FLAG,
    SMALL_SAMPLE,
    SMALL_SAMPLE_FLAG,
    ReleaseTable,
)

LayoutKind = Literal["columns", "compact"]

_FOOTNOTES = {
    NO_SAMPLE_FLAG: "No sample records in this cell, hence no estimate.",
    SMALL_SAMPLE_FLAG: f"Fewer than {SMALL_SAMPLE} sample records: use with great caution.",
    POOLED_FLAG: "Mostly records of levels with few records, which are modelled as the average of "
    "other levels: the row shows little of its own.",
    EMPTY_DATASET_FLAG: "No records in some synthetic dataset, which counts as zero there.",
    SMALL_DATASET_FLAG: f"Fewer than {SMALL_SAMPLE} records in some synthetic dataset: use with "
    "great caution.",
}
_EMPTY_MEAN = "No records in some synthetic dataset, hence no estimate."
_EMPTY = "No records in any synthetic dataset: a standard error cannot be estimated."
_WITHHELD = "Withheld as too unreliable; the flag says by which rule."
_ONE_RECORD = "One sample record: a standard error cannot be estimated."
_NO_INTERVAL = "At 0% and 100% an interval cannot be computed from a standard error."

_NO_END = "Too few records for this end of the interval."


@dataclass(frozen=True)
class Presentation:
    """What the tables of one release share.

    title, source: the caller's, may be empty; privacy_note: one sentence with the epsilon;
    banner: a warning set above and below the table, empty for a private release;
    rounding: by statistic and outcome (None for counts); kind: estimate, standard error and
    interval in columns, or "compact": estimate (standard error) in one.
    """

    title: str
    source: str
    privacy_note: str
    banner: str
    labels: Labels
    rounding: dict[tuple[str, str | None], AnyRounding]
    kind: LayoutKind = "columns"


@dataclass(frozen=True)
class Column:
    """One column of numbers; ``spanner`` is a heading that it shares with its neighbours."""

    key: str
    heading: str
    spanner: str = ""


@dataclass(frozen=True)
class Cell:
    """Shown text, and the same rounded number for spreadsheets (None where text alone says it).

    ``marks`` are those of footnotes; ``decimals`` are those of ``value`` as it is shown.
    """

    text: str
    value: float | None = None
    marks: tuple[str, ...] = ()
    decimals: int = 0


@dataclass(frozen=True)
class Row:
    """A line of the table: its place in the stub, labels of its by-columns, its cells."""

    stub: StubRow
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Layout:
    """One table for readers; a writer shows every part of it.

    stem names the file; title and subtitle (may be empty) stand above; by_titles head the
    by-columns and stub_heading those that share the stub; footnotes are (mark, text) in the order
    of their marks; notes end with the privacy note; banner as in ``Presentation``.
    """

    stem: str
    title: str
    subtitle: str
    stub_heading: str
    by_titles: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    banner: str

    @property
    def grouped(self) -> bool:
        """Whether rows stand under group headings."""
        return any(row.stub.group for row in self.rows)


def describe(tables: Sequence[ReleaseTable], labels: Labels) -> str:
    """What the table shows, as a phrase: the statistic, the outcomes, the by-columns."""
    outcomes = [labels.titled_with_unit(t.outcome) for t in tables if t.outcome is not None]
    heading = statistic_of(tables[0].statistic).heading
    if outcomes:
        heading = f"{heading}: {', '.join(outcomes)}"
    by = [labels.title(column) for column in tables[0].by]
    return f"{heading}, by {listed(by)}" if by else heading


def lay_out(tables: Sequence[ReleaseTable], presentation: Presentation) -> Layout:
    """The tables of one statistic, one an outcome, as one table."""
    labels, first = presentation.labels, tables[0]
    shown = describe(tables, labels)
    flagged = any(table.flag_codes for table in tables)
    columns = _columns(first, presentation.kind, flagged=flagged)
    marks = _Marks()
    rows = [
        row
        for table in tables
        for row in _rows(table, presentation, columns, marks, several=len(tables) > 1)
    ]
    by_titles = tuple(labels.title(column) for column in first.by)
    heading = stub_heading(first.by, labels)
    if first.categories:
        heading = level_heading([table.outcome or "" for table in tables], labels)
        by_titles = (*by_titles, heading)
    return Layout(
        stem=statistic_of(first.statistic).stem,
        title=presentation.title or shown,
        subtitle=shown if presentation.title else "",
        stub_heading=heading,
        by_titles=by_titles,
        columns=columns,
        rows=tuple(rows),
        footnotes=tuple(marks.footnotes),
        notes=tuple(_notes(tables, presentation)),
        banner=presentation.banner,
    )


@dataclass(frozen=True, eq=False)
class Shown:
    """What every writer gets: all tables of a release, one an outcome for each statistic by name,
    and what they share."""

    tables: Mapping[str, Sequence[ReleaseTable]]
    presentation: Presentation

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """The tables of each statistic as one for readers, laid out once for all formats."""
        return {
            statistic: lay_out(of_outcomes, self.presentation)
            for statistic, of_outcomes in self.tables.items()
        }


class _Marks:
    """Letters for footnotes in the order in which the table first needs them."""

    def __init__(self) -> None:
        self._mark_of: dict[str, str] = {}

    def of(self, text: str) -> str:
        return self._mark_of.setdefault(text, "abcdefghijklmnopqrstuvwxyz"[len(self._mark_of)])

    @property
    def footnotes(self) -> Iterator[tuple[str, str]]:
        return ((mark, text) for text, mark in self._mark_of.items())


def _columns(table: ReleaseTable, kind: LayoutKind, *, flagged: bool) -> tuple[Column, ...]:
    heading = statistic_of(table.statistic).heading
    interval = f"{100 * table.level:.4g}% confidence interval"
    numbers = (
        (Column("paired", f"{heading} (standard error)"),)
        if kind == "compact"
        else (
            Column("estimate", heading),
            Column("se", "Standard error"),
            Column("ci_lower", "Lower", interval),
            Column("ci_upper", "Upper", interval),
        )
    )
    flag = (Column("flag", "Flag"),) if flagged else ()
    return (*numbers, Column("n", "Sample records"), *flag)


def _rows(
    table: ReleaseTable,
    presentation: Presentation,
    columns: Sequence[Column],
    marks: _Marks,
    *,
    several: bool,
) -> Iterator[Row]:
    labels = presentation.labels
    rounding = presentation.rounding[table.statistic, table.outcome]
    prefix = labels.titled_with_unit(table.outcome) if several and table.outcome else ""
    stubs = stubs_of(table, labels, prefix=prefix)
    records = table.frame.to_dict("records")
    for stub, each in zip(stubs, records, strict=True):
        record = {str(name): value for name, value in each.items()}
        codes = [(column, str(record[column])) for column in table.by]
        if table.categories:
            codes.append((table.outcome or "", str(record[LEVEL])))
        in_line = rounding_of_line(rounding, record["se"], record["estimate"])
        yield Row(
            stub,
            tuple(labels.level(column, code) for column, code in codes),
            tuple(_cell(column.key, record, in_line, table, marks) for column in columns),
        )


def stubs_of(table: ReleaseTable, labels: Labels, *, prefix: str = "") -> list[StubRow]:
    """The left-hand side of a table, a line for every row of its frame."""
    if table.categories:
        return level_rows(table.frame, table.by, labels, table.outcome or "", prefix=prefix)
    return stub_rows(table.frame, table.by, labels, prefix=prefix)


def _cell(
    key: str, record: dict[str, Any], rounding: Rounding, table: ReleaseTable, marks: _Marks
) -> Cell:
    if key == "n":
        if not isinstance(record["n"], int):  # not published of rows by an outcome
            return Cell(ABSENT)
        return Cell(f"{record['n']:,}", float(record["n"]))
    if key == "flag":
        codes = [c for c in record["flag"].split(FLAG_SEPARATOR) if c in table.flag_codes]
        return Cell(FLAG_SEPARATOR.join(codes))
    estimate, se = record["estimate"], record["se"]
    found = tuple(marks.of(text) for text in _cell_footnotes(key, record, table))
    if key == "paired":
        error = f" ({rounding.show(se, size=estimate)})" if not math.isnan(estimate) else ""
        return Cell(rounding.show(estimate) + error, marks=found)
    value = record[key]
    text = rounding.show(value, size=estimate if key == "se" else None)
    number = None if text.startswith("<") else rounding.rounded(value)
    return Cell(text, number, found, rounding.decimals)


def _cell_footnotes(key: str, record: dict[str, Any], table: ReleaseTable) -> list[str]:
    """What stands below the table about one cell, in order."""
    flags = record["flag"].split(FLAG_SEPARATOR)
    texts: list[str] = []
    missing, empty_somewhere = math.isnan(record["estimate"]), EMPTY_DATASET_FLAG in flags
    if key in ("estimate", "paired"):
        if empty_somewhere and not statistic_of(table.statistic).additive:
            return [_EMPTY_MEAN]
        if missing and NO_SAMPLE_FLAG not in flags:
            return [_WITHHELD]
        texts = [text for flag, text in _FOOTNOTES.items() if flag in flags]
    without_error = math.isnan(record["se"]) and not missing
    if key in ("se", "paired") and without_error:
        alone = isinstance(record["n"], int) and record["n"] == 1
        texts += [_ONE_RECORD] * alone + [_EMPTY] * empty_somewhere
    if key in ("ci_lower", "ci_upper") and not math.isnan(record["se"]):
        of_quantile = statistic_of(table.statistic).share_below is not None
        texts += [_NO_END if of_quantile else _NO_INTERVAL] * math.isnan(record[key])
    return texts


def _notes(tables: Sequence[ReleaseTable], presentation: Presentation) -> list[str]:
    notes = [presentation.banner] if presentation.banner else []
    if presentation.source:
        notes.append(f"Source: {presentation.source}")
    notes.extend(dict.fromkeys(note for table in tables for note in table.notes))
    return [*notes, presentation.privacy_note]
