"""Log density of the survey weight component, with its gradient (``models.survey_weight``)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.gaussian.blocks import HALF_T_DF
from surveysynth.models.gaussian.model import GaussianStats
from tests.oracles import slopes, unconstrained


def log_density(
    u: FloatArray, stats: GaussianStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of the component and its gradient, one database.

    u (S, 2 + K): delta, gamma, log s; value (S,), gradient (S, 2 + K).
    """
    coefficients, log_sd = u[:, :-1], u[:, -1]
    squares = stats.conditional_squares(coefficients) * np.exp(-2.0 * log_sd)
    slope = slopes.conditional_slope(stats, coefficients) * np.exp(-2.0 * log_sd)[:, None]
    size = coefficients.shape[1]
    prior, prior_slope = unconstrained.normal_log_density(
        coefficients[:, : size - stats.ridges], priors["weight_coefficient_sd"]
    )
    prior_slope = unconstrained.padded(prior_slope, size)
    half_t, half_t_slope = unconstrained.half_t_log_density(
        log_sd, HALF_T_DF, priors["weight_residual_scale"]
    )
    total = stats.count[0]
    value = -total * (0.5 * unconstrained.LOG_2PI + log_sd) - 0.5 * squares + prior + half_t
    by_log_sd = squares - total + half_t_slope
    return value, np.concatenate([prior_slope - 0.5 * slope, by_log_sd[:, None]], axis=1)
