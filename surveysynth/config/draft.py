"""The first specification of a survey: a person's choices, and a text that explains each of them.

Only the names of columns and the levels of by columns are read from the data.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from surveysynth._support.messages import listing, nearest, raise_problems, visible
from surveysynth._support.page import fragment
from surveysynth._support.resources import render
from surveysynth.config.mistakes import OPEN
from surveysynth.config.outcome_section import WEIGHT, american
from surveysynth.config.privacy import NOISY_STATISTICS, PROMISES, PSEUDO_POSTERIOR
from surveysynth.config.spec import parse_spec
from surveysynth.errors import InputError
from surveysynth.survey.columns import looks_like_value, text_column
from surveysynth.survey.declaration import UNKNOWN, WeightsFrom
from surveysynth.survey.files import LabelledTable, Table, open_table
from surveysynth.survey.formula import quote
from surveysynth.survey.outcome import AMOUNTS, OutcomeKind
from surveysynth.survey.records import LEAST_RECORDS, level_problems

SPEC_NAME = "spec.toml"
KINDS: tuple[str, ...] = get_args(OutcomeKind)
#: Constants of an outcome besides its kind; the first three go into its transform.
_OF_TRANSFORM = ("scale", "power", "shift")
_NUMBERS = (*_OF_TRANSFORM, "center", "spread")
_LISTS_OF_NUMBERS = ("range", "spikes", "bounds")
CONSTANTS = (*_NUMBERS, *_LISTS_OF_NUMBERS, "transform", "levels")
#: Those of an amount whose transform is declared and not learned from a range.
DECLARED = ("transform", "center", "spread", "bounds")
#: Names for the row over all levels; the first that is not a level is used.
_MARGINS = ("All", "Total", "Overall", "All levels", "Sum of all levels")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class PublicLevels:
    """Levels of a public column in natural order, and a name for its margin that is not a level.

    ``rare``: the number of levels with so few records that they may be values of another column; if
    there are any, no level is written. ``title`` and ``labels``: from the file, if any.
    """

    levels: tuple[str, ...]
    margin: str
    rare: int = 0
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DataFile:
    """A data file with its columns."""

    path: Path
    table: Table

    def levels(self, name: str) -> PublicLevels:
        """Return the levels of a public column; no other column is read.

        Raises ``InputError`` if they cannot define rows of a table.
        """
        column = text_column(self.table.read([name])[name], name)
        quote(name)
        title, labels = "", dict[str, str]()
        if isinstance(self.table, LabelledTable):
            found = self.table.described[name]
            title = found.title
            labels = {level: found.labels.get(level, level) for level in column.levels}
            if len(set(labels.values())) < len(labels):
                labels = {}
        taken = {*column.levels, *labels.values()}
        margin = next((each for each in _MARGINS if each not in taken), _MARGINS[0])
        problems = level_problems({name: column}, (name,), {}, {name: margin})
        raise_problems(str(self.path), problems)
        counts = np.bincount(column.codes[~column.missing], minlength=len(column.levels))
        rare = int(np.count_nonzero(counts < LEAST_RECORDS))
        return PublicLevels(() if rare else column.levels, margin, rare, title, labels)

    def value_labels(self, name: str) -> Mapping[str, str]:
        """Return what a file of Stata or SPSS calls values of a column; no value is read."""
        return self.table.described[name].labels if isinstance(self.table, LabelledTable) else {}


def open_data(path: Path) -> DataFile:
    """Open a data file for its column names.

    Raises ``InputError`` as ``open_table`` does, and if the first line looks like a record: its
    values would be mistaken for names, shown, and written into a specification.
    """
    table = open_table(path)
    values = sum(map(looks_like_value, table.columns))
    if values:
        raise_problems(str(path), [
            f"{values:,} of {len(table.columns):,} names in the first line look like values "
            "(numbers, dates). Write the names of the columns into the first line, and use "
            "names with letters."
        ])  # fmt: skip
    return DataFile(path, table)


@dataclass(frozen=True)
class OutcomeChoice:
    """An outcome with its kind (None if it is open) and constants from public sources."""

    name: str
    kind: str | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)

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
        given = american(self.constants)
        for key in given:
            if key not in CONSTANTS:
                raise InputError(
                    f"outcome {self.name!r}: unknown constant {key!r}.{nearest(key, CONSTANTS)} "
                    f"Known: {listing(CONSTANTS)}."
                )
        named = given.get("transform", {})
        transform = dict(named) if isinstance(named, Mapping) else {"kind": named}
        transform |= {key: given.pop(key) for key in _OF_TRANSFORM if key in given}
        if transform:
            given["transform"] = transform
        object.__setattr__(self, "constants", given)  # the dataclass is frozen

    @property
    def is_amount(self) -> bool:
        """True if it has a transform."""
        return self.kind in AMOUNTS


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

    def check(self, columns: Sequence[str]) -> None:
        """Raise ``InputError`` for missing columns, conflicting roles, and wrong numbers."""
        names = [each.name for each in self.outcomes]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputError(f"outcome: {repeated[0]!r} is named more than once; name it once.")
        sources = self.weights_from if isinstance(self.weights_from, tuple) else ()
        parts: dict[str, Sequence[str | None]] = {
            "outcome": names, "weight": [self.weight], "strata": [self.strata], "psu": [self.psu],
            "by": self.by or (), "weights-from": sources,
        }  # fmt: skip
        for part, named in parts.items():
            _check_columns(part, [name for name in named if name], columns)
        if both := [name for name in self.public if name in self.confidential]:
            raise InputError(
                f"{both[0]!r} is confidential, as an outcome or as the sampling weight, and cannot "
                "be public too (by, strata, psu)."
            )
        if both := [name for name in sources if name in self.confidential]:
            raise InputError(
                f"weights-from: {both[0]!r} is confidential, and a release by such weights is "
                "refused: one changed answer would change the weights of others. Name the base "
                "weights as weight and calibrate after the noise by a section [[calibration]] in "
                f"the specification, or answer {UNKNOWN}: the statement then names this gap."
            )
        if self.weight in names:
            raise InputError(f"weight: {self.weight!r} is also an outcome; name another column.")
        if self.mechanism not in (None, *PROMISES):
            raise InputError(
                f"mechanism: expected one of {listing(tuple(PROMISES))}, got {self.mechanism!r}."
                f"{nearest(str(self.mechanism), tuple(PROMISES))}"
            )
        numbers = {"epsilon": self.epsilon, "population-size": self.population_size,
                   "design-effect": self.design_effect}  # fmt: skip
        for what, number in numbers.items():
            if number is not None and not (math.isfinite(number) and number > 0):
                raise InputError(f"{what}: expected a finite number above zero, got {number:g}.")

    def check_said(self) -> None:
        """Raise ``InputError`` that names the flags without a default that are missing."""
        flags = {
            "outcomes": "--outcome NAME:KIND", "weight": "--weight COLUMN",
            "mechanism": f"--mechanism {NOISY_STATISTICS} (or {PSEUDO_POSTERIOR})",
            "epsilon": "--epsilon E",
        }  # fmt: skip
        if missing := [flag for part, flag in flags.items() if not getattr(self, part)]:
            raise InputError(
                "init asks questions in a terminal, and there is none. Answer with these flags: "
                f"{', '.join(missing)}."
            )


def _check_columns(part: str, names: Sequence[str], columns: Sequence[str]) -> None:
    for name in names:
        if name not in columns:
            hint = nearest(name, columns) or f" Columns: {listing(columns)}."
            raise InputError(f"{part}: there is no column {name!r}.{hint}")


def read_number(what: str, text: str) -> float:
    """Return a number, infinite for bounds alone; raises ``InputError`` for other text."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number) or "_" in text or (math.isinf(number) and what != "bounds"):
        raise InputError(f"{what}: expected a number such as 1234.5, got {text.strip()!r}.")
    return number


def read_outcomes(
    outcomes: Sequence[str], constants: Sequence[str], columns: Sequence[str]
) -> tuple[OutcomeChoice, ...]:
    """Read outcomes from ``NAME`` or ``NAME:KIND``, and constants from ``NAME.KEY=VALUE``.

    Names may have any character: the name of a column is not split. Raises ``InputError`` for names
    that are not columns and for constants of other columns.
    """
    kinds: dict[str, str | None] = {}
    for text in outcomes:
        name, colon, kind = text.rpartition(":")
        whole = text in columns or not colon or (name not in columns and kind not in KINDS)
        _check_columns("--outcome", [text if whole else name], columns)
        kinds[text if whole else name] = None if whole else kind
    values: dict[str, dict[str, object]] = {name: {} for name in kinds}
    for text in constants:
        name, key, value = _read_constant(text, tuple(kinds))
        values[name][key] = value
    return tuple(OutcomeChoice(name, kind, values[name]) for name, kind in kinds.items())


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
            parts = [part.strip() for part in value.split(",")]
            if key in _NUMBERS:
                return name, key, read_number(key, value)
            if key in _LISTS_OF_NUMBERS:
                return name, key, [read_number(key, part) for part in parts]
            return name, key, parts if key == "levels" else value.strip()
    raise InputError(
        f"--constant {text!r}: expected NAME.KEY=VALUE, such as salary.center=45000, where NAME is "
        "an outcome."
    )


def read_sources(text: str, columns: Sequence[str]) -> WeightsFrom:
    """Return the columns that the weights were computed from, given an answer; empty: not stated.

    "design" stands for design weights; columns of that name, or of the name "unknown", come first.
    Raises ``InputError`` for names that are no columns.
    """
    answer = text.strip()
    words: dict[str, WeightsFrom] = {"": None, "design": (), UNKNOWN: UNKNOWN}
    if answer in words and answer not in columns:
        return words[answer]
    return split_columns("weights-from", [text], columns)


def split_columns(part: str, given: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Split names of columns at commas; a column with a comma in its name is given alone.

    Raises ``InputError`` for names that are no columns."""
    found: dict[str, None] = {}
    for text in given:
        names = (text,) if text in columns else map(str.strip, text.split(","))
        found.update(dict.fromkeys(name for name in names if name))
    _check_columns(part, tuple(found), columns)
    return tuple(found)


def settled_amount(outcome: OutcomeChoice, *, strict: bool) -> dict[str, Any]:
    """Return the keys of an amount: its public range, or a declared transform with its moments.

    What is missing is ``OPEN``; a scale is a tenth of a typical value. Raises ``InputError`` for
    constants that do not belong together.
    """
    given = {key: value for key, value in outcome.constants.items() if key != "levels"}
    name, transform = outcome.name, dict(given.pop("transform", {}))
    if transform == {"kind": "learned"}:
        transform = {}
    keys = {"spikes": given.pop("spikes", [0.0])} if outcome.kind == "semicontinuous" else {}
    declared = [key for key in DECLARED if key in given or (key == "transform" and transform)]
    if declared and outcome.kind == "count":
        raise InputError(
            f"outcome {name!r}: the transform of a count is learned from its range; leave "
            f"{declared[0]} out."
        )
    if not declared:
        ends = given.setdefault("range", OPEN)
        if ends != OPEN and (len(ends) != 2 or not ends[0] < ends[1]):
            raise InputError(
                f"range of {name!r}: expected two numbers, the lower first; got "
                f"{', '.join(f'{end:g}' for end in ends)}."
            )
        return keys | given
    if "range" in given:
        raise InputError(
            f"range of {name!r}: the transform is learned from a range alone, and {declared[0]} is "
            "for a transform that is declared; leave one of them out."
        )
    center = given.get("center")
    scaled = center or {"scale", "power"} & transform.keys()
    kind = transform.setdefault("kind", "yeo_johnson" if scaled else OPEN)
    if kind in ("yeo_johnson", "asinh"):
        transform.setdefault("scale", float(f"{abs(center) / 10:.0e}") if center else OPEN)
    if kind == "yeo_johnson":
        transform.setdefault("power", 0.5)
    moments = {key: given.pop(key, OPEN) for key in ("center", "spread") if strict or key in given}
    return {**keys, "transform": kind if len(transform) == 1 else transform, **moments, **given}


def draft_text(
    choices: Choices,
    data: str,
    columns: Sequence[str],
    levels: Mapping[str, PublicLevels],
    spec: str,
    called: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Return the specification of ``choices``, and its keys that are still to be filled in.

    data: the path as written; columns: all names; levels: of the by columns; spec: the file name;
    called: what the file calls values of outcomes. Raises ``InputError`` for constants that do not
    belong together.
    """
    by, strict, labelled = choices.by or (), choices.strict, called or {}
    sections = [
        (f"outcomes.{_key(each.name)}", *_keys(each, labelled.get(each.name, {}), strict=strict))
        for each in choices.outcomes
    ]
    open_weight = strict and not choices.public_weights and choices.population_size is None
    left = [
        f"{place}.{key}"
        for place, keys, *_ in sections
        for key, given in [*keys.items(), *_inner(keys)]
        if given == OPEN
    ] + ["outcomes.weight.center"] * open_weight
    # Effects of units can stand for those of strata.
    carried = strict and choices.psu is not None and choices.design_effect is None
    carried = carried and choices.strata is not None and choices.strata not in by
    cells = dict.fromkeys(name for name in (not carried and choices.strata, *by) if name)
    formula = " * ".join(name if name.isidentifier() else f"`{name}`" for name in cells)
    sources = choices.weights_from if isinstance(choices.weights_from, tuple) else ()
    named = (*choices.public, *choices.confidential)
    kinds = {each.kind for each in choices.outcomes}
    statistics = {
        "count": True, "mean": any(each.is_amount for each in choices.outcomes),
        "median": bool(kinds & {"continuous", "semicontinuous"}),
        "share": bool(kinds & {"binary", "categorical"}),
    }  # fmt: skip
    text = render(
        __package__, "words/draft.toml.j2", line=_line, value=_value, key_of=_key, visible=visible,
        named=lambda names: ", ".join(map(_value, names)), choices=choices, data=data, spec=spec,
        columns=f"{len(columns):,}", by=by, levels=levels, outcomes=sections,
        formula=formula or "1",
        carried=carried and formula, open_weight=open_weight, least=LEAST_RECORDS,
        unlisted=[name for name in sources if name not in choices.public],
        coded=any("missing_codes" in keys for _, keys, *_ in sections),
        unused=[name for name in columns if name not in named and name.strip()],
        names=[each.name for each in choices.outcomes], still_open=None in kinds,
        statistics=[name for name, wanted in statistics.items() if wanted],
    )  # fmt: skip
    return text, tuple(left)


def _inner(keys: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the constants of a transform by their place in the section."""
    transform = keys.get("transform")
    inner = transform if isinstance(transform, Mapping) else {}
    return [(f"transform.{key}", given) for key, given in inner.items()]


def _keys(
    outcome: OutcomeChoice, called: Mapping[str, str], *, strict: bool
) -> tuple[dict[str, Any], Mapping[str, str], list[str], Mapping[str, str]]:
    """Return the keys of a section, ``called``, its codes for no answer, and labels to list.

    ``called``: the file's labels of values.
    """
    if outcome.kind is None:
        return {"kind": OPEN, **outcome.constants}, {}, [], {}
    keys: dict[str, Any] = {"kind": outcome.kind}
    shown: Mapping[str, str] = {}
    if outcome.is_amount:
        keys |= settled_amount(outcome, strict=strict)
        ends = keys.get("range", OPEN)
        outside = [] if ends == OPEN else [
            code for code in called
            if _NUMBER.fullmatch(code) and not ends[0] <= float(code) <= ends[1]
        ]  # fmt: skip
    else:
        keys |= outcome.constants
        shown = {} if "levels" in keys else called
        if outcome.kind == "categorical":
            keys.setdefault("levels", list(called) or OPEN)
        outside = [code for code in called if code not in keys.get("levels", called)]
    if numbers := [float(code) for code in outside if _NUMBER.fullmatch(code)]:
        keys["missing_codes"] = numbers
    return keys, called, outside, shown


def _value(given: Any) -> str:
    """Return a value in TOML; whole numbers have no decimal point."""
    if isinstance(given, Mapping):
        pairs = (f"{_key(name)} = {_value(each)}" for name, each in given.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(_value, given))}]"
    if isinstance(given, str):
        # JSON escapes all that TOML wants escaped, but for the last control character of ASCII.
        return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")
    whole = float(given).is_integer() and abs(given) < 1e15
    return str(int(given)) if whole else repr(float(given))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _line(name: str, given: Any, words: str = "") -> str:
    """Return ``name = value`` with a comment after it."""
    text = f"{name} = {_value(given)}"
    return f"{text:<30} # {words}" if words else text


@dataclass(frozen=True)
class Drafted:
    """A written specification.

    Attributes
    ----------
    path
        The file.
    open
        Keys that are still to be filled in; ``surveysynth check`` names them too.
    read
        Public columns whose values were read.

    Examples
    --------
    >>> from pathlib import Path
    >>> Drafted(Path("spec.toml"), ("outcomes.salary.kind",), ("field",)).open
    ('outcomes.salary.kind',)
    """

    path: Path
    open: tuple[str, ...]
    read: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Return the open keys, for notebooks."""
        lines = [f"Written: {self.path}."]
        if self.open:
            lines.append(f'Still to be filled in, marked "?": {", ".join(self.open)}.')
        return fragment("Specification", lines=lines)


def check_free(out: Path, *, overwrite: bool) -> None:
    """Raise ``InputError`` for a file that exists or does not end in .toml."""
    if out.suffix.lower() != ".toml":
        raise InputError(f"{out}: expected a file name that ends in .toml; name another file.")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists; name another with --out or replace it with --overwrite.")


def write_draft(data: DataFile, choices: Choices, out: Path, *, overwrite: bool) -> Drafted:
    """Write the specification of ``choices`` and report the open keys.

    Reads the by columns and no others. Raises ``InputError`` for choices that do not belong
    together and for a file that exists or cannot be written.
    """
    check_free(out, overwrite=overwrite)
    names = tuple(data.table.columns)
    choices.check(names)
    by = choices.by or ()
    levels = {name: data.levels(name) for name in by}
    # The name of a link stays; folders are resolved, since a link has another folder above it.
    folder = os.path.relpath(data.path.parent.resolve(), out.parent.resolve())
    path = (Path(folder) / data.path.name).as_posix()
    called = {each.name: data.value_labels(each.name) for each in choices.outcomes}
    text, left = draft_text(choices, path, names, levels, out.name, called)
    if not left:
        parse_spec(text, out)
    staged = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        content = text.encode("utf-8")
        if overwrite:
            staged.write_bytes(content)
            staged.replace(out)
        else:
            with out.open("xb") as file:  # fails if the file exists by now
                file.write(content)
    except FileExistsError:
        raise InputError(f"{out} exists; replace it with --overwrite.") from None
    except UnicodeEncodeError:
        raise InputError("a constant or level is not UTF-8 text; correct it.") from None
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}.") from None
    finally:
        staged.unlink(missing_ok=True)
    return Drafted(out, left, by)
