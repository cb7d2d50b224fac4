"""A statistic as one row: its words, rounding, requirements, estimate and recomputation.

The row has the array function of the estimate and its linearised variable, and the lines of
Python and R that recompute it in a README.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from surveysynth._support.messages import capitalised, listing
from surveysynth._support.types import FloatArray
from surveysynth.estimation.contrasts import Contrast
from surveysynth.estimation.linearised import Linearise
from surveysynth.estimation.margins import Sensitivity
from surveysynth.survey.outcome import Outcome, OutcomeKind, zero_one

Rounding: TypeAlias = Literal["multiples", "digits", "percent", "warranted"]
"""Multiples of ``tables.round_counts``, or without it as many digits as standard errors warrant;
``tables.digits_mean`` decimals; percent; as many as are warranted. The digits of an outcome's own
label go before the last three."""

Interval: TypeAlias = Literal["t", "logit", "positive"]
"""estimate ± t SE; the same on the logit scale, which stays between 0 and 1; or, where it would
reach below 0, on the log scale, which does not."""


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
        """Return the lines that set ``u`` under a linearisation."""
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
        True if the outcome must be 0 or 1 and is modelled untransformed.
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
    file
        Name of its files without the ending, where that is not the plural.
    of
        The outcomes, by name, of a statistic of several: its array function takes (n, k).
    contrast
        The contrast of two rows; the array function, the programs and the requirements for an
        outcome are those of the statistic of one row.
    base
        With a contrast, the name of that statistic.
    signed
        Whether it may be zero by its nature, so that a relative error says nothing.
    share_below
        Of a quantile the share p: several datasets are combined by their distribution functions,
        which are inverted there; ``python`` and ``r`` are of the distribution function at Q.
    compared_share
        Of a contrast of quantiles their share p.
    """

    name: str
    plural: str
    heading: str
    linearise: Linearise
    python: Program
    r: Program
    needs_outcome: bool = True
    binary: bool = False
    kinds: tuple[OutcomeKind, ...] = ("continuous", "semicontinuous", "count")
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
    file: str = ""
    of: tuple[str, ...] = ()
    contrast: Contrast | None = None
    base: str = ""
    signed: bool = False
    share_below: float | None = None
    compared_share: float | None = None

    @property
    def share(self) -> float | None:
        """The share p of a quantile, or of a contrast of quantiles."""
        return self.compared_share if self.share_below is None else self.share_below

    @property
    def stem(self) -> str:
        """Name of its files, without the ending."""
        return self.file or self.plural.replace(" ", "_")

    @property
    def title(self) -> str:
        """In words, at the head of sheets and sections."""
        return capitalised(self.plural)

    @property
    def percent(self) -> bool:
        """True if readers see percent."""
        return self.rounding == "percent"

    @property
    def additive(self) -> bool:
        """True if cells add up to their margins, as values proportional to the weights do."""
        return self.margins == "sums"

    @property
    def is_count(self) -> bool:
        """True for a number of units, whose total may be known."""
        return self.additive and not self.needs_outcome

    def columns_of(self, by: Sequence[str]) -> list[str]:
        """Return the by variables that its tables show; a contrast of two levels hides its own."""
        fixed = self.contrast is not None and self.contrast.first is not None
        return [name for name in by if not (fixed and name == self.contrast.column)]  # type: ignore[union-attr]

    def columns(
        self, outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()
    ) -> tuple[int | None, ...]:
        """Return the columns of the outcomes that it suits, (None,) if it needs none.

        Empty where it suits none. Outcomes that make the rows are left out: they do not vary in a
        row.
        """
        if not self.needs_outcome:
            return (None,)
        if self.of:
            return self._of_several(outcomes, rows_by)
        suited: Sequence[int] = zero_one(outcomes)
        if not self.binary:
            suited = [j for j, outcome in enumerate(outcomes) if outcome.kind in self.kinds]
        return tuple(j for j in suited if outcomes[j].name not in rows_by)

    def _of_several(
        self, outcomes: Sequence[Outcome], rows_by: Sequence[str]
    ) -> tuple[int | None, ...]:
        """Return the column of the first outcome, where all are there and of kinds that suit."""
        found = {o.name: j for j, o in enumerate(outcomes) if o.kind in self.kinds}
        known = all(name in found and name not in rows_by for name in self.of)
        return (found[self.of[0]],) if known else ()

    def misfit(self, outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()) -> str:
        """Why it suits none of the outcomes, with the remedy."""
        if self.columns(outcomes):
            return (
                f"{self.name!r} has no outcome left: rows are by "
                f"{listing([each.name for each in outcomes if each.name in rows_by])}, which does "
                "not vary within a row. Leave one of both out."
            )
        got = ", ".join(f"{outcome.name} {outcome.kind}" for outcome in outcomes)
        if self.of:
            return (
                f"{self.name!r} needs the outcomes {listing(self.of)} to be amounts of "
                f"synthesizer.outcome, got {got}."
            )
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


def mean_of_sums(size: FloatArray, total: FloatArray) -> FloatArray:
    """Means from sums of weights and of weighted values."""
    return total / size
