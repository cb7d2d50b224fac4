"""Feasibility of a target epsilon, decided beforehand from public inputs (methods 2).

The mechanism is run on databases simulated from a guess, never on the confidential data: what
``surveysynth check`` says costs no epsilon.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.risk import require_pattern
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models.base import Model, Simulated, require
from surveysynth.models.weighted import WeightedModel, weighted_form
from surveysynth.sampling.convergence import NotConvergedError
from surveysynth.survey.survey import PublicDesign

#: Guesses of residual SDs on the scale of the transforms, in multiples of what is declared of each
#: outcome ([outcomes.NAME] spread), or of UNDECLARED: about that of a log income, and of amounts
#: in units of a scale that was chosen well.
MULTIPLES = (0.5, 1.0, 2.0)
UNDECLARED = 0.5
#: Seconds that all guesses together may take by default.
TIME_LIMIT = 300.0

#: Seconds between two reports of progress.
REPORT_EVERY = 5.0
#: Draws and warm-up of the first try of a guess: half the time, and as informative.
SHORT = 125
#: Of the simulated databases, which protect nobody: a check says the same whenever it is run.
SEED = 0

Said = Callable[[str], None]


class _OutOfTimeError(Exception):
    """The time is over between two fits."""


@dataclass(frozen=True)
class Trial:
    """One simulated run.

    The multiple of the declared spreads that was guessed, whether the target was reached (None:
    no time was left), the reason of a refusal, the likelihood that remained, and whether chains
    of the release's length converged."""

    multiple: float
    reached: bool | None
    reason: str = ""
    mean_risk_weight: float = 0.0
    converged: bool = True

    @property
    def refused(self) -> bool:
        """True if a release from this database would have been refused."""
        return self.reached is False or not self.converged


@dataclass(frozen=True)
class FeasibilityReport:
    """Trials of one target. ``feasible``: some guess is not decided, or would not be refused.

    ``simulated``: False where the model has no guess to simulate from; nothing is known then.
    ``spreads``: declared ones by outcome; ``time_limit``: in seconds.
    """

    settings: MechanismSettings
    trials: tuple[Trial, ...]
    simulated: bool = True
    spreads: Mapping[str, float] | None = None
    time_limit: float = TIME_LIMIT

    @property
    def feasible(self) -> bool:
        """False if every guess was decided and refused."""
        return not self.trials or not all(trial.refused for trial in self.trials)

    def lines(self) -> list[str]:
        """Return the report for a reader; all of it comes from simulated data."""
        if not self.simulated:
            return [
                "Feasibility: not simulated, since the model gives no guess of its "
                "parameters. A release will show whether the target is reached."
            ]
        if not self.trials:
            return ["Feasibility: nothing to reach, risk = none (not private)."]
        head = (
            f"Feasibility of epsilon {self.settings.epsilon:g} with m = {self.settings.m} "
            f"(bound {self.settings.target_bound:g} a draw), on simulated data:"
        )
        return [head, *(f"  {self._described(trial)}" for trial in self.trials), *self._verdict()]

    @property
    def doubts(self) -> list[str]:
        """What leaves open whether a release would be made; empty where each guess reached it."""
        if not self.simulated:
            return self.lines()
        said = self._verdict() if self.trials else []
        return [] if said == [_FEASIBLE] else said

    def _described(self, trial: Trial) -> str:
        declared = self.spreads or {}
        guess = (
            f"residual SDs {trial.multiple:g} times the declared spreads:"
            if declared
            else f"residual SD {UNDECLARED * trial.multiple:g} of the transformed outcome:"
        )
        if trial.reached is None:
            return f"{guess} not decided within {self.time_limit:g} seconds for all."
        if not trial.reached:
            return f"{guess} refused."
        if not trial.converged:
            return f"{guess} reached, but the fit had not converged."
        return f"{guess} reached, keeping {trial.mean_risk_weight:.0%} of the likelihood."

    def _verdict(self) -> list[str]:
        n = len(self.trials)
        reached = sum(trial.reached is True for trial in self.trials)
        undecided = sum(trial.reached is None for trial in self.trials)
        failed = sum(not trial.converged for trial in self.trials)
        reasons, of_chains = (
            list(dict.fromkeys(t.reason for t in self.trials if t.converged is which and t.reason))
            for which in (True, False)
        )
        if failed:  # convergence depends neither on the target nor on the spread
            of_chains = [
                f"The target was reached, but under {failed} of {n} guesses the fit had not "
                "converged with the draws and warmup of a release, which is refused where its own "
                "fit has not.",
                *of_chains,
            ]
        if reached == n:
            return of_chains or [_FEASIBLE]
        if not self.feasible:
            return ["Not feasible: a release would be refused.", *reasons, *of_chains]
        if not undecided:
            first = "Feasible under some guesses: it depends on the spread of the outcome."
            return [first, *(f"Else: {reason}" for reason in reasons), *of_chains]
        first = (
            f"Not decided for {undecided} of {n} guesses: a release takes as long at least. Give "
            "--time-limit more seconds, or shorter chains, fewer components or fewer predictors."
        )
        return [first, *reasons, *of_chains]


#: A verdict on the mechanism and its chains, and on nothing that follows them.
_FEASIBLE = (
    "Feasible under every guess: the target is reached and the chains converge. Not tried here is "
    "the debiasing that follows. A release is refused where it does not converge, which is most "
    'likely for counts; inference = "paper" has none.'
)


def check(
    design: PublicDesign,
    model: Model,
    settings: MechanismSettings,
    rng: np.random.Generator | None = None,
    *,
    spreads: Mapping[str, float] | None = None,
    time_limit: float = TIME_LIMIT,
    progress: Said | None = None,
) -> FeasibilityReport:
    """Run the mechanism on one simulated database per guess of the spread (public inputs only).

    ``rng``: None for numbers that are the same in every check; ``spreads``: declared SDs of
    transformed outcomes by name; ``time_limit``: seconds for all guesses, looked at between fits;
    ``progress``: called before fits.

    Raises ``InputError`` if the model or the risk measure lacks a public input that it needs.
    """
    weighted = weighted_form(model, design)
    require(weighted, design)
    require_pattern(settings.measure, design.frame)
    if not settings.private:
        return FeasibilityReport(settings, ())
    theta = weighted.prior_guess(design, UNDECLARED)
    if theta is None:
        return FeasibilityReport(settings, (), simulated=False)
    declared = spreads or {}
    known = {name: declared[name] for name in design.outcome_names if name in declared}
    watch, trials = _Watch(time_limit, progress), []
    streams = (rng or np.random.default_rng(SEED)).spawn(len(MULTIPLES))
    plans = _plans(settings)
    for multiple, stream in zip(MULTIPLES, streams, strict=True):
        watch.begin()
        simulated = guessed_dataset(design, weighted, multiple, known, stream)
        database = Database.simulated(weighted, design, simulated)
        trial, plans = _trial(weighted, database, plans, multiple, stream, watch)
        trials.append(trial)
    return FeasibilityReport(settings, tuple(trials), True, known, time_limit)


def _plans(settings: MechanismSettings) -> tuple[MechanismSettings, ...]:
    """Return the settings with shorter chains, where these keep enough draws, and as they are."""
    plan = settings.plan
    if plan.draws > SHORT:
        plan = replace(plan, draws=SHORT, warmup=min(plan.warmup, SHORT))
    enough = settings.m <= int(settings.truncate * plan.kept)
    if not enough or plan == settings.plan:
        return (settings,)
    return replace(settings, plan=plan), settings


class _Watch:
    """Says now and then which fit begins; stops before it when time is over."""

    def __init__(self, time_limit: float, progress: Said | None) -> None:
        self.started = self.reported = time.monotonic()
        self.time_limit, self.progress = time_limit, progress
        self.guess = self.fits = 0

    def begin(self) -> None:
        """Begin the next guess."""
        self.guess, self.fits = self.guess + 1, 0

    def __call__(self) -> None:
        """Begin the next fit, or raise if the time is over."""
        now = time.monotonic()
        left = self.started + self.time_limit - now
        if left < 0:
            raise _OutOfTimeError
        self.fits += 1
        if self.progress is not None and now - self.reported >= REPORT_EVERY:
            self.reported = now
            self.progress(
                f"feasibility, guess {self.guess} of {len(MULTIPLES)}, fit {self.fits}, at most "
                f"{left:.0f} seconds left"
            )


def _trial(
    model: WeightedModel,
    database: Database,
    plans: tuple[MechanismSettings, ...],
    multiple: float,
    rng: np.random.Generator,
    watch: _Watch,
) -> tuple[Trial, tuple[MechanismSettings, ...]]:
    """Return the trial, and the chains that the next guess should try.

    Chains are tried as long as needed, the short ones first: where these have not converged, a
    release still may. Convergence hardly depends on the guess, so the next one starts there."""
    try:
        while True:
            (result,) = run_batch(model, [database], plans[0], rng, each_fit=watch)
            if not isinstance(result, NotConvergedError) or len(plans) == 1:
                break
            plans = plans[1:]
    except _OutOfTimeError:
        return Trial(multiple, None), plans
    if isinstance(result, NotConvergedError):  # the gate is behind the target
        return Trial(multiple, True, str(result), converged=False), plans
    if isinstance(result, RefusedError):
        return Trial(multiple, False, str(result)), plans
    return Trial(multiple, True, "", float(result[1].risk_weights.mean())), plans


def guessed_dataset(
    design: PublicDesign,
    model: Model,
    multiple: float,
    spreads: Mapping[str, float],
    rng: np.random.Generator,
) -> Simulated:
    """Simulate a dataset of the guess; amounts with a declared spread are stretched to it.

    Location plays no part in the bound, except for outcomes with bounds, whose values stay
    where they are."""
    theta: Theta | None = model.prior_guess(design, UNDECLARED * multiple)
    assert theta is not None  # the caller has seen that there is one
    simulated = model.simulate(theta, design, rng, "sample")
    stretch: FloatArray = np.ones(simulated.z.shape[1])
    for position, outcome in enumerate(design.outcomes):
        bounded = outcome.lower is not None or outcome.upper is not None
        if outcome.is_amount and not bounded and not getattr(model, "takes_count", False):
            stretch[position] = spreads.get(outcome.name, UNDECLARED) / UNDECLARED
    return replace(simulated, z=simulated.z * stretch)
