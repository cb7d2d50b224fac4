"""Effects of PSUs on the columns of z of the general location model (methods 3.5).

z less the effects of PSUs has the regressions of the model without PSUs. So their sampler takes
rows with the moments of z - a, and the effects are normal given the regressions. Moments of z - a
follow from those of z by sums by PSU. All are taken about a fit, so that no digits are lost.
"""

from collections.abc import Sequence

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.general_location.psu_sums import PatternSums, PsuSums
from surveysynth.models.general_location.stats import GroupRows
from surveysynth.models.parts.pairs import sum_by

#: Share of a sum of squares that rounding may leave of zero.
_ROUNDING = 1e-13


class AmountSums:
    """Sums of B = databases x chains by pattern k of present columns.

    With A^(1/2) X~ = Q x, x (B, k, W, W), these are z = Q'A^(1/2) Z (B, k, W, q), unit (B, k, W, C)
    the same of the indicators of PSUs, and what x leaves: scatter (B, k, q, q) of z, and residual
    (B, k, C, q), sums by PSU. total (B, k, C): sums of alpha; present (k, q).

    between: of all chains. A shift s adds D s to coefficients and takes ``along`` s from effects.
    Rows of X~ D less along have the moments within (B, k, r, r); shifted (B, k, W, r) is x D less
    along.
    """

    def __init__(self, psus: Sequence[PsuSums], between: BetweenDirections) -> None:
        found = sorted({tuple(each.present) for psu in psus for each in psu.patterns})
        self.present = np.array(found, dtype=bool)
        width, count = psus[0].patterns[0].x.shape[1], psus[0].count
        lead, q = (len(psus), len(found)), self.present.shape[1]
        x, z = np.zeros((*lead, width, width)), np.zeros((*lead, width, q))
        unit, scatter = np.zeros((*lead, width, count)), np.zeros((*lead, q, q))
        residual, total = np.zeros((*lead, count, q)), np.zeros((*lead, count))
        for b, psu in enumerate(psus):
            for each in psu.patterns:
                at = b, found.index(tuple(each.present))
                x[at], z[at], unit[at], scatter[at], residual[at] = _turned(each, count)
                total[at] = sum_by(each.psu, each.mass, count)
        self.x, self.z, self.unit, self.scatter, self.residual, self.total = (
            np.repeat(each, len(between.mean) // len(psus), axis=0)
            for each in (x, z, unit, scatter, residual, total)
        )
        self.along = along = between.along[:, None]
        directions = between.coefficients
        of_units = self.unit @ along
        self.shifted = self.x[..., : len(directions)] @ directions - of_units
        within = along.swapaxes(-1, -2) @ (self.total[..., None] * along)
        within = within - of_units.swapaxes(-1, -2) @ of_units
        self.within = within + self.shifted.swapaxes(-1, -2) @ self.shifted
        mask = self.present.astype(np.float64)
        self.mask, self.both = mask, mask[:, :, None] * mask[:, None, :]

    def rows(self, effects: FloatArray) -> GroupRows:
        """Return rows with the moments of x~ and of z less the effects (B, C, q)."""
        a = effects[:, None] * self.mask[:, None]
        moved = self.unit @ a
        z = self.z - moved
        cross = self.residual.swapaxes(-1, -2) @ a
        added = a.swapaxes(-1, -2) @ (self.total[..., None] * a)
        scatter = self.scatter - cross - cross.swapaxes(-1, -2)
        scatter = scatter + added - moved.swapaxes(-1, -2) @ moved
        terms = self.scatter + added
        squares = np.einsum("bkqq->bkq", terms) + (self.z * self.z).sum(-2)
        # An absent column has a root of one, which is not kept.
        least = np.where(self.present, _ROUNDING * squares + 1e-280, 1.0)
        scatter = scatter * self.both + least[..., None] * np.eye(least.shape[-1])
        root = np.linalg.cholesky(scatter).swapaxes(-1, -2) * self.mask[:, None]
        return self._as_rows(np.concatenate([z, root], axis=-2))

    def _as_rows(self, z: FloatArray) -> GroupRows:
        batch, _, m, q = z.shape
        empty = np.zeros((*z.shape[:2], q, self.x.shape[-1]))
        x = np.concatenate([self.x, empty], axis=-2).reshape(batch, 1, -1, self.x.shape[-1])
        present = np.repeat(self.present, m, axis=0)
        total = self.total.sum(-1) @ self.mask
        shape = batch, 1, len(present), q
        return GroupRows(
            x, z.reshape(shape), np.broadcast_to(present, shape), total[:, None]
        )

    def precision(self, slopes: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the precision (B, k, q, q) of z given x~ and effects, zero where absent.

        slopes (B, q, q) on earlier columns; variance (B, q).
        """
        turned = (np.eye(slopes.shape[-1]) - slopes)[:, None] * self.both
        scaled = turned / variance[:, None, :, None]
        return np.asarray(turned.swapaxes(-1, -2) @ scaled, dtype=np.float64)

    def likelihood(
        self, means: FloatArray, precision: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood of effects (B, C, q): linear term, and precision (B, C, q, q).

        means (B, W, q): coefficients on x~; precision as of ``precision``.
        """
        left = self.unit.swapaxes(-1, -2) @ (self.z - self.x @ means[:, None]) + self.residual
        return (left @ precision).sum(1), np.einsum("bkc,bkij->bcij", self.total, precision)

    def shift_likelihood(
        self, j: int, effects: FloatArray, means: FloatArray, precision: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood of a shift of column j: precision (B, r, r), linear term (B, r).

        effects (B, C, q); the others as in ``likelihood``.
        """
        a = effects[:, None]
        moved = self.unit @ a
        left = self.z - self.x @ means[:, None] - moved
        outside = self.residual - self.total[..., None] * a + self.unit.swapaxes(-1, -2) @ moved
        score = self.shifted.swapaxes(-1, -2) @ left - self.along.swapaxes(-1, -2) @ outside
        own = precision[..., j, j, None, None] * self.within
        return own.sum(1), (score @ precision[..., j, None])[..., 0].sum(1)


def _turned(
    each: PatternSums, count: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return x, z, unit, scatter and residual of one pattern."""
    root = np.sqrt(each.mass)[:, None]
    width = each.x.shape[1]
    # Zero rows, so that there are no fewer than columns.
    short = max(width - len(root), 0)
    q, x = np.linalg.qr(np.vstack([root * each.x, np.zeros((short, width))]))
    q = q[: len(root)]
    z = q.T @ (root * each.mean)
    left = root * each.mean - q @ z
    unit = np.stack([sum_by(each.psu, column, count) for column in (root * q).T])
    residual = [sum_by(each.psu, column, count) for column in (root * left).T]
    return x, z, unit, left.T @ left + each.scatter, np.stack(residual, axis=1)
