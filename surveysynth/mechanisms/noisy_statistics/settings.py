"""The cost of a release by noisy statistics, and its public constants (strict 1).

Everything here is declared before the data are seen. Centers and spreads come from public sources;
none is ever estimated from the survey.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.numeric import chi_square_quantile, chi_square_tail
from surveysynth._support.types import IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.base import Declared, typical
from surveysynth.mechanisms.learned.histogram import what_is_left
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise_design import (
    INSIDE,
    Clipping,
    inside,
)
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import group_variances
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome, undeclared
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import LearnedTransform

#: Neighbors differ in one record; else in the records of a unit of a public column.
RECORD = "record"
#: Chains stand side by side, and a round of 32 takes little longer than one of 4: many short chains
#: then, whose trajectories are nearly independent. Fits that have not converged go on.
NOISY_PLAN = SamplingPlan(chains=32, warmup=100, draws=60)
#: SD of log weights about their center, where nothing is declared.
WEIGHT_SPREAD = 0.6
#: Shares of normal records that a ball of learned amounts may hold.
SHARES_INSIDE = (0.95, 0.98, 0.99, INSIDE)


@dataclass(frozen=True)
class NoisySettings:
    """Settings of the mechanism, all public; raise ``InputError`` for a bad m or share."""

    budget: Budget  # rho, and what it means as (epsilon, delta)
    #: By name of an outcome; of one with a split, what lies above it.
    declared: Mapping[str, Declared] = field(default_factory=dict)
    #: Of the log weight: center log(N/n) and spread 0.6 unless declared.
    weight: Declared = field(default_factory=Declared)
    m: int = 20  # draws to synthesize from; after the noise any number is free
    #: Of the ball that records are clipped to, in spreads; 0: it holds 0.995 of a normal record, or
    #: is that of ``learned_radius`` where the transforms of all amounts are learned, and about
    #: groups that have centers of their own (``Centring``).
    radius: float = 0.0
    protect: str = RECORD  # "record", or the public column whose units are protected as a whole
    #: The initial size of a fit; a fit that has not converged continues.
    plan: SamplingPlan = NOISY_PLAN
    #: Of outcomes with categories or spikes: how precise counts are beside moments, 1 for about a
    #: third of the budget each for a change of counts, of first and of second moments.
    count_share: float = 1.0
    #: Of outcomes with a split, what lies below it; the center too in the outcome's own units.
    declared_below: Mapping[str, Declared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.m, int) or self.m < 1:
            raise InputError(f"m must be a whole number of at least 1, got {self.m!r}.")
        if not (math.isfinite(self.count_share) and self.count_share > 0):
            raise InputError(
                f"count_share must be a finite number above 0, got {self.count_share!r}."
            )

    @property
    def epsilon(self) -> float:
        """At the delta of the budget; not the asymptotic epsilon of the pseudo-posterior."""
        return self.budget.epsilon

    @property
    def private(self) -> bool:
        """Always True: there is no such release without noise."""
        return True

    def of_sums(self, outcomes: Sequence[Outcome]) -> Budget:
        """Return the budget of the sums: what learned transforms of these outcomes leave."""
        left = what_is_left(self.budget.rho, outcomes)
        return self.budget if left == self.budget.rho else Budget.of_rho(left, self.budget.delta)

    def clipping(self, design: PublicDesign) -> Clipping:
        """Return centers and spreads of z, and the radius of the ball.

        z = (transformed outcomes, transformed weight unless it is public). The radius counts one
        column of an outcome with a split: no record has both.

        Raises ``InputError`` where a center or spread is missing, or no column is left.
        """
        centers, spreads = [], []
        for outcome in design.outcomes:
            for side in outcome.sides:  # categories are counted
                found = typical(outcome, side, self.declared, self.declared_below)
                if found is None:
                    raise InputError(undeclared(outcome, side))
                centers.append(found[0])
                spreads.append(found[1])
        if design.weight_name is not None:
            center, spread = (0.0, 1.0) if design.learns_weight else self.log_weight(design)
            centers.append(center)
            spreads.append(spread)
        if not centers:
            raise InputError(
                "With public weights noisy statistics need an amount among the outcomes, since "
                "their noise is measured by the size of amounts. Name one beside "
                f"{', '.join(map(repr, design.outcome_names))}, or use "
                " mechanism = 'pseudo_posterior'."
            )
        at_once = len(centers) - sum(each.split is not None for each in design.outcomes)
        amounts = [each for each in design.outcomes if each.sides]
        guesses = not amounts or any(each.learned is None for each in amounts)
        radius = self.radius or (inside(at_once) if guesses else self._between(design, at_once))
        return Clipping(np.array(centers), np.array(spreads), radius)

    def radius_about_groups(self, design: PublicDesign) -> float:
        """Return the radius of the ball about the center of a group that has its own.

        True if amounts are learned: groups are then near their centers.
        """
        clipping = self.clipping(design)
        if self.radius:
            return clipping.radius
        return min(clipping.radius, self._between(design, clipping.q))

    def _between(self, design: PublicDesign, columns: int) -> float:
        """Return the radius that weighs noise against what is clipped."""
        records = design.n / design.matrix.x_cells.shape[0]
        rho = self.of_sums(design.modelled).rho
        return learned_radius(columns, records, rho, self.unit_size(design))

    def log_weight(self, design: PublicDesign) -> tuple[float, float]:
        """Return center and spread of the log weight: declared ones, or their defaults.

        For a learned weight, whose sums do not use them, they are guesses. Raises ``InputError``
        where no center is declared and nothing public implies one.
        """
        spread = WEIGHT_SPREAD if self.weight.spread is None else self.weight.spread
        if self.weight.center is not None:
            return self.weight.center, spread
        given = design.weight_transform
        if design.population_size is not None:
            return math.log(design.population_size / design.n), spread
        if isinstance(given, LearnedTransform):
            return 0.5 * math.log(given.low * given.high), spread
        raise InputError(
            "The log weight needs a declared center, or the survey a public population size N, "
            "which makes it log(N/n)."
        )

    def unit_size(self, design: PublicDesign) -> int:
        """Return the records of the largest unit that is protected as a whole, a public number.

        Raises ``InputError`` if ``protect`` names no public column.
        """
        return int(self.unit_sizes(design).max())

    def unit_sizes(self, design: PublicDesign) -> IntArray:
        """Return the records of every unit of protection.

        A label is one unit wherever it occurs, and so are all blank cells together: units
        taken for one are protected together, and so is each.

        Raises ``InputError`` if ``protect`` names no public column.
        """
        if self.protect == RECORD:
            return np.ones(design.n, dtype=np.int64)
        if self.protect not in design.frame:
            raise InputError(
                f"protect must be 'record' or a public column, got {self.protect!r}; the public "
                f"columns are {', '.join(map(str, design.frame.columns))}."
            )
        sizes = design.frame[self.protect].value_counts(dropna=False)
        return np.asarray(sizes, dtype=np.int64)


def learned_radius(columns: int, records: float, rho: float, unit: int = 1) -> float:
    """Return the radius, in spreads, for the columns of z that a record has at once.

    Of learned amounts, and of groups about their own centers: noise is weighed against what the
    ball cuts (strict 8). records: of an average cell; rho: of all sums; unit: records of the
    largest unit of protection.
    """
    one = Clipping(np.zeros(1), np.ones(1), 1.0)
    noise = float(group_variances(one, rho, unit).squares_sd(one)[0, 0]) / records

    def squared_error(radius: float) -> float:
        return (noise * radius**2) ** 2 + (1.0 - clipped_variance(radius, columns)) ** 2

    radii = [math.sqrt(chi_square_quantile(share, columns)) for share in SHARES_INSIDE]
    return min(radii, key=squared_error)


def clipped_variance(radius: float, columns: int) -> float:
    """Return v: E u_1^2 min(1, R^2/|u|^2) of a standard normal u of so many columns."""
    square = radius**2
    within = 1.0 - float(chi_square_tail(square, columns + 2))
    return within + square / columns * float(chi_square_tail(square, columns))
