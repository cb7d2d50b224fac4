"""Data and parameters of the general location model's Stan program."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import WEIGHT, part_name
from surveysynth.models.general_location.prior_rows import PriorRows, of_interactions
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.sampling.stan.source import StanProgramSpec


def _data(stats: GeneralStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return the data for one database, JSON-ready: arrays of all parts end to end."""
    layout, groups = stats.shape

    def joined(arrays: list[FloatArray]) -> list[float]:
        return [float(value) for array in arrays for value in array.reshape(-1)]

    rows = stats.rows
    flat = [np.zeros((0, 0))] * 3 if rows is None else [
        each[0].reshape(-1, each.shape[-1]) for each in (rows.x, rows.z, rows.present)
    ]  # fmt: skip
    total = np.zeros((1, 0)) if rows is None else rows.total[0]
    size = len(flat[0]) // groups
    prior = of_interactions(layout, priors["interaction_scale"])
    if stats.pseudo is not None:
        prior = PriorRows.joined([prior, stats.pseudo])
    uses = np.zeros((len(layout.regressions), layout.width), dtype=np.int64)
    before = np.zeros((len(layout.regressions), layout.q), dtype=np.int64)
    for j, part in enumerate(layout.regressions):
        uses[j, part.columns] = before[j, part.earlier] = 1
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
        "J": len(layout.regressions),
        "G": groups,
        "grouped": int(layout.grouped),
        "W": layout.width,
        "uses": uses.tolist(),
        "before": before.tolist(),
        "ridged": [int(k in layout.ridged) for k in range(layout.width)],
        "M": len(flat[0]),
        "group": np.repeat(np.arange(1, groups + 1), size).tolist() if size else [],
        "rows_x": flat[0].tolist(),
        "rows_z": flat[1].tolist(),
        "present": flat[2].astype(int).tolist(),
        "total": total.T.tolist(),
        "R": len(prior.x),
        "prior_x": prior.x.tolist(),
        "prior_z": prior.z.tolist(),
        "prior_present": prior.present.astype(int).tolist(),
        "prior_count": prior.count.tolist(),
        "least_df": 0.0 if layout.pseudo is None else layout.pseudo.records,
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
