"""Coefficients of one regression of the general location model in B chains (methods 4)."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.general_location.layout import RegressionPart
from surveysynth.models.general_location.stats import GroupRows, solution
from surveysynth.models.parts.coefficients import overdispersion
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Share of a precision that is below what rounding leaves of it.
ROUNDING = 1e-12


class Coefficients:
    """Coefficients of one regression in B chains.

    core (B, C): c on x~, then b on residuals of earlier columns; slopes (B, g, k): what groups add
    to b, k = 0 without groups. Rows are those of ``Regressions``: x (B, g', m, columns of x~) and
    there (B, g', m, 1) are those of the records that have the column.
    """

    def __init__(
        self,
        part: RegressionPart,
        rows: GroupRows,
        residual: FloatArray,
        grouped: bool,
        rng: Streams,
    ) -> None:
        """Set starts, given the residuals (B, g', m, q) of earlier columns."""
        self.part, self.rng, self.size = part, rng, part.columns.size
        self.batch, self.groups = rows.total.shape[:2]
        self.k = part.earlier.size if grouped else 0
        self.slopes = np.zeros((self.batch, self.groups, self.k))
        self.observe(rows)
        # Overdispersed starts about the least-squares fit.
        u = self._flat(np.concatenate([self.x, self._earlier(residual)], axis=-1))
        gram = u.swapaxes(-1, -2) @ u
        z = self._flat(self.z[..., None])
        fit = solution(gram, (u.swapaxes(-1, -2) @ z)[..., 0])
        total = rows.total[..., part.position].sum(1)
        self.spread = _spread(z[..., 0], (u @ fit[..., None])[..., 0], total)
        noise = overdispersion(gram, rng, 1)[:, :, 0]
        self.core = fit + noise * np.sqrt(self.spread)[:, None]

    def observe(self, rows: GroupRows) -> None:
        """Take rows, which may change between sweeps."""
        part = self.part
        self.there = rows.present[..., part.position, None].astype(np.float64)
        self.x = rows.x[..., part.columns] * self.there
        self.z = rows.z[..., part.position] * self.there[..., 0]

    @property
    def about_mean(self) -> FloatArray:
        """Residuals (B, g', m) of the column about x~ c."""
        return self.z - self._fitted(self.x, self.core[:, : self.size])

    def _earlier(self, residual: FloatArray) -> FloatArray:
        """Return the residuals (B, g', m, k) of earlier columns."""
        return np.asarray(residual[..., self.part.earlier] * self.there, dtype=np.float64)

    def _flat(self, rows: FloatArray) -> FloatArray:
        return rows.reshape(self.batch, rows.shape[1] * rows.shape[2], rows.shape[3])

    def _fitted(self, rows: FloatArray, coefficients: FloatArray) -> FloatArray:
        """Return rows (B, g', m, c) times coefficients (B, c), (B, g', m)."""
        fitted = self._flat(rows) @ coefficients[..., None]
        return np.asarray(fitted.reshape(rows.shape[:-1]), dtype=np.float64)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, rng = self.batch, self.rng
        self.n_core = rng.standard_normal((c, b, self.core.shape[1]), 1)
        self.n_slopes = rng.standard_normal((c, b, self.groups, self.k), 1)

    def look(self, residual: FloatArray) -> None:
        """Take residuals (B, g', m, q) about means, those of earlier columns as they stay."""
        self.earlier = self._earlier(residual)
        b = self.core[:, self.size :]
        self.left = residual[..., self.part.position] - self._fitted(self.earlier, b)
        if self.k:
            # The axes of the residuals of each group, which turn rows and slopes.
            own = self.earlier[:, : self.groups]
            values, self.vectors = primitives.symmetric_axes(own.swapaxes(-1, -2) @ own)
            self.axes = own @ self.vectors if self.k > 1 else own
            self.values = values

    def expand(
        self,
        precision: FloatArray,
        t: FloatArray,
        later: tuple[FloatArray, FloatArray] | None,
    ) -> None:
        """Expand the log-likelihood about the core: ``precision`` (B, C, C), ``linear`` (B, C).

        The part's own slopes are summed out. precision (B, g'): the regression's 1 / s^2. later
        (B, g', m), of the regressions that see the residual about the mean: minus the second
        derivative in the fitted value of each row, and the first.
        """
        root = np.sqrt(precision)[..., None, None]
        both = np.concatenate([self.x, self.earlier, self.left[..., None]], axis=-1) * root
        if self.k:
            # The inverse root of I + t^2 r r' / s^2 by group.
            own, scaled = both[:, : self.groups], self.axes * root[:, : self.groups]
            values = np.maximum(self.values * precision[:, : self.groups, None], 1e-300)
            less = -np.expm1(-0.5 * np.log1p((t * t)[:, None, None] * values)) / values
            own -= scaled @ (less[..., None] * (scaled.swapaxes(-1, -2) @ own))
        flat = self._flat(both)
        product = flat[..., :-1].swapaxes(-1, -2) @ flat
        self.precision, self.linear = product[..., :-1], product[..., -1]
        if later is not None:
            weight, score = (each.reshape(self.batch, -1, 1) for each in later)
            x, size = self._flat(self.x), self.size
            product = x.swapaxes(-1, -2) @ np.concatenate([x * weight, score], axis=-1)
            self.precision[:, :size, :size] += product[..., :-1]
            self.linear[:, :size] += product[..., -1]

    def along(self, direction: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return minus the second and the first derivative (B,) along a direction (B, C)."""
        turned = (self.precision @ direction[..., None])[..., 0]
        return (direction * turned).sum(-1), (direction * self.linear).sum(-1)

    def draw(self, i: int, prior: FloatArray) -> FloatArray:
        """Draw the core under prior precisions (B, C); return the change of x~ c (B, g', m)."""
        # A trifle on the diagonal, which rounding may have left without a root.
        more = prior + ROUNDING * np.einsum("bii->bi", self.precision)
        precision = self.precision + more[..., None] * np.eye(self.core.shape[1])
        linear = self.linear - prior * self.core
        shift = primitives.normal_from_precision(precision, linear, self.n_core[i])
        self.core = self.core + shift
        moved = self._fitted(self.x, shift[:, : self.size])
        self.left = self.left - moved - self._fitted(self.earlier, shift[:, self.size :])
        return moved

    def times_x(self, rows: FloatArray) -> FloatArray:
        """Return sums (B, columns of x~, c) of x~ times rows (B, g', m, c)."""
        return np.asarray(self._flat(self.x).swapaxes(-1, -2) @ self._flat(rows), dtype=np.float64)

    def shifted(self, shift: FloatArray) -> FloatArray:
        """Add to the coefficients on x~; return the change of x~ c (B, g', m)."""
        mean, slopes = self.core[:, : self.size] + shift, self.core[:, self.size :]
        self.core = np.concatenate([mean, slopes], axis=1)
        return self._fitted(self.x, shift)

    def slope_likelihood(self, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood of each group's slopes, in coordinates where it separates.

        That is curvatures and squares of the slopes at zero, (B, g k) both, given 1 / s^2 (B, g').
        """
        own = precision[:, : self.groups, None]
        self.curvature = self.values * own
        left = self.left[:, : self.groups, :, None]
        self.turned = (self.axes.swapaxes(-1, -2) @ left)[..., 0] * own
        flat = (self.batch, self.groups * self.k)
        return self.curvature.reshape(flat), (self.turned * self.turned).reshape(flat)

    def draw_slopes(self, i: int, t: FloatArray) -> None:
        """Draw the slopes of every group."""
        precision = self.curvature + (1.0 / (t * t))[:, None, None]
        drawn = self.turned / precision + self.n_slopes[i] / np.sqrt(precision)
        self.slopes = (self.vectors @ drawn[..., None])[..., 0] if self.k > 1 else drawn


def _spread(z: FloatArray, fitted: FloatArray, total: FloatArray) -> FloatArray:
    """Approximate the residual variance (B,) of rows z (B, rows), which have weight ``total``.

    After a perfect fit it would be zero and precisions overflow, so a millionth of the mean square
    is added, or one where there are no records.
    """
    mass = np.maximum(total, 1.0)
    squares = ((z - fitted) ** 2).sum(1)
    size = (squares + (fitted * fitted).sum(1)) / mass
    return np.asarray(squares / mass + np.where(size > 1e-290, 1e-6 * size, 1.0))
