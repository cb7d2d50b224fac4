"""Estimate how much PSUs differ, given a fit that ignores them and noisy products between them.

Strict 9, "Units": what B adds to sums of cells is h'K h in deviations from the means of cells, with
public K, under h = mean_c + J_c a_j + e. Given the covariance S of the effects that are in the
sample, W that of e, and Gamma_j = Jbar_j S Jbar_j', it is taken as normal with the exact

    mean        sum_j f_j Gamma_j
    covariance  t_0 P(W) + t_1 [P(W + Gamma) - P(W) - P(Gamma)] + linear + noise

with P as in ``PairProducts``, of entries that were released, and means over PSUs of W and Gamma;
linear is what K leaves between means of cells. Of h'K h effects alone have the covariance
t_2 P(Gamma)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable, PairProducts
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.unit_products import UnitProducts
from surveysynth.models.gaussian.blocks import HALF_T_DF
from surveysynth.models.general_location.layout import (
    Layout,
    RegressionPart,
    log_shares,
    residual_covariances,
    shares,
)
from surveysynth.models.general_location.simulate import drawn
from surveysynth.models.units import LOGISTIC_VARIANCE, PSU_COVARIANCE
from surveysynth.sampling.hmc import HamiltonianChains, find_mode, whitening_at
from surveysynth.sampling.primitives import log_half_t
from surveysynth.survey.survey import PublicDesign


@dataclass(frozen=True, eq=False)
class CellMoments:
    """By cell of X: mean (G, H) of h, its slope (G, H, D) on effects, covariance (G, H, H)."""

    mean: FloatArray
    slope: FloatArray
    covariance: FloatArray

    @classmethod
    def of(
        cls, theta: Theta, shape: LocationShape, centre: FloatArray, spread: FloatArray
    ) -> "CellMoments":
        """Return the moments at one draw theta, effects of all PSUs being zero."""
        share, scores = _shares(theta, shape)
        there = shape.present_in.astype(np.float64)
        u = (_means(theta, shape) - centre) / spread * there
        flags = np.broadcast_to(shape.flags, (len(u), *shape.flags.shape))
        h = np.concatenate([u, flags], axis=-1)
        weighted = (h * share[..., None]).swapaxes(-1, -2)
        mean = weighted.sum(-1)
        covariance = weighted @ h - mean[:, :, None] * mean[:, None]
        q = shape.q
        covariance[:, :q, :q] += _within(theta, shape, share) / (spread[:, None] * spread)
        slope = np.zeros((*mean.shape, scores.shape[-1] + q))
        slope[..., : scores.shape[-1]] = weighted @ scores
        own = np.arange(q)
        slope[:, own, scores.shape[-1] + own] = (share @ there) / spread
        return cls(mean, slope, covariance)


def _shares(theta: Theta, shape: LocationShape) -> tuple[FloatArray, FloatArray]:
    """Return p(d | x) (G, D) and the scores (G, D, E) of effects on log odds."""
    k, layout = shape.x_cells.shape[1], shape.layout
    size = len(shape.x_cells), len(shape.combinations)
    log_share, scores = np.zeros(size), [np.zeros((*size, 0))]
    for part in layout.logits:
        b = theta[f"logit_{part.name}"]
        eta = (shape.x_cells @ b[:k])[:, None]
        eta = eta + shape.indicators[:, part.columns[k:] - k] @ b[k:]
        log_p = log_shares(eta)
        category = shape.combinations[:, part.outcome]
        log_share += np.take_along_axis(
            log_p, np.broadcast_to(category[:, None], (size[0], size[1], 1)), axis=-1
        )[..., 0]
        flags = category[:, None] == 1 + np.arange(part.own.size)
        scores.append(flags - np.exp(log_p[..., 1:]))
    return np.exp(log_share), np.concatenate(scores, axis=-1)


def _means(theta: Theta, shape: LocationShape) -> FloatArray:
    """Return the means (G, D, q) of columns of z given x and d."""
    k = shape.x_cells.shape[1]
    means = np.zeros((len(shape.x_cells), len(shape.combinations), shape.q))
    for part in shape.layout.regressions:
        core = theta[f"coefficients_{part.name}"][: part.columns.size]
        own = part.columns >= k
        mean = shape.indicators[:, part.columns[own] - k] @ core[own]
        deviations = theta.get(f"deviations_{part.name}")
        if deviations is not None and deviations.size:  # of levels by group
            mean = mean + deviations[shape.group] @ shape.indicators.T
        means[..., part.position] = (shape.x_cells @ core[~own])[:, None] + mean
    return means


def _within(theta: Theta, shape: LocationShape, share: FloatArray) -> FloatArray:
    """Return E cov(z | x, d) (G, q, q), zero in columns that are absent."""
    result = np.zeros((len(share), shape.q, shape.q))
    for pattern, there in enumerate(shape.patterns):
        covariance = residual_covariances(theta, shape.layout.regressions, there)
        weight = share[:, shape.pattern == pattern].sum(1)
        result += weight[:, None, None] * covariance[shape.group]
    return result


#: Of one draw of the fit: p (C, D), means (C, D, q), covariances (G, q_p, q_p) in spreads.
CellLaw = tuple[FloatArray, FloatArray, Sequence[FloatArray]]
#: Scale of the half-t prior of SDs of effects, in SDs within units: a correlation of .2.
PRIOR_SCALE = 0.5
#: The same of the log weight, which is often the same for all records of a unit.
WEIGHT_SCALE = 2.0
#: Share of what records vary by that effects leave in any direction, at least.
LEAST_LEFT = 0.05
#: Log SDs of effects in these units lie between these.
LOG_SD = (-12.0, 4.0)
#: Coordinates lie within this distance.
FARTHEST = 50.0
#: Iterations of the search for a mode, rounds of warm-up, and rounds after it.
ITERATIONS, WARMUP, ROUNDS = 200, 90, 30


@dataclass(frozen=True, eq=False)
class UnitWeights:
    """Public numbers of K, from records (C, G) by PSU and cell.

    share (C, G): of the records of a PSU; own (G,): of covariances by cell; between (C,): f_j; t:
    t_0, t_1, t_2.
    """

    records: FloatArray
    share: FloatArray
    own: FloatArray
    between: FloatArray
    t: tuple[float, float, float]

    @classmethod
    def of(cls, records: FloatArray) -> "UnitWeights":
        """Return the numbers of a design.

        With V_jc = n_jc / sqrt(n_j n_c), G = V V' and U the matrix of PSUs over records, columns of
        length one, K = U U' - P U U' P - k_0 (I - P), P the projection on cells, and
        K U = (1 - k_0) U + P U (k_0 I - G).
        """
        unit, cell = records.sum(1), records.sum(0)
        v = records / np.sqrt(unit[:, None] * np.maximum(cell, 1.0))
        inner = v.T @ v
        along, square = (v * v).sum(1), ((v @ inner) * v).sum(1)  # diagonals of G and G^2
        cube = ((v @ (inner @ inner)) * v).sum(1)
        free = float(cell.sum() - (cell > 0).sum())
        k = float(len(unit) - along.sum()) / max(free, 1.0)
        between = unit * (1.0 - k + k * along - square)
        middle = k * np.eye(len(inner)) - inner
        weighted = (v.T * unit) @ v @ middle
        # (D^1/2 (I - G^2 - k_0 (I - G)) D^1/2) squared, D the sizes; D of D^1/2 K U twice.
        t2 = ((1 - k) ** 2 * unit**2).sum() + 2 * (1 - k) * (unit**2 * (k * along - square)).sum()
        t2 += (weighted * weighted.T).sum()
        t1 = (1 - k) ** 2 * unit + 2 * (1 - k) * unit * (k * along - square)
        t1 += unit * (k * k * along - 2.0 * k * square + cube)
        t0 = len(unit) - square.sum() - 2.0 * k * (len(unit) - along.sum()) + k * k * free
        own = (records / unit[:, None]).sum(0) - (v * v).sum(0)
        share = records / unit[:, None]
        return cls(records, share, own, between, (float(t0), float(t1.sum()), float(t2)))

    @property
    def freedom(self) -> float:
        """Degrees of freedom nu of effects."""
        return float(self.between.sum() ** 2 / self.t[2])

    def products(self, means: FloatArray) -> FloatArray:
        """Return sum_j n_j mbar_j mbar_j' of means (b, G, E) of cells."""
        of_units = self.share @ means
        weighted = self.records.sum(1)[:, None] * of_units
        return np.asarray(of_units.swapaxes(-1, -2) @ weighted)

    def linear(self, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the products (b, E, E) of K times means of cells, over records and over PSUs."""
        size, cell = self.records.sum(1)[:, None], np.maximum(self.records.sum(0), 1.0)[:, None]
        of_units = self.share @ means
        again = self.records.T @ of_units / cell
        records = of_units.swapaxes(-1, -2) @ (size * of_units)
        records = records - again.swapaxes(-1, -2) @ (cell * again)
        sums = size * (of_units - self.share @ again)
        return np.asarray(records), np.asarray(sums.swapaxes(-1, -2) @ sums)


class BetweenLaw:
    """log p(B~ | S) and the prior of S at coordinates, for a batch of draws of the fit.

    Coordinates: log SDs (D,) in prior scales, and what correlations come from, row by row: the row
    j of a Cholesky factor is (y_j, 1) over its length.
    """

    def __init__(
        self,
        expected: FloatArray,
        operator: FloatArray,
        slope: FloatArray,
        total: FloatArray,
        linear: tuple[FloatArray, FloatArray],
        t: tuple[float, float],
        noisy: UnitProducts,
        prior_scale: FloatArray | float,
        lkj: float,
    ) -> None:
        """Take what draws (b, ..) imply: B without effects (E, E), what S adds to it (k, D, D).

        slope (E, D) and total (E, E): means of Jbar and of covariances; linear: see
        ``UnitWeights``; t: t_0 and t_1; prior_scale: of SDs, (D,) or one.
        """
        self.slope, self.total, self.t = slope, total, t
        self.size, self.scale, self.power = slope.shape[-1], prior_scale, slope.shape[-1] + 2 * lkj
        at = noisy.entries
        self.pairs = PairProducts(total.shape[-1], at)
        self.operator = operator
        self.off = noisy.products[at] - expected[..., at[0], at[1]]
        noise = noisy.sd**2 * np.where(at[0] == at[1], 1.0, 0.5)
        self.base = self._crossed(total, linear[0]) + np.diag(noise)
        #: What the linear term adds per Gamma.
        self.turned = linear[1] - linear[0]
        self.squares = self.pairs.of(total)
        self.lower = np.tril_indices(self.size, -1)
        self.dimension = self.size + self.lower[0].size

    def _crossed(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return P(x + y) - P(x) - P(y)."""
        return self.pairs.of(x + y) - self.pairs.of(x) - self.pairs.of(y)

    def averaged(self) -> "BetweenLaw":
        """Return the distribution for the mean over draws, as a batch of one."""
        result = object.__new__(BetweenLaw)
        result.__dict__.update(self.__dict__)
        for name in ("slope", "total", "operator", "off", "base", "turned", "squares"):
            setattr(result, name, getattr(self, name).mean(0, keepdims=True))
        return result

    def psi(self, x: FloatArray) -> FloatArray:
        """Return S (b, D, D) at coordinates (b, ..)."""
        root = self._root(x)[0]
        a = root @ root.swapaxes(-1, -2)
        left = np.linalg.inv(np.eye(self.size) + a)
        return np.asarray((1.0 - LEAST_LEFT) * (np.eye(self.size) - left))

    def _root(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return a root of A, its SDs, rows (y, 1) and their lengths."""
        sd = self.scale * np.exp(x[:, : self.size])
        rows = np.broadcast_to(np.eye(self.size), (len(x), self.size, self.size)).copy()
        rows[:, self.lower[0], self.lower[1]] = x[:, self.size :]
        length = np.sqrt((rows**2).sum(-1))
        return (sd / length)[..., None] * rows, sd, rows, length

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log densities (b,), up to a constant, and gradients (b, ..) at coordinates."""
        d = self.size
        known = (x[:, :d] > LOG_SD[0]) & (x[:, :d] < LOG_SD[1])
        lost = np.asarray(~(known.all(1) & (np.abs(x) < FARTHEST).all(1)))
        x = np.where(lost[:, None], 0.0, x)
        root, sd, rows, length = self._root(x)
        left = np.linalg.inv(np.eye(d) + root @ root.swapaxes(-1, -2))
        psi = (1.0 - LEAST_LEFT) * (np.eye(d) - left)
        value, in_psi, wrong = self._likelihood(psi)
        in_a = (1.0 - LEAST_LEFT) * left @ in_psi @ left
        in_root = 2.0 * in_a @ root
        # Prior: half-t SDs, LKJ in the coordinates of rows.
        of_sd, in_sd = log_half_t(x[:, :d], HALF_T_DF, 1.0)
        value = value + of_sd.sum(1) - (self.power - 1.0) * np.log(length).sum(1)
        in_sd = in_sd + (in_root * root).sum(-1)
        unit = rows / length[..., None]
        in_unit = sd[..., None] * in_root
        in_rows = (in_unit - (in_unit * unit).sum(-1, keepdims=True) * unit) / length[..., None]
        in_rows = in_rows - (self.power - 1.0) * rows / length[..., None] ** 2
        gradient = np.concatenate([in_sd, in_rows[:, self.lower[0], self.lower[1]]], axis=1)
        lost |= wrong | ~np.isfinite(value) | ~np.isfinite(gradient).all(1)
        return np.where(lost, -np.inf, value), np.where(lost[:, None], 0.0, gradient)

    def _likelihood(self, psi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log p(B~ | S) (b,), its symmetric gradient, and where it has no value."""
        t0, t1 = self.t
        pairs, off = self.pairs, self.off - np.einsum("bkij,bij->bk", self.operator, psi)
        gamma = self.slope @ psi @ self.slope.swapaxes(-1, -2)
        # P(W) and the crossed terms in total and Gamma, W = total - Gamma.
        crossed, squares = self._crossed(self.total, gamma), pairs.of(gamma)
        spread = (
            self.base + self._crossed(gamma, self.turned) + t0 * self.squares
            + (t1 - t0) * crossed + (t0 - 2.0 * t1) * squares
        )  # fmt: skip
        sign, size = np.linalg.slogdet(spread)
        wrong = sign <= 0
        spread = np.where(wrong[:, None, None], np.eye(spread.shape[-1]), spread)
        inverse = np.linalg.inv(spread)
        weighted = (inverse @ off[..., None])[..., 0]
        value = -0.5 * ((off * weighted).sum(-1) + size)
        pull = 0.5 * (weighted[..., :, None] * weighted[..., None, :] - inverse)
        # P's gradient at X is linear in X: that of P(X + Y) - P(X) - P(Y) in X is that at Y.
        at = self.turned + (t1 - t0) * self.total + (t0 - 2.0 * t1) * gamma
        in_gamma = pairs.gradient(pull[:, None])(at[:, None])[:, 0]
        in_psi = self.slope.swapaxes(-1, -2) @ in_gamma @ self.slope
        in_psi = in_psi + np.einsum("bk,bkij->bij", weighted, self.operator)
        return value, 0.5 * (in_psi + in_psi.swapaxes(-1, -2)), np.asarray(wrong)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Return one S (b, D, D) of each draw of the fit."""
        mean = self.averaged()
        none = np.zeros(self.dimension, dtype=bool)
        start = np.zeros(self.dimension)
        start[: self.size] = -0.5
        mode = find_mode(mean, start, none, ITERATIONS)
        whitening = whitening_at(mean, mode, none, np.ones(self.dimension))
        chains = HamiltonianChains(self, whitening, len(self.off), rng)
        chains.warm_up(WARMUP)
        return self.psi(chains.sample(ROUNDS)[:, -1])


def of_other_units(
    seen: FloatArray, freedom: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return Psi (b, D, D) given S (b, D, D) with nu (b,) degrees of freedom."""
    size = seen.shape[-1]
    # Bartlett: a root of a Wishart matrix, whose inverse follows.
    df = np.maximum(freedom[:, None] + size - 2.0, size) - np.arange(size)
    root = np.tril(rng.standard_normal(seen.shape), -1)
    root[:, np.arange(size), np.arange(size)] = np.sqrt(rng.chisquare(df))
    inverse = np.linalg.inv(root)
    turned = np.linalg.cholesky(seen) @ inverse.swapaxes(-1, -2)
    return np.asarray(freedom[:, None, None] * turned @ turned.swapaxes(-1, -2))


def cell_sums(
    table: NoisyTable, law: CellLaw, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return sums of u (C, q) about the common center and counts (C, D), given noisy ones.

    One draw, at one draw of the fit: counts by ``CountLaw``, then rows of each block in the axes of
    its A'NA, true sums with noise forgotten by the difference of a simulation (Matheron's rule).
    """
    shape, v = table.shape, table.count_variance
    n, (p, means_of_rows, covariances) = table.sizes[:, None].astype(np.float64), law
    if p.shape[1] == 1:
        counts = n.copy()
    else:
        made = np.sqrt(n * p) * rng.standard_normal(p.shape)
        made = n * p + made - p * made.sum(-1, keepdims=True)
        off = table.counts - made - np.sqrt(v) * rng.standard_normal(p.shape)
        precision = 1.0 / (n * p + v)
        share = p * precision
        along = (share * off).sum(-1, keepdims=True) / share.sum(-1, keepdims=True)
        counts = np.maximum(made + off - v * off * precision - n * share * along, 0.0)
    sums = np.zeros((len(p), shape.q))
    noise = np.sqrt(table.sum_variance)
    for pattern, covariance in zip(table.patterns, covariances, strict=True):
        there, of = pattern.present, pattern.combinations
        for g, cells in enumerate(table.cells):
            own = cells[cells >= 0]
            a = pattern.rows[g, : own.size].reshape(-1, pattern.rows.shape[-1])
            size = counts[own][:, of].reshape(-1)
            means = means_of_rows[own][:, of][..., there].reshape(size.size, -1)
            means = means - pattern.centers[g]
            root = np.linalg.cholesky(covariance[g])
            made = size[:, None] * means
            made = made + np.sqrt(size)[:, None] * rng.standard_normal(means.shape) @ root.T
            length, axes = np.linalg.eigh(a.T @ (size[:, None] * a))
            off = pattern.sums[g] - a.T @ made
            off = axes.T @ (off + noise * rng.standard_normal(off.shape))
            spread = np.maximum(length, 0.0)[:, None, None] * covariance[g]
            spread = spread + table.sum_variance * np.eye(there.size)
            told = np.linalg.solve(spread, off[..., None])[..., 0] @ covariance[g]
            made = made + size[:, None] * (a @ axes @ told)
            made = made + size[:, None] * pattern.centers[g]
            sums[np.ix_(own, there)] += made.reshape(own.size, of.size, -1).sum(1)
    return sums, counts


def unit_covariances(
    thetas: Sequence[Theta],
    table: NoisyTable,
    records: FloatArray,
    laws: Sequence[CellLaw],
    noisy: UnitProducts,
    priors: Mapping[str, float],
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return covariances (m, D, D) of effects for each of m draws theta, given noisy products.

    Of the effects that are in the sample, and of those of other PSUs.
    records (units, C): by PSU and cell. ``priors``: "lkj", and "psu_scale" where it was chosen;
    ``PRIOR_SCALE`` otherwise.
    """
    weights, k, shape = UnitWeights.of(records), noisy.scale, table.shape
    sizes = [each.categories for each in shape.discrete]
    of_flags = np.full(shape.q + sum(sizes), 1.0)
    of_flags[shape.q :] = k
    middle = np.concatenate([np.zeros(shape.q), *(np.full(each, k / each) for each in sizes)])
    scales = np.stack([_scale(theta, shape, records.sum(0)) for theta in thetas])
    first, second = noisy.entries
    parts: list[tuple[FloatArray, ...]] = []
    freedom = np.zeros(len(thetas))
    number = weights.between / weights.between.sum()
    cells = np.maximum(table.sizes, 1.0)[:, None]
    for draw, (theta, law) in enumerate(zip(thetas, laws, strict=True)):
        moments = CellMoments.of(theta, shape, table.center, table.spread)
        slopes = of_flags[:, None] * (moments.slope @ scales[draw])
        covariance = of_flags[:, None] * moments.covariance * of_flags
        sums, counts = cell_sums(table, law, rng)
        means = np.concatenate([sums, counts @ shape.flags * k], axis=1) / cells - middle
        expected = weights.products(means) + np.einsum("c,cij->ij", weights.own, covariance)
        of_units = np.einsum("uc,chd->uhd", weights.share, slopes)
        crossed = np.einsum("u,uhd,uge->hgde", weights.between, of_units, of_units, optimize=True)
        operator = crossed[first, second]
        slope = np.einsum("u,uhd->hd", number, of_units)
        total = np.einsum("c,cij->ij", weights.own / weights.own.sum(), covariance)
        # Units of unlike slopes tell less: their Gammas' squares are more than those of the mean.
        own = np.einsum("uhd,uhd->uh", of_units, of_units)
        like = (weights.between**2 @ own**2).sum() / (
            (weights.between**2).sum() * ((slope * slope).sum(1) ** 2).sum()
        )
        freedom[draw] = weights.freedom / max(like, 1.0)
        parts.append((expected, 0.5 * (operator + operator.swapaxes(-1, -2)), slope, total,
                      *weights.linear(means)))  # fmt: skip
    expected, operator, slope, total, over_records, over_units = (
        np.stack(each) for each in zip(*parts, strict=True)
    )
    prior_scale = np.full(shape.layout.amount_effects.stop, priors.get("psu_scale", PRIOR_SCALE))
    if shape.weighted and "psu_scale" not in priors:
        prior_scale[-1] = WEIGHT_SCALE
    law_of_all = BetweenLaw(
        expected, operator, slope, total, (over_records, over_units), weights.t[:2], noisy,
        prior_scale, priors["lkj"],
    )  # fmt: skip
    seen = law_of_all.sample(rng)
    others = of_other_units(seen, freedom, rng)
    # On log odds: in units of what is left of the latent variable within units.
    own = np.arange(shape.layout.amount_effects.start)
    scales[:, own, own] /= np.sqrt(1.0 - seen[:, own, own])
    turned = scales.swapaxes(-1, -2)
    return np.asarray(scales @ seen @ turned), np.asarray(scales @ others @ turned)


def _scale(theta: Theta, shape: LocationShape, sizes: FloatArray) -> FloatArray:
    """Return the scale (D, D) of effects at a draw: a root of the covariance of residuals.

    That of columns of z is a mean over the records (C,) of cells."""
    first, last = shape.layout.amount_effects.start, shape.layout.amount_effects.stop
    result: FloatArray = LOGISTIC_VARIANCE**0.5 * np.eye(last)
    if shape.q:
        of_group = residual_covariances(theta, shape.layout.regressions)
        records = np.bincount(shape.group, weights=sizes, minlength=len(of_group))
        mean = np.einsum("g,gij->ij", records / records.sum(), of_group)
        result[first:, first:] = np.linalg.cholesky(mean)
    return result


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
