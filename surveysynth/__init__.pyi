"""Public names, each in one place: the module that defines it."""

from . import datasets as datasets
from . import errors as errors
from .api.check import (
    CheckResult as CheckResult,
)
from .api.check import (
    check as check,
)
from .api.commands import adequacy as adequacy
from .api.commands import calibrate as calibrate
from .api.commands import coverage as coverage
from .api.commands import (
    ledger as ledger,
)
from .api.commands import (
    run_mechanism as run_mechanism,
)
from .api.private_tables import tables as tables
from .api.start import example as example
from .api.start import example_survey as example_survey
from .api.start import init as init
from .config.build import read_survey as read_survey
from .config.spec import load_spec as load_spec
from .errors import (
    ConfidentialWarning as ConfidentialWarning,
)
from .errors import (
    DroppedRecordsWarning as DroppedRecordsWarning,
)
from .errors import (
    FewRecordsWarning as FewRecordsWarning,
)
from .errors import (
    FormulaCutWarning as FormulaCutWarning,
)
from .estimation.calibration import CalibratedWeights as CalibratedWeights
from .estimation.combining import (
    combine as combine,
)
from .estimation.combining import (
    logit_interval as logit_interval,
)
from .estimation.combining import (
    t_interval as t_interval,
)
from .estimation.domains import build_domains as build_domains
from .estimation.sample_design import SampleDesign as SampleDesign
from .estimation.taylor import estimate_domains as estimate_domains
from .evaluation.compare.folder import compare as compare
from .evaluation.microdata import identification_risk as identification_risk
from .evaluation.microdata import (
    propensity_score as propensity_score,
)
from .evaluation.studies.report import CoverageResult as CoverageResult
from .inference.debias import Debiased as Debiased
from .inference.debias import DebiasRecord as DebiasRecord
from .inference.debias import debias_draws as debias_draws
from .inference.synthesis import SyntheticDataset as SyntheticDataset
from .inference.synthesis import synthesize as synthesize
from .mechanisms.base import Declared as Declared
from .mechanisms.base import PrivateDraws as PrivateDraws
from .mechanisms.pseudo_posterior.fit import ConfidentialFit as ConfidentialFit
from .mechanisms.pseudo_posterior.mechanism import privacy_statement as privacy_statement
from .mechanisms.pseudo_posterior.risk import (
    CountBased as CountBased,
)
from .mechanisms.pseudo_posterior.risk import (
    Lipschitz as Lipschitz,
)
from .mechanisms.pseudo_posterior.risk import (
    NoRisk as NoRisk,
)
from .mechanisms.pseudo_posterior.risk import (
    Pairwise as Pairwise,
)
from .mechanisms.pseudo_posterior.risk import (
    Scalar as Scalar,
)
from .mechanisms.pseudo_posterior.settings import MechanismSettings as MechanismSettings
from .models import get_model as get_model
from .release.pipeline import release as release
from .release.private_tables import PrivateTables as PrivateTables
from .release.reader import Release as Release
from .release.reader import read_release as read_release
from .sampling.plan import SamplingPlan as SamplingPlan
from .survey.outcome import Outcome as Outcome
from .survey.survey import (
    Confidential as Confidential,
)
from .survey.survey import (
    PublicDesign as PublicDesign,
)
from .survey.survey import (
    Survey as Survey,
)
from .survey.transforms import LearnedTransform as LearnedTransform
from .survey.transforms import Transform as Transform

__version__: str
