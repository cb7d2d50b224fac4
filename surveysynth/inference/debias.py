"""Debiasing of draws: find what down-weighting did to them by simulation, and undo it.

Down-weighted tails shrink residual scales, and with them every log-normal mean; means shift if the
likelihood is not symmetric about them (methods 8).

The method is indirect inference on the released draws. Databases are simulated from them as the
sample would have been, and the whole mechanism is run on each at the same target. The bias is the
shift of its posterior mean against that of the unweighted fit to the same database. It is
subtracted from every released draw, before synthesis.

This is post-processing: it uses PrivateDraws, PublicDesign and fresh random numbers only. So it
costs no epsilon, and all of its results may be published.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from surveysynth._support.progress import DEBIASING
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.base import PrivateDraws, Progress
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import own_settings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import Result, run_batch
from surveysynth.models.base import Model
from surveysynth.models.weighted import ShiftKind, WeightedModel, weighted_form
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import starts
from surveysynth.survey.survey import PublicDesign

#: Simulated databases, at least; the same number from each released draw.
DATABASES = 12
#: Rounds at most; the search ends where a round changes next to nothing.
ROUNDS = 6
#: Warm-up of the simulated fits.
MAX_WARMUP = 150
#: The bias of a residual scale is one of the tails of a single record's density under its cap: it
#: does not depend on n but through the spread of the posterior, 1/n. Larger designs are simulated
#: by every so-many-th record of each cell of X.
MAX_RECORDS = 20_000
#: Simulated runs of a round that must succeed. Where fewer do, databases are added, up to so many
#: times as many, until as many have succeeded; of all that were tried, the second share must.
LEAST_SUCCESS, LEAST_SHARE = 0.75, 0.5
MOST_BATCHES = 3
#: The last round may not move the shifts of a kind by more than this share of those before and 4
#: standard errors together, in root mean square, nor may a scale change by more than this factor.
MAX_CHANGE, MAX_FACTOR = 0.5, 2.0
#: Added to what a round may move logs by.
SLACK: Mapping[ShiftKind, float] = {"scale": 0.02, "location": 0.0}
#: The search ends early once a round moves the shifts by less than a tenth and a standard error.
#: A shift of logs changes the bias by about the same share, so a second round would do that where
#: those of the first are all below the second number, and locations zero, as far as errors tell.
SETTLED, SMALL = 0.1, 0.05

Runs: TypeAlias = Sequence[Result | RefusedError]


@dataclass(frozen=True)
class DebiasRecord:
    """The record of what debiasing did, from public inputs alone.

    Attributes
    ----------
    status
        "debiased", "nothing to debias" (a model without such parameters, or one whose labels can
        switch), "not converged" or "not asked for".
    databases, rounds
        Databases simulated a round, and rounds.
    n_simulated
        Records of each.
    kinds
        The d shifted parts: "scale", the log of a residual scale; "location", a coefficient
        of a mean.
    shift, standard_error
        The shift (d,) added to them in every draw, zero where there was none, and its Monte Carlo
        error.
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
    shift: tuple[float, ...] = ()
    standard_error: tuple[float, ...] = ()
    reason: str = ""

    @property
    def debiased(self) -> bool:
        """True if the draws were shifted."""
        return self.status == "debiased"


class BiasSearch:
    """One release under debiasing: its shift so far."""

    def __init__(
        self,
        model: WeightedModel,
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
        self.starts = starts(rng, MOST_BATCHES * self.databases)
        # So they need nearly the risk weights of the round before.
        self.begin: list[FloatArray | None] = [None] * len(self.starts)
        coordinates = model.debiased(draws.theta, self.design)
        self.values, self.kinds = coordinates.values, coordinates.kinds
        self.bias = np.zeros(len(self.kinds))
        self.error = np.zeros_like(self.bias)
        # Of each round so far, what was taken off.
        self.rounds: list[FloatArray] = []
        self.found: list[FloatArray] = []
        self.tried = 0
        self.record: DebiasRecord | None = None
        reasons = {
            "nothing was down-weighted": not draws.settings.private,
            "the labels of the model's parts can switch": not model.identified,
            "the model names nothing that down-weighting moves": not self.bias.size,
        }
        reason = next((each for each, holds in reasons.items() if holds), None)
        if reason is not None:
            self.record = DebiasRecord("nothing to debias", reason=reason)

    def shifted(self) -> PrivateDraws:
        """Return the released draws less the bias found so far."""
        values = self.values - self.bias
        theta = self.model.with_debiased(self.draws.theta, values, self.design)
        return replace(self.draws, theta=theta)

    def simulate(self) -> list[Database]:
        """Simulate the next databases as the sample would have been, the same number a draw."""
        shifted, first = self.shifted(), self.tried
        result = []
        for index in range(first, first + self.databases):
            theta = shifted.draw(index % self.draws.settings.m)
            rng, begin = self.starts[index].generator(), self.begin[index]
            simulated = self.model.simulate(theta, self.design, rng, "sample")
            result.append(Database.simulated(self.model, self.design, simulated, begin))
        return result

    def receive(self, results: Runs) -> None:
        """Record the biases found by the runs on these databases."""
        for index, each in enumerate(results, self.tried):
            if isinstance(each, tuple):
                _, fit = each
                self.begin[index] = fit.risk_weights
                self.found.append(fit.means - fit.unweighted_means)
        self.tried += self.databases

    @property
    def short(self) -> bool:
        """True if more databases are needed in this round, and may still be simulated."""
        return not self._enough and self.tried < MOST_BATCHES * self.databases

    @property
    def _enough(self) -> bool:
        least = max(2.0, LEAST_SUCCESS * self.databases, LEAST_SHARE * self.tried)
        return len(self.found) >= least

    def conclude(self, *, last: bool) -> bool:
        """End a round: update the bias or give up. Return True if the search has ended."""
        if not self._enough:
            self._give_up(
                "too many of the simulated runs did not reach the target epsilon or did not "
                "converge"
            )
            return True
        found, self.found, self.tried = np.array(self.found), [], 0
        self.error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
        self.rounds.append(self.bias)
        self.bias = found.mean(axis=0)
        last = last or self._still()
        scales = np.abs(self.bias)[np.array(self.kinds) == "scale"]
        if last and not self._settled(MAX_CHANGE, 4.0, self._slack):
            self._give_up("the shift did not settle from round to round")
        elif last and np.any(scales > np.log(MAX_FACTOR)):
            self._give_up(f"a residual scale would change by more than a factor {MAX_FACTOR:g}")
        return last or self.record is not None

    def _still(self) -> bool:
        """Return True if a further round would change next to nothing."""
        if len(self.rounds) == 1:
            located = np.array(self.kinds) == "location"
            hidden = np.where(located, 4.0, 2.0) * self.error
            return bool(np.all(np.abs(self.bias) <= hidden + np.where(located, 0.0, SMALL)))
        return self._settled(SETTLED, 1.0, 0.25 * self._slack)

    def _settled(self, share: float, errors: float, slack: FloatArray) -> bool:
        """Return True if the last round changed the bias little, by root mean squares of kinds."""
        if len(self.rounds) == 1:
            return True
        taken = self.rounds[-1]
        moved, size = self._pooled(self.bias - taken), self._pooled(taken)
        return bool(np.all(moved <= share * size + errors * self._pooled(self.error) + slack))

    def _pooled(self, values: FloatArray) -> FloatArray:
        """Return for each of the d values the root mean square over those of its kind."""
        kinds = np.array(self.kinds)
        return np.array([np.sqrt(np.mean(values[kinds == kind] ** 2)) for kind in self.kinds])

    @property
    def _slack(self) -> FloatArray:
        return np.array([SLACK[kind] for kind in self.kinds])

    def _give_up(self, reason: str) -> None:
        self.record = self._described("not converged", np.zeros_like(self.bias), reason)
        self.bias = np.zeros_like(self.bias)

    def _described(self, status: str, shift: FloatArray, reason: str = "") -> DebiasRecord:
        return DebiasRecord(
            status,
            databases=self.databases,
            rounds=len(self.rounds),
            n_simulated=self.design.n,
            kinds=self.kinds,
            shift=tuple(float(value) for value in shift),
            standard_error=tuple(float(value) for value in self.error),
            reason=reason,
        )

    def finish(self) -> tuple[PrivateDraws, DebiasRecord]:
        """Return the draws to continue with, and what was done to them."""
        if self.record is not None:
            return self.draws, self.record
        return self.shifted(), self._described("debiased", -self.bias)


def thinned(design: PublicDesign, most: int) -> PublicDesign:
    """Return the design cut down to about ``most`` records, or itself where it is no larger.

    Records of each cell of X are kept at regular intervals, so all cells keep their shares."""
    if design.n <= most:
        return design
    order = np.argsort(design.matrix.cell, kind="stable")
    rows = np.sort(order[np.linspace(0, design.n - 1, most).astype(np.int64)])
    return replace(
        design,
        frame=design.frame.iloc[rows].reset_index(drop=True),
        matrix=replace(design.matrix, cell=design.matrix.cell[rows]),
        strata=None if design.strata is None else design.strata[rows],
        psu=None if design.psu is None else design.psu[rows],
    )


@dataclass(frozen=True)
class Debiased:
    """The draws to synthesize from, debiased or as they were released, and what was done.

    Attributes
    ----------
    draws
        The debiased draws, with the settings of the released ones.
    record
        A record of the shifts.

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

    It is post-processing, and costs no epsilon.

    Parameters
    ----------
    model, design, private_draws
        Those of the release.
    rng
        For the simulated databases.
    databases
        Simulated a round; rounded up to a multiple of m.
    rounds
        The largest number of times that the shift is found again.
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
    RefusedError
        If the simulated mechanism does not reach its target, or the shift does not settle. That
        follows from the released draws alone.

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
    if result.record.status == "not converged":
        raise RefusedError(
            f"Debiasing did not converge ({result.record.reason}): published means and intervals "
            "would be biased by an unknown amount. Raise epsilon, release fewer draws m, or use "
            'fewer predictors; mechanism = "noisy_statistics" needs no debiasing. With inference = '
            '"paper" in [synthesizer] the draws are published without it, and intervals cover less '
            "than they say."
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
    """Return debiased draws of many releases with the same settings.

    Their simulated runs are in one batch. Where a search does not converge, the draws are returned
    unchanged, and the record says so.

    ``plan``: of the simulated fits, as many kept draws as in the release; None: the release's own
    with a shorter warm-up.
    """
    if databases < 1 or rounds < 1:
        raise InputError(
            f"databases and rounds must be at least 1, got {databases!r} and {rounds!r}."
        )
    if not releases:
        return []
    weighted = weighted_form(model, releases[0][0])
    searches = [BiasSearch(weighted, design, draws, databases, rng) for design, draws in releases]
    active = [search for search in searches if search.record is None]
    # Every round starts the same streams, so that the shift moves smoothly with the bias.
    streams = starts(rng, MOST_BATCHES)
    for number in range(1, rounds + 1):
        if not active:
            break
        settings = own_settings(active[0].draws.settings)
        # The bound grows with the number of kept draws; chains on simulated data need less warm-up.
        shorter = replace(settings.plan, warmup=min(settings.plan.warmup, MAX_WARMUP))
        settings = replace(settings, plan=plan or shorter)
        # On more databases where too few runs succeed.
        waiting = active
        for stream in streams:
            batches = [search.simulate() for search in waiting]
            databases_of_all = [database for batch in batches for database in batch]
            rng_of_round = stream.generator()
            results = run_batch(weighted, databases_of_all, settings, rng_of_round, protects=False)
            for search, batch in zip(waiting, batches, strict=True):
                search.receive(results[: len(batch)])
                results = results[len(batch) :]
            waiting = [search for search in waiting if search.short]
            if not waiting:
                break
        active = [each for each in active if not each.conclude(last=number == rounds)]
    return [Debiased(*search.finish()) for search in searches]
