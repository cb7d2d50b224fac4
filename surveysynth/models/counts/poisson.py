"""Poisson regression of a count (methods 3).

    y ~ Poisson(exp(x beta)),  beta ~ N(0, D Omega D), Omega ~ LKJ(6), sigma_k ~ half-t3(0, 1)

and, where the design has a survey weight, log w | y, x ~ N(x gamma + delta log(1 + y), s^2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from surveysynth.models.counts import model
from surveysynth.models.counts.family import POISSON, CountFamily
from surveysynth.models.counts.model import CountModel
from surveysynth.sampling.stan.program import StanProgramSpec

PRIORS: Mapping[str, float] = model.PRIORS
STAN = StanProgramSpec("poisson.stan", model.stan_data, model.stan_theta)


@dataclass(frozen=True)
class Poisson(CountModel):
    """The Poisson synthesizer. ``priors`` overrides the scales of methods 3 by name."""

    priors: Mapping[str, float] = field(default_factory=lambda: PRIORS)
    name: str = "poisson"
    title: str = "a Poisson regression of the count"
    stan: StanProgramSpec | None = STAN

    family: ClassVar[CountFamily] = POISSON

    def __post_init__(self) -> None:
        object.__setattr__(self, "priors", MappingProxyType({**PRIORS, **self.priors}))
