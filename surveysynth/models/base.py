"""Base class of synthesizers: what the mechanism, synthesis and studies rely on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.options import Option, check_option, check_priors
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.outcome import OutcomeKind, needs_general_form
from surveysynth.survey.survey import Confidential, PublicDesign

if TYPE_CHECKING:
    from surveysynth.models.stan_engine import StanEngine

SimulationKind = Literal["release", "sample"]
ShiftKind: TypeAlias = Literal["scale", "odds", "slope", "location"]
"""The log of a residual scale, the mean log odds of a level against the reference level, how far a
coefficient of these is from its mean, or a coefficient of a mean."""
#: Attributes of a model that its engine, NUTS on one database, decides.
_WITH_ENGINE = {"batched": False, "common_random_numbers": False, "compiled": True}


@dataclass(frozen=True, repr=False)
class Simulated:
    """One simulated dataset on the model's scale.

    z (n, q): transformed outcomes, then the log weight (FBS) or log inclusion probability (FBP),
    without meaning at a spike. category (n, p): the discrete part of each outcome (``Outcome``), if
    any; effects (n, D): those of the PSU, if any."""

    z: FloatArray
    category: IntArray | None = None
    effects: FloatArray | None = None

    def outcomes(self, design: PublicDesign) -> FloatArray:
        """Return the outcomes (n, p): amounts in original units, levels by their position."""
        columns = []
        for j, outcome in enumerate(design.outcomes):
            if self.category is None:
                columns.append(outcome.transform.inverse(self.z[:, j]))
            else:
                columns.append(outcome.values(self.category[:, j], self.z[:, j]))
        return np.stack(columns, axis=1)


@dataclass(frozen=True, repr=False)
class Coordinates:
    """Parameters that debiasing shifts (methods 8.3): values (S, d), in the units of their kinds.

    kinds (d) says which column is which.
    """

    values: FloatArray
    kinds: tuple[ShiftKind, ...]

    def __post_init__(self) -> None:
        if self.values.shape[-1:] != (len(self.kinds),):
            raise InputError(
                f"expected a column of values for each of {len(self.kinds)} kinds, got an array of "
                f"shape {self.values.shape}."
            )

    @classmethod
    def of(cls, kind: ShiftKind, values: FloatArray) -> "Coordinates":
        """Return columns of one kind; values (S, ...) keep their first axis."""
        columns = values.reshape(values.shape[0], -1)
        return cls(columns, (kind,) * columns.shape[-1])

    @classmethod
    def joined(cls, *parts: "Coordinates") -> "Coordinates":
        """Return the columns of all parts, in this order."""
        values = np.concatenate([part.values for part in parts], axis=-1)
        return cls(values, tuple(kind for part in parts for kind in part.kinds))


#: The prior SD of shrunken interactions, in residual SDs; on log odds it is twice this.
INTERACTION_PRIOR = "interaction_scale"


@dataclass(frozen=True)
class Model(ABC):
    """A synthesizer; arrays of parameters have leading axes (databases, chains, draws).

    Nothing outside ``mechanisms`` may assume that the likelihood is down-weighted record by
    record: a model sees risk weights only in ``compress``.

    ``priors`` overrides constants of the priors (methods 3) by name, and each of the model's own
    ``options`` is a field of its dataclass; the specification reads both declarations. ``engine``
    replaces the model's own sampler. Raises ``InputError`` for an unknown prior, for a value that
    a prior or an option cannot have, and for an engine where there is no Stan program.
    """

    priors: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    engine: "StanEngine | None" = field(default=None, kw_only=True)

    #: Constants of the priors with their defaults.
    default_priors: ClassVar[Mapping[str, float]] = MappingProxyType({})
    #: Keys of [synthesizer] that this model alone takes.
    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    #: The outcome is a count and enters without a transform.
    takes_count: ClassVar[bool] = False
    #: Outcomes may have discrete parts, and bounds that synthetic values keep.
    takes_discrete: ClassVar[bool] = False
    #: Kinds of outcomes that a specification may give it; with more than one, also bounds.
    kinds: ClassVar[tuple[OutcomeKind, ...]] = ("continuous",)
    #: The transform of the weight may be learned; other models need its logarithm.
    takes_learned_weight: ClassVar[bool] = False
    #: ``sample`` takes several databases at once.
    batched: ClassVar[bool] = False
    #: Draws from one generator move smoothly with the risk weights; of NUTS and mixtures they jump.
    common_random_numbers: ClassVar[bool] = False
    #: Labels cannot switch.
    identified: ClassVar[bool] = True
    #: A dataset like the sample differs in distribution from a released one: FBP releases the
    #: population, of which the sample is a selection.
    tilted: ClassVar[bool] = False
    #: PSUs have effects, drawn afresh in every simulated dataset (methods 3; ``psu_codes``).
    clustered: ClassVar[bool] = False
    #: It runs a program that ``prepare`` compiles.
    compiled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, option in self.options.items():
            value = getattr(self, name)
            check_option(name, option, value)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))  # the dataclass is frozen
        check_priors(self.name, self.default_priors, self.priors)
        priors = MappingProxyType({**self.default_priors, **self.priors})
        object.__setattr__(self, "priors", priors)
        if self.engine is not None:
            self.stan_program()
            for name, value in _WITH_ENGINE.items():
                object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in the registry and in a specification."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Name in words, for statements."""

    @property
    def requires(self) -> frozenset[str]:
        """Requirements on a design, by name.

        "weight", "confidential_weight", "population_size" or "one_outcome".
        """
        return frozenset()

    @property
    def changed_priors(self) -> dict[str, float]:
        """Priors that differ from the defaults."""
        return {
            name: value
            for name, value in self.priors.items()
            if value != self.default_priors[name]
        }

    @property
    def datasets_per_draw(self) -> int | None:
        """Number of datasets that one draw can make; None for any number."""
        return None

    @property
    def stan(self) -> StanProgramSpec | None:
        """Stan program of the model, if it has one."""
        return None

    def of(self, design: PublicDesign) -> "Model":
        """Return the form that the model takes for a design, usually itself.

        Idempotent; callers that use a design use this form. Raises ``InputError``."""
        return self

    def under_noise(self) -> "Model":
        """Return the form that noisy statistics are made for, whatever the design.

        Raises ``InputError`` for a model without sufficient statistics of fixed size.
        """
        raise InputError(
            f"The model {self.name!r} has no sufficient statistics of fixed size, which noisy "
            "statistics need: use model = 'fbs', 'fbp' or 'normal'."
        )

    def with_ridge(self, design: PublicDesign) -> PublicDesign:
        """Return the design with the ridge that the model puts on interactions; some have none.

        The leverage of rows, and with it what is pooled, depends on it."""
        return design.with_interaction_scale(self.priors.get(INTERACTION_PRIOR, math.inf))

    def draws_stay_together(self, design: PublicDesign) -> bool:
        """Return whether draws from one generator stay together as the risk weights move."""
        return self.common_random_numbers

    # --- engine -------------------------------------------------------------------------------

    def with_engine(self, engine: "StanEngine") -> Self:
        """Return the same model, sampled by its Stan program."""
        return replace(self, engine=engine)

    def stan_program(self) -> StanProgramSpec:
        """Return the Stan program; raise ``InputError`` if the model has none."""
        if self.stan is None:
            raise InputError(
                f"The model {self.name!r} has no Stan program: use the engine 'embedded'."
            )
        return self.stan

    def prepare(self) -> None:
        """Compile the program, if there is one to run; raise ``InputError`` where that fails."""
        if self.engine is not None:
            self.engine.prepare(self.stan_program())

    def versions(self) -> dict[str, str]:
        """Return names and versions of what runs the program; raise as ``prepare`` does."""
        return {} if self.engine is None else self.engine.versions(self.stan_program())

    def posterior_draws(self, stats: Any, plan: SamplingPlan, rng: Any) -> Theta:
        """Draw as ``sample`` does, by the engine if there is one."""
        if self.engine is None:
            return self.sample(stats, plan, rng)
        return self.engine.sample(self.stan_program(), self.priors, stats, plan, rng)

    # --- records and posterior ----------------------------------------------------------------

    def records(self, design: PublicDesign, confidential: Confidential) -> Any:
        """Put the confidential records on the model's scale.

        Default: transformed outcomes and weight. Raises ``InputError`` for a design that lacks what
        the model ``requires``.
        """
        require(self, design)
        pairs = zip(design.transforms, confidential.outcome.T, strict=True)
        columns = [transform.forward(values) for transform, values in pairs]
        if confidential.sampling_weight is not None:
            columns.append(design.weight_transform.forward(confidential.sampling_weight))
        return self.records_from_simulated(design, Simulated(np.stack(columns, axis=1)))

    @abstractmethod
    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> Any:
        """Return the records of a simulated dataset: feasibility, debiasing and tests refit it."""

    @abstractmethod
    def compress(self, records: Any, risk_weights: FloatArray) -> Any:
        """Compute the weighted sufficient statistics of one database; risk_weights alpha (n,).

        Those of a batched model have a leading axis of one database, and a class method
        ``stacked`` that joins several (``Stackable``).
        """

    @abstractmethod
    def sample(self, stats: Any, plan: SamplingPlan, rng: Any) -> Theta:
        """Draw from the posterior by the model's own sampler.

        Leading axes (databases, chains, draws). rng: a Generator; a batched model also takes a
        sequence of them, one for each database.
        """

    @abstractmethod
    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return unconstrained scalars for R-hat and ESS by name, (..., chains, draws, d)."""

    @abstractmethod
    def log_lik_blocks(
        self, theta: Theta, records: Any
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, log_lik (S, len(rows))), never S x n at once.

        theta has one leading axis S. Every record occurs in exactly one block."""

    # --- simulation ---------------------------------------------------------------------------

    @abstractmethod
    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Simulate the design's n records from one draw (theta without leading axes).

        kind: "release" as published; "sample" as the sample would have been.
        """

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return smoothed weights (n,) of a "release" dataset, in units of the sampling weight.

        Default: the weights as drawn.
        """
        return self.drawn_weight(design, simulated)

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return the weights (n,) of a dataset as drawn; public weights, or ones without any."""
        if design.public_weight is not None:
            return design.public_weight
        outcomes = len(design.outcome_names)
        if simulated.z.shape[1] == outcomes:
            return np.ones(design.n)
        return np.asarray(design.weight_transform.inverse(simulated.z[:, outcomes]))

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta | None:
        """Guess theta from public inputs alone, for ``surveysynth check``.

        ``spread``: residual SD of the transformed outcomes. None (default): no guess is possible.
        """
        return None

    # --- debiasing ----------------------------------------------------------------------------

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return the logs (S, d) of the residual scales that down-weighted tails shrink.

        theta has one leading axis S. Default: d = 0, draws are not debiased.
        """
        return np.empty((next(iter(theta.values())).shape[0], 0))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Return theta with these residual scales (S, d), coefficients and correlations kept."""
        return dict(theta)

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """Return the parameters that debiasing shifts, (S, d) (methods 8.3).

        These are what down-weighting moves in databases of the model's own: log scales, log odds
        of levels, and coefficients where the likelihood is not symmetric about its mean. Default:
        log scales alone.
        """
        return Coordinates.of("scale", self.log_scales(theta))

    def with_debiased(self, theta: Theta, values: FloatArray, design: PublicDesign) -> Theta:
        """Return theta with these ``debiased(theta, design).values``."""
        return self.with_log_scales(theta, values)


class Stackable(Protocol):
    """Statistics of databases that can be fitted side by side."""

    @classmethod
    def stacked(cls, parts: Any, /) -> Any:
        """Join those of several databases along the leading axis of every array."""


S = TypeVar("S", bound=Stackable)


def stacked(stats: Sequence[S]) -> S:
    """Join the statistics of several databases."""
    if len(stats) == 1:
        return stats[0]
    return cast(S, type(stats[0]).stacked(stats))


def psu_codes(model: Model, design: PublicDesign) -> IntArray | None:
    """Return PSU codes (n,) from 0 on, or None if the model has no PSU effects for this design.

    With a given design effect there are none.
    """
    return design.psu if model.clustered and design.design_effect is None else None


def require(model: Model, design: PublicDesign) -> None:
    """Raise ``InputError`` if the design lacks what the model needs, or has other outcomes."""
    if needs_general_form(design.outcomes) and not model.takes_discrete:
        special = next(outcome for outcome in design.outcomes if not outcome.is_plain)
        what: str = special.kind if special.is_discrete else "bounded"
        what = "given with missing answers as a category" if special.missing else what
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
    if not model.takes_learned_weight:
        design.require_log_weight(model.name)
    if "one_outcome" in model.requires and len(design.outcome_names) > 1:
        raise InputError(
            f"The model {model.name!r} takes one outcome, got {len(design.outcome_names)}: "
            "name one, or use the model 'fbs'."
        )
