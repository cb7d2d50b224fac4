"""Noisy statistics as one of the mechanisms (strict)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth._support import progress as stages
from surveysynth.mechanisms.base import Combining, NoiseKeeper, Progress, Released
from surveysynth.mechanisms.noisy_statistics.posterior import draws as posterior
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.noisy_statistics.statement import (
    GUARANTEE,
    column_names,
    strict_statement,
)
from surveysynth.mechanisms.statement import Statement
from surveysynth.models.base import Model
from surveysynth.survey.survey import Confidential, PublicDesign

STATISTICS_NAME = "statistics.json"


@dataclass(frozen=True)
class NoisyStatisticsMechanism:
    """Exact noise on sufficient statistics; all else is post-processing."""

    settings: NoisySettings
    name: str = "noisy_statistics"
    combining: Combining = "total_variance"
    down_weights: bool = False
    risk: str | None = None

    @property
    def note(self) -> str:
        """One sentence below every table."""
        budget = self.settings.budget
        return (
            f"Privacy: {GUARANTEE}, rho = {budget.rho:.4g} (epsilon = {budget.epsilon:.4g} at "
            f"delta = {budget.delta:.3g}), for the whole release, with the assumptions and limits "
            "stated in README.md."
        )

    def prepared(self, design: PublicDesign) -> PublicDesign:
        """Return the design itself: the noise suits every design."""
        return design

    def run(
        self,
        model: Model,
        design: PublicDesign,
        confidential: Confidential,
        rng: np.random.Generator,
        progress: Progress | None = None,
        *,
        seeded: bool = False,
        keeper: NoiseKeeper | None = None,
    ) -> Released:
        """Return statistics with noise of the operating system, and draws.

        ``rng`` serves the draws, and in a test the noise as well. ``keeper`` has the
        statistics before draws begin."""
        say = progress or (lambda stage: None)
        source: NoiseSource = SeededNoise(rng.spawn(1)[0]) if seeded else SystemNoise()
        say(stages.NOISE)
        statistics = self._statistics(model, design, confidential, source, keeper)
        say(stages.POSTERIOR)
        draws, record = posterior.posterior_draws(model, design, statistics, self.settings, rng)
        published = {
            "statistics": statistics.to_dict(),
            "posterior": {
                "r_hat": dict(record.r_hat),
                "ess": dict(record.ess),
                "sweeps_between_draws": record.thinning,
            },
        }
        realised = {
            "records": design.n,
            "clipped_records": survey_statistics.clipped(
                model, design, confidential, self.settings
            ),
        }
        return Released(draws, {STATISTICS_NAME: published}, realised)

    def _statistics(
        self,
        model: Model,
        design: PublicDesign,
        confidential: Confidential,
        source: NoiseSource,
        keeper: NoiseKeeper | None,
    ) -> survey_statistics.Statistics:
        """Return the keeper's statistics of an earlier run, or new ones, and keep these."""
        earlier = None if keeper is None else keeper.earlier()
        if earlier is not None:
            return survey_statistics.statistics_of(earlier)
        made = survey_statistics.release_statistics(
            model, design, confidential, self.settings, source
        )
        if keeper is not None:
            keeper.keep(made.to_dict())
        return made

    def statement(self, model: Model, design: PublicDesign, *, test: bool = False) -> Statement:
        """Return the guarantee in words."""
        return strict_statement(design, self.settings, model, test=test)

    def guarantee(self) -> dict[str, Any]:
        """Return the guarantee at any n, in rho and as (epsilon, delta)."""
        budget = self.settings.budget
        return {
            "guarantee": GUARANTEE,
            "rho": budget.rho,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
        }

    def described(self, design: PublicDesign) -> dict[str, Any]:
        """Return the declared constants, on the scale of the model."""
        clipping = self.settings.clipping(design)
        names = column_names(design)
        discrete = any(outcome.is_discrete for outcome in design.outcomes)
        return {
            "protect": self.settings.protect,
            "unit_size": self.settings.unit_size(design),
            "radius": clipping.radius,
            "centres": dict(zip(names, clipping.centre.tolist(), strict=True)),
            "spreads": dict(zip(names, clipping.spread.tolist(), strict=True)),
            **({"count_share": self.settings.count_share} if discrete else {}),
        }
