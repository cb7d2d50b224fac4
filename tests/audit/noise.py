"""The test of noisy statistics: how far records move published numbers, compared with their noise.

The test repeats none of the mechanism's arithmetic. It replaces the noise source by one whose
numbers are known; the published numbers then show the exact sums, the noise of each number, and
which numbers share it:

    no noise                the exact numbers s(D), s(D')
    one SD each             s + sd: the SD of the noise that each published number really has
    t SDs, t random         s + t sd: numbers with the same t are copies, with one noise

With independent discrete Gaussian noise rho(D, D') = sum_j (s_j(D) - s_j(D'))^2 / (2 sd_j^2) over
the distinct noises (Canonne, Kamath & Steinke 2020), so the distance over the stated one is
sqrt(rho(D, D') / rho). A number that moves without noise, or a copy that moves differently, gives
an infinite ratio.

Where transforms are learned, the numbers are those of both stages: noisy histograms, and sums under
the curves of one noisy histogram, which are the same for D and D' (adaptive composition). Likewise
where groups have centres of their own: first sums, and moments about the same centres for D and D'.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.learned.histogram import (
    LEARNED,
    first_stage,
    noisy_histograms,
    what_is_left,
)
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
)
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, NoisySettings
from surveysynth.models.base import Model
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign
from tests.audit.lines import Case, Line, head_of, measured
from tests.audit.neighbours import Centres, Change, apart, changed, places

#: Noise is scaled up by this factor, so that rounding it to whole numbers changes no digit, and
#: noisy counts stay below 2^63.
MAGNIFIED = 2**40
#: Relative precision of sums of many records.
DIGITS = 1e-9
TOTAL = "all records"
#: About the largest value whose square is still finite.
HUGE = 1e150


class KnownNoise:
    """A noise source of ``multiple()`` SDs, magnified."""

    kind = "seeded"

    def __init__(self, multiple: Callable[[], float]) -> None:
        self._multiple = multiple

    def draw(self, variance: int | Fraction, size: int) -> list[int]:
        """Return the known noise; see ``NoiseSource``."""
        sd = math.sqrt(variance)
        return [round(Fraction(sd * self._multiple()) * MAGNIFIED) for _ in range(size)]


@dataclass(frozen=True, repr=False)
class Published:
    """Exact numbers of a release of statistics (J,), with its stated rho and all other content."""

    exact: FloatArray
    rho: float
    words: tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class NoiseOf:
    """SDs (J,) of the noise of each published number, and which numbers share it.

    sd: 0 without noise; copy (J,): one of the numbers with the same noise, for all of them.
    """

    sd: FloatArray
    copy: IntArray

    def distance(self, first: Published, second: Published) -> float:
        """Return sqrt(rho(D, D') / rho) of two releases."""
        if first.words != second.words or first.exact.shape != second.exact.shape:
            return math.inf
        change = first.exact - second.exact
        noisy = self.sd > 0
        moved = change[noisy] / self.sd[noisy]
        same = moved[np.searchsorted(np.flatnonzero(noisy), self.copy[noisy])]
        if change[~noisy].any() or not np.allclose(moved, same, rtol=1e-6, atol=DIGITS):
            return math.inf
        own = self.copy[noisy] == np.flatnonzero(noisy)
        return math.sqrt(float((moved[own] ** 2).sum()) / (2.0 * first.rho))


def published(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    multiple: Callable[[], float] = lambda: 0.0,
) -> Published:
    """Return what would be published with known noise."""
    content, rho = _content(model, design, confidential, settings, KnownNoise(multiple))
    numbers: list[float] = []
    words: list[Any] = []
    flatten(content, numbers, words)
    return Published(np.array(numbers), rho, tuple(words))


def learned_cost(budget: float, outcomes: Sequence[Outcome]) -> float:
    """Return what the histograms spend of a budget; 0 where nothing is learned."""
    return budget - what_is_left(budget, outcomes)


def _content(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    source: NoiseSource,
) -> tuple[dict[str, Any], float]:
    """Return the noisy numbers of all stages, and the rho that is stated for them."""
    rho = settings.budget.rho
    histograms = noisy_histograms(
        design, confidential, rho, source, settings.unit_size(design)
    )
    centres = None if isinstance(source, SystemNoise) else same_centres(model, design, settings)
    made = survey_statistics.release_statistics(
        model, design, confidential, settings, source, centres
    )
    content = {LEARNED: [each.to_dict() for each in histograms], **made.to_dict()}
    of_histograms = rho - what_is_left(rho, design.modelled)
    of_stages = sum(each.rho for each in (made.units, made.levels) if each is not None)
    return content, made.rho + (of_histograms + of_stages)


def same_centres(
    model: Model, design: PublicDesign, settings: NoisySettings
) -> FloatArray | None:
    """Return centres of the groups, whatever the survey; None where none are."""
    general = survey_statistics.require_general(model)
    public = survey_statistics.location_design(general, design, settings)
    if public.centring is None:
        return None
    return np.resize([1.0, -0.5, 0.25, 0.0, -1.0], (public.shape.groups, public.shape.q))


def with_curves(case: Case, settings: NoisySettings, rng: np.random.Generator) -> PublicDesign:
    """Return the design of a case, with the curves of one noisy histogram of its survey."""
    design = case.survey.design
    return first_stage(
        design, case.survey.confidential, budget=settings.budget.rho,
        source=SeededNoise(rng), records=settings.unit_size(design),
    ).design  # fmt: skip


def noise_of(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    rng: np.random.Generator,
) -> NoiseOf:
    """Find the noise of every published number from the effect of known noise."""

    def of(multiple: Callable[[], float]) -> FloatArray:
        return published(model, design, confidential, settings, multiple).exact

    exact, one = of(lambda: 0.0), of(lambda: 1.0)
    tagged = of(lambda: float(rng.uniform(1.0, 2.0)))
    sd = (one - exact) / MAGNIFIED
    tag = np.divide(tagged - exact, one - exact, out=np.zeros(sd.shape), where=sd > 0)
    copy = np.arange(sd.size)
    order = np.argsort(tag, kind="stable")
    for earlier, later in pairwise(order):
        if sd[later] > 0 and tag[later] - tag[earlier] <= DIGITS:
            copy[later] = copy[earlier]
    return NoiseOf(sd, copy)


def flatten(value: Any, numbers: list[float], words: list[Any]) -> None:
    """Collect the numbers of nested dictionaries and lists in order, and all other content."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            words.append(key)
            flatten(each, numbers, words)
    elif isinstance(value, list | tuple):
        words.append(len(value))
        for each in value:
            flatten(each, numbers, words)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        numbers.append(float(value))
    else:
        words.append(value)


def noise_lines(case: Case, changes: Sequence[Change], seed: int) -> Iterator[Line]:
    """Yield a line a place, with the two replacements that are farthest apart.

    The last line says whether the mechanism answers on the most extreme databases.
    """
    settings = case.mechanism.settings
    assert isinstance(settings, NoisySettings)
    rng = np.random.default_rng(seed)
    head = head_of(case)
    try:
        design = with_curves(case, settings, rng)
        model = case.model.of(design)
        clipping = settings.clipping(design)
        survey_statistics.release_statistics(
            model, design, case.survey.confidential, settings, KnownNoise(lambda: 0.0)
        )
    except InputError as error:
        yield replace(head, reason=str(error))
        return
    centres = declared_centres(design, clipping.centre, clipping.spread)
    noise = noise_of(model, design, case.survey.confidential, settings, rng)
    for name, records in _places(case, settings, centres).items():
        halves = {
            each.name: changed(case.survey, records, each, centres=centres) for each in changes
        }
        seen = {
            words: published(model, design, half, settings)
            for words, half in {"as it is": case.survey.confidential, **halves}.items()
        }
        pairs = {
            f"{a} against {b}": noise.distance(seen[a], seen[b])
            for a, b in combinations(seen, 2)
        }
        words = max(pairs, key=pairs.__getitem__)
        yield replace(
            head, record=name, change=words, ratio=pairs[words], verdict=measured(pairs[words])
        )
    yield replace(head, record=TOTAL, **_total(model, case, settings))


def declared_centres(design: PublicDesign, centre: FloatArray, spread: FloatArray) -> Centres:
    """Return declared centres and spreads, which amounts are moved by and clipped at."""
    fit, sd = np.zeros((design.n, len(design.outcomes))), np.ones(len(design.outcomes))
    amounts = [j for j, outcome in enumerate(design.outcomes) if outcome.is_amount]
    for position, j in enumerate(amounts):
        fit[:, j], sd[j] = centre[position], spread[position]
    return Centres(fit, sd)


def _places(case: Case, settings: NoisySettings, centres: Centres) -> dict[str, IntArray]:
    """Return records to replace; if units are protected, all of the largest and of the smallest."""
    if settings.protect == RECORD:
        return apart(places(case.survey, centres))
    codes, _ = case.survey.design.frame[settings.protect].factorize(use_na_sentinel=False)
    sizes = np.bincount(codes)
    return {
        "largest unit": np.flatnonzero(codes == np.argmax(sizes)),
        "smallest unit": np.flatnonzero(codes == np.argmin(sizes)),
    }


def _total(model: Model, case: Case, settings: NoisySettings) -> dict[str, Any]:
    """Check that the mechanism answers, without a warning, on the most extreme valid databases."""
    design, failed = case.survey.design, []
    given = list(extremes(design))
    for name, confidential in given:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                content, _ = _content(model, design, confidential, settings, SystemNoise())
                numbers: list[float] = []
                flatten(content, numbers, [])
                if not np.isfinite(numbers).all():
                    failed.append(f"{name}: a number that is not finite")
            except Exception as error:  # any exception reveals something of the data
                failed.append(f"{name}: {type(error).__name__}")
    if failed:
        return {"verdict": "passed", "reason": f"no answer on {'; '.join(failed)}"}
    return {"verdict": "holds", "reason": f"answers on {len(given)} surveys of extreme values"}


def extremes(design: PublicDesign) -> Iterator[tuple[str, Confidential]]:
    """Yield valid surveys of the design with extreme values.

    Outcomes and weights are as large and small as doubles and declared bounds allow, all equal, and
    alternating.
    """
    for name, sign, weight in (
        ("largest numbers", 1.0, HUGE), ("smallest numbers", -1.0, 1.0 / HUGE),
        ("largest and smallest in turns", 0.0, 1.0), ("all equal", 2.0, 1.0),
    ):  # fmt: skip
        columns = [_extreme(outcome, sign, design.n) for outcome in design.outcomes]
        weights = np.full(design.n, weight)
        if sign == 0.0:
            weights = np.where(np.arange(design.n) % 2, 1.0 / HUGE, HUGE)
        yield name, Confidential(
            np.stack(columns, axis=1), None if design.weight_name is None else weights
        )


def _extreme(outcome: Outcome, sign: float, n: int) -> FloatArray:
    if not outcome.is_amount:
        last = float(outcome.categories - 1)
        ends = (0.0, last)
    else:
        # A log needs values above its shift; the square of a number beyond these overflows.
        low = -HUGE
        if outcome.transform.kind == "log":
            low = float(np.nextafter(-outcome.transform.shift, np.inf))
        ends = (
            low if outcome.lower is None else max(low, outcome.lower),
            HUGE if outcome.upper is None else outcome.upper,
        )
    if sign == 0.0:
        return np.where(np.arange(n) % 2, ends[0], ends[1])
    return np.full(n, ends[0] if sign < 0 else ends[1] if sign < 2 else sum(ends) / 2.0)
