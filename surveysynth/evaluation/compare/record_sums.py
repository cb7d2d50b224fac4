"""Linearised variables of records, summed over the datasets of a release as they stream by."""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.taylor import LinearisedTable


@dataclass
class RecordSums:
    """One statistic: its table of the sample, and sums over the datasets added so far.

    inside: (margin sets, n) u of records in their rows, less what they have outside; weight (n,);
    outside (D,); count: number of datasets.
    """

    sample: LinearisedTable
    inside: FloatArray
    outside: FloatArray
    weight: FloatArray
    count: int = 0

    @classmethod
    def of(cls, sample: LinearisedTable) -> "RecordSums":
        """Begin without a dataset."""
        sets, n = sample.domains.codes.shape
        return cls(sample, np.zeros((sets, n)), np.zeros(sample.domains.n_rows), np.zeros(n))

    def add(self, table: LinearisedTable) -> None:
        """Add a dataset."""
        self.count += 1
        self.inside += _inside(table)
        if table.linearised.outside is not None:
            self.outside += table.linearised.outside
        self.weight += table.weight

    def difference(self, rows: IntArray, se: FloatArray) -> FloatArray:
        """Return r (n, K): the mean u of the datasets less that of the sample, over se (K,)."""
        count, domains = self.count, self.sample.domains
        position = np.full(domains.n_rows, -1)
        position[rows] = np.arange(rows.size)
        result = np.zeros((domains.n_records, rows.size))
        moved = self.inside / count - _inside(self.sample)
        for codes, u in zip(domains.codes, moved, strict=True):
            held = np.flatnonzero(position[codes] >= 0)
            result[held, position[codes[held]]] = u[held]
        if (outside := self.sample.linearised.outside) is not None:
            result -= np.outer(self.weight / count, self.outside[rows] / count)
            result += np.outer(self.sample.weight, outside[rows])
        return np.asarray(result / se)


def _inside(table: LinearisedTable) -> FloatArray:
    """Return, by margin set, u (sets, n) of records in their rows, less what they have outside."""
    codes, outside = table.domains.codes, table.linearised.outside
    with np.errstate(invalid="ignore", divide="ignore"):
        made = np.stack([table.linearised.inside(rows) for rows in codes])
        return made if outside is None else made + outside[codes] * table.weight
