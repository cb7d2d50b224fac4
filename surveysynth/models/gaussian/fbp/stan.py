"""Data and parameters of FBP's Stan program, ``fbp.stan``."""

from collections.abc import Mapping
from typing import Any

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts import psu_effects
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling.stan.source import StanProgramSpec


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    return {
        "K": stats.fit.shape[-2],
        "x_sum": stats.x_sum[0].tolist(),
        **stats.stan_data(),
        "coefficient_sd": priors["coefficient_sd"],
        "selection_sd": priors["selection_sd"],
        "residual_scale": priors["residual_scale"],
        **psu_effects.stan_data(stats, priors),
        "lkj": priors["lkj"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    return {
        "beta": draws["beta"],
        "selection": draws["selection"],
        "variance": draws["residual_sd"] ** 2,
        **psu_effects.stan_theta(draws),
    }


STAN = StanProgramSpec(program="fbp.stan", data=_data, theta=_theta)
