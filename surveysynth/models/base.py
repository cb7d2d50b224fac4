"""What a synthesizer is: the protocol that the mechanism, synthesis and studies rely on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.debiased import Coordinates
from surveysynth.models.options import Option, check_option, check_priors
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.program import StanProgramSpec
from surveysynth.survey.outcome import OutcomeKind, needs_general_form
from surveysynth.survey.survey import Confidential, PublicDesign

SimulationKind = Literal["release", "sample"]


@dataclass(frozen=True, repr=False)
class Simulated:
    """One simulated dataset on the model's scale: z (n, q), the last column the log weight
    (FBS) or log inclusion probability (FBP).

    category (n, p): of each outcome the discrete part, where outcomes have one (``Outcome``); z of
    an outcome that is no amount, or lies at a spike, means nothing then.
    """

    z: FloatArray
    category: IntArray | None = None

    def outcomes(self, design: PublicDesign) -> FloatArray:
        """The outcomes (n, p), amounts in original units, levels by their position."""
        columns = []
        for j, outcome in enumerate(design.outcomes):
            if self.category is None:
                columns.append(outcome.transform.inverse(self.z[:, j]))
            else:
                columns.append(outcome.values(self.category[:, j], self.z[:, j]))
        return np.stack(columns, axis=1)


class Model(Protocol):
    """A synthesizer. Arrays of parameters carry leading axes (databases, chains, draws).

    Nothing outside ``mechanisms`` may assume that the likelihood is down-weighted record by record:
    a model takes the weights only in ``compress``. Most of this has a default in ``ModelBase``.
    """

    @property
    def name(self) -> str:
        """Its name in the registry and in a specification."""

    @property
    def title(self) -> str:
        """Its name in words, for statements."""

    @property
    def requires(self) -> frozenset[str]:
        """Of a design: "weight", "confidential_weight", "population_size", "one_outcome"."""

    @property
    def batched(self) -> bool:
        """Whether ``sample`` takes several databases at once."""

    @property
    def common_random_numbers(self) -> bool:
        """Whether draws from the same generator move smoothly with the risk weights. Those of NUTS
        and of a mixture jump as the weights move a little."""

    @property
    def identified(self) -> bool:
        """Whether labels cannot switch: mixtures are not identified."""

    @property
    def tilted(self) -> bool:
        """Whether a dataset as the sample would have been differs in distribution from one as it
        is released: FBP releases the population, which selection has tilted in the sample."""

    @property
    def takes_discrete(self) -> bool:
        """Whether outcomes may have discrete parts, and bounds that synthetic values keep."""

    @property
    def clustered(self) -> bool:
        """Whether the PSUs of a design have effects, drawn afresh in every simulated dataset
        (methods 3, clusters); see ``psu_codes``."""

    @property
    def datasets_per_draw(self) -> int | None:
        """How many datasets a draw can make; None: as many as wanted."""

    @property
    def compiled(self) -> bool:
        """Whether it runs a program that ``prepare`` compiles."""

    @property
    def stan(self) -> StanProgramSpec | None:
        """Its Stan program, if it has one."""

    def of(self, design: PublicDesign) -> "Model":
        """The form that the model has for a design, itself unless it has several: what meets a
        design takes this. Of its result it is the same again. Raises ``InputError``."""

    def prepare(self) -> None:
        """Compile its program, if it runs one, unless that is done; raises ``InputError``."""

    def versions(self) -> dict[str, str]:
        """Names and versions of what runs its program, if it has one; raises as ``prepare``."""

    def records(self, design: PublicDesign, confidential: Confidential) -> Any:
        """The confidential records on the model's scale."""

    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> Any:
        """The same from a simulated dataset: feasibility, debiasing and tests refit it."""

    def compress(self, records: Any, risk_weights: FloatArray) -> Any:
        """Weighted sufficient statistics of one database; risk_weights alpha (n,).

        Of a batched model: a leading axis of one database, and a class method ``stacked`` that
        joins several (``Stackable``)."""

    def sample(self, stats: Any, plan: SamplingPlan, rng: Any) -> Theta:
        """Posterior draws, leading axes (databases, chains, draws).

        rng: a Generator; a batched model also takes a sequence of them, one a database."""

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Unconstrained scalars for R-hat and ESS, by name: (..., chains, draws, d)."""

    def log_lik_blocks(
        self, theta: Theta, records: Any
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Streams (rows, log_lik (S, len(rows))), unweighted, never S x n at once.

        theta has one leading axis S. Every record occurs in exactly one block.
        """

    def simulate(
        self, theta: Theta, design: PublicDesign, rng: np.random.Generator, kind: SimulationKind
    ) -> Simulated:
        """A dataset of the design's n records from one draw (theta without leading axes).

        "release": as it is published; "sample": as the sample would have been.
        """

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Smoothed weights (n,) of a "release" dataset, in the units of the sampling weight."""

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Weights (n,) of a "sample" dataset as they were drawn: they vary as the survey's did."""

    def log_scales(self, theta: Theta) -> FloatArray:
        """Logs (S, d) of the residual scales that down-weighted tails shrink, d >= 0. theta has
        one leading axis S."""

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """theta (leading axis S) with these residual scales (S, d); coefficients and correlations
        stay."""

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """What debiasing shifts, (S, d): the log scales, and of an outcome with levels the log odds
        of each but the reference, averaged over the design's records (methods 8.3)."""

    def with_debiased(self, theta: Theta, logs: FloatArray, design: PublicDesign) -> Theta:
        """theta (leading axis S) with these ``debiased(theta, design).logs``; an intercept moves,
        other coefficients stay."""

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta | None:
        """A guess of theta from public inputs alone, for ``surveysynth check``: residual SD
        ``spread`` of the transformed outcomes. None where there is no telling."""


@dataclass(frozen=True)
class ModelBase(ABC):
    """What most synthesizers have in common: one says what differs, in a frozen dataclass below.

    ``priors`` overrides constants of the priors (methods 3) by name; each of the model's own
    ``options`` is a field of its dataclass. Both are declared here and read by the specification.
    Raises ``InputError`` for a name or a value that is none of those declared.
    """

    priors: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    #: Constants of the priors with their defaults.
    default_priors: ClassVar[Mapping[str, float]] = MappingProxyType({})
    #: Keys of [synthesizer] that this model alone takes.
    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    #: Whether the outcome is a count, which enters as it is, without a transform.
    takes_count: ClassVar[bool] = False
    #: Of outcomes that a specification may give it; with more than one, also with bounds.
    kinds: ClassVar[tuple[OutcomeKind, ...]] = ("continuous",)
    batched: ClassVar[bool] = False
    common_random_numbers: ClassVar[bool] = False
    identified: ClassVar[bool] = True
    tilted: ClassVar[bool] = False
    clustered: ClassVar[bool] = False
    compiled: ClassVar[bool] = False
    #: Whether outcomes may have discrete parts, and bounds that synthetic values keep.
    takes_discrete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, option in self.options.items():
            value = getattr(self, name)
            check_option(name, option, value)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))  # the dataclass is frozen
        check_priors(self.name, self.default_priors, self.priors)
        priors = MappingProxyType({**self.default_priors, **self.priors})
        object.__setattr__(self, "priors", priors)

    @property
    def changed_priors(self) -> dict[str, float]:
        """Those that are not the defaults."""
        return {
            name: value
            for name, value in self.priors.items()
            if value != self.default_priors[name]
        }

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in the registry and in a specification."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Its name in words, for statements."""

    @property
    def requires(self) -> frozenset[str]:
        """Nothing of a design."""
        return frozenset()

    @property
    def datasets_per_draw(self) -> int | None:
        """As many datasets as wanted."""
        return None

    @property
    def stan(self) -> StanProgramSpec | None:
        """No Stan program."""
        return None

    def of(self, design: PublicDesign) -> "Model":
        """Itself, for any design that it takes."""
        return self

    def prepare(self) -> None:  # noqa: B027  # most models have nothing to compile
        """Nothing to do."""

    def versions(self) -> dict[str, str]:
        """No program."""
        return {}

    def records(self, design: PublicDesign, confidential: Confidential) -> Any:
        """Those of z: the transformed outcomes and, if there is a weight, its logarithm. Raises
        ``InputError`` for a design that lacks what the model ``requires``."""
        require(self, design)
        columns = [
            transform.forward(confidential.outcome[:, j])
            for j, transform in enumerate(design.transforms)
        ]
        if confidential.sampling_weight is not None:
            columns.append(np.log(confidential.sampling_weight))
        return self.records_from_simulated(design, Simulated(np.stack(columns, axis=1)))

    @abstractmethod
    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> Any:
        """Records of a dataset that is already on the model's scale."""

    @abstractmethod
    def compress(self, records: Any, risk_weights: FloatArray) -> Any:
        """Weighted sufficient statistics of one database; risk_weights alpha (n,)."""

    @abstractmethod
    def sample(self, stats: Any, plan: SamplingPlan, rng: Any) -> Theta:
        """Posterior draws, leading axes (databases, chains, draws)."""

    @abstractmethod
    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Unconstrained scalars for R-hat and ESS, by name: (..., chains, draws, d)."""

    @abstractmethod
    def log_lik_blocks(
        self, theta: Theta, records: Any
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Streams (rows, log_lik (S, len(rows))), unweighted."""

    @abstractmethod
    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """A dataset of the design's n records from one draw."""

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """The weights as they were drawn, (n,)."""
        return self.drawn_weight(design, simulated)

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """w* (n,) of the log weight, the last column of z; public weights, or ones without any."""
        if design.public_weight is not None:
            return design.public_weight
        outcomes = len(design.outcome_names)
        if simulated.z.shape[1] == outcomes:
            return np.ones(design.n)
        return np.asarray(np.exp(simulated.z[:, outcomes]))

    def log_scales(self, theta: Theta) -> FloatArray:
        """None, (S, 0): its draws are not debiased."""
        return np.empty((next(iter(theta.values())).shape[0], 0))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """theta as it is."""
        return dict(theta)

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """The log scales."""
        return Coordinates.of_scales(self.log_scales(theta))

    def with_debiased(self, theta: Theta, logs: FloatArray, design: PublicDesign) -> Theta:
        """theta with these log scales."""
        return self.with_log_scales(theta, logs)

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta | None:
        """None: ``surveysynth check`` does not tell whether a target can be reached."""
        return None


class Stackable(Protocol):
    """Statistics of databases that can be fitted side by side."""

    @classmethod
    def stacked(cls, parts: Any, /) -> Any:
        """Those of several databases as one, along the leading axis of every array."""


S = TypeVar("S", bound=Stackable)


def stacked(stats: Sequence[S]) -> S:
    """The statistics of several databases as one."""
    if len(stats) == 1:
        return stats[0]
    return cast(S, type(stats[0]).stacked(stats))


def psu_codes(model: Model, design: PublicDesign) -> IntArray | None:
    """PSU codes (n,) from 0 on if the model has effects of them here: no design effect is given."""
    return design.psu if model.clustered and design.design_effect is None else None


def require(model: Model, design: PublicDesign) -> None:
    """Raises ``InputError`` if the design lacks what the model needs, or has other outcomes."""
    if needs_general_form(design.outcomes) and not model.takes_discrete:
        special = next(outcome for outcome in design.outcomes if not outcome.is_plain)
        what = special.kind if special.is_discrete else "bounded"
        raise InputError(
            f"The model {model.name!r} takes continuous outcomes without bounds, and "
            f"{special.name!r} is {what}: use the model 'fbs' or 'fbp' in the form that its "
            "method of(design) gives."
        )
    if "confidential_weight" in model.requires and design.public_weight is not None:
        raise InputError(
            f"The model {model.name!r} models selection by confidential weights, and those of this "
            "survey are public: use the model 'fbs'."
        )
    if "population_size" in model.requires and design.population_size is None:
        raise InputError(
            f"The model {model.name!r} needs the public population size: set population_size in "
            "[survey] to the number of units in the population (from a frame or a published "
            "source, not the sum of the weights), or use the model 'fbs'."
        )
    if "weight" in model.requires and design.weight_name is design.public_weight_name is None:
        raise InputError(
            f"The model {model.name!r} needs a sampling weight: name its column as weight in "
            "[survey]."
        )
    if "one_outcome" in model.requires and len(design.outcome_names) > 1:
        raise InputError(
            f"The model {model.name!r} takes one outcome, got {len(design.outcome_names)}: "
            "name one, or use the model 'fbs'."
        )
