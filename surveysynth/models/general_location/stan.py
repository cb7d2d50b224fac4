"""Data and parameters of the general location model's Stan program."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import WEIGHT, Layout, part_name
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.sampling.stan.source import StanProgramSpec


def _widths(layout: Layout) -> list[int]:
    """Return the number of slopes of each regression that differ by group."""
    return [part.earlier.size if layout.grouped else 0 for part in layout.regressions]


def _data(stats: GeneralStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return the data for one database, JSON-ready: arrays of all parts end to end."""
    layout, groups = stats.shape

    def joined(arrays: list[FloatArray]) -> list[float]:
        return [float(value) for array in arrays for value in array.reshape(-1)]

    sums = stats.regressions
    return {
        # Zero is the log weight, negative numbers are sides below a split.
        "logit_outcome": [part.outcome + 1 for part in layout.logits],
        "regression_outcome": [
            0 if part.outcome is None else (1 - 2 * part.side) * (part.outcome + 1)
            for part in layout.regressions
        ],
        "L": len(stats.logits),
        "P": [each.x.shape[-1] for each in stats.logits],
        "Q": [each.counts.shape[-1] - 1 for each in stats.logits],
        "T": [each.counts.shape[1] for each in stats.logits],
        "x": joined([each.x[0] for each in stats.logits]),
        "counts": joined([each.counts[0] for each in stats.logits]),
        "J": len(sums),
        "G": groups,
        "grouped": int(layout.grouped),
        "C": [each.fit.shape[-1] for each in sums],
        "D": _widths(layout),
        "total": [each.total[0].tolist() for each in sums],
        "gram": joined([each.gram[0] for each in sums]),
        "fit": joined([each.fit[0] for each in sums]),
        "cross": joined([each.cross[0] for each in sums]),
        "residual": [np.maximum(each.residual[0], 0.0).tolist() for each in sums],
        **{name: float(priors[name]) for name in sorted(priors)},
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn Stan's draws by name into Theta; the program gives the parts and their sizes."""
    theta: Theta = {}
    first = 0
    for outcome, p, q in _table(draws, "logit_parts"):
        flat = draws["logit_b"][:, first : first + p * q]
        theta[f"logit_{outcome}"], first = flat.reshape(-1, p, q), first + p * q
    first, first_slope, with_slopes = 0, 0, 0
    for j, (outcome, c, k) in enumerate(_table(draws, "regression_parts")):
        name = part_name(abs(outcome) - 1, int(outcome < 0)) if outcome else WEIGHT
        groups = draws["sd"].shape[1]
        theta[f"coefficients_{name}"] = draws["core"][:, first : first + c]
        theta[f"variance_{name}"] = draws["sd"][:, :, j] ** 2
        theta[f"coefficient_scale_{name}"] = draws["tau"][:, j]
        if draws.get("nu", np.empty(0)).size:
            theta[f"pooled_scale_{name}"] = draws["s_0"][:, j]
            theta[f"pooled_df_{name}"] = draws["nu"][:, j]
        if k:
            flat = draws["slopes"][:, first_slope : first_slope + groups * k]
            theta[f"slopes_{name}"] = flat.reshape(-1, groups, k)
            theta[f"slope_scale_{name}"] = draws["t"][:, with_slopes]
            first_slope, with_slopes = first_slope + groups * k, with_slopes + 1
        first += c
    return theta


def _table(draws: Mapping[str, FloatArray], name: str) -> list[tuple[int, int, int]]:
    """Return outcome and sizes of each part, the same in every draw; none without elements."""
    table = draws.get(name)
    if table is None or not table.size:
        return []
    return [(int(row[0]), int(row[1]), int(row[2])) for row in table[0]]


STAN = StanProgramSpec("general_location.stan", _data, _theta)
