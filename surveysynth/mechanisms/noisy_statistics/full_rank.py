"""Noisy sums without redundant columns, where cells and PSUs are both summed.

Sums by PSU add up to sums over all records, so the columns of A = (X basis, w E) depend on each
other where records have effects of PSUs. The noise is the same on every column: turned onto an
orthonormal basis of the rows' span it is so again, rows keep their lengths, and what is left out is
noise alone. A function of released numbers.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.statistics import NoisyStatistics

#: A column varies within PSUs by less than this share of its sum of squares: not at all.
NO_VARIATION = 1e-12


@dataclass(frozen=True)
class FullRankSums:
    """basis (K + C, r), of full rank for the records' rows (x, indicators of their PSU), and the
    noisy sums (B, r, q) under it, with noise of the same sigma as before."""

    basis: FloatArray
    cross: FloatArray


def full_rank(
    statistics: NoisyStatistics, cells: FloatArray, cell: IntArray, psu: IntArray | None = None
) -> FullRankSums:
    """The sums for records with cells (G, K), codes (n,) of them and PSUs (n,); all public.

    Without PSUs they are returned as they are.
    """
    k, rank = statistics.basis.shape
    if psu is None:
        return FullRankSums(statistics.basis, statistics.cross)
    n_psu = statistics.cross.shape[1] - rank
    pairs, counts = np.unique(cell * n_psu + psu, return_counts=True)
    rows, unit = (cells @ statistics.basis)[pairs // n_psu], pairs % n_psu
    total = np.bincount(unit, counts, minlength=n_psu)
    mean = np.zeros((n_psu, rank))
    np.add.at(mean, unit, counts[:, None] * rows)
    mean /= np.maximum(total, 1.0)[:, None]
    within = rows - mean[unit]
    values, vectors = np.linalg.eigh((within.T * counts) @ within)
    scale = float((counts * (rows * rows).sum(axis=1)).sum())
    constant = vectors[:, values <= NO_VARIATION * scale]
    redundant = np.vstack([constant, -(mean @ constant) / statistics.psu_weight])
    # PSUs without records have no rows: their sums are noise.
    empty = np.eye(n_psu)[:, total == 0]
    redundant = np.hstack([redundant, np.vstack([np.zeros((rank, empty.shape[1])), empty])])
    turned = np.linalg.qr(redundant, mode="complete")[0][:, redundant.shape[1] :]
    basis = np.zeros((k + n_psu, rank + n_psu))
    basis[:k, :rank] = statistics.basis
    basis[k:, rank:] = statistics.psu_weight * np.eye(n_psu)
    return FullRankSums(basis @ turned, turned.T @ statistics.cross)
