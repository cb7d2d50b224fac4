"""A person's choices for a survey, and their consequences by public rules."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from surveysynth._support.messages import listing, nearest, raise_problems
from surveysynth.config.mistakes import OPEN
from surveysynth.config.outcome_section import WEIGHT, american
from surveysynth.config.privacy import NOISY_STATISTICS, PROMISES, PSEUDO_POSTERIOR
from surveysynth.errors import InputError
from surveysynth.survey.columns import looks_like_value, text_column
from surveysynth.survey.declaration import UNKNOWN, WeightsFrom
from surveysynth.survey.files import LabelledTable, Table, open_table
from surveysynth.survey.formula import quote
from surveysynth.survey.records import LEAST_RECORDS, level_problems

#: Names for the row over all levels; the first that is not a level is used.
_MARGINS = ("All", "Total", "Overall", "All levels", "Sum of all levels")


@dataclass(frozen=True)
class PublicLevels:
    """Levels of a public column in natural order, and a name for its margin that is not a level.

    ``rare``: the number of levels with so few records that they may be values of another column; if
    there are any, no level is written. ``title`` and ``labels``: those of the file, if any.
    """

    levels: tuple[str, ...]
    margin: str
    rare: int = 0
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DataFile:
    """A data file, with the ``names`` of all columns."""

    path: Path
    names: tuple[str, ...]
    table: Table

    def levels(self, name: str) -> PublicLevels:
        """Return the levels of a public column; no other column is read.

        Raises ``InputError`` if they cannot define rows of a table.
        """
        column = text_column(self.table.read([name])[name], name)
        quote(name)
        title, labels = self._called(name, column.levels)
        taken = {*column.levels, *labels.values()}
        free = [margin for margin in _MARGINS if margin not in taken]
        margin = free[0] if free else _MARGINS[0]
        raise_problems(
            str(self.path), level_problems({name: column}, (name,), {}, {name: margin})
        )
        counts = np.bincount(column.codes[~column.missing], minlength=len(column.levels))
        rare = int(np.count_nonzero(counts < LEAST_RECORDS))
        return PublicLevels(() if rare else column.levels, margin, rare, title, labels)

    def value_labels(self, name: str) -> Mapping[str, str]:
        """Return what a file of Stata or SPSS calls values of a column; no value is read."""
        return self.table.described[name].labels if isinstance(self.table, LabelledTable) else {}

    def _called(self, name: str, levels: tuple[str, ...]) -> tuple[str, Mapping[str, str]]:
        """Return title and labels of the levels in the file; no labels if two are the same."""
        if not isinstance(self.table, LabelledTable):
            return "", {}
        found = self.table.described[name]
        labels = {level: found.labels.get(level, level) for level in levels}
        return found.title, labels if len(set(labels.values())) == len(labels) else {}


def open_data(path: Path) -> DataFile:
    """Open a data file for its column names.

    Raises ``InputError`` as ``open_table`` does, and if the first line looks like a record: its
    values would be mistaken for names, shown, and written into a specification.
    """
    table = open_table(path)
    values = sum(map(looks_like_value, table.columns))
    raise_problems(
        str(path),
        [
            f"{values:,} of {len(table.columns):,} names in the first line look like values "
            "(numbers, dates). Write the names of the columns into the first line, and use "
            "names with letters."
        ]
        if values
        else [],
    )
    return DataFile(path, table.columns, table)


Kind = Literal["continuous", "semicontinuous", "count", "binary", "categorical"]
KINDS: tuple[str, ...] = get_args(Kind)
MECHANISMS = tuple(PROMISES)

_NUMBERS = ("center", "spread", "scale", "power", "shift", "lower", "upper")
_LISTS_OF_NUMBERS = ("range", "spikes")
#: Constants of an amount whose transform is declared and not learned from a range.
DECLARED = ("transform", *_NUMBERS)
#: Constants of an outcome besides its kind. range: the public range, for a transform that is
#: learned.
CONSTANTS = (*_NUMBERS, *_LISTS_OF_NUMBERS, "transform", "levels")

Constants = Mapping[str, Any]


@dataclass(frozen=True)
class OutcomeChoice:
    """An outcome with its kind (None if it is open) and constants from public sources."""

    name: str
    kind: str | None = None
    constants: Constants = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name == WEIGHT:
            raise InputError(
                f"outcome: an outcome cannot have the name {WEIGHT!r}, whose section is for the "
                "sampling weight; rename the column."
            )
        if self.kind is not None and self.kind not in KINDS:
            raise InputError(
                f"outcome {self.name!r}: expected a kind among {listing(KINDS)}, got "
                f"{self.kind!r}.{nearest(self.kind, KINDS)}"
            )
        object.__setattr__(self, "constants", american(self.constants))
        for key in self.constants:
            if key not in CONSTANTS:
                raise InputError(
                    f"outcome {self.name!r}: unknown constant {key!r}.{nearest(key, CONSTANTS)} "
                    f"Known: {listing(CONSTANTS)}."
                )

    @property
    def is_amount(self) -> bool:
        """True if it has a transform."""
        return self.kind in ("continuous", "semicontinuous", "count")

    @property
    def levelled(self) -> bool:
        """True if it has levels."""
        return self.kind in ("binary", "categorical")


@dataclass(frozen=True)
class Choices:
    """All choices for a survey; None for a choice not made yet."""

    outcomes: tuple[OutcomeChoice, ...] = ()
    weight: str | None = None
    public_weights: bool | None = None
    strata: str | None = None
    psu: str | None = None
    design_effect: float | None = None
    by: tuple[str, ...] | None = None
    population_size: float | None = None
    mechanism: str | None = None
    epsilon: float | None = None
    weights_from: WeightsFrom = None

    @property
    def strict(self) -> bool:
        """True if the mechanism is noisy statistics."""
        return self.mechanism == NOISY_STATISTICS

    @property
    def confidential(self) -> tuple[str, ...]:
        """Names of the outcomes, and of the weight unless it is public."""
        weight = () if self.weight is None or self.public_weights else (self.weight,)
        return (*(each.name for each in self.outcomes), *weight)

    @property
    def public(self) -> tuple[str, ...]:
        """Names of the columns with a public role, each once."""
        weight = self.weight if self.public_weights else None
        named = (*(self.by or ()), self.strata, self.psu, weight)
        return tuple(dict.fromkeys(name for name in named if name))


def check_choices(choices: Choices, columns: Sequence[str]) -> None:
    """Raise ``InputError`` for missing columns, conflicting roles, and wrong numbers."""
    names = [each.name for each in choices.outcomes]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"outcome: {repeated[0]!r} is named more than once; name it once.")
    parts = [("outcome", name) for name in names]
    single = [(part, getattr(choices, part)) for part in ("weight", "strata", "psu")]
    parts += [(part, name) for part, name in single if name]
    parts += [("by", name) for name in choices.by or ()]
    for part, name in parts:
        check_column(part, name, columns)
    for name in choices.public:
        if name in choices.confidential:
            raise InputError(
                f"{name!r} is confidential, as an outcome or as the sampling weight, and cannot be "
                "public too (by, strata, psu)."
            )
    if isinstance(choices.weights_from, tuple):
        _check_sources(choices, choices.weights_from, columns)
    if choices.weight in names:
        raise InputError(f"weight: {choices.weight!r} is also an outcome; name another column.")
    if choices.mechanism not in (None, *MECHANISMS):
        raise InputError(
            f"mechanism: expected one of {listing(MECHANISMS)}, got {choices.mechanism!r}."
            f"{nearest(str(choices.mechanism), MECHANISMS)}"
        )
    check_positive("epsilon", choices.epsilon)
    check_positive("population-size", choices.population_size)
    check_positive("design-effect", choices.design_effect)


def _check_sources(choices: Choices, sources: Sequence[str], columns: Sequence[str]) -> None:
    for name in sources:
        check_column("weights-from", name, columns)
        if name in choices.confidential:
            raise InputError(
                f"weights-from: {name!r} is confidential, and a release by such weights is "
                "refused: one changed answer would change the weights of others. Name the base "
                "weights as weight and calibrate after the noise by a section [[calibration]] in "
                f"the specification, or answer {UNKNOWN}: the statement then names this gap."
            )


def check_column(part: str, name: str, columns: Sequence[str]) -> None:
    """Raise ``InputError`` for a missing column."""
    if name not in columns:
        hint = nearest(name, columns) or f" Columns: {listing(columns)}."
        raise InputError(f"{part}: there is no column {name!r}.{hint}")


def check_positive(what: str, number: float | None) -> None:
    """Raise ``InputError`` for a number that is not finite and above zero."""
    if number is not None and not (math.isfinite(number) and number > 0):
        raise InputError(f"{what}: expected a finite number above zero, got {number:g}.")


def read_number(what: str, text: str) -> float:
    """Return a finite number; raises ``InputError`` for other text."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or "_" in text:
        raise InputError(f"{what}: expected a number such as 1234.5, got {text.strip()!r}.")
    return number


def settled_amount(outcome: OutcomeChoice, *, strict: bool) -> dict[str, Any]:
    """Return the keys of an amount: its public range, or a declared transform with its moments.

    A missing range is ``OPEN``. Raises ``InputError`` for
    constants that no transform takes.
    """
    given = {key: value for key, value in outcome.constants.items() if key != "levels"}
    if outcome.kind == "semicontinuous":
        given.setdefault("spikes", [0.0])
    declared = [key for key in DECLARED if key in given]
    if declared == ["transform"] and given["transform"] == "learned":
        declared = []
    if declared and outcome.kind == "count":
        raise InputError(
            f"outcome {outcome.name!r}: the transform of a count is learned from its range; leave "
            f"{declared[0]} out."
        )
    if declared:
        return _declared_amount(given, outcome.name, strict=strict)
    given.setdefault("range", OPEN)
    ends = given["range"]
    if ends != OPEN and (len(ends) != 2 or not ends[0] < ends[1]):
        raise InputError(
            f"range of {outcome.name!r}: expected two numbers, the lower first; got "
            f"{', '.join(f'{end:g}' for end in ends)}."
        )
    return given


def _declared_amount(given: dict[str, Any], name: str, *, strict: bool) -> dict[str, Any]:
    """Return transform and moments, as given or ``OPEN``; a scale is a tenth of a typical value."""
    if "range" in given:
        key = next(key for key in DECLARED if key in given)
        raise InputError(
            f"range of {name!r}: the transform is learned from a range alone, and {key} is for a "
            "transform that is declared; leave one of them out."
        )
    center = given.get("center")
    scaled = {"scale", "power"} & set(given) or center
    given.setdefault("transform", "yeo_johnson" if scaled else OPEN)
    kind = given["transform"]
    if kind in ("yeo_johnson", "asinh") and "scale" not in given:
        given["scale"] = float(f"{abs(center) / 10:.0e}") if center else OPEN
    if kind == "yeo_johnson":
        given.setdefault("power", 0.5)
    if strict:
        given.setdefault("center", OPEN)
        given.setdefault("spread", OPEN)
    return given


#: Choices without a default: prompts on a terminal, otherwise required flags.
_REQUIRED = ("outcomes", "weight", "mechanism", "epsilon")
_FLAGS = {
    "outcomes": "--outcome NAME:KIND", "weight": "--weight COLUMN",
    "mechanism": f"--mechanism {NOISY_STATISTICS} (or {PSEUDO_POSTERIOR})",
    "epsilon": "--epsilon E",
}  # fmt: skip


def check_said(choices: Choices) -> None:
    """Raise ``InputError`` that names the missing flags without a default."""
    missing = [_FLAGS[part] for part in _REQUIRED if not getattr(choices, part)]
    if missing:
        raise InputError(
            "there is no terminal to ask on. Give these flags, which have no default: "
            f"{', '.join(missing)}."
        )


def read_outcomes(
    outcomes: Sequence[str], constants: Sequence[str], columns: Sequence[str]
) -> tuple[OutcomeChoice, ...]:
    """Read outcomes from ``NAME`` or ``NAME:KIND``, and constants from ``NAME.KEY=VALUE``.

    Names may have any character: the name of a column is not split. Raises ``InputError`` for names
    that are not columns and for constants of other columns.
    """
    kinds = dict(_read_outcome(text, columns) for text in outcomes)
    values: dict[str, dict[str, object]] = {name: {} for name in kinds}
    for text in constants:
        name, key, value = _read_constant(text, tuple(kinds))
        values[name][key] = value
    return tuple(OutcomeChoice(name, kind, values[name]) for name, kind in kinds.items())


def _read_outcome(text: str, columns: Sequence[str]) -> tuple[str, str | None]:
    name, colon, kind = text.rpartition(":")
    if text in columns or not colon or (name not in columns and kind not in KINDS):
        check_column("--outcome", text, columns)
        return text, None
    check_column("--outcome", name, columns)
    return name, kind


def _read_constant(text: str, names: Sequence[str]) -> tuple[str, str, object]:
    # The longest name: one may begin with another and a point.
    for name in sorted(names, key=len, reverse=True):
        key, sign, value = text.removeprefix(f"{name}.").partition("=")
        if text.startswith(f"{name}.") and sign:
            (key,) = american({key: None})
            if key not in CONSTANTS:
                raise InputError(
                    f"--constant {text!r}: unknown key {key!r}.{nearest(key, CONSTANTS)} Known: "
                    f"{', '.join(CONSTANTS)}."
                )
            if key in _NUMBERS:
                return name, key, read_number(key, value)
            if key in _LISTS_OF_NUMBERS:
                return name, key, [read_number(key, part) for part in value.split(",")]
            levels = [part.strip() for part in value.split(",")]
            return name, key, levels if key == "levels" else value.strip()
    raise InputError(
        f"--constant {text!r}: expected NAME.KEY=VALUE, such as salary.center=45000, where NAME is "
        "an outcome."
    )


#: Answers that are no columns: design weights, and weights of unknown origin.
DESIGN_WEIGHTS = "design"


def read_sources(text: str, columns: Sequence[str]) -> WeightsFrom:
    """Return what the weights were computed from, from an answer; empty: not stated.

    Columns of these names come first. Raises ``InputError`` for names that are no columns.
    """
    if not text.strip():
        return None
    if text.strip() not in columns:
        if text.strip() == DESIGN_WEIGHTS:
            return ()
        if text.strip() == UNKNOWN:
            return UNKNOWN
    return split_columns("weights-from", [text], columns)


def split_columns(part: str, given: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Split names of columns at commas; a column with a comma in its name is given alone.

    Raises ``InputError`` for names that are no columns."""
    found: dict[str, None] = {}
    for text in given:
        names = (text,) if text in columns else map(str.strip, text.split(","))
        found.update(dict.fromkeys(name for name in names if name))
    for name in found:
        check_column(part, name, columns)
    return tuple(found)
