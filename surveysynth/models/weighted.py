"""Models that the pseudo-posterior fits: their likelihood is down-weighted record by record.

They are the papers': plain amounts, or one count, in samples of one stage. Everything else that a
survey has is for noisy statistics.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from surveysynth._support.messages import DESIGN_EFFECT_INSTEAD, noisy_statistics_alone
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Model, Simulated, require
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.survey import Confidential, PublicDesign

if TYPE_CHECKING:
    from surveysynth.sampling.stan.backends import StanEngine

ShiftKind: TypeAlias = Literal["scale", "location"]
"""The log of a residual scale, or a coefficient of a mean."""
#: Attributes of a model that its engine, NUTS on one database, decides.
_WITH_ENGINE = {"batched": False, "common_random_numbers": False, "compiled": True}


@dataclass(frozen=True, repr=False)
class Coordinates:
    """Parameters that debiasing shifts (methods 8.3): values (S, d), in the units of their kinds.

    kinds (d) says which column is which.
    """

    values: FloatArray
    kinds: tuple[ShiftKind, ...]

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


@dataclass(frozen=True)
class WeightedModel(Model):
    """A model with a weighted fit; parameters have leading axes (databases, chains, draws).

    Nothing outside ``mechanisms`` may assume that the likelihood is down-weighted record by
    record: a model sees risk weights only in ``compress``. ``engine`` replaces the model's own
    sampler; raises ``InputError`` for an engine where there is no Stan program.
    """

    engine: "StanEngine | None" = field(default=None, kw_only=True)

    #: ``sample`` takes several databases at once.
    batched: ClassVar[bool] = False
    #: Draws from one generator move smoothly with the risk weights; those of NUTS jump.
    common_random_numbers: ClassVar[bool] = False
    #: Positive parameters of residual spread, and the power of each that is an SD or like one.
    scales: ClassVar[Mapping[str, float]] = MappingProxyType({})
    #: Parameters of location that down-weighting moves in databases of the model's own.
    locations: ClassVar[tuple[str, ...]] = ()
    #: Labels cannot switch.
    identified: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine is not None:
            self.stan_program()
            for name, value in _WITH_ENGINE.items():
                object.__setattr__(self, name, value)

    @property
    def stan(self) -> StanProgramSpec | None:
        """Stan program of the model, if it has one."""
        return None

    def of(self, design: PublicDesign) -> Self:
        """Return the model; raise ``InputError`` for a design that noisy statistics alone take."""
        for each in design.outcomes:
            if not each.is_plain:
                kind: str = each.kind if each.is_discrete else "bounded"
                kind = "given with missing answers as a category" if each.missing else kind
                raise InputError(noisy_statistics_alone(f"the outcome {each.name!r} is {kind}"))
        for each in design.modelled:
            if each.learned is not None:
                what = f"the transform of {each.name!r} is learned"
                raise InputError(noisy_statistics_alone(what))
        if design.psu is not None and design.design_effect is None:
            what = f"the survey has primary sampling units (psu = {design.psu_name!r})"
            raise InputError(f"{noisy_statistics_alone(what)} {DESIGN_EFFECT_INSTEAD}")
        return self

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

    @property
    def runner(self) -> "StanEngine | None":
        """The engine that runs the Stan program; None for the model's own sampler."""
        return self.engine

    def prepare(self) -> None:
        """Compile the program, if there is one to run; raise ``InputError`` where that fails."""
        if self.runner is not None:
            self.runner.prepare(self.stan_program())

    def versions(self) -> dict[str, str]:
        """Return names and versions of what runs the program; raise as ``prepare`` does."""
        return {} if self.runner is None else self.runner.versions(self.stan_program())

    def posterior_draws(self, stats: Any, plan: SamplingPlan, rng: Any) -> Theta:
        """Draw as ``sample`` does, by the Stan program where it runs."""
        if self.runner is None:
            return self.sample(stats, plan, rng)
        return self.runner.sample(self.stan_program(), self.priors, stats, plan, rng)

    def records(self, design: PublicDesign, confidential: Confidential) -> Any:
        """Put the confidential records on the model's scale.

        Default: transformed outcomes and weight. Raises ``InputError`` for a design that lacks what
        the model ``requires``.
        """
        require(self.of(design), design)
        pairs = zip(design.transforms, confidential.outcome.T, strict=True)
        columns = [transform.forward(values) for transform, values in pairs]
        if confidential.sampling_weight is not None:
            columns.append(design.weight_transform.forward(confidential.sampling_weight))
        return self.records_from_simulated(design, Simulated(np.stack(columns, axis=1)))

    @abstractmethod
    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> Any:
        """Return the records of a simulated dataset: debiasing and tests refit it."""

    @abstractmethod
    def compress(self, records: Any, risk_weights: FloatArray) -> Any:
        """Compute the weighted sufficient statistics of one database; risk_weights alpha (n,).

        Those of a batched model have a leading axis of one database, and a class method
        ``stacked`` that joins several.
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

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return the logs (..., d) of the residual scales that down-weighted tails shrink.

        Default: those of ``scales``.
        """
        logs = [power * np.log(theta[name]) for name, power in self.scales.items() if name in theta]
        return np.concatenate(logs, -1) if logs else np.empty((len(next(iter(theta.values()))), 0))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Return theta with these residual scales (..., d) and everything else unchanged."""
        result, rest = dict(theta), log_scales
        for name in (name for name in self.scales if name in theta):
            own, rest = np.split(rest, [theta[name].shape[-1]], axis=-1)
            result[name] = np.exp(own / self.scales[name])
        return result

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """Return the parameters that debiasing shifts, (S, d) (methods 8.3).

        These are what down-weighting moves in databases of the model's own: log scales, and
        coefficients where the likelihood is not symmetric about its mean. Default: log scales and
        ``locations``.
        """
        located = [Coordinates.of("location", theta[name]) for name in self.locations]
        return Coordinates.joined(Coordinates.of("scale", self.log_scales(theta)), *located)

    def with_debiased(self, theta: Theta, values: FloatArray, design: PublicDesign) -> Theta:
        """Return theta with these ``debiased(theta, design).values``."""
        log_scales, rest = np.split(values, [self.log_scales(theta).shape[-1]], axis=-1)
        result = self.with_log_scales(theta, log_scales)
        for name in self.locations:
            own, rest = np.split(rest, [theta[name].shape[-1]], axis=-1)
            result[name] = own
        return result


def stacked(stats: Sequence[Any]) -> Any:
    """Join the statistics of several databases along the leading axis of every array."""
    return stats[0] if len(stats) == 1 else type(stats[0]).stacked(stats)


def weighted_form(model: Model, design: PublicDesign) -> WeightedModel:
    """Return the form that the pseudo-posterior fits to a design; raise ``InputError`` if none."""
    if not isinstance(model, WeightedModel):
        raise InputError(
            f"The model {model.name!r} is in its form for noisy statistics; the pseudo-posterior "
            "takes what get_model returns."
        )
    return model.of(design)
