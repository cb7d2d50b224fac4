"""Public declarations about an outcome: its kind, its transform, and the values it can take.

Values of an outcome are floats (n,): the number itself, or for binary and categorical outcomes the
position of the level, from 0. The discrete part of a value is its category: the level, or for
amounts 0 (with a split 0 above it and 1 below), then the spikes; a missing answer (NaN), where the
outcome may have such, is the last. Amounts at no spike are modeled as z = T(y), with a split s as
T(y - s) above and T(s - y) below (methods 1.5); a value at the split that is no spike is above.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.transforms import LearnedTransform, Transform

OutcomeKind = Literal["continuous", "semicontinuous", "count", "binary", "categorical"]
#: Kinds whose values are numbers with a transform; those of other kinds are levels.
AMOUNTS: tuple[OutcomeKind, ...] = ("continuous", "semicontinuous", "count")

#: Levels of a binary outcome that declares none.
BINARY_LEVELS = ("0", "1")
#: Name of the category of amounts that are no spikes.
OTHER_VALUES = "other"
#: Categories of the sides of a split.
ABOVE, BELOW = 0, 1


@dataclass(frozen=True)
class Outcome:
    """One confidential variable.

    Parameters
    ----------
    name
        Its column.
    kind
        "continuous", "semicontinuous", "count", "binary" or "categorical".
    transform
        The transform of amounts; binary and categorical outcomes have the identity. Counts need a
        ``LearnedTransform``, whose range has the least and the largest count.
    spikes
        Points where values of a semicontinuous outcome pile up.
    lower, upper
        Bounds of every amount, or None.
    levels
        Levels of a categorical or binary outcome, in order.
    split
        Split of a semicontinuous outcome, or None: amounts above and below it have separate
        regressions.
    missing
        True if missing answers are a separate category.

    Raises
    ------
    InputError
        For parts that contradict each other; it names outcomes.NAME and the part.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> benefit = ss.Outcome("benefit", "semicontinuous", spikes=(0.0,))
    >>> benefit.category(np.array([0.0, 250.0]))
    array([1, 0])
    """

    name: str
    kind: OutcomeKind = "continuous"
    transform: Transform = Transform()  # noqa: RUF009  (frozen)
    spikes: tuple[float, ...] = ()
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str, ...] = ()
    split: float | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        # The dataclass is frozen. Lists become tuples, and zero has one sign.
        settled: dict[str, Any] = {"spikes": tuple(each + 0.0 for each in self.spikes)}
        settled["levels"] = tuple(self.levels)
        if self.split is not None:
            settled["split"] = self.split + 0.0
        if self.kind == "binary" and not self.levels:
            settled["levels"] = BINARY_LEVELS
        if self.kind in ("binary", "categorical"):
            settled["transform"] = Transform("identity")
        if self.learned is not None and self.kind == "count":
            settled["transform"] = replace(self.learned, whole=True)
        for part, value in settled.items():
            object.__setattr__(self, part, value)
        for part, text in self._problems():
            raise InputError(f"outcomes.{self.name}.{part}: {text}")

    def _problems(self) -> list[tuple[str, str]]:
        """Return parts that contradict each other, and why."""
        if self.kind not in get_args(OutcomeKind):
            known = get_args(OutcomeKind)
            hint = nearest(str(self.kind), known)
            return [("kind", f"expected one of {listing(known)}, got {self.kind!r}.{hint}")]
        bounds, given = (self.lower, self.upper), self.learned
        bounded = bounds != (None, None)
        points = (self.lower, self.split, self.upper)
        ends = [end for end in points if end is not None]
        several = bool(self.spikes) or self.split is not None
        last = ABOVE if self.split is None else BELOW
        wanted = {"binary": 2, "categorical": max(2, len(self.levels))}.get(self.kind, 0)
        checks = [
            ("transform", self.kind != "count" or given is not None,
             "kind 'count' needs a learned transform, with the public range of the count."),
            ("transform", self.kind == "count" or given is None or not given.whole,
             f"a transform of whole numbers is for kind 'count', got kind {self.kind!r}."),
            ("spikes", several or self.kind != "semicontinuous",
             "kind 'semicontinuous' needs spikes (points where values pile up, such as [0]) or "
             f"a split; got {len(self.spikes) or 'none'}."),
            ("spikes", not self.spikes or self.kind == "semicontinuous",
             "points where values pile up, such as [0], require kind = 'semicontinuous'; "
             f"got kind {self.kind!r} with {len(self.spikes)}."),
            ("split", self.split is None or self.kind == "semicontinuous",
             "a point above and below which amounts are of two kinds requires "
             f"kind = 'semicontinuous', got kind {self.kind!r}."),
            ("split", self.split is None or bool(np.isfinite(self.split)),
             "expected a finite number."),
            ("spikes", bool(np.isfinite(self.spikes).all()), "expected finite numbers."),
            ("spikes", len(set(self.spikes)) == len(self.spikes), "list each spike once."),
            ("levels", len(self.levels) == wanted,
             "kind 'binary' has two levels, 'categorical' two or more, and others none; got kind "
             f"{self.kind!r} with {len(self.levels) or 'none'}."),
            ("levels", all(isinstance(level, str) and level.strip() for level in self.levels),
             "expected texts that are not empty."),
            ("levels", len(set(self.levels)) == len(self.levels), "list each level once."),
            ("bounds", self.is_amount or not bounded,
             f"only amounts have bounds, got kind {self.kind!r}."),
            ("bounds", all(end is None or np.isfinite(end) for end in bounds),
             "expected finite numbers."),
            ("bounds", self.lower is None or self.upper is None or self.lower < self.upper,
             f"expected lower below upper, got {self.lower!r} and {self.upper!r}."),
            ("bounds", given is None or not bounded,
             "a learned transform has a range in the place of bounds; records outside it count as "
             "its end. Remove bounds."),
            ("split", given is None or self.split is None or given.low < self.split < given.high,
             "expected a number inside the range."),
            ("split", all(one < other for one, other in pairwise(ends)),
             f"expected a number between the bounds, got {self.split!r} with "
             f"{self.lower!r} and {self.upper!r}."),
        ]  # fmt: skip
        found = [(part, text) for part, holds, text in checks if not holds]
        return found or [
            ("bounds", f"{self.formula(side)} is not defined at {end!r}; declare a bound where it "
             "is defined, or remove the bound.")
            for end, side in zip(bounds, (last, ABOVE), strict=True)
            if end is not None and self.violations(np.array([end]), side)
        ]  # fmt: skip

    @property
    def learned(self) -> LearnedTransform | None:
        """The transform if it is a learned one."""
        return self.transform if isinstance(self.transform, LearnedTransform) else None

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Bounds of synthetic amounts: lower and upper, or the range of a learned transform."""
        given = self.learned
        return (self.lower, self.upper) if given is None else (given.low, given.high)

    @property
    def is_positive(self) -> bool:
        """True for an amount that cannot be negative, by its kind, its transform or its bounds."""
        lower = self.limits[0]
        by_log = self.transform.kind == "log" and self.transform.shift <= 0 and self.split is None
        return self.kind == "count" or by_log or (lower is not None and lower >= 0)

    @property
    def is_amount(self) -> bool:
        """True for a continuous or semicontinuous outcome, and for a count."""
        return self.kind in AMOUNTS

    @property
    def is_discrete(self) -> bool:
        """True for an outcome with a discrete part."""
        return self.kind not in ("continuous", "count") or self.missing

    @property
    def is_plain(self) -> bool:
        """True for a continuous outcome without bounds, as those of the papers, and for a count."""
        return not self.is_discrete and self.lower is None and self.upper is None

    @property
    def is_labelled(self) -> bool:
        """True if values have names, which files show instead."""
        return not self.is_amount and self.levels != BINARY_LEVELS

    @property
    def categories(self) -> int:
        """Number of categories of the discrete part, with missing answers if they are one."""
        return len(self.category_names) + int(self.missing)

    @property
    def missing_category(self) -> int:
        """The category of missing answers."""
        return len(self.category_names)

    @property
    def category_names(self) -> tuple[str, ...]:
        """Names of the categories of values: levels, or all other values and then the spikes."""
        amounts = (self.side_name(side) or OTHER_VALUES for side in self.sides)
        return self.levels or (*amounts, *(f"{spike:.15g}" for spike in self.spikes))

    @property
    def sides(self) -> range:
        """Categories of amounts, each with a column in the model: 0, with a split 0 and 1."""
        return range(0 if not self.is_amount else 1 if self.split is None else 2)

    def side_name(self, side: int) -> str:
        """Return a side of the split in words, "above 0"; empty without a split."""
        if self.split is None:
            return ""
        point = f"{self.split:.15g}"
        if side == BELOW:
            return f"below {point}"
        return f"above {point}" if self.split in self.spikes else f"{point} or above"

    def category(self, values: FloatArray) -> IntArray:
        """Return the discrete part (n,) of values (n,)."""
        if self.missing and (lost := np.isnan(values)).any():
            result = self.category(np.where(lost, 0.0, values))
            result[lost] = self.missing_category
            return result
        if not self.is_amount:
            return np.array(values, dtype=np.int64)
        result = np.zeros(values.shape, dtype=np.int64)
        if self.split is not None:
            result[values < self.split] = BELOW
        for position, spike in enumerate(self.spikes):
            result[values == spike] = len(self.sides) + position
        return result

    def values(self, category: IntArray, transformed: FloatArray) -> FloatArray:
        """Return values (n,) from categories (n,) and transformed values (n,).

        Transformed values only matter for amounts that are no spikes.
        """
        if not self.is_amount:
            values = category.astype(np.float64)
            return np.where(category < self.missing_category, values, np.nan)
        result = np.full(transformed.shape, np.nan)
        for side in self.sides:
            there = category == side
            result[there] = self.at(there).inverse(transformed[there], side)
        for position, spike in enumerate(self.spikes):
            result[category == len(self.sides) + position] = spike
        return result

    def distance(self, values: FloatArray, side: int = ABOVE) -> FloatArray:
        """Return the distance of values (n,) from the split, or the values if there is none."""
        if self.split is None:
            return values
        return self.split - values if side == BELOW else values - self.split

    def forward(self, values: FloatArray, side: int = ABOVE) -> FloatArray:
        """Return values (n,) of a side on the model's scale."""
        transform = self.transform.of_side(self.split, side)
        return transform.forward(self.distance(values, side))

    def at(self, rows: IntArray | BoolArray) -> "Outcome":
        """Return the declarations for some records, which may have curves of their own."""
        chosen = self.transform.at(rows)
        return self if chosen is self.transform else replace(self, transform=chosen)

    def inverse(self, transformed: FloatArray, side: int = ABOVE) -> FloatArray:
        """Invert ``forward``; rounding never leads to the other side."""
        amount = self.transform.of_side(self.split, side).inverse(transformed)
        if self.split is None:
            return amount
        if side == BELOW:
            return np.minimum(self.split - amount, np.nextafter(self.split, -np.inf))
        least = np.nextafter(self.split, np.inf) if self.split in self.spikes else self.split
        return np.maximum(self.split + amount, least)

    def violations(self, values: FloatArray, side: int = ABOVE) -> int:
        """Return the number of values of a side outside the transform's domain."""
        return self.transform.violations(self.distance(values, side))

    def formula(self, side: int = ABOVE) -> str:
        """Return the transform of a side: "log(salary)", "log(100 - salary)"."""
        taken = self.name if side == ABOVE else f"-{self.name}"
        if self.split:
            sign = "-" if self.split > 0 else "+"
            above = f"{self.name} {sign} {abs(self.split):.15g}"
            taken = above if side == ABOVE else f"{self.split:.15g} - {self.name}"
            taken = taken if self.transform.scale == 1.0 else f"({taken})"
        return self.transform.of_side(self.split, side).describe(taken)

    @property
    def formulas(self) -> str:
        """Transforms of all sides: "log(tax) above 0 and log(-tax) below 0"; a name for levels."""
        parts = [f"{self.formula(side)} {self.side_name(side)}".strip() for side in self.sides]
        return " and ".join(parts) or self.name

    def labels(self, values: FloatArray) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
        """Return names (n,) of the levels of values (n,)."""
        return np.array(self.levels, dtype=object)[values.astype(np.int64)]

    def regular(self, values: FloatArray) -> BoolArray:
        """Return the values (n,) that are amounts but not spikes."""
        if not self.is_amount:
            return np.zeros(values.shape, dtype=bool)
        return np.asarray(self.category(values) < len(self.sides), dtype=bool)

    def outside(self, values: FloatArray) -> BoolArray:
        """Return the amounts (n,) that are not spikes and outside lower and upper."""
        result = np.zeros(values.shape, dtype=bool)
        if self.lower is not None:
            result |= values < self.lower
        if self.upper is not None:
            result |= values > self.upper
        return np.asarray(result & self.regular(values), dtype=bool)

    @property
    def model_words(self) -> str:
        """Name and transform: "salary, as log(salary)"."""
        formula = self.formulas
        return self.name if formula == self.name else f"{self.name}, as {formula}"

    @property
    def public_words(self) -> str:
        """Declarations besides the transform; empty for a continuous outcome without bounds."""
        if self.is_plain and self.kind != "count":
            return ""
        missing = ["missing answers as a category"] if self.missing else []
        if not self.is_amount:
            return ", ".join([f"{self.kind}: {', '.join(self.levels)}", *missing])
        parts: list[str] = [self.kind]
        if self.spikes:
            parts.append("spikes at " + ", ".join(f"{spike:,.10g}" for spike in self.spikes))
        if self.split is not None:
            parts.append(f"split at {self.split:,.10g}")
        given = self.limits if self.kind == "count" else (self.lower, self.upper)
        ends = zip(("from", "to"), given, strict=True)
        bounds = " ".join(f"{word} {end:,.10g}" for word, end in ends if end is not None)
        return ", ".join([*parts, *([bounds] if bounds else []), *missing])

    @property
    def words(self) -> str:
        """All declarations in a line: "benefit, as log(benefit) (..)"."""
        return self.model_words + (f" ({self.public_words})" if self.public_words else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the declarations as JSON; only amounts have bounds and a transform."""
        facts: dict[str, Any] = {"kind": self.kind, **({"missing": True} if self.missing else {})}
        if not self.is_amount:
            return {**facts, "levels": list(self.levels)}
        facts["transform"] = self.formulas
        if self.spikes:
            facts["spikes"] = list(self.spikes)
        if self.split is not None:
            facts["split"] = self.split
        ends = {"lower": self.lower, "upper": self.upper}
        return {**facts, **{key: end for key, end in ends.items() if end is not None}}


def needs_general_form(outcomes: Sequence[Outcome]) -> bool:
    """Return True if some outcome has a discrete part or bounds, unlike in the papers."""
    return not all(outcome.is_plain for outcome in outcomes)


def zero_one(outcomes: Sequence[Outcome]) -> tuple[int, ...]:
    """Return the positions of outcomes that are 0 and 1.

    These are the binary ones, or if there are none the continuous ones without a transform.
    """
    binary = tuple(j for j, each in enumerate(outcomes) if each.kind == "binary")
    return binary or tuple(
        j
        for j, each in enumerate(outcomes)
        if each.kind == "continuous" and each.transform.kind == "identity"
    )


def undeclared(outcome: Outcome, side: int) -> str:
    """Say that an amount lacks its public constants."""
    where = outcome.side_name(side)
    return (
        f"The outcome {outcome.name!r} needs a declared center and spread"
        f"{f' {where}' if where else ''}, from public sources and never from these data: a typical "
        "value in its own units and a typical standard deviation on the scale of its transform. Or "
        "declare a public range and learn the transform."
    )
