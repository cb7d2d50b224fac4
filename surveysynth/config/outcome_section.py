"""The section ``[outcomes.<name>]`` of the specification file."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from surveysynth.config.sections import Name, Section, as_tuple
from surveysynth.config.wording import shown
from surveysynth.survey.outcome import OutcomeKind
from surveysynth.survey.transforms import LearnedBy, TransformKind


def _as_texts(value: Any) -> Any:
    """Return a list as a tuple of texts; codes may be whole numbers."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(str(each) if type(each) is int else each for each in value)


def _by_side(*, positive: bool) -> PlainValidator:
    """Validate a number, or two for an outcome with a split: above it and below."""

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
                f"expected one number, or two (above and below a split), got {len(value)}."
            )
        return float(value[0]), float(value[1])

    return PlainValidator(read)


def _written(value: float | tuple[float, float] | None) -> Any:
    """Return a number, or a list of two: Pydantic warns of pairs in a union."""
    return list(value) if isinstance(value, tuple) else value

#: The section of the sampling weight, whatever its column is called.
WEIGHT = "weight"

BySide: TypeAlias = float | tuple[float, float] | None
"""One number, or one above a split and one below it."""


class OutcomeSection(Section):
    """``[outcomes.NAME]``: kind, transform, spikes, split, bounds and levels, all public.

    ``Outcome`` checks that the keys belong together. With a split, centre is a typical value above
    it and one below, and spread is one number or two: noisy statistics use them, and
    pseudo-records. ``[outcomes.weight]`` has centre and spread of the log weight, or the range of
    the weight.
    """

    about = (
        "`[outcomes.NAME]`: what is publicly known about an outcome. `NAME` is a column, or "
        "`weight` for the sampling weight: its range, or under noisy statistics the center and "
        "spread of its logarithm. All of it comes from a questionnaire, a register or last year's "
        "publication, never from the data."
    )

    kind: OutcomeKind = "continuous"
    """The kind of outcome: "continuous" is an amount without values where many records pile up,
    "semicontinuous" an amount that is often exactly at a spike, "binary" has two levels,
    "categorical" has several levels, and "count" is a whole number in a public `range`; for the
    models of counts, `poisson` and `negative_binomial`, it has none. Public: The kind."""
    transform: TransformKind | None = None
    """The scale on which amounts are modelled. "learned" takes a public `range` alone: a part of
    the budget goes to a noisy histogram, and amounts become normal scores of it. Default: "learned"
    with a `range`, otherwise that of [synthesizer]. The weight takes "learned" alone; otherwise it
    is modelled as its logarithm. Public: The transform."""
    scale: float | None = None
    """The divisor of the transform, in the outcome's units: about a tenth of a typical value.
    Default: that of [synthesizer]. Public: The number."""
    power: float | None = None
    """The power of `yeo_johnson`: 0 is the logarithm, 1 the amount itself. Default: that of
    [synthesizer]. Public: The number."""
    shift: float | None = None
    """The number that `log` adds first. Default: that of [synthesizer]. Public: The number."""
    range: Annotated[tuple[float, float], BeforeValidator(as_tuple)] | None = None
    """For `learned` and for a count: the public range of the outcome, from a codebook or a
    questionnaire. Amounts outside it count as its nearer end, and synthetic amounts lie within it.
    A generous range costs little. That of a count has its least and its largest value, two whole
    numbers. That of the weight starts above zero and needs model = "fbs". Type: a list of two
    numbers. Default: none; required for `learned` and for a count. Public: The two numbers, so
    never take them from the data."""
    learned_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """For `learned`: the share of the whole budget for the noisy histogram of this outcome.
    Default: 0.1, divided by the number of columns that are learned. Public: The number, and the
    noisy histogram."""
    learned_by: LearnedBy | None = None
    """For `learned`: one curve ("all"), or a curve for each stratum ("strata") or for each cell of
    the by columns and of strata that are predictors ("cells"), which is shrunk to the curve of all.
    "strata" pays where strata lie far apart, such as classes of size, and have many records each.
    Default: "cells" for a count, otherwise "all". Public: The rule, and the curves."""
    spikes: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = ()
    """Values where many records lie exactly, such as 0 or a top code. Whether a record is at a
    spike is modelled as a category. Public: The values; synthetic records lie there too."""
    lower: float | None = None
    """No synthetic amount is below this number. A record below it is an error. Public: The number,
    and that no record is below it."""
    upper: float | None = None
    """No synthetic amount is above this number. A record above it is an error. Public: The number,
    and that no record is above it."""
    split: float | None = None
    """For a semicontinuous outcome: a point that separates amounts of two kinds, such as taxes and
    refunds. Each side has its own regression. Public: The point."""
    levels: Annotated[tuple[Name, ...], BeforeValidator(_as_texts)] = ()
    """All levels that may occur, in the order of the tables. A record with another level is an
    error. A proportion is the share of the second of two levels. Type: list of texts or whole
    numbers. Default: 0 and 1 for a binary outcome; required for a categorical one. Public: The
    levels, and that no record has another."""
    centre: Annotated[BySide, _by_side(positive=False), PlainSerializer(_written)] = None
    """A typical value in the outcome's units; for the weight, a typical logarithm. Noisy statistics
    clip records to a ball around it. Under the pseudo-posterior pseudo-records of an amount that
    some records lack are there. A value far off costs accuracy, never privacy. Type: a number, or
    with a split a list of two, above and below. Default: none; log(N/n) for the weight if N is
    given. Public: The number. It sets the noise, so never take it from the survey."""
    spread: Annotated[BySide, _by_side(positive=True), PlainSerializer(_written)] = None
    """A typical standard deviation on the scale of the transform. Noise is proportional to it, and
    records are clipped at a multiple of it. `surveysynth check` also simulates with it. Type: a
    number above 0, or with a split a list of two, above and below. Default: none; 0.6 for the
    weight. Public: The number, as for `centre`."""

    def of_side(self, side: int) -> tuple[float | None, float | None]:
        """Return centre and spread of a side of the split, or of all amounts without a split."""
        centre, spread = (
            each[side] if isinstance(each, tuple) else each for each in (self.centre, self.spread)
        )
        return centre, spread


Outcomes = Mapping[str, OutcomeSection]
