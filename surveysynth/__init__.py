"""Private survey tables from synthetic microdata, with a stated epsilon.

The public names, nothing else. Each is imported when it is first used, so that
``import surveysynth`` costs no pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surveysynth import errors
    from surveysynth.api import datasets
    from surveysynth.api.audit import audit
    from surveysynth.api.commands import CheckResult, check, compare, release, study
    from surveysynth.api.commands import release as run_release
    from surveysynth.api.draft import init
    from surveysynth.api.example import example, example_survey
    from surveysynth.api.ledger import ledger
    from surveysynth.api.private_tables import tables
    from surveysynth.api.stan_data import export_stan
    from surveysynth.estimation.combining import combine, logit_interval, t_interval
    from surveysynth.estimation.domains import build_domains
    from surveysynth.estimation.replicate_weights import (
        balanced_half_samples,
        jackknife,
        preston_bootstrap,
        rao_wu_yue_bootstrap,
    )
    from surveysynth.estimation.replication import (
        ReplicateWeights,
        agency_replicates,
        estimate_domains_replicated,
    )
    from surveysynth.estimation.sample_design import SampleDesign
    from surveysynth.estimation.taylor import estimate_domains
    from surveysynth.evaluation.baselines.noisy_release import DeclaredBounds, noisy_release
    from surveysynth.evaluation.baselines.topcoding import topcode
    from surveysynth.evaluation.microdata.identification import identification_risk
    from surveysynth.evaluation.microdata.regression import coefficient_utility, propensity_score
    from surveysynth.evaluation.microdata.risk_utility import risk_utility_map
    from surveysynth.evaluation.microdata.utility import distribution_utility
    from surveysynth.inference.debias import Debiased, DebiasRecord, debias_draws
    from surveysynth.inference.synthesis import SyntheticDataset, synthesise
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
    from surveysynth.mechanisms.pseudo_posterior.risk import (
        CountBased,
        Lipschitz,
        NoRisk,
        OwnRisk,
        Pairwise,
        Scalar,
    )
    from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
    from surveysynth.mechanisms.pseudo_posterior.statement import privacy_statement
    from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run as run_mechanism
    from surveysynth.models import get_model
    from surveysynth.release.folder.reader import Release, read_release
    from surveysynth.release.private_tables import PrivateTables
    from surveysynth.sampling.plan import SamplingPlan
    from surveysynth.spec.build import read_survey
    from surveysynth.spec.spec import load_spec
    from surveysynth.survey.outcome import Outcome
    from surveysynth.survey.survey import Confidential, PublicDesign, Survey
    from surveysynth.survey.transforms import Transform

    __version__: str

__all__ = [
    "CheckResult",
    "Confidential",
    "ConfidentialFit",
    "CountBased",
    "DebiasRecord",
    "Debiased",
    "DeclaredBounds",
    "Lipschitz",
    "MechanismSettings",
    "NoRisk",
    "Outcome",
    "OwnRisk",
    "Pairwise",
    "PrivateDraws",
    "PrivateTables",
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
    "audit",
    "balanced_half_samples",
    "build_domains",
    "check",
    "coefficient_utility",
    "combine",
    "compare",
    "datasets",
    "debias_draws",
    "distribution_utility",
    "errors",
    "estimate_domains",
    "estimate_domains_replicated",
    "example",
    "example_survey",
    "export_stan",
    "get_model",
    "identification_risk",
    "init",
    "jackknife",
    "ledger",
    "load_spec",
    "logit_interval",
    "noisy_release",
    "preston_bootstrap",
    "privacy_statement",
    "propensity_score",
    "rao_wu_yue_bootstrap",
    "read_release",
    "read_survey",
    "release",
    "risk_utility_map",
    "run_mechanism",
    "run_release",
    "study",
    "synthesise",
    "t_interval",
    "tables",
    "topcode",
]

_SOURCES = {
    "CheckResult": ("api.commands", "CheckResult"),
    "Confidential": ("survey.survey", "Confidential"),
    "ConfidentialFit": ("mechanisms.pseudo_posterior.fit", "ConfidentialFit"),
    "CountBased": ("mechanisms.pseudo_posterior.risk", "CountBased"),
    "DebiasRecord": ("inference.debias", "DebiasRecord"),
    "Debiased": ("inference.debias", "Debiased"),
    "DeclaredBounds": ("evaluation.baselines.noisy_release", "DeclaredBounds"),
    "Lipschitz": ("mechanisms.pseudo_posterior.risk", "Lipschitz"),
    "MechanismSettings": ("mechanisms.pseudo_posterior.settings", "MechanismSettings"),
    "NoRisk": ("mechanisms.pseudo_posterior.risk", "NoRisk"),
    "Outcome": ("survey.outcome", "Outcome"),
    "OwnRisk": ("mechanisms.pseudo_posterior.risk", "OwnRisk"),
    "Pairwise": ("mechanisms.pseudo_posterior.risk", "Pairwise"),
    "PrivateDraws": ("mechanisms.base", "PrivateDraws"),
    "PrivateTables": ("release.private_tables", "PrivateTables"),
    "PublicDesign": ("survey.survey", "PublicDesign"),
    "Release": ("release.folder.reader", "Release"),
    "ReplicateWeights": ("estimation.replication", "ReplicateWeights"),
    "SampleDesign": ("estimation.sample_design", "SampleDesign"),
    "SamplingPlan": ("sampling.plan", "SamplingPlan"),
    "Scalar": ("mechanisms.pseudo_posterior.risk", "Scalar"),
    "Survey": ("survey.survey", "Survey"),
    "SyntheticDataset": ("inference.synthesis", "SyntheticDataset"),
    "Transform": ("survey.transforms", "Transform"),
    "agency_replicates": ("estimation.replication", "agency_replicates"),
    "audit": ("api.audit", "audit"),
    "balanced_half_samples": ("estimation.replicate_weights", "balanced_half_samples"),
    "build_domains": ("estimation.domains", "build_domains"),
    "check": ("api.commands", "check"),
    "coefficient_utility": ("evaluation.microdata.regression", "coefficient_utility"),
    "combine": ("estimation.combining", "combine"),
    "compare": ("api.commands", "compare"),
    "debias_draws": ("inference.debias", "debias_draws"),
    "distribution_utility": ("evaluation.microdata.utility", "distribution_utility"),
    "estimate_domains": ("estimation.taylor", "estimate_domains"),
    "estimate_domains_replicated": ("estimation.replication", "estimate_domains_replicated"),
    "example": ("api.example", "example"),
    "example_survey": ("api.example", "example_survey"),
    "export_stan": ("api.stan_data", "export_stan"),
    "get_model": ("models", "get_model"),
    "identification_risk": ("evaluation.microdata.identification", "identification_risk"),
    "init": ("api.draft", "init"),
    "jackknife": ("estimation.replicate_weights", "jackknife"),
    "ledger": ("api.ledger", "ledger"),
    "load_spec": ("spec.spec", "load_spec"),
    "logit_interval": ("estimation.combining", "logit_interval"),
    "noisy_release": ("evaluation.baselines.noisy_release", "noisy_release"),
    "preston_bootstrap": ("estimation.replicate_weights", "preston_bootstrap"),
    "privacy_statement": ("mechanisms.pseudo_posterior.statement", "privacy_statement"),
    "propensity_score": ("evaluation.microdata.regression", "propensity_score"),
    "rao_wu_yue_bootstrap": ("estimation.replicate_weights", "rao_wu_yue_bootstrap"),
    "read_release": ("release.folder.reader", "read_release"),
    "read_survey": ("spec.build", "read_survey"),
    "release": ("api.commands", "release"),
    "risk_utility_map": ("evaluation.microdata.risk_utility", "risk_utility_map"),
    "run_mechanism": ("mechanisms.pseudo_posterior.weighted_fits", "run"),
    "run_release": ("api.commands", "release"),
    "study": ("api.commands", "study"),
    "synthesise": ("inference.synthesis", "synthesise"),
    "t_interval": ("estimation.combining", "t_interval"),
    "tables": ("api.private_tables", "tables"),
    "topcode": ("evaluation.baselines.topcoding", "topcode"),
}

#: Public names that are modules.
_MODULES = {"datasets": "api.datasets", "errors": "errors"}

# A subpackage takes the name of its function when it is first imported: now, once and for all.
import_module("surveysynth.release")
globals().pop("release", None)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("surveysynth")
    if name in _MODULES:
        return import_module(f"surveysynth.{_MODULES[name]}")
    if name not in _SOURCES:
        raise AttributeError(f"module 'surveysynth' has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    value = getattr(import_module(f"surveysynth.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
