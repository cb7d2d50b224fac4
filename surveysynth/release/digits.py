"""Synthetic values with as many digits as are published, before anything is computed from them.

All digits of a double would give the parameters of a draw away to the last of theirs: smoothed
weights are a smooth function of outcome and parameters, and as many records as there are parameters
solve for these. What is proved of draws is proved of real numbers; how floating-point numbers fall
between them is not looked at, and with a public number of digits nobody sees it. Tables are made
from the rounded values, so that every published number can be made again from the microdata.
"""

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import RefusedError
from surveysynth.release.folder.microdata import public_order
from surveysynth.survey.outcome import Outcome

if TYPE_CHECKING:
    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.survey.survey import PublicDesign

#: Powers of ten up to this one are doubles.
_EXACT_POWER = 22
#: Further decimals that a population size may ask of the weights that add up to it.
_MOST_FURTHER = 6
#: Rounding may move amounts by this share of their standard deviation, as a root mean square.
MOST_MOVED = 0.01


@dataclass(frozen=True)
class Digits:
    """Amounts with ``significant`` digits, weights with as many on average (``weight_step``)."""

    design: "PublicDesign"
    significant: int

    @property
    def weight_step(self) -> Decimal | None:
        """The step of weights that add up to a public population size.

        It follows from that size, the number of records and the digits. None for other weights,
        which have as many significant digits as amounts.
        """
        if self._decimals is None or self.design.public_weight is not None:
            return None
        return Decimal(1).scaleb(-self._decimals)

    def rounded(self, dataset: "SyntheticDataset") -> "SyntheticDataset":
        """Round a dataset as it is published.

        Raises ``RefusedError`` where an outcome varies by too little for its digits.
        """
        outcome, weight = self.outcomes(dataset.outcome), self.weights(dataset.weight)
        if not dataset.separate_pair:
            return replace(
                dataset, outcome=outcome, weight=weight, variance_outcome=outcome,
                variance_weight=weight,
            )  # fmt: skip
        same = dataset.variance_outcome is dataset.outcome
        return replace(
            dataset,
            outcome=outcome,
            weight=weight,
            variance_outcome=outcome if same else self.outcomes(dataset.variance_outcome),
            variance_weight=self.weights(dataset.variance_weight),
        )

    def outcomes(self, values: FloatArray) -> FloatArray:
        """Round outcomes (n, p)."""
        columns = zip(self.design.outcomes, values.T, strict=True)
        made = [
            self._amounts(outcome, column)
            if outcome.is_amount and outcome.kind != "count"
            else column
            for outcome, column in columns
        ]
        return np.stack(made, axis=1)

    def weights(self, weight: FloatArray) -> FloatArray:
        """Round weights (n,); public weights stay as they are."""
        if self.design.public_weight is not None:
            return weight
        if self._decimals is None:
            return to_significant(weight, self.significant)
        assert self.design.population_size is not None  # there are decimals
        steps = _steps(weight, self.design.population_size, self._decimals, self._order)
        power = 10.0 ** abs(self._decimals)
        return steps / power if self._decimals >= 0 else steps * power

    def _amounts(self, outcome: Outcome, values: FloatArray) -> FloatArray:
        """Round amounts (n,) but spikes; keep them within bounds and the transform's domain."""
        regular = outcome.regular(values)
        given = values[regular]
        made = to_significant(given, self.significant)
        low, high = outcome.limits
        made = np.clip(made, -np.inf if low is None else low, np.inf if high is None else high)
        if outcome.transform.violations(made):
            # Next to the end of the domain, which is no valid value.
            made = np.where(made + outcome.transform.shift > 0, made, given)
        self._refuse_coarse(outcome.name, given, made)
        result = values.copy()
        result[regular] = made
        return result

    def _refuse_coarse(self, name: str, given: FloatArray, made: FloatArray) -> None:
        if not given.size:
            return
        moved, spread = math.sqrt(np.mean((made - given) ** 2)), float(given.std())
        if spread > 0 and moved > MOST_MOVED * spread:
            raise RefusedError(
                f"Synthetic values of {name!r} vary by too little for the "
                f"{self.significant} digits that they are published with: rounding would add to "
                "their spread. Set microdata_digits in [tables] to more digits, or count the "
                "outcome from another origin."
            )

    @property
    def amount_words(self) -> str:
        """The rounding of outcomes, in words."""
        return f"{self.significant} significant digits"

    @property
    def weight_words(self) -> str:
        """The rounding of synthetic weights, in words."""
        step = self.weight_step
        return self.amount_words if step is None else f"multiples of {step:f}"

    @cached_property
    def _decimals(self) -> int | None:
        """The decimals of weights that add up to a population size."""
        size = self.design.population_size
        if size is None:
            return None
        of_mean = self.significant - 1 - math.floor(math.log10(size / self.design.n))
        exponent = Decimal(repr(float(size))).normalize().as_tuple().exponent
        assert isinstance(exponent, int)  # the size is finite
        return max(of_mean, min(-exponent, of_mean + _MOST_FURTHER))

    @cached_property
    def _order(self) -> IntArray:
        return public_order(self.design)


def to_significant(values: FloatArray, digits: int) -> FloatArray:
    """Round values (n,) to the doubles nearest to decimal numbers of so many significant digits."""
    result = np.array(values, dtype=np.float64)
    rest = np.flatnonzero(result)
    decimals = digits - 1 - np.floor(np.log10(np.abs(result[rest]))).astype(np.int64)
    exact = np.abs(decimals) <= _EXACT_POWER
    inside, places = rest[exact], decimals[exact]
    powers = 10.0 ** np.abs(places)
    up = places >= 0
    whole = np.rint(np.where(up, result[inside] * powers, result[inside] / powers))
    result[inside] = np.where(up, whole / powers, whole * powers)
    for position in rest[~exact]:
        result[position] = float(f"{result[position]:.{digits - 1}e}")
    return result


def _steps(weight: FloatArray, size: float, decimals: int, order: IntArray) -> FloatArray:
    """Return whole numbers (n,) of steps of 10^-decimals, at least 1, that add up to ``size``.

    Each weight goes to its nearest number. The difference that remains goes to the largest weights,
    one step each. The result is a function of the rounded weights and of public columns: their
    ``order`` decides between equal weights.
    """
    exact = Decimal(repr(float(size))).scaleb(decimals)
    steps = np.maximum(np.rint(weight * float(Decimal(1).scaleb(decimals))), 1.0)
    missing = int(exact.to_integral_value()) - int(steps.sum())
    while missing:
        ranked = order[np.argsort(-steps[order], kind="stable")]
        able = ranked[steps[ranked] > 1.0] if missing < 0 else ranked
        chosen = able[: abs(missing)]
        steps[chosen] += math.copysign(1.0, missing)
        missing -= int(math.copysign(chosen.size, missing))
    return steps
