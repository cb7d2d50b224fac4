"""What is publicly known of an outcome: its kind, its transform, and the values it can take.

    continuous      a transform
    semicontinuous  the same, and spikes: public points where values pile up
    binary          values 0 and 1, or two levels
    categorical     levels, in order, public

Values of an outcome are floats (n,): the number itself, or of binary and categorical outcomes the
position of the level, from 0 on. The discrete part of a value is its category: the level, or for a
semicontinuous outcome 0 where it lies at no spike, else 1 + the position of the spike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.transforms import Transform

OutcomeKind = Literal["continuous", "semicontinuous", "binary", "categorical"]

#: What a binary outcome without levels is called.
BINARY_LEVELS = ("0", "1")
#: Category of an amount at no spike.
OTHER_VALUES = "other"


@dataclass(frozen=True)
class Outcome:
    """One confidential variable.

    Parameters
    ----------
    name
        Its column.
    kind
        "continuous", "semicontinuous", "binary" or "categorical".
    transform
        Of the values that are amounts; not used by binary and categorical outcomes.
    spikes
        Points where values of a semicontinuous outcome pile up.
    lower, upper
        Between which every amount lies, or None.
    levels
        Of a categorical or binary outcome, in order.

    Raises
    ------
    InputError
        For parts that do not belong together.

    Examples
    --------
    >>> import numpy as np
    >>> from surveysynth.survey.outcome import Outcome
    >>> benefit = Outcome("benefit", "semicontinuous", spikes=(0.0,))
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

    def __post_init__(self) -> None:
        if self.kind == "binary" and not self.levels:
            object.__setattr__(self, "levels", BINARY_LEVELS)  # the dataclass is frozen
        problem = self._problem()
        if problem:
            raise InputError(f"outcomes.{self.name}: {problem}")

    def _problem(self) -> str:
        """What does not belong together, or nothing."""
        bounds = [bound for bound in (self.lower, self.upper) if bound is not None]
        points = [*self.spikes, *bounds]
        wanted = {"binary": 2, "categorical": max(2, len(self.levels))}.get(self.kind, 0)
        checks = (
            (bool(self.spikes) == (self.kind == "semicontinuous"),
             "spikes, points where values pile up such as [0], belong to kind 'semicontinuous', "
             f"which needs them; got kind {self.kind!r} with {len(self.spikes)}."),
            (len(self.levels) == wanted,
             f"levels belong to kinds 'binary' (two) and 'categorical' (two or more); got kind "
             f"{self.kind!r} with {len(self.levels)}."),
            (len(set(self.spikes)) == len(self.spikes), "every spike may occur once."),
            (len(set(self.levels)) == len(self.levels), "every level may occur once."),
            (self.is_amount or not bounds,
             f"lower and upper are for amounts, got kind {self.kind!r}."),
            (bool(np.isfinite(points).all()), "spikes, lower and upper must be finite numbers."),
            (len(bounds) < 2 or bounds[0] < bounds[1],
             f"lower must be below upper, got {self.lower!r} and {self.upper!r}."),
        )  # fmt: skip
        return next((text for holds, text in checks if not holds), "")

    @property
    def is_amount(self) -> bool:
        """Whether it has values on a continuous scale."""
        return self.kind in ("continuous", "semicontinuous")

    @property
    def is_discrete(self) -> bool:
        """Whether it has a discrete part."""
        return self.kind != "continuous"

    @property
    def categories(self) -> int:
        """Of its discrete part; 1 for a continuous outcome, which has none."""
        return len(self.category_names)

    @property
    def category_names(self) -> tuple[str, ...]:
        """Of the categories: the levels, or the spikes after all other values."""
        return self.levels or (OTHER_VALUES, *(f"{spike:.15g}" for spike in self.spikes))

    def category(self, values: FloatArray) -> IntArray:
        """The discrete part (n,) of values (n,)."""
        if not self.is_amount:
            return np.asarray(values, dtype=np.int64)
        result = np.zeros(values.shape, dtype=np.int64)
        for position, spike in enumerate(self.spikes):
            result[values == spike] = 1 + position
        return result

    def values(self, category: IntArray, transformed: FloatArray) -> FloatArray:
        """Values (n,) from categories (n,) and, where they are amounts at no spike, transformed
        values (n,), which are not looked at elsewhere."""
        if not self.is_amount:
            return category.astype(np.float64)
        result = np.empty(transformed.shape)
        regular = category == 0
        result[regular] = self.transform.inverse(transformed[regular])
        for position, spike in enumerate(self.spikes):
            result[category == 1 + position] = spike
        return result

    def labels(self, values: FloatArray) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
        """Names of the levels (n,) of values (n,) of a categorical or binary outcome."""
        return np.array(self.levels, dtype=object)[values.astype(np.int64)]

    def outside(self, values: FloatArray) -> BoolArray:
        """Which amounts (n,) lie at no spike and outside lower and upper."""
        result = np.zeros(values.shape, dtype=bool)
        if self.lower is not None:
            result |= values < self.lower
        if self.upper is not None:
            result |= values > self.upper
        return np.asarray(result & (self.category(values) == 0), dtype=bool)


def outcomes_of(
    names: Sequence[str], transforms: Sequence[Transform]
) -> tuple[Outcome, ...]:
    """Continuous outcomes, one a transform."""
    pairs = zip(names, transforms, strict=True)
    return tuple(Outcome(name, transform=transform) for name, transform in pairs)
