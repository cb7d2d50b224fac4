"""Noisy weighted counts and totals with zero-concentrated privacy: what a good agency would do.

The sums, noise and proof are those of the noisy-statistics mechanism, on other columns: not z =
(transformed outcomes, log w) but w and w (y - y0), y0 a typical outcome (so that noise on counts
hardly moves means), about their means at the declared centres and spreads, clipped to a ball of as
many of their SDs. Every row of the table is measured, with a share of the budget for each margin
set, and the cells that fit all rows best (generalized least squares, Hay et al. 2010) give rows
that add up. Second moments come free, as in the mechanism, and give SEs of sampling; the noise is
public. Unlike the mechanism's, estimates of small cells borrow nothing from a model.

With ``shrink`` below 1 weights are first drawn towards their declared mean (Seeman, Si & Reiter,
arXiv 2411.04236): less noise for a bias that no SE shows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import (
    cell_of_record,
    margin_matrix,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.statistics import (
    NoisyStatistics,
    noisy_statistics,
)

#: Most cells with records in the (dense) normal equations.
MOST_CELLS = 4000
#: Squared coefficients of variation stay within this factor of the declared ones.
VARIATION = 4.0
NODES = 80


@dataclass(frozen=True)
class Declared:
    """Moments at declared centres and spreads of z, for independent outcomes and log weights.

    weight: mean of w; outcome (p,): means y0 of the outcomes; sd (1 + p,): of the summed columns, w
    and w (y - y0); variation (1 + p,): squared coefficients of variation of w and w y.
    """

    weight: float
    outcome: FloatArray
    sd: FloatArray
    variation: FloatArray

    @classmethod
    def of(
        cls,
        centre: FloatArray,
        spread: FloatArray,
        inverse: Sequence[Callable[[FloatArray], FloatArray]],
        shrink: float = 1.0,
    ) -> "Declared":
        """Compute them from centres and spreads (p + 1,) of z, log w last.

        ``inverse``: of each transform.
        """
        u, chance = np.polynomial.hermite_e.hermegauss(NODES)
        chance = chance / chance.sum()
        weight = math.exp(centre[-1] + 0.5 * spread[-1] ** 2)
        own = shrink**2 * math.expm1(spread[-1] ** 2)
        values = [each(c + s * u) for each, c, s in zip(inverse, centre, spread, strict=False)]
        means = np.array([float(chance @ y) for y in values])
        variances = np.array(
            [float(chance @ (y - mean) ** 2) for y, mean in zip(values, means, strict=True)]
        )
        sd = weight * np.sqrt(np.concatenate([[own], (1.0 + own) * variances]))
        with np.errstate(divide="ignore"):
            joint = (1.0 + own) * (1.0 + variances / means**2) - 1.0
        return cls(weight, means, sd, np.concatenate([[own], joint]))


@dataclass(frozen=True)
class _Cells:
    """Cells with records: their positions in the table's rows and what is measured of them.

    member (D, I) of all rows; counts (I,) and by stratum (I, H); basis (I, D') of the noise.
    """

    member: FloatArray
    counts: IntArray
    by_stratum: FloatArray
    basis: FloatArray


def gaussian_tables(
    domains: Domains,
    sample_design: SampleDesign,
    *,
    weight: FloatArray,
    outcomes: FloatArray | None,
    keys: Sequence[tuple[str, int | None]],
    declared: Declared,
    budget: Budget,
    source: NoiseSource | None = None,
    radius: float = 0.0,
    shrink: float = 1.0,
    population_size: float | None = None,
) -> list[Combined]:
    """Make noisy tables of a sample, one for each of ``keys``, within one budget.

    Parameters
    ----------
    domains, sample_design
        The tables' rows and the design, of the same n records, without PSUs.
    weight, outcomes
        Survey weights (n,) and outcomes (n, p) in original units.
    keys
        Pairs of "count", "total" or "mean" and a column of ``outcomes``; ("count", None) for
        counts.
    declared
        Public moments of the columns; those of ``shrink``.
    budget
        Of all tables together.
    source
        Of the noise; the operating system's unless given.
    radius
        Of the ball in declared SDs; by default the square root of the chi-square quantile .995.
    shrink
        Weights become shrink w + (1 - shrink) times their declared mean.
    population_size
        Counts and totals are scaled to it; None leaves them as they are.

    Returns
    -------
    list of Combined
        ``within`` is the variance of sampling, ``between`` that of the noise; margins of counts and
        totals are sums of their cells, means are totals over counts, NaN where a count is not
        above zero.

    Raises
    ------
    InputError
        For PSUs, a proportion, more than 4,000 cells with records or arrays that do not fit.
    """
    _check(sample_design, weight, outcomes, keys, declared, shrink)
    cells, code = _cells(domains, sample_design)
    shrunk = shrink * weight + (1.0 - shrink) * declared.weight
    with np.errstate(over="ignore"):
        v = shrunk[:, None]
        if declared.outcome.size and outcomes is not None:
            v = np.hstack([v, shrunk[:, None] * (outcomes - declared.outcome)])
    # Products beyond the largest double are clipped, as is everything outside the ball.
    v = np.clip(v, -np.finfo(np.float64).max, np.finfo(np.float64).max)
    design = NoiseDesign(
        Clipping(np.append(declared.weight, 0.0 * declared.outcome), declared.sd, radius),
        np.eye(cells.counts.size),
        cells.basis,
    )
    noisy = noisy_statistics(design, code, v, budget=budget, source=source)
    fitted = _fitted(cells, noisy, declared)
    return [_table(domains, sample_design, cells, fitted, key, population_size) for key in keys]


def _cells(domains: Domains, design: SampleDesign) -> tuple[_Cells, IntArray]:
    """Return cells with records, and the code of each record's among them (n,)."""
    found, code = np.unique(cell_of_record(domains), return_inverse=True)
    if found.size > MOST_CELLS:
        raise InputError(
            f"Noisy totals are made for tables of up to {MOST_CELLS:,} cells, but this one has "
            f"{found.size:,} with records; use fewer by variables."
        )
    member = margin_matrix(domains)[:, found].toarray()
    measured = np.flatnonzero(member.any(axis=1))
    # A record is in at most one row of each margin set: equal shares of a row of length 1. Row
    # lengths are cut below 1 before they become whole numbers.
    basis = member[measured].T * (np.sqrt(1.0 / len(domains.codes)) * (1.0 - 1e-12))
    by_stratum = np.zeros((found.size, design.n_strata))
    np.add.at(by_stratum, (code, design.strata), 1.0)
    return _Cells(member, np.bincount(code), by_stratum, basis), code.astype(np.int64)


@dataclass(frozen=True)
class _Fitted:
    """Sums of (w, w y) by cell (I, J) that fit all noisy rows, their noise, and second moments.

    The noise of columns j, k has covariances noise (I, I) times columns (J, J); kappa (J, J): mean
    products of columns over products of cell means, the same in all cells.
    """

    sums: FloatArray
    noise: FloatArray
    columns: FloatArray
    kappa: FloatArray


def _fitted(cells: _Cells, noisy: NoisyStatistics, declared: Declared) -> _Fitted:
    factor = linalg.cho_factor(cells.basis @ cells.basis.T)
    steps = linalg.cho_solve(factor, cells.basis @ noisy.cross[0])
    noise = noisy.sigma**2 * linalg.cho_solve(factor, np.eye(cells.counts.size))
    to_sums = np.eye(noisy.centre.size)  # w y = w (y - y0) + y0 w
    to_sums[1:, 0] = declared.outcome
    mean, root = to_sums @ noisy.centre, to_sums * noisy.spread
    steps, columns = steps @ root.T, root @ root.T
    sums = cells.counts[:, None] * mean + steps
    crossed = np.outer(steps.sum(axis=0), mean)
    products = noisy.n * np.outer(mean, mean) + crossed + crossed.T
    products = products + root @ noisy.squares[0] @ root.T
    fitted = (sums / cells.counts[:, None]).T @ sums
    fitted = fitted - (np.diag(noise) / cells.counts).sum() * columns
    return _Fitted(sums, noise, columns, _kappa(products, fitted, declared.variation))


def _kappa(products: FloatArray, fitted: FloatArray, declared: FloatArray) -> FloatArray:
    """Return ratios of second moments, within what the declared squared CVs (J,) make plausible."""
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.nan_to_num(products / fitted - 1.0, posinf=0.0, neginf=0.0)
    own = np.clip(np.diag(excess), declared / VARIATION, declared * VARIATION)
    limit = np.sqrt(np.outer(own, own))
    excess = np.clip(excess, -limit, limit)
    excess[np.diag_indices_from(excess)] = own
    return np.asarray(1.0 + excess)


def _table(
    domains: Domains,
    design: SampleDesign,
    cells: _Cells,
    fitted: _Fitted,
    key: tuple[str, int | None],
    population_size: float | None,
) -> Combined:
    """Make one statistic: linearized in cells' sums for noise, in records for sampling."""
    statistic, column = key
    size = cells.member @ fitted.sums[:, 0]
    total = size if column is None else cells.member @ fitted.sums[:, 1 + column]
    # Loads (D, I) of a cell's sums of w and of the column in a row.
    zero = np.zeros_like(cells.member)
    with np.errstate(divide="ignore", invalid="ignore"):
        if statistic == "mean":
            usable = np.where(size > 0, size, np.nan)[:, None]
            estimate = total / usable[:, 0]
            loads = (-cells.member * estimate[:, None] / usable, cells.member / usable)
        else:
            scale = 1.0 if population_size is None else population_size / float(size[0])
            estimate = total * scale
            member = cells.member * scale
            outside = zero if population_size is None else zero - scale * (total / size[0])[:, None]
            loads = (member + outside, zero) if column is None else (outside, member)
        sampling = _sampling(design, cells, fitted, loads, column)
        noise = np.zeros(estimate.shape)
        own = (0, 0 if column is None else 1 + column)
        for j, first in zip(own, loads, strict=True):
            for k, second in zip(own, loads, strict=True):
                noise += ((first @ fitted.noise) * second).sum(axis=1) * fitted.columns[j, k]
    empty = domains.n < (2 if statistic == "mean" else 1)
    variance = np.where(empty, np.nan, sampling + noise)
    df = np.full(estimate.shape, float(design.degrees_of_freedom))
    return Combined(
        estimate=np.where(domains.n > 0, estimate, np.nan),
        standard_error=np.sqrt(variance),
        df=np.where(np.isnan(variance), np.nan, df),
        df_design=float(design.degrees_of_freedom),
        between=np.asarray(np.where(empty, np.nan, noise)),
        within=np.where(empty, np.nan, sampling),
    )


def _sampling(
    design: SampleDesign,
    cells: _Cells,
    fitted: _Fitted,
    loads: tuple[FloatArray, FloatArray],
    column: int | None,
) -> FloatArray:
    """Return expected Taylor variances (D,) of records with the cells' fitted moments.

    That is, sum_h multiplier_h (sum u^2 - (sum u)^2/n_h).
    """
    mean = fitted.sums / cells.counts[:, None]
    own = 0 if column is None else 1 + column
    parts = [load * mean[:, j] for j, load in zip((0, own), loads, strict=True)]
    first = parts[0] + parts[1]
    kappa = fitted.kappa
    second = kappa[0, 0] * parts[0] ** 2 + kappa[own, own] * parts[1] ** 2
    second = second + 2.0 * kappa[0, own] * parts[0] * parts[1]
    size = cells.by_stratum.sum(axis=0)
    squares = second @ cells.by_stratum - (first @ cells.by_stratum) ** 2 / size
    return np.asarray(np.maximum(squares, 0.0) @ design.multiplier)


def _check(
    design: SampleDesign,
    weight: FloatArray,
    outcomes: FloatArray | None,
    keys: Sequence[tuple[str, int | None]],
    declared: Declared,
    shrink: float,
) -> None:
    p = declared.outcome.size
    if design.psu is not None:
        raise InputError("Noisy totals have no standard errors for PSUs; use a one-stage design.")
    if (declared.outcome <= 0).any():
        raise InputError(
            "Noisy totals take the relative spread of an outcome to be alike in all cells, which "
            "needs typical values above 0; move the outcome to where it has them."
        )
    if not 0.0 < shrink <= 1.0:
        raise InputError(f"shrink must lie above 0 and up to 1, but got {shrink}.")
    if weight.shape != (design.n,) or (p and (outcomes is None or outcomes.shape != (design.n, p))):
        raise InputError(
            f"The design has {design.n} records and {p} outcomes have declared moments, but "
            f"weights came with shape {weight.shape} and outcomes with "
            f"{None if outcomes is None else outcomes.shape}."
        )
    for statistic, column in keys:
        known = ("count",) if column is None else ("total", "mean")
        if statistic not in known or (column is not None and not 0 <= column < p):
            raise InputError(
                "Noisy totals are counts, totals and means of declared outcomes, but got "
                f"'{statistic}' of column {column}."
            )
