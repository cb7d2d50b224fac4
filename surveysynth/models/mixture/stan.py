"""Data and parameters of the mixture's Stan program, ``normal_mixture.stan``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.mixture.stats import MixtureStats
from surveysynth.models.parts import survey_weight
from surveysynth.sampling.stan.source import StanProgramSpec


def log_shares(logits: FloatArray) -> FloatArray:
    """Return log pi (..., H) of logits (..., H - 1); the first component's logit is zero."""
    full = np.concatenate([np.zeros((*logits.shape[:-1], 1)), logits], axis=-1)
    largest = full.max(axis=-1, keepdims=True)
    total = np.log(np.exp(full - largest).sum(axis=-1, keepdims=True))
    return np.asarray(full - largest - total, dtype=np.float64)


def stan_program(components: int, least_sd: float) -> StanProgramSpec:
    """Return ``normal_mixture.stan`` for a number of components."""

    def data(stats: MixtureStats, priors: Mapping[str, float]) -> dict[str, Any]:
        outcome, k = stats.outcome, stats.shape[0]
        own = ("least_sd", "lkj", "concentration_shape", "concentration_rate")
        return {
            "K": k,
            "H": components,
            "G": outcome.x.shape[0],
            "x": outcome.x.tolist(),
            "P": outcome.y.size,
            "cell": (outcome.cell + 1).tolist(),
            "y": outcome.y.tolist(),
            "mass": outcome.mass.tolist(),
            "coefficient_scale_prior": priors["coefficient_scale"],
            "residual_scale_prior": priors["residual_scale"],
            **{name: priors[name] for name in own},
            **survey_weight.stan_data(stats.weight, k, priors),
        }

    def theta(draws: Mapping[str, FloatArray]) -> Theta:
        root, sd = draws["coefficient_root"], draws["above_least_sd"]
        # One component has no logits, and some interfaces then omit them.
        logits = draws.get("logits", np.empty((*sd.shape[:-1], 0)))
        return {
            "log_shares": log_shares(logits),
            "concentration": draws["concentration"],
            "beta": draws["beta"].swapaxes(-1, -2),
            "residual_sd": least_sd + sd,
            "coefficient_scale": draws["coefficient_scale"],
            "coefficient_correlation": root @ root.swapaxes(-1, -2),
            **survey_weight.stan_theta(draws),
        }

    return StanProgramSpec("normal_mixture.stan", data, theta)
