"""Parameters of the general location model that debiasing shifts (methods 8.3).

Residual scales of all groups, coefficients of amounts with bounds or pseudo-records, and all
coefficients of the logits. Other amounts are symmetric about their means, which down-weighting does
not move; pseudo-records move them towards their centre.
"""

from collections.abc import Iterator

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Coordinates
from surveysynth.models.general_location.layout import Layout, names_of, of_parts
from surveysynth.models.parts.mean_predictor import intercept_direction, mean_row
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, rescaled_psus
from surveysynth.survey.survey import PublicDesign


def log_scales(theta: Theta) -> FloatArray:
    """Return the log residual SDs of each regression, group by group, (S, J groups)."""
    variances = of_parts(theta, "variance_")
    if not variances:
        return np.empty((next(iter(theta.values())).shape[0], 0))
    return np.asarray(0.5 * np.log(np.concatenate(variances, axis=-1)))


def with_log_scales(theta: Theta, values: FloatArray) -> Theta:
    """Return theta with these residual SDs (S, J groups).

    SDs of effects of PSUs on columns of z follow in the same ratio; there are no groups with them.
    """
    if PSU_COVARIANCE in theta:
        size = theta[PSU_COVARIANCE].shape[-1]
        factor = np.ones((len(values), size))
        factor[:, size - values.shape[1] :] = np.exp(values - log_scales(theta))
        theta = rescaled_psus(theta, factor)
    result, columns = dict(theta), _Columns(values)
    for name in names_of(theta, "variance_"):
        result[name] = np.exp(2.0 * columns.next(theta[name].shape))
    return result


def debiased(theta: Theta, design: PublicDesign, layout: Layout) -> Coordinates:
    """Return log scales, coefficients of amounts that may be off, and log odds.

    The log odds of each category but the first are a mean over the design's records, all earlier
    discrete parts at their first category; the slopes say how far the coefficients are from it.
    """
    row = mean_row(design.matrix)
    parts = [Coordinates.of("scale", log_scales(theta))]
    for name in _located(design, layout):
        parts.append(Coordinates.of("location", theta[name][:, : row.size]))
    for logit in of_parts(theta, "logit_"):
        mean = row @ logit[:, : row.size]
        constant = _constant(intercept_direction(design.matrix), mean, logit)
        parts += [Coordinates.of("odds", mean), Coordinates.of("slope", logit - constant)]
    return Coordinates.joined(*parts)


def with_debiased(
    theta: Theta, values: FloatArray, design: PublicDesign, layout: Layout
) -> Theta:
    """Return theta with these ``debiased(theta, design, layout).values``; the rest stays."""
    scales = log_scales(theta).shape[-1]
    result, columns = with_log_scales(theta, values[:, :scales]), _Columns(values[:, scales:])
    k = design.matrix.n_columns
    for name in _located(design, layout):
        moved = columns.next(theta[name][:, :k].shape)
        result[name] = np.concatenate([moved, theta[name][:, k:]], axis=1)
    for name in names_of(theta, "logit_"):
        logit = theta[name]
        mean = columns.next(logit[:, 0].shape)
        constant = _constant(intercept_direction(design.matrix), mean, logit)
        result[name] = columns.next(logit.shape) + constant
    return result


class _Columns:
    """Columns (S, d) that are taken one block after the other."""

    def __init__(self, values: FloatArray) -> None:
        self.values, self.first = values, 0

    def next(self, shape: tuple[int, ...]) -> FloatArray:
        """Return the next block, in this shape (S, ...)."""
        size = int(np.prod(shape[1:]))
        self.first += size
        return self.values[:, self.first - size : self.first].reshape(shape)


def _located(design: PublicDesign, layout: Layout) -> Iterator[str]:
    """Yield the names of the coefficients of amounts with bounds or pseudo-records."""
    for part in layout.regressions:
        outcome = None if part.outcome is None else design.outcomes[part.outcome]
        if outcome is None:
            continue
        bounded = (outcome.lower, outcome.upper) != (None, None)
        if bounded or (layout.pseudo is not None and outcome.is_discrete):
            yield f"coefficients_{part.name}"


def _constant(along: FloatArray, mean: FloatArray, logit: FloatArray) -> FloatArray:
    """Return coefficients shaped as ``logit`` (S, P, C - 1) of constant log odds (S, C - 1)."""
    result = np.zeros_like(logit)
    result[:, : along.size] = along[:, None] * mean[:, None]
    return result
