"""``[outcomes.NAME]``: its keys, and the transforms that are learned by them."""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from surveysynth.config.mistakes import shown
from surveysynth.config.sections import Name, Section, SurveySection, as_tuple
from surveysynth.config.synthesizer_section import SynthesizerSection
from surveysynth.errors import InputError
from surveysynth.models import get_model, registered
from surveysynth.survey.columns import text_of
from surveysynth.survey.outcome import OutcomeKind
from surveysynth.survey.transforms import (
    LEARNED_SHARE,
    OF_MEAN_WEIGHT,
    LearnedBy,
    LearnedTransform,
    Transform,
    TransformKind,
)


def _as_texts(value: Any) -> Any:
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


class TransformSection(Section):
    """``transform`` of an outcome: a kind with its constants, or the kind that has these."""

    kind: TransformKind | None = None
    scale: float | None = None
    power: float | None = None
    shift: float | None = None
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    by: LearnedBy | None = None

    @property
    def constants(self) -> dict[str, float]:
        """Scale, power and shift, where they are given."""
        given = {"scale": self.scale, "power": self.power, "shift": self.shift}
        return {key: number for key, number in given.items() if number is not None}

    @property
    def learned_keys(self) -> list[str]:
        """The given keys that only a learned transform has."""
        return [key for key in ("share", "by") if getattr(self, key) is not None]


def _as_transform(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _transform_written(value: TransformSection | None) -> Any:
    """Return the kind alone if nothing else is given, as in a file."""
    given = {} if value is None else value.model_dump(exclude_none=True)
    return given.get("kind") if given.keys() <= {"kind"} else given


def _bounds(value: Any) -> Any:
    """Return two ends, of which one may be infinite; JSON has that as a text."""
    if value is None:
        return None
    ends = [float(each) if each in ("-inf", "inf") else each
            for each in (value if isinstance(value, list | tuple) else ())]  # fmt: skip
    numbers = all(type(each) in (int, float) for each in ends)
    if not (numbers and len(ends) == 2 and ends[0] < ends[1] and any(map(math.isfinite, ends))):
        raise ValueError(
            "expected two numbers, the lower first, of which one may be infinite, such as [0, inf],"
            f" got {shown(value)}."
        )
    return float(ends[0]), float(ends[1])


def _bounds_written(value: tuple[float, float] | None) -> Any:
    return value and [each if math.isfinite(each) else str(each) for each in value]


def american(given: Mapping[str, Any]) -> dict[str, Any]:
    """Spell the key ``centre`` as ``center``, unless both are given: then one is unknown."""
    return {"center" if key == "centre" and "center" not in given else key: value
            for key, value in given.items()}  # fmt: skip


#: No log of a sampling weight is as large: a weight of 5e8 would be.
LARGE_LOG = 20.0
#: The section of the sampling weight, whatever its column is called.
WEIGHT = "weight"

BySide: TypeAlias = float | tuple[float, float] | None
"""One number, or one above a split and one below it."""


class OutcomeSection(Section):
    """``[outcomes.NAME]``: kind, transform, spikes, split, bounds and levels, all public.

    ``Outcome`` checks that the keys belong together. With a split, center is a typical value above
    it and one below, and spread is one number or two: noisy statistics use them, and
    pseudo-records. ``[outcomes.weight]`` has center and spread of the log weight, or the range of
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
    transform: Annotated[
        TransformSection | None, BeforeValidator(_as_transform), PlainSerializer(_transform_written)
    ] = None
    """The scale on which amounts are modeled, with its constants in a table. `log` first adds
    `shift`; `asinh`, `identity` and `yeo_johnson` divide by `scale`, about a tenth of a typical
    value; `yeo_johnson` has a `power`: 0 is the logarithm, 1 the amount itself, 0.5 the default,
    and incomes lie between 0.3 and 0.5. "learned" takes a public `range` alone: a part of the
    budget goes to a noisy histogram, and amounts become normal scores of it. Its `share` is that of
    the whole budget, by default 0.1 divided by the number of columns that are learned; `by` has one
    curve ("all"), or a curve for each stratum ("strata") or for each cell of the by columns and of
    strata that are predictors ("cells"), which is shrunk to the curve of all, or one for each large
    cell and one for the others ("large_cells", the default): of 300 records or more, or of 25
    standard deviations of the noise for a count. "strata" pays where strata lie far apart, such as
    classes of size, and have many records each. The weight takes "learned" alone; otherwise it is
    modeled as its logarithm.
    Type: "log", "identity", "asinh", "yeo_johnson" or "learned", or a table such as
    { kind = "asinh", scale = 1000 }. Default: "learned" with a `range`, otherwise "log", or
    "yeo_johnson" with a scale or a power. Public: The transform, its constants, and the noisy
    histogram and the curves."""
    range: Annotated[tuple[float, float], BeforeValidator(as_tuple)] | None = None
    """For `learned` and for a count: the public range of the outcome, from a codebook or a
    questionnaire. Amounts outside it count as its nearer end, and synthetic amounts lie within it.
    A generous range costs little. That of a count has its least and its largest value, two whole
    numbers. That of the weight starts above zero and needs model = "fbs". Type: a list of two
    numbers. Default: none; required for `learned` and for a count. Public: The two numbers, so
    never take them from the data."""
    spikes: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = ()
    """Values where many records lie exactly, such as 0 or a top code. Whether a record is at a
    spike is modeled as a category. Public: The values; synthetic records lie there too."""
    bounds: Annotated[
        tuple[float, float] | None, PlainValidator(_bounds), PlainSerializer(_bounds_written)
    ] = None
    """No synthetic amount lies outside these two numbers, of which one may be infinite, as in
    [0, inf]. A record outside them is an error. Type: a list of two numbers. Public: The numbers,
    and that no record is outside them."""
    split: float | None = None
    """For a semicontinuous outcome: a point that separates amounts of two kinds, such as taxes and
    refunds. Each side has its own regression. Public: The point."""
    levels: Annotated[tuple[Name, ...], BeforeValidator(_as_texts)] = ()
    """All levels that may occur, in the order of the tables. A record with another level is an
    error. A proportion is the share of the second of two levels. Type: list of texts or whole
    numbers. Default: 0 and 1 for a binary outcome; required for a categorical one. Public: The
    levels, and that no record has another."""
    missing_codes: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = ()
    """Codes for no answer, such as -9 or 9999: cells with one count as blank, and `missing` says
    what becomes of them. Without this, such a code is an answer of its own, or an amount. Type:
    list of numbers. Public: The codes."""
    center: Annotated[BySide, _by_side(positive=False), PlainSerializer(_written)] = None
    """A typical value in the outcome's units; for the weight, a typical logarithm, alone for the
    range that is learned, a hundredth to a hundred times its exponential. Noisy statistics
    clip records to a ball around it. Under the pseudo-posterior pseudo-records of an amount that
    some records lack are there. A value far off costs accuracy, never privacy. Type: a number, or
    with a split a list of two, above and below. Default: none; log(N/n) for the weight if N is
    given. Public: The number. It sets the noise, so never take it from the survey."""
    spread: Annotated[BySide, _by_side(positive=True), PlainSerializer(_written)] = None
    """A typical standard deviation on the scale of the transform. Noise is proportional to it, and
    records are clipped at a multiple of it. `surveysynth check` also simulates with it. Type: a
    number above 0, or with a split a list of two, above and below. Default: none: the transform
    of the weight is learned, or by `fbp` its spread is 0.6. Public: The number, as for `center`."""

    @model_validator(mode="before")
    @classmethod
    def _in_american(cls, given: Any) -> Any:
        """Take ``centre`` for ``center``."""
        return american(given) if isinstance(given, Mapping) else given

    @property
    def lower(self) -> float | None:
        """The least amount, or None."""
        return self.bounds[0] if self.bounds and self.bounds[0] > -math.inf else None

    @property
    def upper(self) -> float | None:
        """The largest amount, or None."""
        return self.bounds[1] if self.bounds and self.bounds[1] < math.inf else None

    @property
    def transform_kind(self) -> TransformKind | None:
        """The kind of transform, where one is named."""
        return None if self.transform is None else self.transform.kind

    @model_validator(mode="after")
    def _codes_are_no_levels(self) -> "OutcomeSection":
        both = [each for each in map(text_of, self.missing_codes) if each in self.levels]
        if both:
            raise ValueError(f"missing_codes: {both[0]!r} is one of the levels; it cannot be both.")
        return self

    def of_side(self, side: int) -> tuple[float | None, float | None]:
        """Return center and spread of a side of the split, or of all amounts without a split."""
        center, spread = (
            each[side] if isinstance(each, tuple) else each for each in (self.center, self.spread)
        )
        return center, spread


Outcomes = Mapping[str, OutcomeSection]


LEARNED: Final = "learned"
_LEARNED = TransformSection(kind=LEARNED)


def learned_keys(section: OutcomeSection) -> list[str]:
    """Return the given keys that only a learned transform has."""
    own = [] if section.transform is None else section.transform.learned_keys
    return ["range"] * (section.range is not None) + [f"transform.{key}" for key in own]


def of_counts(synthesizer: SynthesizerSection) -> bool:
    """Return whether the model is one of counts, which have no transform."""
    return not synthesizer.is_program and get_model(synthesizer.model).takes_count


def is_learned(name: str, synthesizer: SynthesizerSection, section: OutcomeSection) -> bool:
    """Return whether the transform of an amount is learned: so declared, or from a range alone.

    That of a count is learned, except in models of counts.
    """
    if section.kind in ("binary", "categorical"):
        return False
    if section.kind == "count" and not of_counts(synthesizer):
        return True
    if section.transform_kind is not None:
        return section.transform_kind == LEARNED
    return section.range is not None


def learns_weight(synthesizer: SynthesizerSection, sections: Outcomes) -> bool:
    """Return whether the transform of the weight is learned: it has a range."""
    section = sections.get(WEIGHT)
    if section is None or WEIGHT in synthesizer.outcome:
        return False
    return section.transform_kind == LEARNED or section.range is not None


def with_learned_weight(
    survey: SurveySection, synthesizer: SynthesizerSection, sections: Outcomes
) -> Outcomes:
    """Return the sections with the default of noisy statistics: the weight is learned.

    It is not if a spread is declared, or if the model needs the logarithm. A spread that is guessed
    too small cuts weights, and no interval shows that. A declared center replaces log(N/n).
    """
    given = sections.get(WEIGHT, OutcomeSection())
    settled = {"transform", "range", "spread"} & given.model_fields_set
    modelled = survey.weight is not None and not survey.public_weights
    if settled or not modelled or WEIGHT in synthesizer.outcome or synthesizer.is_program:
        return sections
    if not get_model(synthesizer.model).takes_learned_weight:
        return sections
    if isinstance(given.center, float) and abs(given.center) <= LARGE_LOG:
        low, high = (times * math.exp(given.center) for times in OF_MEAN_WEIGHT)
        own = given.model_dump(include=given.model_fields_set - {"center"})
        return {**sections, WEIGHT: OutcomeSection(**own, transform=_LEARNED, range=(low, high))}
    if given.center is not None or survey.population_size is None:
        return sections
    return {**sections, WEIGHT: given.model_copy(update={"transform": _LEARNED})}


def without_learned_weight(sections: Outcomes) -> Outcomes:
    """Return the sections without that default, for another mechanism."""
    given = sections.get(WEIGHT)
    if given is None or given.transform_kind != LEARNED or given.range is not None:
        return sections
    return {name: each for name, each in sections.items() if name != WEIGHT}


def learned_transform(
    name: str, synthesizer: SynthesizerSection, sections: Outcomes
) -> LearnedTransform | None:
    """Return the learned transform that a section declares; None if it declares another.

    Raises ``InputError`` with section and key for keys that are missing or do not belong to it.
    """
    section = sections.get(name, OutcomeSection())
    where = f"outcomes.{name}"
    if not is_learned(name, synthesizer, section):
        _refuse_learned_keys(where, section)
        return None
    if section.kind == "count":
        _check_count(where, synthesizer, section)
    return _transform(where, "the outcome", synthesizer, sections, section)


def _check_count(where: str, synthesizer: SynthesizerSection, section: OutcomeSection) -> None:
    if of_counts(synthesizer):
        raise InputError(
            f"{where}.range: model {synthesizer.model!r} models a count without a transform, so "
            "none is learned from a range; leave it out."
        )
    kinds = ("continuous",) if synthesizer.is_program else get_model(synthesizer.model).kinds
    if "count" not in kinds:
        several, alone = (
            " or ".join(repr(each.name) for each in registered() if holds(each))
            for holds in (lambda each: "count" in each.kinds, lambda each: each.takes_count)
        )
        raise InputError(
            f"{where}.kind: model {synthesizer.model!r} does not support a count; use model = "
            f"{several} with its public range, or {alone} with this one outcome."
        )
    if section.transform_kind not in (None, LEARNED):
        raise InputError(
            f"{where}.transform: the transform of a count is learned within its range, got "
            f"{section.transform_kind!r}; leave it out."
        )


def weight_transform(synthesizer: SynthesizerSection, sections: Outcomes) -> Transform:
    """Return the transform of the weight: the log, or the learned one that its section declares.

    Raises ``InputError`` with section and key for keys that are missing or do not belong to it.
    """
    section = sections.get(WEIGHT, OutcomeSection())
    where = f"outcomes.{WEIGHT}"
    if WEIGHT in synthesizer.outcome:
        return Transform()
    if not learns_weight(synthesizer, sections):
        _refuse_learned_keys(where, section)
        return Transform()
    if section.range is not None and section.range[0] <= 0:
        raise InputError(
            f"{where}.range: weights are above zero, so the range must start above zero, got "
            f"{section.range[0]!r}."
        )
    if section.range is None:
        low, high = OF_MEAN_WEIGHT
        default = section.model_copy(update={"range": (low, high)})
        made = _transform(where, "the weight", synthesizer, sections, default)
        return replace(made, relative=True)
    return _transform(where, "the weight", synthesizer, sections, section)


def weight_problems(
    survey: SurveySection, synthesizer: SynthesizerSection, sections: Outcomes
) -> list[str]:
    """Return the problems of a weight whose transform is learned."""
    try:
        given = weight_transform(synthesizer, sections)
    except InputError as error:
        return [str(error)]
    where = f"outcomes.{WEIGHT}.range"
    if not isinstance(given, LearnedTransform) or survey.public_weights:
        return []
    if given.relative and survey.population_size is None:
        return [
            f"{where}: missing; without survey.population_size the transform of the weight needs "
            "the public range of the weight, such as range = [1, 5000]."
        ]
    if survey.weight is None:
        return [f"{where}: survey.weight names no column of weights; leave the range out."]
    if synthesizer.is_program or not get_model(synthesizer.model).takes_learned_weight:
        able = " or ".join(repr(each.name) for each in registered() if each.takes_learned_weight)
        return [
            f"{where}: model {synthesizer.model!r} needs the logarithm of the weight, so its "
            f"transform cannot be learned; leave it out, or use model = {able}."
        ]
    return []


def _refuse_learned_keys(where: str, section: OutcomeSection) -> None:
    foreign = learned_keys(section)
    if foreign:
        raise InputError(
            f"{where}.{foreign[0]}: this key is for transform = 'learned'; leave it out, or "
            "set that transform."
        )


def _transform(
    where: str,
    what: str,
    synthesizer: SynthesizerSection,
    sections: Outcomes,
    section: OutcomeSection,
) -> LearnedTransform:
    whole = section.kind == "count"
    if section.range is None and whole:
        raise InputError(
            f"{where}.range: missing; a count needs the least and the largest count that the "
            "questionnaire or the codebook allows, such as range = [0, 20]."
        )
    if section.range is None:
        raise InputError(
            f"{where}.range: missing; transform = 'learned' needs the public range of {what} "
            "from a codebook or a questionnaire, such as range = [0, 500000]."
        )
    given = section.transform or TransformSection()
    replaced = [key for key in ("center", "spread") if key in section.model_fields_set]
    for key in (*(f"transform.{key}" for key in given.constants), *replaced):
        raise InputError(
            f"{where}.{key}: a learned transform needs a range alone, and its values are about "
            "standard normal; leave it out."
        )
    share = given.share
    if share is None:
        several = ((each, sections.get(each, OutcomeSection())) for each in synthesizer.outcome)
        outcomes = sum(is_learned(name, synthesizer, own) for name, own in several)
        share = LEARNED_SHARE / (outcomes + learns_weight(synthesizer, sections))
    low, high = section.range
    try:
        return LearnedTransform(low=low, high=high, share=share, by=given.by, whole=whole)
    except InputError as error:
        raise InputError(f"{where}.{error}") from None
