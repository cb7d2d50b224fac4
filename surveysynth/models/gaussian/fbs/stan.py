"""Data and parameters of FBS's Stan program, ``fbs.stan``."""

from collections.abc import Mapping
from typing import Any

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts import psu_effects
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling.stan.source import StanProgramSpec


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    k, q = stats.fit.shape[-2:]
    return {
        "K": k,
        "q": q,
        **stats.stan_data(),
        **psu_effects.stan_data(stats, priors),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "residual_scale_prior": priors["residual_scale"],
        "lkj": priors["lkj"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    residual = draws["residual_scale"][..., :, None] * draws["residual_root"]
    coefficient = draws["coefficient_root"]
    return {
        "beta": draws["beta"],
        "covariance": residual @ residual.swapaxes(-1, -2),
        "coefficient_scale": draws["coefficient_scale"].swapaxes(-1, -2),
        "coefficient_correlation": coefficient @ coefficient.swapaxes(-1, -2),
        **psu_effects.stan_theta(draws),
    }


STAN = StanProgramSpec(program="fbs.stan", data=_data, theta=_theta)
