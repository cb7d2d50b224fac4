"""How long chains given noisy statistics will take, and when to stop waiting for them.

What is said follows from the noisy statistics alone: it is public, as the draws are.
"""

import math
import time
from collections.abc import Callable, Sequence

from surveysynth._support.progress import POSTERIOR
from surveysynth.errors import RefusedError
from surveysynth.sampling.convergence import MAX_R_HAT, NotConvergedError
from surveysynth.sampling.plan import SamplingPlan

Said = Callable[[str], None]

#: Seconds of a stage from which it is announced.
LONG = 10.0
#: Rounds a draw from which the fall of R-hat shows where it leads.
TELLING = 8
#: R-hat^2 - 1 may end at so many times what the gate allows, by extrapolation, and chains go on.
LEEWAY = 2.0
_GATE = MAX_R_HAT**2 - 1.0


def expected_excess(excess: Sequence[float], doublings: int) -> float:
    """Return R-hat^2 - 1 after further doublings of the rounds, from its values so far.

    For stationary chains it halves with each doubling. While they still travel from their starts
    it falls faster; the square of its last fall is a generous guess of how fast.
    """
    fell = excess[-1] / excess[-2] if excess[-2] > 0 else 0.0
    return float(excess[-1] * min(0.5, fell**2) ** doublings)


class Patience:
    """Announces the stages of one fit, and says when further ones cannot work.

    thinnings: rounds a draw in each stage, doubling; plan: chains and draws.
    """

    def __init__(
        self, thinnings: Sequence[int], plan: SamplingPlan, progress: Said | None
    ) -> None:
        self._thinnings, self._plan, self._progress = tuple(thinnings), plan, progress
        self._started, self._excess = time.monotonic(), list[float]()

    def begin(self, rounds: int) -> None:
        """Announce the whole, after so many ``rounds``: warm-up and first stage, and what may be.

        Nothing is said of short work.
        """
        first, *others = (self._seconds(each, rounds) for each in self._thinnings)
        first += self._seconds(self._thinnings[0], rounds) * self._plan.warmup / self._plan.draws
        if self._progress is not None and first >= LONG:
            self._progress(
                f"{POSTERIOR}, {duration(first)}; up to {duration(first + sum(others))} if "
                "chains mix slowly"
            )

    def say(self, thinning: int, rounds: int, draws: int) -> None:
        """Announce a further stage, ``thinning`` rounds a draw, after ``rounds`` so far."""
        seconds = self._seconds(thinning, rounds) * draws / self._plan.draws
        if self._progress is None or seconds < LONG or not self._excess:
            return
        r_hat = math.sqrt(1.0 + self._excess[-1])
        self._progress(
            f"{POSTERIOR}, {thinning} rounds a draw, {duration(seconds)}, since R-hat is "
            f"{r_hat:.2f}"
        )

    def refusal(
        self, result: RefusedError, thinning: int, rounds: int
    ) -> RefusedError | None:
        """Return why no further stage is tried; None where one may still work."""
        left = len(self._thinnings) - 1 - self._thinnings.index(thinning)
        r_hat = _r_hat(result)
        if not math.isfinite(r_hat):
            return None
        self._excess.append(r_hat**2 - 1.0)
        if not left or thinning < TELLING:
            return None
        expected = expected_excess(self._excess, left)
        if expected <= LEEWAY * _GATE:
            return None
        most = self._thinnings[-1]
        draws = self._plan.draws * math.ceil(expected / _GATE)
        seconds = self._seconds(most, rounds) * draws / self._plan.draws
        return RefusedError(
            f"The chains given the noise mix too slowly: R-hat is {r_hat:.2f} after {thinning} "
            f"rounds a draw, {math.sqrt(1.0 + expected):.2f} is to be expected after {most}, the "
            f"most that are tried, and {MAX_R_HAT} is required. They may converge with draws = "
            f"{draws} in [synthesizer] ({duration(seconds)}). Otherwise release fewer outcomes "
            "together, use fewer predictors and levels, or raise epsilon; centres and spreads far "
            "from the truth slow chains down too."
        )

    def near(self, result: RefusedError) -> bool:
        """Return whether twice the rounds should do, with those so far."""
        r_hat = _r_hat(result)
        return not math.isfinite(r_hat) or r_hat**2 - 1.0 <= LEEWAY * _GATE

    def _seconds(self, thinning: int, rounds: int) -> float:
        """Return about how long a stage takes, from the time of all rounds so far."""
        if not rounds:
            return 0.0
        of_round = (time.monotonic() - self._started) / rounds
        return of_round * thinning * self._plan.draws


def _r_hat(result: RefusedError) -> float:
    return result.r_hat if isinstance(result, NotConvergedError) else math.inf


def duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"about {seconds:.0f} seconds"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} minutes"
    return f"about {seconds / 3600:.1f} hours"
