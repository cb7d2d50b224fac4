"""What the tables can show: every fact about a statistic, in one place.

A row of ``STATISTICS`` is all that there is to say of one: its words, how it is rounded, what it
asks of an outcome, its estimate and linearised variable as an array function, and the lines that
recompute it in a release's README. The specification, estimation, tables, writers, comparisons and
noise look here and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.extremes import Sensitivity, of_means, of_totals, of_weights
from surveysynth.estimation.linearised import Linearise, Linearised, average, expansion
from surveysynth.survey.outcome import Outcome, OutcomeKind, zero_one

__all__ = [
    "COUNT",
    "LEVEL",
    "MEAN",
    "PROPORTION",
    "SHARE",
    "STATISTICS",
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

Rounding: TypeAlias = Literal["multiples", "whole", "digits", "percent"]
"""Multiples of ``tables.round_counts``; whole units; ``tables.digits_mean`` decimals; percent. The
digits of an outcome's own label go before the last three."""

Interval: TypeAlias = Literal["t", "logit"]
"""estimate ± t SE, or the same on the logit scale, which stays between 0 and 1."""


@dataclass(frozen=True)
class Program:
    """Statements of the programs in a release's README, for one dataset.

    They know ``w`` and ``y`` of all records, ``inside`` (true in the cell) and, under calibrated
    weights, POPULATION. estimate: sets ``value``; linearised: sets ``u`` after it; calibrated:
    the same under calibrated weights, where that is another.
    """

    estimate: tuple[str, ...]
    linearised: tuple[str, ...]
    calibrated: tuple[str, ...] = ()

    def variable(self, linearisation: str) -> tuple[str, ...]:
        """What sets ``u`` under a linearisation."""
        return (self.calibrated if linearisation == "ratio" else ()) or self.linearised


@dataclass(frozen=True)
class Statistic:
    """Everything about one statistic.

    Attributes
    ----------
    name
        In specifications and files.
    plural
        In words, lower case; with underscores the name of its files.
    heading
        Of its estimates in tables.
    linearise
        Its array function.
    python, r
        Its lines in the programs of a release's README.
    needs_outcome
        False for a statistic of the weights alone, which has one table whatever the outcomes.
    binary
        Whether the outcome must be 0 or 1 and enter its model as it is.
    kinds
        Of the outcomes that it is of; a table of one leaves the others out.
    instead
        For outcomes of another kind, what is of them, for messages.
    by_level
        Whether each row has a line a level of the outcome's discrete part; the array function then
        takes the indicator of one level.
    interval
        How an interval is made of estimate and standard error.
    rounding
        For readers.
    margins
        What a margin is of its cells: their "sums", their "means" weighted by counts, or neither.
    least_for_se
        Records without which a row has no standard error.
    limits
        Between which every estimate must lie; None: it is not negative if no outcome is.
    unit
        Of unrounded numbers; empty: that of the outcome.
    standard
        Which published standards of reliability of the NCHS speak of it.
    of_sums
        Its estimate from the sums of w and of w y, where it follows from them: many replicates at
        once; None: replicates are estimated one by one.
    sensitivity
        How far one record moves it (for Laplace noise); None: not known, and no noise is made.
    explanation
        For the README, where count, total and mean do not say it: how estimate and u are made.
    """

    name: str
    plural: str
    heading: str
    linearise: Linearise
    python: Program
    r: Program
    needs_outcome: bool = True
    binary: bool = False
    kinds: tuple[OutcomeKind, ...] = ("continuous", "semicontinuous")
    instead: str = ""
    by_level: bool = False
    interval: Interval = "t"
    rounding: Rounding = "digits"
    margins: Literal["sums", "means", "neither"] = "neither"
    least_for_se: int = 2
    limits: tuple[float, float] | None = None
    unit: str = ""
    standard: Literal["count", "proportion", "neither"] = "neither"
    of_sums: Callable[[FloatArray, FloatArray], FloatArray] | None = None
    sensitivity: Sensitivity | None = None
    explanation: str = ""

    @property
    def stem(self) -> str:
        """Name of its files, without the ending."""
        return self.plural.replace(" ", "_")

    @property
    def title(self) -> str:
        """In words, at the head of sheets and sections."""
        return self.plural.capitalize()

    @property
    def percent(self) -> bool:
        """Whether readers see hundredths."""
        return self.rounding == "percent"

    @property
    def additive(self) -> bool:
        """Whether cells add up to their margins, as what grows with the weights does."""
        return self.margins == "sums"

    @property
    def is_count(self) -> bool:
        """Whether it is a number of units, the whole of which may be known."""
        return self.additive and not self.needs_outcome

    def columns(
        self, outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()
    ) -> tuple[int | None, ...]:
        """The columns of the outcomes that it is of: None for a statistic of none, empty where
        it suits none of them. Not of those that rows are by, which do not vary within a row."""
        if not self.needs_outcome:
            return (None,)
        suited: Sequence[int] = zero_one(outcomes)
        if not self.binary:
            suited = [j for j, outcome in enumerate(outcomes) if outcome.kind in self.kinds]
        return tuple(j for j in suited if outcomes[j].name not in rows_by)

    def misfit(self, outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()) -> str:
        """Why it suits none of the outcomes, with the remedy."""
        if self.columns(outcomes):
            return (
                f"{self.name!r} has no outcome left: rows are by "
                f"{listing([each.name for each in outcomes if each.name in rows_by])}, which does "
                "not vary within a row. Leave one of both out."
            )
        got = ", ".join(f"{outcome.name} {outcome.kind}" for outcome in outcomes)
        if self.binary:
            transforms = listing([o.transform.kind for o in outcomes if o.kind == "continuous"])
            also = f", transform {transforms}" if transforms else ""
            return (
                f"{self.name!r} needs an outcome of 0 and 1: of kind 'binary', or with "
                f"synthesizer.transform = 'identity', got {got}{also}."
            )
        return (
            f"{self.name!r} is of outcomes that are {' or '.join(self.kinds)}, got {got}."
            f"{self.instead}"
        )


def _total_of_sums(size: FloatArray, total: FloatArray) -> FloatArray:
    return total


def _mean_of_sums(size: FloatArray, total: FloatArray) -> FloatArray:
    return total / size


_PYTHON_MEAN = Program(
    ("value = (w * y)[inside].sum() / w[inside].sum()",),
    ("u = w * inside * (y - value) / w[inside].sum()",),
)
_R_MEAN = Program(
    ("value <- sum((w * y)[inside]) / sum(w[inside])",),
    ("u <- w * inside * (y - value) / sum(w[inside])",),
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
        ("value = w[inside].sum()",),
        ("u = w * inside",),
        ("u = w * (inside - value / POPULATION)",),
    ),
    r=Program(
        ("value <- sum(w[inside])",),
        ("u <- w * inside",),
        ("u <- w * (inside - value / POPULATION)",),
    ),
    needs_outcome=False,
    rounding="multiples",
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
        ("value = (w * y)[inside].sum()",),
        ("u = w * y * inside",),
        ("u = w * (y * inside - value / POPULATION)",),
    ),
    r=Program(
        ("value <- sum((w * y)[inside])",),
        ("u <- w * y * inside",),
        ("u <- w * (y * inside - value / POPULATION)",),
    ),
    instead=_OF_LEVELS,
    rounding="whole",
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
    of_sums=_mean_of_sums,
    sensitivity=of_means,
)

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
    of_sums=_mean_of_sums,
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
    of_sums=_mean_of_sums,
    explanation=(
        "The share of a level in a cell is the mean of its indicator: y = 1 for the records of the "
        "level and 0 for others. The shares of a cell add up to 1."
    ),
)

LEVEL = "level"
"""Column of the levels, in tables of a statistic by level."""

STATISTICS: dict[str, Statistic] = {
    each.name: each for each in (COUNT, TOTAL, MEAN, PROPORTION, SHARE)
}
"""By name, in the order in which messages list them."""


def statistic_of(name: str) -> Statistic:
    """The statistic of a name; raises ``InputError`` for a name that is not known."""
    if name not in STATISTICS:
        known = ", ".join(STATISTICS)
        raise InputError(f"The statistic must be one of {known}, but got '{name}'.")
    return STATISTICS[name]


def values_of(statistic: Statistic, outcome: FloatArray | None, n: int) -> FloatArray:
    """What an array function takes as outcome, (n,)."""
    return np.ones(n) if outcome is None or not statistic.needs_outcome else outcome


def table_keys(
    statistics: Sequence[str], outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()
) -> tuple[tuple[str, int | None], ...]:
    """Every table: statistic and column of the outcomes that it suits, None for a statistic of
    none; rows_by: the by variables."""
    return tuple(
        (name, column)
        for name in statistics
        for column in statistic_of(name).columns(outcomes, rows_by)
    )
