"""Keys of ``[outcomes.NAME]`` for a transform that is learned."""

from surveysynth.errors import InputError
from surveysynth.spec.outcome_section import Outcomes, OutcomeSection
from surveysynth.spec.synthesizer_section import SynthesizerSection
from surveysynth.survey.learned import LEARNED_SHARE, LearnedTransform

LEARNED = "learned"
#: Keys that only a learned transform has, and those that it replaces.
OF_LEARNED = ("range", "learned_share", "learned_by")
_REPLACED = ("scale", "power", "shift", "centre", "spread")


def is_learned(name: str, synthesizer: SynthesizerSection, section: OutcomeSection) -> bool:
    """Return whether the transform of an amount is learned: it says so, or has a range alone."""
    if section.kind in ("binary", "categorical"):
        return False
    if section.transform is not None:
        return section.transform == LEARNED
    if "transform" in synthesizer.model_fields_set:
        given = synthesizer.transform
        return given[synthesizer.outcome.index(name) if len(given) > 1 else 0] == LEARNED
    return section.range is not None


def learned_transform(
    name: str, synthesizer: SynthesizerSection, sections: Outcomes
) -> LearnedTransform | None:
    """Return the learned transform that a section declares; None if it declares another.

    Raises ``InputError`` with section and key for keys that are missing or do not belong to it.
    """
    section = sections.get(name, OutcomeSection())
    given = section.model_fields_set
    where = f"outcomes.{name}"
    if not is_learned(name, synthesizer, section):
        foreign = [key for key in OF_LEARNED if key in given]
        if foreign:
            raise InputError(
                f"{where}.{foreign[0]}: this key is for transform = 'learned'; leave it out, or "
                "set that transform."
            )
        return None
    if section.range is None:
        raise InputError(
            f"{where}.range: missing; transform = 'learned' needs the public range of the outcome "
            "from a codebook or a questionnaire, such as range = [0, 500000]."
        )
    if section.kind == "count":
        raise InputError(
            f"{where}.transform: a count has no transform, so none can be learned; leave it out."
        )
    for key in _REPLACED:
        if key in given:
            raise InputError(
                f"{where}.{key}: a learned transform needs a range alone, and its values are about "
                "standard normal; leave it out."
            )
    share = section.learned_share
    if share is None:
        several = (sections.get(each, OutcomeSection()) for each in synthesizer.outcome)
        learned = [
            is_learned(each, synthesizer, its)
            for each, its in zip(synthesizer.outcome, several, strict=True)
        ]
        share = LEARNED_SHARE / sum(learned)
    low, high = section.range
    try:
        return LearnedTransform(low=low, high=high, share=share, by=section.learned_by)
    except InputError as error:
        raise InputError(f"{where}.{error}") from None
