"""A person's choices for a survey, and their consequences by public rules."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from surveysynth._support.messages import listing, nearest
from surveysynth.config.mistakes import OPEN
from surveysynth.config.outcome_section import WEIGHT
from surveysynth.config.privacy import NOISY_STATISTICS, PROMISES, PSEUDO_POSTERIOR
from surveysynth.errors import InputError
from surveysynth.survey.declaration import UNKNOWN, WeightsFrom
from surveysynth.survey.transforms import Transform

Kind = Literal["continuous", "semicontinuous", "count", "binary", "categorical"]
KINDS: tuple[str, ...] = get_args(Kind)
MECHANISMS = tuple(PROMISES)

_NUMBERS = ("centre", "spread", "scale", "power", "shift", "lower", "upper")
_LISTS_OF_NUMBERS = ("range", "middle", "spikes")
#: Constants of an amount whose transform is declared and not learned from a range.
DECLARED = ("transform", *_NUMBERS, "middle")
#: Constants of an outcome besides its kind. range: the public range, for a transform that is
#: learned. middle: two values between which about two thirds of the population lie, for a spread.
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
    for each in choices.outcomes:
        if each.kind is not None:
            check_word(f"kind of {each.name!r}", each.kind, KINDS)
    if isinstance(choices.weights_from, tuple):
        _check_sources(choices, choices.weights_from, columns)
    if choices.weight in names:
        raise InputError(f"weight: {choices.weight!r} is also an outcome; name another column.")
    if choices.mechanism is not None:
        check_word("mechanism", choices.mechanism, MECHANISMS)
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


def check_word(what: str, word: str, known: Sequence[str]) -> None:
    """Raise ``InputError`` for an unknown word."""
    if word not in known:
        raise InputError(
            f"{what}: expected one of {listing(known)}, got {word!r}.{nearest(word, known)}"
        )


def check_positive(what: str, number: float | None) -> None:
    """Raise ``InputError`` for a number that is not finite and above zero."""
    if number is not None and not (math.isfinite(number) and number > 0):
        raise InputError(f"{what}: expected a finite number above zero, got {number:g}.")


def read_constant(key: str, text: str) -> Any:
    """Return the value of a constant: a number, a list with commas, or a word.

    Raises ``InputError`` for other text.
    """
    if key in _NUMBERS:
        return read_number(key, text)
    if key in _LISTS_OF_NUMBERS:
        return [read_number(key, part) for part in text.split(",")]
    if key == "levels":
        return [part.strip() for part in text.split(",")]
    return text.strip()


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
    if given["range"] != OPEN:
        _check_range(given["range"], outcome.name)
    return given


def _declared_amount(given: dict[str, Any], name: str, *, strict: bool) -> dict[str, Any]:
    """Return transform and moments: as given, by public rules, or ``OPEN``.

    The rules use a typical value, and two values between which about two thirds of the population
    lie. The scale is about a tenth of the typical value; the spread is half of the distance on the
    scale of the transform, as a normal distribution has 68% within one SD.
    """
    if "range" in given:
        key = next(key for key in DECLARED if key in given)
        raise InputError(
            f"range of {name!r}: the transform is learned from a range alone, and {key} is for a "
            "transform that is declared; leave one of them out."
        )
    middle = given.pop("middle", None)
    centre = given.get("centre")
    scaled = {"scale", "power"} & set(given) or centre
    given.setdefault("transform", "yeo_johnson" if scaled else OPEN)
    kind = given["transform"]
    if kind in ("yeo_johnson", "asinh") and "scale" not in given:
        given["scale"] = _one_digit(abs(centre) / 10) if centre else OPEN
    if kind == "yeo_johnson":
        given.setdefault("power", 0.5)
    constants = [given.get(key, d) for key, d in (("scale", 1.0), ("shift", 0.0), ("power", 0.5))]
    known = OPEN not in (kind, *constants)
    if middle is not None and "spread" not in given and known:
        given["spread"] = _half_width(Transform(kind, *constants), middle, name)
    if strict:
        given.setdefault("centre", OPEN)
        given.setdefault("spread", OPEN)
    return given


def _check_range(ends: Sequence[float], name: str) -> None:
    """Raise ``InputError`` for a range that is not two numbers, the lower first."""
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise InputError(
            f"range of {name!r}: expected two numbers, the lower first; got "
            f"{', '.join(f'{end:g}' for end in ends)}."
        )


def _half_width(transform: Transform, bounds: Sequence[float], name: str) -> float:
    """Return half of a distance on the scale of the transform, to three digits."""
    ends = np.array(bounds, dtype=np.float64)
    if ends.size != 2 or not ends[0] < ends[1] or transform.violations(ends):
        raise InputError(
            f"middle of {name!r}: expected two numbers, the lower first, where "
            f"{transform.describe(name)} exists; got {', '.join(f'{end:g}' for end in ends)}."
        )
    low, high = transform.forward(ends)
    return float(f"{(high - low) / 2:.3g}")


def _one_digit(number: float) -> float:
    return float(f"{number:.0e}")


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
            "there is no terminal for questions. Give these flags, which have no default: "
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
            if key not in CONSTANTS:
                raise InputError(
                    f"--constant {text!r}: unknown key {key!r}.{nearest(key, CONSTANTS)} Known: "
                    f"{', '.join(CONSTANTS)}."
                )
            return name, key, read_constant(key, value)
    raise InputError(
        f"--constant {text!r}: expected NAME.KEY=VALUE, such as salary.centre=45000, where NAME is "
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
