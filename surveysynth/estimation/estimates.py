"""Estimates of every table from every dataset, as datasets stream by: the one loop that does it.

Releases, comparisons and studies all estimate here, so that they judge what would be published.

``StoredTables`` keeps linearized tables, for covariances between rows of different tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.estimation.calibration import (
    CalibratedWeights,
    Calibration,
    calibrated_dataset,
    calibrations_of,
)
from surveysynth.estimation.combining import (
    Collected,
    Combined,
    CombiningRule,
    Inverted,
    PartialSynthesis,
    Quantiles,
)
from surveysynth.estimation.domains import Domains, TableRows
from surveysynth.estimation.linearised import Weighted
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.subpopulation import WHERE, displayed_pairs, displayed_rows
from surveysynth.estimation.taylor import Linearisation, LinearisedTable, linearise_domains
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

Key: TypeAlias = tuple[str, int | None]
"""A statistic by name, and the column of the outcomes that it is of, None for counts."""

@dataclass(frozen=True, eq=False)
class TableLines:
    """The lines of one table.

    cells: the by columns and is_margin; held: which of the D rows are lines; n: number of records,
    in the dataset with the fewest; by_dataset: as in ``Domains``.
    """

    cells: "pd.DataFrame"
    held: BoolArray
    n: IntArray
    by_dataset: BoolArray


class Estimates:
    """Collects the estimates of each table from each dataset, and combines them.

    rows, sample_design: of the same n records; keys: the tables (``statistics.table_keys`` gives
    all of some statistics and outcomes); linearisation, population_size: as in
    ``estimate_domains``; draws, replicates: m and r, datasets are numbered by both, from 1; rule:
    how datasets are combined; outcomes: what is known about each, for statistics by level;
    calibration: known totals, to which the weights of a dataset are calibrated unless they are.
    """

    def __init__(
        self,
        rows: TableRows,
        sample_design: SampleDesign,
        keys: Sequence[Key],
        *,
        linearisation: Linearisation,
        population_size: float | None,
        draws: int = 1,
        replicates: int = 1,
        rule: CombiningRule | None = None,
        outcomes: Sequence[Outcome] = (),
        calibration: Calibration | None = None,
    ) -> None:
        self._calibration = calibration
        self.rows, self.sample_design, self.keys = rows, sample_design, tuple(keys)
        self._linearisation: Linearisation = linearisation
        self._population_size = population_size
        self._outcomes = tuple(outcomes)
        given, several = rule or PartialSynthesis(), draws * replicates > 1
        self._quantiles: dict[Key, Quantiles] = {}
        self._collected: dict[Key, list[Collected]] = {}
        for key in self.keys:
            kind = statistic_of(key[0])
            own = given if kind.share is None else given.of_quantile(kind.share)
            if (kind.share if several else kind.share_below) is not None:
                ratio = linearisation == "ratio"
                self._quantiles[key] = Quantiles(kind, own, sample_design, calibrated=ratio)
            else:
                self._collected[key] = [
                    own.collect(draws, replicates, sample_design) for _ in self._indicators(key)
                ]
        self.separate_pair = False
        self._fewest: IntArray | None = None
        self._pairs = {
            key: displayed_pairs(contrast, rows)
            for key in self.keys
            if (contrast := statistic_of(key[0]).contrast) is not None
        }
        self._fewest_of: dict[Key, IntArray] = {}

    @property
    def domains(self) -> Domains:
        """The rows, where all by variables are public columns, so that every dataset has them."""
        assert isinstance(self.rows, Domains)
        return self.rows

    @property
    def fewest(self) -> IntArray:
        """Return the number of records (D,) of each row in the dataset with the fewest.

        It depends on public columns, and otherwise on nothing but the datasets that were added.
        """
        assert self._fewest is not None  # there is a dataset
        return self._fewest

    def lines(self, key: Key) -> TableLines:
        """Return the lines of a table: all rows, or for a contrast the rows that show one."""
        contrast, by_dataset = statistic_of(key[0]).contrast, self.rows.by_dataset
        held, n = displayed_rows(self.rows), self.fewest
        if contrast is not None:
            pairs = self._pairs[key]
            held, n = pairs.holds & held, self._fewest_of[key]
            by_dataset = by_dataset | by_dataset[pairs.second]
        cells = self.rows.table[held].reset_index(drop=True).drop(columns=WHERE, errors="ignore")
        if contrast is not None and contrast.first is not None:  # it says nothing any more
            cells = cells.drop(columns=contrast.column)
            labels = dict(zip(self.rows.by, self.rows.labels, strict=True))
            kept = [name for name in cells.columns if name != "is_margin"]
            at_margin = [~cells[name].isin(labels[name].levels).to_numpy() for name in kept]
            cells["is_margin"] = np.any(at_margin, axis=0) if kept else True
        return TableLines(cells, held, n[held], by_dataset[held])

    def add(self, dataset: SyntheticDataset) -> None:
        """Estimate every table from a dataset, its variance from the pair that is given for it."""
        if self._calibration is not None and dataset.base_weight is None:
            dataset = calibrated_dataset(self._calibration, dataset)
        own_weights, pair_weights = calibrations_of(self._calibration, dataset)
        self.separate_pair = dataset.separate_pair
        domains = self.rows.of(dataset.outcome)
        own = pair = (domains, dataset.outcome, dataset.weight, own_weights)
        if self.separate_pair:
            pair = (self.rows.of(dataset.variance_outcome), dataset.variance_outcome,
                    dataset.variance_weight, pair_weights)  # fmt: skip
        self._fewest = _least(self._fewest, domains.n)
        for key, pairs in self._pairs.items():
            self._fewest_of[key] = _least(self._fewest_of.get(key), pairs.fewer(domains.n))
        for key, lines in self._collected.items():
            for collected, level in zip(lines, self._indicators(key), strict=True):
                released = of_pair = self._linearised(key, level, *own)
                if self.separate_pair:
                    of_pair = self._linearised(key, level, *pair)
                collected.add(dataset.draw, dataset.replicate, released, of_pair)
        # Quantiles keep datasets until all are added, and share their weights.
        kept = self._kept(*own) if self._quantiles else {}
        kept_pair = self._kept(*pair) if self._quantiles and self.separate_pair else kept
        for key, quantiles in self._quantiles.items():
            quantiles.add(dataset.draw, dataset.replicate, kept[key], kept_pair[key])

    def add_alone(self, outcomes: FloatArray, weight: FloatArray) -> None:
        """Estimate every table from the only dataset: outcomes (n, p), weight (n,)."""
        self.add(SyntheticDataset(1, 1, outcomes, weight, outcomes, weight))

    def levels(self, key: Key) -> tuple[str, ...]:
        """Return the outcome's levels if a row of the table has a line for each; else empty."""
        statistic, column = key
        if column is None or not statistic_of(statistic).by_level:
            return ()
        return self._outcomes[column].category_names

    def _indicators(self, key: Key) -> Sequence[int | None]:
        """Return the levels whose indicators replace the outcome; [None] for the outcome itself."""
        return range(len(self.levels(key))) or (None,)

    def _linearised(
        self,
        key: Key,
        level: int | None,
        domains: Domains,
        outcomes: FloatArray,
        weight: FloatArray,
        calibrated: CalibratedWeights | None,
    ) -> LinearisedTable:
        statistic, column = key
        values = None if column is None else outcomes[:, column]
        if of := statistic_of(statistic).of:
            names = [outcome.name for outcome in self._outcomes]
            values = outcomes[:, [names.index(name) for name in of]]
        elif values is not None and column is not None and level is not None:
            values = (self._outcomes[column].category(values) == level).astype(np.float64)
        return linearise_domains(
            domains, weight=weight, outcome=values, statistic=statistic,
            linearisation=self._linearisation, population_size=self._population_size,
            calibration=calibrated,
        )  # fmt: skip

    def _kept(
        self,
        domains: Domains,
        outcomes: FloatArray,
        weight: FloatArray,
        calibrated: CalibratedWeights | None,
    ) -> dict[Key, Weighted]:
        """Return the outcome of each quantile, with weights scaled as those of any statistic."""
        if calibrated is None and self._linearisation == "ratio" and self._population_size:
            weight = weight * (self._population_size / weight.sum())
        return {
            key: Weighted(domains, outcomes[:, key[1]], weight, calibrated)
            for key in self._quantiles if key[1] is not None  # quantiles are of outcomes
        }  # fmt: skip

    def combined(self, key: Key) -> Combined:
        """Combine one table over all datasets.

        For a statistic by level, the levels of the first row come first, then those of the next.
        """
        if key in self._quantiles:
            return self._quantiles[key].combined()
        tables = [collected.combined() for collected in self._collected[key]]
        if len(tables) == 1:
            return tables[0]
        arrays: dict[str, Any] = {
            each.name: np.stack([getattr(table, each.name) for table in tables], axis=1).ravel()
            for each in fields(Combined) if each.name != "df_design"
        }  # fmt: skip
        return Combined(**arrays, df_design=tables[0].df_design)


def _least(known: IntArray | None, n: IntArray) -> IntArray:
    return n if known is None else np.minimum(known, n)


@dataclass
class StoredTables(CombiningRule):
    """A combining rule that keeps what it is given, in the order of tables, levels, datasets."""

    tables: list[list[LinearisedTable]] = field(default_factory=list)

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> "_Kept":
        """Begin a table."""
        self.tables.append([])
        return _Kept(sample_design, self.tables[-1])

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
