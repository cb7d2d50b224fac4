"""Signed distances of a whole table from the sample, with their errors if the model is adequate.

D_d = (published - sample) / SE_d of row d. Rows are correlated: margins are sums of cells, and all
rows share the model's error. To first order, with u_i the linearised variable of a record in the
sample and u*_i its mean over synthetic datasets, both over SE_d,

    D = sum_i r_i + (move of the draws),    r_i = u*_i - u_i.

Draws follow the sample, and the noise of noisy statistics. Scores t = sum_i a_i psi_i + eta are
those of the sample (rows of X times residuals, products of residuals), with a_i the weight of a
record in the fit and eta noise of covariance Omega. Parameters whose scores have the information
I = psi' a psi and the prior precision Lambda have the posterior

    precision  P = I (I + Omega)^-1 I + Lambda,    mean  M t,    M = P^-1 I (I + Omega)^-1,

and move the rows by -(psi' r)' theta. If the model is adequate, the covariance of D with m draws is
(methods 7.7)

    C = sum_i (r_i - B' a_i psi_i)(...)' + B' Omega B + (psi' r)' P^-1 (psi' r) / m,  B = M' psi' r.

The mean over K rows has the standard error sqrt(1'C1) / K. All rows together are compared by the
most powerful test against biases that vary independently with SD ``BIAS`` (Neyman and Pearson):
with c_j the eigenvalues of C, d_j the coordinates of D, and e_j = c_j + ``INEXACT``^2, the sum of
w_j d_j^2, w_j = 1 / e_j - 1 / (e_j + BIAS^2), as a scaled chi-square of its mean sum w_j c_j and
its variance 2 sum (w_j c_j)^2 (Satterthwaite 1946).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.distributions import f_tail, t_tail
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.score_sums import ScoredColumn, ScoreSums

#: A smaller mean, or root mean square, is not reported: an interval of 95% then covers 92% or more.
LEAST_BIAS = 0.5
#: Expected share of false reports among all reports (Benjamini and Hochberg 1995). If everything
#: is adequate, it is the nominal chance of any report; ``leaning_study`` measures it.
FALSE_REPORTS = 0.05
#: SD of the biases that the test of all rows is made for, and of what formulas of first order leave
#: out, in standard errors of the sample.
BIAS, INEXACT = 1.0, 0.2
#: Eigenvalues of the information below this share of the largest are zeros.
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Scored:
    """A column of records (n,), NaN where a regression leaves them out.

    position: in z of an amount; category: outcome and category of an indicator.
    """

    values: FloatArray
    position: int | None = None
    category: tuple[int, int] | None = None


@dataclass(frozen=True)
class Scores:
    """Scores psi (n, P) of records, the precision (P,) of their prior, and what they sum over."""

    psi: FloatArray
    ridge: FloatArray
    sums: ScoreSums


def scores(
    x_cells: FloatArray, cell: IntArray, columns: Sequence[Scored], ridge: FloatArray,
    group: IntArray,
) -> Scores:
    """Return scores of a regression of each column on X, and of residual variances by group.

    ridge: (K,) on columns of X, in residual variances; group: (C,) of each row of X. Indicators
    have no variance of their own.
    """
    x = x_cells[cell]
    found, fits, residuals = [], [], []
    for column in columns:
        value = column.values
        known = np.isfinite(value)
        residual = np.zeros(value.size)
        solved = np.linalg.lstsq(x[known], value[known], rcond=None)[0]
        residual[known] = value[known] - x[known] @ solved
        spread = float(np.sqrt(np.mean(residual[known] ** 2))) if known.any() else 0.0
        if spread <= 1e-9 * float(np.abs(value[known]).max(initial=0.0)):
            continue
        found.append(x * (residual / spread)[:, None])
        fits.append(ScoredColumn(column.position, column.category, x_cells @ solved, spread))
        residuals.append((residual / spread, known))
    amounts = [j for j, fit in enumerate(fits) if fit.position is not None]
    pairs = [(j, k) for j in amounts for k in amounts if k <= j]
    flags, means = [], []
    for j, k in pairs:
        (one, known), (other, known_too) = residuals[j], residuals[k]
        made, mean, several = _centred(one * other, known & known_too, group[cell])
        found.append(made)
        means.append(mean)
        flags.append((group[:, None] == several).astype(np.float64))
    psi = np.hstack(found) if found else np.zeros((cell.size, 0))
    penalty = np.zeros(psi.shape[1])
    penalty[: len(fits) * ridge.size] = np.tile(ridge, len(fits))
    return Scores(psi, penalty, ScoreSums(x_cells, fits, pairs, flags, means))


def _centred(
    product: FloatArray, known: BoolArray, group: IntArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return products (n, G) of residuals less their mean in each group, the means, the groups.

    Only groups with several records.
    """
    count = np.bincount(group, known)
    several = np.flatnonzero(count > 1)
    mean = np.bincount(group, product * known)[several] / count[several]
    own = (group[:, None] == several) & known[:, None]
    return np.where(own, product[:, None] - mean, 0.0), mean, several


class Fit:
    """How draws follow records and noise: psi (n, P), weights (n,), ridge (P,), Omega (P, P).

    psu: (n,) codes of units within which records are correlated, or None. Everything is in
    coordinates in which the information is the identity, those without any left out.
    """

    def __init__(
        self, psi: FloatArray, weight: FloatArray, psu: IntArray | None, ridge: FloatArray,
        noise: FloatArray | None = None,
    ) -> None:
        information = psi.T @ (weight[:, None] * psi)
        size = np.sqrt(np.diag(information))
        size = np.where(size > 0.0, size, 1.0)
        values, vectors = np.linalg.eigh(information / np.outer(size, size))
        used = values > _TOLERANCE * values.max(initial=0.0)
        to_white = vectors[:, used] / np.sqrt(values[used]) / size[:, None]
        self.psu, self.psi, self.weight = psu, psi @ to_white, weight
        one = np.eye(self.psi.shape[1])
        prior = (to_white.T * ridge) @ to_white
        self.noise = 0.0 * one if noise is None else to_white.T @ noise @ to_white
        seen = np.linalg.inv(one + self.noise)
        self.variance = np.linalg.inv(seen + prior)
        self.follows = self.variance @ seen

    def covariance(self, r: FloatArray, m: int) -> FloatArray:
        """Return C (K, K) of sums of r (n, K), for m draws."""
        cross = self.psi.T @ r
        moved = self.follows.T @ cross
        rest = r - self.weight[:, None] * (self.psi @ moved)
        n = rest.shape[0]
        if self.psu is not None:
            n = int(self.psu.max()) + 1
            sums = np.zeros((n, rest.shape[1]))
            np.add.at(sums, self.psu, rest)
            rest = sums
        # The scores take degrees of freedom off, as in any regression.
        scale = n / max(n - self.psi.shape[1], n / 2.0)
        of_draws = cross.T @ self.variance @ cross / m
        return np.asarray(scale * rest.T @ rest + moved.T @ self.noise @ moved + of_draws)


@dataclass(frozen=True)
class Lean:
    """Signed distances of K rows together.

    mean and its standard error, in standard errors of the sample; p: of a mean that far from 0 if
    the model is adequate. chi_square: of all rows, scaled to df degrees of freedom; p_rows: of one
    that large; bias: the root mean square of what the sum of squares has beyond its expectation.
    """

    rows: int
    mean: float
    se: float
    p: float
    chi_square: float
    df: float
    p_rows: float
    bias: float


def lean_of(difference: FloatArray, covariance: FloatArray, df_error: float) -> Lean:
    """Return the lean of signed distances (K,) with covariance (K, K) of ``df_error`` degrees."""
    rows, summed = difference.size, float(covariance.sum())
    mean, se = float(difference.mean()), float(np.sqrt(max(summed, 0.0))) / rows
    trace = float(np.trace(covariance))
    p = 2.0 * float(t_tail(abs(mean) / se, df_error)) if se > 0.0 else np.nan
    if trace <= 0.0:
        return Lean(rows, mean, se, p, np.nan, np.nan, np.nan, np.nan)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    weight = 1.0 / (values + INEXACT**2) - 1.0 / (values + INEXACT**2 + BIAS**2)
    total = float((weight * (vectors.T @ difference) ** 2).sum())
    expected = weight * values
    scale = float((expected**2).sum() / expected.sum())
    df = float(expected.sum()) / scale
    p_rows = float(f_tail(total / scale / df, df, df_error))
    bias = max(float(difference @ difference) - trace, 0.0) / rows
    return Lean(rows, mean, se, p, total / scale, df, p_rows, float(np.sqrt(bias)))


def reported(p: FloatArray) -> BoolArray:
    """Return which of several p-values to report, by Benjamini and Hochberg; NaN never is."""
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    limits = FALSE_REPORTS * np.arange(1, order.size + 1) / max(order.size, 1)
    passed = np.flatnonzero(p[order] <= limits)
    result = np.zeros(p.size, dtype=bool)
    if passed.size:
        result[order[: passed[-1] + 1]] = True
    return result
