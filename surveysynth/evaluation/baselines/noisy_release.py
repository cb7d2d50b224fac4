"""A release of noisy tables: declared public bounds, discrete noise, pure differential privacy.

Nothing that scales the noise is read from the data. Every record's weight and outcome are clipped
to bounds that the caller declares, its contribution is rounded to a declared unit, sums are exact
whole numbers, and OpenDP's discrete Laplace sampler adds noise to them: floating-point noise would
reveal the digits of what it hides (Mironov 2012). Means are ratios of noisy sums, which costs
nothing further. Published standard errors come from the noise; those of sampling are not released.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.margins import margin_set_of_row
from surveysynth.estimation.statistics import COUNT, MEAN, TOTAL, statistic_of
from surveysynth.evaluation.baselines.budget_split import BudgetSplit, Share, split_budget
from surveysynth.survey.survey import Survey, require_survey

#: A record's contribution is rounded to about this share of its range, unless a unit is declared.
STEPS = 1_000_000
#: Sums must stay far from the ends of 64-bit numbers, noise included.
LARGEST_SUM = 2**53
#: The statistics made of noisy sums here, with the variance of the noise.
RELEASED = (COUNT.name, TOTAL.name, MEAN.name)

Noise = Callable[[IntArray, int, Fraction], tuple[IntArray, float]]


@dataclass(frozen=True)
class DeclaredBounds:
    """Public bounds of weights and outcomes, in their units: never taken from the data.

    Values outside are clipped, which biases estimates; bounds that are too wide cost noise.

    Parameters
    ----------
    weight
        (lowest, highest).
    outcomes
        The same by name.
    units
        What a contribution is rounded to, for "count" and by outcome, where a power of ten near a
        millionth of its range will not do.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.DeclaredBounds(weight=(1, 500), outcomes={"salary": (0, 500_000)}).weight
    (1, 500)
    """

    weight: tuple[float, float] | None = None
    outcomes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NoisyRelease:
    """The publishable result: tables, and the guarantee for their point estimates.

    ``tables``: by (statistic, outcome), frames of D rows with the by-columns, is_margin, n,
    estimate, noise_se (the standard error from the noise alone) and flag ("no sample", "negative").
    ``epsilon`` is what OpenDP accounts for all noisy numbers together, at most the requested
    epsilon. ``statement`` says the rest.
    """

    tables: Mapping[tuple[str, str | None], pd.DataFrame]
    epsilon: float
    statement: str


@dataclass(frozen=True)
class _Sums:
    """Noisy sums of one kind by row, in their units: values and variance of the noise, (D,)."""

    value: FloatArray
    variance: FloatArray


def noisy_release(
    survey: Survey,
    bounds: DeclaredBounds,
    *,
    epsilon: Share,
    statistics: Sequence[str] = (COUNT.name, MEAN.name),
    margin_labels: Mapping[str, str] | None = None,
    set_shares: Sequence[Share] | None = None,
) -> NoisyRelease:
    """Release weighted counts, totals and means of all cells and margins with noise.

    Binary outcomes are 0 and 1; categorical ones are left out, as the statement says.

    The budget is divided equally among the required sums (counts, and the total of each outcome)
    and among the margin sets, or among these by ``set_shares``; a record is in one row of each set.
    Random numbers come from the operating system, through OpenDP.

    Parameters
    ----------
    survey
        Both halves.
    bounds
        Of weights and outcomes, public.
    epsilon
        Of all tables together; pure differential privacy.
    statistics
        "count", "total", "mean".
    margin_labels
        Name of the margin of a by column, "All" unless given.
    set_shares
        Of the margin sets, in the order of the rows of a table.

    Returns
    -------
    NoisyRelease
        ``tables`` by statistic and outcome, ``epsilon`` spent, ``statement``.

    Raises
    ------
    InputError
        If a bound is not declared, bounds are the wrong way round or a statistic is not known.
    RefusedError
        Where OpenDP (extra ``opendp``) is not installed.

    Examples
    --------
    >>> import surveysynth as ss
    >>> bounds = ss.DeclaredBounds(weight=(1, 500), outcomes={"salary": (0, 500_000)})
    >>> noisy = ss.noisy_release(ss.example_survey(n=100), bounds, epsilon=10)
    >>> noisy.tables["count", None].shape[0]
    27
    """
    require_survey(survey, "noisy_release")
    return _release(
        survey, bounds, epsilon, statistics, margin_labels or {}, set_shares, _opendp_noise
    )


def _release(
    survey: Survey,
    bounds: DeclaredBounds,
    epsilon: Share,
    statistics: Sequence[str],
    margin_labels: Mapping[str, str],
    set_shares: Sequence[Share] | None,
    noise: Noise,
) -> NoisyRelease:
    design = survey.design
    kinds = _kinds(survey, bounds, statistics)
    domains = build_domains(design.frame, design.by, design.levels, margin_labels)
    sets = len(domains.codes)
    split = split_budget(
        epsilon, tables=len(kinds), margin_sets=sets, replicates=0, point_share=1,
        set_shares=set_shares,
    )  # fmt: skip
    spent = 0.0
    sums: dict[str | None, _Sums] = {}
    for table, kind in enumerate(kinds):
        whole, sensitivity, unit = contributions(survey, bounds, kind)
        sums[kind], used = _noisy_sums(domains, split, table, whole, sensitivity, unit, noise)
        spent = math.nextafter(spent + used, math.inf)
    tables = {
        (statistic, outcome): _table(domains, statistic, sums, outcome)
        for statistic in statistics
        for outcome in (
            _numeric(survey) if statistic_of(statistic).needs_outcome else [None]
        )
    }
    return NoisyRelease(tables, spent, _statement(survey, bounds, float(epsilon), kinds))


def _numeric(survey: Survey) -> tuple[str, ...]:
    """Return the outcomes that have a mean: amounts, and binary ones as 0 and 1."""
    return tuple(each.name for each in survey.design.outcomes if each.kind != "categorical")


def _kinds(
    survey: Survey, bounds: DeclaredBounds, statistics: Sequence[str]
) -> list[str | None]:
    """Return the required sums, None for counts; raise unless their bounds are declared."""
    unknown = [word for word in statistics if word not in RELEASED]
    if unknown or not statistics or len(set(statistics)) < len(statistics):
        raise InputError(
            f"statistics must be of {', '.join(RELEASED)}, each once, got {', '.join(statistics)}."
        )
    if survey.design.public_weight is not None:
        raise InputError(
            "noisy tables hide the weight of a record with its outcome, in counts too, and the "
            "weights of this survey are public; use a synthesizer."
        )
    if survey.confidential.sampling_weight is None:
        raise InputError("noisy tables of a survey need sampling weights; give weight.")
    outcomes: Sequence[str] = _numeric(survey)
    if not any(statistic_of(each).needs_outcome for each in statistics):
        outcomes = ()
    named: dict[str, tuple[float, float] | None] = {"weight": bounds.weight}
    named.update({f"outcomes[{name!r}]": bounds.outcomes.get(name) for name in outcomes})
    for key, given in named.items():
        if given is None:
            raise InputError(
                f"bounds.{key}: missing; a private release needs declared public bounds, the "
                "lowest and the highest value that can be, from outside the data."
            )
        low, high = given
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InputError(
                f"bounds.{key}: expected two finite numbers, the lower first, got {given}."
            )
    if bounds.weight is not None and bounds.weight[0] < 0:
        raise InputError(f"bounds.weight: weights are not negative, got {bounds.weight}.")
    counted: list[str | None] = [None] if {COUNT.name, MEAN.name} & set(statistics) else []
    return [*counted, *outcomes]


def contributions(
    survey: Survey, bounds: DeclaredBounds, outcome: str | None
) -> tuple[IntArray, int, float]:
    """Return what each record adds to a row, in whole units (n,), with its bound and the unit.

    The bound is the most that one record can change a row by, before and after any replacement.
    ``outcome`` None is for counts.
    """
    weight, low, high = survey.confidential.sampling_weight, *_range(bounds, None)
    if weight is None:
        raise InputError("noisy tables of a survey need sampling weights; give weight.")
    value = np.clip(weight, low, high)
    if outcome is not None:
        column = survey.design.outcome_names.index(outcome)
        value = value * np.clip(survey.confidential.outcome[:, column], *bounds.outcomes[outcome])
        low, high = _range(bounds, outcome)
    unit = bounds.units.get(COUNT.name if outcome is None else outcome)
    if unit is None:
        unit = 10.0 ** math.floor(math.log10((high - low) / STEPS))
    if not (math.isfinite(unit) and unit > 0):
        raise InputError(f"bounds.units: expected a number above zero, got {unit}.")
    least, most = round(low / unit), round(high / unit)
    if max(abs(least), abs(most)) * len(weight) >= LARGEST_SUM:
        raise InputError("bounds.units: sums would be too large in so small a unit; raise it.")
    # Clipped again, so that the sensitivity holds in whole numbers despite earlier rounding.
    whole = np.clip(np.rint(value / unit).astype(np.int64), least, most)
    return whole, max(most - least, 1), unit


def _range(bounds: DeclaredBounds, outcome: str | None) -> tuple[float, float]:
    """Return the ends of weight, or of weight times outcome, under the declared bounds."""
    if bounds.weight is None:
        raise InputError("bounds.weight: missing; a private release needs declared public bounds.")
    if outcome is None:
        return bounds.weight
    corners = [w * y for w in bounds.weight for y in bounds.outcomes[outcome]]
    return min(corners), max(corners)


def _noisy_sums(
    domains: Domains,
    split: BudgetSplit,
    table: int,
    whole: IntArray,
    sensitivity: int,
    unit: float,
    noise: Noise,
) -> tuple[_Sums, float]:
    """Return noisy sums of all rows, set by set, and the epsilon that they spent."""
    set_of_row = margin_set_of_row(domains)
    value, variance = np.full(domains.n_rows, np.nan), np.full(domains.n_rows, np.nan)
    spent = 0.0
    for number, rows in enumerate(domains.codes):
        exact = np.zeros(domains.n_rows, dtype=np.int64)
        np.add.at(exact, rows, whole)
        inside = np.flatnonzero((set_of_row == number) & (domains.n > 0))
        part = split.point[table][number]
        noisy, used = noise(exact[inside], sensitivity, part)
        spent = math.nextafter(spent + used, math.inf)
        value[inside] = noisy * unit
        decay = math.exp(-float(part) / sensitivity)
        variance[inside] = 2.0 * decay / (1.0 - decay) ** 2 * unit**2
    return _Sums(value, variance), spent


def _opendp_noise(exact: IntArray, sensitivity: int, epsilon: Fraction) -> tuple[IntArray, float]:
    """Add discrete Laplace noise to whole numbers; return also OpenDP's epsilon for it."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    # Rounded up, so that the accounted epsilon cannot pass its part.
    scale = float(sensitivity / epsilon) * (1.0 + 1e-12)
    measurement = dp.m.make_laplace(*space, scale=scale)
    noisy: IntArray = np.array(measurement(exact.tolist()), dtype=np.int64)
    return noisy, float(measurement.map(sensitivity))


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise RefusedError(
            "a noisy release needs OpenDP's secure sampler, which is not installed: "
            "pip install 'surveysynth[opendp]'. Nothing was released."
        ) from None
    dp.enable_features("contrib")
    return dp


def _table(
    domains: Domains, statistic: str, sums: Mapping[str | None, _Sums], outcome: str | None
) -> pd.DataFrame:
    if statistic == MEAN.name:
        size, total = sums[None], sums[outcome]
        with np.errstate(divide="ignore", invalid="ignore"):
            usable = size.value > 0
            estimate = np.where(usable, total.value / size.value, np.nan)
            variance = (total.variance + estimate**2 * size.variance) / size.value**2
    else:
        of_kind = sums[outcome]
        estimate, variance = of_kind.value, of_kind.variance
    frame = domains.table.copy()
    frame["n"] = domains.n
    frame["estimate"] = estimate
    frame["noise_se"] = np.sqrt(variance)
    negative = (statistic == COUNT.name) & (estimate < 0)
    no_mean = (statistic == MEAN.name) & np.isnan(estimate)
    frame["flag"] = np.select(
        [domains.n == 0, negative, no_mean], ["no sample", "negative", "no mean"], default=""
    )
    return frame


def _statement(
    survey: Survey, bounds: DeclaredBounds, epsilon: float, kinds: Sequence[str | None]
) -> str:
    outcomes = "; ".join(
        f"{name} {bounds.outcomes[name][0]:g} to {bounds.outcomes[name][1]:g}"
        for name in kinds
        if name is not None
    )
    low, high = bounds.weight or (math.nan, math.nan)
    return (
        f"The estimates satisfy pure differential privacy with epsilon at most {epsilon:g}, all "
        "together. Neighbours are surveys that differ in the weight and outcomes of one record; "
        "who is in the sample, strata and the classifying variables, hence the numbers of records, "
        f"are public. Values were clipped to declared public bounds: weight {low:g} to {high:g}"
        f"{'; ' + outcomes if outcomes else ''}. Noise is discrete Laplace, by OpenDP, on sums of "
        "whole numbers; means are ratios of noisy sums. The guarantee is for the point estimates. "
        "noise_se is computed from public numbers and noisy estimates; it leaves out sampling "
        "error, of which nothing is released. Clipping biases estimates where values lie outside "
        f"the bounds.{_left_out(survey)} Other releases from this survey add to epsilon."
    )


def _left_out(survey: Survey) -> str:
    """Return a note on the outcomes that have no mean."""
    names = [each.name for each in survey.design.outcomes if each.kind == "categorical"]
    if not names:
        return ""
    return f" Categorical outcomes have no total and no mean and are left out: {', '.join(names)}."
