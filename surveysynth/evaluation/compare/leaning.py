"""Signed distances of a whole table from the sample, with their errors if the model is adequate.

D_d = (published - sample) / SE_d of row d. Rows are correlated: margins are sums of cells, and all
rows share the model's error. To first order, with u_i the linearised variable of a record in the
sample and u*_i its mean over synthetic datasets, both over SE_d,

    D = sum_i r_i + (move of the draws),    r_i = u*_i - u_i.

Draws follow the sample: what the model fits of u moves them by -B' a_i psi_i, with psi_i the scores
of record i (rows of X times residuals, products of residuals), a_i its weight in the fit, and
B = (psi' a psi)^-1 psi' r. If the model is adequate, the covariance of D is (methods 7.7)

    C = sum_i (r_i - B' a_i psi_i)(...)' + (kappa / m + extra) F,
    F = r' psi (psi' a psi)^-1 psi' r.

F is the posterior covariance of the rows for these weights, kappa the variance between draws over F
by row, and extra = kappa - 1 if draws also follow noise, else 0. The mean over K rows has the
standard error sqrt(1'C1) / K. The sum of D^2 is compared with a scaled chi-square of mean tr C and
variance 2 tr C^2 (Satterthwaite 1946); C has degrees of freedom of its own, so that both
references are those of t and F.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from surveysynth._support.types import BoolArray, FloatArray, IntArray

#: A smaller mean, or root mean square, is not reported: an interval of 95% then covers 92% or more.
LEAST_BIAS = 0.5
#: Expected share of false reports among all reports (Benjamini and Hochberg 1995). If everything
#: is adequate, it is the nominal chance of any report; ``leaning_study`` measures it.
FALSE_REPORTS = 0.05
#: How many draws the variance that F gives to draws without noise is worth.
PRIOR_DRAWS = 4


@dataclass(frozen=True)
class RowCovariance:
    """Parts of the covariance (K, K) of signed distances: see the module.

    residual: of what the model does not fit; fitted: F.
    """

    residual: FloatArray
    fitted: FloatArray

    def total(self, kappa: FloatArray, m: int, *, noisy: bool) -> FloatArray:
        """Return C for m draws and kappa (K,).

        noisy: whether draws follow noise as well as the sample.
        """
        scale = np.sqrt(kappa / m + (np.maximum(kappa - 1.0, 0.0) if noisy else 0.0))
        return np.asarray(self.residual + scale[:, None] * self.fitted * scale)


def row_covariance(
    r: FloatArray, psi: FloatArray, fit_weight: FloatArray, psu: IntArray | None,
    ridge: FloatArray | None = None,
) -> RowCovariance:
    """Return the covariance of sums of r (n, K) about what scores psi (n, P) explain.

    fit_weight: (n,) weights of records in the fit; psu: (n,) codes of units within which records
    are correlated, or None; ridge: (P,) precision that the prior adds to scores, or None for 0.
    """
    weighted = fit_weight[:, None] * psi
    cross = psi.T @ r
    precision = psi.T @ weighted + (0.0 if ridge is None else np.diag(ridge))
    solved = np.linalg.lstsq(precision, cross, rcond=1e-10)[0]
    rest = r - weighted @ solved
    n = rest.shape[0]
    if psu is not None:
        n = int(psu.max()) + 1
        sums = np.zeros((n, rest.shape[1]))
        np.add.at(sums, psu, rest)
        rest = sums
    # The scores take degrees of freedom off, as in any regression.
    scale = n / max(n - psi.shape[1], n / 2.0)
    return RowCovariance(scale * rest.T @ rest, cross.T @ solved)


def scores(
    x_cells: FloatArray, cell: IntArray, values: Sequence[FloatArray], amount: Sequence[bool],
    ridge: FloatArray, *, spread_by_cell: bool,
) -> tuple[FloatArray, FloatArray]:
    """Return scores (n, P) of a regression of each variable on X and of spreads, and their ridge.

    values: (n,) each, NaN for records that a regression leaves out; amount: whether a variable has
    a residual variance, which indicators have not; ridge: (K,) on columns of X, in residual
    variances; spread_by_cell: whether the model has one for every row of X, instead of one for all
    records.
    """
    x = x_cells[cell]
    found, residuals = [], []
    for value, has_spread in zip(values, amount, strict=True):
        known = np.isfinite(value)
        residual = np.zeros(value.size)
        solved = np.linalg.lstsq(x[known], value[known], rcond=None)[0]
        residual[known] = value[known] - x[known] @ solved
        spread = float(np.sqrt(np.mean(residual[known] ** 2))) if known.any() else 0.0
        if spread <= 1e-9 * float(np.abs(value[known]).max(initial=0.0)):
            continue
        residual /= spread
        found.append(x * residual[:, None])
        if has_spread:
            residuals.append((residual, known))
    regressions = len(found)
    for j, (one, known) in enumerate(residuals):
        for other, known_too in residuals[: j + 1]:
            both = known & known_too
            groups = cell if spread_by_cell else np.zeros_like(cell)
            found.append(_centred(one * other, both, groups))
    if not found:
        return np.zeros((cell.size, 0)), np.zeros(0)
    psi = np.hstack(found)
    penalty = np.zeros(psi.shape[1])
    penalty[: regressions * ridge.size] = np.tile(ridge, regressions)
    return psi, penalty


def _centred(product: FloatArray, known: BoolArray, group: IntArray) -> FloatArray:
    """Return products (n,) of residuals less their mean in each group, a column per group."""
    count = np.bincount(group, known, minlength=int(group.max()) + 1)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(group, product * known, minlength=count.size) / count
    made = np.zeros((product.size, count.size))
    made[np.arange(product.size), group] = np.where(known, product - mean[group], 0.0)
    return made[:, count > 1]


def kappa_of(estimates: FloatArray, fitted: FloatArray) -> FloatArray:
    """Return the variance (K,) between draws over that of a fit without protection.

    NaN where it is unknown. estimates: (m, r, K) of rows on the scale of ``fitted``, F (K, K). With
    one dataset a draw it includes what datasets vary.
    """
    m, replicates, _ = estimates.shape
    explained = np.diag(fitted)
    result = np.full(explained.size, np.nan)
    if m == 1:
        return result
    between = estimates.mean(axis=1).var(axis=0, ddof=1)
    if replicates > 1:
        between = between - estimates.var(axis=1, ddof=1).mean(axis=0) / replicates
    known = explained > 0.0
    result[known] = np.maximum(between[known], 0.0) / explained[known]
    return result


def smooth_kappa(kappa: FloatArray, n: FloatArray, m: int, *, noisy: bool) -> FloatArray:
    """Return kappa (D,) of all rows of a table, of n (D,) records, as m draws determine it.

    Noise on sums of a row's records adds c / n to 1, and noise on a spread that all rows share adds
    c' n: both moves, over variances of rows that fall with n. Without noise kappa is 1 but for the
    approximation, and the draws say little more.
    """
    known = np.isfinite(kappa)
    if not known.any():
        return np.ones_like(kappa)
    if noisy:
        result, sized = np.ones_like(kappa), np.isfinite(n)
        share = n[sized] / n[sized].max()
        basis = np.stack([share.min() / share, share], axis=1)
        parts = optimize.nnls(basis[known[sized]], kappa[known] - 1.0)[0]
        result[sized] += basis @ parts
        return result
    mean = float(kappa[known].mean())
    return np.full_like(kappa, (PRIOR_DRAWS + (m - 1) * mean) / (PRIOR_DRAWS + m - 1))


@dataclass(frozen=True)
class Lean:
    """Signed distances of K rows together.

    mean and its standard error, in standard errors of the sample; p: of a mean that far from 0 if
    the model is adequate. chi_square: the sum of squares, scaled to df degrees of freedom;
    p_rows: of one that large; bias: the root mean square of what the sum of squares has beyond its
    expectation.
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
    trace, squared = float(np.trace(covariance)), float((covariance**2).sum())
    total = float(difference @ difference)
    p = 2.0 * float(stats.t.sf(abs(mean) / se, df_error)) if se > 0.0 else np.nan
    if squared <= 0.0:
        return Lean(rows, mean, se, p, np.nan, np.nan, np.nan, np.nan)
    df, scale = trace**2 / squared, squared / trace
    p_rows = float(stats.f.sf(total / scale / df, df, df_error))
    bias = max(total - trace, 0.0) / rows
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
