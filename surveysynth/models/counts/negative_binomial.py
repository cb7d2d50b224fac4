"""Negative binomial regression of a count (methods 3).

    y ~ negative binomial, mean mu = exp(x beta), variance mu + mu^2 / phi
    beta ~ N(0, D Omega D), Omega ~ LKJ(6), sigma_k ~ half-t3(0, 1);  1/phi ~ half-Cauchy(0, 5)

and, where the design has a survey weight, log w | y, x ~ N(x gamma + delta log(1 + y), s^2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from surveysynth.models.counts import model
from surveysynth.models.counts.family import NEGATIVE_BINOMIAL, CountFamily
from surveysynth.models.counts.model import CountModel, CountStats
from surveysynth.sampling.stan.program import StanProgramSpec

PRIORS: Mapping[str, float] = MappingProxyType({"overdispersion_scale": 5.0, **model.PRIORS})


def _stan_data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    values, mass = stats.counts.values[0], stats.counts.value_mass[0]
    return {
        **model.stan_data(stats, priors),
        "D": values.size,
        "values": values.tolist(),
        "value_mass": mass.tolist(),
        "overdispersion_scale": priors["overdispersion_scale"],
    }


STAN = StanProgramSpec("negative_binomial.stan", _stan_data, model.stan_theta)


@dataclass(frozen=True)
class NegativeBinomial(CountModel):
    """The negative binomial synthesizer. ``priors`` overrides the scales of methods 3 by name."""

    priors: Mapping[str, float] = field(default_factory=lambda: PRIORS)
    name: str = "negative_binomial"
    title: str = "a negative binomial regression of the count"
    stan: StanProgramSpec | None = STAN

    family: ClassVar[CountFamily] = NEGATIVE_BINOMIAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "priors", MappingProxyType({**PRIORS, **self.priors}))
