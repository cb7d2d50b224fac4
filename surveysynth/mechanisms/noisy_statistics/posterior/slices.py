"""Slice sampling, batched: on a line (Neal 2003) or an ellipse (Murray, Adams & MacKay 2010).

A bracket about the current point shrinks to each try that lies outside the slice. Where the tries
fall, should all before them fail, is known from the uniforms alone: so several are judged at once,
and the first inside the slice is the next point. Points are given as shifts from the current one.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray, IntArray

Chains: TypeAlias = IntArray | slice
#: Log density, up to a constant, of some chains at shifts (b, t) from their points: (b, t).
LogDensity = Callable[[Chains, FloatArray], FloatArray]

#: Tries judged at first; then twice as many, for the chains that need them.
AT_FIRST = 6


def shrinking(low: FloatArray, high: FloatArray, uniforms: FloatArray) -> FloatArray:
    """Return successive tries (..., t) between low < 0 and high > 0 (...,), as shifts from zero.

    uniforms (..., t) on (0, 1)."""
    tries = np.empty_like(uniforms)
    for t in range(uniforms.shape[-1]):
        point = low + (high - low) * uniforms[..., t]
        tries[..., t] = point
        below = point < 0
        low, high = np.where(below, point, low), np.where(below, high, point)
    return tries


def shrinking_angles(uniforms: FloatArray) -> FloatArray:
    """Return successive tries on an ellipse: angles (..., t), the first anywhere."""
    first = 2.0 * np.pi * uniforms[..., 0]
    rest = shrinking(first - 2.0 * np.pi, first, uniforms[..., 1:])
    return np.concatenate([first[..., None], rest], axis=-1)


def slice_step(log_density: LogDensity, level: FloatArray, tries: FloatArray) -> FloatArray:
    """Return shifts (B,) to the next points, from uniform levels (B,) and tries (B, t).

    A chain stays where it is if its tries run out.
    """
    batch, most = tries.shape
    at_first = np.concatenate([np.zeros((batch, 1)), tries[:, :AT_FIRST]], axis=1)
    density = log_density(slice(None), at_first)
    threshold = density[:, :1] + np.log(level)[:, None]
    inside = density >= threshold
    inside[:, 0] = False  # the current point, where nothing else is found
    shift: FloatArray = at_first[np.arange(batch), inside.argmax(axis=1)]
    pending = np.flatnonzero(~inside.any(axis=1))
    begin, size = AT_FIRST, 2 * AT_FIRST
    while pending.size and begin < most:
        further = tries[pending, begin : begin + size]
        inside = log_density(pending, further) >= threshold[pending]
        found = inside.any(axis=1)
        shift[pending[found]] = further[found, inside[found].argmax(axis=1)]
        pending = pending[~found]
        begin, size = begin + size, 2 * size
    return shift
