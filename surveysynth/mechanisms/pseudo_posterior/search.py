"""The search for risk weights that bring the bound to its target (methods 2), by refitting.

A search is a generator: it yields the weights (n,) that it wants fitted next, is sent the fit, and
returns the one that reached the target. Its caller can run many searches side by side, so that one
batched sampler serves the fits of all. Weights, bounds and the number of fits depend on the
confidential records and stay with the mechanism; of simulated databases they are public.
"""

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, TypeAlias

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior.fit import WeightedFit
from surveysynth.mechanisms.pseudo_posterior.risk import capped, from_risks, relative, reweighted
from surveysynth.mechanisms.pseudo_posterior.settings import LEAST_SHARE, MechanismSettings
from surveysynth.models.weighted import WeightedModel

#: Weights that follow a running mean do so over as many fits. After the pace's patience the cap
#: falls by this factor a fit: a public schedule, where a cap that followed the largest bound would
#: let one record move the weights of all.
MEMORY = 4
FALL = 0.99
#: One number sets linear weights, and the bound can jump across the window as it moves. Once the
#: bracket is this narrow the fit below the jump is taken, if it uses this share of the target.
NARROW_BRACKET = 1.001
SAFE_SIDE_SHARE = 0.9
#: Below this scale nothing but the shift is left of linear weights.
LEAST_SCALE = 0.01
#: The search aims at the middle of [0.97, 1] x target.
AIM = 0.5 * (LEAST_SHARE + 1.0)
MAX_FITS = 60
#: NUTS moves risks by a tenth and more from fit to fit, whatever the weights. After the first
#: number of fits the cap therefore begins to fall, and linear weights accept a bound somewhat below
#: the window, the safe side. After the second number the search stops: weights run away, and one
#: record could decide how far the cap has fallen.
NOISY_FITS, NOISY_MOST_FITS = 10, 24
NOISY_LEAST_SHARE = 0.8
#: Simulated databases protect nobody: weights need not be close to the fixed point, nor all bounds
#: below the target. A full step leaves about half of the distance to the fixed point, and longer
#: ones less; they amplify noise in single records, which matters where one is to be protected. The
#: bias of a scale is 0.3% off that of exact weights, with steps of 1.5 or 1 it is 5% off (counts).
#: Where few records lose weight the mean over records is small from the start, so what is left of
#: the way must be small beside the way too: a bias of 0.0275 in the log of a scale was found as
#: 0.0223 without (10,000 records).
SIMULATED_TOLERANCE = 0.02
SIMULATED_SHARE = 0.1
SIMULATED_WINDOW = (0.9, 1.1)
SIMULATED_STRIDE = 1.25


@dataclass(frozen=True)
class Pace:
    """The steps of one search."""

    smooth: bool = True  # the bound moves smoothly with the weights
    #: Fixed-point weights stop when they are this close, on the log scale in root mean square, to
    #: what their own fit asks for: in full steps, and once they follow a running mean. What is left
    #: of the way is a difference in the weights of all that one record can make, and counts beside
    #: the bound.
    tolerances: tuple[float, float] = (0.005, 0.02)
    share: float = math.inf  # largest such distance as a share of that of the weights from one
    aim: float = AIM  # cap of the fixed point, as a share of the target
    #: Share of the target that a record's bound may reach in the fit that is released.
    limit: float = 1.0
    full_steps: int = 8  # fits after which weights follow a running mean
    patience: int = 16  # fits after which the cap falls
    most_fits: int = MAX_FITS  # fits after which the search gives up
    #: Steps towards the fixed point in multiples of a full step, on the log scale.
    stride: float = 1.0
    #: Shares of the target that linear weights may reach, at first and after ``NOISY_FITS`` fits.
    windows: tuple[tuple[float, float], tuple[float, float]] = (
        (LEAST_SHARE, 1.0),
        (LEAST_SHARE, 1.0),
    )

    def near(self, left: float, way: float, *, averaging: bool) -> bool:
        """Return True if weights are close enough to those that their own fit requires.

        left: root mean square of the logs that are missing; way: of those of the weights
        themselves.
        """
        beside = math.isinf(self.share) or left <= self.share * way
        return beside and left <= self.tolerances[averaging]

    def window(self, fits: int) -> tuple[float, float]:
        """Return the shares of the target that linear weights may reach after ``fits``."""
        return self.windows[fits >= NOISY_FITS]


SMOOTH = Pace()
#: Draws jump from fit to fit, as those of NUTS.
JUMPING = Pace(
    smooth=False,
    tolerances=(0.3, 0.3),
    patience=NOISY_FITS,
    most_fits=NOISY_MOST_FITS,
    windows=((LEAST_SHARE, 1.0), (NOISY_LEAST_SHARE, 1.0)),
)


def pace_of(model: WeightedModel, *, protects: bool) -> Pace:
    """Return the pace of the search for weights; ``protects``: False for simulated databases."""
    pace = SMOOTH if model.common_random_numbers else JUMPING
    if protects:
        return pace
    return replace(
        pace,
        tolerances=(SIMULATED_TOLERANCE, SIMULATED_TOLERANCE),
        share=SIMULATED_SHARE if pace.smooth else math.inf,
        limit=math.inf,
        patience=MAX_FITS,
        most_fits=MAX_FITS,
        stride=SIMULATED_STRIDE,
        windows=(SIMULATED_WINDOW, SIMULATED_WINDOW),
    )


#: Yields alpha (n,), is sent the fit under it, returns the fit that reached the target.
Search: TypeAlias = Generator[FloatArray, WeightedFit, WeightedFit]


class Judge(Protocol):
    """The sampler as a search sees it."""

    @property
    def pace(self) -> Pace:
        """The settings of its steps."""

    def on_target(self, realised: float, target: float) -> bool:
        """Return whether linear weights have reached the target; never above it."""


#: Risks (n,) in [0, 1] from f_i (n,) of the unweighted fit.
RisksOf: TypeAlias = Callable[[FloatArray], FloatArray]


def search_target(
    judge: Judge,
    settings: MechanismSettings,
    n: int,
    risks_of: RisksOf = relative,
    begin: FloatArray | None = None,
) -> Search:
    """Search the weights of n records, from the unweighted fit on.

    ``risks_of``: the risk measure of linear weights, LW unless another is given. ``begin``: the
    weights (n,) to try after the unweighted fit on the way to a fixed point. The result is a fit
    whose bound has reached the target of ``settings`` and does not pass it; raises ``RefusedError``
    if that cannot be done. The caller limits the number of fits.
    """
    unweighted = yield np.ones(n)
    if not settings.private:
        return unweighted
    if settings.weights == "fixed_point":
        return (yield from _fixed_point(judge, unweighted, settings.target_bound, begin))
    risks = risks_of(unweighted.extremes.lipschitz)
    return (yield from _linear(judge, unweighted, settings, risks))


def _fixed_point(
    judge: Judge, unweighted: WeightedFit, target: float, begin: FloatArray | None
) -> Search:
    """Iterate alpha_i = min(1, c / r_i), r_i = max(f_i, oscillation) of the weighted fit.

    At the fixed point every record's bound is min(r_i, c), so c is the aim itself, and what one
    record needs does not change the weights of the others. With f_i alone (methods 2) an
    oscillation above Delta could only be met by a smaller c for all records. A record that passes
    the target near the end, by the noise of its extremes, keeps the largest value that it had.
    """
    pace = judge.pace
    cap, held = pace.aim * target, np.zeros_like(unweighted.extremes.risk)
    alpha = capped(unweighted.extremes.risk, cap) if begin is None else begin
    recent: deque[FloatArray] = deque(maxlen=MEMORY)
    for step in count(1):
        fit = yield alpha
        risks = np.maximum(fit.extremes.risk, held)
        left = _distance(alpha, capped(risks, cap))
        way = _distance(alpha, 1.0)
        averaging = step > pace.full_steps
        near = pace.near(left, way, averaging=averaging)
        at_one = bool(np.all(alpha == 1.0))
        if fit.bounds.realised <= pace.limit * target and (near or at_one):
            return fit
        if near or averaging:
            passing = np.maximum(fit.bounds.lipschitz, fit.bounds.oscillation) > target
            held = np.where(passing, risks, held)
        if step >= pace.patience:
            cap *= FALL
        # Means of 1/r: a risk that is infinite once counts as a weight of zero in that fit.
        recent.append(1.0 / np.maximum(fit.extremes.risk, 1e-300))
        per_unit = np.mean(recent, axis=0) if averaging else recent[-1]
        with np.errstate(divide="ignore"):
            goal = np.minimum(1.0, cap * np.minimum(per_unit, 1.0 / held))
        if near and pace.smooth and step < pace.patience:
            # Who passes gives way alone: a step of all would be one that a single record can ask
            # for, and the half percent that it moves all weights by counts as sqrt(n) does.
            alpha = np.where(passing, np.minimum(alpha, goal), alpha)
            continue
        alpha = goal if near or averaging else _stepped(alpha, goal, pace.stride)
    raise AssertionError("unreachable: who drives a search limits the number of fits")


def _stepped(alpha: FloatArray, goal: FloatArray, stride: float) -> FloatArray:
    """Return weights (n,) ``stride`` times the way from alpha to goal, on the log scale.

    From zero or to it, the goal."""
    if stride == 1.0:
        return goal
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = alpha * (goal / alpha) ** stride
    return np.where((alpha > 0) & (goal > 0), np.minimum(1.0, beyond), goal)


def _distance(alpha: FloatArray, goal: FloatArray | float) -> float:
    """Return the root mean square of log(alpha / goal), of weights (n,).

    Two zeros count as equal, a single zero as infinitely far."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.where(alpha == goal, 0.0, np.log(alpha / goal))
    if not np.isfinite(gaps).all():
        return np.inf
    return float(np.sqrt(np.mean(gaps * gaps)))


def _linear(
    judge: Judge, unweighted: WeightedFit, settings: MechanismSettings, risks: FloatArray
) -> Search:
    """Search alpha = clip(c (1 - risk) + g, 0, 1) ([R] Alg. 2 and 3).

    With re-weighting (Alg. 1) on request. Scalar weights are the case of equal risks: c =
    Delta*/Delta, iterated."""
    target = settings.target_bound
    # Records whose log-likelihood is not finite leave the likelihood and do not come back.
    left = ~np.isfinite(unweighted.extremes.risk)
    bound = float(unweighted.extremes.risk[~left].max(initial=0.0))

    def weights(scale: float) -> FloatArray:
        return from_risks(risks, scale, settings.shift)

    if settings.scale is None:
        alike = bound > 0 and np.ptp(risks[~left]) == 0
        start = min(1.0, AIM * target / bound) if alike else 1.0
        fit: WeightedFit = yield from _by_factor(judge, weights, target, left, start)
    else:
        fit = yield from _finite(weights(settings.scale), left)
        if fit.bounds.realised > target:
            raise RefusedError(
                "The linear weights with the scale and shift given pass the target epsilon. "
                "Lower scale and shift, leave out scale so that it is found for the target, "
                "or raise epsilon."
            )
    if not settings.reweight:
        return fit
    base, bounds = fit.risk_weights, fit.bounds.lipschitz
    delta = float(bounds.max())
    # The bound stays what it was: the target, or what weights given by hand make of it.
    limit = target if settings.scale is None else fit.bounds.realised
    return (
        yield from _by_factor(
            judge, lambda k: reweighted(base, bounds, delta, k), limit, left
        )
    )


def _finite(alpha: FloatArray, left: BoolArray) -> Search:
    """Yield the fit under alpha (n,) with weights of 0 for the records that have ``left`` (n,).

    ``left`` is extended by records whose log-likelihood proves not to be finite; then all are
    fitted anew."""
    while True:
        fit = yield np.where(left, 0.0, alpha)
        infinite = ~np.isfinite(np.maximum(fit.bounds.lipschitz, fit.bounds.oscillation))
        if not infinite.any():
            return fit
        left |= infinite


def _by_factor(
    judge: Judge,
    weights: Callable[[float], FloatArray],
    target: float,
    left: BoolArray,
    start: float = 1.0,
) -> Search:
    """Find x > 0 whose weights bring the bound into [0.97, 1] x target, never above.

    The bound is about proportional to x: steps in proportion, halved on the log scale once both
    sides are bracketed. Stops early, below the target, when no weight can rise any more, and
    below a jump of the bound across the window.
    """
    x, low, high = start, 0.0, np.inf
    below: WeightedFit | None = None
    saturated = weights(1e12)
    while True:
        alpha = weights(x)
        fit: WeightedFit = yield from _finite(alpha, left)
        realised = fit.bounds.realised
        full = realised <= target and np.array_equal(alpha, saturated)
        if full or judge.on_target(realised, target):
            return fit
        if realised > target:
            high = x
        else:
            low, below = x, (fit if realised >= SAFE_SIDE_SHARE * target else None)
        if below is not None and judge.pace.smooth and high < NARROW_BRACKET * low:
            return below
        if high < LEAST_SCALE and low == 0.0:
            raise RefusedError(
                "No scale reaches the target epsilon: the shift alone passes it, or the posterior "
                "widens as fast as the weights fall. Lower the shift or raise epsilon."
            )
        step = x * AIM * target / realised if realised > 0 else 4.0 * x
        # A bracket from noisy bounds may hold no answer: without it the steps hover about the aim.
        x = (
            step
            if low < step < high or not judge.pace.smooth
            else (np.sqrt(low * high) if low > 0 else high / 2.0)
        )
