"""What the documents of a release say of its guarantee and its survey, gathered once for all.

The README, the dossier and privacy.json are made from the same context: public facts alone.
"""

import math
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surveysynth._support.resources import version_of
from surveysynth.config.build import model_of
from surveysynth.config.privacy import as_noisy_statistics
from surveysynth.config.tables_section import TablesSection
from surveysynth.inference.debias import DebiasRecord
from surveysynth.mechanisms.base import gap_of_weights
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.tables.labels import listed

_LIBRARIES = ("surveysynth", "numpy", "scipy", "pandas")


def shared_context(facts: ReleaseFacts) -> dict[str, Any]:
    """Return size and unit of the guarantee, and what is public of the survey.

    ``rho`` and ``delta`` are None under an asymptotic guarantee. ``protected`` is the public column
    whose units are protected as a whole, None for single records. ``outside`` is a clause, empty
    unless settings take the release out of what the statement covers; ``budget`` is the guarantee
    as a clause.
    """
    design, settings, privacy = facts.design, facts.settings, facts.spec.privacy
    outside, epsilon = facts.statement.outside, settings.epsilon
    given = design.weights_from
    noisy = as_noisy_statistics(privacy) if privacy.currency == "rho" else None
    if noisy is None:
        budget = f"asymptotic differential privacy with epsilon at most {epsilon:.4g}"
        budget += f", {outside}" if outside else ""
    else:
        budget = (
            f"zero-concentrated differential privacy with rho = {noisy.cost.rho:.4g}, and hence "
            f"differential privacy with epsilon = {epsilon:.4g} at delta = {noisy.delta:.3g}"
        )
    protected = None if privacy.protect == RECORD else privacy.protect
    values = list(design.outcome_names)
    if design.weight_name is not None:
        values.append(f"the sampling weight ({design.weight_name})")
    return {
        "title": facts.title,
        "warnings": facts.warnings,
        "test": facts.test,
        "private": settings.private,
        "proved": noisy is not None,
        "budget": budget,
        "epsilon": epsilon,
        "rho": None if noisy is None else noisy.cost.rho,
        "delta": None if noisy is None else noisy.delta,
        "factor": factor_words(epsilon),
        "m": settings.m,
        "outside": outside,
        "outside_sentence": outside
        and f"This release is {outside}; the limit does not hold for it.",
        "statement": facts.statement,
        "described": facts.mechanism.described(design),
        "protected": protected,
        "unit": "one record" if protected is None else f"all records of one unit of {protected!r}",
        "values": listed(values),
        "n": design.n,
        "dropped": design.dropped,
        "shift": design.shift,
        "modelled": design.missing == "model",
        "psu": design.psu_name,
        "weight_name": design.weight_name,
        "weighted": design.weight_name is not None or design.public_weight is not None,
        "weight_sources": list(given) if isinstance(given, tuple) else [],
        "weights_gap": gap_of_weights(design),
        "frame_columns": list(map(str, design.frame.columns)),
        "by": list(design.by),
        "debiased": facts.debias is not None and facts.debias.debiased,
    }


def factor_words(epsilon: float) -> str:
    """Return exp(epsilon) with two significant digits, from epsilon = 100 on as a power of e."""
    if epsilon >= 100:
        return f"exp(epsilon) = e to the power {epsilon:g}"
    value = math.exp(epsilon)
    if value >= 1e15:
        return f"exp(epsilon) = about {value:.1e}"
    places = 1 - math.floor(math.log10(value))
    return f"exp(epsilon) = about {round(value, places):,.{max(places, 0)}f}"


def library_versions() -> dict[str, str]:
    """Return versions of Python and of the libraries that compute the published numbers."""
    versions = {"python": platform.python_version()}
    return {**versions, **{name: version_of(name) for name in _LIBRARIES}}


def make_privacy_record(
    facts: ReleaseFacts, context: dict[str, Any], model_title: str
) -> dict[str, Any]:
    """Return privacy.json: the guarantee and what it depends on, nothing realized.

    epsilon and lipschitz_bound are targets, hence upper bounds.
    """
    settings = facts.settings
    return {
        "warnings": list(facts.warnings),
        "private": settings.private and not facts.test,
        "test": facts.test,
        **facts.mechanism.guarantee(),
        "m": settings.m,
        "draws": settings.plan.kept,
        "chains": settings.plan.chains,
        "model": Path(facts.spec.synthesizer.model).stem,
        "model_title": model_title,
        **({} if facts.mechanism.risk is None else {"risk": facts.mechanism.risk}),
        "settings": _settings(facts, context),
        "debiasing": None if facts.debias is None else _debiasing(facts.debias),
        **facts.statement.as_dict(),
        "versions": {**library_versions(), **facts.engine},
    }


def _debiasing(record: DebiasRecord) -> dict[str, Any]:
    """Return what was done to the draws, from public inputs alone.

    Numbers have six significant digits, not the last ones, which are those of the draws.
    """
    return {
        name: [float(f"{each:.6g}") if isinstance(each, float) else each for each in value]
        if isinstance(value, tuple)
        else value
        for name, value in asdict(record).items()
    }


def _settings(facts: ReleaseFacts, context: dict[str, Any]) -> dict[str, Any]:
    """Return the settings; covariance_by: cells with residual spreads of their own.

    interaction_scale: the prior SD of interactions in residual SDs, None where none is shrunken.
    """
    spec, settings, matrix = facts.spec, facts.settings, facts.design.matrix
    synthesizer = spec.synthesizer
    model = None if synthesizer.is_program else model_of(spec).of(facts.design)
    shrunken = matrix.shrunken and math.isfinite(matrix.interaction_scale)
    return {
        **context["described"],
        "draws_per_chain": settings.plan.draws,
        "warmup_per_chain": settings.plan.warmup,
        "replicates_per_draw": spec.privacy.replicates_per_draw,
        "outcomes": list(synthesizer.outcome),
        "transforms": [each.formulas for each in facts.design.outcomes],
        "declared_outcomes": {each.name: each.as_dict() for each in facts.design.outcomes},
        "covariance_by": list(getattr(model, "covariance_by", None) or ()),
        "formula": matrix.formula,
        "interaction_scale": matrix.interaction_scale if shrunken else None,
        "engine": synthesizer.engine,
        "smoothing": getattr(model, "smoothing", "default"),
        "inference": synthesizer.inference,
        "priors": dict(synthesizer.priors),
        "by": list(spec.by),
        "statistics": list(spec.statistics),
        "linearisation": spec.linearisation,
        **({"tables": [
            {"name": each.name, "by": list(each.by), "statistics": list(each.statistics),
             **_of_table(each)} for each in spec.tables
        ]} if spec.named_tables else _of_table(spec.table)),
        "microdata": facts.microdata_format,
        "microdata_digits": spec.all_tables.microdata_digits,
        "lonely_psu": spec.survey.lonely_psu,
        "clusters": None if facts.clusters is None else facts.clusters.as_dict(),
        "population_size": facts.design.population_size,
        "calibration": None if facts.calibration is None else facts.calibration.as_dict(),
        "sampling_weights": spec.survey.kind_of_weights,
        **({} if facts.counts is None else {"counts_by": list(facts.counts.columns)}),
        "weights_from": spec.survey.weights_from,
        "stratum_sizes": facts.design.stratum_sizes,
        "records": facts.design.n,
        "records_dropped": facts.design.dropped,
    }  # fmt: skip


def _of_table(section: TablesSection) -> dict[str, Any]:
    return {
        **({} if section.where is None else {"where": section.where}),
        "flags": section.flags,
        "round_counts": section.round_counts,
    }
