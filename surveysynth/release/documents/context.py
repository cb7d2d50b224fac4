"""The facts that all documents of a release share, by the names that templates use."""

import math
from typing import Any

from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.tables.labels import listed


def shared_context(facts: ReleaseFacts) -> dict[str, Any]:
    """Return size and unit of the guarantee, and what is public of the survey.

    ``rho`` and ``delta`` are None under an asymptotic guarantee. ``protected`` is the public column
    whose units are protected as a whole, None for single records. ``outside`` is a clause, empty
    unless settings take the release out of what the statement covers.
    """
    design, settings, privacy = facts.design, facts.settings, facts.spec.privacy
    noisy = privacy.as_noisy_statistics() if privacy.currency == "rho" else None
    protected = None if privacy.protect == RECORD else privacy.protect
    return {
        "title": facts.title,
        "warnings": facts.warnings,
        "test": facts.test,
        "private": settings.private,
        "proved": noisy is not None,
        "epsilon": settings.epsilon,
        "rho": None if noisy is None else noisy.cost.rho,
        "delta": None if noisy is None else noisy.delta,
        "factor": factor_words(settings.epsilon),
        "m": settings.m,
        "outside": facts.statement.outside,
        "protected": protected,
        "unit": "one record" if protected is None else f"all records of one unit of {protected!r}",
        "values": _confidential(facts),
        "n": design.n,
        "dropped": design.dropped,
        "psu": design.psu_name,
        "weight_name": design.weight_name,
        "frame_columns": list(map(str, design.frame.columns)),
        "by": list(design.by),
        "debiased": facts.debias is not None and facts.debias.debiased,
    }


def outside_sentence(facts: ReleaseFacts) -> str:
    """Return a sentence if settings take the release out of what is stated, otherwise nothing."""
    outside = facts.statement.outside
    return f"This release is {outside}; the limit does not hold for it." if outside else ""


def _confidential(facts: ReleaseFacts) -> str:
    """Return the confidential columns, as part of a sentence."""
    names = list(facts.design.outcome_names)
    if facts.design.weight_name is not None:
        names.append(f"the sampling weight ({facts.design.weight_name})")
    return listed(names)


def factor_words(epsilon: float) -> str:
    """Return exp(epsilon) with two significant digits, from epsilon = 100 on as a power of e."""
    if epsilon >= 100:
        return f"exp(epsilon) = e to the power {epsilon:g}"
    value = math.exp(epsilon)
    if value >= 1e15:
        return f"exp(epsilon) = about {value:.1e}"
    places = 1 - math.floor(math.log10(value))
    return f"exp(epsilon) = about {round(value, places):,.{max(places, 0)}f}"
