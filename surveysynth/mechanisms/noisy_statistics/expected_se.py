"""Expected SEs of every row of a table before a release, from public inputs alone.

The noise is public, and so is what it does to the posterior. Taken at the declared centres and
spreads: every cell's records have u normal about 0 with unit variance (a residual correlation of
outcome and log weight may be given). For FBS with weak priors, by the delta method, with sigma the
SD of the noise on A'U, axes in which A'A = diag(lambda_1, .., lambda_r) and f = n - r:

    coefficients in these axes:  variance (lambda_k + sigma^2)/lambda_k^2, independent
    residual (co)variance j, k:  variance [(1 + (j=k)) sum + noise_jk^2]/f^2,
                                 sum = f + 2 sigma^2 sum_k 1/lambda_k + sigma^4 sum_k 1/lambda_k^2

(W = Q~ - T~'G^-1 T~ has the noise of Q and, twice, that of T.) A row's mean, E[w y]/E[w] over its
records, moves with the coefficients of y, the residual variance of y and its covariance with log w;
its count with the coefficients of log w. The standard error is that of the law of total variance
with these parts; the sample's own is the Taylor SE of the same records with weights of their own.
Only the ratio is reported: it needs no N.

What it leaves out: differences of cell means, priors, clipping, effects of PSUs. Within 15 to 20%
of simulated SEs where spreads are right, median rows within 5%.

**Misdeclared spreads** (strict 5). Let the true spreads be those declared, or c times smaller or
larger ones. On the true scale a ball of radius R declared spreads is one of radius c R, and the
noise is that of this ball: c times as large on sums, c^2 times on sums of squares and products.
What lies outside the ball is drawn to its surface, along the line to the centre. For records u ~
N(offset e_1, I) of q columns this moves the mean of the first column and shrinks its variance, and
with them means of outcomes:

    E[y]' - E[y] = slope (mean' - offset) + curvature (variance' - 1),

slope and curvature as in ``OutcomeMoments``; those of a cell at the centre for every cell.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.distributions import chi_square_quantile, chi_square_tail, normal_density
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.group_centres import group_noise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import noise_variances

#: Nodes of the quadrature over a normal outcome.
NODES = 80
#: A variance below this share of the squares that it is the difference of is zero.
ROUNDING = 1e-12


@dataclass(frozen=True)
class ExpectedErrors:
    """SEs over those of the sample without privacy, for E budgets and D rows, (E, D).

    NaN in rows without records, and where n - r leaves no residual degree of freedom.
    """

    count: FloatArray
    mean: FloatArray
    total: FloatArray


@dataclass(frozen=True)
class OutcomeMoments:
    """Moments of y = inverse(centre + spread u) under weights, u standard normal.

    mean E[w y]/E[w] and variance (without weights in the square); weighted E[w^2 (y - mean)^2] over
    E[w]^2; slope of the mean in u, and its derivative in the variance of u.
    """

    mean: float
    variance: float
    weighted: float
    slope: float
    curvature: float


def expected_errors(
    design: NoiseDesign,
    counts: IntArray,
    stratum: IntArray,
    rows: FloatArray,
    rhos: Sequence[float],
    *,
    inverse: Callable[[FloatArray], FloatArray],
    outcome: int = 0,
    correlation: float = 0.0,
    m: int = 20,
    replicates: int = 10,
    records: int = 1,
    scaled: bool = True,
    weight: FloatArray | None = None,
    by_block: bool = False,
    second: float | None = None,
) -> ExpectedErrors:
    """Return expected SEs of counts, means and totals of one outcome, relative to the sample's.

    Parameters
    ----------
    design
        Of the release; the log weight is the last column of z, unless ``weight`` is given.
    counts, stratum
        Records and stratum code of each cell of X, (G,).
    rows
        The rows of the table as sets of cells, zeros and ones (D, G).
    rhos
        The budgets to look at.
    inverse
        From z to outcomes, arrays to arrays; ``outcome`` its column in z.
    correlation
        The correlation of the residuals of outcome and log weight, if publicly known.
    m, replicates
        Draws, and datasets a draw.
    records
        The largest unit of protection.
    scaled
        Whether weights are scaled to a public population size.
    weight
        Public weights (G,) of the records of each cell, where it is no column of z: counts have no
        error but the design's, the same with privacy and without.
    by_block
        Whether the statistics are released by group, whose squares have less noise and sums more.
    second
        The radius of the ball about groups, where these have centres of their own.

    Raises
    ------
    InputError
        If shapes disagree.
    """
    _check_cells(design, counts, stratum, rows)
    modelled = weight is None
    spread_w = float(design.clipping.spread[-1]) if modelled else 0.0
    shape = outcome_moments(
        design.clipping, inverse, outcome, correlation * spread_w, modelled=modelled
    )
    inflation = math.exp(spread_w**2)
    weight = np.ones(counts.size) if weight is None else weight
    share = rows * counts * weight  # (D, G) weights by row and cell
    size = share.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_load = share / size[:, None]
        count_load = share - (size[:, None] / size.max() * counts if scaled else 0.0)
        by_composition, by_sample = _count_variances(
            rows, counts, weight, stratum, inflation, scaled
        )
        kish = (share * weight).sum(axis=1) / size**2  # 1/size for weights of 1
        mean_sample = shape.weighted * kish
        errors = []
        for rho in rhos:
            sigma, squares = _noise(design.clipping, rho, records, by_block, second)
            loads = np.concatenate([mean_load, count_load])
            fitted, df, squared = _posterior(design, counts, loads, sigma)
            fit_mean, fit_count = np.split(fitted, 2)
            own, crossed = (
                (times * squared + sd**2) / df**2
                for times, sd in ((2.0, squares[outcome, outcome]), (1.0, squares[outcome, -1]))
            )
            residual = shape.curvature**2 * own + (spread_w * shape.slope) ** 2 * crossed
            posterior = shape.slope**2 * fit_mean + residual
            inner = shape.variance * kish / (m * replicates)
            mean = (1.0 + 1.0 / m) * posterior + inner
            count = by_composition + (1.0 + 1.0 / m) * spread_w**2 * fit_count
            total = shape.mean**2 * count + size**2 * mean
            total_sample = shape.mean**2 * by_sample + size**2 * mean_sample
            ratios = (count / by_sample, mean / mean_sample, total / total_sample)
            errors.append([np.where(size > 0, np.sqrt(each), np.nan) for each in ratios])
    return ExpectedErrors(*np.moveaxis(np.array(errors), 1, 0))


def _noise(
    clipping: Clipping, rho: float, records: int, by_block: bool, second: float | None
) -> tuple[float, FloatArray]:
    """Return SDs of the noise of sums, and of squares (q, q)."""
    if by_block:
        return group_noise(clipping, rho, records, second)
    noise = noise_variances(clipping, rho, records)
    return noise.cross_sd(clipping), noise.squares_sd(clipping)


def _check_cells(
    design: NoiseDesign, counts: IntArray, stratum: IntArray, rows: FloatArray
) -> None:
    cells = (design.cells.shape[0],)
    if not (counts.shape == stratum.shape == cells and rows.shape[1:] == cells):
        raise InputError(
            f"The design of the noise has {cells[0]} cells, but counts, strata and rows came with "
            f"shapes {counts.shape}, {stratum.shape} and {rows.shape}."
        )


def outcome_moments(
    clipping: Clipping,
    inverse: Callable[[FloatArray], FloatArray],
    column: int,
    tilt: float = 0.0,
    *,
    modelled: bool = True,
) -> OutcomeMoments:
    """Return moments of the outcome in a column of z at the declared centre and spread.

    ``tilt``: covariance of u and log w; weights move u by it, their squares by twice of it.
    ``modelled``: whether there is a log weight among the columns, the last one.
    """
    centre, spread = (float(each[column]) for each in (clipping.centre, clipping.spread))
    u, chance = np.polynomial.hermite_e.hermegauss(NODES)
    chance = chance / chance.sum()
    y, twice = (inverse(centre + spread * (u + shift)) for shift in (tilt, 2.0 * tilt))
    mean = float(chance @ y)
    inflation = math.exp(float(clipping.spread[-1]) ** 2) if modelled else 1.0
    return OutcomeMoments(
        mean=mean,
        variance=float(chance @ (y - mean) ** 2),
        weighted=inflation * float(chance @ (twice - mean) ** 2),
        slope=float(chance @ (y * u)),  # Stein's identity
        curvature=0.5 * float(chance @ (y * (u * u - 1.0))),
    )


def _posterior(
    design: NoiseDesign, counts: IntArray, loads: FloatArray, sigma: float
) -> tuple[FloatArray, float, float]:
    """Return posterior variances of sums of cell means of u with the loads (S, G), f, and a sum.

    f = n - r. The sum is f with what the noise of A'U adds to the spread of residual variances
    (see the head of the module)."""
    rows = design.exact_rows
    values, vectors = np.linalg.eigh((rows.T * counts) @ rows)
    # Directions in which no cell has records are not estimated; their rows have none either.
    used = values > 1e-12 * values.max(initial=0.0)
    inverse = 1.0 / values[used]
    loading = loads @ (rows @ vectors[:, used])
    fitted = (loading**2) @ (inverse + sigma**2 * inverse**2)
    df = float(counts.sum() - used.sum())
    squared = df + 2.0 * sigma**2 * inverse.sum() + sigma**4 * (inverse**2).sum()
    return np.asarray(fitted), df if df > 0 else math.nan, float(squared)


def _count_variances(
    rows: FloatArray, counts: IntArray, weight: FloatArray, stratum: IntArray, inflation: float,
    scaled: bool,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Return V_X and the sample's variance of counts (D,), for weights of the means (G,) by cell.

    A record's linearised value is w (1_d - P), P the share of the row if scaled, else 0; V_X has
    the mean of w.
    """
    strata = np.eye(int(stratum.max()) + 1)[stratum]
    size = counts @ strata  # (H,)
    weights, squared = counts * weight, counts * weight**2
    inside, inside_squared = (rows * weights) @ strata, (rows * squared) @ strata  # (D, H)
    centre = (rows @ weights)[:, None] / weights.sum() if scaled else 0.0
    outside_squared = squared @ strata - inside_squared
    squares = inside_squared * (1.0 - centre) ** 2 + outside_squared * centre**2
    squared_mean = (inside - weights @ strata * centre) ** 2 / np.maximum(size, 1.0)
    factor = size / np.maximum(size - 1.0, 1.0)
    composition = ((squares - squared_mean) * factor).sum(axis=1)
    sample = ((inflation * squares - squared_mean) * factor).sum(axis=1)
    # Counts that the design fixes, a stratum's under equal weights: the rest is rounding.
    largest = ROUNDING * (squares * factor).sum(axis=1)
    both = np.stack([composition, sample])
    composition, sample = np.where(both > largest, both, 0.0)
    return composition, sample


#: Nodes along the first column and of the distance from its axis.
_ALONG, _ASIDE = 1601, 400
_FAR = 9.0


@dataclass(frozen=True)
class ClippedNormal:
    """Mean and variance of the first of q columns after clipping to the ball."""

    mean: float
    variance: float


def share_outside(radius: float, q: int) -> float:
    """Return the probability of a normal record of q columns outside a ball at its centre."""
    return float(chi_square_tail(radius**2, q))


def clipped_normal(radius: float, q: int, offset: float = 0.0) -> ClippedNormal:
    """Return moments of the first column of u min(1, radius/|u|), u ~ N(offset e_1, I_q)."""
    z = np.linspace(-_FAR, _FAR, _ALONG)
    chance = normal_density(z)
    along = (z + offset)[:, None]
    aside = np.zeros((1, 1))
    if q > 1:
        aside = chi_square_quantile((np.arange(_ASIDE) + 0.5) / _ASIDE, q - 1)[None]  # squared
    shrunk = along * np.minimum(1.0, radius / np.maximum(np.sqrt(along**2 + aside), 1e-300))
    weight = chance / chance.sum() / aside.shape[1]
    mean = float(weight @ shrunk.sum(axis=1))
    return ClippedNormal(mean, float(weight @ ((shrunk - mean) ** 2).sum(axis=1)))


def clipping_bias(outcome: OutcomeMoments, radius: float, q: int, offset: float = 0.0) -> float:
    """Return the bias of the mean of y in a row of records ``offset`` spreads from the centre."""
    moved = clipped_normal(radius, q, offset).mean - offset
    # One residual variance serves all rows; most lie near the centre.
    shrunk = clipped_normal(radius, q).variance - 1.0
    return outcome.slope * moved + outcome.curvature * shrunk


def sample_error(outcome: OutcomeMoments, records: float) -> float:
    """Return the sample's own SE of the mean of a row with so many records."""
    return math.sqrt(outcome.weighted / records)
