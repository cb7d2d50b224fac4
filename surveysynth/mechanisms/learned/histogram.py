"""Noisy histograms of outcomes and weights, for learned transforms: the release, and the proof.

Noisy statistics draw them before their sums (``first_stage``); synthesis draws the curves again
(``redrawn_designs``). The pseudo-posterior has no learned transforms.

**What is released.** The public range of an outcome is divided into J bins (``transforms.py``).
All records have one histogram, or each stratum or cell (or each cell that is large: numbers of
records are public) has its own; with a split there is one for
each side. A record is counted in one bin of one histogram: the one that its amount lies in, and the
outermost one for an amount outside the range. A record at a spike is in no bin. Exact noise is
added to every count (``noise.py``), so the counts are whole numbers with noise of their own each.
All else that a curve needs is public.

**One record.** Neighbors differ in the confidential values of one record; who is in the sample, and
in which stratum or cell, is public and the same. Its amount may leave one bin and enter another, of
the same histogram or of that of the other side. So at most two counts change, by one each: the
distance is 1^2 + 1^2 = 2 in squares. To or from a spike only one count changes.

**Units of k records.** Change the records of a unit one after the other. By the triangle inequality
the vector of counts changes by at most k sqrt(2) in Euclidean length. It is attained if all k leave
one bin and enter another. Squares: 2 k^2.

**Noise.** For a budget rho_0 each count has discrete Gaussian noise of variance sigma^2 =
k^2 / rho_0: rho = 2 k^2 / (2 sigma^2) = rho_0. It is computed in fractions of the doubles that are
declared, and rounded up to a multiple of 2^-20.

**Several outcomes, and the weight.** The weight is one more amount of a record, with a range and
without spikes: what holds for an outcome holds for it. Every outcome has a share of the budget, and
a histogram with the noise of its own share. The histograms of all outcomes together cost the sum of
their shares: rho adds up, whatever a record does in each of them.

**What follows.** The curve is a function of noisy and public numbers, so it costs nothing. The rest
of the mechanism takes it as a public constant and spends what is left: rho - sum rho_0. Composition
is adaptive: the bound holds for each curve, so costs add up although the second stage sees the
result of the first. What is left is rounded down.

**Counts.** A count y becomes the amount y + U, with U uniform on [0, 1), independent of all answers
and of all other records, drawn once per release and never published. For fixed numbers U the
mechanism is one for amounts, with its guarantee: neighbors have the same U. A release is a mixture
of these over U, whose law is the same for both neighbors, and no mixture of pairs is farther apart
than the farthest of them: Renyi divergence is jointly quasi-convex (strict 8).

**The error of a curve** is drawn again from public numbers, at no cost (strict 10): a parametric
bootstrap, one curve C for each draw of the model. A release of one draw has no variance between
draws, and keeps T.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.numeric import rounded_down
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.base import NoiseKeeper
from surveysynth.mechanisms.learned.smoothing import expected_counts
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource
from surveysynth.sampling.primitives import NORMAL_NODES
from surveysynth.sampling.randomness import secret_generator
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign
from surveysynth.survey.transforms import LearnedTransform, bin_of, normal_scores

#: Variances of noise are whole multiples of 2^-20.
NOISE_BITS = 20
#: Squared change of counts where one record is replaced.
DISTANCE = 2
#: Records of a cell that has a curve of its own, where only large ones have: about five in a bin.
#: For a count in SDs of the noise of a bin: where means of cells differ a lot, such curves are
#: better from 10 to 15 SDs on; where cells are alike, one curve is better until far more.
LARGE_CELL, LARGE_CELL_OF_COUNTS = 300.0, 25.0
#: |z| of the outermost one in a hundred of a curve's records.
OUTER = 2.5
#: Fewest records of a histogram, in SDs of the noise of a bin: from fewer, curves are arbitrary.
LEAST_SIGNAL = 4.0


@dataclass(frozen=True)
class NoisyHistogram:
    """The noisy histograms of an outcome: nothing confidential.

    counts (sides, H, J): whole numbers; variance: of the noise of each, 0 for none; kind: of
    the source, "system" for a private one.
    """

    outcome: str
    counts: IntArray
    variance: Fraction
    kind: str

    def learned(self, outcome: Outcome) -> LearnedTransform:
        """Return the transform of the outcome with the curves of all sides and strata."""
        assert outcome.learned is not None  # the caller takes learned outcomes
        curves, expected, variance = [], [], float(self.variance)
        for side, counts in enumerate(self.counts.astype(np.float64)):
            given = side_of(outcome, side)
            smooth = expected_counts(given, counts, variance)
            curves.append(tuple(map(tuple, normal_scores(smooth, whole=given.whole).tolist())))
            expected.append(tuple(map(tuple, np.round(smooth, 6).tolist())))
        return replace(
            outcome.learned, curves=tuple(curves), expected=tuple(expected), noise_variance=variance
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the histograms for files."""
        return {
            "outcome": self.outcome,
            "noise": "discrete Gaussian",
            "sigma^2": str(self.variance),
            "kind": self.kind,
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "NoisyHistogram":
        """Read ``to_dict``; raises ``InputError`` where its entries do not fit together."""
        try:
            counts, variance = np.array(given["counts"], dtype=np.int64), Fraction(given["sigma^2"])
            made = cls(str(given["outcome"]), counts, variance, str(given["kind"]))
        except (KeyError, TypeError, ValueError):
            made = None
        if made is None or counts.ndim != 3 or variance < 0:
            raise InputError(
                "a learned transform: expected an outcome, the variance of its noise, and counts "
                "of sides, strata and bins. Take the file from the release again."
            )
        return made


def learned_outcomes(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes whose transforms are learned."""
    return tuple(each for each in outcomes if each.learned is not None)


def learned_shares(outcomes: Sequence[Outcome]) -> tuple[Fraction, ...]:
    """Return the share of the budget of each learned outcome; raise ``InputError`` for too much."""
    given = (each.learned for each in outcomes)
    shares = tuple(Fraction(each.share) for each in given if each is not None)
    if sum(shares) >= 1:
        raise InputError(
            f"transform.share: the shares of all outcomes add up to {float(sum(shares)):.3g}; they "
            "must leave some of the budget. Lower them."
        )
    return shares


def what_is_left(budget: float, outcomes: Sequence[Outcome]) -> float:
    """Return what the histograms leave of a budget, rounded down."""
    shares = learned_shares(outcomes)
    if not shares:
        return budget
    return rounded_down(Fraction(budget) * (1 - sum(shares)))


def gaussian_variance(rho: Fraction, records: int = 1) -> Fraction:
    """Return sigma^2 of counts whose release costs rho for units of up to ``records`` records."""
    exact = DISTANCE * records**2 / (2 * rho)
    return Fraction(math.ceil(exact * 2**NOISE_BITS), 2**NOISE_BITS)


def require_signal(design: PublicDesign, budget: float, records: int = 1) -> None:
    """Raise ``RefusedError`` if noise would hide all records of a histogram, by public numbers.

    budget: rho of the whole release; records: of a protected unit.
    """
    learned = learned_outcomes(design.modelled)
    for outcome, share in zip(learned, learned_shares(design.modelled), strict=True):
        sd = math.sqrt(gaussian_variance(share * Fraction(budget), records))
        if design.n < LEAST_SIGNAL * sd:
            raise RefusedError(
                f"outcomes.{outcome.name}.range: no transform can be learned from {design.n:,} "
                f"records, since each bin of their histogram would have noise of SD {sd:,.0f} "
                "records. Declare a transform with center and spread from a public source, or "
                f"choose a larger epsilon{' or protect smaller units' if records > 1 else ''}."
            )


def noisy_histograms(
    design: PublicDesign,
    confidential: Confidential,
    budget: float,
    source: NoiseSource | None,
    records: int = 1,
) -> tuple[NoisyHistogram, ...]:
    """Return the noisy histograms of all outcomes that are learned.

    budget: rho of the whole release; source: None for no noise, which protects nothing.
    """
    made, shares = [], learned_shares(design.modelled)
    for (outcome, values), share in zip(_learned_values(design, confidential), shares, strict=True):
        variance, kind = Fraction(0), "none"
        if source is not None:
            variance, kind = gaussian_variance(share * Fraction(budget), records), source.kind
        counts = true_counts(outcome, values, curve_rows(outcome, design, variance))
        drawn = [0] * counts.size if source is None else source.draw(variance, counts.size)
        noisy = counts + np.array(drawn, dtype=np.int64).reshape(counts.shape)
        made.append(NoisyHistogram(outcome.name, noisy, variance, kind))
    return tuple(made)


def _learned_values(
    design: PublicDesign, confidential: Confidential
) -> list[tuple[Outcome, FloatArray]]:
    """Return each column whose transform is learned with its values (n,). Confidential."""
    columns = [*confidential.outcome.T]
    if confidential.sampling_weight is not None:
        columns.append(confidential.sampling_weight)
    pairs = zip(design.modelled, columns, strict=True)
    return [(outcome, values) for outcome, values in pairs if outcome.learned is not None]


def true_counts(outcome: Outcome, values: FloatArray, rows: IntArray) -> IntArray:
    """Return the counts (sides, H, J) of values (n,) in strata ``rows`` (n,). Confidential."""
    category = outcome.category(values)
    assert outcome.learned is not None  # the caller takes learned outcomes
    shape = len(outcome.sides), int(rows.max()) + 1, outcome.learned.bins
    result = np.zeros(shape, dtype=np.int64)
    for side in outcome.sides:
        there = category == side
        found = bin_of(side_of(outcome, side), outcome.distance(values[there], side))
        np.add.at(result[side], (rows[there], found), 1)
    return result


def side_of(outcome: Outcome, side: int) -> LearnedTransform:
    """Return the transform of a side of a learned outcome."""
    given = outcome.learned
    assert given is not None  # the caller takes learned outcomes
    return given.of_side(outcome.split, side)


def learned_design(
    design: PublicDesign, histograms: Sequence[NoisyHistogram]
) -> PublicDesign:
    """Return the design whose learned transforms have the curves of these histograms.

    Raises ``InputError`` where they are not of these outcomes and strata.
    """
    found = {each.outcome: each for each in histograms}
    columns = []
    for outcome in design.modelled:
        if outcome.learned is None:
            columns.append(outcome)
            continue
        own = found.get(outcome.name)
        rows = curve_rows(outcome, design, own.variance if own else Fraction(0))
        shape = (len(outcome.sides), int(rows.max()) + 1, outcome.learned.bins)
        if own is None or own.counts.shape != shape:
            raise InputError(
                f"the learned transform of {outcome.name!r}: expected histograms of "
                f"{' x '.join(map(str, shape))} bins. Take the files from the same release."
            )
        codes = rows if shape[1] > 1 else None
        transform = replace(own.learned(outcome), codes=codes)
        columns.append(replace(outcome, transform=transform))
    return with_columns(design, columns)


def with_columns(design: PublicDesign, columns: Sequence[Outcome]) -> PublicDesign:
    """Return the design with other transforms of its modeled columns, outcomes and weight."""
    p = len(design.outcomes)
    weight = [each.transform for each in columns[p:]] or [design.weight_transform]
    return replace(design, outcomes=tuple(columns[:p]), weight_transform=weight[0])


def range_facts(design: PublicDesign, confidential: Confidential) -> dict[str, dict[str, Any]]:
    """Count the amounts outside the range of each learned outcome, and those at round numbers.

    Round numbers are multiples of a thousandth of the range's farther end, rounded down to a power
    of ten: curves of amounts are smooth and do not show such heaps. Confidential.
    """
    outside: dict[str, int] = {}
    round_numbers: dict[str, dict[str, float]] = {}
    for outcome, values in _learned_values(design, confidential):
        assert outcome.learned is not None  # these are learned
        amounts = values[outcome.regular(values)]
        outside[outcome.name] = outcome.learned.outside(amounts)
        if outcome.learned.whole:
            continue
        step = 10.0 ** math.floor(math.log10(outcome.learned.divisor))
        heaped = np.mod(amounts, step) == 0.0
        round_numbers[outcome.name] = {
            "multiples_of": step, "share": float(heaped.mean()) if heaped.size else 0.0
        }  # fmt: skip
    if not outside:
        return {}
    return {"amounts_outside_range": outside, "amounts_at_round_numbers": round_numbers}


def curve_rows(outcome: Outcome, design: PublicDesign, variance: Fraction) -> IntArray:
    """Return the curve of each record (n,): of its stratum, its cell, or the only one.

    variance: of the noise of a bin, which is public.
    """
    given = outcome.learned
    if given is not None and given.curve_by in ("cells", "large_cells"):
        columns = [design.frame[name].astype(str) for name in design.by]
        codes = [pd.factorize(column, sort=True)[0] for column in columns]
        # Strata that the model does not know would have few records in each of their cells.
        if design.strata is not None and design.strata_name in design.predictors:
            codes.append(design.strata)
        rows = np.zeros(design.n, dtype=np.int64)
        for each in codes:
            rows = np.unique(rows * (each.max() + 1) + each, return_inverse=True)[1]
        if given.curve_by == "large_cells":
            sizes = np.bincount(rows)
            least = LARGE_CELL_OF_COUNTS * math.sqrt(variance) if given.whole else LARGE_CELL
            rows = np.where(sizes[rows] < least, sizes.size, rows)
            rows = np.unique(rows, return_inverse=True)[1]
        return np.asarray(rows, dtype=np.int64)
    if design.strata is None or given is None or given.curve_by == "all":
        return np.zeros(design.n, dtype=np.int64)
    return design.strata


#: The key of the histograms in files.
LEARNED = "learned"


@dataclass(frozen=True)
class FirstStage:
    """The design with its learned transforms, and what is known about the noise of the run.

    histograms: of the outcomes that are learned; earlier: what an unreleased run kept, if any.
    """

    design: PublicDesign
    histograms: tuple[NoisyHistogram, ...]
    earlier: Mapping[str, Any] | None

    def kept(self) -> dict[str, Any]:
        """Return the histograms for files; nothing if there are none."""
        return {LEARNED: [each.to_dict() for each in self.histograms]} if self.histograms else {}


def first_stage(
    design: PublicDesign,
    confidential: Confidential,
    *,
    budget: float,
    source: NoiseSource | None,
    records: int = 1,
    keeper: NoiseKeeper | None = None,
) -> FirstStage:
    """Draw the histograms, or take those that an unreleased run kept, and learn the transforms.

    New histograms are kept before anything follows from them.
    """
    earlier = None if keeper is None else keeper.earlier()
    if not learned_outcomes(design.modelled):
        return FirstStage(design, (), earlier)
    if earlier is not None:
        histograms = histograms_in(earlier)
        return FirstStage(learned_design(design, histograms), histograms, earlier)
    histograms = noisy_histograms(design, confidential, budget, source, records)
    if keeper is not None:
        keeper.keep(FirstStage(design, histograms, None).kept())
    return FirstStage(learned_design(design, histograms), histograms, None)


def histograms_in(content: Mapping[str, Any]) -> tuple[NoisyHistogram, ...]:
    """Return the histograms of a file; none if nothing was learned."""
    return tuple(NoisyHistogram.from_dict(each) for each in content.get(LEARNED, ()))


def learned_facts(
    outcomes: Sequence[Outcome], rho: float
) -> dict[str, dict[str, Any]]:
    """Return the declarations of learned transforms and their cost, for privacy.json."""
    facts = {}
    for each in learned_outcomes(outcomes):
        given = each.learned
        assert given is not None  # the outcome is a learned one
        facts[each.name] = {
            "range": [given.low, given.high],
            "learned_share": given.share,
            "learned_by": given.curve_by,
            "rho": given.share * rho,
        }
    return {LEARNED: facts} if facts else {}


def learned_words(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes that are learned, in words, with the share of each."""
    chosen = [(each.name, each.learned) for each in outcomes]
    return "; ".join(
        f"{name} ({given.share:.3g} of the budget)" for name, given in chosen if given is not None
    )


def spread_counts(
    design: PublicDesign, confidential: Confidential, rng: np.random.Generator | None
) -> Confidential:
    """Return the values with y + U instead of each count y. Confidential.

    Counts outside the range count as its nearer end, and missing answers stay missing. rng: of a
    test or a simulation; None for the randomness of the operating system.
    """
    counts = [j for j, each in enumerate(design.outcomes) if each.kind == "count"]
    if not counts:
        return confidential
    generator = secret_generator() if rng is None else rng.spawn(1)[0]
    outcome = confidential.outcome.copy()
    for j in counts:
        low, high = design.outcomes[j].limits
        outcome[:, j] = np.clip(outcome[:, j], low, high) + generator.random(design.n)
    return replace(confidential, outcome=outcome)


def redrawn_designs(
    design: PublicDesign, m: int, rng: np.random.Generator
) -> list[PublicDesign]:
    """Return m designs with redrawn curves; the same design if no transform is learned."""
    if not any(each.learned and each.learned.expected for each in design.modelled):
        return [design] * m
    columns = [_redrawn(each, m, rng) for each in design.modelled]
    return [with_columns(design, of_draw) for of_draw in zip(*columns, strict=True)]


def _redrawn(outcome: Outcome, m: int, rng: np.random.Generator) -> list[Outcome]:
    given = outcome.learned
    if given is None or not given.expected:
        return [outcome] * m
    sides = [
        redrawn_knots(side_of(outcome, side), np.array(expected), given.noise_variance, m, rng)
        for side, expected in enumerate(given.expected)
    ]
    return [
        replace(
            outcome,
            transform=replace(given, curves=tuple(tuple(map(tuple, c.tolist())) for c in curves)),
        )
        for curves in zip(*sides, strict=True)
    ]


def redrawn_knots(
    transform: LearnedTransform,
    expected: FloatArray,
    variance: float,
    m: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the knots of m curves C (m, H, parts + 1), for expected counts (H, J) and noise."""
    shape = (m, *expected.shape)
    noise = rng.poisson(expected, shape) + np.round(rng.normal(0.0, np.sqrt(variance), shape))
    smooth = (expected_counts(transform, counts, variance) for counts in noise)
    slopes = np.stack([
        np.log(np.diff(normal_scores(each, whole=transform.whole))) for each in smooth
    ])
    slopes += np.log(np.diff(transform.knots)) - slopes.mean(axis=0)
    drawn = np.zeros((m, *transform.knots.shape))
    np.cumsum(np.exp(slopes), axis=-1, out=drawn[..., 1:])
    places = np.arange(drawn.shape[-1])
    for row, own in enumerate(transform.knots):
        at = np.interp(NORMAL_NODES, own, places)
        # Among the outermost one in a hundred, a curve without a tail would send z to the ends of
        # the range: it keeps half of the published steps.
        least = np.where(np.abs(own[1:] + own[:-1]) > 2.0 * OUTER, 0.5 * np.diff(own), 0.0)
        for curve in drawn[:, row]:
            scale = NORMAL_NODES.std() / np.interp(at, places, curve).std()
            np.cumsum(np.maximum(scale * np.diff(curve), least), out=curve[1:])
            curve[:] = curve - np.interp(at, places, curve).mean()
    return drawn
