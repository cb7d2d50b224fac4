"""The bias of one release's draws, found round by round from simulated databases (methods 8.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import Result
from surveysynth.models.weighted import ShiftKind, WeightedModel
from surveysynth.sampling.randomness import starts
from surveysynth.survey.survey import PublicDesign

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
        What was shifted, d of them: "scale", the log of a residual scale; "location", a coefficient
        of a mean.
    shift, standard_error
        What was added to them in every draw (d,), zeros where nothing was, and its Monte Carlo
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
        if not draws.settings.private:
            self.record = DebiasRecord("nothing to debias", reason="nothing was down-weighted")
        elif not model.identified:
            self.record = DebiasRecord(
                "nothing to debias", reason="the labels of the model's parts can switch"
            )
        elif not self.bias.size:
            self.record = DebiasRecord(
                "nothing to debias", reason="the model names nothing that down-weighting moves"
            )

    # --- one round ----------------------------------------------------------------------------

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
        """Take the biases that the runs of these databases show."""
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
        """Return whether a further round would change next to nothing."""
        if len(self.rounds) == 1:
            located = np.array(self.kinds) == "location"
            hidden = np.where(located, 4.0, 2.0) * self.error
            return bool(np.all(np.abs(self.bias) <= hidden + np.where(located, 0.0, SMALL)))
        return self._settled(SETTLED, 1.0, 0.25 * self._slack)

    def _settled(self, share: float, errors: float, slack: FloatArray) -> bool:
        """Return whether the last round moved the bias by little, by root mean squares of kinds."""
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

    # --- the end ------------------------------------------------------------------------------

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
        psu=_taken(design.psu, rows),
    )


def _taken(codes: IntArray | None, rows: IntArray) -> IntArray | None:
    return None if codes is None else codes[rows]
