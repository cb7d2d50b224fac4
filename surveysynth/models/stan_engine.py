"""A model sampled by its Stan program instead of its embedded sampler (methods 4).

``StanEngine`` wraps a model of the package: NUTS on the same weighted sufficient statistics, all
else as in the model. What runs the program is a backend: CmdStan, or PyStan for development.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.resources import stan_directory
from surveysynth._support.types import DIVERGENT, FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import DensityModel, Simulated, SimulationKind
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import StanBackend, default_backend
from surveysynth.sampling.stan.program import StanProgramSpec
from surveysynth.sampling.stan.source import StanSource
from surveysynth.survey.survey import Confidential, PublicDesign

#: The hierarchical priors of the package's models make NUTS diverge at Stan's own 0.8 (methods 4).
ADAPT_DELTA = 0.99
MAX_SEED = 2**31 - 1


def seed_from(rng: np.random.Generator) -> int:
    """A seed for Stan, 1..2**31 - 1."""
    return int(rng.integers(1, MAX_SEED, endpoint=True))


@dataclass(frozen=True, eq=False)
class StanEngine:
    """A model whose draws come from its Stan program; everything else is the model's own.

    ``backend``: ``default_backend()`` unless given. Raises ``InputError`` for a model without a
    Stan program. NUTS has no common random numbers: a small change of the data changes every draw.
    """

    model: DensityModel
    backend: StanBackend = field(default_factory=default_backend)
    adapt_delta: float = ADAPT_DELTA
    batched: bool = field(default=False, init=False)
    common_random_numbers: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.adapt_delta < 1:
            raise InputError(f"adapt_delta must lie between 0 and 1, got {self.adapt_delta!r}.")
        if self.stan is None:
            raise InputError(
                f"The model {self.name!r} has no Stan program: use the engine 'embedded'."
            )

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def title(self) -> str:
        """The model's title."""
        return self.model.title

    @property
    def requires(self) -> frozenset[str]:
        """What the model needs of a design."""
        return self.model.requires

    @property
    def identified(self) -> bool:
        """Whether the model is identified."""
        return self.model.identified

    @property
    def tilted(self) -> bool:
        """Whether samples and releases of the model differ."""
        return self.model.tilted

    @property
    def clustered(self) -> bool:
        """Whether PSUs have effects in the model."""
        return self.model.clustered

    @property
    def stan(self) -> StanProgramSpec | None:
        """The Stan program and the ways in and out of it."""
        return self.model.stan

    @property
    def source(self) -> StanSource:
        """The program with its includes in place."""
        assert self.stan is not None  # checked at construction
        folder = stan_directory()
        return StanSource.read(folder / self.stan.program, [folder])

    def prepare(self) -> None:
        """Compile the program, unless that is done; raises ``InputError`` where it cannot."""
        self.backend.prepare(self.source)

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

    def records(self, design: PublicDesign, confidential: Confidential) -> object:
        """The model's records."""
        return self.model.records(design, confidential)

    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> object:
        """The model's records of a simulated dataset."""
        return self.model.records_from_simulated(design, simulated)

    def compress(self, records: object, risk_weights: FloatArray) -> object:
        """The model's weighted sufficient statistics."""
        return self.model.compress(records, risk_weights)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """The model's scalars for R-hat and ESS."""
        return self.model.monitored(theta)

    def log_lik_blocks(
        self, theta: Theta, records: object
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """The model's unweighted log-likelihoods."""
        return self.model.log_lik_blocks(theta, records)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """The model's simulated dataset."""
        return self.model.simulate(theta, design, rng, kind)

    def smooth_weight(self, theta: Theta, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """The model's smoothed weights."""
        return self.model.smooth_weight(theta, design, simulated)

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """The model's drawn weights."""
        return self.model.drawn_weight(design, simulated)

    def log_scales(self, theta: Theta) -> FloatArray:
        """The model's residual scales."""
        return self.model.log_scales(theta)

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """The model's parameters with other residual scales."""
        return self.model.with_log_scales(theta, log_scales)

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """The model's guess from public inputs."""
        return self.model.prior_guess(design, spread)
