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
from surveysynth.release.writers.csv import MicrodataFormat, safe_text
from surveysynth.survey.where import Relation, columns_of, folded, parse_where

if TYPE_CHECKING:
    from jinja2 import Environment

    from surveysynth.release.facts import ReleaseFacts

Language = Literal["python", "r"]
LonelyRule = Literal["none", "skip", "adjust", "average"]
"""How the program treats strata with one unit; none where there is no such stratum."""


@dataclass(frozen=True)
class Subset:
    """The records in the subpopulation of a table.

    inside: the expression that selects them, by language; codes: its columns that are read as text.
    """

    inside: dict[Language, str]
    codes: tuple[str, ...]


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
    variance_pair: outcome (an amount: only the pseudo-posterior has such pairs) and weight for
    variances, None if they are the same as for estimates; denominator: the second outcome of a
    ratio, and its column in the pair;
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
    df_design: float = float("inf")
    denominator: tuple[str, str] | None = None
    other_cell: dict[str, Any] | None = None
    subset: Subset | None = None
    whole: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calibrated: CalibratedBy | None = None

    @property
    def of_share(self) -> bool:
        """True if the program computes a distribution function, which it inverts at the end."""
        return statistic_of(self.statistic).share_below is not None

    @property
    def codes(self) -> list[str]:
        """Columns of codes that the program reads, each once."""
        design = [name for name in (self.strata, self.psu) if name is not None]
        public = [name for name in self.public or () if name != self.weight]
        of_levels = [self.outcome] if isinstance(self.level, str) else []
        subset = () if self.subset is None else self.subset.codes
        cells = [*self.cell, *(self.other_cell or ())]
        classes = () if self.calibrated is None else self.calibrated.codes
        return list(dict.fromkeys([*cells, *design, *public, *of_levels, *subset, *classes]))

    @property
    def numbers(self) -> list[str]:
        """Constants of the program that name the other columns it reads."""
        pair = self.variance_pair is not None
        names = {
            "OUTCOME": not isinstance(self.level, str),
            "WEIGHT": True,
            "VARIANCE_OUTCOME": pair,
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
    def contrast_columns(self) -> list[str]:
        """Constants for the columns of each call for a contrast's two rows.

        The first entry is for the estimate, the second for a pair for variances of its own.
        """
        prefixes = ("", "VARIANCE_") if self.variance_pair else ("",)
        names = ("OUTCOME", "WEIGHT", *(("DENOMINATOR",) if self.denominator else ()))
        return [", ".join(prefix + name for name in names) for prefix in prefixes]


def program_of(setting: ExampleSetting, ending: Literal["py", "r"]) -> str:
    """Return the program for pandas and NumPy, or for R; both print the same two numbers."""
    kind = statistic_of(setting.statistic)
    text = _templates().get_template(f"templates/recompute.{ending}.j2").render(
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


@dataclass(frozen=True)
class _Syntax:
    """A language's literals, columns (as numbers or as text), membership, and negation."""

    literal: Callable[[Any], str]
    column: Callable[[str, bool], str]
    among: Callable[[str, str], str]
    negation: str


def where_code(facts: "ReleaseFacts", where: str, language: Language) -> str:
    """Return an expression that selects records: a Series in pandas, a vector in R."""
    syntax, written = _SYNTAX[language], _written(facts)
    # Levels "0" and "1" are numbers in the files, which may read as 1.0 where they are not csv.
    binary = [
        o.name for o in facts.design.outcomes
        if facts.microdata_format != "csv" and o.kind == "binary" and not o.is_labelled
    ]  # fmt: skip

    def relation(each: Relation) -> str:
        made_number = each.column in binary and not each.of_numbers
        number = each.of_numbers or made_number
        column = syntax.column(syntax.literal(written(each.column)), number)
        given = [written(value) if isinstance(value, str) else value for value in each.values]
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


def subset_of(facts: "ReleaseFacts", where: str | None, numbers: Sequence[str]) -> Subset | None:
    """Return the subpopulation of a table in the programs; they read ``numbers`` as numbers."""
    if where is None:
        return None
    written, columns = _written(facts), where_columns(where)
    labelled = [each.name for each in facts.design.outcomes if each.is_labelled]
    texts = tuple(written(name) for name in columns if name in labelled or name not in numbers)
    return Subset({each: where_code(facts, where, each) for each in _SYNTAX}, texts)


def _joined(word: str, parts: list[str]) -> str:
    sign = {"and": " & ", "or": " | "}[word]
    return f"({sign.join(parts)})"


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
