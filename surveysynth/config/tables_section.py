"""The section ``[tables]`` of a specification file, and the formats of tables and figures.

``FORMATS`` describes formats for the specification, the writers, the README and ``check``. A writer
is imported when it is first used: those of HTML and workbooks load libraries that take a second.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from surveysynth._support.messages import listing, nearest
from surveysynth.config.sections import Names, Section, Text, as_tuple, distinct, known_name
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import COUNT, MEAN, STATISTICS, statistic_of
from surveysynth.estimation.subpopulation import levels_present
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.where import Relation, Value, columns_of, parse_where, relations

Folder: TypeAlias = Literal["tables", "figures"]
TABLES_FOLDER: Folder = "tables"
FIGURES_FOLDER: Folder = "figures"


@dataclass(frozen=True)
class Format:
    """One format.

    ending: the suffix of its files; meaning: a description for readers of a release; writer:
    "module:function", called as function(shown, folder, format) with the tables as
    ``release.tables.layout.TableSet``; one_file: the name of a file with all tables, if there is
    one; file_each: True if each statistic has a file; folder: the folder in a release.
    """

    ending: str
    meaning: str
    writer: str
    one_file: str | None = None
    file_each: bool = True
    folder: Folder = TABLES_FOLDER

    def file_of(self, statistic: str) -> str:
        """Return the file name of a statistic."""
        return f"{statistic_of(statistic).stem}.{self.ending}"

    def files(self, statistics: Sequence[str]) -> Iterator[str]:
        """Yield the names of all files."""
        if self.file_each:
            yield from map(self.file_of, statistics)
        if self.one_file:
            yield self.one_file

    def load_writer(self) -> "Callable[[Any, Any, Format], None]":
        """Import and return the writer."""
        module, _, name = self.writer.partition(":")
        function: Callable[[Any, Any, Format], None] = getattr(import_module(module), name)
        return function


_WRITERS = "surveysynth.release.writers"


def _figure(ending: str) -> Format:
    return Format(
        ending, "estimates with their intervals", f"{_WRITERS}.figures:write",
        folder=FIGURES_FOLDER,
    )  # fmt: skip


FORMATS: dict[str, Format] = {
    "csv": Format("csv", "unrounded numbers with codes, for programs", f"{_WRITERS}.csv:write"),
    "html": Format(
        "html", "rounded numbers with labels, for reading in a browser", f"{_WRITERS}.html:write"
    ),
    "latex": Format(
        "tex", "the same for LaTeX; all_tables.tex reads the others in", f"{_WRITERS}.latex:write",
        one_file="all_tables.tex",
    ),
    "xlsx": Format(
        "xlsx", "the same as a workbook with contents and notes", f"{_WRITERS}.xlsx:write",
        one_file="tables.xlsx", file_each=False,
    ),
    "ods": Format(
        "ods", "the same workbook as an OpenDocument spreadsheet", f"{_WRITERS}.ods:write",
        one_file="tables.ods", file_each=False,
    ),
    "markdown": Format("md", "the same as Markdown", f"{_WRITERS}.markdown:write"),
    "png": _figure("png"),
    "svg": _figure("svg"),
    "pdf": _figure("pdf"),
}  # fmt: skip
"""Formats by their names in a specification, in the order in which messages list them."""


def table_files(
    statistics: Sequence[str], formats: Sequence[str], table: str = ""
) -> Iterator[tuple[str, str, Format]]:
    """Yield folder, file name and format of every file of these tables and figures.

    ``table``: the name of one of several tables, whose files are in a folder of that name.
    """
    for name in formats:
        for file in FORMATS[name].files(statistics):
            yield folder_of(FORMATS[name], table), file, FORMATS[name]


def folder_of(made: Format, table: str = "") -> str:
    """Return the folder of a release for a format of a table."""
    return f"{made.folder}/{table}" if table else made.folder


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
#: Devices of Windows, which are no names for folders there.
_DEVICE = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]", re.IGNORECASE)

#: Rule sets; with "marked" no number is withheld.
RULE_SETS = ("none", "nchs", "nchs_marked", "statcan", "statcan_marked")
SEVERITIES = ("mark", "suppress")
LIMITS = ("rse", "relative_width", "n", "df")

_EXAMPLE = "for example flags = { mark = { rse = 0.2 }, suppress = { rse = 0.4, n = 10 } }"

FlagChoice = str | Mapping[str, Mapping[str, int | float]]
"""A name of ``RULE_SETS``, or limits by severity and name."""


def table_name(name: str) -> str:
    """Return the name if a folder can have it; otherwise raise ``ValueError``."""
    if _DEVICE.fullmatch(name):
        raise ValueError(
            f"{name!r} is a device on Windows, so a folder cannot have this name; rename the "
            "table, for example to 'income_by_region'."
        )
    if not _NAME.fullmatch(name):
        raise ValueError(
            "expected a name of 1 to 63 letters, digits, _ and -, which also names its folder, "
            f"such as 'income_by_region', got {name!r}."
        )
    return name


def where_text(text: str) -> str:
    """Return the condition if it can be read; otherwise raise ``ValueError``."""
    try:
        parse_where(text)
    except InputError as error:
        raise ValueError(str(error)) from None
    return text


def statistic_name(value: Any) -> Any:
    """Return a name of the registry, or one with arguments in its standard form."""
    if not (isinstance(value, str) and "(" in value):
        return known_name(value, tuple(STATISTICS))
    try:
        return statistic_of(value).name
    except InputError as error:
        raise ValueError(str(error)) from None


def has_files(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the statistics; raise ``ValueError`` if two have the same file name."""
    stems = [statistic_of(name).stem.casefold() for name in names]
    for name, stem in zip(names, stems, strict=True):
        if stems.count(stem) > 1:
            raise ValueError(
                f"{name!r} and another statistic would both write {stem}; leave one out."
            )
    return names


def check_flags(value: Any) -> FlagChoice:
    """Return the given choice; raise ``ValueError`` with a line for each mistake."""
    if isinstance(value, Mapping):
        problems = _thresholds(value)
        if problems:
            raise ValueError("\n".join(problems))
        return {str(severity): dict(limits) for severity, limits in value.items()}
    if isinstance(value, str) and value in RULE_SETS:
        return value
    hint = nearest(value, RULE_SETS) if isinstance(value, str) else ""
    shown = repr(value) if isinstance(value, str | int | float) else "another value"
    raise ValueError(
        f"expected one of {', '.join(map(repr, RULE_SETS))} or a table of thresholds, "
        f"got {shown[:60]}.{hint}"
    )


def _thresholds(given: Mapping[Any, Any]) -> list[str]:
    if not given:
        return [f"the table of thresholds is empty; {_EXAMPLE}."]
    problems = []
    for severity, limits in given.items():
        if severity not in SEVERITIES:
            problems.append(
                f"unknown key {severity!r}.{nearest(str(severity), SEVERITIES)} "
                f"Known: {listing(SEVERITIES)}; {_EXAMPLE}."
            )
        elif not isinstance(limits, Mapping) or not limits:
            problems.append(f"{severity}: expected a table of limits; {_EXAMPLE}.")
        else:
            for name, limit in limits.items():
                problems += _limit(severity, name, limit)
    return problems


def _limit(severity: str, name: Any, limit: Any) -> list[str]:
    where = f"{severity}.{name}"
    if name not in LIMITS:
        return [f"{where}: unknown limit.{nearest(str(name), LIMITS)} Known: {listing(LIMITS)}."]
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not 0 < limit < float("inf"):
        return [f"{where}: expected a positive number."]
    if name == "n" and not isinstance(limit, int):
        return [f"{where}: expected a whole number, got {limit!r}."]
    return []


def _one_of(known: Callable[[], Sequence[str]]) -> BeforeValidator:
    """Return a validator of names in a registry, with the message of a Literal."""
    return BeforeValidator(lambda value: known_name(value, known()))


Statistics = Annotated[
    tuple[Annotated[str, BeforeValidator(statistic_name)], ...],
    BeforeValidator(as_tuple),
    AfterValidator(distinct),
    AfterValidator(has_files),
    Field(min_length=1),
]
Formats = Annotated[
    tuple[Annotated[str, _one_of(lambda: tuple(FORMATS))], ...],
    BeforeValidator(as_tuple),
    AfterValidator(distinct),
    Field(min_length=1),
]
Microdata = Literal["csv", "parquet", "dta", "sav"] | None


class TablesSection(Section):
    """``[tables]``: which tables to make, and how to write them."""

    about = (
        "Which tables to make, and how to write them. Tables are computed from synthetic data, so "
        "none of these keys costs epsilon. Several tables are several sections [[tables]], each "
        "with a name. The section [all_tables] may then have any of these keys except name and "
        "where: they are the defaults of each table, and its title is the title of the whole "
        "release. The keys microdata and microdata_digits then belong in [all_tables] only."
    )

    name: Annotated[str, AfterValidator(table_name)] | None = None
    """For one of several [[tables]]: the name of its folder, tables/NAME/, and its name in
    messages. Default: none: there is one table. Public: The name."""
    by: Names = ()
    """The columns that define the rows: all cells and all margins. An outcome with levels may be
    one of them. Type: list of names of columns. Default: none: one row. Public: Their values record
    by record, unless the column is an outcome; and so all unweighted cell sizes."""
    where: Annotated[str, AfterValidator(where_text)] | None = None
    """The subpopulation of the table. A condition compares columns with constants by ==, !=, <, <=,
    > and >=, in, not in, and joins comparisons by and, or, not, and parentheses. It may use columns
    of the model and outcomes with levels. Variances are those of a domain. Type: a condition, such
    as "age >= 18 and field in ('A', 'B')". Default: none: all records. Public: The condition, and
    which records satisfy it if it uses public columns only."""
    statistics: Statistics = (COUNT.name, MEAN.name)
    """The statistics, with one table for each: "count", "total", "mean", "median", "proportion",
    "share"; "quantile(0.9)"; "ratio(tax, income)"; "difference(mean, sex: f - m)"; "ratio(count,
    region: margin)"; "share(region)". Type: a list of statistics. Public: The tables."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """The confidence level of intervals. Public: The number."""
    flags: FlagChoice = "none"
    """Rules for reliability: those of the US National Center for Health Statistics, of Statistics
    Canada, or your own. They use published numbers and public sample sizes only. "nchs_marked" and
    "statcan_marked" mark the numbers that these rules withhold. Type: "none", "nchs",
    "nchs_marked", "statcan", "statcan_marked", or limits: { mark = { .. }, suppress = { .. } } of
    rse, relative_width, n and df. Public: The flags, and with "marked" all numbers."""
    layout: Literal["columns", "compact", "crosstab"] = "columns"
    """The layout of tables for reading: "columns" has estimate, standard error and interval in
    columns, "compact" has estimate (standard error) in one, and "crosstab" has the levels of the
    last by column side by side. Files for programs do not change. Public: Nothing else."""
    round_counts: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """The number to whose multiples counts are rounded in tables for reading. Default: the power of
    ten of the median standard error. Public: Nothing else; csv files are not rounded."""
    microdata: Microdata = None
    """The format of the synthetic datasets. dta (Stata) and sav (SPSS) have labels of columns and
    of values. Default: parquet if the survey is a parquet file, otherwise csv. Public: The same
    synthetic datasets in every format."""
    microdata_digits: Annotated[int, Field(ge=3, le=9)] = 6
    """The number of significant digits of synthetic amounts and weights. Tables are computed from
    the rounded values. Public: The microdata with that many digits, as the statement on
    floating-point numbers reports."""
    title: Text = ""
    """The title of the release, which stands below that of every table: tables make their own from
    the keys that follow. Public: The text."""
    universe: Text = ""
    """The population that the tables describe, in the plural, as their titles say it: "doctorate
    holders". Public: The text."""
    place: Text = ""
    """The place and the time in titles: "United States, 2026". Public: The text."""
    number: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """The number of the first statistic's table; the next statistics follow. Default: none: titles
    without numbers. Public: The number."""
    notes: tuple[Text, ...] = ()
    """Notes of your own, the first below every table. Type: list of texts. Public: The texts."""
    source: Text = ""
    """The source line below every table. Public: The text."""
    formats: Formats = ("csv", "html")
    """The file formats of every table. "csv" has unrounded numbers for programs, the others are for
    readers; "svg", "png" and "pdf" are figures of the estimates with their intervals. Public: The
    same numbers."""

    @field_validator("flags", mode="plain")
    @classmethod
    def _flags(cls, value: Any) -> FlagChoice:
        return check_flags(value)


TABLES, ALL_TABLES = "tables", "all_tables"
#: The field of a specification that holds the section [all_tables].
_SHARED = "shared"
#: Keys of one table among several.
OWN = ("name", "where")
#: Keys of all tables of a release together.
OF_RELEASE = ("microdata", "microdata_digits")


def folded(given: Any) -> Any:
    """Return the sections of a file with ``tables`` as a list of whole sections.

    ``shared`` is the section [all_tables] where the file has [[tables]]. Raises ``ValueError`` for
    keys in the wrong section.
    """
    if not isinstance(given, Mapping):
        return given
    if _SHARED in given:
        raise ValueError(f"{_SHARED}: unknown section. Use [{ALL_TABLES}].")
    tables = given.get(TABLES, {})
    if not isinstance(tables, list | tuple):
        if ALL_TABLES in given:
            raise ValueError(
                f"{ALL_TABLES}: this section is for several [[tables]]; with one [tables], put its "
                "keys there."
            )
        return {**given, TABLES: (tables,)} if TABLES in given else given
    shared = given.get(ALL_TABLES, {})
    problems = _misplaced(shared, tables)
    if problems:
        raise ValueError("\n".join(problems))
    default = shared if isinstance(shared, Mapping) else {}
    default = {key: value for key, value in default.items() if key != "title"}
    whole = tuple({**default, **own} if isinstance(own, Mapping) else own for own in tables)
    rest = {key: value for key, value in given.items() if key != ALL_TABLES}
    return {**rest, TABLES: whole, _SHARED: shared}


def _misplaced(shared: Any, tables: Sequence[Any]) -> list[str]:
    if not tables:
        return [f"{TABLES}: expected at least one table."]
    problems = [
        f"{ALL_TABLES}.{key}: this key belongs to one table; move it to one of [[tables]]."
        for key in OWN
        if isinstance(shared, Mapping) and key in shared
    ]
    problems += [
        f"{TABLES}[{number}].{key}: this key is for all tables; move it to [{ALL_TABLES}]."
        for number, own in enumerate(tables, start=1)
        for key in OF_RELEASE
        if isinstance(own, Mapping) and key in own
    ]
    names = [own.get("name") for own in tables if isinstance(own, Mapping)]
    lower = [name.casefold() if isinstance(name, str) else None for name in names]
    for number, name in enumerate(names, start=1):
        if name is None:
            problems.append(
                f"{TABLES}[{number}].name: missing; each of several tables needs a name, which "
                'also names its folder, such as name = "income_by_region".'
            )
        elif isinstance(name, str) and lower.index(name.casefold()) < number - 1:
            problems.append(
                f"{TABLES}[{number}].name: another table is also named {name!r}; rename one."
            )
    return problems


def unfolded(content: dict[str, Any]) -> dict[str, Any]:
    """Return the sections as a file has them; the inverse of ``folded``."""
    if TABLES not in content:
        return content
    if _SHARED not in content:
        (alone,) = content[TABLES]
        return {**content, TABLES: alone}
    shared = content[_SHARED]
    own = [
        {key: value for key, value in each.items() if key == "title" or shared.get(key) != value}
        for each in content[TABLES]
    ]
    rest = {key: value for key, value in content.items() if key not in (_SHARED, TABLES)}
    return {**rest, ALL_TABLES: shared, TABLES: own}


def section_of(location: Sequence[int | str], keys: Sequence[str]) -> (
    tuple[str, tuple[str, ...]]
):
    """Return the name of an unknown key's section in a file, and those ``keys`` that it may have.

    Some keys belong to one table, others to all tables.
    """
    section = str(location[0])
    if section == "calibration":
        return "[calibration]", tuple(keys)
    if section == TABLES and isinstance(location[1], int):
        return f"[{TABLES}]", tuple(key for key in keys if key not in OF_RELEASE)
    refused = {TABLES: OWN[:1], ALL_TABLES: OWN}.get(section, ())
    return section, tuple(key for key in keys if key not in refused)


def inherited(location: Sequence[int | str], content: Mapping[str, Any]) -> bool:
    """Return True for a mistake in a key that a table has from ``all_tables``, reported there."""
    tables = content.get(TABLES)
    if len(location) < 3 or location[0] != TABLES or not isinstance(tables, list | tuple):
        return False
    own = tables[int(location[1])]
    return isinstance(own, Mapping) and location[2] not in own


def as_written(location: tuple[int | str, ...], content: Mapping[str, Any]) -> (
    tuple[int | str, ...]
):
    """Return the place of a mistake in the file, from its place after ``folded``."""
    if location[:1] == (_SHARED,):
        return (ALL_TABLES, *location[1:])
    if location[:1] == (TABLES,) and not isinstance(content.get(TABLES), list | tuple):
        return (TABLES, *location[2:])
    return location


def where_problems(
    text: str | None, declared: Sequence[Outcome], public: Sequence[str], weight: str | None
) -> list[str]:
    """Return the columns and levels that the condition of a table cannot use.

    ``public``: columns that are public and in the model; ``weight``: the confidential weight.
    """
    if text is None:
        return []
    condition = parse_where(text)
    outcomes = {outcome.name: outcome for outcome in declared}
    known = (*public, *(each.name for each in declared if not each.is_amount))
    problems = []
    for name in columns_of(condition):
        place = next(each.place for each in relations(condition) if each.column == name)
        if name in outcomes and outcomes[name].is_amount:
            problems.append(
                f"tables.where: character {place}: {name!r} is an amount; a condition uses "
                "public columns, and binary or categorical outcomes. Declare its classes as a "
                "separate outcome."
            )
        elif name == weight:
            problems.append(
                f"tables.where: character {place}: {name!r} is the weight, which is "
                "confidential; a condition uses public columns, and binary or categorical "
                "outcomes."
            )
        elif name not in known:
            problems.append(
                f"tables.where: character {place}: {name!r} is not among the columns that the "
                f"model knows ({listing(known) or 'none'}).{nearest(name, known)} To use "
                "it, name it in tables.by or synthesizer.predictors, so that synthetic records "
                "have it."
            )
    return problems or [
        f"tables.where: {problem}"
        for each in relations(condition)
        if each.column in outcomes
        for problem in _of_outcome(each, outcomes[each.column])
    ]


def _of_outcome(relation: Relation, outcome: Outcome) -> list[str]:
    """Return the literals that are no levels of an outcome; declared levels are public."""
    levels, place = outcome.category_names, f"character {relation.place}:"
    known: set[Value] = set(levels)
    if relation.of_numbers:
        try:
            levels_present(relation, levels)  # which are then numbers
        except InputError as error:
            return [str(error)]
        known = {float(level) for level in levels}
    unknown = [value for value in relation.values if value not in known]
    if unknown and relation.operator in ("==", "!=", "in", "not in"):
        return [
            f"{place} {unknown[0]!r} is not among the levels of {outcome.name!r}, "
            f"{listing(levels)}.{nearest(str(unknown[0]), levels)}"
        ]
    if not levels_present(relation, levels).any():
        return [f"{place} no level of {outcome.name!r} satisfies this: {listing(levels)}."]
    return []
