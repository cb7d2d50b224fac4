"""Draws of the general location model: its parts are independent given the data (methods 4)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.models.general_location.regressions import Regressions
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts.logit_sampler import LogitBlocks
from surveysynth.sampling.streams import Streams


class Gibbs:
    """State of a batch of chains, B = databases x chains; each part by itself."""

    def __init__(self, stats: GeneralStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.layout, self.chains = stats.layout, rng.chains
        self.logits = [LogitBlocks(sums, priors["logit_sd"], rng) for sums in stats.logits]
        self.regressions = None
        if stats.regressions:
            repeated = tuple(sums.repeated(rng.chains) for sums in stats.regressions)
            self.regressions = Regressions(stats.layout, repeated, priors, rng)

    def observe(self, stats: GeneralStats) -> None:
        """Other statistics of the same databases, where they change between sweeps."""
        for logit, counts in zip(self.logits, stats.logits, strict=True):
            logit.observe(counts)
        if self.regressions is not None:
            repeated = tuple(sums.repeated(self.chains) for sums in stats.regressions)
            self.regressions.observe(repeated)

    def state(self) -> Theta:
        """The parameters of all parts by name, with the part's at the end: "logit_1" (B, P, C - 1),
        "coefficients_2", "variance_weight"."""
        state: Theta = {}
        for part, logit in zip(self.layout.logits, self.logits, strict=True):
            shape = (logit.batch, part.columns.size, part.own.size)
            state[f"logit_{part.name}"] = logit.b.reshape(shape)
        return state | ({} if self.regressions is None else self.regressions.state())

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        for logit in self.logits:
            logit.draw_random_numbers(c)
        if self.regressions is not None:
            self.regressions.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""
        with np.errstate(over="ignore", under="ignore"):
            for logit in self.logits:
                logit.sweep(i)
            if self.regressions is not None:
                self.regressions.sweep(i)
