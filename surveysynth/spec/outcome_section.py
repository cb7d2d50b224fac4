"""The section ``[outcomes.<name>]`` of the specification file."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, PlainValidator

from surveysynth.spec.sections import Name, Section
from surveysynth.spec.wording import shown
from surveysynth.survey.outcome import OutcomeKind
from surveysynth.survey.transforms import TransformKind


def _as_texts(value: Any) -> Any:
    """A list as a tuple; codes may be written as whole numbers."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(str(each) if type(each) is int else each for each in value)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _by_side(*, positive: bool) -> PlainValidator:
    """A number, or two of an outcome with a split: above it and below."""

    def read(value: Any) -> float | tuple[float, float] | None:
        several = isinstance(value, list | tuple)
        for each in value if several else (value,):
            if isinstance(each, bool) or not isinstance(each, int | float):
                words = "a number"
            elif not abs(each) <= sys.float_info.max:
                words = "a finite number"
            elif positive and each <= 0:
                words = "a number greater than 0"
            else:
                continue
            raise ValueError(f"expected {words}, got {shown(each)}.")
        if not several:
            return float(value)
        if len(value) != 2:
            raise ValueError(
                f"expected a number, or two, above a split and below it, got {len(value)}."
            )
        return float(value[0]), float(value[1])

    return PlainValidator(read)


BySide: TypeAlias = float | tuple[float, float] | None
"""One number, or one above a split and one below it."""


class OutcomeSection(Section):
    """``[outcomes.<name>]``: kind, transform, spikes, split, bounds and levels, all public.

    What does not belong together is told by ``Outcome``. centre: a typical value in the outcome's
    own units; spread: a typical SD on the scale of its transform; with a split centre is a typical
    value above it and one below, spread one number or two. In ``[outcomes.weight]`` both are
    of the log weight. Only noisy statistics use them; they cost accuracy where they are wrong,
    never privacy.
    """

    kind: Literal[OutcomeKind, "count"] = "continuous"
    transform: TransformKind | None = None
    scale: float | None = None
    power: float | None = None
    shift: float | None = None
    spikes: Annotated[tuple[float, ...], BeforeValidator(_as_tuple)] = ()
    lower: float | None = None
    upper: float | None = None
    split: float | None = None
    levels: Annotated[tuple[Name, ...], BeforeValidator(_as_texts)] = ()
    centre: Annotated[BySide, _by_side(positive=False)] = None
    spread: Annotated[BySide, _by_side(positive=True)] = None

    def of_side(self, side: int) -> tuple[float | None, float | None]:
        """Centre and spread of a side of the split, or of the amounts where there is none."""
        centre, spread = (
            each[side] if isinstance(each, tuple) else each for each in (self.centre, self.spread)
        )
        return centre, spread


Outcomes = Mapping[str, OutcomeSection]
