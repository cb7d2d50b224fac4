"""Size of a fit, and the loop of Gibbs samplers that run many databases side by side.

Each database has a generator of its own. Its random numbers do not depend on the rest of the
batch, so its draws move with its own statistics alone (common random numbers).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError

#: Sweeps whose random numbers are drawn in one call, a multiple of 4. It is fixed, since the order
#: of the numbers depends on it.
SWEEPS_AT_ONCE = 16


@dataclass(frozen=True)
class SamplingPlan:
    """Size of a fit, fixed before the data are seen: S = chains * draws kept draws.

    Parameters
    ----------
    chains
        Independent runs of the sampler.
    warmup, draws
        Iterations of each chain that are discarded and kept.

    Raises
    ------
    InputError
        For numbers that are too small.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.SamplingPlan(chains=4, draws=250).kept
    1000
    """

    chains: int = 4
    warmup: int = 250
    draws: int = 250

    def __post_init__(self) -> None:
        for name, least in (("chains", 1), ("warmup", 0), ("draws", 4)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, got {value!r}."
                )

    @property
    def kept(self) -> int:
        """S, the number of kept draws."""
        return self.chains * self.draws


@dataclass(frozen=True)
class Streams:
    """Generators, one for each database; ``chains`` of a database are adjacent in the batch."""

    generators: tuple[np.random.Generator, ...]
    chains: int

    @classmethod
    def of(
        cls, rng: np.random.Generator | Sequence[np.random.Generator], databases: int, chains: int
    ) -> "Streams":
        """Make streams; one generator for several databases is spawned into one for each."""
        if isinstance(rng, np.random.Generator):
            return cls((rng,) if databases == 1 else tuple(rng.spawn(databases)), chains)
        return cls(tuple(rng), chains)

    def standard_normal(self, shape: tuple[int, ...], axis: int) -> FloatArray:
        """Draw standard normals of ``shape``, its ``axis`` the batch of databases x chains."""
        result = np.empty(shape)
        for generator, block in zip(self.generators, self._blocks(result, axis), strict=True):
            block[...] = generator.standard_normal(block.shape)
        return result

    def random(self, shape: tuple[int, ...], axis: int) -> FloatArray:
        """Draw uniforms on (0, 1) in the same way."""
        result = np.empty(shape)
        for generator, block in zip(self.generators, self._blocks(result, axis), strict=True):
            block[...] = generator.random(block.shape)
        return result

    def _blocks(self, values: FloatArray, axis: int) -> list[FloatArray]:
        return np.split(values, len(self.generators), axis)


class Sweeps(Protocol):
    """State of a batch of chains, B = databases x chains, and its moves."""

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""

    def state(self) -> Theta:
        """Return the current parameters by name, each (B, ...)."""


def run_sweeps(sampler: Sweeps, plan: SamplingPlan) -> Theta:
    """Run the plan; leading axes: databases, chains, draws."""
    kept: dict[str, list[FloatArray]] = {}
    for sweep in range(plan.warmup + plan.draws):
        if sweep % SWEEPS_AT_ONCE == 0:
            sampler.draw_random_numbers(SWEEPS_AT_ONCE)
        sampler.sweep(sweep % SWEEPS_AT_ONCE)
        if sweep >= plan.warmup:
            for name, values in sampler.state().items():
                kept.setdefault(name, []).append(values)
    stacked = {name: np.stack(values, axis=1) for name, values in kept.items()}
    return {name: each.reshape(-1, plan.chains, *each.shape[1:]) for name, each in stacked.items()}
