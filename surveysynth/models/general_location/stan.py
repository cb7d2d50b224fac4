"""Data and parameters of the general location model's Stan program."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray, Theta
from surveysynth.models.general_location.layout import WEIGHT, part_name
from surveysynth.models.general_location.prior_rows import rows_of_prior
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts import psu_effects
from surveysynth.sampling.stan.source import StanProgramSpec


def _data(stats: GeneralStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return the data for one database, JSON-ready: arrays of all parts end to end."""
    layout, groups = stats.shape

    def joined(arrays: list[FloatArray]) -> list[float]:
        return [float(value) for array in arrays for value in array.reshape(-1)]

    x, counts, logit_psu = _logits(stats)
    rows = _psu_rows(stats) if stats.psus else _group_rows(stats)
    total = np.zeros((1, 0)) if stats.rows is None else stats.rows.total[0]
    size = len(rows.x) // groups
    prior = rows_of_prior(layout, priors["interaction_scale"], stats.pseudo)
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
        "P": [each.shape[-1] for each in x],
        "Q": [each.shape[-1] - 1 for each in counts],
        "T": [len(each) for each in counts],
        "x": joined(x),
        "counts": joined(counts),
        "J": len(layout.regressions),
        "G": groups,
        "grouped": int(layout.grouped),
        "W": layout.width,
        "uses": uses.tolist(),
        "before": before.tolist(),
        "ridged": [int(k in layout.ridged) for k in range(layout.width)],
        "M": len(rows.x),
        "group": np.repeat(np.arange(1, groups + 1), size).tolist() if size else [],
        "rows_x": rows.x.tolist(),
        "rows_z": rows.z.tolist(),
        "present": rows.present.astype(int).tolist(),
        "total": total.T.tolist(),
        "R": len(prior.x),
        "prior_x": prior.x.tolist(),
        "prior_z": prior.z.tolist(),
        "prior_present": prior.present.astype(int).tolist(),
        "prior_count": prior.count.tolist(),
        "least_df": layout.least_df,
        "C": stats.psus[0].count if stats.psus else 0,
        "logit_psu": logit_psu,
        "row_psu": rows.psu.tolist(),
        "row_root": rows.root.tolist(),
        "psu_scale_prior": float(priors["psu_scale"]),
        **{name: float(priors[name]) for name in sorted(priors) if name != "psu_scale"},
    }


@dataclass(frozen=True, repr=False)
class _Rows(Unpickled):
    """Rows x (M, W), z and present (M, q) of the regressions, group by group.

    psu (M,): from 1 on, 0 for none; root (M,) of the weight of a row of a PSU.
    """

    x: FloatArray
    z: FloatArray
    present: BoolArray
    psu: IntArray
    root: FloatArray


def _logits(stats: GeneralStats) -> tuple[list[FloatArray], list[FloatArray], list[int]]:
    """Return rows and counts of each logit, and the PSUs of all rows, from 1 on, or 0."""
    if not stats.psus:
        x, counts = [each.x[0] for each in stats.logits], [each.counts[0] for each in stats.logits]
        return x, counts, [0] * sum(map(len, counts))
    own = stats.psus[0].logits
    psu = [int(code) + 1 for each in own for code in each.psu]
    return [each.x for each in own], [each.counts for each in own], psu


def _group_rows(stats: GeneralStats) -> _Rows:
    layout, rows = stats.layout, stats.rows
    if rows is None:
        x, z = np.zeros((0, layout.width)), np.zeros((0, layout.q))
        return _Rows(x, z, z > 0, np.zeros(0, dtype=np.int64), np.zeros(0))
    x, z, present = (
        each[0].reshape(-1, each.shape[-1]) for each in (rows.x, rows.z, rows.present)
    )
    return _Rows(x, z, present, np.zeros(len(x), dtype=np.int64), np.zeros(len(x)))


def _psu_rows(stats: GeneralStats) -> _Rows:
    """Return rows by PSU of each pattern of columns of z, then those of what is within them."""
    layout = stats.layout
    parts = [
        _Rows(
            np.zeros((0, layout.width)), np.zeros((0, layout.q)), np.zeros((0, layout.q), bool),
            np.zeros(0, dtype=np.int64), np.zeros(0),
        )
    ]  # fmt: skip
    for each in stats.psus[0].patterns:
        root = np.sqrt(each.mass)
        values, vectors = np.linalg.eigh(each.scatter)
        within = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        size = len(root), len(within)
        parts.append(
            _Rows(
                np.vstack([root[:, None] * each.x, np.zeros((size[1], layout.width))]),
                np.vstack([root[:, None] * each.mean, within]),
                np.tile(each.present, (sum(size), 1)),
                np.concatenate([each.psu + 1, np.zeros(size[1], dtype=np.int64)]),
                np.concatenate([root, np.zeros(size[1])]),
            )
        )
    return _Rows(*(
        np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(_Rows)
    ))  # fmt: skip


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
    return theta | psu_effects.stan_theta(draws)


def _table(draws: Mapping[str, FloatArray], name: str) -> list[tuple[int, int, int]]:
    """Return outcome and sizes of each part, the same in every draw; none without elements."""
    table = draws.get(name)
    if table is None or not table.size:
        return []
    return [(int(row[0]), int(row[1]), int(row[2])) for row in table[0]]


STAN = StanProgramSpec("general_location.stan", _data, _theta)
