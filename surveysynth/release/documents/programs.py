"""The programs in a release's README, which recompute one published number from the microdata.

``templates/recompute.py.j2`` and ``templates/recompute.r.j2`` are the programs; ``ExampleSetting``
fills them in. The formula of a statistic comes from its row of ``STATISTICS``, as ``Program``. Data
users need pandas and NumPy, or R alone. Tests run the programs and compare with the tables. A
subpopulation's condition is an expression in both languages.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from surveysynth._support.resources import environment
from surveysynth.estimation.quantiles import REACH, ROUNDING
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.total_variance import LEAST_DF, saved_by_law
from surveysynth.release.microdata import VARIANCE_SUFFIX
from surveysynth.release.writers.csv import MicrodataFormat, safe_text
from surveysynth.survey.where import Relation, Value, columns_of, folded, parse_where

if TYPE_CHECKING:
    from jinja2 import Environment

    from surveysynth.release.facts import ReleaseFacts

Language = Literal["python", "r"]
LonelyRule = Literal["none", "skip", "adjust", "average"]
"""How the program treats strata with one unit; none where there is no such stratum."""


@dataclass(frozen=True)
class Subset:
    """The records in the subpopulation of a table.

    inside: the expression that selects them, by language; of_pair: the expression for the pair for
    variances, None if it is the same; codes: its columns that are read as text.
    """

    inside: dict[Language, str]
    of_pair: dict[Language, str] | None
    codes: tuple[str, ...]

    def functions(self, language: Language) -> list[tuple[str, str]]:
        """Return name and expression of every function that a program needs for it."""
        found = [("subset", self.inside[language])]
        if self.of_pair is not None:
            found.append(("variance_subset", self.of_pair[language]))
        return found


@dataclass(frozen=True)
class CalibratedBy:
    """The calibration variables in the programs: of the pair for variances, where it has its own.

    base: the column of the weights before calibration; margins: columns of classes and the column
    of an amount, or None; size: whether the weights add up to the population size as well.
    """

    base: str
    margins: tuple[tuple[tuple[str, ...], str | None], ...]
    size: bool

    @property
    def codes(self) -> tuple[str, ...]:
        """Columns of classes."""
        return tuple(name for by, _ in self.margins for name in by)

    @property
    def amounts(self) -> list[str]:
        """Columns of amounts."""
        return [amount for _, amount in self.margins if amount is not None]


@dataclass(frozen=True)
class ExampleSetting:
    """The values that fill in a program, in any language; names and codes as the files have them.

    cell: codes of the by-columns that select the row; other_cell: the second row of a contrast;
    variance_pair: outcome and weight for variances, None if they are the same as for estimates;
    variance_cell, variance_other_cell: both cells for that pair, where an outcome in a cell has
    one; denominator: the second outcome of a ratio, and its column in the pair;
    rule: the linearisation; psu: only where variances are by PSU; public: columns of the public
    rows if datasets combine by the law of total variance, None for partial synthesis;
    level: replaces the outcome by an indicator: a text or, for an outcome without names of levels,
    a number; compared: the operator between values and ``level``; df_design: degrees of freedom of
    the design; subset: the subpopulation of the table; whole: columns whose codes are numbers in
    the files; places: for columns that hold numbers from 1 on instead of codes, the codes;
    calibrated: by what the weights are calibrated.
    """

    statistic: str
    rule: str
    cell: dict[str, Any]
    outcome: str
    weight: str
    variance_pair: tuple[str, str] | None
    strata: str | None
    psu: str | None
    fraction: str | None
    population: float | None
    lonely: LonelyRule
    file_format: MicrodataFormat
    design_effect: float | None = None
    public: tuple[str, ...] | None = None
    level: str | float | None = None
    compared: str = "=="
    variance_cell: dict[str, Any] | None = None
    df_design: float = float("inf")
    denominator: tuple[str, str] | None = None
    other_cell: dict[str, Any] | None = None
    variance_other_cell: dict[str, Any] | None = None
    subset: Subset | None = None
    whole: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calibrated: CalibratedBy | None = None

    @property
    def own_pair(self) -> bool:
        """True if the pair for variances has a subpopulation of its own."""
        return self.subset is not None and self.subset.of_pair is not None

    @property
    def of_share(self) -> bool:
        """True if the program computes a distribution function, which it inverts at the end."""
        return statistic_of(self.statistic).share_below is not None

    @property
    def codes(self) -> list[str]:
        """Columns of codes that the program reads, each once."""
        design = [name for name in (self.strata, self.psu) if name is not None]
        public = [name for name in self.public or () if name != self.weight]
        of_levels = []
        if isinstance(self.level, str):
            of_levels = [self.outcome, *(self.variance_pair or ())[:1]]
        subset = () if self.subset is None else self.subset.codes
        others = (self.variance_cell, self.other_cell, self.variance_other_cell)
        cells = [*self.cell, *(name for each in others for name in each or ())]
        classes = () if self.calibrated is None else self.calibrated.codes
        return list(dict.fromkeys([*cells, *design, *public, *of_levels, *subset, *classes]))

    @property
    def numbers(self) -> list[str]:
        """Constants of the program that name the other columns it reads."""
        pair, by_code = self.variance_pair is not None, isinstance(self.level, str)
        names = {
            "OUTCOME": not by_code,
            "WEIGHT": True,
            "VARIANCE_OUTCOME": pair and not by_code,
            "VARIANCE_WEIGHT": pair,
            "DENOMINATOR": self.denominator is not None,
            "VARIANCE_DENOMINATOR": self.denominator is not None and pair,
            "FRACTION": self.fraction is not None,
            "BASE_WEIGHT": self.calibrated is not None,
            "*AMOUNTS": self.calibrated is not None and bool(self.calibrated.amounts),
        }
        return [name for name, read in names.items() if read]

    @property
    def numbered_places(self) -> dict[str, dict[int, str]]:
        """``places``, with the number of each code."""
        return {name: dict(enumerate(codes, start=1)) for name, codes in self.places.items()}

    @property
    def contrast_arguments(self) -> list[tuple[str, str, str]]:
        """Constants for the two rows of a contrast, and for the columns, of each call.

        The first entry is for the estimate, the second for a pair for variances of its own.
        """
        divisors = (", DENOMINATOR", ", VARIANCE_DENOMINATOR") if self.denominator else ("", "")
        found = [("CELL", "OTHER_CELL", f"OUTCOME, WEIGHT{divisors[0]}")]
        if self.variance_pair:
            cells = ("CELL", "OTHER_CELL")
            if self.variance_cell is not None:
                cells = ("VARIANCE_CELL", "VARIANCE_OTHER_CELL")
            found.append((*cells, f"VARIANCE_OUTCOME, VARIANCE_WEIGHT{divisors[1]}"))
        return found


def python_program(setting: ExampleSetting) -> str:
    """Return the program for pandas and NumPy."""
    return _program("recompute.py.j2", setting)


def r_program(setting: ExampleSetting) -> str:
    """Return the program for R, which prints the same two numbers."""
    return _program("recompute.r.j2", setting)


def _program(name: str, setting: ExampleSetting) -> str:
    kind = statistic_of(setting.statistic)
    text = _templates().get_template(f"templates/{name}").render(
        s=setting, kind=kind, rounding=ROUNDING, reach=REACH, least_df=f"{LEAST_DF:g}",
        saved=None if kind.share is None else repr(saved_by_law(kind.share)),
    )  # fmt: skip
    return text.removesuffix("\n")


@cache
def _templates() -> "Environment":
    found = environment(__package__).overlay()
    found.filters = {**found.filters, "py": python_literal, "r": r_literal}
    return found


def python_literal(value: Any) -> str:
    """Return a Python literal that cannot end the surrounding Markdown block."""
    return repr(value).replace("`", "\\x60")


def r_literal(value: Any) -> str:
    """Return a text, number, vector or named vector in R that cannot end the Markdown block.

    JSON escapes texts as R does.
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("`", "\\x60")
    if isinstance(value, Mapping):
        values = r_literal([str(each) for each in value.values()])
        return f"setNames({values}, {r_literal(list(value))})"
    if isinstance(value, list):
        return f"c({', '.join(map(r_literal, value))})" if value else "character(0)"
    return repr(value)


Renamed = Mapping[str, str]
"""Columns with another name in a pair for variances."""


@dataclass(frozen=True)
class _Syntax:
    """A language's literals, columns (as numbers or as text), membership, and negation."""

    literal: Callable[[Any], str]
    column: Callable[[str, bool], str]
    among: Callable[[str, str], str]
    negation: str


def where_code(
    facts: "ReleaseFacts", where: str, language: Language, renamed: Renamed | None = None
) -> str:
    """Return an expression that selects records: a Series in pandas, a vector in R."""
    syntax = _SYNTAX[language]
    # Levels "0" and "1" are numbers in the files, which may read as 1.0 where they are not csv.
    binary = [
        o.name for o in facts.design.outcomes
        if facts.microdata_format != "csv" and o.kind == "binary" and not o.is_labelled
    ]  # fmt: skip

    def relation(each: Relation) -> str:
        made_number = each.column in binary and not each.of_numbers
        number = each.of_numbers or made_number
        column = syntax.column(syntax.literal(_column(facts, each, renamed)), number)
        given = _values(facts, each)
        values = [syntax.literal(float(value) if made_number else value) for value in given]
        if "in" in each.operator:
            found = syntax.among(column, ", ".join(values))
            return found if each.operator == "in" else f"{syntax.negation}{found}"
        return f"({column} {each.operator} {values[0]})"

    return folded(
        parse_where(where), relation, lambda part: f"{syntax.negation}({part})", _joined
    )


def where_columns(where: str | None) -> tuple[str, ...]:
    """Return the columns of a condition, if there is one."""
    return () if where is None else columns_of(parse_where(where))


def pair_columns(facts: "ReleaseFacts") -> Renamed:
    """Return synthetic columns of outcomes and the columns for their variances, as in the files."""
    written = _written(facts)
    return {written(n): written(n + VARIANCE_SUFFIX) for n in facts.design.outcome_names}


def subset_of(
    facts: "ReleaseFacts", where: str | None, of_pair: Renamed, numbers: Sequence[str]
) -> Subset | None:
    """Return the subpopulation of a table in the programs.

    of_pair: synthetic columns and the columns for their variances; numbers: outcomes that the
    programs read as numbers.
    """
    if where is None:
        return None
    written, columns = _written(facts), where_columns(where)
    labelled = [each.name for each in facts.design.outcomes if each.is_labelled]
    texts = [written(name) for name in columns if name in labelled or name not in numbers]
    own = any(written(name) in of_pair for name in columns)

    def code(renamed: Renamed | None) -> dict[Language, str]:
        return {each: where_code(facts, where, each, renamed) for each in _SYNTAX}

    others = [of_pair[name] for name in texts if name in of_pair]
    return Subset(code(None), code(of_pair) if own else None, (*texts, *others))


def _joined(word: str, parts: list[str]) -> str:
    sign = {"and": " & ", "or": " | "}[word]
    return f"({sign.join(parts)})"


def _column(facts: "ReleaseFacts", relation: Relation, renamed: Renamed | None) -> str:
    column = _written(facts)(relation.column)
    return (renamed or {}).get(column, column)


def _values(facts: "ReleaseFacts", relation: Relation) -> list[Value]:
    """Return literals as the files have them."""
    written = _written(facts)
    return [written(each) if isinstance(each, str) else each for each in relation.values]


def _written(facts: "ReleaseFacts") -> Callable[[str], str]:
    """Return the function for texts and headings in the files: csv files have no formulas."""
    return safe_text if facts.microdata_format == "csv" else str


_SYNTAX: dict[Language, _Syntax] = {
    "python": _Syntax(
        python_literal, lambda name, number: f"data[{name}].astype({'float' if number else 'str'})",
        lambda column, values: f"{column}.isin([{values}])", "~",
    ),
    "r": _Syntax(
        r_literal,
        lambda name, number: f"as.{'numeric' if number else 'character'}(data[[{name}]])",
        lambda column, values: f"({column} %in% c({values}))", "!",
    ),
}  # fmt: skip
