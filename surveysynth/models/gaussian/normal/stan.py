"""Data and parameters of the normal regression's Stan program, ``normal.stan``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling.stan.source import StanProgramSpec


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    k, q = stats.fit.shape[-2:]
    return {
        "K": k,
        "has_weight": q - 1,
        **stats.stan_data(),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "residual_scale_prior": priors["residual_scale"],
        "lkj": priors["lkj"],
        "weight_coefficient_sd": priors["weight_coefficient_sd"],
        "weight_residual_scale": priors["weight_residual_scale"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    root = draws["coefficient_root"]
    theta = {
        "beta": draws["beta"],
        "variance": draws["residual_sd"] ** 2,
        "coefficient_scale": draws["coefficient_scale"],
        "coefficient_correlation": root @ root.swapaxes(-1, -2),
    }
    # Without a weight these have no elements, and some interfaces then omit them.
    weight_sd = draws.get("weight_sd")
    if weight_sd is not None and weight_sd.size:
        theta["weight_coefficients"] = draws["weight_coefficients"]
        theta["variance"] = np.concatenate([theta["variance"], weight_sd**2], axis=-1)
    return theta


STAN = StanProgramSpec(program="normal.stan", data=_data, theta=_theta)
