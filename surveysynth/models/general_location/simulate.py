"""Simulation from the general location model of the sample: a chain.

d in the order listed, amounts in the order listed, the log weight. Amounts of an outcome with
bounds or a split are drawn from the normal distribution that, cut there, has the mean and variance
of the regression.

Normal distributions that, cut at the bounds of an outcome, have given moments.

A fitted regression ignores bounds: its mean m and variance s^2 are those of the records, which lie
inside the bounds. Truncating N(m, s^2) itself would shift the mean away from a nearby bound.
Amounts are drawn from the cut normal with mean m and variance s^2, the likeliest of all cut normals
given those moments (Cohen 1950). Its uncut form N(mu, sigma^2) is called the parent.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import log_ndtr, ndtri, ndtri_exp

from surveysynth._support.numeric import blocks
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.layout import (
    Layout,
    LogitPart,
    RegressionPart,
    level_log_variances,
    log_shares,
)
from surveysynth.models.units import PSU_COVARIANCE
from surveysynth.survey.outcome import ABOVE, BELOW, Outcome
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import LearnedTransform

#: So few records are computed one by one, alike or not.
FEW = 2_000
#: Bounds so many SDs away change no digit of a double.
FAR = 9.0
#: Largest SD of a parent in units of s. The larger it is, the closer is the law near a bound to an
#: exponential one, whose tail is longer than any normal's.
WIDEST = 3.0
#: Distance of means from the bounds, in SDs (and as a share of the interval).
MARGIN = 0.02
#: Gauss-Legendre nodes over the interval that holds the mass.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_STEPS, _HALVINGS = 50, 40
_TOLERANCE = 1e-10


def parent_normal(
    mean: FloatArray, sd: FloatArray, ends: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Return mu and sigma (n,) of normals that, cut at the ends, have mean (n,) and SD (n,).

    Where none has them, return the likeliest with sigma <= ``WIDEST`` sd: it keeps the mean and has
    a smaller SD, continuously. A mean outside the bounds, or closer to one than ``MARGIN`` SDs, is
    moved to ``MARGIN`` SDs inside.
    """
    if ends == (-np.inf, np.inf):
        return mean, sd
    low, high = ends
    pairs, place = np.unique(mean + 1j * sd, return_inverse=True)
    m, s = pairs.real, pairs.imag
    margin = MARGIN * np.minimum(s, high - low)
    centre = np.clip(m, low + margin, high - margin)
    below, above = (low - centre) / s, (high - centre) / s
    mu, sigma = m.copy(), s.copy()
    near = np.flatnonzero(np.minimum(-below, above) < FAR)
    if near.size:
        location, width = _standard(below[near], above[near])
        mu[near] = centre[near] + s[near] * location
        sigma[near] = s[near] * width
    return mu[place], sigma[place]


def _standard(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the parent (mu, sigma) with mean 0 and variance 1 between low < 0 and high > 0, (r,).

    For densities exp(a t - b t^2 / 2) the log of the integral plus b / 2 is convex in (a, b), and
    least where the moments are 0 and 1. Newton steps are halved until it falls. b stays at or above
    1 / WIDEST^2; at this limit only a moves.
    """
    # In units of the distance to a bound that is closer than an SD, where the law is exponential.
    unit = np.minimum(1.0, np.minimum(-low, high))
    low, high, variance, least = low / unit, high / unit, unit**-2, (unit / WIDEST) ** 2
    start, stop = np.maximum(low, -_reach(high)), np.minimum(high, _reach(-low))
    half = 0.5 * (stop - start)
    t = start[:, None] + half[:, None] * (1.0 + _NODES)
    tight = unit < 1.0
    a, b = np.where(tight, 1.0 / low + 1.0 / high, 0.0), np.where(tight, least, 1.0)
    active = np.arange(low.size)
    value, slope, hessian = _potential(a, b, variance, t, half)
    for _ in range(_STEPS):
        kept = [each[active] for each in (a, b, variance, least, half)]
        from_a, from_b, *others, bound, width = kept
        step_a, step_b = _step(from_b, slope, hessian, bound)
        size, nodes = np.ones(active.size), t[active]
        for _ in range(_HALVINGS):
            new_a = from_a + size * step_a
            new_b = np.maximum(from_b + size * step_b, bound)
            found = _potential(new_a, new_b, others[0], nodes, width)
            worse = found[0] > value + 1e-12 * (1.0 + np.abs(value))
            if not worse.any():
                break
            size = np.where(worse, 0.5 * size, size)
        a[active], b[active] = new_a, new_b
        value, slope, hessian = found
        # Remaining slopes in SDs of t and t^2; for b at its least, only one that would raise it.
        of_b = np.where((new_b > bound) | (slope[1] < 0.0), slope[1] / np.sqrt(hessian[2]), 0.0)
        going = np.maximum(np.abs(slope[0]) / np.sqrt(hessian[0]), np.abs(of_b)) > _TOLERANCE
        if not going.any():
            break
        active, value = active[going], value[going]
        slope, hessian = slope[:, going], hessian[:, going]
    return unit * a / b, unit / np.sqrt(b)


def _reach(distance: FloatArray) -> FloatArray:
    """Return how far a density extends from its mean, away from a bound at a distance >= 1.

    It leaves out less than 1e-16. Near 1 the density is nearly exponential, from about 3 on normal.
    """
    return np.asarray(9.0 + 29.0 / (distance * distance), dtype=np.float64)


def _potential(
    a: FloatArray, b: FloatArray, variance: FloatArray, t: FloatArray, half: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return value (r,), slope (2, r) and second derivatives aa, ab, bb (3, r) to minimize."""
    square = -0.5 * t * t
    log = a[:, None] * t + b[:, None] * square
    top = log.max(1)
    mass = np.exp(log - top[:, None]) * _WEIGHTS
    total = mass.sum(1)
    mass /= total[:, None]
    mean, mean_square = (mass * t).sum(1), (mass * square).sum(1)
    from_mean, from_square = t - mean[:, None], square - mean_square[:, None]
    weighted = mass * from_mean
    second = [(weighted * from_mean).sum(1), (weighted * from_square).sum(1)]
    second.append((mass * from_square * from_square).sum(1))
    value = top + np.log(total * half) + 0.5 * b * variance
    return value, np.stack([mean, mean_square + 0.5 * variance]), np.stack(second)


def _step(
    b: FloatArray, slope: FloatArray, hessian: FloatArray, least: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Newton steps (r,) of a and b; of a alone where b is at its least and would fall."""
    aa, ab, bb = hessian
    determinant = np.maximum(aa * bb - ab * ab, 1e-300)
    step_a = (ab * slope[1] - bb * slope[0]) / determinant
    step_b = (ab * slope[0] - aa * slope[1]) / determinant
    held = (b <= least) & (step_b <= 0.0)
    # A step that would leave the range ends at its edge; a is chosen for the b reached.
    step_b = np.where(held, 0.0, np.maximum(step_b, least - b))
    edge = held | (b + step_b <= least)
    step_a = np.where(edge, -(slope[0] + ab * step_b) / aa, step_a)
    return step_a, step_b


@dataclass(frozen=True, repr=False)
class Simulation:
    """One draw theta (no leading axes) on records in the cells of a design.

    group_of_cell (G,); cell (n,): of the records; effects (n, D): of their PSUs, if any.
    """

    theta: Theta
    design: PublicDesign
    layout: Layout
    group_of_cell: IntArray
    cell: IntArray
    effects: FloatArray | None = None

    def sample(self, rng: np.random.Generator) -> Simulated:
        """Draw n records as the sample would have them."""
        category = np.zeros((self.cell.size, len(self.layout.categories)), dtype=np.int64)
        for part, columns in zip(self.layout.logits, self.layout.logit_effects, strict=True):
            log_shares = self._log_shares(part, columns, self.cell, category)
            category[:, part.outcome] = drawn(log_shares, rng)
        return self._with_amounts(category, rng)

    def mean_weight(self, simulated: Simulated) -> FloatArray:
        """Return E(w | x, d, z) (n,) of records of the sample."""
        part = self.layout.regressions[-1]
        assert simulated.category is not None  # a simulation of this model has them
        z = columns_of(self.layout, simulated.category, simulated.z)
        mean, variance = self._moments(part, simulated.category, z)
        transform = self.design.weight_transform
        if part.earlier.size or self.effects is not None:
            return transform.mean_of_inverse(mean, variance)
        alike = np.unique(mean + 1j * variance, return_inverse=True)[1]
        if isinstance(transform, LearnedTransform) and transform.codes is not None:
            alike = alike * len(transform.knots) + transform.codes
        first, place = np.unique(alike, return_index=True, return_inverse=True)[1:]
        of_first = transform.at(first).mean_of_inverse(mean[first], variance[first])
        return np.asarray(of_first[place], dtype=np.float64)

    # ----------------------------------------------------------------------------------------

    def _alike(
        self, cell: IntArray, category: IntArray, few: int | None = None
    ) -> tuple[IntArray, IntArray]:
        """Return the first of each group of identical records (u,), and the group of each (r,).

        What cells (r,) and categories (r, p) say is computed once for them, unless they are few.
        """
        if cell.size <= (FEW if few is None else few):
            return np.arange(cell.size), np.arange(cell.size)
        place = pd.factorize(cell)[0]
        for size, own in zip(self.layout.categories, category.T, strict=True):
            if size > 1:
                place = pd.factorize(place * size + own)[0]
        first = np.zeros(int(place.max()) + 1, dtype=np.int64)
        first[place[::-1]] = np.arange(place.size)[::-1]
        return first, place

    def _tilde(self, cell: IntArray, category: IntArray) -> FloatArray:
        return self.layout.tilde(self.design.matrix.x_cells[cell], category)

    def _log_shares(
        self,
        part: LogitPart,
        columns: slice,
        cell: IntArray,
        category: IntArray,
        rows: IntArray | slice = slice(None),
    ) -> FloatArray:
        """Return log shares (r, C) of an outcome's categories given earlier ones and PSUs' effects.

        cell (r,), category (r, p); columns: of the effects; rows (r,): the records, by default all.
        """
        first, place = self._alike(cell, category)
        tilde = self._tilde(cell[first], category[first])
        eta = tilde[:, part.columns] @ self.theta[f"logit_{part.name}"]
        if self.effects is None:
            return np.asarray(log_shares(eta)[place])
        return log_shares(eta[place] + self.effects[rows, columns])

    def _moments(
        self, part: RegressionPart, category: IntArray, z: FloatArray, cell: IntArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return means and variances (r,) of a column of z given categories and earlier columns.

        cell (r,): those of the records, with effects of their PSUs, by default.
        """
        if cell is None and self.effects is not None:
            z = z - self.effects[:, self.layout.amount_effects]
            mean, variance = self._moments(part, category, z, self.cell)
            return mean + self.effects[:, self.layout.amount_effects][:, part.position], variance
        cell = self.cell if cell is None else cell
        first, place = self._alike(cell, category)
        own = category[first]
        group, tilde = self.group_of_cell[cell[first]], self._tilde(cell[first], own)
        variance = self.theta[f"variance_{part.name}"][group]
        if part.outcome is None:
            raised = level_log_variances(self.theta, self.layout.categories, group, own)
            variance = variance * np.exp(raised)
        # Where an earlier column is absent its residual is zero.
        slopes = np.where(self.layout.present(own)[:, part.earlier], self._slopes(part)[group], 0.0)
        mean = self._mean(part, tilde, group)[place]
        for k, slope in zip(part.earlier, slopes.T, strict=True):
            fitted = self._mean(self.layout.regressions[int(k)], tilde, group)
            for block in blocks(mean.size):
                at = place[block]
                mean[block] += (z[block, k] - fitted[at]) * slope[at]
        return mean, variance[place]

    def _mean(self, part: RegressionPart, tilde: FloatArray, group: IntArray) -> FloatArray:
        """Return the means (r,) of a column of z given x~ (r, W) and groups (r,) alone."""
        core = self.theta[f"coefficients_{part.name}"][: part.columns.size]
        mean = tilde[:, part.columns] @ core
        deviations = self.theta.get(f"deviations_{part.name}")
        if deviations is not None and deviations.size:
            mean = mean + (tilde[:, self.layout.columns :] * deviations[group]).sum(-1)
        return np.asarray(mean, dtype=np.float64)

    def _slopes(self, part: RegressionPart) -> FloatArray:
        """Return slopes (groups, k) on the residuals of earlier columns of z."""
        slopes = self.theta[f"coefficients_{part.name}"][part.columns.size :]
        groups = self.theta[f"variance_{part.name}"].shape[0]
        added = self.theta.get(f"slopes_{part.name}", np.zeros((groups, 1)))
        return np.asarray(slopes + added, dtype=np.float64)

    def _with_amounts(self, category: IntArray, rng: np.random.Generator) -> Simulated:
        layout, n = self.layout, category.shape[0]
        z = np.zeros((n, layout.q))
        present = layout.present(category)
        for part in layout.regressions:
            mean, variance = self._moments(part, category, z)
            mean, sd = parent_normal(mean, np.sqrt(variance), self._ends(part))
            if np.any(tilt := self._tilt(part)):
                mean = mean + tilt * sd * sd
            values = cut_normal(mean, sd, self._ends(part), rng)
            z[:, part.position] = np.where(present[:, part.position], values, 0.0)
        full = np.zeros((n, len(layout.sides) + int(layout.weighted)))
        for position, (j, _) in enumerate(layout.amounts):
            full[:, j] += z[:, position]  # of an outcome's sides, one is not zero
        if layout.weighted:
            full[:, -1] = z[:, -1]
        return Simulated(full, category, self.effects)

    def _ends(self, part: RegressionPart) -> tuple[float, float]:
        if part.outcome is None:
            return -np.inf, np.inf
        return ends(self.design.outcomes[part.outcome], part.side)

    def _tilt(self, part: RegressionPart) -> FloatArray | float:
        """Return the slope (n,) by which the log density of a column of z is tilted: none."""
        return 0.0


def columns_of(layout: Layout, category: IntArray, values: FloatArray) -> FloatArray:
    """Return z (n, q), amounts and the log weight, zero where an amount is absent.

    values (n, p or p + 1): on the model's scale, one column for each outcome.
    """
    chosen = [j for j, _ in layout.amounts]
    chosen += [values.shape[1] - 1] if layout.weighted else []
    z = values[:, chosen]
    return np.where(layout.present(category), z, 0.0)


def ends(outcome: Outcome, side: int = ABOVE) -> tuple[float, float]:
    """Return the ends of an outcome's amounts on the scale of its transform.

    Amounts on a side of a split start at the split. A learned transform has no ends: its inverse
    stays within the range by itself.
    """
    if outcome.learned is not None:
        return -np.inf, np.inf

    def transformed(end: float | None, missing: float) -> float:
        if end is None:
            return missing
        with np.errstate(divide="ignore", invalid="ignore"):  # the log of zero, or of less
            value = float(outcome.forward(np.array([end]), side)[0])
        return missing if np.isnan(value) else value

    near = outcome.lower if outcome.split is None else outcome.split
    far = outcome.lower if side == BELOW else outcome.upper
    return transformed(near, -np.inf), transformed(far, np.inf)


def drawn(log_mass: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw categories (n,) with log probabilities (n, C)."""
    total = np.cumsum(np.exp(log_mass), axis=1)[:, :-1]
    uniform = rng.random((log_mass.shape[0], 1))
    return np.asarray((uniform > total).sum(1), dtype=np.int64)


def cut_normal(
    mean: FloatArray, sd: FloatArray, ends: tuple[float, float], rng: np.random.Generator
) -> FloatArray:
    """Draw (n,) from N(mean, sd^2) cut at the ends, by the inverse distribution function."""
    if ends == (-np.inf, np.inf):
        return np.asarray(mean + sd * rng.standard_normal(mean.shape), dtype=np.float64)
    low, high = ((end - mean) / sd for end in ends)
    # Computed from the tail where the interval lies, which loses no digits.
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    log_low, log_high = log_ndtr(low), log_ndtr(high)
    with np.errstate(divide="ignore"):
        ratio = -np.expm1(log_low - log_high)
        inside = log_high + np.log1p(-rng.random(mean.shape) * ratio)
    standard = np.clip(ndtri_exp(inside), low, high)
    drawn = mean + sd * np.where(flip, -standard, standard)
    return np.clip(drawn, *ends)


def cut_log_mean_exp(
    slope: FloatArray, mean: FloatArray, sd: FloatArray, ends: tuple[float, float]
) -> FloatArray:
    """Return log E exp(slope z) for z ~ N(mean, sd^2) cut at the ends."""
    plain = slope * mean + 0.5 * (slope * sd) ** 2
    if ends == (-np.inf, np.inf):
        return np.asarray(plain, dtype=np.float64)
    before, after = (
        log_interval(*((end - centre) / sd for end in ends))
        for centre in (mean, mean + slope * sd * sd)
    )
    return np.asarray(plain + after - before, dtype=np.float64)


def log_interval(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the log of the standard normal mass between low and high."""
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    below, above = log_ndtr(low), log_ndtr(high)
    return np.asarray(above + np.log(-np.expm1(below - above)), dtype=np.float64)


def logsumexp(values: FloatArray) -> FloatArray:
    """Return the log of the sum of exp over the last axis."""
    largest = values.max(-1)
    total = np.exp(values - largest[..., None]).sum(-1)
    return np.asarray(largest + np.log(total), dtype=np.float64)


#: Effects that a mean over them is taken of: the points of a Sobol sequence are even in powers of
#: two, and the first lies at the edge.
POINTS = 63
#: Effects of which one is chosen for each PSU by what is left.
CANDIDATES = 32


@dataclass(frozen=True, repr=False)
class Population(Simulation):
    """One draw theta on records of the population that a sample implies, one outcome.

    The population is the sample tilted by E(w | d, z, x, a), with a the effects of the PSU (methods
    3):

        p(d | x, a) ∝ p_s(d | x, a) M_d,  z | d ~ N(m + f s^2, s^2),  log w ~ N(m_w + s_w^2, s_w^2)

    with M_d the mean of exp(m_w + s_w^2/2) over z given d, and f the slope of m_w on z; of an
    outcome with bounds or a split, the mean over the cut normal. Its sum over d is E_s(w | x, a),
    and the mean of that over effects the weight of a cell. PSUs are tilted likewise, each record of
    a PSU for as much as the others:

        p(a) ∝ N(a; 0, T) sum_i E_s(w | x_i, a) / E_s(w | x_i)

    The effect a_w on the log weight enters E_s(w | x, a) as exp(a_w), which makes N(0, T) one about
    T e_w. What is left differs little from one a to another.
    """

    def drawn(self, rng: np.random.Generator) -> Simulated:
        """Draw n records."""
        category = np.zeros((self.cell.size, 1), dtype=np.int64)
        if self.layout.logits:
            category[:, 0] = self._chosen(self._log_mass(), rng)
        return self._with_amounts(category, rng)

    def filled(self, simulated: Simulated, rng: np.random.Generator) -> Simulated:
        """Return drawn records with no missing answers."""
        assert simulated.category is not None  # a simulation of this model has them
        lost = simulated.category == self.design.outcomes[0].missing_category
        log_mass = self._log_mass()
        log_mass[:, -1] = -np.inf  # missing is the last category
        own = self._chosen(log_mass, rng)[:, None]
        made = self._with_amounts(own, rng)
        return Simulated(
            np.where(lost, made.z, simulated.z), np.where(lost, own, simulated.category),
            self.effects,
        )  # fmt: skip

    def with_units(self, psu: IntArray, rng: np.random.Generator) -> "Population":
        """Return the same with fresh effects of PSUs (n,), as the population has them."""
        root, mean = self._law()
        units = int(psu.max()) + 1
        normals = rng.standard_normal((units, CANDIDATES, root.shape[0]))
        candidates = mean + normals @ root.T
        # Records of a PSU in one cell of X are alike.
        pairs, count = np.unique(np.stack([psu, self.cell]), axis=1, return_counts=True)
        unit, cell = pairs
        effects = candidates[unit].reshape(-1, root.shape[0])
        left = self._left(np.repeat(cell, CANDIDATES), effects).reshape(cell.size, CANDIDATES)
        share = count[:, None] * np.exp(left - self._log_mean_left()[cell][:, None])
        total = np.zeros((units, CANDIDATES))
        np.add.at(total, unit, share)
        chosen = self._chosen(np.log(total), rng)
        return replace(self, effects=candidates[np.arange(units), chosen][psu])

    def cell_log_weight(self) -> FloatArray:
        """Return log E_s(w | x) (G,) of each cell."""
        if PSU_COVARIANCE not in self.theta:
            return replace(self, cell=np.arange(self.group_of_cell.size)).log_weight()
        of_unit = float(self.theta[PSU_COVARIANCE][-1, -1])
        return self._log_mean_left() + 0.5 * of_unit

    def log_weight(self) -> FloatArray:
        """Return log E_s(w | x, a) (n,) of the records."""
        return logsumexp(self._log_mass())

    # ----------------------------------------------------------------------------------------

    @staticmethod
    def _chosen(log_mass: FloatArray, rng: np.random.Generator) -> IntArray:
        return drawn(log_mass - logsumexp(log_mass)[:, None], rng)

    def _law(self) -> tuple[FloatArray, FloatArray]:
        """Return a root of T, and T e_w: effects of the log weight are the last."""
        covariance = np.asarray(self.theta[PSU_COVARIANCE], dtype=np.float64)
        return np.asarray(np.linalg.cholesky(covariance)), covariance[:, -1]

    def _left(self, cell: IntArray, effects: FloatArray) -> FloatArray:
        """Return log E_s(w | x, a) less a_w (r,) of cells (r,) and effects (r, D)."""
        return replace(self, cell=cell, effects=effects).log_weight() - effects[:, -1]

    def _log_mean_left(self) -> FloatArray:
        """Return the log of the mean (G,) of what is left over effects about T e_w, by cell."""
        from scipy.stats import qmc  # a second to import, and few releases need it

        root, mean = self._law()
        uniform = qmc.Sobol(root.shape[0], scramble=False).fast_forward(1).random(POINTS)
        points = mean + ndtri(uniform) @ root.T
        cells = np.arange(self.group_of_cell.size)
        left = self._left(
            np.repeat(cells, POINTS), np.tile(points, (cells.size, 1))
        ).reshape(cells.size, -1)
        return np.asarray(logsumexp(left) - np.log(POINTS), dtype=np.float64)

    def _tilt(self, part: RegressionPart) -> FloatArray | float:
        """Return the slope (n,) of log w on a column of z in the records' groups; 1 on itself."""
        if part.outcome is None:
            return 1.0
        slopes = self._slopes(self.layout.regressions[-1])[:, part.position]
        return np.asarray(slopes[self.group_of_cell[self.cell]], dtype=np.float64)

    def _log_mass(self) -> FloatArray:
        """Return the log of p_s(d | x, a) M_d (n, C) by category of the one outcome."""
        if self.effects is not None:
            return self._log_mass_one_by_one()
        # Records of a cell are alike.
        cells = replace(self, cell=np.arange(self.group_of_cell.size))
        return cells._log_mass_one_by_one()[self.cell]

    def _log_mass_one_by_one(self) -> FloatArray:
        layout, size = self.layout, self.cell.size
        log_mass, zero = np.zeros((size, 1)), np.zeros((size, layout.q))
        none = np.zeros((size, 1), dtype=np.int64)
        for part, columns in zip(layout.logits, layout.logit_effects, strict=True):
            log_mass = self._log_shares(part, columns, self.cell, none)
        weight, masses = layout.regressions[-1], []
        for c in range(layout.categories[0]):
            category = none + c
            log_w, variance = self._moments(weight, category, zero)
            log_w = log_w + 0.5 * variance
            if c < layout.sides[0]:
                # log w at z = 0, and its slope on z.
                amount = layout.regressions[c]
                mean, variance = self._moments(amount, category, zero)
                slope = self._slopes(weight)[self.group_of_cell[self.cell], c]
                mean, sd = parent_normal(mean, np.sqrt(variance), self._ends(amount))
                log_w = log_w + cut_log_mean_exp(slope, mean, sd, self._ends(amount))
            masses.append(log_mass[:, c] + log_w)
        return np.stack(masses, axis=1)
