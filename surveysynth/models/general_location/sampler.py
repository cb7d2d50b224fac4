"""Draws of the general location model: its parts are independent given the data (methods 4)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.models.general_location.regressions import RegressionBlocks
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts.logit_sampler import LogitBlocks
from surveysynth.sampling.streams import Streams


class Gibbs:
    """State of a batch of chains, B = databases x chains: a block a part, each by itself."""

    def __init__(self, stats: GeneralStats, priors: Mapping[str, float], rng: Streams) -> None:
        layout = stats.layout
        self.layout, self.chains = layout, rng.chains
        self.logits = [LogitBlocks(sums, priors["logit_sd"], rng) for sums in stats.logits]
        self.regressions = [
            RegressionBlocks(part, sums.repeated(rng.chains), layout.grouped, priors, rng)
            for part, sums in zip(layout.regressions, stats.regressions, strict=True)
        ]

    def observe(self, stats: GeneralStats) -> None:
        """Other statistics of the same databases, where they change between sweeps."""
        for logit, counts in zip(self.logits, stats.logits, strict=True):
            logit.observe(counts)
        for regression, sums in zip(self.regressions, stats.regressions, strict=True):
            regression.observe(sums.repeated(self.chains))

    def state(self) -> Theta:
        """The parameters of all parts by name, with the part's at the end: "logit_1" (B, P, C - 1),
        "coefficients_2", "variance_weight"."""
        state: Theta = {}
        for part, logit in zip(self.layout.logits, self.logits, strict=True):
            shape = (logit.batch, part.columns.size, part.own.size)
            state[f"logit_{part.name}"] = logit.b.reshape(shape)
        for regression in self.regressions:
            state |= regression.state()
        return state

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps of all blocks."""
        for logit in self.logits:
            logit.draw_random_numbers(c)
        for regression in self.regressions:
            regression.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""
        with np.errstate(over="ignore", under="ignore"):
            for logit in self.logits:
                logit.sweep(i)
            for regression in self.regressions:
                regression.sweep(i)
