"""Engine that samples a model by its Stan program instead of its own Gibbs sampler (methods 4).

It runs NUTS on the same weighted sufficient statistics. The backend runs the program: CmdStan, or
PyStan for development.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.resources import stan_directory
from surveysynth._support.types import DIVERGENT, Theta
from surveysynth.errors import InputError
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import STAN_SEED_BITS
from surveysynth.sampling.stan.backends import StanBackend, default_backend
from surveysynth.sampling.stan.source import StanProgramSpec, StanSource

#: The hierarchical priors of the package's models make NUTS diverge at Stan's own 0.8 (methods 4).
ADAPT_DELTA = 0.99
MAX_SEED = 2**STAN_SEED_BITS - 1


def seed_from(rng: np.random.Generator) -> int:
    """Draw a seed for Stan, 1..2**31 - 1."""
    return int(rng.integers(1, MAX_SEED, endpoint=True))


def program_source(spec: StanProgramSpec) -> StanSource:
    """Read a program of the package, its includes in place."""
    folder = stan_directory()
    return StanSource.read(folder / spec.program, [folder])


@dataclass(frozen=True, eq=False)
class StanEngine:
    """NUTS by Stan for any model of the package with a Stan program (``Model.with_engine``).

    ``backend``: ``default_backend()`` unless given. NUTS has no common random numbers: a small
    change of the data changes every draw. Raises ``InputError`` for an adapt_delta outside (0, 1).
    """

    backend: StanBackend = field(default_factory=default_backend)
    adapt_delta: float = ADAPT_DELTA

    def __post_init__(self) -> None:
        if not 0 < self.adapt_delta < 1:
            raise InputError(f"adapt_delta must lie between 0 and 1, got {self.adapt_delta!r}.")

    def prepare(self, spec: StanProgramSpec) -> None:
        """Compile the program unless that is done; raise ``InputError`` where it fails."""
        self.backend.prepare(program_source(spec))

    def versions(self, spec: StanProgramSpec) -> dict[str, str]:
        """Return names and versions of what runs the program."""
        return self.backend.versions(program_source(spec))

    def sample(
        self,
        spec: StanProgramSpec,
        priors: Mapping[str, float],
        stats: object,
        plan: SamplingPlan,
        rng: np.random.Generator,
    ) -> Theta:
        """Draw by NUTS for the statistics of one database: leading axes (1, chains, draws).

        Besides the model's parameters the result holds ``divergent__``, 1 where a draw diverged.
        """
        run = self.backend.run(
            program_source(spec),
            spec.data(stats, priors),
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
