"""Debiasing of draws: find what down-weighting did to scales and odds by simulation, and undo it.

Down-weighted tails shrink residual scales, and with them every log-normal mean; rare levels of an
outcome become rarer (methods 8). SDs of PSU effects, where a model has them, shrink about as much
as residual scales and are corrected with them (``with_log_scales``).

The method is indirect inference on the released draws. Databases are simulated from them as the
sample would have been, and the whole mechanism is run on each at the same target. The bias is the
shift of its posterior mean against that of the unweighted fit to the same database. It is
subtracted from every released draw, before synthesis.

This is post-processing: it uses PrivateDraws, PublicDesign and fresh random numbers only. So it
costs no epsilon, and all of its results may be published.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.progress import DEBIASING
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import own_settings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import Result, run_batch
from surveysynth.models.base import Model, ShiftKind
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import starts
from surveysynth.survey.survey import PublicDesign

#: Simulated databases, at least; the same number from each released draw.
DATABASES = 8
ROUNDS = 2
#: One more where odds are shifted: how much scales shrink depends on how many records have the
#: level that they belong to, which the first round changes.
MORE_FOR_ODDS = 1
#: The bias of a residual scale is one of the tails of a single record's density under its cap: it
#: does not depend on n but through the spread of the posterior, 1/n. Larger designs are simulated
#: by every so-many-th record of each cell of X.
MAX_RECORDS = 20_000
#: Warm-up of the simulated fits, which are judged by the same gates of convergence.
MAX_WARMUP = 150
#: Simulated runs that must reach the target and converge.
LEAST_SUCCESS = 0.75
#: The last round may not move the shift by more than this share of the one before, Monte Carlo
#: error aside (the bias of odds falls as they rise, which is extrapolated), nor may a scale, or the
#: odds of a level, change by more than this factor: else the draws stay as they are.
MAX_CHANGE: Mapping[ShiftKind, float] = {"scale": 0.5, "odds": 0.75}
MAX_FACTOR: Mapping[ShiftKind, float] = {"scale": 2.0, "odds": 10.0}
_WHAT: Mapping[ShiftKind, str] = {"scale": "a residual scale", "odds": "the odds of a level"}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class DebiasRecord:
    """The record of what debiasing did, from public inputs alone.

    Attributes
    ----------
    status
        "debiased", "nothing to debias" (a model without residual scales, or one whose labels can
        switch), "not converged" or "not asked for".
    databases, rounds
        Databases simulated a round, and rounds.
    n_simulated
        Records of each.
    kinds
        What was shifted, d of them: "scale", a residual scale, or "odds", those of a level of an
        outcome against its reference level.
    log_shift, standard_error
        What was added to their logs in every draw (d,), zeros where nothing was, and its Monte
        Carlo error.
    reason
        In words, where it is not "debiased".

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.DebiasRecord("not converged", reason="The shift did not settle.").debiased
    False
    """

    status: str
    databases: int = 0
    rounds: int = 0
    n_simulated: int = 0
    kinds: tuple[ShiftKind, ...] = ()
    log_shift: tuple[float, ...] = ()
    standard_error: tuple[float, ...] = ()
    reason: str = ""

    @property
    def debiased(self) -> bool:
        """True if the draws were shifted."""
        return self.status == "debiased"


@dataclass(frozen=True)
class Debiased:
    """The draws to synthesise from, debiased or as they were released, and what was done.

    Attributes
    ----------
    draws
        Of the same settings as those that were released.
    record
        What was done to them.

    Examples
    --------
    >>> import surveysynth as ss
    >>> draws = ss.PrivateDraws("fbs", {}, ss.MechanismSettings(epsilon=10.8))
    >>> ss.Debiased(draws, ss.DebiasRecord("not asked for")).record.status
    'not asked for'
    """

    draws: PrivateDraws
    record: DebiasRecord


def debias_draws(
    model: Model,
    design: PublicDesign,
    private_draws: PrivateDraws,
    rng: np.random.Generator,
    *,
    databases: int = DATABASES,
    rounds: int = ROUNDS,
    progress: Progress | None = None,
) -> Debiased:
    """Return the debiased draws of one release (methods 8.3).

    Where the simulated mechanism does not reach its target or the shift does not settle, the draws
    come back as they are, and the record says so. It is post-processing, and costs no epsilon.

    Parameters
    ----------
    model, design, private_draws
        Of the release.
    rng
        For the simulated databases.
    databases
        Simulated a round; rounded up to a multiple of m.
    rounds
        How often the shift is found again; once more where odds are shifted.
    progress
        Called with the name of the stage.

    Returns
    -------
    Debiased
        Draws and record.

    Raises
    ------
    InputError
        For fewer than one database or round.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> survey, model = ss.example_survey(n=400), ss.get_model("fbs")
    >>> settings = ss.MechanismSettings(epsilon=10.8, m=1)
    >>> design, rng = settings.prepared(survey.design), np.random.default_rng(1)
    >>> private, _ = ss.run_mechanism(model, design, survey.confidential, settings, rng)
    >>> made = ss.debias_draws(model, design, private, rng, databases=2, rounds=1)
    >>> made.record.databases
    2
    """
    if progress is not None:
        progress(DEBIASING)
    (result,) = debias_many(
        model, [(design, private_draws)], rng, databases=databases, rounds=rounds
    )
    return result


def debias_many(
    model: Model,
    releases: Sequence[tuple[PublicDesign, PrivateDraws]],
    rng: np.random.Generator,
    *,
    databases: int = DATABASES,
    rounds: int = ROUNDS,
    plan: SamplingPlan | None = None,
) -> list[Debiased]:
    """Return ``debias_draws`` for many releases with the same settings.

    Their simulated runs are in one batch.

    ``plan``: of the simulated fits, as many kept draws as in the release; None: the release's own
    with a shorter warm-up.
    """
    if databases < 1 or rounds < 1:
        raise InputError(
            f"databases and rounds must be at least 1, got {databases!r} and {rounds!r}."
        )
    model = model.of(releases[0][0]) if releases else model
    works = [_Work(model, design, draws, databases, rng) for design, draws in releases]
    active = [work for work in works if work.record is None]
    rounds += MORE_FOR_ODDS if any("odds" in work.kinds for work in active) else 0
    for number in range(1, rounds + 1):
        if not active:
            break
        simulated = [database for work in active for database in work.simulate()]
        settings = own_settings(active[0].draws.settings)
        simulated_plan = plan or _shorter_warmup(settings.plan)
        settings = replace(settings, plan=simulated_plan)
        results = run_batch(model, simulated, settings, rng, protects=False)
        for work in active:
            work.receive(results[: work.databases], last=number == rounds)
            results = results[work.databases :]
        active = [work for work in active if work.record is None]
    return [work.finish(rounds) for work in works]


class _Work:
    """One release under debiasing: its shift so far."""

    def __init__(
        self,
        model: Model,
        design: PublicDesign,
        draws: PrivateDraws,
        databases: int,
        rng: np.random.Generator,
    ) -> None:
        m = draws.settings.m
        self.model, self.draws = model, draws
        self.design = thinned(design, MAX_RECORDS)
        self.databases = m * -(-databases // m)
        # Each database keeps its random numbers from round to round: the rounds differ by the
        # shift alone.
        self.starts = starts(rng, self.databases)
        coordinates = model.debiased(draws.theta, self.design)
        self.logs, self.kinds = coordinates.logs, coordinates.kinds
        self.limits = np.log([MAX_FACTOR[kind] for kind in self.kinds])
        self.changes = np.array([MAX_CHANGE[kind] for kind in self.kinds])
        self.bias = np.zeros(len(self.kinds))
        self.error = np.zeros_like(self.bias)
        # Of each round so far, what was taken off and the bias that was found there.
        self.rounds: list[tuple[FloatArray, FloatArray]] = []
        self.record: DebiasRecord | None = None
        if not draws.settings.private:
            self.record = DebiasRecord("nothing to debias", reason="nothing was down-weighted")
        elif not model.identified:
            self.record = DebiasRecord(
                "nothing to debias", reason="the labels of the model's parts can switch"
            )
        elif not self.bias.size:
            self.record = DebiasRecord(
                "nothing to debias", reason="the model names no residual scale"
            )

    def shifted(self) -> PrivateDraws:
        """Return the released draws less the bias found so far."""
        theta = self.model.with_debiased(self.draws.theta, self.logs - self.bias, self.design)
        return replace(self.draws, theta=theta)

    def simulate(self) -> list[Database]:
        """Simulate databases as the sample would have been, the same number from each draw."""
        shifted = self.shifted()
        result = []
        for index, start in enumerate(self.starts):
            theta = shifted.draw(index % self.draws.settings.m)
            simulated = self.model.simulate(theta, self.design, start.generator(), "sample")
            result.append(Database.simulated(self.model, self.design, simulated))
        return result

    def receive(self, results: Sequence[Result | RefusedError], *, last: bool) -> None:
        """Take the bias from the runs of one round, or give up."""
        shifts = [
            fit.mean_logs - fit.unweighted_mean_logs
            for _, fit in (each for each in results if isinstance(each, tuple))
        ]
        if len(shifts) < max(2, LEAST_SUCCESS * self.databases):
            self._give_up(
                "too many of the simulated runs did not reach the target epsilon or did not "
                "converge"
            )
            return
        self.rounds.append((self.bias, np.mean(shifts, axis=0)))
        self.error = np.std(shifts, axis=0, ddof=1) / np.sqrt(len(shifts))
        found = [bias for _, bias in self.rounds]
        moved = 0.0 if len(found) == 1 else np.abs(found[-1] - found[-2])
        size = np.abs(found[-1] if len(found) == 1 else found[-2])
        self.bias = self._bias()
        if last and np.any(moved > self.changes * size + 4.0 * self.error + 0.02):
            self._give_up("the shift did not settle from round to round")
        elif np.any(beyond := np.abs(self.bias) > self.limits):
            kind = self.kinds[int(np.argmax(beyond))]
            self._give_up(f"{_WHAT[kind]} would change by more than a factor {MAX_FACTOR[kind]:g}")

    def _bias(self) -> FloatArray:
        """Return the bias (d,) of the last round, extrapolated for odds.

        The bias of odds is where the line through the last two rounds meets what was taken
        off.

        The rarer a level, the more weight it loses: a round leaves a third of the error of odds.
        It leaves next to nothing of that of scales.
        """
        taken, found = self.rounds[-1]
        odds = np.array([kind == "odds" for kind in self.kinds])
        if len(self.rounds) == 1 or not odds.any():
            return found
        step, change = taken - self.rounds[-2][0], found - self.rounds[-2][1]
        known = odds & (np.abs(step) > 4.0 * self.error + 0.02)
        slope = np.divide(change, step, out=np.zeros_like(found), where=known)
        slope = np.clip(slope, -self.changes, self.changes)
        return np.where(known, (found - slope * taken) / (1.0 - slope), found)

    def _give_up(self, reason: str) -> None:
        self.record = self._described("not converged", np.zeros_like(self.bias), reason)
        self.bias = np.zeros_like(self.bias)

    def _described(self, status: str, shift: FloatArray, reason: str = "") -> DebiasRecord:
        return DebiasRecord(
            status,
            databases=self.databases,
            n_simulated=self.design.n,
            kinds=self.kinds,
            log_shift=tuple(float(value) for value in shift),
            standard_error=tuple(float(value) for value in self.error),
            reason=reason,
        )

    def finish(self, rounds: int) -> Debiased:
        """Return the draws to continue with."""
        if self.record is not None:
            return Debiased(self.draws, replace(self.record, rounds=rounds))
        record = replace(self._described("debiased", -self.bias), rounds=rounds)
        return Debiased(self.shifted(), record)


def _shorter_warmup(plan: SamplingPlan) -> SamplingPlan:
    """Return a plan with as many kept draws and a shorter warm-up.

    The bound grows with the number of kept draws; chains on simulated data need less warm-up."""
    return replace(plan, warmup=min(plan.warmup, MAX_WARMUP))


def thinned(design: PublicDesign, most: int) -> PublicDesign:
    """Return the design cut down to about ``most`` records, or itself where it is no larger.

    Every so-many-th record of each cell of X is kept in turn, so that all cells keep their
    shares."""
    if design.n <= most:
        return design
    order = np.argsort(design.matrix.cell, kind="stable")
    rows = np.sort(order[np.linspace(0, design.n - 1, most).astype(np.int64)])
    return replace(
        design,
        frame=design.frame.iloc[rows].reset_index(drop=True),
        matrix=replace(design.matrix, cell=design.matrix.cell[rows]),
        strata=_taken(design.strata, rows),
        psu=None if design.psu is None else _in_use(design.psu[rows]),
    )


def _in_use(codes: IntArray) -> IntArray:
    """Return codes of PSUs without gaps.

    A PSU without records is no PSU of the smaller design."""
    return np.asarray(np.unique(codes, return_inverse=True)[1], dtype=np.int64)


def _taken(codes: IntArray | None, rows: IntArray) -> IntArray | None:
    return None if codes is None else codes[rows]
