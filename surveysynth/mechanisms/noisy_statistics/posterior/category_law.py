"""The law of noisy counts, sums and squares given a mixture over categories (strict 7).

The n records of a cell are independent draws of a combination d of categories, and of u given d.
Counts N, sums T and products Q of a cell are sums over its records, and are taken as normal with
their exact moments: counts first, then the moments of each pattern in each group given counts.

    N~ ~ N(n p, n (diag p - p p') + v I)
    N | N~ has the mean n^ = N~ - v (..)^-1 (N~ - n p) and the covariance
    C = diag(v w / (w + v)) - (v n / H) h h',  w = n p, h = p / (w + v), H = sum h
    T~, Q~ | N~ ~ N(sum_d n^_d f_d, sum_d w_d Omega_d + sum C_de f_d f_e' + noise)

with f_d and Omega_d the mean and covariance of (a u', u u') of one record. Without the term with C
the variance of sums about a distant center would be too small.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyPattern, NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.pairs import PairProducts

#: Numbers in the largest array that is held at once.
LARGEST = 2**22


@dataclass(frozen=True)
class Counts:
    """Moments of the true counts given the noisy ones, (b, C, D) each but for ``total`` (b, C).

    weight: w; precision: 1 / (w + v); share: h; total: H; off: N~ - w; mean: n^; variance: the
    diagonal part of C; factor (b, C): v n / H.
    """

    p: FloatArray
    weight: FloatArray
    precision: FloatArray
    share: FloatArray
    total: FloatArray
    off: FloatArray
    along: FloatArray
    mean: FloatArray
    variance: FloatArray
    factor: FloatArray


@dataclass
class CountGradients:
    """Gradients in the members of ``Counts`` of the same names, added up over patterns."""

    weight: FloatArray
    share: FloatArray
    mean: FloatArray
    variance: FloatArray
    factor: FloatArray

    @classmethod
    def zeros(cls, counts: Counts) -> "CountGradients":
        """Return zeros."""
        return cls(*(np.zeros_like(counts.p) for _ in range(4)), np.zeros_like(counts.total))


class CountLaw:
    """log p(N~ | p), and the moments of N given N~."""

    def __init__(self, table: NoisyTable) -> None:
        self.noisy, self.noise = table.counts, table.count_variance
        self.sizes = table.sizes[:, None].astype(np.float64)

    def moments(self, log_p: FloatArray) -> tuple[FloatArray, Counts]:
        """Return the log density (b,), and the moments, at log probabilities (b, C, D)."""
        n, v, p = self.sizes, self.noise, np.exp(log_p)
        weight = n * p
        precision = 1.0 / (weight + v)
        share, off = p * precision, self.noisy - weight
        total, along = share.sum(-1, keepdims=True), (share * off).sum(-1, keepdims=True)
        squares = (off * off * precision).sum(-1) + (n * along**2 / (v * total))[..., 0]
        log_size = np.log(total[..., 0]) - np.log(precision).sum(-1)
        mean = self.noisy - v * off * precision - n * share * along / total
        counts = Counts(
            p, weight, precision, share, total[..., 0], off, along[..., 0], mean,
            v * weight * precision, v * n[:, 0] / total[..., 0],
        )  # fmt: skip
        return -0.5 * (squares + log_size).sum(-1), counts

    def gradient(self, counts: Counts, given: CountGradients) -> FloatArray:
        """Return the gradient (b, C, D) in log p, of the log density and of what follows."""
        n, v = self.sizes, self.noise
        share, precision, off = counts.share, counts.precision, counts.off
        total, along = counts.total[..., None], counts.along[..., None]
        together = (given.mean * share).sum(-1, keepdims=True)
        in_along = -n * (together + along / v) / total
        in_total = n * along * (together + 0.5 * along / v) / total**2 - 0.5 / total
        in_total -= given.factor[..., None] * v * n / total**2
        in_off = -(v * given.mean + off) * precision + in_along * share
        in_share = given.share - n * given.mean * along / total + in_along * off + in_total
        # In w + v, then in w.
        in_size = (v * off * given.mean + 0.5 * off * off) * precision**2 - 0.5 * precision
        in_size -= given.variance * v * counts.weight * precision**2
        in_size -= in_share * counts.p * precision**2
        in_weight = given.weight + given.variance * v * precision - in_off + in_size
        return np.asarray((in_share * precision + n * in_weight) * counts.p)


class PatternLaw:
    """log p(T~, Q~ | N~) of one pattern in all groups."""

    def __init__(self, table: NoisyTable, pattern: NoisyPattern) -> None:
        self.table, self.pattern = table, pattern
        self.pairs = PairProducts(pattern.present.size)
        groups, cells, combinations, self.r = pattern.rows.shape
        self.q = pattern.present.size
        self.rows = pattern.rows.reshape(groups, cells * combinations, self.r)
        self.used = np.repeat(table.cells >= 0, combinations, axis=1)
        self.products = (self.rows[..., None] * self.rows[..., None, :]).reshape(
            groups, cells * combinations, -1
        )
        self.noisy = np.concatenate([pattern.sums.reshape(groups, -1), pattern.upper], axis=1)
        self.noise = np.concatenate(
            [np.full(self.r * self.q, table.sum_variance), table.square_noise(pattern)]
        )
        pairs = np.arange(len(self.pairs.first))
        self.first, self.second = np.zeros((2, pairs.size, self.q))
        self.first[pairs, self.pairs.first] = self.second[pairs, self.pairs.second] = 1.0

    def add(
        self,
        means: FloatArray,
        covariance: FloatArray,
        counts: Counts,
        in_means: FloatArray,
        in_counts: CountGradients,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the log density (b,), and its gradient in covariances (b, G, q_p, q_p).

        means (b, C, D, q). Gradients in these and in counts are added to ``in_means`` and
        ``in_counts``.
        """
        value, in_covariance = np.zeros(len(means)), np.empty_like(covariance)
        size = means.shape[0] * self.rows.shape[1] * self.noise.size**2
        for part in np.array_split(np.arange(len(self.rows)), -(-len(self.rows) * size // LARGEST)):
            own, in_covariance[:, part] = self._add(
                part, means, covariance[:, part], counts, in_means, in_counts
            )
            value += own
        return value, in_covariance

    def _add(
        self,
        part: IntArray,
        means: FloatArray,
        covariance: FloatArray,
        counts: Counts,
        in_means: FloatArray,
        in_counts: CountGradients,
    ) -> tuple[FloatArray, FloatArray]:
        """Do this for some groups (g,); J rows a group, m = r q + k moments of each."""
        r, q, pairs = self.r, self.q, self.pairs
        cells, rows, used = self.table.cells[part], self.rows[part], self.used[part]
        group, place = np.nonzero(cells >= 0)
        cell, of, present = cells[group, place], self.pattern.combinations, self.pattern.present
        batch, sums = len(means), slice(r * q)
        squares = slice(r * q, None)

        def rows_of(values: FloatArray) -> FloatArray:
            """Return (b, g, J) of values (b, C, D), zero beyond the cells of a group."""
            chosen = values[:, cells][..., of].reshape(batch, len(part), -1)
            return np.asarray(np.where(used, chosen, 0.0))

        def by_cell(values: FloatArray) -> FloatArray:
            """Return (b, cells, D_p, ...) of values (b, g, J, ...)."""
            shape = (batch, *cells.shape, of.size, *values.shape[3:])
            return np.asarray(values.reshape(shape)[:, group, place])

        u = means[:, cells][..., of, :][..., present].reshape(batch, len(part), -1, q)
        weight, share, n, variance = map(
            rows_of, (counts.weight, counts.share, counts.mean, counts.variance)
        )
        factor = np.where(cells >= 0, counts.factor[:, cells], 0.0)
        second = covariance[:, :, None] + u[..., :, None] * u[..., None, :]
        f = np.concatenate(
            [
                (rows[..., :, None] * u[..., None, :]).reshape(*u.shape[:3], r * q),
                second[..., pairs.first, pairs.second],
            ],
            axis=-1,
        )
        # Within rows: sums over records of a a', a u' and u u' of means.
        total = weight.sum(-1)[..., None, None]
        design = (weight[:, :, None] @ self.products[part]).reshape(batch, len(part), r, r)
        along = rows.swapaxes(-1, -2) @ (weight[..., None] * u)
        outer = u.swapaxes(-1, -2) @ (weight[..., None] * u)
        product = pairs.of(covariance)
        spread = np.zeros((batch, len(part), f.shape[-1], f.shape[-1]))
        spread[..., sums, sums] = (
            design[..., :, None, :, None] * covariance[:, :, None, :, None]
        ).reshape(batch, len(part), r * q, r * q)
        along_first, along_second = along @ self.first.T, along @ self.second.T
        first, second_ = covariance @ self.first.T, covariance @ self.second.T
        mixed = (
            along_second[..., :, None, :] * first[..., None, :, :]
            + along_first[..., :, None, :] * second_[..., None, :, :]
        ).reshape(batch, len(part), r * q, -1)
        spread[..., sums, squares] = mixed
        spread[..., squares, sums] = mixed.swapaxes(-1, -2)
        spread[..., squares, squares] = (
            (total - 1.0) * product + pairs.of(covariance + outer) - pairs.of(outer)
        )
        # Between rows, since counts are not known.
        by_combination = (batch, *cells.shape, of.size, -1)
        common = (share[..., None] * f).reshape(by_combination).sum(3)
        spread += f.swapaxes(-1, -2) @ (variance[..., None] * f)
        spread -= common.swapaxes(-1, -2) @ (factor[..., None] * common)
        diagonal = np.arange(f.shape[-1])
        spread[..., diagonal, diagonal] += self.noise
        inverse = np.linalg.inv(spread)
        off = self.noisy[part] - (n[..., None, :] @ f)[..., 0, :]
        scaled = (inverse @ off[..., None])[..., 0]
        value = -0.5 * ((off * scaled).sum(-1) + np.linalg.slogdet(spread)[1]).sum(-1)

        pull = 0.5 * (scaled[..., :, None] * scaled[..., None, :] - inverse)
        pulled = f @ pull
        in_common = -2.0 * factor[..., None] * (common @ pull)
        in_common_rows = np.repeat(in_common, of.size, axis=2)
        in_f = (
            n[..., None] * scaled[:, :, None]
            + 2.0 * variance[..., None] * pulled
            + share[..., None] * in_common_rows
        )
        # Within rows.
        of_sums = pull[..., sums, sums].reshape(batch, len(part), r, q, r, q).swapaxes(3, 4)
        of_sums = of_sums.reshape(batch, len(part), r * r, q * q)
        in_design = of_sums @ covariance.reshape(batch, len(part), q * q, 1)
        in_covariance = (design.reshape(batch, len(part), 1, r * r) @ of_sums).reshape(
            covariance.shape
        )
        of_mixed = 2.0 * pull[..., sums, squares].reshape(batch, len(part), r, q, -1)
        in_along = (of_mixed * first[:, :, None]).sum(3) @ self.second
        in_along += (of_mixed * second_[:, :, None]).sum(3) @ self.first
        in_covariance += (of_mixed * along_second[..., None, :]).sum(2) @ self.first
        in_covariance += (of_mixed * along_first[..., None, :]).sum(2) @ self.second
        of_squares = pull[..., squares, squares]
        act = pairs.gradient(of_squares)
        in_outer = act(covariance)
        in_total = (of_squares * product).sum((-1, -2))
        in_covariance += total * in_outer + act(outer)
        # In f, and so in means and covariances.
        in_second = pairs.spread(in_f[..., squares])
        in_covariance += in_second.sum(2)
        turned, pushed = u @ in_outer, rows @ in_along
        in_u = 2.0 * (in_second @ u[..., None])[..., 0] + weight[..., None] * (2.0 * turned + pushed)
        in_u += (rows[..., None, :] @ in_f[..., sums].reshape(*u.shape[:3], r, q))[..., 0, :]
        in_weight = in_total[..., None] + (self.products[part] @ in_design)[..., 0]
        in_weight += ((turned + pushed) * u).sum(-1)
        of_cells = np.ix_(np.arange(batch), cell, of)
        in_means[np.ix_(np.arange(batch), cell, of, present)] += by_cell(in_u)
        in_counts.weight[of_cells] += by_cell(in_weight)
        in_counts.share[of_cells] += by_cell((f * in_common_rows).sum(-1))
        in_counts.mean[of_cells] += by_cell((f @ scaled[..., None])[..., 0])
        in_counts.variance[of_cells] += by_cell((f * pulled).sum(-1))
        in_counts.factor[:, cell] -= ((common @ pull) * common).sum(-1)[:, group, place]
        return value, 0.5 * (in_covariance + in_covariance.swapaxes(-1, -2))


class CategoryLaw:
    """log p(N~, T~, Q~ | probabilities, means, covariances) for b points, with its gradient."""

    def __init__(self, table: NoisyTable) -> None:
        self.counts = CountLaw(table)
        self.patterns = [PatternLaw(table, each) for each in table.patterns]

    def __call__(
        self, log_p: FloatArray, means: FloatArray, covariances: list[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray, list[FloatArray]]:
        """Return log densities (b,) and gradients in all arguments.

        log_p (b, C, D); means (b, C, D, q) in spreads about the common center; covariances
        (b, G, q_p, q_p) of the columns of each pattern. Gradients in these are symmetric.
        """
        value, counts = self.counts.moments(log_p)
        in_counts, in_means = CountGradients.zeros(counts), np.zeros_like(means)
        in_covariances = []
        for law, covariance in zip(self.patterns, covariances, strict=True):
            own, gradient = law.add(means, covariance, counts, in_means, in_counts)
            value = value + own
            in_covariances.append(gradient)
        return value, self.counts.gradient(counts, in_counts), in_means, in_covariances
