"""Simulated surveys to audit: the package's own examples, and the design of a specification.

Records of the examples are a sample of the published simulation's population (methods 7): salaries
by field and gender, drawn with probability in proportion to a size that depends on them. Columns of
other kinds are made from the salary. A specification's public columns and number of records are the
file's own; outcomes and weights are drawn from the declarations. ``read_design`` reads only the
public columns of the file: nothing confidential is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.api.start import simulate_survey
from surveysynth.config.build import engine_of, mechanism_of, model_of, read_design
from surveysynth.evaluation.studies.population import published_cells
from surveysynth.evaluation.studies.simulated import UNDECLARED
from surveysynth.mechanisms.base import Declared, Mechanism
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.mechanism import NoisyStatisticsMechanism
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.models.base import Model, require
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign, Survey
from surveysynth.survey.transforms import LearnedTransform, Transform
from tests.audit.lines import Case
from tests.guesses import guessed_theta, has_guess

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.config.spec import Spec

EPSILON, DELTA = 10.8, 1e-6
#: Many short chains cost less than few long ones with as many draws.
PLAN = SamplingPlan(8, 100, 100)
#: For counts, whose chains stay in a tail for some time: as in a release.
USUAL = MappingProxyType({"plan": SamplingPlan()})
#: Approximate records of a PSU.
PSU_SIZE = 12
SALARY = Outcome("salary")
BONUS = Outcome("bonus", transform=Transform("yeo_johnson", scale=1000.0))
BENEFIT = Outcome(
    "benefit", "semicontinuous", Transform("yeo_johnson", scale=1000.0), spikes=(0.0,)
)
EMPLOYED = Outcome("employed", "binary")
PAPERS = Outcome("papers", transform=Transform("identity"))
KINDS = (SALARY, BENEFIT, EMPLOYED)
#: Transforms that are learned, each from its share of the budget.
LEARNED = (
    Outcome("salary", transform=LearnedTransform(low=0.0, high=2e6, share=0.05)),
    Outcome("bonus", transform=LearnedTransform(low=0.0, high=1e5, share=0.03)),
)
LEARNED_WEIGHT = MappingProxyType(
    {"weight_transform": LearnedTransform(low=0.5, high=1e5, share=0.02)}
)
PAPERS_COUNT = Outcome("papers", "count", LearnedTransform(low=0, high=60, share=0.1))
#: Public guesses of a typical value and of a typical SD on the scale of the transform.
DECLARED = MappingProxyType({
    "salary": Declared(80_000.0, 0.5), "bonus": Declared(5_000.0, 1.0),
    "benefit": Declared(3_000.0, 1.0),
})  # fmt: skip


@lru_cache(maxsize=8)
def frame_of(n: int, seed: int) -> "pd.DataFrame":
    """Simulate n records for all examples.

    Columns: field, gender, salary, weight; bonus, benefit, employed, papers; school and
    local_salary, PSUs within fields whose people earn alike.
    """
    rng = np.random.default_rng([seed, n])
    frame = simulate_survey(n, rng)
    position = frame.groupby("field").cumcount().to_numpy()
    sizes = frame["field"].map(frame["field"].value_counts()).to_numpy()
    units = np.maximum(2, sizes // PSU_SIZE)
    # From one or two records up to half more than the mean of the stratum.
    within = np.floor(units * (position / sizes) ** 1.3).astype(np.int64)
    frame["school"] = frame["field"] + "-" + np.char.zfill(within.astype(str), 3)
    effects = dict(zip(sorted(set(frame["school"])), rng.normal(0.0, 0.1, n), strict=False))
    frame["local_salary"] = frame["salary"] * np.exp(frame["school"].map(effects))
    earns = np.log(frame["salary"] / 80_000.0).to_numpy()
    frame["bonus"] = np.exp(np.log(5_000.0) + 0.5 * earns + rng.normal(0.0, 0.4, n))
    gets = rng.random(n) < 1.0 / (1.0 + np.exp(0.5 + earns))
    frame["benefit"] = np.where(gets, np.exp(np.log(3_000.0) + rng.normal(0.0, 0.4, n)), 0.0)
    frame["employed"] = (rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 - earns))).astype(int)
    frame["papers"] = rng.negative_binomial(5.0, 5.0 / (5.0 + 20.0 * np.exp(0.3 * earns)))
    persons = published_cells()["size"].sum()
    frame["design_weight"] = persons / n * (1.0 + 0.1 * frame["field"].astype(int))
    return frame


@dataclass(frozen=True)
class Example:
    """One way to use the package: a model, outcomes, design, and the mechanism's settings.

    survey, settings: what differs from the usual ones; ``noisy``: by noisy statistics;
    ``calibrated``: weights are calibrated again after a replacement.
    """

    name: str
    model: str
    outcomes: tuple[Outcome, ...] = (SALARY,)
    survey: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    noisy: bool = False
    calibrated: bool = False

    def case(self, n: int, seed: int) -> Case:
        """Return the case with n simulated records."""
        given = {
            "weight": "weight", "strata": "field", "by": ("field", "gender"),
            "predictors": "field + gender", "population_size": int(published_cells()["size"].sum()),
        }  # fmt: skip
        survey = Survey.from_frame(
            frame_of(n, seed), outcomes=self.outcomes, **{**given, **self.survey}
        )
        return Case(
            self.name, self._model(survey.design), survey, self.mechanism,
            calibrated=self.calibrated,
        )  # fmt: skip

    def _model(self, design: PublicDesign) -> Model:
        model = get_model(self.model)
        return model.under_noise().of(design) if self.noisy else model

    @property
    def mechanism(self) -> Mechanism:
        """With this package's usual budget."""
        if self.noisy:
            names = {each.name for each in self.outcomes}
            given = {"budget": Budget.of_epsilon(EPSILON, DELTA),
                     "declared": {k: v for k, v in DECLARED.items() if k in names}}  # fmt: skip
            return NoisyStatisticsMechanism(NoisySettings(**{**given, **self.settings}))
        usual = {"epsilon": EPSILON, "plan": PLAN}
        return PseudoPosterior(MechanismSettings(**{**usual, **self.settings}))


def _local(psu: str = "school") -> dict[str, Any]:
    return {"psu": psu, "lonely_psu": "adjust"}


PUBLIC = MappingProxyType({"weight": "design_weight", "weights": "public"})
#: Two columns of X instead of nine: records per coefficient matter.
GENDER = MappingProxyType({"strata": None, "by": ("gender",), "predictors": "gender"})
LOCAL = Outcome("local_salary")

#: Every model and mechanism, and every option that changes the arithmetic.
EXAMPLES = (
    Example("fbs", "fbs"),
    Example("fbs, two outcomes", "fbs", (SALARY, BONUS)),
    Example("fbs, public weights", "fbs", (SALARY,), PUBLIC),
    Example("fbs, by gender alone", "fbs", survey=GENDER),
    Example("fbs, epsilon 4", "fbs", settings={"epsilon": 4.0}),
    Example("fbs, papers' origin", "fbs", settings={"origin": "density"}),
    Example("fbs, linear weights", "fbs", settings={"weights": "linear"}),
    Example("fbs, count-based risk", "fbs", settings={"risk": "count"}),
    Example("fbs, scalar weights", "fbs", settings={"risk": "scalar"}),
    Example("fbp", "fbp"),
    Example("fbp, by gender alone", "fbp", survey=GENDER),
    Example("normal", "normal"),
    Example("poisson", "poisson", (PAPERS,), settings=USUAL),
    Example("negative_binomial", "negative_binomial", (PAPERS,), settings=USUAL),
    Example("fbs, noisy statistics", "fbs", noisy=True),
    Example("fbs, two outcomes, noisy statistics", "fbs", (SALARY, BONUS), noisy=True),
    Example("fbs, clustered, noisy statistics", "fbs", (LOCAL,), _local(), noisy=True,
            settings={"declared": {"local_salary": Declared(80_000.0, 0.5)}}),
    Example("fbs, kinds, noisy statistics", "fbs", KINDS, noisy=True),
    Example("fbs, public weights, noisy statistics", "fbs", (SALARY,), PUBLIC, noisy=True),
    Example("fbs, schools protected, noisy statistics", "fbs", (SALARY,),
            {"public_columns": ("school",)}, {"protect": "school"}, noisy=True),
    Example("fbs, learned, noisy statistics", "fbs", LEARNED, LEARNED_WEIGHT, noisy=True),
    Example("fbs, a count and a yes or no, noisy statistics", "fbs", (PAPERS_COUNT, EMPLOYED),
            noisy=True),
    Example("fbp, noisy statistics", "fbp", noisy=True),
    Example("fbp, clustered, noisy statistics", "fbp", (LOCAL,), _local(), noisy=True,
            settings={"declared": {"local_salary": Declared(80_000.0, 0.5)}}),
    Example("fbp, amounts with zeros, noisy statistics", "fbp", (BENEFIT,), noisy=True),
    Example("normal, noisy statistics", "normal", noisy=True),
)  # fmt: skip


#: One answer is replaced and the weights are calibrated again, before the noise and after it.
CALIBRATED = (
    Example("fbs, calibrated again, noisy statistics", "fbs", noisy=True, calibrated=True),
    Example("fbs, kinds, calibrated again, noisy statistics", "fbs", KINDS, noisy=True,
            calibrated=True),
)  # fmt: skip


def specified_case(spec: "Spec", seed: int) -> Case:
    """Return the specification's own model and mechanism, on a simulated survey of its design.

    Raises ``InputError`` for public columns or settings that a release could not take.
    """
    design = read_design(spec)
    model = engine_of(spec, model_of(spec))
    mechanism = mechanism_of(spec)
    rng = np.random.default_rng(seed)
    if isinstance(mechanism.settings, NoisySettings):
        confidential = _declared(design, mechanism.settings, rng)
    else:
        spreads = {
            name: each.of_side(0)[1] or UNDECLARED for name, each in spec.outcomes.items()
        }
        confidential = _guessed(model.of(design), design, spreads, rng)
    return Case(spec.path.name, model, Survey(design, confidential), mechanism)


def _guessed(
    model: Model, design: PublicDesign, spreads: Mapping[str, float], rng: np.random.Generator
) -> Confidential:
    """Simulate a dataset from the model's own guess, its amounts stretched to declared spreads.

    If the model has none, as the caller's own programs, the guess is that of FBS.
    """
    require(model, design)
    if not has_guess(model):
        model = get_model("fbs").of(design)
    theta = guessed_theta(model, design, UNDECLARED)
    simulated = model.simulate(theta, design, rng, "sample")
    if not getattr(model, "takes_count", False):
        stretch = np.ones(simulated.z.shape[1])
        for position, outcome in enumerate(design.outcomes):
            stretch[position] = spreads.get(outcome.name, UNDECLARED) / UNDECLARED
        simulated = replace(simulated, z=simulated.z * stretch)
    weight = None if design.weight_name is None else model.drawn_weight(design, simulated)
    return Confidential(simulated.outcomes(design), weight)


def _declared(
    design: PublicDesign, settings: NoisySettings, rng: np.random.Generator
) -> Confidential:
    """Simulate amounts and log weights about their declared centres, categories equally likely."""
    clipping = settings.clipping(design)
    normal = rng.standard_normal((design.n, clipping.q)) * clipping.spread + clipping.centre
    columns, amounts = [], iter(normal.T)
    for outcome in design.outcomes:
        category = rng.integers(0, outcome.categories, design.n)
        z = next(amounts) if outcome.is_amount else np.zeros(design.n)
        columns.append(_inside(outcome, outcome.values(category, z)))
    weight = None if design.weight_name is None else design.weight_transform.inverse(normal[:, -1])
    return Confidential(np.stack(columns, axis=1), weight)


def _inside(outcome: Outcome, values: FloatArray) -> FloatArray:
    """Cut amounts at no spike at the declared bounds."""
    there = outcome.regular(values)
    cut = np.clip(values, outcome.lower, outcome.upper) if outcome.is_amount else values
    return np.where(there, cut, values)
