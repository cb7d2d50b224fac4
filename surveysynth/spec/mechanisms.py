"""The same specification with the other mechanism, for methods that are compared."""

from typing import TYPE_CHECKING

from surveysynth._support.messages import raise_problems
from surveysynth.spec.outcomes import strict_problems

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec


def with_noisy_statistics(spec: "Spec") -> "Spec":
    """Return the specification with noisy statistics at the same epsilon.

    Raises ``InputError`` for what is missing, such as declared centres and spreads.
    """
    privacy = spec.privacy.as_noisy_statistics()
    if privacy is spec.privacy:
        return spec
    # These keys have a meaning for the pseudo-posterior alone.
    settled = {"engine": "auto", "inference": "debiased"}
    synthesizer = spec.synthesizer.model_copy(update=settled)
    problems = strict_problems(spec.survey, synthesizer, privacy, spec.outcomes, spec.public_names)
    raise_problems(str(spec.path), problems)
    return spec.model_copy(update={"privacy": privacy, "synthesizer": synthesizer})


def with_pseudo_posterior(spec: "Spec") -> "Spec":
    """Return the specification with the pseudo-posterior at an asymptotic epsilon of the same
    number. The promises differ."""
    return spec.model_copy(update={"privacy": spec.privacy.as_pseudo_posterior()})
