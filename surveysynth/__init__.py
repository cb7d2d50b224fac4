"""Private survey tables from synthetic microdata, with a stated epsilon.

The public names, nothing else. Each is imported when it is first used, so that
``import surveysynth`` costs no pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surveysynth import errors
    from surveysynth.estimation.combining import combine, t_interval
    from surveysynth.estimation.domains import build_domains
    from surveysynth.estimation.replicate_weights import (
        ReplicateWeights,
        agency_replicates,
        balanced_half_samples,
        jackknife,
        preston_bootstrap,
        rao_wu_yue_bootstrap,
    )
    from surveysynth.estimation.replication import estimate_domains_replicated
    from surveysynth.estimation.sample_design import SampleDesign
    from surveysynth.estimation.taylor import estimate_domains
    from surveysynth.mechanism import ConfidentialFit, PrivateDraws
    from surveysynth.mechanism import run as run_mechanism
    from surveysynth.models import get_model
    from surveysynth.models.base import SamplingPlan
    from surveysynth.privacy.budget import MechanismSettings
    from surveysynth.privacy.statement import privacy_statement
    from surveysynth.release.run import release as run_release
    from surveysynth.spec import load_spec
    from surveysynth.survey import Confidential, PublicDesign, Survey, read_survey
    from surveysynth.synthesis import SyntheticDataset, synthesise
    from surveysynth.transforms import Transform

    __version__: str

__all__ = [
    "Confidential",
    "ConfidentialFit",
    "MechanismSettings",
    "PrivateDraws",
    "PublicDesign",
    "ReplicateWeights",
    "SampleDesign",
    "SamplingPlan",
    "Survey",
    "SyntheticDataset",
    "Transform",
    "agency_replicates",
    "balanced_half_samples",
    "build_domains",
    "combine",
    "errors",
    "estimate_domains",
    "estimate_domains_replicated",
    "get_model",
    "jackknife",
    "load_spec",
    "preston_bootstrap",
    "privacy_statement",
    "rao_wu_yue_bootstrap",
    "read_survey",
    "run_mechanism",
    "run_release",
    "synthesise",
    "t_interval",
]

_SOURCES = {
    "Confidential": ("survey", "Confidential"),
    "ConfidentialFit": ("mechanism", "ConfidentialFit"),
    "MechanismSettings": ("privacy.budget", "MechanismSettings"),
    "PrivateDraws": ("mechanism", "PrivateDraws"),
    "PublicDesign": ("survey", "PublicDesign"),
    "ReplicateWeights": ("estimation.replicate_weights", "ReplicateWeights"),
    "SampleDesign": ("estimation.sample_design", "SampleDesign"),
    "SamplingPlan": ("models.base", "SamplingPlan"),
    "Survey": ("survey", "Survey"),
    "SyntheticDataset": ("synthesis", "SyntheticDataset"),
    "Transform": ("transforms", "Transform"),
    "agency_replicates": ("estimation.replicate_weights", "agency_replicates"),
    "balanced_half_samples": ("estimation.replicate_weights", "balanced_half_samples"),
    "build_domains": ("estimation.domains", "build_domains"),
    "combine": ("estimation.combining", "combine"),
    "estimate_domains": ("estimation.taylor", "estimate_domains"),
    "estimate_domains_replicated": ("estimation.replication", "estimate_domains_replicated"),
    "get_model": ("models", "get_model"),
    "jackknife": ("estimation.replicate_weights", "jackknife"),
    "load_spec": ("spec", "load_spec"),
    "preston_bootstrap": ("estimation.replicate_weights", "preston_bootstrap"),
    "privacy_statement": ("privacy.statement", "privacy_statement"),
    "rao_wu_yue_bootstrap": ("estimation.replicate_weights", "rao_wu_yue_bootstrap"),
    "read_survey": ("survey", "read_survey"),
    "run_mechanism": ("mechanism", "run"),
    "run_release": ("release.run", "release"),
    "synthesise": ("synthesis", "synthesise"),
    "t_interval": ("estimation.combining", "t_interval"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("surveysynth")
    if name == "errors":
        return import_module("surveysynth.errors")
    if name not in _SOURCES:
        raise AttributeError(f"module 'surveysynth' has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    value = getattr(import_module(f"surveysynth.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
