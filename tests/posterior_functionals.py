"""What tables use of a posterior of the general location model, by cell of X.

From the parameters alone: means and spreads of the amounts and of the log weight, shares of
categories, and both of them weighted. Where records differ in categories, a cell is the mixture of
all combinations of these: z given a combination is normal, so E(w) and weighted means are exact.
"""

from itertools import product
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta


def log_sum(values: FloatArray, chosen: Any = slice(None)) -> FloatArray:
    """The log of the sum of exp over chosen entries of the last axis."""
    return np.asarray(np.logaddexp.reduce(values[..., chosen], axis=-1))


def functionals(
    theta: Theta, layout: Any, group_of_cell: IntArray, x_cells: FloatArray
) -> dict[str, FloatArray]:
    """Functionals (..., cells) by name, of parameters whose leading axes are anything.

    J and K are parts of the layout ("1", "2", "weight"), C a category from 0 on. mean_J: of z, over
    those who have it; weighted_mean_J: the same, each as often as its weight says; log_sd_J and
    slope_J_on_K: total SD, and slopes on residuals of earlier columns, of those who have all
    amounts; log_mean_weight: log E(w). Without categories log_weighted_mean_J: of the amount
    itself, if z is its log. With categories log_odds_J_C, log_mean_weight_J_C (of those in the
    category) and weighted_share_J_C.
    """
    kinds = np.array(list(product(*map(range, layout.categories))), dtype=np.int64)
    cells, several = len(x_cells), len(kinds) > 1
    tilde = layout.tilde(np.repeat(x_cells, len(kinds), axis=0), np.tile(kinds, (cells, 1)))
    tilde = tilde.reshape(cells, len(kinds), -1)
    log_p = _log_shares(theta, layout, tilde, kinds)
    mean, covariance, slopes = _moments(theta, layout, tilde, kinds, group_of_cell)
    names = [part.name for part in layout.regressions]
    last = len(names) - 1  # the log weight
    log_pw = log_p + mean[last] + 0.5 * covariance[last, last]
    log_w, there = log_sum(log_pw), layout.present(kinds)
    result = {"log_mean_weight": log_w}
    for j, name in enumerate(names):
        own = np.flatnonzero(there[:, j])
        share = np.exp(log_p - log_sum(log_p, own)[..., None])
        result[f"mean_{name}"] = (share * mean[j])[..., own].sum(-1)
        result[f"log_sd_{name}"] = 0.5 * np.log(covariance[j, j][..., 0])
        for k in layout.regressions[j].earlier:
            result[f"slope_{name}_on_{names[k]}"] = slopes[j][..., k]
        if j < last:
            share = np.exp(log_pw - log_sum(log_pw, own)[..., None])
            weighted = (share * (mean[j] + covariance[last, j]))[..., own].sum(-1)
            result[f"weighted_mean_{name}"] = weighted
            if not several:
                result[f"log_weighted_mean_{name}"] = weighted + 0.5 * covariance[j, j][..., 0]
    for part in layout.logits:
        for c in range(part.categories):
            own, name = kinds[:, part.outcome] == c, f"{part.name}_{c}"
            result[f"log_odds_{name}"] = log_sum(log_p, own) - log_sum(log_p, ~own)
            result[f"log_mean_weight_{name}"] = log_sum(log_pw, own) - log_sum(log_p, own)
            result[f"weighted_share_{name}"] = np.exp(log_sum(log_pw, own) - log_w)
    return result


def _log_shares(theta: Theta, layout: Any, tilde: FloatArray, kinds: IntArray) -> FloatArray:
    """Log probabilities (..., cells, D) of combinations of categories."""
    result: Any = np.zeros(tilde.shape[:2])
    for part in layout.logits:
        eta = np.einsum("cdw,...wk->...cdk", tilde[..., part.columns], theta[f"logit_{part.name}"])
        eta = np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1)
        own = kinds[:, part.outcome]
        chosen = eta[..., np.arange(len(kinds)), own]
        result = result + chosen - log_sum(eta)
    return np.asarray(result)


def _moments(
    theta: Theta, layout: Any, tilde: FloatArray, kinds: IntArray, group: IntArray
) -> tuple[list[FloatArray], dict[tuple[int, int], FloatArray], list[FloatArray]]:
    """Means (..., cells, D) of z and covariances of it given x and categories; slopes (.., cells,
    k) on residuals of earlier columns, of which one that is absent has none."""
    there = layout.present(kinds).astype(float)
    mean, slopes = [], []
    covariance: dict[tuple[int, int], FloatArray] = {}
    for j, part in enumerate(layout.regressions):
        core, width = theta[f"coefficients_{part.name}"], part.columns.size
        mean.append(np.einsum("cdw,...w->...cd", tilde[..., part.columns], core[..., :width]))
        own = core[..., None, width:] + np.zeros((len(group), 1))
        if f"slopes_{part.name}" in theta:
            own = own + theta[f"slopes_{part.name}"][..., group, :]
        slopes.append(own)
        taken = {k: own[..., i][..., None] * there[:, k] for i, k in enumerate(part.earlier)}
        variance: Any = theta[f"variance_{part.name}"][..., group, None] + np.zeros(len(kinds))
        for i in range(j):
            total = [b * covariance[k, i] for k, b in taken.items()]
            covariance[j, i] = covariance[i, j] = np.sum(total, axis=0)
        for i, b in taken.items():
            variance = variance + b * covariance[j, i]
        covariance[j, j] = variance
    return mean, covariance, slopes
