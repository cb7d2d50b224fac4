"""Shares of a variable: of levels, at spikes, in the tails; sample beside synthetic. Confidential.

A part is a group of records within another: those below the sample's 1% quantile among the records
at no spike, say. It is defined on the sample, and looked up in both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.survey.outcome import Outcome

#: Between these shares of the sample's weight lies what is no tail.
TAILS = (0.01, 0.99)

Selecting = Callable[[FloatArray], BoolArray]
"""From values (n,) to the records of a group (n,)."""


@dataclass(frozen=True)
class Part:
    """``inside`` is looked up among the records that ``within`` gives."""

    name: str
    within: Selecting
    inside: Selecting


@dataclass(frozen=True)
class PartShare:
    """Share and standard error of a part in the sample, and its share in one synthetic dataset."""

    name: str
    sample: float
    se: float
    synthetic: float


def category_name(outcome: Outcome, category: int) -> str:
    """A category of the discrete part for readers."""
    if not outcome.is_amount:
        return outcome.levels[category]
    if category in outcome.sides:
        return outcome.side_name(category) or "at no spike"
    return f"at {outcome.spikes[category - len(outcome.sides)]:g}"


def parts_of(outcome: Outcome, values: FloatArray, weight: FloatArray) -> Iterator[Part]:
    """Every category of a discrete part, then the tails of amounts at no spike."""
    if outcome.is_discrete:
        for category in range(outcome.categories):
            yield Part(category_name(outcome, category), _everyone, _in_category(outcome, category))
    if outcome.is_amount:
        yield from _tails(values, weight, outcome.regular)


def parts_of_amount(values: FloatArray, weight: FloatArray) -> Iterator[Part]:
    """The tails of a variable without spikes, as the weight itself."""
    yield from _tails(values, weight, _everyone)


def _tails(values: FloatArray, weight: FloatArray, within: Selecting) -> Iterator[Part]:
    used = within(values) & (weight > 0)
    if not used.any():
        return
    low, high = weighted_quantiles(values[used], weight[used], np.array(TAILS))
    yield Part(f"below the sample's {TAILS[0]:.0%} quantile", within, lambda y: y < low)
    yield Part(f"above the sample's {TAILS[1]:.0%} quantile", within, lambda y: y > high)


def _everyone(values: FloatArray) -> BoolArray:
    return np.ones(values.shape, dtype=bool)


def _in_category(outcome: Outcome, category: int) -> Selecting:
    return lambda values: np.asarray(outcome.category(values) == category, dtype=bool)


def share_of(
    part: Part,
    whole: Domains,
    design: SampleDesign,
    sample: tuple[FloatArray, FloatArray],
    synthetic: tuple[FloatArray, FloatArray],
) -> PartShare:
    """A part in both; each is (values, weight), the sample's (n,) as in ``design`` and ``whole``,
    which has one row. The standard error takes the bounds of tails as given."""
    values, weight = sample
    made = estimate_domains(
        whole, design, weight=np.where(part.within(values), weight, 0.0),
        outcome=part.inside(values).astype(np.float64), statistic="mean", linearisation="plain",
    )  # fmt: skip
    theirs, their_weight = synthetic
    among = np.where(part.within(theirs), their_weight, 0.0)
    total = among.sum()
    share = float(among @ part.inside(theirs) / total) if total > 0 else float("nan")
    return PartShare(part.name, float(made.estimate[0]), float(np.sqrt(made.variance[0])), share)
