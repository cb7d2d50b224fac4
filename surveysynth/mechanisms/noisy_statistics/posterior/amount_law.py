"""The distribution of noisy sums and squares given means and covariances, without categories.

Formulas in strict 2, "Distribution of one block", in the axes of each group's G = A' diag(n) A;
names in comments are of that page."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable, PairProducts

#: Share of a group's largest eigenvalue below which an axis is zero but for rounding.
ROUNDING = 1e-9


class AmountLaw:
    """log p(T~, Q~ | means, covariances) of all groups, for b points at once, with its gradient."""

    def __init__(self, table: NoisyTable) -> None:
        (pattern,) = table.patterns
        self.cells, self.noise = table.cells, table.sum_variance
        sizes = np.where(self.cells >= 0, table.sizes[self.cells], 0)
        rows = pattern.rows[:, :, 0]  # (G, Cg, r)
        gram = rows.swapaxes(-1, -2) @ (sizes[..., None] * rows)
        size, axes = np.linalg.eigh(gram)
        there = size > ROUNDING * size.max(initial=1e-300)
        #: Eigenvalues (G, r), their inverses, and 1 where there is an axis.
        self.size = np.where(there, size, 0.0)
        self.inverse = np.where(there, 1.0 / np.where(there, size, 1.0), 0.0)
        self.there = there.astype(np.float64)
        #: Means along axes from those of cells (G, r, Cg): rows times the axes' means are theirs.
        self.along = axes.swapaxes(-1, -2) @ np.linalg.pinv(rows)
        self.sums = axes.swapaxes(-1, -2) @ pattern.sums
        self.centers, self.squares = pattern.centers, pattern.upper
        self.freedom = sizes.sum(1) - there.sum(1).astype(np.float64)
        self.square_noise = table.square_noise(pattern)
        self.pairs = PairProducts(pattern.present.size)

    def __call__(
        self, means: FloatArray, covariance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log densities (b,) and gradients in means (b, C, q) and covariances (b, G, q, q).

        Both are in spreads, means about the common center. The gradient in a covariance is
        symmetric.
        """
        noise, eye, pairs = self.noise, np.eye(means.shape[-1]), self.pairs
        first, second = pairs.first, pairs.second
        size, inverse = self.size[..., None], self.inverse[..., None, None]
        at_axes = self.along @ (means[:, self.cells] - self.centers[:, None])
        spread = size[..., None] * covariance[:, :, None] + noise * eye
        spread_inverse = np.linalg.inv(spread)
        gap = self.sums - size * at_axes
        scaled = (spread_inverse @ gap[..., None])[..., 0]
        value = self.there * ((gap * scaled).sum(-1) + np.linalg.slogdet(spread)[1])

        known = self.sums - noise * scaled  # m
        left = noise * eye - noise**2 * spread_inverse  # V
        outer = known[..., :, None] * known[..., None, :]
        both = outer + left
        expected = self.freedom[:, None, None] * covariance + (inverse * both).sum(2)
        spread_of = self.freedom[:, None, None] * pairs.of(covariance)
        spread_of += (inverse**2 * (pairs.of(both) - pairs.of(outer))).sum(2)
        spread_of[..., pairs.diagonal, pairs.diagonal] += self.square_noise
        of_inverse = np.linalg.inv(spread_of)
        off = self.squares - expected[..., first, second]
        weighted = (of_inverse @ off[..., None])[..., 0]
        distance, (sign, log_size) = (off * weighted).sum(-1), np.linalg.slogdet(spread_of)
        # Where rounding leaves no covariance there is no density.
        of_squares = np.where((distance >= 0) & (sign > 0), distance + log_size, np.inf)

        # Gradients in E[Q | T~] and Cov[Q | T~], and what follows for m, V, S and M.
        in_mean = pairs.spread(weighted)
        pull = pairs.gradient(
            0.5 * (weighted[..., :, None] * weighted[..., None, :] - of_inverse)
        )
        in_covariance = self.freedom[:, None, None] * (in_mean + pull(covariance))
        in_left = inverse * in_mean[:, :, None] + inverse**2 * pull(both)
        in_outer = in_left - inverse**2 * pull(outer)
        in_scaled = -2.0 * noise * (in_outer @ known[..., None])[..., 0]
        in_gap = (spread_inverse @ in_scaled[..., None])[..., 0]
        crossed = in_gap[..., :, None] * scaled[..., None, :]
        there = self.there[..., None]
        in_spread = (
            0.5 * there[..., None] * (scaled[..., :, None] * scaled[..., None, :] - spread_inverse)
            - 0.5 * (crossed + crossed.swapaxes(-1, -2))
            + noise**2 * spread_inverse @ in_left @ spread_inverse
        )
        in_covariance += (size[..., None] * in_spread).sum(2)
        in_axes = size * (there * scaled - in_gap)
        in_means = np.zeros_like(means)
        in_cells = self.along.swapaxes(-1, -2) @ in_axes
        own = self.cells >= 0
        in_means[:, self.cells[own]] = in_cells[:, own]
        return -0.5 * (value.sum(-1) + of_squares).sum(-1), in_means, in_covariance
