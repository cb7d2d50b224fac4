"""The distribution of noisy counts, sums and squares given a mixture over categories.

Formulas in strict 2, "Distribution with categories", except that the variance within rows has n+,
the positive part of n^ rounded off where it is below one, instead of w: sums that a model does not
fit would draw probabilities to where their variance is larger, although counts are known."""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import (
    NoisyPattern,
    NoisyTable,
    PairProducts,
)

#: Numbers in the largest array that is held at once.
LARGEST = 2**22


@dataclass(frozen=True)
class Counts:
    """Moments of the true counts given the noisy ones, (b, C, D) each but for ``total`` (b, C).

    weight: w; precision: 1 / (w + v); share: h; total (b, C): H; off: N~ - w; along (b, C): h'off;
    mean: n^; likely: n+; variance: the diagonal part of C; factor (b, C): v n / H.
    """

    p: FloatArray
    weight: FloatArray
    precision: FloatArray
    share: FloatArray
    total: FloatArray
    off: FloatArray
    along: FloatArray
    mean: FloatArray
    likely: FloatArray
    variance: FloatArray
    factor: FloatArray


@dataclass
class CountGradients:
    """Gradients in the members of ``Counts`` of the same names, added up over patterns."""

    likely: FloatArray
    share: FloatArray
    mean: FloatArray
    variance: FloatArray
    factor: FloatArray

    @classmethod
    def zeros(cls, counts: Counts) -> "CountGradients":
        """Return zeros."""
        likely, share, mean, variance = np.zeros((4, *counts.p.shape))
        return cls(likely, share, mean, variance, np.zeros_like(counts.total))


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
            0.5 * (mean + np.hypot(mean, 1.0)), v * weight * precision, v * n[:, 0] / total[..., 0],
        )  # fmt: skip
        return -0.5 * (squares + log_size).sum(-1), counts

    def gradient(self, counts: Counts, given: CountGradients) -> FloatArray:
        """Return the gradient (b, C, D) in log p, of the log density and of what follows."""
        n, v = self.sizes, self.noise
        share, precision, off = counts.share, counts.precision, counts.off
        total, along = counts.total[..., None], counts.along[..., None]
        # The positive part of n^ has the slope n+ / (2 n+ - n^).
        in_mean = given.mean + given.likely * counts.likely / np.hypot(counts.mean, 1.0)
        together = (in_mean * share).sum(-1, keepdims=True)
        in_along = -n * (together + along / v) / total
        in_total = n * along * (together + 0.5 * along / v) / total**2 - 0.5 / total
        in_total -= given.factor[..., None] * v * n / total**2
        in_off = -(v * in_mean + off) * precision + in_along * share
        in_share = given.share - n * in_mean * along / total + in_along * off + in_total
        # In w + v, then in w.
        in_size = (v * off * in_mean + 0.5 * off * off) * precision**2 - 0.5 * precision
        in_size -= given.variance * v * counts.weight * precision**2
        in_size -= in_share * counts.p * precision**2
        in_weight = given.variance * v * precision - in_off + in_size
        return np.asarray((in_share * precision + n * in_weight) * counts.p)


@dataclass(frozen=True)
class Rows:
    """Rows j = (c, d) of one pattern in some groups: J rows a group, m = r q + k moments of each.

    a (g, J, r); u (b, g, J, q): means; weight, share, mean, variance (b, g, J): of ``Counts``, zero
    beyond the cells of a group; factor (b, g, Cg, 1); f (b, g, J, m); common (b, g, Cg, m): sums
    of share f; total, design, along, outer: sums over rows of w, w a a', w a u' and w u u'.
    """

    a: FloatArray
    covariance: FloatArray
    u: FloatArray
    weight: FloatArray
    share: FloatArray
    mean: FloatArray
    variance: FloatArray
    factor: FloatArray
    f: FloatArray
    common: FloatArray
    total: FloatArray
    design: FloatArray
    along: FloatArray
    outer: FloatArray


class PatternLaw:
    """log p(T~, Q~ | N~) of one pattern in all groups."""

    def __init__(self, table: NoisyTable, pattern: NoisyPattern) -> None:
        self.table, self.pattern = table, pattern
        self.pairs = PairProducts(pattern.present.size)
        groups, cells, combinations, self.r = pattern.rows.shape
        self.q, self.depth = pattern.present.size, combinations
        self.a = pattern.rows.reshape(groups, cells * combinations, self.r)
        self.used = np.repeat(table.cells >= 0, combinations, axis=1)
        products = self.a[..., None] * self.a[..., None, :]
        self.products = products.reshape(groups, cells * combinations, -1)
        self.noisy = np.concatenate([pattern.sums.reshape(groups, -1), pattern.upper], axis=1)
        self.noise = np.concatenate(
            [np.full(self.r * self.q, table.sum_variance), table.square_noise(pattern)]
        )
        #: Places of sums and of squares among the moments.
        self.sums, self.squares = slice(self.r * self.q), slice(self.r * self.q, None)
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
        size = means.shape[0] * self.a.shape[1] * self.noise.size**2
        for part in np.array_split(np.arange(len(self.a)), -(-len(self.a) * size // LARGEST)):
            rows = self._rows(part, means, covariance[:, part], counts)
            inverse = np.linalg.inv(spread := self._spread(rows))
            off = self.noisy[part] - (rows.mean[..., None, :] @ rows.f)[..., 0, :]
            scaled = (inverse @ off[..., None])[..., 0]
            distance, (sign, log_size) = (off * scaled).sum(-1), np.linalg.slogdet(spread)
            # Where rounding leaves no covariance there is no density.
            sound = (distance >= 0) & (sign > 0)
            value -= 0.5 * np.where(sound, distance + log_size, np.inf).sum(-1)
            pull = 0.5 * (scaled[..., :, None] * scaled[..., None, :] - inverse)
            own = self._gradient(part, rows, scaled, pull, in_means, in_counts)
            in_covariance[:, part] = 0.5 * (own + own.swapaxes(-1, -2))
        return value, in_covariance

    def _rows(
        self, part: IntArray, means: FloatArray, covariance: FloatArray, counts: Counts
    ) -> Rows:
        """Return the rows of some groups (g,)."""
        cells, a, used = self.table.cells[part], self.a[part], self.used[part]
        batch, of = len(means), self.pattern.combinations

        def chosen(values: FloatArray) -> FloatArray:
            return np.where(used, values[:, cells][..., of].reshape(batch, len(part), -1), 0.0)

        u = means[:, cells][..., of, :][..., self.pattern.present]
        u = u.reshape(batch, len(part), -1, self.q)
        weight, share = chosen(counts.likely), chosen(counts.share)
        second = covariance[:, :, None] + u[..., :, None] * u[..., None, :]
        f = np.concatenate(
            [
                (a[..., :, None] * u[..., None, :]).reshape(*u.shape[:3], -1),
                second[..., self.pairs.first, self.pairs.second],
            ],
            axis=-1,
        )
        weighted = weight[..., None] * u
        design = (weight[:, :, None] @ self.products[part])[:, :, 0]
        return Rows(
            a=a, covariance=covariance, u=u, weight=weight, share=share,
            mean=chosen(counts.mean), variance=chosen(counts.variance),
            factor=np.where(cells >= 0, counts.factor[:, cells], 0.0)[..., None], f=f,
            common=(share[..., None] * f).reshape(batch, *cells.shape, self.depth, -1).sum(3),
            total=weight.sum(-1)[..., None, None],
            design=design.reshape(batch, len(part), self.r, self.r),
            along=a.swapaxes(-1, -2) @ weighted, outer=u.swapaxes(-1, -2) @ weighted,
        )  # fmt: skip

    def _spread(self, rows: Rows) -> FloatArray:
        """Return the covariance (b, g, m, m) of noisy moments given noisy counts."""
        sums, squares, covariance = self.sums, self.squares, rows.covariance
        lead, size = covariance.shape[:2], self.r * self.q
        result = np.zeros((*lead, rows.f.shape[-1], rows.f.shape[-1]))
        # Within rows.
        within = rows.design[..., :, None, :, None] * covariance[:, :, None, :, None]
        result[..., sums, sums] = within.reshape(*lead, size, size)
        first, second = covariance @ self.first.T, covariance @ self.second.T
        mixed = (rows.along @ self.second.T)[..., :, None, :] * first[:, :, None]
        mixed += (rows.along @ self.first.T)[..., :, None, :] * second[:, :, None]
        result[..., sums, squares] = mixed.reshape(*lead, size, -1)
        result[..., squares, sums] = result[..., sums, squares].swapaxes(-1, -2)
        products = self.pairs.of(covariance + rows.outer) - self.pairs.of(rows.outer)
        result[..., squares, squares] = products + (rows.total - 1.0) * self.pairs.of(covariance)
        # Between rows, since counts are not known.
        result += rows.f.swapaxes(-1, -2) @ (rows.variance[..., None] * rows.f)
        result -= rows.common.swapaxes(-1, -2) @ (rows.factor * rows.common)
        diagonal = np.arange(rows.f.shape[-1])
        result[..., diagonal, diagonal] += self.noise
        return np.asarray(result)

    def _gradient(
        self,
        part: IntArray,
        rows: Rows,
        scaled: FloatArray,
        pull: FloatArray,
        in_means: FloatArray,
        in_counts: CountGradients,
    ) -> FloatArray:
        """Return the gradient in covariances (b, g, q, q), before it is made symmetric.

        scaled (b, g, m) and pull (b, g, m, m): gradients in the mean and covariance of moments.
        """
        r, q, sums, squares = self.r, self.q, self.sums, self.squares
        u, f, covariance, lead = rows.u, rows.f, rows.covariance, rows.covariance.shape[:2]
        # Between rows: in f, in counts, and in factors.
        pulled, common = f @ pull, rows.common @ pull
        in_common = np.repeat(-2.0 * rows.factor * common, self.depth, axis=2)
        in_f = rows.mean[..., None] * scaled[:, :, None] + rows.share[..., None] * in_common
        in_f += 2.0 * rows.variance[..., None] * pulled
        # Within rows: of sums, of sums with squares, and of squares.
        of_sums = pull[..., sums, sums].reshape(*lead, r, q, r, q).swapaxes(3, 4)
        of_sums = of_sums.reshape(*lead, r * r, q * q)
        in_design = of_sums @ covariance.reshape(*lead, q * q, 1)
        result = (rows.design.reshape(*lead, 1, r * r) @ of_sums).reshape(covariance.shape)
        of_mixed = 2.0 * pull[..., sums, squares].reshape(*lead, r, q, -1)
        in_along = (of_mixed * (covariance @ self.first.T)[:, :, None]).sum(3) @ self.second
        in_along += (of_mixed * (covariance @ self.second.T)[:, :, None]).sum(3) @ self.first
        result += (of_mixed * (rows.along @ self.second.T)[..., None, :]).sum(2) @ self.first
        result += (of_mixed * (rows.along @ self.first.T)[..., None, :]).sum(2) @ self.second
        act = self.pairs.gradient(of_squares := pull[..., squares, squares])
        in_outer = act(covariance)
        in_total = (of_squares * self.pairs.of(covariance)).sum((-1, -2))
        result += rows.total * in_outer + act(rows.outer)
        # From f and these sums to means, covariances and expected counts.
        in_second = self.pairs.spread(in_f[..., squares])
        result += in_second.sum(2)
        turned, pushed = u @ in_outer, rows.a @ in_along
        in_u = 2.0 * (in_second @ u[..., None])[..., 0]
        in_u += rows.weight[..., None] * (2.0 * turned + pushed)
        in_u += (rows.a[..., None, :] @ in_f[..., sums].reshape(*u.shape[:3], r, q))[..., 0, :]
        in_weight = in_total[..., None] + (self.products[part] @ in_design)[..., 0]
        in_weight += ((turned + pushed) * u).sum(-1)
        group, place = np.nonzero(self.table.cells[part] >= 0)
        cell = self.table.cells[part][group, place]
        at = np.ix_(np.arange(len(u)), cell, self.pattern.combinations)

        def by_cell(values: FloatArray) -> FloatArray:
            """Return (b, cells, D_p, ...) of values (b, g, J, ...)."""
            shape = (*lead, -1, self.depth, *values.shape[3:])
            return np.asarray(values.reshape(shape)[:, group, place])

        in_means[np.ix_(*map(np.ravel, at), self.pattern.present)] += by_cell(in_u)
        in_counts.likely[at] += by_cell(in_weight)
        in_counts.share[at] += by_cell((f * in_common).sum(-1))
        in_counts.mean[at] += by_cell((f @ scaled[..., None])[..., 0])
        in_counts.variance[at] += by_cell((f * pulled).sum(-1))
        in_counts.factor[:, cell] -= (common * rows.common).sum(-1)[:, group, place]
        return np.asarray(result)


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
