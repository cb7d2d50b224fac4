"""The same specification with the other mechanism, where methods are held against each other."""

from typing import TYPE_CHECKING

from surveysynth._support.messages import raise_problems
from surveysynth.spec.outcomes import strict_problems
from surveysynth.spec.privacy import PrivacySection

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec


def epsilon_of_spec(spec: "Spec") -> float:
    """The number epsilon of a specification, in the currency of its mechanism."""
    return spec.privacy.cost.epsilon if spec.privacy.strict else spec.privacy.epsilon


def with_noisy_statistics(spec: "Spec") -> "Spec":
    """With noisy statistics at the same epsilon: as the file says where that is its mechanism, else
    with the defaults of that mechanism.

    Raises ``InputError`` for what is missing, such as declared centres and spreads.
    """
    if spec.privacy.strict:
        return spec
    privacy = PrivacySection(mechanism="noisy_statistics", epsilon=spec.privacy.epsilon)
    # Of the pseudo-posterior alone, and without a meaning here.
    settled = {"engine": "auto", "inference": "debiased"}
    synthesizer = spec.synthesizer.model_copy(update=settled)
    problems = strict_problems(spec.survey, synthesizer, privacy, spec.outcomes, spec.public_names)
    raise_problems(str(spec.path), problems)
    return spec.model_copy(update={"privacy": privacy, "synthesizer": synthesizer})


def with_pseudo_posterior(spec: "Spec") -> "Spec":
    """With the pseudo-posterior at an asymptotic epsilon of the same number: as the file says where
    that is its mechanism, else with the defaults of that mechanism. The promises differ."""
    if not spec.privacy.strict:
        return spec
    return spec.model_copy(update={"privacy": PrivacySection(epsilon=epsilon_of_spec(spec))})
