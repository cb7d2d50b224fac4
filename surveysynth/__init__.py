"""Private survey tables from synthetic microdata, with a stated epsilon.

The public names, nothing else. Each is imported when it is first used, so that
``import surveysynth`` costs no pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surveysynth import errors
    from surveysynth.baselines.noisy_release import DeclaredBounds, noisy_release
    from surveysynth.baselines.topcoding import topcode
    from surveysynth.debias import Debiased, DebiasRecord, debias_draws
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
    from surveysynth.evaluate.identification import identification_risk
    from surveysynth.evaluate.regression import coefficient_utility, propensity_score
    from surveysynth.evaluate.risk_utility import risk_utility_map
    from surveysynth.evaluate.utility import distribution_utility
    from surveysynth.mechanism import ConfidentialFit, PrivateDraws
    from surveysynth.mechanism import run as run_mechanism
    from surveysynth.models import get_model
    from surveysynth.models.base import SamplingPlan
    from surveysynth.privacy.budget import MechanismSettings
    from surveysynth.privacy.risk import (
        CountBased,
        Lipschitz,
        NoRisk,
        OwnRisk,
        Pairwise,
        Scalar,
    )
    from surveysynth.privacy.statement import privacy_statement
    from surveysynth.release.reading import Release, read_release
    from surveysynth.release.run import release as run_release
    from surveysynth.spec import load_spec
    from surveysynth.survey import Confidential, PublicDesign, Survey, read_survey
    from surveysynth.synthesis import SyntheticDataset, synthesise
    from surveysynth.transforms import Transform

    __version__: str

__all__ = [
    "Confidential",
    "ConfidentialFit",
    "CountBased",
    "DebiasRecord",
    "Debiased",
    "DeclaredBounds",
    "Lipschitz",
    "MechanismSettings",
    "NoRisk",
    "OwnRisk",
    "Pairwise",
    "PrivateDraws",
    "PublicDesign",
    "Release",
    "ReplicateWeights",
    "SampleDesign",
    "SamplingPlan",
    "Scalar",
    "Survey",
    "SyntheticDataset",
    "Transform",
    "agency_replicates",
    "balanced_half_samples",
    "build_domains",
    "coefficient_utility",
    "combine",
    "debias_draws",
    "distribution_utility",
    "errors",
    "estimate_domains",
    "estimate_domains_replicated",
    "get_model",
    "identification_risk",
    "jackknife",
    "load_spec",
    "noisy_release",
    "preston_bootstrap",
    "privacy_statement",
    "propensity_score",
    "rao_wu_yue_bootstrap",
    "read_release",
    "read_survey",
    "risk_utility_map",
    "run_mechanism",
    "run_release",
    "synthesise",
    "t_interval",
    "topcode",
]

_SOURCES = {
    "Confidential": ("survey", "Confidential"),
    "ConfidentialFit": ("mechanism", "ConfidentialFit"),
    "CountBased": ("privacy.risk", "CountBased"),
    "DebiasRecord": ("debias", "DebiasRecord"),
    "Debiased": ("debias", "Debiased"),
    "Lipschitz": ("privacy.risk", "Lipschitz"),
    "DeclaredBounds": ("baselines.noisy_release", "DeclaredBounds"),
    "MechanismSettings": ("privacy.budget", "MechanismSettings"),
    "NoRisk": ("privacy.risk", "NoRisk"),
    "OwnRisk": ("privacy.risk", "OwnRisk"),
    "Pairwise": ("privacy.risk", "Pairwise"),
    "PrivateDraws": ("mechanism", "PrivateDraws"),
    "PublicDesign": ("survey", "PublicDesign"),
    "ReplicateWeights": ("estimation.replicate_weights", "ReplicateWeights"),
    "Release": ("release.reading", "Release"),
    "SampleDesign": ("estimation.sample_design", "SampleDesign"),
    "SamplingPlan": ("models.base", "SamplingPlan"),
    "Scalar": ("privacy.risk", "Scalar"),
    "Survey": ("survey", "Survey"),
    "SyntheticDataset": ("synthesis", "SyntheticDataset"),
    "Transform": ("transforms", "Transform"),
    "agency_replicates": ("estimation.replicate_weights", "agency_replicates"),
    "balanced_half_samples": ("estimation.replicate_weights", "balanced_half_samples"),
    "build_domains": ("estimation.domains", "build_domains"),
    "coefficient_utility": ("evaluate.regression", "coefficient_utility"),
    "debias_draws": ("debias", "debias_draws"),
    "combine": ("estimation.combining", "combine"),
    "distribution_utility": ("evaluate.utility", "distribution_utility"),
    "estimate_domains": ("estimation.taylor", "estimate_domains"),
    "estimate_domains_replicated": ("estimation.replication", "estimate_domains_replicated"),
    "get_model": ("models", "get_model"),
    "identification_risk": ("evaluate.identification", "identification_risk"),
    "jackknife": ("estimation.replicate_weights", "jackknife"),
    "load_spec": ("spec", "load_spec"),
    "noisy_release": ("baselines.noisy_release", "noisy_release"),
    "preston_bootstrap": ("estimation.replicate_weights", "preston_bootstrap"),
    "privacy_statement": ("privacy.statement", "privacy_statement"),
    "propensity_score": ("evaluate.regression", "propensity_score"),
    "rao_wu_yue_bootstrap": ("estimation.replicate_weights", "rao_wu_yue_bootstrap"),
    "read_release": ("release.reading", "read_release"),
    "read_survey": ("survey", "read_survey"),
    "risk_utility_map": ("evaluate.risk_utility", "risk_utility_map"),
    "run_mechanism": ("mechanism", "run"),
    "run_release": ("release.run", "release"),
    "synthesise": ("synthesis", "synthesise"),
    "t_interval": ("estimation.combining", "t_interval"),
    "topcode": ("baselines.topcoding", "topcode"),
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
