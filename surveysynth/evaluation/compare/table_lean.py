"""Leans of the tables of a release: signed distances from the sample by table and by margin.

Linearised variables of records are collected while datasets stream by; ``leaning`` has the
formulas. Contrasts are left out, since their rows are those of another table, and so are rows by
an outcome, which hold other records in every dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.estimates import Key as EstimateKey
from surveysynth.estimation.margins import margin_set_of_row
from surveysynth.estimation.row_labels import RowLabels, margin_sets
from surveysynth.estimation.statistics import LEVEL, TABLE, statistic_of
from surveysynth.estimation.subpopulation import WHERE, shown_rows
from surveysynth.evaluation.compare.leaning import (
    LEAST_BIAS,
    Fit,
    Lean,
    Scored,
    lean_of,
    reported,
    scores,
)
from surveysynth.evaluation.compare.record_sums import RecordSums
from surveysynth.evaluation.compare.tables import Key, sample_weight
from surveysynth.release.tables.table_builder import estimates_for
from surveysynth.survey.interactions import ridge_of

if TYPE_CHECKING:
    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.mechanisms.base import Released
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.survey.survey import Survey

#: Datasets whose records are averaged, numbers of records times rows of a margin, and rows of a
#: margin: more say hardly more, or take too much memory or time.
ENOUGH_DATASETS, MOST_NUMBERS, MOST_ROWS = 40, 20_000_000, 2_000
#: Groups with residual spreads of their own; of more, one spread is scored.
MOST_GROUPS = 100
#: The margin that all rows of a table are together.
ALL_ROWS = "all rows"


@dataclass(frozen=True)
class TableLean:
    """The lean of a table, or of one of its margins.

    table: its name; key: statistic and outcome; level: of the outcome, or empty; margin: the by
    columns of its rows, None for all rows of the table; mean_by_chance, squares_by_chance: whether
    chance explains the mean, and the sum of squares.
    """

    table: str
    key: Key
    level: str
    margin: tuple[str, ...] | None
    lean: Lean
    mean_by_chance: bool = True
    squares_by_chance: bool = True

    @property
    def leans(self) -> bool:
        """True if the rows lie to one side of the sample, far enough to cost coverage."""
        return not self.mean_by_chance and abs(self.lean.mean) >= LEAST_BIAS

    @property
    def misfits(self) -> bool:
        """True if the rows lie off in any direction, far enough to cost coverage."""
        return not self.squares_by_chance and self.lean.bias >= LEAST_BIAS

    @property
    def rows(self) -> str:
        """The rows in words."""
        if self.margin is None:
            return ALL_ROWS
        return f"rows by {' and '.join(self.margin)}" if self.margin else "the whole"


class LeanCollector:
    """Collects linearised variables of the datasets of a release, and computes leans."""

    def __init__(self, facts: "ReleaseFacts", survey: "Survey") -> None:
        self._facts, self._survey = facts, survey
        self._replicates = max(1, ENOUGH_DATASETS // facts.spec.privacy.m)
        design = replace(survey.design, design_effect=None)
        weight = sample_weight(survey)
        self._tables: dict[str, Estimates] = {}
        self._lines: dict[tuple[str, EstimateKey], list[RecordSums]] = {}
        for each in facts.spec.each_table:
            name, estimates = each.table.name or "", estimates_for(each, design)
            self._tables[name] = estimates
            for key in estimates.keys:
                if statistic_of(key[0]).contrast is None:
                    made = estimates.linearised(key, survey.confidential.outcome, weight)
                    self._lines[name, key] = [RecordSums.of(table) for table in made]

    def add(self, dataset: "SyntheticDataset") -> None:
        """Add a published dataset."""
        if dataset.replicate > self._replicates:
            return
        for (name, key), lines in self._lines.items():
            made = self._tables[name].linearised(key, dataset.outcome, dataset.weight)
            for line, table in zip(lines, made, strict=True):
                line.add(table)

    def leans(
        self, compared: Mapping[str, Mapping[Key, pd.DataFrame]], released: "Released"
    ) -> list[TableLean]:
        """Return the leans of all tables and margins; compared: their rows by name and key."""
        found, privacy = [], self._facts.spec.privacy
        for (name, key), lines in self._lines.items():
            named = key[0], self._outcome_name(key[1])
            frame, estimates = compared[name][named], self._tables[name]
            fit = self._fit(key, released)
            levels = estimates.levels(key) or ("",)
            for number, (line, level) in enumerate(zip(lines, levels, strict=True)):
                rows = _Rows.of(estimates, frame.iloc[number :: len(levels)])
                # Counts that add up to a known total cannot lean together.
                fixed = line.sample.calibrated and line.sample.statistic.is_count
                for margin, lean in _leans_of(line, rows, fit, privacy.m, self._facts.df_design):
                    tested = replace(lean, p=np.nan) if fixed else lean
                    found.append(TableLean(name, named, level, margin, tested))
        return _with_reports(found)

    def _outcome_name(self, column: int | None) -> str | None:
        return None if column is None else self._survey.design.outcome_names[column]

    def _fit(self, key: EstimateKey, released: "Released") -> Fit:
        """Return how draws follow the scores of the outcomes of a statistic and of the weight."""
        matrix, noise = self._facts.design.matrix, released.noise
        group = self._groups() if noise is None else noise.group
        if group.max() >= MOST_GROUPS:
            group = np.zeros_like(group)
        made = scores(
            matrix.x_cells, matrix.cell, self._columns(key),
            ridge_of(matrix.ridged, matrix.interaction_scale), group,
        )  # fmt: skip
        weight = released.fit_weight
        return Fit(
            made.psi, np.ones(len(made.psi)) if weight is None else weight,
            self._survey.design.psu, made.ridge,
            None if noise is None else noise.covariance(made.sums),
        )  # fmt: skip

    def _groups(self) -> IntArray:
        """Return the group (C,) of each row of X, if the model has spreads by cell."""
        design, grouping = self._facts.design, self._facts.spec.synthesizer.grouping
        grouped = bool(grouping)  # the pseudo-posterior has none unasked
        cells = len(design.matrix.x_cells)
        return np.arange(cells) if grouped else np.zeros(cells, dtype=np.int64)

    def _columns(self, key: EstimateKey) -> list[Scored]:
        """Return categories and amounts of the outcomes of a statistic, and the weight."""
        design, confidential = self._facts.design, self._survey.confidential
        statistic, column = key
        names = statistic_of(statistic).of or tuple(filter(None, [self._outcome_name(column)]))
        found: list[Scored] = []
        position = 0
        for number, outcome in enumerate(design.outcomes):
            value = confidential.outcome[:, number]
            category = outcome.category(value)
            if outcome.name in names:
                for each in range(1, outcome.categories):
                    is_level = (category == each).astype(np.float64)
                    found.append(Scored(is_level, category=(number, each)))
                for offset, side in enumerate(outcome.sides):
                    there = category == side
                    transformed = np.full(value.size, np.nan)
                    middle = value[there] + (0.5 if outcome.kind == "count" else 0.0)
                    transformed[there] = outcome.at(there).forward(middle, side)
                    found.append(Scored(transformed, position=position + offset))
            position += len(outcome.sides)
        if design.public_weight is None:
            weight = design.weight_transform.forward(sample_weight(self._survey))
            found.append(Scored(weight, position=position))
        return found


@dataclass(frozen=True)
class _Rows:
    """Rows of a table that are compared: difference, se and n (D,), NaN for others; and margins.

    margins: the by columns and the rows of each margin set that has rows.
    """

    difference: FloatArray
    se: FloatArray
    n: FloatArray
    margins: Sequence[tuple[tuple[str, ...], IntArray]]

    @classmethod
    def of(cls, estimates: Estimates, frame: pd.DataFrame) -> "_Rows":
        """Take them from the frame of a table, or of one level of it."""
        domains = estimates.rows
        held = np.flatnonzero(shown_rows(domains))
        difference, se, n = np.full((3, len(domains.table)), np.nan)
        difference[held], se[held], n[held] = frame["difference"], frame["sample_se"], frame["n"]
        usable = np.isfinite(difference) & ~domains.by_dataset
        sets, margins = margin_set_of_row(domains), []
        for position, ways in enumerate(margin_sets(domains.labels)):
            here = np.flatnonzero(usable & (sets == position))
            if here.size:
                by = [name for name in map(_kept, domains.by, domains.labels, ways) if name]
                margins.append((tuple(by), here))
        return cls(difference, se, n, margins)


def _kept(name: str, labels: RowLabels, way: int) -> str | None:
    """Return a by variable with its levels in a margin set; None where it is summed over."""
    if way == 0 or name == WHERE:
        return None
    return name if way == labels.kept else f"{name} ({labels.groups[way - 1][0]})"


def _leans_of(
    line: RecordSums, rows: _Rows, fit: Fit, m: int, df: float
) -> Iterator[tuple[tuple[str, ...] | None, Lean]]:
    """Yield the leans of all rows together, and of each margin that is not too large."""
    records = line.weight.size
    found, every, total = [], [], np.zeros((records, 1))
    for margin, which in rows.margins:
        if which.size * records > MOST_NUMBERS or which.size > MOST_ROWS:
            continue
        r = line.difference(which, rows.se[which])
        total += r.sum(axis=1, keepdims=True)
        every.append(which)
        found.append((margin, lean_of(rows.difference[which], fit.covariance(r, m), df)))
    if len(found) > 1:
        which = np.concatenate(every)
        covariance = fit.covariance(total / which.size, m)
        whole = lean_of(rows.difference[which].mean(keepdims=True), covariance, df)
        yield None, replace(whole, rows=which.size, chi_square=np.nan, df=np.nan, p_rows=np.nan)
    yield from found


def _with_reports(found: Sequence[TableLean]) -> list[TableLean]:
    """Mark leans and misfits that chance does not explain, of all p-values together.

    The chi-square of a row alone is its mean again.
    """
    p = np.array([each.lean.p for each in found])
    p_rows = np.array([np.nan if each.lean.rows == 1 else each.lean.p_rows for each in found])
    leans, misfits = np.split(reported(np.concatenate([p, p_rows])), 2)
    return [
        replace(each, mean_by_chance=not lean, squares_by_chance=not misfit)
        for each, lean, misfit in zip(found, leans, misfits, strict=True)
    ]


def leaning_frame(leans: Sequence[TableLean], *, named: bool) -> pd.DataFrame:
    """Return leans below each other, as in adequacy_leaning.csv; ``named``: with table names."""
    lines = []
    for each in leans:
        statistic, outcome = each.key
        lean = each.lean
        lines.append({
            "statistic": statistic, "outcome": outcome, **({TABLE: each.table} if named else {}),
            LEVEL: each.level, "margin": each.rows, "rows": lean.rows, "mean_difference": lean.mean,
            "se": lean.se, "p": lean.p, "leans": each.leans, "chi_square": lean.chi_square,
            "df": lean.df, "p_rows": lean.p_rows, "bias": lean.bias, "misfits": each.misfits,
        })  # fmt: skip
    return pd.DataFrame(lines)
