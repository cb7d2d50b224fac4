"""Means and covariances of a record's contribution to the sums of its PSU (strict 7).

h = (u, indicators of every category of every discrete outcome), u in declared spreads and zero
where it is absent. E(h | x) = sum_d p(d | x) h(x, d) has the slope sum_d p(d | x) (1[d_l = c] -
p_lc(x, d)) h(x, d) on the effect of a PSU on category c of logit l, and P(column k is there | x) /
spread_k on that on column k of z, at effects of zero."""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.models.general_location.layout import residual_covariances
from surveysynth.models.logit import log_shares


@dataclass(frozen=True, eq=False)
class CellMoments:
    """By cell of X: mean (G, H) of h, its slope (G, H, D) on effects, covariance (G, H, H)."""

    mean: FloatArray
    slope: FloatArray
    covariance: FloatArray

    @classmethod
    def of(
        cls, theta: Theta, shape: LocationShape, centre: FloatArray, spread: FloatArray
    ) -> "CellMoments":
        """Return the moments at one draw theta, effects of all PSUs being zero."""
        share, scores = _shares(theta, shape)
        there = shape.present_in.astype(np.float64)
        u = (_means(theta, shape) - centre) / spread * there
        flags = np.broadcast_to(shape.flags, (len(u), *shape.flags.shape))
        h = np.concatenate([u, flags], axis=-1)
        weighted = (h * share[..., None]).swapaxes(-1, -2)
        mean = weighted.sum(-1)
        covariance = weighted @ h - mean[:, :, None] * mean[:, None]
        q = shape.q
        covariance[:, :q, :q] += _within(theta, shape, share) / (spread[:, None] * spread)
        slope = np.zeros((*mean.shape, scores.shape[-1] + q))
        slope[..., : scores.shape[-1]] = weighted @ scores
        own = np.arange(q)
        slope[:, own, scores.shape[-1] + own] = (share @ there) / spread
        return cls(mean, slope, covariance)


def _shares(theta: Theta, shape: LocationShape) -> tuple[FloatArray, FloatArray]:
    """Return p(d | x) (G, D) and the scores (G, D, E) of effects on log odds."""
    k, layout = shape.x_cells.shape[1], shape.layout
    size = len(shape.x_cells), len(shape.combinations)
    log_share, scores = np.zeros(size), [np.zeros((*size, 0))]
    for part in layout.logits:
        b = theta[f"logit_{part.name}"]
        eta = (shape.x_cells @ b[:k])[:, None]
        eta = eta + shape.indicators[:, part.columns[k:] - k] @ b[k:]
        log_p = log_shares(eta)
        category = shape.combinations[:, part.outcome]
        log_share += np.take_along_axis(
            log_p, np.broadcast_to(category[:, None], (size[0], size[1], 1)), axis=-1
        )[..., 0]
        flags = category[:, None] == 1 + np.arange(part.own.size)
        scores.append(flags - np.exp(log_p[..., 1:]))
    return np.exp(log_share), np.concatenate(scores, axis=-1)


def _means(theta: Theta, shape: LocationShape) -> FloatArray:
    """Return the means (G, D, q) of columns of z given x and d."""
    k = shape.x_cells.shape[1]
    means = np.zeros((len(shape.x_cells), len(shape.combinations), shape.q))
    for part in shape.layout.regressions:
        core = theta[f"coefficients_{part.name}"][: part.columns.size]
        own = part.columns >= k
        mean = shape.indicators[:, part.columns[own] - k] @ core[own]
        deviations = theta.get(f"deviations_{part.name}")
        if deviations is not None and deviations.size:  # of levels by group
            mean = mean + deviations[shape.group] @ shape.indicators.T
        means[..., part.position] = (shape.x_cells @ core[~own])[:, None] + mean
    return means


def _within(theta: Theta, shape: LocationShape, share: FloatArray) -> FloatArray:
    """Return E cov(z | x, d) (G, q, q), zero in columns that are absent."""
    result = np.zeros((len(share), shape.q, shape.q))
    for pattern, there in enumerate(shape.patterns):
        covariance = residual_covariances(theta, shape.layout.regressions, there)
        weight = share[:, shape.pattern == pattern].sum(1)
        result += weight[:, None, None] * covariance[shape.group]
    return result
