"""The test of calibrated weights: replace an answer of one record, and calibrate again.

Calibration to totals of classes of an outcome gives the records of a class a common factor. If one
answer moves to another class, the weights of all records of both classes change. Two pipelines see
the same pair of surveys, which differ in one answer:

    before the noise    calibrated weights go into the mechanism; a planted violation
    after the noise     base weights go in; calibration sees nothing but noisy numbers

The first must move the statistics by more than is stated, the second must not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import calibrated_weights
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign
from tests.audit.lines import Case, Line, Verdict, head_of, measured
from tests.audit.neighbours import Change, changed, places
from tests.audit.noise import (
    NoiseOf,
    Published,
    declared_centres,
    noise_of,
    published,
)

BEFORE = "calibrated weights go in"
AFTER = "base weights go in, calibration after the noise"


@dataclass(frozen=True, repr=False)
class Calibrator:
    """Control totals (C,) of the classes of one outcome; ``cuts``: of amounts."""

    outcome: Outcome
    column: int
    cuts: FloatArray
    totals: FloatArray

    @classmethod
    def of(
        cls, design: PublicDesign, base: Confidential, centre: FloatArray, spread: FloatArray
    ) -> "Calibrator":
        """Return the calibration whose totals the survey meets as it is.

        Classes are those of the first outcome with a discrete part. Amounts alone have classes up
        to a spread below the declared center, up to the center, up to a spread above it, and above.
        """
        discrete = [j for j, each in enumerate(design.outcomes) if each.is_discrete]
        column = discrete[0] if discrete else 0
        cuts = centre[0] + spread[0] * np.array([-1.0, 0.0, 1.0])
        made = cls(design.outcomes[column], column, cuts, np.zeros(0))
        return replace(made, totals=_weight(base) @ made.classes(base))

    def classes(self, confidential: Confidential) -> FloatArray:
        """Return indicators (n, C) of the classes."""
        values = confidential.outcome[:, self.column]
        if self.outcome.is_discrete:
            return np.eye(self.outcome.categories)[self.outcome.category(values)]
        return np.eye(4)[np.searchsorted(self.cuts, self.outcome.forward(values))]

    def again(self, confidential: Confidential) -> Confidential:
        """Return the survey with calibrated weights; raise ``InputError`` for an empty class."""
        x, base = self.classes(confidential), _weight(confidential)
        there, found = self.totals > 0, x.sum(axis=0) > 0
        if (there != found).any():
            raise InputError("a class without records, or without a total.")
        weight = calibrated_weights(x[:, there], base, self.totals[there])
        return Confidential(confidential.outcome, weight)


def _weight(confidential: Confidential) -> FloatArray:
    assert confidential.sampling_weight is not None  # checked by ``calibration_lines``
    return confidential.sampling_weight


def calibration_lines(case: Case, changes: Sequence[Change], seed: int) -> Iterator[Line]:
    """Yield a line for each pipeline, with the pair of surveys that is farthest apart.

    The pairs differ in one record's answers and base weight. What the first line says of the other
    records is of answers alone.
    """
    settings, design = case.mechanism.settings, case.survey.design
    base = case.survey.confidential
    assert isinstance(settings, NoisySettings)  # the caller's choice
    head = head_of(case)
    if design.weight_name is None:
        yield replace(head, reason="there are no confidential weights")
        return
    model = case.model.of(design)
    clipping = settings.clipping(design)
    centres = declared_centres(design, clipping.centre, clipping.spread)
    calibrator = Calibrator.of(design, base, clipping.centre, clipping.spread)
    noise = noise_of(model, design, base, settings, np.random.default_rng(seed))
    found = dict.fromkeys((BEFORE, AFTER), (0.0, ""))
    others = 0.0
    for records in (*places(case.survey, centres).values(), _heaviest(calibrator, base)):
        pairs = _Pairs(model, design, settings, noise)
        for change in (Change(), *changes):
            half = changed(case.survey, records, change, centres=centres)
            try:
                again = calibrator.again(half)
            except InputError:  # the record was alone in its class
                continue
            pairs.add(change.name or "as it is", half, again)
            if change.factor != 1.0:  # also another base weight
                continue
            others = max(others, pairs.distance(base, _others(base, again, records)))
        for name, largest in pairs.largest().items():
            found[name] = max(found[name], largest)
    rho = f"{(1.0 + others) ** 2:.2g}"
    for name, (ratio, words) in found.items():
        planted: Verdict = "fires" if ratio > 1.0 else "missed"
        yield replace(
            head, record=name, change=words, ratio=ratio,
            verdict=planted if name == BEFORE else measured(ratio),
            reason=f"one answer moves the others by {others:.2f} of the stated bound, so that rho "
            f"is up to {rho} times what is stated" if name == BEFORE else "",
        )  # fmt: skip


class _Pairs:
    """Surveys that differ in one answer, as each pipeline sees them, and their distances."""

    def __init__(
        self, model: Model, design: PublicDesign, settings: NoisySettings, noise: NoiseOf
    ) -> None:
        self._given, self._noise = (model, design), noise
        self._settings = settings
        self._seen: dict[str, dict[str, Published]] = {BEFORE: {}, AFTER: {}}

    def add(self, name: str, base: Confidential, calibrated: Confidential) -> None:
        """Take note of a survey with its base weights and with calibrated ones."""
        self._seen[BEFORE][name] = self._published(calibrated)
        self._seen[AFTER][name] = self._published(base)

    def largest(self) -> dict[str, tuple[float, str]]:
        """Return the largest distance of each pipeline, over the stated one, and its pair."""
        return {
            pipeline: max(
                ((self._noise.distance(seen[a], seen[b]), f"{a} against {b}")
                 for a, b in combinations(seen, 2)), default=(0.0, ""),
            )
            for pipeline, seen in self._seen.items()
        }  # fmt: skip

    def distance(self, one: Confidential, other: Confidential) -> float:
        """Return the distance of two surveys, over the stated one."""
        return self._noise.distance(self._published(one), self._published(other))

    def _published(self, confidential: Confidential) -> Published:
        return published(*self._given, confidential, self._settings)


def _heaviest(calibrator: Calibrator, base: Confidential) -> IntArray:
    """Return the record with the largest share of its class, of classes of three or more."""
    x = calibrator.classes(base)
    share = (x / np.where(x.sum(0) > 2, np.maximum(calibrator.totals, 1e-300), np.inf)).sum(1)
    return np.array([np.argmax(share * _weight(base))])


def _others(base: Confidential, again: Confidential, records: IntArray) -> Confidential:
    """Return the survey as it is, with the calibrated weights of all other records."""
    weight = _weight(again).copy()
    weight[records] = _weight(base)[records]
    return Confidential(base.outcome, weight)
