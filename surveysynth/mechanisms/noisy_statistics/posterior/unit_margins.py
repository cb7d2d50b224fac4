"""Draws that ignore primary sampling units (PSUs), turned into draws of a model with effects.

Strict 7, "Back to coefficients": effects of as many PSUs as the sample has are drawn, and taken out
of the draw such that its margins stay."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.between_units import LEAST_LEFT
from surveysynth.models.general_location.layout import Layout, RegressionPart, residual_covariances
from surveysynth.models.general_location.simulate import drawn
from surveysynth.models.logit import log_shares, shares
from surveysynth.models.units import PSU_COVARIANCE
from surveysynth.survey.survey import PublicDesign

#: Newton steps, each halved until the residual of the equations falls.
STEPS, HALVINGS = 25, 30
TOLERANCE = 1e-8


def with_effects(
    theta: Theta,
    seen: FloatArray,
    covariance: FloatArray,
    design: PublicDesign,
    layout: Layout,
    psu: IntArray,
    priors: Mapping[str, float],
    rng: np.random.Generator,
) -> Theta:
    """Return one draw theta with effects of covariance T (D, D), of the same margins.

    seen (D, D): the covariance of those in the sample; psu (n,): codes of the records.
    """
    root = np.linalg.cholesky(covariance)
    normals = rng.standard_normal((int(psu.max()) + 1, len(root)))
    effects = (normals @ root.T)[psu]
    cell = design.matrix.cell
    category = np.zeros((cell.size, len(layout.categories)), dtype=np.int64)
    result = {**theta, PSU_COVARIANCE: covariance}
    sds = layout.logit_sds(priors)
    for part, columns, sd in zip(layout.logits, layout.logit_effects, sds, strict=True):
        own, b = effects[:, columns], theta[f"logit_{part.name}"]
        rows = layout.tilde(design.matrix.x_cells[cell], category)[:, part.columns]
        moved = shifted_logit(rows, b, own, sd)
        result[f"logit_{part.name}"] = moved
        category[:, part.outcome] = drawn(log_shares(rows @ moved + own), rng)
    amounts = layout.amount_effects
    tilde = layout.tilde(design.matrix.x_cells[cell], category)
    there = layout.present(category)
    for regression in layout.regressions:
        having = np.flatnonzero(there[:, regression.position])
        own = effects[having, amounts.start + regression.position]
        core = theta[f"coefficients_{regression.name}"].copy()
        rows = tilde[having][:, regression.columns]
        core[: regression.columns.size] -= _projected(rows, own, regression, layout, priors)
        result[f"coefficients_{regression.name}"] = core
    of_sample = seen[amounts, amounts]
    return {**result, **_residuals(result, of_sample, layout)} if layout.q else result


def shifted_logit(
    rows: FloatArray, b: FloatArray, effects: FloatArray, sd: FloatArray
) -> FloatArray:
    """Return coefficients (P, c) that give rows (n, P) with effects (n, c) the margins of b.

    Solves rows'(p(b', effects) - p(b, 0)) + (b' - b) / sd^2 = 0 by Newton's method. The prior
    precisions sd^-2 (P,) keep what no row determines.
    """
    target = rows.T @ shares(rows @ b)
    ridge = (sd**-2.0)[:, None]
    moved = b.copy()

    def residual(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = shares(rows @ at + effects)
        return rows.T @ p - target + ridge * (at - b), p

    left, p = residual(moved)
    for _ in range(STEPS):
        step = np.linalg.solve(_hessian(rows, p, ridge), left.ravel()).reshape(b.shape)
        size, before = 1.0, float((left * step).sum())
        for _ in range(HALVINGS):
            left, p = residual(moved - size * step)
            # The slope of a convex function along the step, at its end: not yet far behind it.
            if abs(float((left * step).sum())) <= before:
                break
            size *= 0.5
        moved = moved - size * step
        if np.abs(left).max() <= TOLERANCE * len(rows):
            break
    return moved


def _hessian(rows: FloatArray, p: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return derivatives (P c, P c) of the equations."""
    width, c = rows.shape[1], p.shape[1]
    result = np.zeros((width, c, width, c))
    for k in range(c):
        for m in range(k + 1):
            weight = p[:, k] * ((k == m) - p[:, m])
            block = rows.T @ (weight[:, None] * rows)
            result[:, k, :, m] = result[:, m, :, k] = block
        result[:, k, :, k] += np.diag(ridge[:, 0])
    return result.reshape(width * c, width * c)


def _projected(
    rows: FloatArray,
    effects: FloatArray,
    part: RegressionPart,
    layout: Layout,
    priors: Mapping[str, float],
) -> FloatArray:
    """Return the regression (P,) of effects on rows, with the prior of shrunken columns."""
    ridge = np.full(part.columns.size, 1e-8 * max(len(rows), 1))
    shrunken = np.isin(part.columns, layout.ridged)
    ridge[shrunken] = priors["interaction_scale"] ** -2.0
    return np.asarray(np.linalg.solve(rows.T @ rows + np.diag(ridge), rows.T @ effects))


def _residuals(theta: Theta, seen: FloatArray, layout: Layout) -> Theta:
    """Return slopes and variances of the covariance of every group less that of effects."""
    whole = residual_covariances(theta, layout.regressions)
    root = np.linalg.inv(np.linalg.cholesky(whole))
    largest = np.linalg.eigvalsh(root @ seen @ root.swapaxes(-1, -2))[:, -1]
    factor = np.minimum(1.0, (1.0 - LEAST_LEFT) / largest)
    left = whole - factor[:, None, None] * seen
    result: Theta = {}
    for part in layout.regressions:
        k, own = part.position, part.earlier
        name, width = part.name, part.columns.size
        cross = left[:, own, k]
        slopes = np.linalg.solve(left[:, own[:, None], own], cross[..., None])[..., 0]
        result[f"variance_{name}"] = left[:, k, k] - (cross * slopes).sum(-1)
        if f"slopes_{name}" in theta:
            shared = theta[f"coefficients_{name}"][width:]
            result[f"slopes_{name}"] = slopes - shared
        elif own.size:
            core = theta[f"coefficients_{name}"].copy()
            core[width:] = slopes[0]
            result[f"coefficients_{name}"] = core
    return result
