"""Linearized tables of many datasets, kept for covariances between rows of different tables."""

from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.estimation.combined_quantiles import Inverted
from surveysynth.estimation.combining import Combined, PartialSynthesis
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import LinearisedTable


@dataclass
class Kept:
    """A combining rule that keeps what it is given, in the order of tables, levels, datasets."""

    tables: list[list[LinearisedTable]] = field(default_factory=list)

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> "_Kept":
        """Begin a table."""
        self.tables.append([])
        return _Kept(sample_design, self.tables[-1])

    def of_quantile(self, p: float) -> "Kept":
        """Return the rule itself."""
        return self

    def of(self, estimates: Estimates) -> "list[Columns]":
        """Return the tables of each key, once all datasets are added."""
        waiting, made = list(self.tables), []
        for key in estimates.keys:
            before = len(self.tables)
            combined = estimates.combined(key)
            levels = self.tables[before:]  # quantiles are collected as they are combined
            if not levels:
                count = len(estimates.levels(key)) or 1
                levels, waiting = waiting[:count], waiting[count:]
            scale = np.ones(combined.estimate.size)
            if isinstance(combined, Inverted):
                with np.errstate(divide="ignore", invalid="ignore"):
                    scale = combined.standard_error / combined.of_share.standard_error
            made.append(Columns(levels, np.repeat(estimates.lines(key).held, len(levels)), scale))
        return made


@dataclass(frozen=True)
class _Kept:
    sample_design: SampleDesign
    tables: list[LinearisedTable]

    def add(
        self, draw: int, replicate: int, table: LinearisedTable, pair: LinearisedTable
    ) -> None:
        self.tables.append(pair)

    def combined(self) -> Combined:
        """Return the last dataset alone: quantiles take the unit of their error from it."""
        usual = PartialSynthesis().collect(1, 1, self.sample_design)
        usual.add(1, 1, self.tables[-1], self.tables[-1])
        return usual.combined()


@dataclass(frozen=True, eq=False)
class Columns:
    """The rows of one table that are shown: by level, and dataset by dataset."""

    levels: list[list[LinearisedTable]]
    held: BoolArray
    scales: FloatArray

    @property
    def scale(self) -> FloatArray:
        """The unit of rows (D,) over that of their linearized variable, 1 but for quantiles."""
        return self.scales[self.held]

    def estimate(self, dataset: int) -> FloatArray:
        """Return estimates (D,) of a dataset; of quantiles, shares up to those of all datasets."""
        return np.stack([of[dataset].estimate for of in self.levels], axis=1).ravel()[self.held]

    def linearized(self, dataset: int) -> FloatArray:
        """Return u (n, D) of a dataset."""
        made = np.stack([_linearized(of[dataset]) for of in self.levels], axis=2)
        return made.reshape(len(made), -1)[:, self.held]


def _linearized(table: LinearisedTable) -> FloatArray:
    """Return u (n, D) of all records in all rows."""
    codes, own = table.domains.codes, table.linearised
    rest = 0.0 if own.outside is None else -own.outside
    made = np.asarray(table.weight[:, None] * (np.zeros(table.domains.n_rows) + rest))
    with np.errstate(divide="ignore", invalid="ignore"):
        for rows in codes:
            made[np.arange(len(made)), rows] = own.inside(rows)
        if table.regression is not None:
            made -= table.regression.weighted @ table.regression.coefficient.T
    return made
