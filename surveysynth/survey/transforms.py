"""Transforms of an outcome: with public constants, or learned from a noisy histogram.

The bound of the mechanism depends on units, so models use outcomes after their transform
(methods 2). The caller declares scale and shift; they are never estimated from the data.

A learned transform is normal scores of a curve over a public range (strict 8). The curve gives z at
the ends of parts of bins, equal steps of x = asinh(y / s), and is linear in x between them. A count
enters as y + U, U uniform on [0, 1), bins of counts end at whole numbers, and the inverse rounds
down. Until a curve is learned, z is linear in x from -3 to 3: a guess from the public range alone.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri

from surveysynth._support.numeric import Places, blocks
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError

TransformKind = Literal["log", "identity", "asinh", "yeo_johnson", "learned"]
#: Kinds whose constants are declared.
DECLARED_KINDS = ("log", "identity", "asinh", "yeo_johnson")

#: Nodes of the quadrature over a normal law.
NODES, CHANCES = np.polynomial.hermite_e.hermegauss(32)

#: Range of powers for which a Yeo-Johnson transform maps the real line onto itself.
POWERS = (0.0, 2.0)

LearnedBy = Literal["strata", "all", "cells", "large_cells"]

#: Bins of a histogram, and equal parts of a bin at whose ends a curve has a value.
BINS, PARTS = 64, 4
#: Parts of a bin of a count. Scores are linear in each, and many of them make the scores normal.
COUNT_PARTS = 32
#: The ends of the range of a count, in absolute values.
LARGEST_COUNT = 2.0**40
#: The divisor of the grid as a share of the range's end that is farther from zero.
SCALE_SHARE = 1e-3
#: Share of the budget for the histograms of all outcomes of a survey, unless one is declared.
LEARNED_SHARE = 0.1
#: The end of the guess that stands for a curve before one is learned.
GUESSED_END = 3.0
#: Means at which integrals are tabulated, where there are so many times as many records.
MEANS, PER_MEAN = 2048, 1.5
#: The default range of a weight, in mean weights N/n: public, and far wider than designs are.
OF_MEAN_WEIGHT = (0.01, 100.0)
#: Probability spread evenly over the range, so that no place in it is out of reach.
EVERYWHERE = 1e-6
#: Curves are whole multiples of this step, and increase by at least one a part.
STEP = 1e-6
#: The share of the outermost part of a bin that a normal variable has beyond the end of a curve.
BEYOND = 0.05


@dataclass(frozen=True)
class Transform:
    """``log(y + shift)``, ``asinh(y / scale)``, ``y / scale``, or a power of that (methods 2).

    The power is that of Yeo and Johnson (2000): 0 is like the log, 1 is the identity.

    Parameters
    ----------
    kind
        "log", "identity", "asinh" or "yeo_johnson".
    scale, shift
        Numbers in the units of the outcome.
    power
        Power of "yeo_johnson", from 0 to 2; 0.5 by default.

    Raises
    ------
    InputError
        For an unknown kind, a scale that is not positive, or a constant that the kind does not use.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.Transform("asinh", scale=4.0).forward(np.array([0.0, 3.0])).round(3)
    array([0.   , 0.693])
    >>> ss.Transform("yeo_johnson", scale=10_000.0).forward(np.array([0.0, 30_000.0]))
    array([0., 2.])
    """

    kind: TransformKind = "log"
    scale: float = 1.0
    shift: float = 0.0
    power: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in DECLARED_KINDS:
            raise InputError(
                "transform: expected 'log', 'identity', 'asinh' or 'yeo_johnson', got "
                f"{self.kind!r}."
            )
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale: expected a positive number, got {self.scale!r}.")
        if not np.isfinite(self.shift):
            raise InputError(f"shift: expected a finite number, got {self.shift!r}.")
        if self.kind == "log" and self.scale != 1.0:
            raise InputError("scale: 'log' has no scale; set a shift, or use 'asinh'.")
        if not POWERS[0] <= self.power <= POWERS[1]:
            raise InputError(
                f"power: expected a number between 0 and 2, got {self.power!r}."
            )
        if self.kind != "yeo_johnson" and self.power != 0.5:
            raise InputError(f"power: only 'yeo_johnson' has a power, not {self.kind!r}.")
        if self.kind != "log" and self.shift != 0.0:
            raise InputError(f"shift: only 'log' has a shift, not {self.kind!r}.")

    def of_side(self, split: float | None, side: int) -> "Transform":
        """Return the transform of one side of a split: it is the same for both."""
        return self

    def at(self, rows: IntArray | BoolArray) -> "Transform":
        """Return the transform for some records: it is the same for all."""
        return self

    @property
    def axis(self) -> "Transform":
        """The scale of an axis that shows transformed values: the transform itself."""
        return self

    def violations(self, outcome: FloatArray) -> int:
        """Return the number of values outside the transform's domain (log: ``y + shift <= 0``)."""
        if self.kind != "log":
            return 0
        return int(np.count_nonzero(~(outcome + self.shift > 0)))

    def forward(self, outcome: FloatArray) -> FloatArray:
        """Transform original units to model scale; the caller has checked ``violations``."""
        if self.kind == "log":
            return np.log(outcome + self.shift)
        scaled = outcome / self.scale
        if self.kind == "yeo_johnson":  # maps the real line onto itself, and zero to zero
            below, above = -_box_cox(-scaled, 2.0 - self.power), _box_cox(scaled, self.power)
            return np.asarray(np.where(scaled < 0, below, above), dtype=np.float64)
        return np.arcsinh(scaled) if self.kind == "asinh" else scaled

    def inverse(self, transformed: FloatArray) -> FloatArray:
        """Transform model scale to original units."""
        if self.kind == "log":
            return np.exp(transformed) - self.shift
        if self.kind == "yeo_johnson":
            below = -_inverse_box_cox(-transformed, 2.0 - self.power)
            above = _inverse_box_cox(transformed, self.power)
            return np.asarray(np.where(transformed < 0, below, above) * self.scale)
        unscaled = np.sinh(transformed) if self.kind == "asinh" else transformed
        return unscaled * self.scale

    def mean_of_inverse(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return E(inverse(z)) (n,) for normal z with these means and variances (n,)."""
        if self.kind == "log":
            return np.asarray(np.exp(mean + 0.5 * variance) - self.shift, dtype=np.float64)
        sd = np.sqrt(variance)
        total = np.zeros(np.shape(mean))
        for node, chance in zip(NODES, CHANCES / CHANCES.sum(), strict=True):
            total += chance * self.inverse(mean + node * sd)
        return total

    def describe(self, name: str) -> str:
        """Return the transform as a formula, for statements and codebooks."""
        if self.kind == "log":
            return f"log({name} + {self.shift:g})" if self.shift else f"log({name})"
        inner = name if self.scale == 1.0 else f"{name}/{self.scale:g}"
        if self.kind == "yeo_johnson":
            return f"yeo_johnson({inner}, power {self.power:g})"
        return f"asinh({inner})" if self.kind == "asinh" else inner


def _box_cox(values: FloatArray, power: float) -> FloatArray:
    """Return ((1 + y)^p - 1)/p for y >= 0, or log(1 + y) if p = 0; other values are arbitrary."""
    log = np.log1p(np.maximum(values, 0.0))
    return np.asarray(log if power == 0.0 else np.expm1(power * log) / power, dtype=np.float64)


def _inverse_box_cox(values: FloatArray, power: float) -> FloatArray:
    positive = np.maximum(values, 0.0)
    log = positive if power == 0.0 else np.log1p(power * positive) / power
    return np.asarray(np.expm1(log), dtype=np.float64)


@dataclass(frozen=True)
class LearnedTransform(Transform):
    """Normal scores by a curve that the mechanism learns within the budget (strict 8).

    Parameters
    ----------
    low, high
        The public range of the outcome, in its units.
    share
        The share of the whole budget for the histogram of this outcome.
    by
        "strata" for a curve of each stratum, "cells" for one of each cell of the by columns and of
        strata that are predictors, "large_cells" for one of each such cell with many records and
        one of all the others, "all" for one of all records. None: "large_cells".
    whole
        True for a count: whole numbers from ``low`` to ``high``.
    relative
        True if the range of a weight is in mean weights N/n, which are not known yet.
    curves
        z at the ends of the parts of bins, (sides, strata, parts + 1); empty before it is learned.
    expected, noise_variance
        Counts of bins by the curves, (sides, strata, bins), and the variance of their noise.
    kind
        "learned".
    scale, shift, power
        Not used.
    codes
        Row of ``curves`` of each record (n,), if there are several.

    Raises
    ------
    InputError
        For a range or a share that is not possible, and ends of a count that are not whole.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> guess = ss.LearnedTransform(low=0.0, high=500_000.0)
    >>> guess.forward(np.array([0.0, 20_000.0, 900_000.0])).round(2)
    array([-3.  ,  0.46,  3.  ])
    """

    kind: TransformKind = "learned"
    low: float = 0.0
    high: float = 1.0
    share: float = LEARNED_SHARE
    by: LearnedBy | None = None
    whole: bool = False
    relative: bool = False
    curves: tuple[tuple[tuple[float, ...], ...], ...] = field(default=(), repr=False)
    expected: tuple[tuple[tuple[float, ...], ...], ...] = field(default=(), repr=False)
    noise_variance: float = field(default=0.0, repr=False)
    codes: IntArray | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise InputError(
                "range: expected two finite numbers, the first below the second, got "
                f"{self.low!r} and {self.high!r}."
            )
        ends = np.array([self.low, self.high])
        if self.whole and not (np.abs(ends) <= LARGEST_COUNT).all() * (ends % 1.0 == 0.0).all():
            raise InputError(
                "range: expected two whole numbers, the least and the largest count, got "
                f"{self.low!r} and {self.high!r}."
            )
        if not 0.0 < self.share < 1.0:
            raise InputError(
                f"share: expected a number between 0 and 1, got {self.share!r}."
            )

    def of_weights(self, mean: float) -> "LearnedTransform":
        """Return the transform of weights with this public mean N/n."""
        if not self.relative:
            return self
        return replace(self, low=self.low * mean, high=self.high * mean, relative=False)

    @property
    def curve_by(self) -> LearnedBy:
        """The records that share a curve, as declared or by default.

        One curve of cells that differ in shape biases their counts, means and medians; but the
        noise of a small cell's counts leaves its tail open, which biases means. So large cells have
        curves of their own; a count has fewer shapes, so fewer records and less noise suffice.
        """
        return self.by or "large_cells"

    def of_side(self, split: float | None, side: int) -> "LearnedTransform":
        """Return the transform of one side of a split, which takes distances from it."""
        if split is None:
            return self
        low, high = 0.0, self.high - split if side == 0 else split - self.low
        return replace(self, low=low, high=high, curves=self.curves[side : side + 1])

    def at(self, rows: IntArray | BoolArray) -> "LearnedTransform":
        """Return the transform for some records."""
        return self if self.codes is None else replace(self, codes=self.codes[rows])

    @property
    def axis(self) -> Transform:
        """The scale of the grid, the same for all records: for axes."""
        return Transform("asinh", scale=self.divisor)

    @property
    def divisor(self) -> float:
        """The s of asinh(y / s), in the outcome's units; 1 for a count."""
        return 1.0 if self.whole else SCALE_SHARE * max(abs(self.low), abs(self.high))

    @property
    def grid(self) -> tuple[float, float]:
        """The ends of the range as x."""
        ends = np.array([self.low, self.high + self.whole])
        low, high = np.arcsinh(ends / self.divisor).tolist()
        return low, high

    @cached_property
    def edges(self) -> FloatArray:
        """The whole numbers (J + 1,) at which the bins of a count end."""
        if self.high - self.low < BINS:
            return np.arange(self.low, self.high + 2.0)
        x = np.linspace(*self.grid, BINS + 1)[1:-1]
        inner = np.round(self.divisor * np.sinh(x))
        return np.unique(np.concatenate([[self.low], inner, [self.high + 1.0]]))

    @property
    def ends(self) -> FloatArray:
        """The ends of bins (J + 1,) as x."""
        if self.whole:
            return np.asarray(np.arcsinh(self.edges / self.divisor), dtype=np.float64)
        return np.linspace(*self.grid, BINS + 1)

    @property
    def bins(self) -> int:
        """The number of bins J of a histogram."""
        return len(self.edges) - 1 if self.whole else BINS

    @property
    def parts(self) -> int:
        """The number of parts of a bin, at whose ends a curve has a value."""
        return COUNT_PARTS if self.whole else PARTS

    @cached_property
    def knots(self) -> FloatArray:
        """Z at the ends of parts of bins, (strata, parts + 1), if there is one side."""
        if self.curves:
            return np.array(self.curves[0])
        return np.linspace(-GUESSED_END, GUESSED_END, self.bins * self.parts + 1)[None]

    def place(self, outcome: FloatArray) -> FloatArray:
        """Return positions of values on the grid, in bins from 0 (low end) to J (high end)."""
        if self.whole:
            inside = np.clip(outcome, self.low, self.high + 1.0)
            places = np.interp(inside, self.edges, np.arange(self.bins + 1.0))
            return np.asarray(places, dtype=np.float64)
        low, high = self.grid
        x = np.arcsinh(np.clip(outcome, self.low, self.high) / self.divisor)
        return np.asarray(BINS * np.clip((x - low) / (high - low), 0.0, 1.0), dtype=np.float64)

    def violations(self, outcome: FloatArray) -> int:
        """Count the values of a count that are not whole; other transforms accept every number."""
        return int(np.count_nonzero(outcome % 1.0)) if self.whole else 0

    def outside(self, outcome: FloatArray) -> int:
        """Count the values outside the range."""
        return int(np.count_nonzero((outcome < self.low) | (outcome > self.high)))

    def forward(self, outcome: FloatArray) -> FloatArray:
        """Return z of values."""
        parts, row = self.knots.shape[1] - 1, self._rows(outcome)
        place = self.place(outcome) * self.parts
        part = np.minimum(place.astype(np.int64), parts - 1)
        share = place - part
        lower, upper = self.knots[row, part], self.knots[row, part + 1]
        return np.asarray(lower + share * (upper - lower), dtype=np.float64)

    def inverse(self, transformed: FloatArray) -> FloatArray:
        """Return values of z, never outside the range."""
        rows, last = self._rows(transformed), self.knots.shape[1] - 1
        offsets, sequence, rate, start = self._sequence
        result = np.empty(transformed.shape)
        for block in blocks(len(transformed)):
            row, z = rows[block], transformed[block]
            first = row * (last + 1)
            part = np.clip(sequence.of(z + offsets[row]) - 1, first, first + (last - 1))
            result[block] = self._at_part(np.clip(start[part] + rate[part] * z, 0.0, last))
        return result

    @cached_property
    def _sequence(self) -> tuple[FloatArray, Places, FloatArray, FloatArray]:
        """All curves in one increasing sequence, each with an offset (strata,) of its own.

        Then parts per unit of z, and the place where each part's line has z = 0.
        """
        apart = 1.0 + 2.0 * float(np.abs(self.knots).max())
        offsets: FloatArray = apart * np.arange(len(self.knots), dtype=np.float64)
        rate = 1.0 / np.diff(self.knots, append=np.inf)
        start = np.arange(self.knots.shape[1]) - rate * self.knots
        sequence = Places((self.knots + offsets[:, None]).ravel())
        return offsets, sequence, rate.ravel(), start.ravel()

    def _at_part(self, place: FloatArray) -> FloatArray:
        """Return values at places on the grid, in parts of bins from its low end."""
        if self.whole:
            y = np.floor(np.interp(place / self.parts, np.arange(self.bins + 1.0), self.edges))
        else:
            low, high = self.grid
            y = self.divisor * np.sinh(low + place / (BINS * PARTS) * (high - low))
        return np.asarray(np.clip(y, self.low, self.high), dtype=np.float64)

    def mean_of_inverse(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return E(inverse(z)) (n,) for normal z with these means and variances (n,).

        Where many records share few variances and curves, cubics join the integrals at ``MEANS``
        means of each: they differ by a millionth, in the tails by up to a thousandth.
        """
        place, variances = pd.factorize(np.broadcast_to(variance, mean.shape))
        place, pairs = pd.factorize(place * len(self.knots) + self._rows(mean))
        if not mean.size or mean.size < PER_MEAN * MEANS * pairs.size:
            return super().mean_of_inverse(mean, variance)
        of_variance, row = np.divmod(pairs, len(self.knots))
        # One mean beyond either end, for the cubic through the two to either side.
        low, step = mean.min(), max((mean.max() - mean.min()) / (MEANS - 3), 1e-12)
        means = low + step * np.arange(-1, MEANS - 1)
        each = replace(self, codes=np.repeat(row, MEANS))
        table = Transform.mean_of_inverse(
            each, np.tile(means, row.size), np.repeat(variances[of_variance], MEANS)
        )
        between = np.empty(mean.shape)
        for block in blocks(mean.size):
            share = (mean[block] - low) / step
            left = np.minimum(share.astype(np.int64), MEANS - 4)
            share -= left
            before, after, far = share + 1.0, share - 1.0, share - 2.0
            start = place[block] * MEANS + left
            between[block] = (
                0.5 * before * far * (table[start + 1] * after - table[start + 2] * share)
                + share * after / 6.0 * (table[start + 3] * before - table[start] * far)
            )
        return between

    def describe(self, name: str) -> str:
        """Return the transform as a formula."""
        return f"learned({name}, {self.low:,.10g} to {self.high:,.10g})"

    def _rows(self, values: FloatArray) -> IntArray:
        """Return the row of ``knots`` of each value."""
        if len(self.knots) == 1 or self.codes is None:
            return np.zeros(values.shape, dtype=np.int64)
        return self.codes


def bin_of(transform: LearnedTransform, outcome: FloatArray) -> IntArray:
    """Return the bin (n,) of each value (n,), from 0 to J - 1."""
    return np.minimum(transform.place(outcome).astype(np.int64), transform.bins - 1)


def normal_scores(counts: FloatArray, *, whole: bool = False) -> FloatArray:
    """Return the knots (H, J * parts + 1) of expected counts (H, J): z = Phi^-1(F).

    Inside a bin the log density is linear between the middles of neighboring bins; that of counts,
    ``whole``, is even. Rounded to ``STEP``, so that the last digits of other machines' linear
    algebra do not matter, and with a ramp of that step, so that every curve increases.
    """
    bins, parts = counts.shape[1], COUNT_PARTS if whole else PARTS
    if whole:
        within = np.full((len(counts), bins, parts), 1.0 / parts)
    else:
        middle = (np.arange(bins * parts) + 0.5) / parts
        theta = np.log(np.maximum(counts, np.finfo(np.float64).tiny))
        fine = np.stack([np.interp(middle, np.arange(bins) + 0.5, row) for row in theta])
        fine = fine.reshape(len(counts), bins, parts)
        within = np.exp(fine - fine.max(axis=-1, keepdims=True))
        within /= within.sum(axis=-1, keepdims=True)
    mass = (counts[..., None] * within).reshape(len(counts), -1)
    total = np.maximum(mass.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    mass = (1.0 - EVERYWHERE) * mass / total + EVERYWHERE / mass.shape[1]
    below = np.cumsum(mass, axis=1)[:, :-1]
    above = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1][:, 1:]
    inner = np.where(below < 0.5, ndtri(below), -ndtri(above))
    first, last = ndtri(BEYOND * mass[:, :1]), -ndtri(BEYOND * mass[:, -1:])
    knots = np.concatenate([first, inner, last], axis=1)
    ramp = np.arange(knots.shape[1]) - knots.shape[1] // 2
    return np.asarray(STEP * (np.round(knots / STEP) + ramp), dtype=np.float64)
