"""The one-record test of the pseudo-posterior: how far replacing a record moves it.

The whole search runs on every database, so risk weights, and everything else found from the data,
are each database's own. With common random numbers two fits differ only by their data. A release
draws fresh ones; the Monte Carlo error that they add is measured separately.

The log ratio of two weighted posteriors: of a database, and of one with a record replaced.

    log xi(theta | D) - log xi(theta | D') = l(theta) - l'(theta) - c,   l = sum_i alpha_i log_lik_i

alpha is each database's own, found by the whole search on it; the prior is the same and drops out.
c, the log ratio of normalizing constants, comes from draws of both by Bennett's acceptance ratio
(Bennett 1976), the best bridge of Meng & Wong (1996, eq. 4.1). A draw costs at most epsilon / m of
the whole, so that this log ratio is what the stated 2 Delta* has to hold.

Effects of PSUs are drawn with the parameters but stay in the mechanism. The ratio of what is
released is that of the marginal posterior: the effects, in which a Gaussian model's weighted
log-likelihood is quadratic, are integrated out exactly. In the general location model it is not
quadratic. There the ratio is that of parameters and effects together, which is no smaller.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import logsumexp

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings, own_settings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import Result, run_batch
from surveysynth.models.base import Model, require
from surveysynth.models.gaussian.gaussian_model import GaussianModel
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.survey.survey import Confidential, PublicDesign
from tests.audit.lines import Case, Line, head_of, measured
from tests.audit.neighbours import Centres, Change, apart, changed, places

#: Bennett's equation is solved to this tolerance, or for this many steps.
TOLERANCE = 1e-9
MOST_STEPS = 1000


@dataclass(frozen=True, repr=False)
class Side:
    """One of two databases: the model's ``records``, alpha (n,), and draws of the posterior.

    theta: draws under the weights alpha, leading axes (chains, draws).
    """

    records: Any
    risk_weights: FloatArray
    theta: Theta

    @property
    def flat(self) -> Theta:
        """The draws (S, ...)."""
        return {name: v.reshape(-1, *v.shape[2:]) for name, v in self.theta.items()}


@dataclass(frozen=True, repr=False)
class LogRatios:
    """log xi(theta | D) - log xi(theta | D') at draws of D (S,) and at draws of D' (S',)."""

    at_first: FloatArray
    at_second: FloatArray

    @property
    def largest(self) -> float:
        """The max |log ratio| over the draws of both."""
        return float(max(np.abs(self.at_first).max(), np.abs(self.at_second).max()))

    def share_above(self, epsilon: float, m: int, rng: np.random.Generator) -> float:
        """Return P(sum over m released draws of the log ratio > epsilon), the larger of both sides.

        It comes from sets of m different draws, as many sets as there are draws.
        """
        return max(
            _share_above(own, epsilon, m, rng) for own in (self.at_first, -self.at_second)
        )


def log_ratios(model: Model, first: Side, second: Side, *, jointly: bool = False) -> LogRatios:
    """Return normalized log ratios of the posteriors of both sides, at draws of each.

    ``jointly``: of parameters and effects of PSUs together; else of the parameters alone, which are
    released, if the model is Gaussian.
    """
    effects = PSU_EFFECT in first.theta and isinstance(model, GaussianModel) and not jointly
    # Theta of a model without effects has neither.
    log_lik = partial(marginal_log_lik if effects else weighted_log_lik, model)
    at_first, at_second = (
        log_lik(side.flat, first.records, first.risk_weights)
        - log_lik(side.flat, second.records, second.risk_weights)
        for side in (first, second)
    )
    constant = log_constant(at_first, at_second)
    return LogRatios(at_first - constant, at_second - constant)


def log_constant(at_first: FloatArray, at_second: FloatArray) -> float:
    """Return the log of the ratio of normalizing constants, first over second.

    It comes from unnormalized log ratios at draws of the first (S,) and of the second (S',).
    """
    share = np.log(at_first.size / at_second.size)
    constant = float(np.median(np.concatenate([at_first, at_second])))
    for _ in range(MOST_STEPS):
        # Each side's mean of a logistic function of the ratio, which agree at the solution.
        upper = logsumexp(-np.logaddexp(0.0, constant - share - at_second))
        lower = logsumexp(-np.logaddexp(0.0, at_first - constant + share))
        constant += upper - lower
        if abs(upper - lower) < TOLERANCE:
            break
    return constant


def weighted_log_lik(
    model: Model, theta: Theta, records: Any, risk_weights: FloatArray
) -> FloatArray:
    """Return sum_i alpha_i log_lik[s, i] (S,), given effects of PSUs if there are any."""
    total = np.zeros(_draws(theta))
    for rows, log_lik in model.log_lik_blocks(theta, records):
        total += log_lik @ risk_weights[rows]
    return total


def marginal_log_lik(
    model: Model, theta: Theta, records: Any, risk_weights: FloatArray
) -> FloatArray:
    """Return the weighted log-likelihood (S,) with the effects of PSUs integrated out.

    That is the log of the integral over a_c ~ N(0, T) of exp(sum_i alpha_i log_lik_i given a). The
    exponent is quadratic in the effect of each PSU, k + g'a - a'H a / 2, and known from its values
    at 1 + q + q(q + 1)/2 points; a PSU adds k + g'(H + T^-1)^-1 g / 2 - log|I + T H| / 2.
    """
    covariance = theta[PSU_COVARIANCE]
    q = covariance.shape[-1]
    # Points at a distance of the effects' own size; all PSUs are moved at once, each alone.
    size = np.sqrt(np.einsum("sqq->sq", covariance))

    def at(point: FloatArray) -> FloatArray:
        effects = np.broadcast_to((point * size)[:, None], theta[PSU_EFFECT].shape)
        moved = {**theta, PSU_EFFECT: effects}
        return _by_psu(model, moved, records, risk_weights)

    unit = np.eye(q)
    middle = at(np.zeros(q))
    up, down = (np.stack([at(sign * each) for each in unit]) for sign in (1.0, -1.0))
    slope = 0.5 * (up - down)
    curvature = np.zeros((q, q, *middle.shape))
    for j in range(q):
        curvature[j, j] = 2.0 * middle - up[j] - down[j]
    for j, k in combinations(range(q), 2):
        both = at(unit[j] + unit[k])
        curvature[j, k] = curvature[k, j] = up[j] + up[k] - middle - both
    # In units of ``size``, with the correlation matrix of the effects as their covariance.
    g, h = np.moveaxis(slope, 0, -1), np.moveaxis(curvature, (0, 1), (-2, -1))
    correlation = covariance / (size[:, :, None] * size[:, None, :])
    precision = np.linalg.inv(correlation)[:, None] + h
    solved = np.linalg.solve(precision, g[..., None])[..., 0]
    log_det = np.linalg.slogdet(precision)[1] + np.linalg.slogdet(correlation)[1][:, None]
    return np.asarray((middle + 0.5 * (g * solved).sum(-1) - 0.5 * log_det).sum(-1))


def _by_psu(model: Model, theta: Theta, records: Any, risk_weights: FloatArray) -> FloatArray:
    """Return the sum over records of each PSU of alpha_i log_lik[s, i], (S, C)."""
    sums = np.zeros(theta[PSU_EFFECT].shape[:2])
    for rows, log_lik in model.log_lik_blocks(theta, records):
        weighted, psu = log_lik * risk_weights[rows], records.psu[rows]
        order = np.argsort(psu, kind="stable")
        codes, starts = np.unique(psu[order], return_index=True)
        sums[:, codes] += np.add.reduceat(weighted[:, order], starts, axis=1)
    return sums


def _draws(theta: Theta) -> int:
    return int(next(iter(theta.values())).shape[0])


def _share_above(
    ratios: FloatArray, epsilon: float, m: int, rng: np.random.Generator
) -> float:
    """Return the share of sums of m draws above epsilon; every draw is in m of S sums."""
    sums = np.sum([rng.permutation(ratios) for _ in range(m)], axis=0)
    return float(np.mean(sums > epsilon))


#: Number of worst replacements that are fitted again with fresh random numbers.
FRESH = 3
UNCHANGED = "none, fitted twice"
#: Records that a prior of next to nothing is worth.
NOTHING = 1e-6


class Alike(np.random.Generator):
    """A generator that gives every database of a batch the same random numbers.

    Two fits then differ only by their data.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self._seed = np.random.default_rng(seed).integers(0, 2**63, size=4)

    def integers(self, *args: Any, **kwargs: Any) -> Any:
        """Return the same integers in every row of the requested ``size``."""
        shape = np.atleast_1d(kwargs.get("size", self._seed.size))
        return np.broadcast_to(self._seed[: shape[-1]], tuple(shape))


def databases(
    model: Model, design: PublicDesign, halves: Sequence[Confidential]
) -> list[Database]:
    """Return the databases in the form of the mechanism."""
    return [
        Database(model.records(design, each), design.n, each.outcome, design.frame, design)
        for each in halves
    ]


def posterior_lines(
    case: Case, changes: Sequence[Change], seed: int, *, fresh: bool = False
) -> Iterator[Line]:
    """Yield a line a replacement; with ``fresh`` also lines of fits with fresh random numbers."""
    settings, head = own_settings(case.mechanism.settings), head_of(case)
    try:
        case = prepared(case)
        model = case.model.of(case.survey.design)
        require(model, case.survey.design)
        settings.require_identified(model)
        model.prepare()
    except RefusedError as error:
        yield replace(head, verdict="refused", reason=str(error))
        return
    except InputError as error:
        yield replace(head, reason=str(error))
        return
    if settings.truncate < 1:
        yield replace(head, reason="the draws are truncated: their posterior has no closed form")
        return
    if case.without_prior:
        yield control_line(model, case, settings, changes, seed)
        return
    found: list[tuple[Line, IntArray, Change]] = []
    for line, records, change in _lines(model, case, settings, changes, seed):
        found.append((replace(head, **line), records, change))
        yield found[-1][0]
    if fresh and any(line.ratio is not None for line, _, _ in found):
        worst = sorted(found, key=lambda each: each[0].ratio or 0.0, reverse=True)[:FRESH]
        for line in _fresh(model, case, settings, worst, seed):
            yield replace(head, **line)


def prepared(case: Case) -> Case:
    """Return the case as the mechanism takes it.

    The mechanism may have a public rule for designs that it could not protect, which pools or
    raises ``RefusedError``.
    """
    design = case.mechanism.prepared(case.model.with_ridge(case.survey.design))
    if case.without_prior and design.pseudo is not None:
        design = replace(design, pseudo=replace(design.pseudo, records=NOTHING))
    return replace(case, survey=replace(case.survey, design=design))


def control_line(
    model: Model, case: Case, settings: MechanismSettings, changes: Sequence[Change], seed: int
) -> Line:
    """Return the worst replacement without pseudo-records: of few records it passes the bound."""
    found = [line for line, _, _ in _lines(model, case, settings, changes, seed)]
    worst = max(found, key=lambda line: line.get("ratio") or 0.0)
    if (worst.get("ratio") or 0.0) > 1.0:
        return replace(head_of(case), **{**worst, "verdict": "fires"})
    reason = "of so many records one does not decide, even without pseudo-records"
    return replace(head_of(case), **{**worst, "verdict": "skipped", "reason": reason})


def _lines(
    model: Model, case: Case, settings: MechanismSettings, changes: Sequence[Change], seed: int
) -> Iterator[tuple[dict[str, Any], IntArray, Change]]:
    """Make every change at every place, all in one batch with the database itself."""
    survey, centres = case.survey, Centres.of(case.survey)
    count = getattr(model, "takes_count", False)
    pairs = [
        (name, records, change)
        for name, records in apart(places(survey, centres)).items()
        for change in changes
    ]
    halves = [
        changed(survey, records, change, count=count, centres=centres)
        for _, records, change in pairs
    ]
    numbers: dict[str, Any] = {"random_numbers": "common"}
    if not model.common_random_numbers:
        numbers = {"random_numbers": "common, of a sampler that jumps"}
    given = databases(model, survey.design, [survey.confidential, *halves])
    base, *others = run_batch(model, given, settings, Alike(seed))
    for (name, records, change), database, result in zip(pairs, given[1:], others, strict=True):
        words = {"record": name, "change": change.name, **numbers}
        yield (
            {**words, **compared(model, settings, (given[0], base), (database, result), seed)},
            records,
            change,
        )


def _fresh(
    model: Model,
    case: Case,
    settings: MechanismSettings,
    worst: Sequence[tuple[Line, IntArray, Change]],
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Fit the database itself twice, and the worst replacements, with fresh random numbers."""
    survey = case.survey
    count = getattr(model, "takes_count", False)
    halves = [survey.confidential, survey.confidential]
    halves += [changed(survey, each, change, count=count) for _, each, change in worst]
    given = databases(model, survey.design, halves)
    base, *others = run_batch(model, given, settings, np.random.default_rng(seed))
    names = [("", UNCHANGED), *((line.record, line.change) for line, _, _ in worst)]
    for (record, change), database, result in zip(names, given[1:], others, strict=True):
        words = {"record": record, "change": change, "random_numbers": "fresh"}
        yield {
            **words, **compared(model, settings, (given[0], base), (database, result), seed)
        }


Fitted = tuple[Database, Result | RefusedError]


def compared(
    model: Model, settings: MechanismSettings, first: Fitted, second: Fitted, seed: int = 0
) -> dict[str, Any]:
    """Return ratios to the stated bound, or which fit was refused: fields of a ``Line``."""
    for (_, result), words in ((first, ""), (second, "with the record replaced: ")):
        if isinstance(result, RefusedError):
            return {"verdict": "refused", "reason": f"{words}{str(result).split(':')[0]}"}
    own, other = side(*first), side(*second)
    ratios = log_ratios(model, own, other)
    over = over_stated(ratios, settings)
    found: dict[str, Any] = {"ratio": over, "verdict": measured(over)}
    rng = np.random.default_rng(seed)
    found["beyond"] = ratios.share_above(settings.epsilon, settings.m, rng)
    if PSU_EFFECT in own.theta:
        found["jointly"] = over_stated(log_ratios(model, own, other, jointly=True), settings)
    return found


def over_stated(ratios: LogRatios, settings: MechanismSettings) -> float:
    """Return the largest log ratio of a draw over the stated 2 Delta* = epsilon / m."""
    return ratios.largest / (2.0 * settings.target_bound)


def side(database: Database, result: Result | RefusedError) -> Side:
    """Return what the log ratio needs of a fit that was not refused."""
    assert not isinstance(result, RefusedError)
    fit = result[1]
    return Side(database.records, fit.risk_weights, fit.theta)
