"""A model sampled by its Stan program instead of its embedded sampler (methods 4).

``StanEngine`` wraps a model of the package: NUTS on the same weighted sufficient statistics, all
else as in the model. What runs the program is a backend: CmdStan, or PyStan for development.
"""

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import ClassVar

import numpy as np

from surveysynth._support.resources import stan_directory
from surveysynth._support.types import DIVERGENT, Theta
from surveysynth.errors import InputError
from surveysynth.models.density_model import DensityModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import STAN_SEED_BITS
from surveysynth.sampling.stan.backends import StanBackend, default_backend
from surveysynth.sampling.stan.source import StanSource
from surveysynth.survey.survey import PublicDesign

#: The hierarchical priors of the package's models make NUTS diverge at Stan's own 0.8 (methods 4).
ADAPT_DELTA = 0.99
MAX_SEED = 2**STAN_SEED_BITS - 1


def seed_from(rng: np.random.Generator) -> int:
    """A seed for Stan, 1..2**31 - 1."""
    return int(rng.integers(1, MAX_SEED, endpoint=True))


def _of_model(member: str) -> property:
    """A member of the engine that is the model's own, an attribute or a bound method."""
    return property(attrgetter(f"model.{member}"))


@dataclass(frozen=True, eq=False)
class StanEngine:
    """A model whose draws come from its Stan program; everything else is the model's own.

    ``backend``: ``default_backend()`` unless given. Raises ``InputError`` for a model without a
    Stan program. NUTS has no common random numbers: a small change of the data changes every draw.
    """

    model: DensityModel
    backend: StanBackend = field(default_factory=default_backend)
    adapt_delta: float = ADAPT_DELTA

    batched: ClassVar[bool] = False
    common_random_numbers: ClassVar[bool] = False
    compiled: ClassVar[bool] = True

    name = _of_model("name")
    title = _of_model("title")
    requires = _of_model("requires")
    identified = _of_model("identified")
    tilted = _of_model("tilted")
    clustered = _of_model("clustered")
    takes_discrete = _of_model("takes_discrete")
    datasets_per_draw = _of_model("datasets_per_draw")
    stan = _of_model("stan")
    records = _of_model("records")
    records_from_simulated = _of_model("records_from_simulated")
    compress = _of_model("compress")
    monitored = _of_model("monitored")
    log_lik_blocks = _of_model("log_lik_blocks")
    simulate = _of_model("simulate")
    smooth_weight = _of_model("smooth_weight")
    drawn_weight = _of_model("drawn_weight")
    log_scales = _of_model("log_scales")
    with_log_scales = _of_model("with_log_scales")
    debiased = _of_model("debiased")
    with_debiased = _of_model("with_debiased")
    prior_guess = _of_model("prior_guess")

    def __post_init__(self) -> None:
        if not 0 < self.adapt_delta < 1:
            raise InputError(f"adapt_delta must lie between 0 and 1, got {self.adapt_delta!r}.")
        if self.stan is None:
            raise InputError(
                f"The model {self.name!r} has no Stan program: use the engine 'embedded'."
            )

    def of(self, design: PublicDesign) -> "StanEngine":
        """The engine of the form that the model has for a design."""
        model = self.model.of(design)
        return self if model is self.model else replace(self, model=model)  # type: ignore[arg-type]

    @property
    def source(self) -> StanSource:
        """The program with its includes in place."""
        assert self.stan is not None  # checked at construction
        folder = stan_directory()
        return StanSource.read(folder / self.stan.program, [folder])

    def prepare(self) -> None:
        """Compile the program, unless that is done; raises ``InputError`` where it cannot."""
        self.backend.prepare(self.source)

    def versions(self) -> dict[str, str]:
        """Of what runs the program."""
        return self.backend.versions(self.source)

    def sample(self, stats: object, plan: SamplingPlan, rng: np.random.Generator) -> Theta:
        """NUTS draws for the statistics of one database: leading axes (1, chains, draws).

        Besides the model's parameters it holds ``divergent__``, 1 where a draw diverged.
        """
        spec = self.stan
        assert spec is not None  # checked at construction
        run = self.backend.run(
            self.source,
            spec.data(stats, self.model.priors),
            chains=plan.chains,
            warmup=plan.warmup,
            draws=plan.draws,
            seed=seed_from(rng),
            adapt_delta=self.adapt_delta,
        )
        lead = (plan.chains, plan.draws)
        flat = {name: v.reshape(plan.kept, *v.shape[2:]) for name, v in run.draws.items()}
        theta = spec.theta(flat)
        result = {name: v.reshape(1, *lead, *v.shape[1:]) for name, v in theta.items()}
        return {**result, DIVERGENT: run.divergent[None].astype(np.float64)}
