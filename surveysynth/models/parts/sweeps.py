"""The one loop that every Gibbs sampler of the package runs in."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.streams import SWEEPS_AT_ONCE


class Sweeps(Protocol):
    """The state of a batch of chains, B = databases x chains, and how it moves."""

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""

    def state(self) -> Theta:
        """The current parameters by name, each (B, ...)."""


def run_sweeps(sampler: Sweeps, plan: SamplingPlan) -> Theta:
    """Runs the plan; leading axes of the result (databases, chains, draws)."""
    kept: dict[str, list[FloatArray]] = {}
    for sweep in range(plan.warmup + plan.draws):
        if sweep % SWEEPS_AT_ONCE == 0:
            sampler.draw_random_numbers(SWEEPS_AT_ONCE)
        sampler.sweep(sweep % SWEEPS_AT_ONCE)
        if sweep >= plan.warmup:
            for name, values in sampler.state().items():
                kept.setdefault(name, []).append(values)
    return _by_chain(kept, plan.chains)


def _by_chain(kept: Mapping[str, list[FloatArray]], chains: int) -> Theta:
    """Kept states, a list of (databases x chains, ...), as (databases, chains, draws, ...)."""
    result: Theta = {}
    for name, values in kept.items():
        stacked = np.stack(values, axis=1)
        result[name] = stacked.reshape(-1, chains, *stacked.shape[1:])
    return result
