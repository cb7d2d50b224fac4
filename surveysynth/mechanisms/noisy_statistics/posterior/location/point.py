"""What moves with xi and eta held: the parameters of all regressions, and their prior.

Arrays have chains B as their last axis, and groups G after it where they have groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.linalg import helmert
from scipy.special import gammaln

from surveysynth._support.types import BoolArray, FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import primitives

#: Variances of a group without records can be anything: they are kept within this factor of the
#: declared ones, far beyond what any noise leaves distinguishable from zero.
FARTHEST = 1e6
#: So many effects of the levels of one column move together at most: with 59 of them a slice stays
#: where it is.
MOST_LEVELS = 16
#: Log tau of the weight has no lower end but this: designs may weight all cells alike.
NO_FLOOR = -60.0
#: Share of the largest size of an axis that is zero but for rounding.
ROUNDING = 1e-9
#: Coefficients start within this many spreads. Least squares have no end where noise left a cell
#: without records, and chains would take long to come back.
FAR_START = 10.0


@dataclass(frozen=True, repr=False)
class Point:
    """The parameters that move.

    means (C, B): c of all regressions; core (q, q, B): b, and slopes (q, q, B, G): d; log_variance
    (q, B, G); log_s (s_0, or s without groups), log_nu, log_t, log_tau (q, B); level (p, L, B):
    what groups of a level have in common, u and v, of p = q log variances and s slopes.
    """

    means: FloatArray
    core: FloatArray
    slopes: FloatArray
    log_variance: FloatArray
    log_s: FloatArray
    log_nu: FloatArray
    log_t: FloatArray
    log_tau: FloatArray
    level: FloatArray

    def chosen(self, accept: BoolArray, other: "Point") -> "Point":
        """Return the other point for the chains (B,) or groups (B, G) that accept it."""

        def of(name: str) -> FloatArray:
            new: FloatArray = getattr(other, name)
            old: FloatArray = getattr(self, name)
            if new is old:
                return old
            grouped = name in ("slopes", "log_variance") and accept.ndim == 1
            return np.where(accept[:, None] if grouped else accept, new, old)

        return Point(**{field.name: of(field.name) for field in fields(self)})


class Parameters:
    """Places and priors of the parameters of a layout's regressions."""

    def __init__(
        self, layout: Layout, target: LocationTarget, priors: Mapping[str, float]
    ) -> None:
        self.layout, self.priors, self.grouped = layout, priors, layout.grouped
        self.target, self.q, self.groups = target, layout.q, target.shape.groups
        parts = layout.regressions
        self.sizes = [part.columns.size for part in parts]
        #: Place of every c in coefficients (q, W), and its regression.
        self.index = np.concatenate([layout.width * p.position + p.columns for p in parts])
        self.owner = np.repeat(np.arange(self.q), self.sizes) == np.arange(self.q)[:, None]
        ridged = np.isin(self.index % layout.width, layout.ridged)
        #: Which c of each regression (q, C) are not shrunken, and places (q, K) of those that are.
        self.free = (self.owner & ~ridged).astype(np.float64)
        self.ridged = np.flatnonzero(ridged).reshape(self.q, -1)
        self.slope = np.zeros((self.q, self.q), dtype=bool)
        for part in parts:
            self.slope[part.position, part.earlier] = True
        self.row, self.column = np.nonzero(self.slope)
        #: Numbers (q, 1) of slopes of each regression, and of coefficients whose scale is its tau.
        self.earlier, self.count = (a.sum(1, keepdims=True) for a in (self.slope, self.free))
        #: Prior precisions (s,) of core slopes, in units of the spreads of both columns.
        self.core_precision = (target.spread[self.column] / target.spread[self.row]) ** 2
        self.levels = contrasts(target.shape.levels)
        #: How many effects of levels move together.
        self.contrasts = [
            len(part) for own in target.shape.levels
            for part in np.array_split(np.arange(own.max()), -(-own.max() // MOST_LEVELS))
        ]  # fmt: skip
        #: Axes (L, L) of effects and (G, G) of groups that go with each other alone, and sizes.
        self.level_axes, size, axes = np.linalg.svd(self.levels)
        self.group_axes = axes.T
        self.level_sizes = np.where(size > ROUNDING * size.max(initial=0.0), size, 0.0)
        #: What a group has of what groups have in common (1 + L, G): of all, and of its levels.
        self.shares = np.concatenate([np.ones((1, self.groups)), self.levels])
        #: Prior precisions (p,) of effects of levels on log variances, and on slopes in such units.
        own = np.concatenate([np.full(self.q, 0.25), self.core_precision])
        self.level_precision = own / priors["interaction_scale"] ** 2
        spread = target.spread**2
        self.limits = np.log(spread.min() / FARTHEST), np.log(spread.max() * FARTHEST)
        self.present = [np.flatnonzero(target.shape.patterns[p]) for p in target.patterns]
        #: Least log tau (q, 1): effects on amounts are of no smaller scale than the declared
        #: spread. Noise may hide all of them, and would then draw rare levels to the others.
        amounts = np.array([part.outcome is not None for part in parts])
        self.floor = np.where(amounts, np.log(target.spread), NO_FLOOR)[:, None]

    def start(self, regressions: Regressions) -> Point:
        """Return the starts of a fit."""
        scales, batch = regressions.scales, regressions.scales.batch
        core = np.zeros((self.q, self.q, batch))
        slopes = np.zeros((self.q, self.q, batch, self.groups))
        means = []
        for j, (part, size) in enumerate(zip(regressions.parts, self.sizes, strict=True)):
            means.append(part.core[:, :size])
            core[j, part.part.earlier] = part.core[:, size:].T
            if part.k:
                slopes[j, part.part.earlier] = np.moveaxis(part.slopes, -1, 0)
        far = np.abs(self.target.centre) + FAR_START * self.target.spread
        ends = (far @ self.owner)[:, None]
        log_variance = np.clip(np.log(scales.variance), *self.limits)
        log_tau = np.clip(np.log(scales.tau), self.floor + 0.01, np.log(far)[:, None])
        log_s = np.log(scales.s_0) if self.grouped else 0.5 * log_variance[..., 0]
        return Point(
            np.clip(np.concatenate(means, axis=1).T, -ends, ends), core, slopes, log_variance,
            log_s, np.log(scales.nu), np.log(scales.t), log_tau,
            np.zeros((len(self.level_precision), len(self.levels), batch)),
        )  # fmt: skip

    def theta(self, point: Point) -> Theta:
        """Return the parameters as the model's own sampler names them."""
        theta: Theta = {}
        means = np.split(point.means, np.cumsum(self.sizes)[:-1])
        for part, own in zip(self.layout.regressions, means, strict=True):
            j, name, earlier = part.position, part.name, part.earlier
            theta[f"coefficients_{name}"] = np.concatenate([own, point.core[j, earlier]]).T
            theta[f"variance_{name}"] = np.exp(point.log_variance[j])
            theta[f"coefficient_scale_{name}"] = np.exp(point.log_tau[j])
            if self.grouped:
                theta[f"pooled_scale_{name}"] = np.exp(point.log_s[j])
                theta[f"pooled_df_{name}"] = np.exp(point.log_nu[j])
                if earlier.size:
                    theta[f"slopes_{name}"] = np.moveaxis(point.slopes[j, earlier], 0, -1)
                    theta[f"slope_scale_{name}"] = np.exp(point.log_t[j])
            if len(self.levels):
                theta[f"level_variances_{name}"] = point.level[j].T
                if earlier.size:
                    levels = point.level[self.q :][self.row == j]
                    theta[f"level_slopes_{name}"] = levels.transpose(2, 1, 0)
        return theta

    def prior_of_slopes(self) -> FloatArray:
        """Return prior precisions (c,) of b, then v of each level."""
        levels = np.tile(self.level_precision[self.q :], len(self.levels))
        return np.concatenate([self.core_precision, levels])

    def core_of(self, point: Point) -> FloatArray:
        """Return core slopes b, then v of each level (c, B)."""
        own = point.level[self.q :].swapaxes(0, 1).reshape(-1, point.level.shape[-1])
        return np.concatenate([point.core[self.row, self.column], own])

    def with_core(self, point: Point, values: FloatArray) -> Point:
        """Return the point with these b and v (c, B), and all else as it is."""
        core, level, size = point.core.copy(), point.level.copy(), self.row.size
        core[self.row, self.column] = values[:size]
        effects = values[size:].reshape(-1, size, values.shape[1])
        level[self.q :] = effects.swapaxes(0, 1)
        return replace(point, core=core, level=level)

    def of_groups(self, point: Point) -> FloatArray:
        """Return log variances and slopes b + d (p, B, G) of groups."""
        total = point.core[self.row, self.column][..., None] + point.slopes[self.row, self.column]
        return np.concatenate([point.log_variance, total])

    def common(self, point: Point) -> FloatArray:
        """Return log s_0^2 by column, and core slopes (p, B)."""
        return np.concatenate([2.0 * point.log_s, point.core[self.row, self.column]])

    def about(self, point: Point) -> FloatArray:
        """Return what log variances and slopes of groups lie about (p, B, G): common and levels."""
        return self.common(point)[..., None] + point.level.swapaxes(1, 2) @ self.levels

    def coefficients(self, means: FloatArray) -> FloatArray:
        """Return coefficients (B, W, q) of c (C, B)."""
        result = np.zeros((means.shape[1], self.q * self.layout.width))
        result[:, self.index] = means.T
        return result.reshape(-1, self.q, self.layout.width).swapaxes(1, 2)

    def covariances(self, point: Point) -> list[FloatArray]:
        """Return the covariance (q, q, B, G) of each pattern's columns, in units of u."""
        lower = point.core[..., None] + point.slopes
        variance = np.exp(point.log_variance)
        return [
            covariance(lower, variance, there, self.target.spread) for there in self.present
        ]

    def inside(self, log_variance: FloatArray) -> FloatArray:
        """Return log variances, or what lies just beyond their limits."""
        low, high = self.limits
        return np.clip(log_variance, low - 1.0, high + 1.0)

    def with_common(self, point: Point, moved: FloatArray) -> Point:
        """Return the point with log s_0^2 and b moved (p, B), or also effects of levels (c, B).

        Groups move along."""
        size, core, slopes = len(self.level_precision), point.core.copy(), point.slopes
        along, level = moved[:size, :, None], point.level
        core[self.row, self.column] += moved[self.q : size]
        if len(moved) > size:
            effects = moved[size:].reshape(-1, size, moved.shape[1]).swapaxes(0, 1)
            shift = effects.swapaxes(1, 2) @ self.levels
            slopes, level, along = slopes.copy(), level + effects, along + shift
            slopes[self.row, self.column] += shift[self.q :]
        return replace(
            point, core=core, log_s=point.log_s + 0.5 * moved[: self.q], slopes=slopes,
            level=level, log_variance=self.inside(point.log_variance + along[: self.q]),
        )  # fmt: skip

    def ridge(self, point: Point) -> FloatArray:
        """Return sums of squares (q, B) of what slopes leave of shrunken interactions."""
        scaled = point.means[self.ridged] / self.priors["interaction_scale"]
        left = _left(scaled, point.core)
        return np.asarray((left * left).sum(1))

    def squares(self, point: Point) -> FloatArray:
        """Return sums of squares (q, B) of the coefficients whose scale is tau."""
        return np.asarray(self.free @ point.means**2)

    def log_prior(self, point: Point) -> FloatArray:
        """Return the log prior (B,) on the scales of the moves but for groups.

        Of c, b, log s_0, log nu, log t, log tau."""
        priors = self.priors
        rest = self.log_prior_tau(point.log_tau, self.squares(point))
        size, inverse = self.ridged.shape[1], np.exp(-2.0 * point.log_s)
        rest = rest - size * point.log_s - 0.5 * self.ridge(point) * inverse
        rest = rest + log_scale(point.log_s, priors["residual_scale"])
        if self.grouped:
            rest = rest + log_scale(point.log_nu, priors["pooling_df"], 1.0)
            of_slopes = log_scale(point.log_t, priors["slope_scale"])
            rest = rest + np.where(self.earlier > 0, of_slopes, 0.0)
        core = point.core[self.row, self.column]
        fixed = self.core_precision @ core**2 + self.level_precision @ (point.level**2).sum(1)
        return np.asarray(rest.sum(0) - 0.5 * fixed)

    def log_prior_tau(self, log_tau: FloatArray, squares: FloatArray) -> FloatArray:
        """Return the log prior (q, B) of log tau, and of coefficients with these squares, given it.

        A half-t above the floor."""
        own = -self.count * log_tau - 0.5 * squares * np.exp(-2.0 * log_tau)
        own = own + log_scale(log_tau, self.priors["coefficient_scale"])
        return np.where(log_tau >= self.floor, own, -np.inf)

    def log_group_prior(self, point: Point) -> FloatArray:
        """Return the log prior (B, G) of log variances and slopes given s_0, nu, t."""
        low, high = self.limits
        inside = ((point.log_variance > low) & (point.log_variance < high)).all(0)
        of_group = np.where(inside, 0.0, -np.inf)
        if not self.grouped:
            return np.asarray(of_group)
        half = 0.5 * np.exp(point.log_nu)[..., None]
        # What groups lie about, less what they are.
        off = self.about(point) - self.of_groups(point)
        norm = half * np.log(half) - half - gammaln(half)
        of_group = of_group + (norm + half * (off[: self.q] - np.expm1(off[: self.q]))).sum(0)
        log_t = point.log_t[self.row][..., None]
        of_slopes = 0.5 * (off[self.q :] * np.exp(-log_t)) ** 2 + log_t
        return np.asarray(of_group - of_slopes.sum(0))


def contrasts(levels: IntArray) -> FloatArray:
    """Return what groups have of effects of the levels (F, G) of factors, (L, G).

    Effects of one factor add up to zero: orthonormal coordinates take the place of them."""
    rows = [np.zeros((0, levels.shape[1]))]
    for own in levels:
        indicators = (own == np.unique(own)[:, None]).astype(np.float64)
        rows.append(helmert(len(indicators)) @ indicators)
    return np.concatenate(rows)


def _left(values: FloatArray, core: FloatArray) -> FloatArray:
    """Return what slopes (q, q, B) leave of values (q, K, B)."""
    return np.asarray(values - np.einsum("jlb,lkb->jkb", core, values))


def covariance(
    lower: FloatArray, variance: FloatArray, there: IntArray, spread: FloatArray
) -> FloatArray:
    """Return the covariance (k, k, ...) of the columns ``there`` (k,) in units of their spread.

    Of slopes (q, q, ...) on residuals of earlier columns, and variances (q, ...)."""
    inverse = inverse_of(lower, there)
    size = len(there)
    result = np.empty((size, size, *variance.shape[1:]))
    root = [
        [inverse[i][m] * np.sqrt(variance[there[m]]) / spread[there[i]] for m in range(i + 1)]
        for i in range(size)
    ]
    for i in range(size):
        for j in range(i + 1):
            own = root[i][0] * root[j][0]
            for m in range(1, j + 1):
                own = own + root[i][m] * root[j][m]
            result[i, j] = result[j, i] = own
    return result


def inverse_of(lower: FloatArray, there: IntArray) -> list[list[FloatArray | float]]:
    """Return the lower entries (...) of (I - L)^-1 for some columns, row by row.

    They are by how much residuals move the columns."""
    result: list[list[FloatArray | float]] = []
    for i, row in enumerate(there):
        own: list[FloatArray | float] = []
        for j in range(i):
            value = lower[row, there[j]]
            for m in range(j + 1, i):
                value = value + lower[row, there[m]] * result[m][j]
            own.append(value)
        result.append([*own, 1.0])
    return result


def log_scale(log_value: FloatArray, prior_scale: float, df: float = HALF_T_DF) -> FloatArray:
    """Return the log density of the logarithm of a scale with a half-t prior."""
    return primitives.half_t_log_density(np.exp(log_value), df, prior_scale) + log_value
