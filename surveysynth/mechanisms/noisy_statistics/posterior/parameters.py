"""The parameters of the general location model as one vector, and their posterior (strict 9).

Coordinates are at about unit scale. Coefficients are centered and whitened by generalized least
squares, everything else is about its prior mean in prior SDs: log variances and slopes of groups
about what groups have in common, s_0 and b, with effects u and v of their levels; shrunken columns
and deviations about what earlier columns say. That suits what noise hides; for what is known well
there are ``redraw_scales``. (Trajectories in coordinates of groups where they are, which suit
groups that are known well, were slower also there.)"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import digamma, expit, gammaln

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.amount_law import AmountLaw
from surveysynth.mechanisms.noisy_statistics.posterior.category_law import CategoryLaw
from surveysynth.mechanisms.noisy_statistics.posterior.logit_rows import LogitRows
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.models.gaussian.blocks import HALF_T_DF
from surveysynth.models.general_location.layout import Layout
from surveysynth.sampling.hmc import slice_wide
from surveysynth.sampling.primitives import (
    inverse_unit_lower,
    log_half_t,
    normal_from_precision,
)

#: Points have coordinates within this distance: beyond it exponentials overflow.
FARTHEST = 60.0
#: Limits of log variances of groups about the declared ones, in which any noise hides what is left.
LOG_VARIANCE = 25.0
#: Means, and variances and covariances, in spreads beyond which rounding leaves no digit of a law:
#: moments of squares are fourth powers. Records are clipped to a few spreads.
LARGEST_MEAN, LARGEST_VARIANCE = 1e3, 1e4
#: Curvature of held scales in the whitening: of s_0, which all groups inform, and of the others.
OF_SCALE, OF_OTHERS = 60.0, 1.0
#: Least scale of effects on the weight, in its spread: less cannot be told from none, and would
#: hold all effects next to zero.
LEAST_OF_WEIGHT = 0.05
#: Typical t, about which log t is a coordinate.
TYPICAL_T = 0.3
#: Typical largest nu: beyond, variances of groups that differ by 1% are as good as equal, and the
#: chains, whose coordinates are in units of what groups differ by, would stand still.
MOST_NU = 1e4
#: Shapes of gamma laws from which on Stirling's series has all digits.
LARGE_SHAPE = 1e4


@dataclass(frozen=True)
class Point:
    """Parameters of b points.

    coefficients (b, q, W) of (z - center) on x~ in the prior's columns; deviations (b, q, G, E);
    logits (b, P, k - 1) each; core (b, s) and slopes (b, s, G) of the pairs of columns, slopes
    being whole; log_variance (b, q, G); log_s, log_tau, log_nu, log_t (b, q); of_levels (b, q, L)
    and slopes_of_levels (b, s, L); off_variance (b, q, G) and off_slopes (b, s, G): what groups
    differ by from all that they have in common.
    """

    coefficients: FloatArray
    deviations: FloatArray
    logits: tuple[FloatArray, ...]
    core: FloatArray
    slopes: FloatArray
    log_variance: FloatArray
    log_s: FloatArray
    log_tau: FloatArray
    log_nu: FloatArray
    log_t: FloatArray
    of_levels: FloatArray
    slopes_of_levels: FloatArray
    off_variance: FloatArray
    off_slopes: FloatArray


class Parameters:
    """Posterior density of a release, up to a constant, at vectors (b, D).

    deviating: whether levels of outcomes deviate by group in the means.
    """

    def __init__(
        self,
        layout: Layout,
        table: NoisyTable,
        priors: Mapping[str, float],
        deviating: bool = True,
    ) -> None:
        self.layout, self.table, self.priors = layout, table, priors
        shape, q = table.shape, layout.q
        self.q, self.groups, self.spread = q, shape.groups, table.spread
        self.kappa = priors["interaction_scale"]
        self.given_log_sd: FloatArray | None = None  # given (1, q), in place of that of a point
        ridged = np.isin(np.arange(layout.width), layout.ridged)
        used = np.zeros((q, layout.width), dtype=bool)
        for part in layout.regressions:
            used[part.position, part.columns] = True
        self.ridged = np.flatnonzero(ridged)
        self.free = (used & ~ridged).astype(np.float64)
        #: Columns (P,) of each regression that are not shrunken.
        self.own = [np.flatnonzero(each) for each in used & ~ridged]
        pairs = [(p.position, int(k)) for p in layout.regressions for k in p.earlier]
        self.row, self.column = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self.unit = self.spread[self.row] / self.spread[self.column]
        #: Pairs of each column (s, q), and whether it has any.
        self.of_row = (self.row[:, None] == np.arange(q)).astype(np.float64)
        self.sloped = np.isin(np.arange(q), self.row)
        # Effects on amounts are of no smaller scale than the declared spread, whatever noise hides.
        amounts = np.array([part.outcome is not None for part in layout.regressions])
        self.least_tau = np.log(self.spread * np.where(amounts, 1.0, LEAST_OF_WEIGHT))
        # Constants of priors are for scales on which spreads are about one, such as logarithms;
        # beside a spread of hundreds they would draw all residuals to zero.
        wide = np.maximum(self.spread, 1.0)
        self.residual_scale = priors["residual_scale"] * wide
        self.coefficient_scale = priors["coefficient_scale"] * wide
        grouped = layout.grouped
        self.contrasts = table.contrasts if grouped else np.zeros((0, self.groups))
        #: Levels of outcomes that deviate by group in each column (q, E): in regressions that use
        #: them.
        deviating &= grouped
        self.levels = used[:, layout.columns :] if deviating else np.zeros((q, 0), dtype=bool)
        #: 1 where a regression has a shrunken column or deviation (q, S).
        levels = np.tile(self.levels, (1, self.groups))
        self.shrunken = np.hstack([np.ones((q, self.ridged.size)), levels])
        self.logits = [
            LogitRows(table, part, priors, layout) for part in range(len(layout.logits))
        ]
        self.law = CategoryLaw(table) if shape.discrete else AmountLaw(table)
        self.present = [each.present for each in table.patterns]
        self.group = shape.group
        self.sizes = sizes = self._sizes() | (self._group_sizes() if grouped else {})
        ends = np.cumsum([0, *(int(np.prod(each)) for each in sizes.values())]).tolist()
        self.slices = {name: slice(*ab) for name, ab in zip(sizes, pairwise(ends), strict=True)}
        self.dimension = int(ends[-1])
        self._least_squares()

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the coordinates by name, in their order in a vector."""
        q = self.q
        sizes: dict[str, tuple[int, ...]] = {
            f"means {j}": (own.size,) for j, own in enumerate(self.own)
        }
        sizes |= {f"logit {i}": each.shape for i, each in enumerate(self.logits)}
        return sizes | {
            "shrunken": (q, self.ridged.size),
            "core": (self.row.size,), "log_s": (q,), "log_tau": (q,),
        }  # fmt: skip

    def _group_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return those of coordinates that only a grouped layout has, zero in others."""
        q, level, group = self.q, len(self.contrasts), self.groups
        return {
            "deviations": (q, group, self.levels.shape[1]), "levels": (q, level),
            "level slopes": (self.row.size, level), "group": (q, group),
            "group slopes": (self.row.size, group), "log_nu": (q,), "log_t": (q,),
        }  # fmt: skip

    # --- starts -------------------------------------------------------------------------------

    def _least_squares(self) -> None:
        """Set centers and roots of coefficients that are not shrunken, by what noisy sums say.

        Given those that are: ``along`` has the slopes on these.
        """
        table, shape = self.table, self.table.shape
        tilde = shape.tilde.copy()  # in the columns of the prior
        tilde[..., : self.layout.columns] = table.x[:, None]
        precision = np.zeros((self.q, shape.width, shape.width))
        linear = np.zeros((self.q, shape.width))
        counts = np.maximum(table.counts, 0.5) if shape.discrete else table.sizes[:, None]
        for pattern in table.patterns:
            for g, cells in enumerate(table.cells):
                own = cells[cells >= 0]
                rows = pattern.rows[g, : own.size].reshape(-1, pattern.rows.shape[-1])
                n = np.maximum(counts[own][:, pattern.combinations].reshape(-1), 1e-9)
                x = tilde[own][:, pattern.combinations].reshape(n.size, -1)
                gram = (rows.T * n) @ rows
                link = np.linalg.pinv(rows) @ x
                weighted = link.T @ gram @ np.linalg.inv(
                    gram + table.sum_variance * np.eye(len(gram))
                )
                sums = pattern.sums[g] + (rows.T @ n)[:, None] * pattern.centers[g]
                precision[pattern.present] += weighted @ gram @ link
                linear[pattern.present] += (weighted @ sums).T
        self.centers, self.roots, self.along = (list[FloatArray]() for _ in range(3))
        prior = np.where(np.isin(np.arange(shape.width), self.ridged), self.kappa**-2, 1.0)
        for j, own in enumerate(self.own):
            matrix = precision[j] + np.diag(prior)
            of_own = matrix[np.ix_(own, own)]
            self.centers.append(np.linalg.solve(of_own, linear[j, own]))
            self.along.append(-np.linalg.solve(of_own, matrix[np.ix_(own, self.ridged)]))
            self.roots.append(np.linalg.inv(np.linalg.cholesky(of_own)).T)

    def start(self) -> FloatArray:
        """Return the starting point (D,) of the search for a mode."""
        x = np.zeros(self.dimension)
        x[self.slices["log_tau"]] = np.log(self.spread) - self.least_tau
        if self.layout.grouped:
            x[self.slices["log_nu"]] = -0.5
        return x

    def held(self) -> tuple[BoolArray, FloatArray]:
        """Return which coordinates (D,) are held while a mode is sought, and their curvature.

        A joint mode goes to where s_0 is 0 or tau is huge.
        """
        held, curvature = np.zeros(self.dimension, dtype=bool), np.full(self.dimension, OF_OTHERS)
        names = ("log_tau", "log_nu", "log_t", "log_s") if self.layout.grouped else ("log_tau",)
        for name in names:
            held[self.slices[name]] = True
        curvature[self.slices["log_s"]] = OF_SCALE
        return held, curvature

    def about(self, x: FloatArray) -> "Parameters":
        """Return the density with the unit of what is shrunken as at x (D,)."""
        result = copy(self)
        result.given_log_sd = self._log_sd(self.point(x[None]).log_variance)
        return result

    def apart(self) -> IntArray:
        """Return the coordinates (G, L) that each group has to itself.

        Given all others, and the unit of what is shrunken (``about``), densities of groups are
        factors of the posterior.
        """
        own = [
            np.moveaxis(np.arange(self.dimension)[self.slices[name]].reshape(size), 1, 0)
            for name, size in self.sizes.items()
            if name in ("deviations", "group", "group slopes")
        ]
        flat = [each.reshape(self.groups, -1) for each in own]
        return np.concatenate([np.empty((self.groups if own else 0, 0), dtype=np.int64), *flat], 1)

    # --- point --------------------------------------------------------------------------------

    def parts(self, x: FloatArray) -> dict[str, FloatArray]:
        """Return the coordinates by name, (b, ...) each."""
        return {
            name: x[:, self.slices[name]].reshape(len(x), *size)
            for name, size in self.sizes.items()
        }

    def point(self, x: FloatArray) -> Point:
        """Return the parameters at coordinates (b, D)."""
        spread, batch = self.spread, len(x)
        part = {name: np.zeros((batch, *size)) for name, size in self._group_sizes().items()}
        part |= self.parts(x)
        logits = tuple(
            each.coefficients(each.predictors(part[f"logit {i}"])[0])
            for i, each in enumerate(self.logits)
        )
        log_s = np.log(spread) + part["log_s"]
        log_tau = self.least_tau + np.logaddexp(0.0, part["log_tau"])
        core = self.unit * part["core"]
        log_nu = np.log(self.priors["pooling_df"]) + part["log_nu"]
        log_t = np.log(TYPICAL_T) + part["log_t"]
        of_levels = 2.0 * self.kappa * part["levels"]
        off_variance = np.sqrt(2.0) * np.exp(-0.5 * log_nu)[..., None] * part["group"]
        log_variance = 2.0 * log_s[..., None] + of_levels @ self.contrasts + off_variance
        if self.layout.grouped:
            middle = 2.0 * np.log(spread)[:, None]
            log_variance = np.clip(log_variance, middle - LOG_VARIANCE, middle + LOG_VARIANCE)
        flat = part["deviations"].reshape(batch, self.q, -1)
        own = np.concatenate([part["shrunken"], flat], axis=-1)
        values = self._values(self._log_sd(log_variance), core, own)
        shrunken, flat = np.split(values, [self.ridged.size], axis=-1)
        deviations = flat.reshape(part["deviations"].shape)
        coefficients = np.zeros((batch, self.q, self.layout.width))
        coefficients[..., self.ridged] = shrunken
        for j, own in enumerate(self.own):
            whitened = self.centers[j] + part[f"means {j}"] @ self.roots[j].T
            coefficients[:, j, own] = spread[j] * whitened + shrunken[:, j] @ self.along[j].T
        slopes_of_levels = self.kappa * self.unit[:, None] * part["level slopes"]
        off_slopes = np.exp(log_t)[:, self.row, None] * part["group slopes"]
        slopes = core[..., None] + slopes_of_levels @ self.contrasts + off_slopes
        return Point(
            coefficients, deviations, logits, core, slopes, log_variance,
            log_s, log_tau, log_nu, log_t, of_levels, slopes_of_levels, off_variance, off_slopes,
        )  # fmt: skip

    def _log_sd(self, log_variance: FloatArray) -> FloatArray:
        """Return the mean log residual SD (b, q) of groups, the unit of what is shrunken.

        (In units of s_0, the small deviations of a large survey would pull it below the SDs of all
        groups: a second mode, far from the first.)
        """
        mean = 0.5 * log_variance.mean(-1)
        return mean if self.given_log_sd is None else np.broadcast_to(self.given_log_sd, mean.shape)

    def _values(self, log_sd: FloatArray, core: FloatArray, own: FloatArray) -> FloatArray:
        """Return shrunken columns and deviations (b, q, S): N(0, kappa^2 Sigma) across columns.

        own (b, q, S): their residuals by slopes on earlier columns, in prior SDs of ``_log_sd``.
        """
        result = self.kappa * np.exp(log_sd)[..., None] * own
        for j in range(self.q):
            for pair in np.flatnonzero(self.row == j):
                result[:, j] += core[:, pair, None] * result[:, self.column[pair]]
            result[:, j] *= self.shrunken[j]
        return np.asarray(result)

    def _residuals(self, point: Point, core: FloatArray) -> FloatArray:
        """Return residuals (b, q, S), in prior SDs, of the values of a point by other slopes."""
        values = self._values_of(point)
        left = values.copy()
        for pair, (j, k) in enumerate(zip(self.row, self.column, strict=True)):
            left[:, j] -= core[:, pair, None] * values[:, k]
        log_sd = self._log_sd(point.log_variance)
        return np.asarray(left * self.shrunken / (self.kappa * np.exp(log_sd)[..., None]))

    def _values_of(self, point: Point) -> FloatArray:
        """Return shrunken columns and deviations (b, q, S) of a point."""
        shrunken = point.coefficients[..., self.ridged]
        flat = point.deviations.reshape(*point.log_s.shape, -1)
        return np.concatenate([shrunken, flat], axis=-1)

    def means(self, point: Point) -> FloatArray:
        """Return means (b, C, D, q) of z about the center, in spreads; D = 1 without categories."""
        k, e = self.layout.columns, self.table.shape.indicators
        of_cells = self.table.x @ point.coefficients[..., :k].swapaxes(1, 2)
        of_levels = e @ point.coefficients[..., k:].swapaxes(1, 2)
        result = of_cells[:, :, None] + of_levels[:, None]
        if point.deviations.shape[-1]:
            by_group = np.moveaxis(point.deviations @ e.T, 1, -1)  # (b, G, D, q)
            result += by_group[:, self.group]
        return np.asarray(result / self.spread)

    def log_p(self, point: Point) -> tuple[FloatArray, list[FloatArray]]:
        """Return log probabilities (b, C, D) of combinations, and those of each logit's rows."""
        cells = len(self.table.x)
        result = np.zeros((len(point.core), cells, len(self.table.shape.combinations)))
        rows = list[FloatArray]()
        for logit, coefficients in zip(self.logits, point.logits, strict=True):
            own, each = logit.log_p(coefficients, cells)
            result += own
            rows.append(each)
        return result, rows

    def roots_of(self, point: Point) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Return the root A = M D of each pattern's covariances (b, G, q_p, q_p), with M and D.

        In spreads; D (b, G, q_p) are residual SDs. Columns that are absent have no residual.
        """
        lower = np.zeros((len(point.core), self.groups, self.q, self.q))
        lower[:, :, self.row, self.column] = point.slopes.swapaxes(1, 2)
        sd = np.exp(0.5 * point.log_variance).swapaxes(1, 2)
        found = []
        for there in self.present:
            inverse = inverse_unit_lower(lower[..., there[:, None], there])
            own = sd[..., there]
            found.append((inverse * own[..., None, :] / self.spread[there, None], inverse, own))
        return found

    # --- density ------------------------------------------------------------------------------

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log posterior densities (b,), up to a constant, and their gradients (b, D)."""
        far = _beyond(x, FARTHEST)
        safe = np.where(far[:, None], 0.0, x)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            value, gradient = self._density(safe)
        lost = far | ~np.isfinite(value) | ~np.isfinite(gradient).all(1)
        return np.where(lost, -np.inf, value), np.where(lost[:, None], 0.0, gradient)

    def _density(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        point, part = self.point(x), self.parts(x)
        means, roots = self.means(point), self.roots_of(point)
        covariances = [root @ root.swapaxes(-1, -2) for root, _, _ in roots]
        lost = _beyond(means, LARGEST_MEAN)
        for each in covariances:
            lost |= _beyond(each, LARGEST_VARIANCE)
        means = np.where(lost[:, None, None, None], 0.0, means)
        for each in covariances:
            each[lost] = np.eye(each.shape[-1])
        in_logits = list[FloatArray]()
        if isinstance(self.law, AmountLaw):
            value, in_means, in_covariance = self.law(means[:, :, 0], covariances[0])
            in_means, in_covariances = in_means[:, :, None], [in_covariance]
        else:
            log_p, rows = self.log_p(point)
            value, in_log_p, in_means, in_covariances = self.law(log_p, means, covariances)
            in_logits = [
                logit.gradient(in_log_p, each)
                for logit, each in zip(self.logits, rows, strict=True)
            ]
        gradient = {name: np.zeros_like(each) for name, each in part.items()}
        in_coefficients, in_deviations = self._through_means(point, in_means / self.spread)
        in_variance, in_slopes = self._through_covariances(point, roots, in_covariances)
        value = value + self._prior(point, part, gradient, in_coefficients)
        for j, own in enumerate(self.own):
            pulled = in_coefficients[:, j, own]
            gradient[f"means {j}"] = self.spread[j] * pulled @ self.roots[j]
            in_coefficients[:, j, self.ridged] += pulled @ self.along[j]
        value = value + self._of_shrunken(
            point, part, gradient, in_coefficients, in_deviations, in_variance
        )
        # Chain rule to coordinates: what groups have in common, and what they differ by.
        gradient["log_s"] += 2.0 * in_variance.sum(-1)
        gradient["core"] += self.unit * in_slopes.sum(-1) - part["core"]
        value = value - 0.5 * (part["core"] ** 2).sum(1)
        if self.layout.grouped:
            value = value + self._of_groups(point, part, gradient, in_variance, in_slopes)
        for i, logit in enumerate(self.logits):
            name = f"logit {i}"
            density, gradient[name] = logit.in_coordinates(
                point.logits[i], part[name], in_logits[i]
            )
            value = value + density
        flat = [each.reshape(len(x), -1) for each in gradient.values()]
        return np.where(lost, -np.inf, value), np.concatenate(flat, axis=1)

    def _through_means(
        self, point: Point, in_means: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradient of the law in coefficients and deviations by that in means."""
        e = self.table.shape.indicators
        in_coefficients = np.concatenate(
            [
                (self.table.x.T @ in_means.sum(2)).swapaxes(1, 2),
                (e.T @ in_means.sum(1)).swapaxes(1, 2),
            ],
            axis=-1,
        )
        in_deviations = np.zeros_like(point.deviations)
        if point.deviations.shape[-1]:
            by_group = np.zeros((self.groups, len(in_means), *in_means.shape[2:]))
            np.add.at(by_group, self.group, in_means.swapaxes(0, 1))
            in_deviations = by_group.transpose(1, 3, 0, 2) @ e
        return in_coefficients, in_deviations

    def _through_covariances(
        self,
        point: Point,
        roots: list[tuple[FloatArray, FloatArray, FloatArray]],
        in_covariances: list[FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradient of the law in log variances and slopes by that in covariances."""
        in_variance = np.zeros_like(point.log_variance)
        in_lower = np.zeros((len(in_variance), self.groups, self.q, self.q))
        for there, (root, inverse, sd), given in zip(
            self.present, roots, in_covariances, strict=True
        ):
            in_root = 2.0 * given @ root
            in_variance[:, there] += 0.5 * (in_root * root).sum(2).swapaxes(1, 2)
            turned = inverse.swapaxes(-1, -2)
            in_inverse = in_root * sd[..., None, :] / self.spread[there, None]
            in_lower[..., there[:, None], there] += turned @ in_inverse @ turned
        in_slopes = in_lower[:, :, self.row, self.column].swapaxes(1, 2)
        return in_variance, in_slopes

    def _prior(
        self,
        point: Point,
        part: Mapping[str, FloatArray],
        gradient: dict[str, FloatArray],
        in_coefficients: FloatArray,
    ) -> FloatArray:
        """Return the log prior (b,) of coefficients that are not shrunken, s_0 and tau.

        Adds its gradients to those given.
        """
        inverse = np.exp(-2.0 * point.log_tau)[..., None]
        squares = point.coefficients**2 * self.free * inverse
        free = self.free.sum(1)
        value = -0.5 * squares.sum((1, 2)) - (free * point.log_tau).sum(1)
        in_coefficients -= point.coefficients * self.free * inverse
        # Scales.
        of_s, in_s = log_half_t(point.log_s, HALF_T_DF, self.residual_scale)
        of_tau, in_tau = log_half_t(point.log_tau, HALF_T_DF, self.coefficient_scale)
        above = expit(part["log_tau"])
        value += of_s.sum(1) + (of_tau + np.log(above)).sum(1)
        gradient["log_s"] += in_s
        in_tau = in_tau + squares.sum(-1) - free
        gradient["log_tau"] += in_tau * above + 1.0 - above
        return np.asarray(value)

    def _of_shrunken(
        self,
        point: Point,
        part: Mapping[str, FloatArray],
        gradient: dict[str, FloatArray],
        in_coefficients: FloatArray,
        in_deviations: FloatArray,
        in_variance: FloatArray,
    ) -> FloatArray:
        """Return the log prior (b,) of shrunken columns and deviations, by their coordinates.

        Sets the gradients in these, and adds what follows for log variances and core.
        """
        values, size = self._values_of(point), self.ridged.size
        flat = in_deviations.reshape(*values.shape[:2], -1)
        given = np.concatenate([in_coefficients[..., self.ridged], flat], axis=-1)
        for j in reversed(range(self.q)):
            given[:, j] *= self.shrunken[j]
            for pair in np.flatnonzero(self.row == j):
                k = self.column[pair]
                gradient["core"][:, pair] += self.unit[pair] * (given[:, j] * values[:, k]).sum(-1)
                given[:, k] += point.core[:, pair, None] * given[:, j]
        scaled = self.kappa * np.exp(self._log_sd(point.log_variance))[..., None] * given
        value = np.zeros(len(values))
        for name, pulled in (("shrunken", scaled[..., :size]), ("deviations", scaled[..., size:])):
            if name in part:
                own = part[name].reshape(pulled.shape)
                if self.given_log_sd is None:
                    in_variance += (0.5 / self.groups) * (pulled * own).sum(-1)[..., None]
                gradient[name] = (pulled - own).reshape(part[name].shape)
                value -= 0.5 * (own**2).sum((1, 2))
        return value

    def _of_groups(
        self,
        point: Point,
        part: Mapping[str, FloatArray],
        gradient: dict[str, FloatArray],
        in_variance: FloatArray,
        in_slopes: FloatArray,
    ) -> FloatArray:
        """Return the log prior (b,) of groups, of what their levels have in common, of nu and t.

        Sets its gradients, and those of the law in these coordinates.
        """
        value = sum(
            -0.5 * (part[name] ** 2).sum((1, 2))
            for name in ("levels", "level slopes", "group slopes")
        )
        half = 0.5 * np.exp(point.log_nu)[..., None]
        off, scale = point.off_variance, np.sqrt(1.0 / half)
        norm, in_norm = log_gamma_norm(half)
        away = half * (off + np.expm1(-off))
        density = norm - away + np.log(scale)
        of_nu, in_nu = log_pooling_df(point.log_nu, self.priors["pooling_df"])
        of_t, in_t = log_half_t(point.log_t, HALF_T_DF, self.priors["slope_scale"])
        unsloped = -0.5 * part["log_t"] ** 2
        value = value + density.sum((1, 2)) + of_nu.sum(1)
        value = value + np.where(self.sloped, of_t, unsloped).sum(1)
        in_off = in_variance + half * np.expm1(-off)
        gradient["group"] = in_off * scale
        gradient["log_nu"] = (
            in_nu
            + (in_norm - away).sum(-1)
            - 0.5 * self.groups
            - 0.5 * (in_off * off).sum(-1)
        )
        along = (in_slopes * point.off_slopes).sum(-1) @ self.of_row
        gradient["log_t"] = np.where(self.sloped, in_t + along, -part["log_t"])
        gradient["group slopes"] = (
            in_slopes * np.exp(point.log_t)[:, self.row, None] - part["group slopes"]
        )
        turned = self.contrasts.T
        gradient["levels"] = 2.0 * self.kappa * in_variance @ turned - part["levels"]
        gradient["level slopes"] = (
            self.kappa * self.unit[:, None] * (in_slopes @ turned) - part["level slopes"]
        )
        return np.asarray(value)

    # --- scales ---------------------------------------------------------------------------------

    def redraw_scales(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return points (b, D) with scales and shared values drawn given what has them.

        Coefficients, and variances, slopes and deviations of groups, stay, and the law with them.
        Trajectories hold groups in units of scales about shared values, and move along these
        slowly where the noise hides little; here they move freely (Yu & Meng 2011).
        """
        point, x = self.point(x), x.copy()
        changed = {"log_tau": self._tau_given(point, self.parts(x)["log_tau"], rng)}
        if self.layout.grouped:
            log_nu, log_t = self._spread_of_groups_given(point, rng)
            log_s, off = self._s_given(point, log_nu, rng)
            core = self._core_given(point, log_t, rng)
            off_slopes = point.off_slopes + (point.core - core)[..., None]
            residuals = self._residuals(point, core)
            shrunken, deviations = np.split(residuals, [self.ridged.size], axis=-1)
            unused = np.where(self.levels[:, None], 0.0, self.parts(x)["deviations"])
            changed |= {
                "log_nu": log_nu - np.log(self.priors["pooling_df"]),
                "log_t": log_t - np.log(TYPICAL_T),
                "log_s": log_s - np.log(self.spread),
                "core": core / self.unit,
                "group": off * np.exp(0.5 * log_nu)[..., None] / np.sqrt(2.0),
                "group slopes": np.exp(-log_t)[:, self.row, None] * off_slopes,
                "shrunken": shrunken,
                "deviations": unused + deviations.reshape(unused.shape),
            }
        for name, values in changed.items():
            x[:, self.slices[name]] = values.reshape(len(x), -1)
        return x

    def _tau_given(
        self, point: Point, coordinate: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return coordinates (b, q) of tau."""
        squares, free = (point.coefficients**2 * self.free).sum(-1), self.free.sum(1)

        def density(at: FloatArray) -> FloatArray:
            log_tau = self.least_tau + np.logaddexp(0.0, at)
            own, _ = log_half_t(log_tau, HALF_T_DF, self.coefficient_scale)
            own = own - free * log_tau - 0.5 * squares * np.exp(-2.0 * log_tau)
            return np.asarray(own - np.logaddexp(0.0, -at))

        return slice_wide(density, coordinate, rng)

    def _spread_of_groups_given(
        self, point: Point, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return log nu and log t (b, q)."""
        number = self.groups * np.bincount(self.row, minlength=self.q)
        squares = (point.off_slopes**2).sum(-1) @ self.of_row
        off = point.off_variance + np.expm1(-point.off_variance)

        def of_t(log_t: FloatArray) -> FloatArray:
            own, _ = log_half_t(log_t, HALF_T_DF, self.priors["slope_scale"])
            own = own - number * log_t - 0.5 * squares * np.exp(-2.0 * log_t)
            alone = -0.5 * (log_t - np.log(TYPICAL_T)) ** 2
            return np.asarray(np.where(self.sloped, own, alone), dtype=np.float64)

        def of_nu(log_nu: FloatArray) -> FloatArray:
            half = 0.5 * np.exp(np.clip(log_nu, -150.0, 150.0))
            norm = self.groups * log_gamma_norm(half)[0]
            own, _ = log_pooling_df(log_nu, self.priors["pooling_df"])
            return np.asarray(own + norm - half * off.sum(-1))

        return slice_wide(of_nu, point.log_nu, rng), slice_wide(of_t, point.log_t, rng)

    def _s_given(
        self, point: Point, log_nu: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return log s_0 (b, q), and what groups differ by (b, q, G) from it."""
        half = 0.5 * np.exp(log_nu)

        def off(log_s: FloatArray) -> FloatArray:
            return np.asarray(point.off_variance + 2.0 * (point.log_s - log_s)[..., None])

        def density(log_s: FloatArray) -> FloatArray:
            own, _ = log_half_t(log_s, HALF_T_DF, self.residual_scale)
            each = off(log_s)
            return np.asarray(own - half * (each + np.expm1(-each)).sum(-1))

        with np.errstate(over="ignore"):
            log_s = slice_wide(density, point.log_s, rng)
        return log_s, off(log_s)

    def _core_given(
        self, point: Point, log_t: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return core (b, s), normal for each row."""
        core = point.core.copy()
        precision = np.exp(-2.0 * self._log_sd(point.log_variance)) / self.kappa**2
        of_groups = np.exp(-2.0 * log_t)
        values = self._values_of(point)
        for j in np.flatnonzero(self.sloped):
            own = np.flatnonzero(self.row == j)
            earlier = values[:, self.column[own]] * self.shrunken[j]
            matrix = precision[:, j, None, None] * earlier @ earlier.swapaxes(1, 2)
            prior = self.unit[own] ** -2.0 + self.groups * of_groups[:, j, None]
            matrix = matrix + prior[..., None] * np.eye(own.size)
            whole = (point.off_slopes[:, own] + point.core[:, own, None]).sum(-1)
            linear = of_groups[:, j, None] * whole
            linear = linear + precision[:, j, None] * (earlier @ values[:, j, :, None])[..., 0]
            core[:, own] = normal_from_precision(
                matrix, linear, rng.standard_normal(linear.shape)
            )
        return core


def _beyond(values: FloatArray, limit: float) -> BoolArray:
    """Return which points (b,) have values (b, ...) that are no numbers within a limit."""
    largest = np.abs(values.reshape(len(values), -1)).max(1, initial=0.0)
    return np.asarray(~(largest <= limit))


def log_gamma_norm(half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return h log h - h - log gamma(h), and its slope in log h, without cancellation."""
    large = half > LARGE_SHAPE
    h = np.where(large, 1.0, half)
    series = 1.0 / (12.0 * half)
    exact = h * np.log(h) - h - gammaln(h)
    value = np.where(large, 0.5 * np.log(half / (2.0 * np.pi)) - series, exact)
    slope = np.where(large, 0.5 + series, h * (np.log(h) - digamma(h)))
    return value, slope


def log_pooling_df(log_nu: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Return the log density of log nu, up to a constant, and its slope.

    nu: half-Cauchy of a scale, times exp(-nu / ``MOST_NU``).
    """
    density, slope = log_half_t(log_nu, 1.0, scale)
    beyond = np.exp(np.clip(log_nu, -150.0, 150.0)) / MOST_NU
    return density - beyond, slope - beyond
