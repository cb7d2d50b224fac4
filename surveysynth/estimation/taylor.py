"""Estimates of all table rows with Taylor-linearised variances (methods 5).

Agrees with R's survey package: ``svyby`` with ``svytotal`` and ``svymean`` under the plain
linearisation, the same after ``calibrate(~1, N)`` under the ratio linearisation, and after
``calibrate`` with further variables under calibration.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibrated_variance import Regression, residual_squares
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.contrasts import contrasted
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.quantiles import (
    RowDistributions,
    Weighted,
    distribution,
    woodruff_se,
)
from surveysynth.estimation.sample_design import LonelyPsu, SampleDesign
from surveysynth.estimation.statistics import (
    STATISTICS,
    Linearised,
    Statistic,
    statistic_of,
    values_of,
)
from surveysynth.estimation.stratum_variance import Outside, Pairs, averaging, squares_by_row

__all__ = [
    "DomainEstimates",
    "Linearisation",
    "LinearisedTable",
    "LonelyPsu",
    "SampleDesign",
    "check_arguments",
    "estimate_domains",
    "linearise_domains",
    "linearised_variance",
]

Linearisation: TypeAlias = Literal["ratio", "plain"]


@dataclass(frozen=True)
class DomainEstimates:
    """Estimates of the D rows of a table and their Taylor variances, each of shape (D,).

    A row without records has neither (NaN), a mean of one record has no variance (NaN).
    """

    estimate: FloatArray
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class LinearisedTable:
    """One statistic of one dataset for all D rows of a table, before its variance is taken.

    weight: (n,), scaled to the population size under "ratio"; calibrated: whether it is;
    calibration: weights calibrated to further totals, which ``weight`` then is, or None; again: the
    estimates (D,) under other weights (n,), such as those of a replicate.
    """

    statistic: Statistic
    domains: Domains
    weight: FloatArray
    linearised: Linearised
    calibrated: bool
    calibration: CalibratedWeights | None = None
    again: Callable[[FloatArray], FloatArray] | None = None

    @property
    def estimate(self) -> FloatArray:
        """The estimate of each row, (D,); NaN without records.

        A count or total of a row that is empty in one dataset alone is zero.
        """
        known = records_of(self.statistic, self.domains) > 0
        return np.where(known, self.linearised.estimate, np.nan)

    def variance(self, sample_design: SampleDesign) -> FloatArray:
        """Taylor variances under a design of the same records, (D,)."""
        return linearised_variance(
            self.statistic,
            self.domains,
            sample_design,
            self._inside,
            weight=self.weight,
            outside=self.linearised.outside,
            calibrated=self.calibrated,
            regression=self.regression,
        )

    @cached_property
    def regression(self) -> Regression | None:
        """The regression on the calibration variables; None without calibration."""
        if self.calibration is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return Regression.of(self.calibration, self.domains, self._inside)

    def _inside(self, margin_set: int) -> FloatArray:
        return self.linearised.inside(self.domains.codes[margin_set])


def linearised_variance(
    statistic: Statistic,
    domains: Domains,
    sample_design: SampleDesign,
    inside: Callable[[int], FloatArray],
    *,
    weight: FloatArray,
    outside: FloatArray | None,
    calibrated: bool,
    regression: Regression | None = None,
) -> FloatArray:
    """Taylor variances (D,) of a linearised variable.

    inside: from a margin set to u (n,) of records in the rows that they are in there; outside (D,):
    a record that is not in a row has u = -outside times its weight (n,), or zero for None;
    calibrated: whether weights are scaled to a known sum; regression: taken off u, where weights
    are calibrated to further totals.
    """
    design_effect = sample_design.design_effect
    if design_effect is not None:
        sample_design = sample_design.one_stage
    variance = np.zeros(domains.n_rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        if regression is not None:
            variance += residual_squares(regression, domains, sample_design, inside)
            variance *= _of_every_stratum(sample_design)
        rest = None if outside is None else Outside.of(weight, outside, sample_design)
        for margin_set, rows in enumerate(domains.codes if regression is None else ()):
            pairs = Pairs.of(rows, domains.n_rows, sample_design)
            squares = squares_by_row(pairs, sample_design, inside(margin_set), rest)
            if sample_design.lonely_psu == "average":
                squares *= averaging(pairs, sample_design, every_stratum=calibrated)
            variance += squares
    variance *= 1.0 if design_effect is None else design_effect
    variance[records_of(statistic, domains) < statistic.least_for_se] = np.nan
    return variance


def _of_every_stratum(design: SampleDesign) -> float:
    """Return the factor of lonely "average" where every stratum counts; infinite without any."""
    if design.lonely_psu != "average":
        return 1.0
    return float(design.n_strata / np.float64(design.n_strata - int(design.lonely.sum())))


def records_of(statistic: Statistic, domains: Domains) -> IntArray:
    """Return the number of records (D,) that decides whether a row has an estimate and an error.

    These are the row's records; for sums, which an empty row has too, the records that it could
    have.
    """
    return domains.n_public if statistic.additive else domains.n


def estimate_domains(
    domains: Domains,
    sample_design: SampleDesign,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: Linearisation,
    population_size: float | None = None,
    calibration: CalibratedWeights | None = None,
) -> DomainEstimates:
    """Estimate one statistic and its variance for all D cells and margins (methods 5).

    Parameters
    ----------
    domains, sample_design
        The table's rows and the design, of the same n records.
    weight
        Survey weights, shape (n,).
    outcome
        Outcome in original units, shape (n,); for counts it is not looked at and may be None.
    statistic
        A name of ``STATISTICS``. A proportion is the mean of an outcome that is 0 or 1 in the
        survey; synthetic values of it may lie between, so that is not checked here. A share is the
        mean of the indicator of one level.
    linearisation
        "plain" for weights as they stand; "ratio" for weights scaled to a known population size,
        whose sum does not vary from sample to sample. They differ for counts and totals.
    population_size
        Under "ratio" the weights are scaled to it (they stay as they are if they sum to it
        already); None takes their sum as it. Not used under "plain".
    calibration
        Weights calibrated to known totals, from ``calibrate``: ``weight`` is then their calibrated
        weight, and variances are of the residuals of the calibration regression, whatever the
        linearisation.

    Returns
    -------
    DomainEstimates
        Estimates and variances (D,).

    Raises
    ------
    InputError
        If shapes disagree, an outcome is missing or a word is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame({"sex": ["F", "M", "F", "M"]})
    >>> rows = ss.build_domains(frame, ["sex"], {"sex": ("F", "M")})
    >>> made = ss.estimate_domains(
    ...     rows, ss.SampleDesign(np.zeros(4, int)),
    ...     weight=np.array([1.0, 2.0, 3.0, 2.0]), outcome=np.array([5.0, 6.0, 9.0, 8.0]),
    ...     statistic="mean", linearisation="plain",
    ... )
    >>> made.estimate
    array([7.5, 8. , 7. ])
    """
    check_arguments(sample_design.n, domains, weight, outcome, statistic, linearisation)
    table = linearise_domains(
        domains,
        weight=weight,
        outcome=outcome,
        statistic=statistic,
        linearisation=linearisation,
        population_size=population_size,
        calibration=calibration,
    )
    if table.statistic.share_below is not None and outcome is not None:
        return DomainEstimates(table.estimate, _of_quantiles(table, sample_design, outcome))
    return DomainEstimates(table.estimate, table.variance(sample_design))


def _of_quantiles(
    table: LinearisedTable, sample_design: SampleDesign, outcome: FloatArray
) -> FloatArray:
    """Return variances (D,) of quantiles by Woodruff's interval, with the design's df."""
    domains, at = table.domains, table.estimate
    with np.errstate(divide="ignore", invalid="ignore"):
        made = distribution(domains, table.weight, outcome, at)
    variance = replace(table, linearised=made).variance(sample_design)
    rows = RowDistributions([Weighted(domains, outcome, table.weight)])
    df = np.full(domains.n_rows, float(sample_design.degrees_of_freedom))
    se = woodruff_se(rows, at, made.estimate, np.sqrt(variance), df)
    return np.asarray(np.where(np.isfinite(variance), se**2, np.nan))


def linearise_domains(
    domains: Domains,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: Linearisation,
    population_size: float | None = None,
    calibration: CalibratedWeights | None = None,
) -> LinearisedTable:
    """Compute estimates and linearised variables, without variances.

    Raises ``InputError`` as it does.
    """
    check_arguments(weight.size, domains, weight, outcome, statistic, linearisation)
    kind = statistic_of(statistic)
    # Calibration knows the population size, where it is known.
    calibrated = linearisation == "ratio" and calibration is None

    def again(weight: FloatArray) -> FloatArray:
        return linearise_domains(
            domains, weight=weight, outcome=outcome, statistic=statistic,
            linearisation="ratio" if calibrated else "plain", population_size=population_size,
        ).estimate  # fmt: skip

    if calibrated and population_size is not None:
        weight = weight * (population_size / weight.sum())
    value = values_of(kind, outcome, weight.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        linearised = kind.linearise(domains, weight, value, calibrated=calibrated)
        rows = domains
        if kind.contrast is not None:
            rows, linearised = contrasted(kind.contrast, domains, weight, linearised)
    return LinearisedTable(kind, rows, weight, linearised, calibrated, calibration, again)


def check_arguments(
    n: int,
    domains: Domains,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: str,
) -> None:
    """Raise InputError unless the arguments of an estimate of n records fit together."""
    kind = statistic_of(statistic)
    words = get_args(Linearisation)
    if linearisation not in words:
        raise InputError(
            f"The linearisation must be one of {', '.join(words)}, but got '{linearisation}'."
        )
    if outcome is None and kind.needs_outcome:
        without = [each.plural for each in STATISTICS.values() if not each.needs_outcome]
        raise InputError(
            f"A {statistic} needs an outcome; only {' and '.join(without)} do without."
        )
    shapes = {"weight": weight.shape, "domains": domains.codes.shape[1:]}
    if outcome is not None:
        shapes["outcome"] = outcome.shape
    for name, shape in shapes.items():
        if shape != ((n, len(kind.of)) if kind.of and name == "outcome" else (n,)):
            raise InputError(
                f"The sample design has {n} records, but the {name} came with shape {shape}."
            )
