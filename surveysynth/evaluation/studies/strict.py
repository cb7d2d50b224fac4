"""Settings of study methods with zero-concentrated privacy: noisy statistics and noisy totals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from surveysynth.errors import InputError
from surveysynth.evaluation.methods import GAUSSIAN
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import (
    NOISY_PLAN,
    RECORD,
    Declared,
    NoisySettings,
)
from surveysynth.sampling.plan import SamplingPlan

if TYPE_CHECKING:
    from surveysynth.evaluation.studies.population import Population

#: The default of a release.
DELTA = 1e-6


@dataclass(frozen=True)
class StrictSettings:
    """Public constants of these methods, beside the epsilon that all methods share.

    declared: by name of an outcome; weight: of the log weight. m, replicates_per_draw: draws and
    datasets a draw of noisy statistics, which cost nothing. radius and protect as in
    ``NoisySettings``. plan: of the simulated fits.
    """

    declared: Mapping[str, Declared] = field(default_factory=dict)
    weight: Declared = field(default_factory=Declared)
    delta: float = DELTA
    m: int = 20
    replicates_per_draw: int = 10
    radius: float = 0.0
    protect: str = RECORD
    plan: SamplingPlan = NOISY_PLAN

    def at(self, epsilon: float) -> NoisySettings:
        """Return the settings of a release at this epsilon."""
        return NoisySettings(
            Budget.of_epsilon(epsilon, self.delta), self.declared, self.weight, self.m, self.radius,
            self.protect, self.plan,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that identify a study."""
        return {**asdict(self), "declared": {k: asdict(v) for k, v in self.declared.items()}}

    def check(self, methods: Sequence[str], population: "Population", clusters: bool) -> None:
        """Raise ``InputError`` if one of the methods could run on no sample."""
        if self.m < 2 or self.replicates_per_draw < 1 or self.m > self.plan.kept:
            raise InputError(
                "noisy statistics need at least two draws, no more than are kept, of at least one "
                f"dataset each, got {self.m} x {self.replicates_per_draw}."
            )
        for name in population.outcome:
            given = self.declared.get(name, Declared())
            if given.centre is None or given.spread is None:
                raise InputError(
                    f"the methods {', '.join(methods)} need a declared centre and spread of "
                    f"{name!r}, from public sources: give [outcomes.{name}] with centre, a typical "
                    "value in its own units, and spread, a typical standard deviation on the "
                    "scale of its transform, or leave these methods out."
                )
            if not (math.isfinite(given.centre) and given.spread > 0):
                raise InputError(
                    f"the declared centre of {name!r} must be finite and its spread above zero, "
                    f"got {given.centre} and {given.spread}."
                )
        if GAUSSIAN in methods and clusters:
            raise InputError(
                "noisy totals ('gaussian') have no standard errors for clusters; leave the method "
                "out of a study of two stages."
            )
        if GAUSSIAN in methods and self.protect != RECORD:
            raise InputError(
                "noisy totals ('gaussian') protect only single records; leave them out."
            )
