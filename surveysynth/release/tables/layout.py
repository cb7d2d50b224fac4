"""A table as readers see it, before any format: columns, rows of shown numbers, footnotes, notes.

All formats share one rounding of numbers. A writer arranges and escapes what is here; it rounds
nothing and chooses no words of its own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from surveysynth._support.messages import capitalized
from surveysynth._support.types import FloatArray
from surveysynth.config.sections import LabelSection
from surveysynth.estimation.statistics import LEVEL, statistic_of
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
from surveysynth.survey.where import Relation, folded, parse_where

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Labels:
    """Labels of all columns, as a specification has them; others are shown by their names."""

    columns: Mapping[str, LabelSection] = field(default_factory=dict)

    def of(self, column: str) -> LabelSection:
        """Return the column's labels, or the defaults."""
        return self.columns.get(column, LabelSection())

    def title(self, column: str) -> str:
        """Return the column's title, or its name."""
        return self.of(column).title or column

    def titled_with_unit(self, column: str) -> str:
        """Return the title followed by its unit in brackets, if there is one."""
        unit = self.of(column).unit
        return f"{self.title(column)} ({unit})" if unit else self.title(column)

    def level(self, column: str, code: str) -> str:
        """Return the label of a code, or the code itself."""
        return self.of(column).levels.get(code, code)


def span(counts: Iterable[int]) -> str:
    """Write the range of at least one count: ``12``, or ``4 to 12``."""
    found = list(counts)
    least, most = min(found), max(found)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words: ``a``, ``a and b``, ``a, b and c``; ``last`` stands before the last one."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_WORDS = {
    "==": "is", "!=": "is not", "<": "below", "<=": "at most", ">": "above", ">=": "at least",
    "in": "is", "not in": "is not",
}  # fmt: skip


def where_words(where: str, labels: Labels) -> str:
    """Write a condition in words, such as ``Age at least 18 and Field is Biology or Physics``."""

    def relation(each: Relation) -> tuple[str, str]:
        codes = [value if isinstance(value, str) else f"{value:.15g}" for value in each.values]
        values = listed([labels.level(each.column, code) for code in codes], "or")
        return f"{labels.title(each.column)} {_WORDS[each.operator]} {values}", ""

    def negated(part: tuple[str, str]) -> tuple[str, str]:
        return f"not ({part[0]})", ""

    def joined(word: str, parts: list[tuple[str, str]]) -> tuple[str, str]:
        texts = [f"({text})" if inner else text for text, inner in parts]
        return f" {word} ".join(texts), word

    return folded(parse_where(where), relation, negated, joined)[0]


ABSENT = "–"
"""Shown where there is no number; a footnote says why."""

KNOWN = "†"
"""Shown for the standard error and the interval of a known total."""

_NOISE = 1e-9


@dataclass(frozen=True)
class Rounding:
    """Round to multiples of ``base``, show ``decimals`` digits; ``factor`` 100 shows percent.

    error: the same of standard errors, where they have another base.
    """

    base: float
    decimals: int
    factor: float = 1.0
    error: "Rounding | None" = None

    def rounded(self, value: float) -> float | None:
        """Return the number that ``show`` writes, None where there is none."""
        if math.isnan(value):
            return None
        # A second rounding removes what multiplying by a base such as 0.01 leaves behind.
        return round(round(value * self.factor / self.base) * self.base, self.decimals) + 0.0

    def show(self, value: float, *, size: float | None = None) -> str:
        """Write the number as text.

        With ``size``, the estimate of a standard error, an error that is not zero never shows as
        zero but as less than one unit. Floating-point noise is zero.
        """
        if size is not None and self.error is not None:
            return self.error.show(value, size=size)
        rounded = self.rounded(value)
        if rounded is None:
            return ABSENT
        if size is not None and rounded == 0 and not is_known(size, value):
            return f"<{self.base:,.{self.decimals}f}"
        text = f"{abs(rounded):,.{self.decimals}f}"
        return f"−{text}" if rounded < 0 else text


def is_known(estimate: float, se: float) -> bool:
    """Return whether a standard error is none but for floating-point noise."""
    return se <= _NOISE * max(abs(estimate), _NOISE)


@dataclass(frozen=True)
class Warranted:
    """One unit a column: the power of ten of its median standard error.

    Standard errors have half that unit.
    """

    def of(self, se: FloatArray, estimate: FloatArray) -> Rounding:
        """Return the rounding of a column of estimates with standard errors, (D,) each.

        Numbers without errors are rounded to whole units, small ones to five digits.
        """
        found = se[np.isfinite(se) & (se > _NOISE * np.abs(estimate))]
        if found.size:
            power = math.floor(math.log10(np.median(found)))
            halves = Rounding(10.0**power / 2, max(1 - power, 0) if power < 1 else 0)
            return Rounding(10.0**power, max(-power, 0), error=halves)
        found = np.abs(estimate[np.isfinite(estimate) & (estimate != 0)])
        if not found.size or found.max() >= 1e5 or (found == np.round(found)).all():
            return to_digits(0)
        return to_digits(max(4 - math.floor(math.log10(np.median(found))), 0))


AnyRounding: TypeAlias = Rounding | Warranted


def rounding_of_column(rule: AnyRounding, se: FloatArray, estimate: FloatArray) -> Rounding:
    """Return the rounding of one column of a table, for readers."""
    return rule.of(se, estimate) if isinstance(rule, Warranted) else rule


def to_digits(digits: int) -> Rounding:
    """Round means and totals to ``digits`` decimals; a negative number means tens, hundreds, ..."""
    return Rounding(10.0**-digits, max(digits, 0))


def to_percent(digits: int = 1) -> Rounding:
    """Show proportions as percentages with ``digits`` decimals."""
    return Rounding(10.0**-digits, max(digits, 0), factor=100.0)


def show_ratio(value: float) -> str:
    """Write a number of standard errors or a ratio with about three digits."""
    if not math.isfinite(value):
        return ABSENT
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{abs(value):,.{digits}f}"
    return f"−{text}" if value < 0 and float(text.replace(",", "")) else text


_BY_COLUMNS_IN_STUB = 2


@dataclass(frozen=True)
class StubRow:
    """One line: the group heading above it ("" for none), label, indent, bold or not."""

    group: str
    label: str
    indent: int
    strong: bool


def stub_rows(
    frame: "pd.DataFrame", by: Sequence[str], labels: Labels, *, prefix: str = ""
) -> list[StubRow]:
    """Return one line for every row of ``frame``, in its order.

    The last two by-columns share the stub: a level of the first of them heads the levels of the
    second, and its own line is the margin over them. Earlier by-columns, and ``prefix``, make the
    group heading; where there are no such margins, the last but one is among these.
    """
    shared = _BY_COLUMNS_IN_STUB
    if len(by) > 1 and not (frame[by[-1]] == labels.of(by[-1]).margin).any():
        shared = 1
    outer, inner = by[: len(by) - shared], by[len(by) - shared :]
    rows = []
    for record in frame[list(by)].itertuples(index=False, name=None):
        codes = dict(zip(by, record, strict=True))
        headings = [f"{labels.title(c)}: {labels.level(c, codes[c])}" for c in outer]
        group = " · ".join([prefix, *headings] if prefix else headings)
        margins = [codes[column] == labels.of(column).margin for column in inner]
        if len(inner) < _BY_COLUMNS_IN_STUB:
            label = labels.level(inner[0], codes[inner[0]]) if inner else "All"
            rows.append(StubRow(group, label, 0, not inner or margins[0]))
            continue
        head, leaf = inner
        shown = head if margins[1] else leaf
        label = labels.level(shown, codes[shown])
        rows.append(StubRow(group, label, int(not margins[1]), margins[1]))
    return rows


def level_rows(
    frame: "pd.DataFrame", by: Sequence[str], labels: Labels, outcome: str, *, prefix: str = ""
) -> list[StubRow]:
    """Return one line for every row of ``frame``, which has an outcome's levels in each domain.

    The domain, and ``prefix``, make the group heading; a line is a level.
    """
    rows = []
    for level, *codes in frame[[LEVEL, *by]].itertuples(index=False, name=None):
        inside = [
            f"{labels.title(column)}: {labels.level(column, code)}"
            for column, code in zip(by, codes, strict=True)
            if code != labels.of(column).margin
        ]
        domain = inside or codes[:1]
        group = " · ".join([prefix, *domain] if prefix else domain)
        rows.append(StubRow(group, labels.level(outcome, level), 0, bool(by) and not inside))
    return rows


def level_heading(outcomes: Sequence[str], labels: Labels) -> str:
    """Return the heading of the levels: the outcome's title, or for several a common word."""
    return labels.title(outcomes[0]) if len(outcomes) == 1 else "Level"


def stub_heading(by: Sequence[str], labels: Labels) -> str:
    """Return the titles of the by-columns that share the stub."""
    return listed([labels.title(column) for column in by[-_BY_COLUMNS_IN_STUB:]]) or "Domain"


Record: TypeAlias = Mapping[str, Any]
"""One row of a table's frame."""


def crossed(table: ReleaseTable) -> tuple[ReleaseTable, list[tuple[Record, ...]]]:
    """Return the table of the first level across, and for each line the records of all levels.

    The table has lost the column of that level.
    """
    parts = [part for _, part in table.frame.groupby(table.by[-1], sort=False, observed=True)]
    head = replace(table, by=table.by[:-1], frame=parts[0].reset_index(drop=True))
    return head, list(zip(*(records_of(replace(table, frame=part)) for part in parts), strict=True))


def records_of(table: ReleaseTable) -> Sequence[Record]:
    """Return the rows of a table's frame."""
    records = table.frame.to_dict("records")
    return [{str(name): value for name, value in each.items()} for each in records]


LayoutKind = Literal["columns", "compact", "crosstab", "sheet_crosstab"]

FOOTNOTES = {
    NO_SAMPLE_FLAG: "No sample records in this cell, hence no estimate.",
    SMALL_SAMPLE_FLAG: f"Fewer than {SMALL_SAMPLE} sample records: use with great caution.",
    POOLED_FLAG: "Mostly records of levels with few records, which are modeled as the average of "
    "other levels: the row shows little of its own.",
    EMPTY_DATASET_FLAG: "No records in some synthetic dataset, which counts as zero there.",
    SMALL_DATASET_FLAG: f"Fewer than {SMALL_SAMPLE} records in some synthetic dataset: use with "
    "great caution.",
}
"""What flags of sizes and of the model mean."""

_EMPTY = "No records in any synthetic dataset: a standard error cannot be estimated."
_WITHHELD = "Withheld as too unreliable."
_KNOWN = f"A known total: it has no standard error and no interval ({KNOWN})."
_ROUNDED = "Details may not add to totals because of rounding."
_FLAGGED = "Flag {}; the notes say what it means."
_IN_BRACKETS = "Standard errors are in brackets."
_ELSEWHERE = "Intervals and numbers of sample records are in the csv file."
_ONE_RECORD = "One sample record: a standard error cannot be estimated."
_NO_INTERVAL = "At 0% and 100% an interval cannot be computed from a standard error."

_NO_END = "Too few records for this end of the interval."


@dataclass(frozen=True)
class Presentation:
    """Texts, labels and rounding that the statistics of one table of a release share.

    title, source, universe, place, notes: the caller's, may be empty; numbers: of tables by
    statistic; privacy_note: one sentence with the epsilon; banner: a warning above and below the
    table, empty for a private release; rounding: by statistic and outcome (None for counts); kind:
    "columns" has estimate, standard error and interval in columns, "compact" estimate (standard
    error) in one, "crosstab" one such column for each level of the last by-column
    ("sheet_crosstab": both apart, for worksheets); name: of one table among several; subpopulation:
    in words; csv: whether there is a csv file.
    """

    title: str
    source: str
    privacy_note: str
    banner: str
    labels: Labels
    rounding: dict[tuple[str, str | None], AnyRounding]
    kind: LayoutKind = "columns"
    name: str = ""
    subpopulation: str = ""
    csv: bool = False
    universe: str = ""
    place: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def for_sheets(self) -> "Presentation":
        """The same for worksheets: every number has a column of its own."""
        crosstab = self.kind == "crosstab"
        return replace(self, kind="sheet_crosstab" if crosstab else "columns")


@dataclass(frozen=True)
class Column:
    """One column of numbers; ``spanner`` is a heading that it shares with its neighbors."""

    key: str
    heading: str
    spanner: str = ""

    @property
    def in_one_line(self) -> str:
        """The heading after its spanner, both unescaped since either may be a label of the user."""
        return f"{self.spanner}: {self.heading}" if self.spanner else self.heading


@dataclass(frozen=True)
class Cell:
    """Displayed text, and the same rounded number for spreadsheets (None where text alone says it).

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

    stem distinguishes it from the other tables; title and subtitle (may be empty) stand above;
    by_titles head the by-columns and stub_heading those that share the stub; footnotes are (mark,
    text) in the order of their marks; notes end with the privacy note; banner as in
    ``Presentation``.
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
    def summary(self) -> str:
        """The arrangement of the table, for people who use a screen reader."""
        headings = [column.in_one_line for column in self.columns]
        parts = [
            f"{len(self.rows):,} rows by {self.stub_heading}, {len(self.columns)} columns: "
            f"{'; '.join(headings)}.",
            "Rows stand under group headings." if self.grouped else "",
            "A row in bold is the margin over the rows below it." if any(
                row.stub.strong for row in self.rows
            ) else "",
            f"Footnotes ({len(self.footnotes)}) and notes ({len(self.notes)}) follow.",
        ]  # fmt: skip
        return " ".join(filter(None, parts))

    @property
    def grouped(self) -> bool:
        """True if rows are under group headings."""
        return any(row.stub.group for row in self.rows)


def describe(
    tables: Sequence[ReleaseTable], presentation: Presentation, word: str = "Table"
) -> str:
    """Return the title: number, statistic, universe, by what, subpopulation, place and time."""
    labels, kind = presentation.labels, statistic_of(tables[0].statistic)
    outcomes = listed([labels.title(t.outcome) for t in tables if t.outcome is not None])
    shown = capitalized(kind.heading.removeprefix("Estimated "))
    if outcomes:  # "Mean annual salary", "Percentage: heating"
        amount = kind.contrast is None and not kind.unit
        shown += f"{'' if amount else ':'} {_within(outcomes)}"
    if presentation.universe:
        shown += f" of {presentation.universe}"
    if by := [_within(labels.title(column)) for column in tables[0].by]:
        shown += f", by {listed(by)}"
    if presentation.subpopulation:
        shown += f"; {presentation.subpopulation}"
    if presentation.place:
        shown += f": {presentation.place}"
    number = presentation.numbers.get(tables[0].statistic)
    return shown if number is None else f"{word} {number}. {shown}"


def unit_of(tables: Sequence[ReleaseTable], presentation: Presentation) -> str:
    """Return the line below the title: the unit of the estimates, "" without one."""
    kind, units = statistic_of(tables[0].statistic), {
        presentation.labels.of(table.outcome).unit for table in tables if table.outcome is not None
    }  # fmt: skip
    if kind.percent:
        return "Percent"
    unit = units.pop() if len(units) == 1 and kind.unit != "ratio" else None
    return f"In {unit}" if unit else ""


def _within(title: str) -> str:
    """Return a title as it stands within a sentence: "Annual salary" but "GDP", "US dollars"."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def lay_out(tables: Sequence[ReleaseTable], presentation: Presentation) -> Layout:
    """Lay out the tables of one statistic, one an outcome, as one table."""
    labels, first = presentation.labels, tables[0]
    flagged = any(table.flag_codes for table in tables)
    across = "crosstab" in presentation.kind and bool(first.by)
    columns = (
        _across(first, presentation) if across
        else _columns(first, presentation.kind, flagged=flagged)
    )  # fmt: skip
    marks: _Marks = {}
    rows = [
        row
        for table in tables
        for row in _rows(table, presentation, columns, marks, several=len(tables) > 1)
    ]
    by = first.by[:-1] if across else first.by
    by_titles = tuple(labels.title(column) for column in by)
    heading = stub_heading(by, labels)
    if first.categories:
        heading = level_heading([table.outcome or "" for table in tables], labels)
        by_titles = (*by_titles, heading)
    return Layout(
        stem="-".join(filter(None, [statistic_of(first.statistic).stem, presentation.name])),
        title=describe(tables, presentation),
        subtitle=" · ".join(filter(None, [presentation.title, unit_of(tables, presentation)])),
        stub_heading=heading,
        by_titles=by_titles,
        columns=columns,
        rows=tuple(rows),
        footnotes=tuple((mark, text) for text, mark in marks.items()),
        notes=tuple(_notes(tables, presentation, across=across)),
        banner=presentation.banner,
    )


@dataclass(frozen=True, eq=False)
class TableSet:
    """The input of every writer: all tables of a release by statistic, and what they share.

    There is one table an outcome for each statistic.
    """

    tables: Mapping[str, Sequence[ReleaseTable]]
    presentation: Presentation

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """The tables of each statistic as one for readers, laid out once for all formats."""
        return {
            statistic: lay_out(of_outcomes, self.presentation)
            for statistic, of_outcomes in self.tables.items()
        }


_Marks: TypeAlias = dict[str, str]
"""Letters of footnotes by their texts, in the order in which the table first needs them."""


def _columns(table: ReleaseTable, kind: LayoutKind, *, flagged: bool) -> tuple[Column, ...]:
    heading = statistic_of(table.statistic).heading
    interval = table.interval_words
    numbers = (
        (Column("paired", f"{heading} (standard error)"),)
        if kind in ("compact", "crosstab")
        else (
            Column("estimate", heading),
            Column("se", "Standard error"),
            Column("ci_lower", "Lower", interval),
            Column("ci_upper", "Upper", interval),
        )
    )
    flag = (Column("flag", "Flag"),) if flagged else ()
    return (*numbers, Column("n", "Sample size (unweighted)"), *flag)


def _across(table: ReleaseTable, presentation: Presentation) -> tuple[Column, ...]:
    """Return the columns of a cross table: one, or two, for each level of the last by-column."""
    column, labels = table.by[-1], presentation.labels
    codes = dict.fromkeys(table.frame[column])  # the margin first
    levels = enumerate((labels.level(column, code) for code in codes), start=1)
    title, heading = labels.title(column), statistic_of(table.statistic).heading
    if presentation.kind == "crosstab":
        return tuple(Column(f"paired-{number}", level, title) for number, level in levels)
    parts = (("estimate", heading), ("se", "Standard error"))
    return tuple(
        Column(f"{key}-{number}", words, level) for number, level in levels for key, words in parts
    )


def _rows(
    table: ReleaseTable,
    presentation: Presentation,
    columns: Sequence[Column],
    marks: _Marks,
    *,
    several: bool,
) -> Iterator[Row]:
    labels = presentation.labels
    rounding = rounding_of_table(table, presentation)
    prefix = labels.titled_with_unit(table.outcome) if several and table.outcome else ""
    across = bool(table.by) and "-" in columns[0].key
    head, lines = crossed(table) if across else (table, [(each,) for each in records_of(table)])
    keys = [column.key.partition("-")[0] for column in columns[: len(columns) // len(lines[0])]]
    for stub, records in zip(stubs_of(head, labels, prefix=prefix), lines, strict=True):
        codes = [(column, str(records[0][column])) for column in head.by]
        if table.categories:
            codes.append((table.outcome or "", str(records[0][LEVEL])))
        cells: list[Cell] = []
        for record in records:
            cells += (_cell(key, record, rounding, table, marks, across=across) for key in keys)
        yield Row(stub, tuple(labels.level(column, code) for column, code in codes), tuple(cells))


def rounding_of_table(table: ReleaseTable, presentation: Presentation) -> Rounding:
    """Return the one rounding of a table's estimates."""
    numbers = (table.frame[name].to_numpy(dtype=np.float64) for name in ("se", "estimate"))
    return rounding_of_column(presentation.rounding[table.statistic, table.outcome], *numbers)


def stubs_of(table: ReleaseTable, labels: Labels, *, prefix: str = "") -> list[StubRow]:
    """Return the left-hand side of a table, a line for every row of its frame."""
    if table.categories:
        return level_rows(table.frame, table.by, labels, table.outcome or "", prefix=prefix)
    return stub_rows(table.frame, table.by, labels, prefix=prefix)


def _cell(
    key: str,
    record: Record,
    rounding: Rounding,
    table: ReleaseTable,
    marks: _Marks,
    *,
    across: bool,
) -> Cell:
    """Make a cell; ``across``: in a cross table, which has no column of flags."""
    if key == "n":
        if not isinstance(record["n"], int):  # not published of rows by an outcome
            return Cell(ABSENT)
        return Cell(f"{record['n']:,}", float(record["n"]))
    if key == "flag":
        codes = [c for c in record["flag"].split(FLAG_SEPARATOR) if c in table.flag_codes]
        return Cell(FLAG_SEPARATOR.join(codes))
    estimate, se = record["estimate"], record["se"]
    texts = _cell_footnotes(key, record, table)
    known = statistic_of(table.statistic).additive and is_known(estimate, se) and estimate != 0
    if known:
        rounding = to_digits(0)
        texts += [_KNOWN] * (key in ("estimate", "paired"))
    if across and key in ("estimate", "paired"):
        flags = record["flag"].split(FLAG_SEPARATOR)
        texts += [_FLAGGED.format(code) for code in flags if code in table.flag_codes]
    found = tuple(marks.setdefault(text, ascii_lowercase[len(marks)]) for text in texts)
    if key == "paired":
        error = KNOWN if known else rounding.show(se, size=estimate)
        error = f" ({error})" if not math.isnan(estimate) else ""
        return Cell(rounding.show(estimate) + error, marks=found)
    if known and key != "estimate":
        return Cell(KNOWN)
    value = record[key]
    if key == "se":
        rounding = rounding.error or rounding
    text = rounding.show(value, size=estimate if key == "se" else None)
    number = None if text.startswith("<") else rounding.rounded(value)
    return Cell(text, number, found, rounding.decimals)


def _cell_footnotes(key: str, record: Record, table: ReleaseTable) -> list[str]:
    """Return the footnotes of one cell, in order."""
    flags = record["flag"].split(FLAG_SEPARATOR)
    texts: list[str] = []
    missing, empty_somewhere = math.isnan(record["estimate"]), EMPTY_DATASET_FLAG in flags
    if key in ("estimate", "paired"):
        if missing and NO_SAMPLE_FLAG not in flags:
            return [] if table.flag_codes else [_WITHHELD]
        texts = [
            text for flag, text in FOOTNOTES.items()
            if flag in flags and not (table.flag_codes and flag == SMALL_SAMPLE_FLAG)
        ]  # fmt: skip
    without_error = math.isnan(record["se"]) and not missing
    if key in ("se", "paired") and without_error:
        alone = isinstance(record["n"], int) and record["n"] == 1
        texts += [_ONE_RECORD] * alone + [_EMPTY] * empty_somewhere
    if key in ("ci_lower", "ci_upper") and not math.isnan(record["se"]):
        of_quantile = statistic_of(table.statistic).share_below is not None
        texts += [_NO_END if of_quantile else _NO_INTERVAL] * math.isnan(record[key])
    return texts


def _notes(
    tables: Sequence[ReleaseTable], presentation: Presentation, *, across: bool
) -> list[str]:
    notes = [presentation.banner] if presentation.banner else []
    if across:
        remarks = [_IN_BRACKETS] * (presentation.kind == "crosstab")
        notes += filter(None, [" ".join([*remarks, *[_ELSEWHERE] * presentation.csv])])
    notes.extend(presentation.notes)
    notes.extend(dict.fromkeys(note for table in tables for note in table.notes))
    found = {code for table in tables for row in table.frame["flag"] for code in
             row.split(FLAG_SEPARATOR)}  # fmt: skip
    notes.extend(tables[0].flags.legend(found))
    kind = statistic_of(tables[0].statistic)
    if kind.additive or kind.by_level:
        notes.append(_ROUNDED)
    if presentation.source:
        notes.append(f"Source: {presentation.source}")
    return [*notes, *dict.fromkeys(t.method for t in tables if t.method), presentation.privacy_note]
