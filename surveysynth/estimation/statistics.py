"""The statistics that tables can show, with all facts about each.

A row of ``STATISTICS`` has a statistic's words, rounding rule, requirements for an outcome,
estimate and linearised variable as an array function, and the lines that recompute it in a
release's README. The specification, estimation, tables, writers, comparisons and noise all read
this registry.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.families import EXAMPLES, FAMILIES, of_share, parse_call
from surveysynth.estimation.linearised import Linearised, average, expansion
from surveysynth.estimation.margins import of_means, of_totals, of_weights
from surveysynth.estimation.statistic import (
    Interval,
    Program,
    Rounding,
    Statistic,
    mean_of_sums,
)
from surveysynth.survey.outcome import Outcome

__all__ = [
    "COUNT",
    "LEVEL",
    "MEAN",
    "MEDIAN",
    "PROPORTION",
    "REPORT_COLUMNS",
    "SHARE",
    "STATISTICS",
    "STUDY_COLUMNS",
    "TABLE",
    "TABLE_COLUMNS",
    "TOTAL",
    "Interval",
    "Linearised",
    "Program",
    "Rounding",
    "Statistic",
    "average",
    "expansion",
    "statistic_of",
    "table_keys",
    "values_of",
]


def _total_of_sums(size: FloatArray, total: FloatArray) -> FloatArray:
    return total


_PYTHON_MEAN = Program(
    ("total, size = (w * y)[inside].sum(), w[inside].sum()",),
    ("u = w * inside * (y - value) / size",),
)
_R_MEAN = Program(
    ("total <- sum((w * y)[inside])", "size <- sum(w[inside])"),
    ("u <- w * inside * (y - value) / size",),
)

#: What tables say of outcomes that are no amounts.
_OF_LEVELS = (
    " Of a binary outcome 'proportion' is the share of its last level, 'share' those of both, as "
    "of all levels of a categorical one; what works for every outcome: 'count'."
)

COUNT = Statistic(
    name="count",
    plural="counts",
    heading="Estimated number",
    linearise=expansion,
    python=Program(
        ("total, size = w[inside].sum(), 1.0",),
        ("u = w * inside",),
        ("u = w * (inside - value / POPULATION)",),
    ),
    r=Program(
        ("total <- sum(w[inside])", "size <- 1"),
        ("u <- w * inside",),
        ("u <- w * (inside - value / POPULATION)",),
    ),
    needs_outcome=False,
    rounding="multiples",
    interval="positive",
    margins="sums",
    least_for_se=1,
    unit="units of the population",
    standard="count",
    of_sums=_total_of_sums,
    sensitivity=of_weights,
)

TOTAL = Statistic(
    name="total",
    plural="totals",
    heading="Estimated total",
    linearise=expansion,
    python=Program(
        ("total, size = (w * y)[inside].sum(), 1.0",),
        ("u = w * y * inside",),
        ("u = w * (y * inside - value / POPULATION)",),
    ),
    r=Program(
        ("total <- sum((w * y)[inside])", "size <- 1"),
        ("u <- w * y * inside",),
        ("u <- w * (y * inside - value / POPULATION)",),
    ),
    instead=_OF_LEVELS,
    rounding="warranted",
    margins="sums",
    least_for_se=1,
    of_sums=_total_of_sums,
    sensitivity=of_totals,
)

MEAN = Statistic(
    name="mean",
    plural="means",
    heading="Estimated mean",
    linearise=average,
    python=_PYTHON_MEAN,
    r=_R_MEAN,
    instead=_OF_LEVELS,
    margins="means",
    of_sums=mean_of_sums,
    sensitivity=of_means,
)

MEDIAN = of_share(0.5)

PROPORTION = Statistic(
    name="proportion",
    plural="proportions",
    heading="Estimated percentage",
    linearise=average,
    python=_PYTHON_MEAN,
    r=_R_MEAN,
    binary=True,
    kinds=("binary",),
    rounding="percent",
    interval="logit",
    margins="means",
    limits=(0.0, 1.0),
    unit="share, 0 to 1",
    standard="proportion",
    of_sums=mean_of_sums,
    sensitivity=of_means,
)

SHARE = Statistic(
    name="share",
    plural="shares",
    heading="Estimated percentage",
    linearise=average,
    python=_PYTHON_MEAN,
    r=_R_MEAN,
    kinds=("semicontinuous", "binary", "categorical"),
    by_level=True,
    interval="logit",
    rounding="percent",
    margins="means",
    limits=(0.0, 1.0),
    unit="share, 0 to 1",
    standard="proportion",
    of_sums=mean_of_sums,
    explanation=(
        "The share of a level in a cell is the mean of its indicator: y = 1 for the records of the "
        "level and 0 for others. The shares of a cell add up to 1."
    ),
)

LEVEL = "level"
"""Column of the levels, in tables of a statistic by level."""

TABLE = "table"
"""Column of the names of tables, where there are several."""

TABLE_COLUMNS = (
    "statistic", "outcome", "is_margin", "estimate", "se", "df", "df_design", "ci_lower",
    "ci_upper", "n", "flag",
)  # fmt: skip
"""Columns that tables have besides those that they are by, below each other or alone."""

REPORT_COLUMNS = (
    "method", "rmse", "published", "published_se", "sample", "sample_se", "difference", "beyond",
)  # fmt: skip
"""Those of comparisons with the confidential sample besides."""

STUDY_COLUMNS = (
    "m", "epsilon", "row", "truth", "bias", "sd", "rmse_ratio", "coverage", "coverage_mcse",
    "ci_length", "cv", "replicates", "bias_mcse", "rmse_ratio_mcse", "ci_length_mcse",
    "units", "records", "size", "has_error", "bias_ratio", "length_ratio",
)  # fmt: skip
"""Those of coverage studies besides."""

STATISTICS: dict[str, Statistic] = {
    each.name: each for each in (COUNT, TOTAL, MEAN, MEDIAN, PROPORTION, SHARE)
}
"""By name, in the order in which messages list them."""


def statistic_of(name: str) -> Statistic:
    """Return the statistic of a name; raise ``InputError`` for an unknown name."""
    return STATISTICS[name] if name in STATISTICS else _with_arguments(name)


@lru_cache(maxsize=256)
def _with_arguments(name: str) -> Statistic:
    call = parse_call(name)
    if call is None or call.word not in FAMILIES:
        known, examples = ", ".join(STATISTICS), ", ".join(EXAMPLES)
        raise InputError(
            f"The statistic must be one of {known}, or one with arguments, as {examples}, but got "
            f"'{name}'."
        )
    return FAMILIES[call.word](call, name, statistic_of)


def values_of(statistic: Statistic, outcome: FloatArray | None, n: int) -> FloatArray:
    """Return the outcome, (n,) or (n, k), that an array function takes."""
    return np.ones(n) if outcome is None or not statistic.needs_outcome else outcome


def table_keys(
    statistics: Sequence[str], outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()
) -> tuple[tuple[str, int | None], ...]:
    """Return every table: a statistic and the column of an outcome that it suits.

    The column is None for a statistic without outcome; rows_by: the by variables.
    """
    return tuple(
        (name, column)
        for name in statistics
        for column in statistic_of(name).columns(outcomes, rows_by)
    )
