"""Estimates and intervals from draws of a posterior that knows the noise (law of total variance).

Datasets come from theta_1..m, draws of the posterior given noisy statistics, r from each with the
sample's own X. With g(theta, X) the expected estimate of a dataset, the estimate differs from the
truth by what the posterior leaves open of g, and by what the composition X of the sample would be
in other samples:

    V = V_X + max( (1 + 1/m) b - max(u - V_X, 0)/r,  b/5 )

b, the variance of the draws' estimates, each a mean of r, is Var g + E Var(estimate | theta, X)/r;
u, the mean variance of a dataset, is E Var(estimate | theta, X) + V_X; b/m is the error of the mean
of m draws. V_X is the variance of a linearised variable that is averaged over datasets and over
records with the same public row: what a sample's composition varies, and draws given X do not show.
The rule of partial synthesis, u + b/m, would leave the posterior out, and with it all noise.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import ROUNDING, Combined
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.taylor import (
    Linearisation,
    LonelyPsu,
    Outside,
    SampleDesign,
    Statistic,
    check_arguments,
    linearised_variance,
)

#: Least share of b that counts as variance between draws, should the rest seem to explain it all.
LEAST_BETWEEN = 0.2


def combine_draws(
    estimates: FloatArray,
    variances: FloatArray,
    composition: FloatArray,
    df_design: float,
    *,
    finite_variances: FloatArray | None = None,
) -> Combined:
    """Combine m posterior draws with r datasets each, (m, r, D) to (D,).

    Parameters
    ----------
    estimates, variances
        Of each dataset, (m, r, D); Taylor variances without finite population corrections.
    composition
        V_X (D,), see ``CompositionVariance``; likewise without.
    df_design
        Number of PSUs less number of strata.
    finite_variances
        Mean variances (D,) of datasets with finite population corrections, where there are some:
        what these take off a dataset's variance is taken off the whole, down to b/5.

    Raises
    ------
    InputError
        If shapes disagree or there are fewer than two draws.
    """
    if estimates.ndim != 3 or estimates.shape != variances.shape or estimates.shape[0] < 2:
        raise InputError(
            "The law of total variance needs estimates and variances of one shape (draws, "
            f"datasets a draw, rows) with at least two draws, but got {estimates.shape} and "
            f"{variances.shape}."
        )
    m, r, rows = estimates.shape
    if composition.shape != (rows,):
        raise InputError(
            f"The variance of the composition needs one number for each of the {rows} rows, but "
            f"has shape {composition.shape}."
        )
    by_draw = estimates.mean(axis=1)
    estimate = by_draw.mean(axis=0)
    within = variances.mean(axis=(0, 1))
    between = by_draw.var(axis=0, ddof=1)
    between[between <= (ROUNDING * estimate) ** 2] = 0.0
    drawn = (1.0 + 1.0 / m) * between
    given_x = np.maximum(within - composition, 0.0) / r
    total = composition + np.maximum(drawn - given_x, LEAST_BETWEEN * between)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = drawn**2 / (m - 1) + (given_x**2 + composition**2) / df_design
        df = np.where(spread > 0, total**2 / spread, float(df_design))
    if finite_variances is not None:
        total = np.maximum(total - (within - finite_variances), LEAST_BETWEEN * between)
    return Combined(
        estimate=estimate,
        standard_error=np.sqrt(total),
        df=np.where(np.isnan(total), np.nan, df),
        df_design=float(df_design),
        between=between,
        within=within,
    )


def without_fpc(design: SampleDesign) -> SampleDesign:
    """The design as if sampled with replacement.

    A stratum of one PSU passed "fail" because it was sampled completely: it contributes nothing.
    """
    lonely: LonelyPsu = "remove" if design.lonely_psu == "fail" else design.lonely_psu
    return replace(design, fpc=None, lonely_psu=lonely)


def public_rows(*codes: IntArray | FloatArray) -> IntArray:
    """Codes 0, 1, .. (n,) of records that agree in all public columns (n,) given."""
    result = np.zeros(len(codes[0]), dtype=np.int64)
    for each in codes:
        code, found = pd.factorize(np.asarray(each))
        result, _ = pd.factorize(result * len(found) + code)
    return result.astype(np.int64)


class CompositionVariance:
    """V_X of one statistic, dataset after dataset: memory for groups of records, not for datasets.

    Parameters
    ----------
    domains, sample_design
        The table's rows and the design, of the same n records. Finite population corrections are
        left out; a declared design effect counts.
    group
        Codes 0..G-1 (n,) of the public rows: cell of X, stratum, interior cell of the table, public
        weight if there is one, PSU if there are PSUs (``public_rows``). Records of a group lie in
        the same rows of the table.
    statistic, linearisation, population_size
        As in ``estimate_domains``.

    Raises
    ------
    InputError
        If a group lies in several rows of a margin set, or arguments do not fit together.
    """

    def __init__(
        self,
        domains: Domains,
        sample_design: SampleDesign,
        group: IntArray,
        *,
        statistic: Statistic,
        linearisation: Linearisation,
        population_size: float | None = None,
    ) -> None:
        self._domains, self._group = domains, group
        effect = sample_design.design_effect
        self._factor = 1.0 if effect is None else effect
        design = without_fpc(sample_design)
        self._design = design if effect is None else design.one_stage
        self._statistic, self._linearisation = statistic, linearisation
        self._population_size = population_size if linearisation == "ratio" else None
        self._is_mean = statistic in ("mean", "proportion")
        self._calibrated = linearisation == "ratio" and not self._is_mean
        self._size = np.bincount(group)
        self._rows = _rows_of_groups(domains, group, self._size.size)
        self._count = 0
        self._inside = np.zeros(self._rows.shape)
        self._weight = np.zeros(self._size.size)
        self._centre = np.zeros(domains.n_rows)

    def add(self, weight: FloatArray, outcome: FloatArray | None) -> None:
        """One dataset: weights and outcomes (n,); the outcome of a count may be None."""
        check_arguments(
            self._design.n, self._domains, weight, outcome, self._statistic, self._linearisation
        )
        sums: FloatArray = np.bincount(self._group, weight).astype(np.float64, copy=False)
        total = sums
        if self._statistic != "count" and outcome is not None:
            total = np.bincount(self._group, weight * outcome).astype(np.float64, copy=False)
        if self._population_size is not None:
            factor = self._population_size / sums.sum()
            sums, total = sums * factor, total * factor
        size_of_row, total_of_row = self._by_row(sums), self._by_row(total)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre, scale = np.zeros_like(size_of_row), np.ones_like(size_of_row)
            if self._is_mean:
                centre, scale = total_of_row / size_of_row, 1.0 / size_of_row
            elif self._calibrated:
                centre = total_of_row / size_of_row[0]
            rows = self._rows
            self._inside += (total - centre[rows] * sums) * scale[rows] / self._size
        self._weight += sums / self._size
        self._centre += centre
        self._count += 1

    def variance(self) -> FloatArray:
        """V_X (D,) of the datasets so far; NaN as variances of ``estimate_domains`` are.

        In the rows that a record is not in, a calibrated count or total has minus its centre times
        the weight of the record: here the product of the means of both, whose covariance between
        datasets is of smaller order.
        """
        if not self._count:
            raise InputError("The variance of the composition needs at least one dataset.")
        means = self._inside / self._count
        outside = None
        with np.errstate(divide="ignore", invalid="ignore"):
            if self._calibrated:
                weight = (self._weight / self._count)[self._group]
                outside = Outside.of(weight, self._centre / self._count, self._design)
            variance: Any = self._factor * linearised_variance(
                self._domains,
                self._design,
                lambda margin_set: means[margin_set][self._group],
                outside,
                every_stratum=self._linearisation == "ratio",
            )
        variance[self._domains.n < (2 if self._is_mean else 1)] = np.nan
        return np.asarray(variance, dtype=np.float64)

    def _by_row(self, values: FloatArray) -> FloatArray:
        """Sums (D,) of groups (G,) within the rows of the table."""
        sums = np.zeros(self._domains.n_rows)
        for rows in self._rows:
            sums += np.bincount(rows, values, minlength=sums.size)
        return sums


def _rows_of_groups(domains: Domains, group: IntArray, size: int) -> IntArray:
    """Row of the table of each group by margin set, (2**k, G)."""
    if group.shape != domains.codes.shape[1:]:
        raise InputError(
            f"Each of the {domains.codes.shape[1]} records needs the code of its public row, but "
            f"these came with shape {group.shape}."
        )
    rows = np.zeros((len(domains.codes), size), dtype=np.int64)
    rows[:, group] = domains.codes
    if (rows[:, group] != domains.codes).any():
        raise InputError(
            "Records with the same public row lie in different rows of the table; the columns by "
            "which it is made belong to the public row."
        )
    return rows
