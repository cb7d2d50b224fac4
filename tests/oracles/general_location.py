"""The general location model as a density on Stan's unconstrained scale, and as the Stan program
``general_location.stan``.

Order of u, in each part by part: coefficients of logits (row by row), coefficients of regressions,
log tau, log residual SDs (by regression, then group); with groups log s_0, log nu (of what is above
its lower end), what groups add to slopes (by regression, group, column) and log t of the
regressions that have slopes. What belongs to effects of PSUs comes last, as in ``psu_effects``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import Layout, of_parts
from surveysynth.models.general_location.prior_rows import PriorRows
from surveysynth.models.general_location.psu_sums import PsuCounts, PsuSums
from surveysynth.models.general_location.stats import GeneralStats, GroupRows
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.models.parts.logit import LogitSums
from tests.oracles import psu_effects, unconstrained
from tests.oracles.psu_effects import PsuParts

Shape = tuple[Layout, int]


@dataclass(frozen=True)
class _Parts:
    """u (S, d) taken apart: logits and core one array (S, ..) a part; tau (S, J), sd (S, J, g),
    s_0 and nu (S, J or 0), slopes one array (S, g, k) a regression, t (S, number with slopes);
    scales as logarithms."""

    logits: list[FloatArray]
    core: list[FloatArray]
    tau: FloatArray
    sd: FloatArray
    s_0: FloatArray
    nu: FloatArray
    slopes: list[FloatArray]
    t: FloatArray

    def joined(self) -> FloatArray:
        """The way back, (..., d)."""
        lead = self.tau.shape[:-1]
        flat = [self.sd.reshape(*lead, -1), self.s_0, self.nu]
        slopes = [part.reshape(*lead, -1) for part in self.slopes]
        return np.concatenate([*self.logits, *self.core, self.tau, *flat, *slopes, self.t], axis=-1)


def _widths(layout: Layout) -> list[int]:
    return [part.earlier.size if layout.grouped else 0 for part in layout.regressions]


def _sizes(shape: Shape) -> list[int]:
    """Of all parts but those of PSUs."""
    layout, groups = shape
    j, widths = len(layout.regressions), _widths(layout)
    logits = [part.columns.size * part.own.size for part in layout.logits]
    core = [part.width for part in layout.regressions]
    pooled = j if layout.grouped else 0
    scales = [j, j * groups, pooled, pooled]
    slopes = [groups * width for width in widths]
    return [*logits, *core, *scales, *slopes, sum(w > 0 for w in widths)]


def _parts(u: FloatArray, shape: Shape) -> _Parts:
    layout, groups = shape
    j, widths = len(layout.regressions), _widths(layout)
    parts = unconstrained.split(u, _sizes(shape))
    first, second = len(layout.logits), len(layout.logits) + j
    tau, sd, s_0, nu = parts[second : second + 4]
    lead = u.shape[:-1]
    return _Parts(
        logits=parts[:first],
        core=parts[first:second],
        tau=tau,
        sd=sd.reshape(*lead, j, groups),
        s_0=s_0,
        nu=nu,
        slopes=[
            part.reshape(*lead, groups, width)
            for part, width in zip(parts[second + 4 : -1], widths, strict=True)
        ],
        t=parts[-1],
    )


def log_density(
    u: FloatArray, stats: GeneralStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of methods 3 and its gradient: u (..., d) to (...) and (..., d).

    ``stats`` of one database. All constants and Jacobians are in it.
    """
    flat = u.reshape(-1, u.shape[-1])
    flat, psus = _taken_apart(flat, stats.shape)
    p, layout = _parts(flat, stats.shape), stats.layout
    # log nu in the place of the log of what is above its lower end, and back at the end.
    least = _least_df(layout)
    above, p = p.nu, replace(p, nu=np.log(least + np.exp(p.nu)))
    value = np.zeros(flat.shape[0])
    slope = _parts(np.zeros_like(flat), stats.shape)
    by_effect = None if psus is None else np.zeros_like(psus.effects)
    for k, (b, by_b, counts) in enumerate(zip(p.logits, slope.logits, stats.logits, strict=True)):
        if psus is None or by_effect is None:
            likelihood, gradient = counts.value_and_slope(b[None])
            likelihood, gradient = likelihood[0], gradient[0]
        else:
            own = layout.logit_effects[k]
            likelihood, gradient, by_own = _logit_of_psus(
                b, psus.effects[..., own], stats.psus[0].logits[k]
            )
            by_effect[..., own] += by_own
        sd = _logit_sd(counts.x.shape[-1], b.shape[-1], layout, priors)
        prior, prior_slope = unconstrained.normal_log_density(b / sd, 1.0)
        value += likelihood + prior - np.log(sd).sum()
        by_b[...] = gradient + prior_slope / sd
    if stats.rows is not None and (psus is None or by_effect is None):
        value += _regressions(p, slope, layout, stats.rows)[0]
    elif psus is not None and by_effect is not None and layout.q:
        own_columns = layout.amount_effects
        rows, unit = _rows_of_psus(stats.psus[0], layout)
        added = np.einsum("mk,skq->smq", unit, psus.effects[..., own_columns])[:, None]
        shifted = GroupRows(rows.x, rows.z - added, rows.present, rows.total)
        likelihood, by_residual = _regressions(p, slope, layout, shifted)
        value += likelihood
        by_effect[..., own_columns] -= np.einsum("mk,smq->skq", unit, by_residual[:, 0])
    with_slopes = 0
    for j in range(len(layout.regressions)):
        value += _core(p, slope, j, layout)
        if layout.grouped:
            value += _pooled(p, slope, j)
        if p.slopes[j].shape[-1]:
            size = (flat.shape[0], -1)
            by_slopes = slope.slopes[j].reshape(size)
            t, by_t = p.t[:, with_slopes], slope.t[:, with_slopes]
            value += _normal(p.slopes[j].reshape(size), t, by_slopes, by_t)
            with_slopes += 1
    value += _ridge(p, slope, layout, priors["interaction_scale"])
    value += _pseudo_records(p, slope, layout, stats.pseudo)
    scale = priors["residual_scale"]
    hyper = [(p.tau, slope.tau, HALF_T_DF, priors["coefficient_scale"])]
    hyper += [(p.t, slope.t, HALF_T_DF, priors["slope_scale"])]
    if layout.grouped:
        hyper += [(p.s_0, slope.s_0, HALF_T_DF, scale), (p.nu, slope.nu, 1.0, priors["pooling_df"])]
    else:
        hyper += [(p.sd[..., 0], slope.sd[..., 0], HALF_T_DF, scale)]
    for log_scale, by_scale, df, prior_scale in hyper:
        prior, prior_slope = unconstrained.half_t_log_density(log_scale, df, prior_scale)
        value += prior.sum(-1)
        by_scale[...] += prior_slope
    value += (above - p.nu).sum(-1)
    slope.nu[...] = 1.0 + (slope.nu - 1.0) * np.exp(above - p.nu)
    joined = slope.joined()
    if psus is not None and by_effect is not None:
        term = psu_effects.psu_log_prior(psus, priors["psu_scale"], priors["lkj"])
        value += term.value
        own = term.gradient
        with_data = PsuParts(own.log_scale, own.correlation, own.effects + by_effect)
        joined = np.concatenate([joined, with_data.joined()], axis=-1)
    return value.reshape(u.shape[:-1]), joined.reshape(u.shape)


def _taken_apart(u: FloatArray, shape: Shape) -> tuple[FloatArray, PsuParts | None]:
    """All parameters but those of PSUs, and these."""
    return psu_effects.split_psu_parts(u, sum(_sizes(shape)), shape[0].amount_effects.stop)


def _logit_of_psus(
    b: FloatArray, effects: FloatArray, counts: PsuCounts
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log-likelihood (S,) at b (S, d) and effects (S, C, c), and its gradients.

    The effect is the coefficient of an indicator of the PSU.
    """
    indicators = np.eye(effects.shape[1])[counts.psu]
    both = LogitSums(np.hstack([counts.x, indicators])[None], counts.counts[None])
    point = np.concatenate([b, effects.reshape(len(b), -1)], axis=-1)
    value, slope = both.value_and_slope(point[None])
    size = b.shape[-1]
    return value[0], slope[0, :, :size], slope[0, :, size:].reshape(effects.shape)


def _rows_of_psus(psus: PsuSums, layout: Layout) -> tuple[GroupRows, FloatArray]:
    """Rows of regressions (1, 1, m, ..) by distinct row and PSU, and what they have of each PSU."""
    x, z, unit, present = [], [], [], []
    total = np.zeros((1, 1, layout.q))
    for each in psus.patterns:
        root = np.sqrt(each.mass)[:, None]
        values, vectors = np.linalg.eigh(each.scatter)
        within = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        x += [root * each.x, np.zeros((layout.q, layout.width))]
        z += [root * each.mean, within]
        unit += [root * np.eye(psus.count)[each.psu], np.zeros((layout.q, psus.count))]
        present += [each.present] * (len(root) + layout.q)
        total += each.mass.sum() * each.present
    rows = GroupRows(
        np.vstack(x)[None, None], np.vstack(z)[None, None], np.array(present)[None, None], total
    )
    return rows, np.vstack(unit)


def _least_df(layout: Layout) -> float:
    return 0.0 if layout.pseudo is None else layout.pseudo.records


def _logit_sd(
    columns: int, size: int, layout: Layout, priors: Mapping[str, float]
) -> FloatArray:
    """Prior SDs (size,) of a logit's coefficients, row by row: interactions shrink."""
    ridged = np.isin(np.arange(columns), layout.ridged)
    by_row = np.where(ridged, 2.0 * priors["interaction_scale"], priors["logit_sd"])
    return np.repeat(by_row, size // columns)


def _core(p: _Parts, slope: _Parts, j: int, layout: Layout) -> FloatArray:
    """Log prior of the core coefficients (S,) but those of shrunken interactions."""
    free = ~np.isin(np.arange(p.core[j].shape[-1]), layout.ridged)
    by_values = np.zeros((len(p.tau), int(free.sum())))
    value = _normal(p.core[j][:, free], p.tau[:, j], by_values, slope.tau[:, j])
    slope.core[j][:, free] += by_values
    return value


def _ridge(p: _Parts, slope: _Parts, layout: Layout, scale: float) -> FloatArray:
    """Log prior of the shrunken interactions (S,): by s_0 what core slopes leave of each.

    Over ``scale``, and one regression after another."""
    ridged = list(layout.ridged)
    rho = [core[:, ridged] / scale for core in p.core]
    common, by_common = (
        part.s_0 if layout.grouped else part.sd[..., 0] for part in (p, slope)
    )  # fmt: skip
    value = np.zeros(len(p.tau))
    by_rho = [np.zeros_like(each) for each in rho]
    for j, part in enumerate(layout.regressions):
        size = part.columns.size
        left = rho[j].copy()
        for k, column in enumerate(part.earlier):
            left -= p.core[j][:, size + k, None] * rho[column]
        by_left = np.zeros_like(left)
        value += _normal(left, common[:, j], by_left, by_common[:, j])
        by_rho[j] += by_left
        for k, column in enumerate(part.earlier):
            slope.core[j][:, size + k] -= (by_left * rho[column]).sum(-1)
            by_rho[column] -= p.core[j][:, size + k, None] * by_left
    for by_core, each in zip(slope.core, by_rho, strict=True):
        by_core[:, ridged] += each / scale
    return value - len(ridged) * len(rho) * np.log(scale)


def _pseudo_records(
    p: _Parts, slope: _Parts, layout: Layout, rows: PriorRows | None
) -> FloatArray:
    """Log density of the pseudo-records (S,), at the scales and slopes that groups share."""
    value = np.zeros(len(p.tau))
    if rows is None:
        return value
    common, by_common = (
        part.s_0 if layout.grouped else part.sd[..., 0] for part in (p, slope)
    )  # fmt: skip
    about = np.stack([
        rows.present[:, j] * (rows.z[:, j] - p.core[j][:, : part.columns.size]
                              @ rows.x[:, part.columns].T)
        for j, part in enumerate(layout.regressions)
    ])  # fmt: skip
    for j, part in enumerate(layout.regressions):
        size, own = part.columns.size, rows.present[:, j]
        b = p.core[j][:, size:]
        left = about[j] - own * np.einsum("sk,ksr->sr", b, about[part.earlier])
        precision = np.exp(-2.0 * common[:, j])
        squares = (left * left).sum(-1) * precision
        value -= rows.count[j] * (0.5 * unconstrained.LOG_2PI + common[:, j]) + 0.5 * squares
        by_common[:, j] += squares - rows.count[j]
        score = own * left * precision[:, None]
        slope.core[j][:, :size] += score @ rows.x[:, part.columns]
        for k, column in enumerate(part.earlier):
            slope.core[j][:, size + k] += (score * about[column]).sum(-1)
            of_earlier = layout.regressions[column].columns
            told = rows.present[:, column] * score * b[:, k, None]
            slope.core[column][:, : of_earlier.size] -= told @ rows.x[:, of_earlier]
    return value


def _regressions(
    p: _Parts, slope: _Parts, layout: Layout, rows: GroupRows
) -> tuple[FloatArray, FloatArray]:
    """Weighted log-likelihood of the regressions (S,); its gradient is added to ``slope``.

    Also its gradient in the residuals (S, g, m, q). z may have an axis S of its own.

    One row after another: residuals about the means, what slopes leave of them, and back.
    """
    x, present = rows.x[0], rows.present[0]
    z = rows.z[0] if len(rows.z) == 1 else rows.z
    total = np.moveaxis(rows.total[0], -1, 0)
    fitted = [
        np.einsum("gmc,sc->sgm", x[..., part.columns], p.core[j][:, : part.columns.size])
        for j, part in enumerate(layout.regressions)
    ]
    residual = present * (z - np.stack(fitted, axis=-1))
    value = np.zeros(p.tau.shape[0])
    by_residual = np.zeros_like(residual)
    for j, part in enumerate(layout.regressions):
        size, own = part.columns.size, present[..., part.position]
        slopes = p.core[j][:, None, size:]
        if layout.grouped:
            slopes = slopes + p.slopes[j]
        before = residual[..., part.earlier] * own[..., None]
        rest = residual[..., j] - (before * slopes[:, :, None]).sum(-1)
        precision = np.exp(-2.0 * p.sd[:, j])
        squares = (rest * rest).sum(-1)
        constant = total[j] * (0.5 * unconstrained.LOG_2PI + p.sd[:, j])
        value -= (constant + 0.5 * squares * precision).sum(-1)
        slope.sd[:, j] += squares * precision - total[j]
        by_rest = -rest * precision[..., None]
        by_residual[..., j] += by_rest
        by_slopes = -(by_rest[..., None] * before).sum(2)
        slope.core[j][:, size:] += by_slopes.sum(1)
        if layout.grouped:
            slope.slopes[j][...] += by_slopes
        by_residual[..., part.earlier] -= (by_rest * own)[..., None] * slopes[:, :, None]
    by_residual *= present
    for j, part in enumerate(layout.regressions):
        by_c = slope.core[j][:, : part.columns.size]
        by_c -= np.einsum("gmc,sgm->sc", x[..., part.columns], by_residual[..., j])
    return value, by_residual


def _normal(
    values: FloatArray, log_scale: FloatArray, by_values: FloatArray, by_scale: FloatArray
) -> FloatArray:
    """log N(values (S, c) | 0, scale^2) (S,); its gradient is added."""
    precision = np.exp(-2.0 * log_scale)
    squares = (values * values).sum(-1) * precision
    size = values.shape[-1]
    by_values -= values * precision[:, None]
    by_scale += squares - size
    return np.asarray(-size * (0.5 * unconstrained.LOG_2PI + log_scale) - 0.5 * squares)


def _pooled(p: _Parts, slope: _Parts, j: int) -> FloatArray:
    """log of the scaled inverse chi^2 of the variances (S,), with the Jacobian of their logs."""
    log_sd, log_s, log_nu = p.sd[:, j], p.s_0[:, j, None], p.nu[:, j, None]
    nu = np.exp(log_nu)
    ratio = np.exp(2.0 * (log_s - log_sd))
    value = 0.5 * nu * (log_nu - unconstrained.LOG_2) - gammaln(0.5 * nu)
    value = value + nu * (log_s - log_sd) - 0.5 * nu * ratio + unconstrained.LOG_2
    slope.sd[:, j] += nu * (ratio - 1.0)
    slope.s_0[:, j] += (nu * (1.0 - ratio)).sum(-1)
    by_nu = 0.5 * (log_nu - unconstrained.LOG_2) + 0.5 - 0.5 * psi(0.5 * nu)
    slope.nu[:, j] += (nu * (by_nu + log_s - log_sd - 0.5 * ratio)).sum(-1)
    return np.asarray(value.sum(-1), dtype=np.float64)


def constrain(u: FloatArray, shape: Shape) -> Theta:
    """u (..., d) to the parameters; ``shape`` (layout, groups)."""
    layout = shape[0]
    u, psus = _taken_apart(u, shape)
    p, theta, with_slopes = _parts(u, shape), psu_effects.constrained(psus), 0
    for part, b in zip(layout.logits, p.logits, strict=True):
        size = (part.columns.size, part.own.size)
        theta[f"logit_{part.name}"] = b.reshape(*u.shape[:-1], *size)
    for j, regression in enumerate(layout.regressions):
        name = regression.name
        theta[f"coefficients_{name}"] = p.core[j]
        theta[f"variance_{name}"] = np.exp(2.0 * p.sd[..., j, :])
        theta[f"coefficient_scale_{name}"] = np.exp(p.tau[..., j])
        if layout.grouped:
            theta[f"pooled_scale_{name}"] = np.exp(p.s_0[..., j])
            theta[f"pooled_df_{name}"] = _least_df(layout) + np.exp(p.nu[..., j])
        if p.slopes[j].shape[-1]:
            theta[f"slopes_{name}"] = p.slopes[j]
            theta[f"slope_scale_{name}"] = np.exp(p.t[..., with_slopes])
            with_slopes += 1
    return theta


def unconstrain(theta: Theta, least_df: float = 0.0) -> FloatArray:
    """Inverse of ``constrain``; least_df: the lower end of nu."""

    def flat(prefix: str, axes: int) -> list[FloatArray]:
        arrays = of_parts(theta, prefix)
        return [each.reshape(*each.shape[: each.ndim - axes], -1) for each in arrays]

    def logs(prefix: str, axes: int, factor: float = 1.0) -> list[FloatArray]:
        lower = least_df if prefix == "pooled_df_" else 0.0
        return [factor * np.log(each - lower) for each in flat(prefix, axes)]

    parts = [*flat("logit_", 2), *flat("coefficients_", 1), *logs("coefficient_scale_", 0)]
    parts += [*logs("variance_", 1, 0.5), *logs("pooled_scale_", 0), *logs("pooled_df_", 0)]
    parts += [*flat("slopes_", 2), *logs("slope_scale_", 0)]
    psus = psu_effects.unconstrained_of(theta)
    return np.concatenate(parts if psus is None else [*parts, psus], axis=-1)
