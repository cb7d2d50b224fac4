"""Elliptical slice sampling (Murray, Adams & MacKay 2010), batched."""

from collections.abc import Callable

import numpy as np

from surveysynth._types import FloatArray, IntArray

#: Log of the density over that of the normal: chains (b,), cosines and sines (b,) to (b,).
LogRatio = Callable[[IntArray, FloatArray, FloatArray], FloatArray]
#: A bracket of angles shrinks by a third a try: 40 reach 1e-7 of a turn.
TRIES = 40


def slice_angle(
    log_ratio: LogRatio, level: FloatArray, uniforms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Cosine and sine (B,) of the next point m + (now - m) cos + (draw - m) sin.

    The target is a normal with mean m times exp(log_ratio); ``draw`` comes from that normal.
    level (B,) and uniforms (tries, B) on (0, 1). A chain whose tries run out stays.
    """
    batch = level.shape[0]
    everything = np.arange(batch)
    threshold = log_ratio(everything, np.ones(batch), np.zeros(batch)) + np.log(level)
    angle = 2.0 * np.pi * uniforms[0]
    low, high = angle - 2.0 * np.pi, angle.copy()
    accepted = np.zeros(batch)
    pending = everything
    for uniform in uniforms[1:]:
        now = angle[pending]
        inside = log_ratio(pending, np.cos(now), np.sin(now)) >= threshold[pending]
        accepted[pending[inside]] = now[inside]
        pending, now = pending[~inside], now[~inside]
        if not pending.size:
            break
        low[pending] = np.where(now < 0, now, low[pending])
        high[pending] = np.where(now < 0, high[pending], now)
        angle[pending] = low[pending] + (high[pending] - low[pending]) * uniform[pending]
    return np.cos(accepted), np.sin(accepted)
