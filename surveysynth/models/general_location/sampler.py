"""Gibbs sampler of the general location model (methods 4).

Its logits are independent of each other and of the regressions given the data. A regression is

    z ~ N(u c + r d_g, s_g^2)   over the records that have z, u = (x, e(d), earlier z)

with r the residuals of the earlier columns of z about their own u c, zero where a column is absent.

    c ~ N(0, tau^2), columns of shrunken interactions N(0, (kappa s_0)^2)
    d_g ~ N(0, t^2 I),  s_g^2 ~ scaled inverse chi^2(nu, s_0^2)

Without groups there are no d, and s itself has the prior of s_0. A sweep takes exact steps:

    tau | c                           all regressions side by side, as in the last four lines
    tau | c / tau, s, t, rest         regression by regression in order, its d summed out; those of
    c | tau, t, s, rest               later ones stay, which see c in its residuals
    t | c, s                          d summed out, in even sweeps
    d | c, t, s                       normal
    s_0, nu | c, d                    s summed out, in odd sweeps
    s | s_0, nu, c, d                 inverse gamma

Where s_0, nu and t move in every second sweep alone, coefficients and variances lose hardly any
precision.
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import Layout, RegressionPart
from surveysynth.models.general_location.scales import Scales
from surveysynth.models.general_location.stats import GeneralStats, GroupRows, solution
from surveysynth.models.parts.coefficients import overdispersion
from surveysynth.models.parts.logit import LogitBlocks
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Share of a precision that is below what rounding leaves of it.
ROUNDING = 1e-12


class Coefficients:
    """Coefficients of one regression in B chains.

    core (B, C), and slopes (B, g, k) that a group adds on residuals of earlier z, k = 0 without
    groups. rows u (B, g, m, C), there (B, g, m, 1) and gram (B, C, C) are those of the records that
    have the column.
    """

    def __init__(self, part: RegressionPart, rows: GroupRows, grouped: bool, rng: Streams) -> None:
        self.part, self.rng = part, rng
        self.batch, self.groups = rows.total.shape[:2]
        self.k = part.earlier.size if grouped else 0
        self.slopes = np.zeros((self.batch, self.groups, self.k))
        self.observe(rows)
        # Overdispersed starts about the least-squares fit.
        flat = self.u.reshape(self.batch, -1, part.width)
        gram = flat.swapaxes(-1, -2) @ flat
        z = rows.z[..., part.position]
        fit = solution(gram, (flat.swapaxes(-1, -2) @ z.reshape(self.batch, -1, 1))[..., 0])
        self.spread = _spread(z, self.fitted(fit), rows.total[..., part.position].sum(1))
        noise = overdispersion(gram, rng, 1)[:, :, 0]
        self.core = fit + noise * np.sqrt(self.spread)[:, None]

    def observe(self, rows: GroupRows) -> None:
        """Take rows, which may change between sweeps."""
        part = self.part
        self.there = rows.present[..., part.position, None]
        u = np.concatenate([rows.x[..., part.columns], rows.z[..., part.earlier]], axis=-1)
        self.u = u * self.there

    def fitted(self, core: FloatArray) -> FloatArray:
        """Return u core (B, g, m)."""
        flat = self.u.reshape(self.batch, -1, self.part.width)
        return np.asarray((flat @ core[..., None]).reshape(self.u.shape[:-1]), dtype=np.float64)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, rng = self.batch, self.rng
        self.n_core = rng.standard_normal((c, b, self.core.shape[1]), 1)
        self.n_slopes = rng.standard_normal((c, b, self.groups, self.k), 1)

    def expand(
        self,
        residual: FloatArray,
        earlier: FloatArray,
        own: FloatArray,
        t: FloatArray,
        later: tuple[FloatArray, FloatArray] | None,
    ) -> None:
        """Expand the log-likelihood about the core: ``precision`` (B, C, C), ``linear`` (B, C).

        The part's own slopes are summed out. residual (B, g, m); earlier (B, g, m, k): residuals of
        earlier columns; own (B, g): the regression's 1 / s^2. later (B, g, m), of the regressions
        that see the residual: minus the second derivative in the fitted value of each row, and the
        first.
        """
        root = np.sqrt(own)[..., None, None]
        both = np.concatenate([self.u, residual[..., None]], axis=-1) * root
        if self.k:
            # The inverse root of I + t^2 r r' / s^2 by group, in the axes of r'r.
            scaled = earlier * self.there * root
            turned = scaled.swapaxes(-1, -2)
            values, vectors = np.linalg.eigh(turned @ scaled)
            values = np.maximum(values, 1e-300)
            square = (t * t)[:, None, None] * values
            less = -np.expm1(-0.5 * np.log1p(square)) / values
            inner = (vectors * less[..., None, :]) @ (vectors.swapaxes(-1, -2) @ (turned @ both))
            both = both - scaled @ inner
        flat = both.reshape(self.batch, -1, both.shape[-1])
        turned = flat[..., :-1].swapaxes(-1, -2)
        self.precision = turned @ flat[..., :-1]
        self.linear = (turned @ flat[..., -1:])[..., 0]
        if later is not None:
            weight, score = (each.reshape(self.batch, -1, 1) for each in later)
            rows = self.u.reshape(self.batch, -1, self.part.width)
            turned = rows.swapaxes(-1, -2)
            self.precision = self.precision + turned @ (rows * weight)
            self.linear = self.linear + (turned @ score)[..., 0]

    def along(self, direction: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return minus the second and the first derivative (B,) along a direction (B, C)."""
        turned = (self.precision @ direction[..., None])[..., 0]
        return (direction * turned).sum(-1), (direction * self.linear).sum(-1)

    def draw(self, i: int, prior: FloatArray) -> FloatArray:
        """Draw the core under prior precisions (B, C); return the change of u core (B, g, m)."""
        # A trifle on the diagonal, which rounding may have left without a root.
        more = prior + ROUNDING * np.einsum("bii->bi", self.precision)
        precision = self.precision + more[..., None] * np.eye(self.core.shape[1])
        linear = self.linear - prior * self.core
        shift = primitives.normal_from_precision(precision, linear, self.n_core[i])
        self.core = self.core + shift
        return self.fitted(shift)

    def turn_slopes(
        self, residual: FloatArray, earlier: FloatArray, own: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood of each group's slopes, in coordinates where it separates.

        That is curvatures and squares of the slopes at zero, (B, g k) both.
        """
        turned = ((earlier * self.there) * own[..., None, None]).swapaxes(-1, -2)
        values, self.vectors = np.linalg.eigh(turned @ earlier)
        self.values = np.maximum(values, 0.0)
        score = (turned @ residual[..., None])[..., 0]
        self.turned = (score[..., None, :] @ self.vectors)[..., 0, :]
        flat = (self.batch, self.groups * self.k)
        return self.values.reshape(flat), (self.turned * self.turned).reshape(flat)

    def draw_slopes(self, i: int, t: FloatArray) -> None:
        """Draw the slopes of every group."""
        precision = self.values + (1.0 / (t * t))[:, None, None]
        drawn = self.turned / precision + self.n_slopes[i] / np.sqrt(precision)
        self.slopes = (self.vectors @ drawn[..., None])[..., 0]


def _spread(z: FloatArray, fitted: FloatArray, total: FloatArray) -> FloatArray:
    """Approximate the residual variance (B,) of rows z (B, g, m), which have weight ``total``.

    After a perfect fit it would be zero and precisions overflow, so a millionth of the mean square
    is added, or one where there are no records.
    """
    mass = np.maximum(total, 1.0)
    squares = ((z - fitted) ** 2).sum((1, 2))
    size = (squares + (fitted * fitted).sum((1, 2))) / mass
    return np.asarray(squares / mass + np.where(size > 1e-290, 1e-6 * size, 1.0))


class Regressions:
    """All regressions of a layout in B chains.

    residual (B, g, m, q): of each column of z about its own core coefficients; rest (B, g, m, q):
    what the slopes leave of it, zero both where a column is absent.
    """

    def __init__(
        self, layout: Layout, rows: GroupRows, priors: Mapping[str, float], rng: Streams
    ) -> None:
        self.grouped, self.ridged = layout.grouped, list(layout.ridged)
        self.interaction_scale = priors["interaction_scale"]
        self.parts = [
            Coefficients(part, rows, layout.grouped, rng) for part in layout.regressions
        ]
        self.free = [
            np.setdiff1d(np.arange(part.core.shape[1]), self.ridged) for part in self.parts
        ]
        spread = np.stack([part.spread for part in self.parts])
        size = np.stack([(part.core**2).mean(-1) for part in self.parts])
        groups = self.parts[0].groups
        self.scales = Scales(spread, size, groups, layout.grouped, priors, rng)
        self.columns = np.array([[float(free.size)] for free in self.free])
        self._take(rows)

    def observe(self, rows: GroupRows) -> None:
        """Take other rows, where they change between sweeps."""
        for part in self.parts:
            part.observe(rows)
        self._take(rows)

    def _take(self, rows: GroupRows) -> None:
        self.z, self.total = rows.z, np.moveaxis(rows.total, -1, 0)
        self.present = rows.present.astype(np.float64)
        fitted = [part.fitted(part.core) for part in self.parts]
        self.residual = self.z * self.present - np.stack(fitted, axis=-1)
        self._set_rest()

    def _set_rest(self) -> None:
        """Compute what the slopes leave of the residuals."""
        self.rest = self.residual
        if any(part.k for part in self.parts):
            self.rest = self.residual - self.present * (
                self.residual @ self.slope_matrix().swapaxes(-1, -2)
            )

    def slope_matrix(self) -> FloatArray:
        """Return the slopes of all regressions (B, g, q, q), zero where there is none."""
        q = len(self.parts)
        result = np.zeros((self.parts[0].batch, self.parts[0].groups, q, q))
        for j, part in enumerate(self.parts):
            if part.k:
                result[:, :, j, part.part.earlier] = part.slopes
        return result

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        self.scales.draw_random_numbers(c)
        for part in self.parts:
            part.draw_random_numbers(c)

    def prior_precision(self, j: int) -> FloatArray:
        """Return the prior precisions (B, C) of the core coefficients of a regression."""
        part, scales = self.parts[j], self.scales
        result = np.repeat(scales.tau[j][:, None] ** -2, part.core.shape[1], axis=1)
        result[:, self.ridged] = (self.interaction_scale * scales.common[j][:, None]) ** -2
        return result

    def ridge(self) -> tuple[int, FloatArray]:
        """Return the number of shrunken coefficients and their sums of squares (J, B).

        These are in units of the residual scale.
        """
        squares = [(part.core[:, self.ridged] ** 2).sum(-1) for part in self.parts]
        return len(self.ridged), np.stack(squares) / self.interaction_scale**2

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        scales = self.scales
        squares = [
            (part.core[:, free] ** 2).sum(-1)
            for part, free in zip(self.parts, self.free, strict=True)
        ]
        scales.update_tau(i, self.columns, np.stack(squares))
        slopes, precision = self.slope_matrix(), 1.0 / scales.variance
        for j in range(len(self.parts)):
            self._core(i, j, slopes, precision)
        if any(part.k for part in self.parts):
            self._slopes(i, precision)
        self._set_rest()
        left = np.moveaxis((self.rest * self.rest).sum(2), -1, 0)
        scales.update_variances(i, self.total, left, self.ridge())

    def _earlier(self, part: Coefficients) -> FloatArray:
        return np.asarray(self.residual[..., part.part.earlier], dtype=np.float64)

    def _core(self, i: int, j: int, slopes: FloatArray, precision: FloatArray) -> None:
        """Draw tau and the core coefficients of a regression, its own slopes summed out."""
        part, scales, own = self.parts[j], self.scales, precision[j]
        later = [k for k in range(j + 1, len(self.parts)) if self.parts[k].k]
        pulls = [slopes[:, :, k, j] * precision[k] for k in later]
        seen = None
        if later:
            weight, score = np.zeros((2, *self.residual.shape[:-1]))
            for k, pull in zip(later, pulls, strict=True):
                weight += (slopes[:, :, k, j] * pull)[..., None] * self.present[..., k]
                score -= pull[..., None] * self.rest[..., k]
            seen = weight, score
        part.expand(self.residual[..., j], self._earlier(part), own, scales.t[j], seen)
        direction = part.core / scales.tau[j][:, None]
        direction[:, self.ridged] = 0.0
        scales.rescale(i, j, *part.along(direction))
        moved = part.draw(i, self.prior_precision(j))
        self.residual[..., j] -= moved
        for k in later:
            self.rest[..., k] += slopes[:, :, k, j, None] * self.present[..., k] * moved

    def _slopes(self, i: int, precision: FloatArray) -> None:
        scales = self.scales
        most = max(part.groups * part.k for part in self.parts)
        values, squares = np.zeros((2, scales.j, scales.batch, most))
        for j, part in enumerate(self.parts):
            if part.k:
                size = part.groups * part.k
                values[j, :, :size], squares[j, :, :size] = part.turn_slopes(
                    self.residual[..., j], self._earlier(part), precision[j]
                )
        if i % 2 == 0:
            scales.update_t(i, values, squares)
        for j, part in enumerate(self.parts):
            if part.k:
                part.draw_slopes(i, scales.t[j])

    def state(self) -> Theta:
        """Return parameters by name, without those that a part's prior does not use."""
        state: Theta = {}
        scales = self.scales
        for j, part in enumerate(self.parts):
            name = part.part.name
            state[f"coefficients_{name}"] = part.core
            state[f"variance_{name}"] = scales.variance[j]
            state[f"coefficient_scale_{name}"] = scales.tau[j]
            if self.grouped:
                state[f"pooled_scale_{name}"] = scales.s_0[j]
                state[f"pooled_df_{name}"] = scales.nu[j]
            if part.k:
                state[f"slopes_{name}"] = part.slopes
                state[f"slope_scale_{name}"] = scales.t[j]
        return state


class Gibbs:
    """State of a batch of chains, B = databases x chains; logits, and regressions together."""

    def __init__(self, stats: GeneralStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.layout, self.chains = stats.layout, rng.chains
        sds = stats.layout.logit_sds(priors)
        self.logits = [LogitBlocks(*each, rng) for each in zip(stats.logits, sds, strict=True)]
        self.regressions = None
        if stats.rows is not None:
            repeated = stats.rows.repeated(rng.chains)
            self.regressions = Regressions(stats.layout, repeated, priors, rng)

    def observe(self, stats: GeneralStats) -> None:
        """Take other statistics of the same databases, where they change between sweeps."""
        for logit, counts in zip(self.logits, stats.logits, strict=True):
            logit.observe(counts)
        if self.regressions is not None and stats.rows is not None:
            self.regressions.observe(stats.rows.repeated(self.chains))

    def state(self) -> Theta:
        """Return the parameters of all parts by name, the part's name last.

        For example "logit_1" (B, P, C - 1), "coefficients_2", "variance_weight".
        """
        state: Theta = {}
        for part, logit in zip(self.layout.logits, self.logits, strict=True):
            shape = (logit.batch, part.columns.size, part.own.size)
            state[f"logit_{part.name}"] = logit.b.reshape(shape)
        return state | ({} if self.regressions is None else self.regressions.state())

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        for logit in self.logits:
            logit.draw_random_numbers(c)
        if self.regressions is not None:
            self.regressions.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        with np.errstate(over="ignore", under="ignore"):
            for logit in self.logits:
                logit.sweep(i)
            if self.regressions is not None:
                self.regressions.sweep(i)
