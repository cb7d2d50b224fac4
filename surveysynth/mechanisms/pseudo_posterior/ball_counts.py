"""Isolation of a value among others: counts within balls, by sorting (methods 2).

The ball of a record is closed, [y - r|y|, y + r|y|] for a relative radius and [y - r, y + r] for an
absolute one. Both ends rise with y, also for zero and negative y: sorted by y, the records of a
ball are a stretch of neighbours, and two balls overlap in a stretch. Everything is O(n log n).
"""

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray

#: Share of its centre (and radius) by which a ball is widened: rounding must not put a value that
#: lies on the end of a closed ball, 12 on that of 10 with radius 0.2, outside it.
SLACK = 1e-12


def ball_edges(
    centre: FloatArray, radius: float, *, absolute: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of the closed balls, (n,) each, non-decreasing in ``centre``.

    One product (and one sum) makes an end, so rounding cannot change the order of two ends.
    """
    negative = centre < 0
    if absolute:
        towards, away, reach = 1.0 - SLACK, 1.0 + SLACK, radius * (1.0 + SLACK)
    else:
        towards, away, reach = max(1.0 - radius - SLACK, 0.0), 1.0 + radius + SLACK, 0.0
    lower = centre * np.where(negative, away, towards) - reach
    upper = centre * np.where(negative, towards, away) + reach
    return lower, upper


def count_inside(
    values: FloatArray,
    value_pattern: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    ball_pattern: IntArray,
) -> IntArray:
    """Return the number of values of the ball's pattern within each [lower, upper], (balls,)."""
    first, last = _stretches(values, value_pattern, lower, upper, ball_pattern)
    return last - first


def count_risk(
    outcome: FloatArray, radius: float, pattern: IntArray, *, absolute: bool = False
) -> FloatArray:
    """Return IR_i, (n,): share of the records of i's pattern, i included, outside its ball.

    [R] Alg. 3.

    outcome (n,); pattern (n,): codes from 0.
    """
    lower, upper = ball_edges(outcome, radius, absolute=absolute)
    inside = count_inside(outcome, pattern, lower, upper, pattern)
    return np.asarray(1.0 - inside / np.bincount(pattern)[pattern])


def pairwise_risk(
    outcome: FloatArray, radius: float, pattern: IntArray, *, absolute: bool = False
) -> FloatArray:
    """Return 1 - mean over j != i of alpha_ij, (n,), within i's pattern ([S] eq. 7-9).

    alpha_ij is the share of the pattern's records that lie in the ball of i, of j or of both. A
    record alone in its pattern has its count-based risk. Sums are whole numbers, hence exact.
    """
    order = np.lexsort((outcome, pattern))
    y, group = outcome[order], pattern[order]
    lower, upper = ball_edges(y, radius, absolute=absolute)
    first, last = _stretches(y, group, lower, upper, group)
    inside = last - first
    size = np.bincount(group)[group]
    in_others = _sums_by_group(inside, group) - inside
    in_either = (size - 1) * inside + in_others - _shared(first, last)
    partners = np.maximum(size - 1, 1)
    covered = np.where(size > 1, in_either / partners, inside) / size
    risk = np.empty(outcome.shape)
    risk[order] = 1.0 - covered
    return risk


def _stretches(
    values: FloatArray,
    value_pattern: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    ball_pattern: IntArray,
) -> tuple[IntArray, IntArray]:
    """Return positions [first, last) of each ball's records among values sorted by pattern.

    Ranks among the distinct values make whole-number keys, so one binary search serves all
    patterns at once.
    """
    distinct, rank = np.unique(values, return_inverse=True)
    width = distinct.size + 1
    keys = np.sort(value_pattern * width + rank)
    low = ball_pattern * width + np.searchsorted(distinct, lower, side="left")
    high = ball_pattern * width + np.searchsorted(distinct, upper, side="right")
    return np.searchsorted(keys, low), np.searchsorted(keys, high)


def _shared(first: IntArray, last: IntArray) -> IntArray:
    """Return the sum over j != i of the number of records in both balls, (n,), records sorted.

    Stretches of a later record begin and end no earlier, so i and a later j share
    max(0, last_i - first_j) records, and those j are neighbours too: two prefix sums. Stretches of
    different patterns have none in common, which the positions say by themselves.
    """
    position = np.arange(first.size)
    firsts, lasts = (np.concatenate([[0], np.cumsum(each)]) for each in (first, last))
    end = np.searchsorted(first, last, side="left")
    later = (end - position - 1) * last - (firsts[end] - firsts[position + 1])
    begin = np.searchsorted(last, first, side="right")
    earlier = (lasts[position] - lasts[begin]) - (position - begin) * first
    return np.asarray(later + earlier)


def _sums_by_group(counts: IntArray, group: IntArray) -> IntArray:
    """Return sums of whole numbers over each record's group, (n,); ``group`` is sorted."""
    ends = np.concatenate([[0], np.cumsum(np.bincount(group))])
    prefix = np.concatenate([[0], np.cumsum(counts)])
    return np.asarray((prefix[ends[1:]] - prefix[ends[:-1]])[group])


def pattern_codes(frame: pd.DataFrame, pattern: tuple[str, ...], n: int) -> IntArray:
    """Return codes (n,) from 0 of the combinations of the columns; all 0 without columns."""
    codes = np.zeros(n, dtype=np.int64)
    for name in pattern:
        level, levels = pd.factorize(frame[name], use_na_sentinel=False)
        combined = codes * len(levels) + level
        codes = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return codes
