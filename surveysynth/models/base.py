"""Base class of synthesizers: what the mechanism, synthesis and studies rely on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.survey.outcome import OutcomeKind
from surveysynth.survey.survey import PublicDesign

SimulationKind = Literal["release", "sample"]


def check_priors(model: str, known: Mapping[str, float], given: Mapping[str, float]) -> None:
    """Raise ``InputError`` for names that are not those of the model's priors.

    Also raised for constants that no prior can have.
    """
    for name, value in given.items():
        if name not in known:
            raise InputError(
                f"priors: unknown name {name!r} for model {model!r}."
                f"{nearest(name, known)} Known: {listing(tuple(known))}."
            )
        if not value > 0:
            raise InputError(f"priors.{name}: expected a positive number, got {value!r}.")
        if name == "lkj" and (value < 1 or not float(2 * value).is_integer()):
            raise InputError(
                f"priors.lkj: expected a multiple of 0.5, at least 1, got {value!r}."
            )


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


#: The prior SD of shrunken interactions, in residual SDs; on log odds it is twice this.
INTERACTION_PRIOR = "interaction_scale"


@dataclass(frozen=True)
class Model(ABC):
    """A synthesizer: priors, and data simulated from a draw of its parameters.

    ``WeightedModel`` adds a fit that the pseudo-posterior down-weights record by record; noisy
    statistics fit the general location model to sums.

    ``priors`` overrides constants of the priors (methods 3) by name. Raises ``InputError`` for an
    unknown prior, and for a value that it cannot have.
    """

    priors: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    #: Constants of the priors with their defaults.
    default_priors: ClassVar[Mapping[str, float]] = MappingProxyType({})
    #: The outcome is a count and enters without a transform.
    takes_count: ClassVar[bool] = False
    #: Kinds of outcomes that a specification may give it under noisy statistics; with more than
    #: one, also bounds, and ``covariance_by``: columns whose cells have spreads of their own.
    kinds: ClassVar[tuple[OutcomeKind, ...]] = ("continuous",)
    #: The transform of the weight may be learned; other models need its logarithm.
    takes_learned_weight: ClassVar[bool] = False
    #: A dataset like the sample differs in distribution from a released one: FBP releases the
    #: population, of which the sample is a selection.
    tilted: ClassVar[bool] = False
    #: PSUs have effects, drawn afresh in every simulated dataset (methods 3; ``psu_codes``).
    clustered: ClassVar[bool] = False
    #: Variance of an outcome over the model's that the least number of records allows for: more
    #: than one where no parameter of the model follows the variance (methods 2.10).
    dispersion: ClassVar[float] = 1.0
    #: It runs a program that ``prepare`` compiles.
    compiled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_priors(self.name, self.default_priors, self.priors)
        priors = MappingProxyType({**self.default_priors, **self.priors})
        object.__setattr__(self, "priors", priors)  # the dataclass is frozen

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
        """Return the design with the model's ridge on interactions, if any, and its dispersion.

        The leverage of rows, and with it what is pooled, depends on them."""
        made = design.with_interaction_scale(self.priors.get(INTERACTION_PRIOR, math.inf))
        same = made.dispersion == self.dispersion
        return made if same else replace(made, dispersion=self.dispersion)

    def prepare(self) -> None:  # noqa: B027 - most have nothing to compile
        """Compile the program, if there is one to run; raise ``InputError`` where that fails."""

    def versions(self) -> dict[str, str]:
        """Return names and versions of what runs the program; raise as ``prepare`` does."""
        return {}

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



def psu_codes(model: Model, design: PublicDesign) -> IntArray | None:
    """Return PSU codes (n,) starting at 0, or None if the model has no PSU effects for this design.

    With a given design effect there are none.
    """
    return design.psu if model.clustered and design.design_effect is None else None


def require(model: Model, design: PublicDesign) -> None:
    """Raise ``InputError`` if the design lacks what the model needs, or has several outcomes."""
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
