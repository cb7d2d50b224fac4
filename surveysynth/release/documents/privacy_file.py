"""privacy.json: the guarantee and what it depends on, for programs; nothing realized."""

import math
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.versions import version_of
from surveysynth.config.build import model_of
from surveysynth.release.facts import ReleaseFacts, debias_facts

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.config.tables_section import TablesSection
    from surveysynth.survey.design_matrix import DesignMatrix

_LIBRARIES = ("surveysynth", "numpy", "scipy", "pandas")


def library_versions() -> dict[str, str]:
    """Return versions of Python and of the libraries that compute the published numbers."""
    versions = {"python": platform.python_version()}
    return {**versions, **{name: version_of(name) for name in _LIBRARIES}}


def make_privacy_record(facts: ReleaseFacts, model_title: str) -> dict[str, Any]:
    """Return JSON-ready values; epsilon and lipschitz_bound are targets, hence upper bounds."""
    settings, private = facts.settings, facts.settings.private and not facts.test
    return {
        "warnings": list(facts.warnings),
        "private": private,
        "test": facts.test,
        **facts.mechanism.guarantee(),
        "m": settings.m,
        "draws": settings.plan.kept,
        "chains": settings.plan.chains,
        "model": Path(facts.spec.synthesizer.model).stem,
        "model_title": model_title,
        **({} if facts.mechanism.risk is None else {"risk": facts.mechanism.risk}),
        "settings": _settings(facts),
        "debiasing": None if facts.debias is None else debias_facts(facts.debias),
        **facts.statement.as_dict(),
        "versions": {**library_versions(), **facts.engine},
    }


def _settings(facts: ReleaseFacts) -> dict[str, Any]:
    spec, settings = facts.spec, facts.settings
    synthesizer = spec.synthesizer
    return {
        **facts.mechanism.described(facts.design),
        "draws_per_chain": settings.plan.draws,
        "warmup_per_chain": settings.plan.warmup,
        "replicates_per_draw": spec.privacy.replicates_per_draw,
        "outcomes": list(synthesizer.outcome),
        "transforms": [each.formulas for each in facts.design.outcomes],
        "declared_outcomes": {each.name: each.as_dict() for each in facts.design.outcomes},
        **_model_settings(facts),
        "formula": facts.design.matrix.formula,
        "interaction_scale": _interaction_scale(facts.design.matrix),
        "engine": synthesizer.engine,
        "smoothing": synthesizer.options.get("smoothing", "default"),
        "inference": synthesizer.inference,
        "priors": dict(synthesizer.priors),
        "by": list(spec.by),
        "statistics": list(spec.statistics),
        "linearisation": spec.linearisation,
        **_of_tables(spec),
        "microdata": facts.microdata_format,
        "microdata_digits": spec.all_tables.microdata_digits,
        "lonely_psu": spec.survey.lonely_psu,
        "clusters": None if facts.clusters is None else facts.clusters.as_dict(),
        "population_size": spec.survey.population_size,
        "calibration": None if facts.calibration is None else facts.calibration.as_dict(),
        "sampling_weights": spec.survey.kind_of_weights,
        **({} if facts.counts is None else {"counts_by": list(facts.counts.columns)}),
        "weights_from": spec.survey.weights_from,
        "stratum_sizes": spec.survey.stratum_sizes,
        "records": facts.design.n,
        "records_dropped": facts.design.dropped,
    }


def _model_settings(facts: ReleaseFacts) -> dict[str, Any]:
    """Return the columns whose cells have residual spreads of their own, chosen or by default."""
    if facts.spec.synthesizer.is_program:
        return {"covariance_by": []}
    model = model_of(facts.spec).of(facts.design)
    groups = list(getattr(model, "covariance_by", None) or ())  # None: the model has no groups
    return {"covariance_by": groups}


def _of_tables(spec: "Spec") -> dict[str, Any]:
    """Return the settings of the table, or of each of several tables."""
    if not spec.named_tables:
        return _of_table(spec.table)
    return {
        "tables": [
            {
                "name": each.name,
                "by": list(each.by),
                "statistics": list(each.statistics),
                **_of_table(each),
            }
            for each in spec.tables
        ]
    }


def _of_table(section: "TablesSection") -> dict[str, Any]:
    return {
        **({} if section.where is None else {"where": section.where}),
        "interval": section.interval,
        "flags": section.flags,
        "flag_action": section.flag_action,
        "round_counts": section.round_counts,
        "digits_mean": section.digits_mean,
    }


def _interaction_scale(matrix: "DesignMatrix") -> float | None:
    """Return the prior SD of interactions in residual SDs; None where nothing is shrunken."""
    scale = matrix.interaction_scale
    return scale if matrix.shrunken and math.isfinite(scale) else None
