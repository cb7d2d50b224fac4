"""Can a target epsilon be reached? Decided beforehand, from public inputs (methods 2).

The mechanism is run on databases simulated from a guess, never on the confidential data: what
``surveysynth check`` says costs no epsilon.
"""

from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.risk import require_pattern
from surveysynth.mechanisms.pseudo_posterior.run import run_batch
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models.base import Model, require
from surveysynth.survey.survey import PublicDesign

#: Guesses of the residual SD of an outcome on the scale of its transform.
SPREADS = (0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Trial:
    """One simulated run: the guess, whether it reached the target, and what remained."""

    spread: float
    reached: bool
    reason: str
    mean_risk_weight: float


@dataclass(frozen=True)
class FeasibilityReport:
    """Trials of one target. ``feasible``: at least one guess reached it.

    ``simulated``: False where the model has no guess to simulate from; nothing is known then.
    """

    settings: MechanismSettings
    trials: tuple[Trial, ...]
    simulated: bool = True

    @property
    def feasible(self) -> bool:
        """True if some guess reached the target (or none is needed)."""
        return not self.trials or any(trial.reached for trial in self.trials)

    def lines(self) -> list[str]:
        """The report for a reader; all of it comes from simulated data."""
        if not self.simulated:
            return [
                "Feasibility: not simulated, since the model gives no guess of its "
                "parameters. A release tells whether the target is reached."
            ]
        if not self.trials:
            return ["Feasibility: nothing to reach, risk = none (not private)."]
        head = (
            f"Feasibility of epsilon {self.settings.epsilon:g} with m = {self.settings.m} "
            f"(bound {self.settings.target_bound:g} a draw), on simulated data:"
        )
        return [head, *(f"  {_describe(trial)}" for trial in self.trials), self._verdict()]

    def _verdict(self) -> str:
        reached = sum(trial.reached for trial in self.trials)
        if reached == len(self.trials):
            return "Feasible under every guess."
        if reached:
            return "Feasible under some guesses: it depends on the spread of the outcome."
        return (
            "Not feasible: a release would be refused. Raise epsilon, lower m or use fewer "
            "predictors."
        )


def _describe(trial: Trial) -> str:
    guess = f"residual SD {trial.spread:g} of the transformed outcome:"
    if not trial.reached:
        return f"{guess} refused. {trial.reason}"
    return f"{guess} reached, keeping {trial.mean_risk_weight:.0%} of the likelihood."


def check(
    design: PublicDesign,
    model: Model,
    settings: MechanismSettings,
    rng: np.random.Generator | None = None,
) -> FeasibilityReport:
    """Runs the mechanism on one simulated database a guess of the spread (public inputs only).

    Raises ``InputError`` if the model or the risk measure lacks a public input that it needs.
    """
    model = model.of(design)
    require(model, design)
    require_pattern(settings.measure, design.frame)
    if not settings.private:
        return FeasibilityReport(settings, ())
    guesses = {spread: model.prior_guess(design, spread) for spread in SPREADS}
    known = {spread: theta for spread, theta in guesses.items() if theta is not None}
    if not known:
        return FeasibilityReport(settings, (), simulated=False)
    rng = rng or np.random.default_rng()
    # Half-length chains tell feasibility as well, in half the time.
    plan = settings.plan
    if plan.draws > 125:
        plan = replace(plan, draws=125, warmup=min(plan.warmup, 125))
    enough = settings.m <= int(settings.truncate * plan.kept)
    short = replace(settings, plan=plan) if enough else settings
    return FeasibilityReport(
        settings,
        tuple(_trial(design, model, short, spread, theta, rng) for spread, theta in known.items()),
    )


def _trial(
    design: PublicDesign,
    model: Model,
    settings: MechanismSettings,
    spread: float,
    theta: Theta,
    rng: np.random.Generator,
) -> Trial:
    simulated = model.simulate(theta, design, rng, "sample")
    database = Database.simulated(model, design, simulated)
    (result,) = run_batch(model, [database], settings, rng)
    if isinstance(result, RefusedError):
        return Trial(spread, False, f"{str(result).split(':')[0].split(' (')[0]}.", 0.0)
    return Trial(spread, True, "", float(result[1].risk_weights.mean()))
