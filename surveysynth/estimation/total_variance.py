"""Estimates and intervals from draws of a posterior that models the noise (strict 3).

Datasets come from theta_1..m, draws of the posterior given noisy statistics, r from each with the
sample's own X. By the law of total variance their estimate has

    V = V_X + max( (1 + 1/m) b - max(u - V_X, 0)/r,  b/5 )

with b between draws, u of a dataset, and V_X the variance due to the sample's composition, which
draws given X do not show. The rule of partial synthesis, u + b/m, would leave the posterior out,
and with it all noise. Strict 3 has the degrees of freedom, quantiles, and declared design effects.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import ndtri

from surveysynth._support.numeric import normal_density
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import (
    ROUNDING,
    Combined,
    CombiningRule,
    Stack,
    mean_estimate,
    mean_known,
    without_rounding,
)
from surveysynth.estimation.sample_design import LonelyPsu, SampleDesign
from surveysynth.estimation.taylor import LinearisedTable, Regression, linearised_variance
from surveysynth.survey.survey import PublicDesign

#: Least share of b that counts as variance between draws, should the rest seem to explain it all.
LEAST_BETWEEN = 0.2
#: An interval of fewer degrees of freedom says next to nothing: with 2 it is 4.3 standard errors to
#: either side, with 1 it is 12.7.
LEAST_DF = 3.0


@dataclass(frozen=True, eq=False)
class TotalVariance(CombiningRule):
    """The combining rule of this module.

    group: codes 0..G-1 (n,) of the public rows (``public_rows_of``). Records of a group are in the
    same rows of the table, as far as rows are made by public columns. saved: the share of the
    variance given X that normal residuals save, which is added back.
    """

    group: IntArray
    saved: float = 0.0

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> "_Collected":
        """Begin a table of ``draws`` x ``replicates`` datasets."""
        return _Collected(draws, replicates, sample_design, self.group, self.saved)

    def of_quantile(self, p: float) -> "TotalVariance":
        """Return the rule for the share p of values up to their quantile."""
        return replace(self, saved=saved_by_law(p))


class _Collected:
    """Estimates and variances of every dataset, (m, r, D), and the sums of linearized variables."""

    def __init__(
        self, draws: int, replicates: int, sample_design: SampleDesign, group: IntArray,
        saved: float,
    ) -> None:
        self._df, self._effect = sample_design.degrees_of_freedom, sample_design.design_effect
        self._design = sample_design if self._effect is None else sample_design.one_stage
        self._unlimited = without_fpc(self._design)
        self._stack, self._group, self._saved = Stack(draws, replicates), group, saved
        self._variances = np.full((2, draws, replicates, 0), np.nan)
        self._composition: Composition | None = None

    def add(
        self, draw: int, replicate: int, table: LinearisedTable, pair: LinearisedTable
    ) -> None:
        """Add one dataset."""
        self._stack.add(draw, replicate, table)
        inside = cache(pair.inside)
        unlimited = pair.variance(self._unlimited, inside)
        limited = unlimited if self._design.fpc is None else pair.variance(self._design, inside)
        if self._composition is None:
            self._composition = Composition(pair, self._group)
            self._variances = np.full((*self._variances.shape[:3], limited.size), np.nan)
        self._variances[:, draw - 1, replicate - 1] = unlimited, limited
        self._composition.add(pair, inside)

    def combined(self) -> Combined:
        """Return one estimate, variance and interval of all datasets."""
        estimates, (variances, limited) = self._stack.values, self._variances
        assert self._composition is not None  # there is a dataset
        return combine_draws(
            estimates,
            variances,
            self._composition.variance(self._unlimited),
            float(self._df),
            finite_variances=None if self._design.fpc is None else mean_known(limited),
            design_effect=1.0 if self._effect is None else self._effect,
            saved=self._saved,
        )


def combine_draws(
    estimates: FloatArray,
    variances: FloatArray,
    composition: FloatArray,
    df_design: float,
    *,
    finite_variances: FloatArray | None = None,
    design_effect: float = 1.0,
    saved: float = 0.0,
) -> Combined:
    """Combine m posterior draws with r datasets each, (m, r, D) to (D,).

    estimates, variances: of each dataset, Taylor variances without finite population corrections or
    a declared design effect; composition: V_X (D,), likewise without; df_design: number of PSUs
    less number of strata; finite_variances: mean variances (D,) of datasets with finite population
    corrections, where there are some: what these take off a dataset's variance is taken off the
    whole, down to b/5; design_effect: the declared factor by which clustering raises the sampling
    variance; saved: share of the variance given X that normal residuals save, which is added back.

    Raises ``InputError`` for fewer than two draws.
    """
    m, r, _ = estimates.shape
    if m < 2:
        raise InputError(f"The law of total variance needs at least two draws, but got {m}.")
    by_draw = estimates.mean(axis=1)
    estimate = mean_estimate(estimates)
    within = mean_known(variances)
    between = by_draw.var(axis=0, ddof=1)
    between[between <= (ROUNDING * estimate) ** 2] = 0.0
    drawn = (1.0 + 1.0 / m) * between
    given_x = np.maximum(within - composition, 0.0)
    # What draws do not show: who is in the sample, and the shape of residuals.
    sampled, given_x = composition + saved * given_x, given_x / r
    total = sampled + np.maximum(drawn - given_x, LEAST_BETWEEN * between)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = drawn**2 / (m - 1) + sampled**2 / df_design
        df = np.where(spread > 0, total**2 / (spread + given_x**2 / df_design), float(df_design))
        too_few = df < LEAST_DF
        total[too_few] = (sampled + drawn)[too_few]
        df[too_few] = (total**2 / spread)[too_few]
    if finite_variances is not None:
        total = np.maximum(total - (within - finite_variances), LEAST_BETWEEN * between)
    of_sample = within if finite_variances is None else finite_variances
    total += (design_effect - 1.0) * np.minimum(total, of_sample)
    total = without_rounding(total, estimate)
    df[total == 0] = float(df_design)
    return Combined(
        estimate=estimate, standard_error=np.sqrt(total), df=np.where(np.isnan(total), np.nan, df),
        df_design=float(df_design), between=between, within=within,
    )  # fmt: skip


def saved_by_law(p: float) -> float:
    """Return 1 - e(p): the part of a share's variance that normal residuals would save."""
    z = np.asarray(ndtri(p), dtype=np.float64)
    efficiency = normal_density(z) ** 2 * (1.0 + 0.5 * z * z) / (p * (1.0 - p))
    return 1.0 - float(efficiency)


def without_fpc(design: SampleDesign) -> SampleDesign:
    """Return the design as if sampled with replacement.

    A stratum of one PSU passed "fail" because it was sampled completely: it contributes nothing.
    """
    lonely: LonelyPsu = "remove" if design.lonely_psu == "fail" else design.lonely_psu
    return replace(design, fpc=None, lonely_psu=lonely)


def public_rows(*codes: IntArray) -> IntArray:
    """Return codes 0, 1, .. (n,) of groups of records with equal public columns (n,)."""
    table = pd.DataFrame({number: np.asarray(each) for number, each in enumerate(codes)})
    groups = table.groupby(list(table), sort=False, dropna=False).ngroup()
    return np.asarray(groups, dtype=np.int64)


def public_row_columns(design: PublicDesign) -> tuple[str, ...]:
    """Return columns of a public row: by, strata, PSU, public weight, predictors, calibration."""
    named = (design.strata_name, design.psu_name, design.public_weight_name)
    units = [each for each in named if each is not None]
    calibrated = design.calibrated_by or ()
    return tuple(dict.fromkeys([*design.by, *units, *design.predictors, *calibrated]))


def public_rows_of(design: PublicDesign) -> IntArray:
    """Return the public rows (n,) of a design."""
    columns = [design.frame[name].factorize()[0] for name in public_row_columns(design)]
    return public_rows(*columns, np.zeros(design.n, dtype=np.int64))


class Composition:
    """V_X of one table, dataset after dataset: memory for groups of records, not for datasets.

    table: of the first dataset, for what is the same in all; group: codes (n,) of public rows, each
    of which is in one row of a margin set.
    """

    def __init__(self, table: LinearisedTable, group: IntArray) -> None:
        self._table, self._group = table, group
        self._size = np.bincount(group)
        self._choices = [table.domains.choices(each) for each in range(len(table.domains.codes))]
        #: Rows of groups, by margin set.
        self._rows = [np.empty(self._size.size, dtype=np.int64) for _ in self._choices]
        for rows, (public, _) in zip(self._rows, self._choices, strict=True):
            rows[group] = public
        self._count = 0
        # A record has a u in every row that its outcomes may put it in.
        self._inside = [np.zeros((steps.size, self._size.size)) for _, steps in self._choices]
        self._weight = np.zeros(self._size.size)
        self._outside = np.zeros(table.domains.n_rows)
        self._calibrated: FloatArray | float = 0.0
        self._coefficient: FloatArray | float = 0.0

    def add(self, table: LinearisedTable, u: Callable[[int], FloatArray] | None = None) -> None:
        """Add one dataset; u: its ``inside``, where what it returns is kept."""
        weight, form = self._means(table.weight)[0], table.linearised.deviations
        product = None
        if form is not None and table.domains.ways is None:
            product = self._means(table.weight * form.values)[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            for margin_set, (public, steps) in enumerate(self._choices):
                if form is not None and product is not None:
                    rows = self._rows[margin_set]
                    made = form.scale[rows] * (product - form.centre[rows] * weight)
                else:
                    # Where public columns alone make the rows there is one way.
                    rows, chosen = table.domains.codes[margin_set], None
                    if steps.size > 1:
                        chosen = np.searchsorted(steps, rows - public)
                    made = self._means((u or table.inside)(margin_set), chosen, steps.size)
                self._inside[margin_set] += made
            if table.linearised.outside is not None:
                self._outside += table.linearised.outside
            if (regression := table.regression) is not None:
                columns = [self._means(each)[0] for each in regression.weighted.T]
                self._calibrated = self._calibrated + np.stack(columns, axis=1)
                self._coefficient = self._coefficient + regression.coefficient
        self._weight += weight
        self._count += 1

    def variance(self, sample_design: SampleDesign) -> FloatArray:
        """V_X (D,) of the datasets so far.

        Where u of a record outside a row is a center times its weight, this is the product of the
        means of both, whose covariance between datasets is of smaller order.
        """
        table, count = self._table, self._count
        inside = [each for of_set in self._inside for each in of_set]
        codes = [rows + step for rows, steps in self._choices for step in steps]
        regression = None
        if isinstance(self._calibrated, np.ndarray) and isinstance(self._coefficient, np.ndarray):
            x = self._calibrated[self._group] / count
            regression = Regression(x, self._coefficient / count)
        return linearised_variance(
            table.statistic,
            # Every record is in each row that its outcomes allow.
            replace(table.domains, n=table.domains.n_public, codes=np.stack(codes), ways=None),
            sample_design,
            lambda position: inside[position][self._group] / count,
            weight=self._weight[self._group] / count,
            outside=None if table.linearised.outside is None else self._outside / count,
            calibrated=table.calibrated,
            regression=regression,
        )

    def _means(
        self, values: FloatArray, chosen: IntArray | None = None, ways: int = 1
    ) -> FloatArray:
        """Average over the records of each group: (ways, G).

        A record has its value at the way chosen (n,), and zero at others.
        """
        size = self._size.size
        place = self._group if chosen is None else chosen * size + self._group
        sums = np.bincount(place, values, minlength=ways * size).reshape(ways, size)
        return np.asarray(sums / self._size, dtype=np.float64)
