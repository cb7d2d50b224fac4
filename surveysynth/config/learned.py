"""Keys of ``[outcomes.NAME]`` for a transform that is learned."""

from collections.abc import Sequence
from dataclasses import replace

from surveysynth.config.outcome_section import WEIGHT, Outcomes, OutcomeSection
from surveysynth.config.sections import SurveySection
from surveysynth.config.synthesizer_section import SynthesizerSection
from surveysynth.errors import InputError
from surveysynth.models import get_model, registered
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import LEARNED_SHARE, OF_MEAN_WEIGHT, LearnedTransform, Transform

LEARNED = "learned"
#: Keys that only a learned transform has, and those that it replaces.
OF_LEARNED = ("range", "learned_share", "learned_by")
_REPLACED = ("scale", "power", "shift", "centre", "spread")


def of_counts(synthesizer: SynthesizerSection) -> bool:
    """Return whether the model is one of counts, which have no transform."""
    return not synthesizer.is_program and get_model(synthesizer.model).takes_count


def is_learned(name: str, synthesizer: SynthesizerSection, section: OutcomeSection) -> bool:
    """Return whether the transform of an amount is learned: it says so, or has a range alone.

    That of a count is, but for the models of counts.
    """
    if section.kind in ("binary", "categorical"):
        return False
    if section.kind == "count" and not of_counts(synthesizer):
        return True
    if section.transform is not None:
        return section.transform == LEARNED
    if "transform" in synthesizer.model_fields_set:
        given = synthesizer.transform
        return given[synthesizer.outcome.index(name) if len(given) > 1 else 0] == LEARNED
    return section.range is not None


def learns_weight(synthesizer: SynthesizerSection, sections: Outcomes) -> bool:
    """Return whether the transform of the weight is learned: it has a range."""
    section = sections.get(WEIGHT)
    if section is None or WEIGHT in synthesizer.outcome:
        return False
    return section.transform == LEARNED or section.range is not None


def with_learned_weight(
    survey: SurveySection, synthesizer: SynthesizerSection, sections: Outcomes
) -> Outcomes:
    """Return the sections with the default of noisy statistics: the weight is learned.

    Not where its center or spread is declared, and not by a model that needs its logarithm. A
    spread that is guessed too small cuts weights, and no interval shows that.
    """
    given = sections.get(WEIGHT, OutcomeSection())
    settled = {"transform", "range", "centre", "spread"} & given.model_fields_set
    modelled = survey.weight is not None and not survey.public_weights
    if settled or not modelled or WEIGHT in synthesizer.outcome or synthesizer.is_program:
        return sections
    if survey.population_size is None or not get_model(synthesizer.model).takes_learned_weight:
        return sections
    return {**sections, WEIGHT: given.model_copy(update={"transform": LEARNED})}


def without_learned_weight(sections: Outcomes) -> Outcomes:
    """Return the sections without that default, for another mechanism."""
    given = sections.get(WEIGHT)
    if given is None or given.transform != LEARNED or given.range is not None:
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
    """Raise ``InputError`` where a count has another transform, or the model takes no counts."""
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
    if section.transform not in (None, LEARNED):
        raise InputError(
            f"{where}.transform: the transform of a count is learned within its range, got "
            f"{section.transform!r}; leave it out."
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


def learned_columns(
    declared: Sequence[Outcome],
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    sections: Outcomes,
) -> tuple[Outcome, ...]:
    """Return the columns whose transforms are learned: outcomes, then the weight."""
    columns = list(declared)
    if survey.weight is not None and not survey.public_weights:
        transform = weight_transform(synthesizer, sections)
        columns.append(Outcome(survey.weight, transform=transform))
    return tuple(each for each in columns if each.learned is not None)


def _refuse_learned_keys(where: str, section: OutcomeSection) -> None:
    """Raise ``InputError`` for a key that only a learned transform has."""
    foreign = [key for key in OF_LEARNED if key in section.model_fields_set]
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
    """Return the learned transform of a section."""
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
    for key in _REPLACED:
        if key in section.model_fields_set:
            raise InputError(
                f"{where}.{key}: a learned transform needs a range alone, and its values are about "
                "standard normal; leave it out."
            )
    share = section.learned_share
    if share is None:
        share = LEARNED_SHARE / _count(synthesizer, sections)
    low, high = section.range
    try:
        return LearnedTransform(
            low=low, high=high, share=share, by=section.learned_by, whole=whole
        )
    except InputError as error:
        raise InputError(f"{where}.{error}") from None


def _count(synthesizer: SynthesizerSection, sections: Outcomes) -> int:
    """Return the number of columns whose transform is learned."""
    several = ((each, sections.get(each, OutcomeSection())) for each in synthesizer.outcome)
    outcomes = sum(is_learned(name, synthesizer, section) for name, section in several)
    return outcomes + learns_weight(synthesizer, sections)
