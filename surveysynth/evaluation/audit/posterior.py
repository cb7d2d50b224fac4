"""The one-record test of the pseudo-posterior: how far replacing a record moves it.

The whole search runs on every database, so risk weights, and everything else found from the data,
are each database's own. With common random numbers two fits differ only by their data. A release
draws fresh ones; the Monte Carlo error that they add is measured separately.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from surveysynth._support.types import IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.evaluation.audit.lines import Case, Line, head_of, measured
from surveysynth.evaluation.audit.neighbours import Centres, Change, apart, changed, places
from surveysynth.evaluation.audit.ratio import LogRatios, Side, log_ratios
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings, own_settings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import Result, run_batch
from surveysynth.models.base import Model, require
from surveysynth.models.parts.psu_effects import PSU_EFFECT
from surveysynth.survey.survey import Confidential, PublicDesign

#: Number of worst replacements that are fitted again with fresh random numbers.
FRESH = 3
UNCHANGED = "none, fitted twice"


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
    design = case.mechanism.prepared(case.survey.design)
    return replace(case, survey=replace(case.survey, design=design))


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
