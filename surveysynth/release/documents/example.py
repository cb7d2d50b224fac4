"""The worked example of a release's README: the published number that its programs recompute."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.estimation.statistics import LEVEL, statistic_of
from surveysynth.estimation.total_variance import public_row_columns
from surveysynth.release.documents.programs import (
    CalibratedBy,
    ExampleSetting,
    LonelyRule,
    subset_of,
    where_columns,
)
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import (
    PROGRAMS,
    VARIANCE_SUFFIX,
    LabelledColumn,
    base_weight_column,
    fraction_name,
    labelled_columns,
    weight_column,
)
from surveysynth.release.tables.table import ReleaseTable, well_filled
from surveysynth.release.tables.table_builder import Tables
from surveysynth.release.writers.csv import safe_text
from surveysynth.survey.outcome import BELOW

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.survey.survey import PublicDesign


@dataclass(frozen=True)
class Example:
    """The setting of the programs, and the row of the published table that they recompute.

    row: its place in the table, from 0; published: False if its numbers are withheld; table: the
    name of the table, if there are several.
    """

    setting: ExampleSetting
    outcome: str | None
    row: int
    published: bool
    table: str = ""


def make_example(
    facts: ReleaseFacts, tables: Mapping[str, Tables], *, separate_pair: bool
) -> Example:
    """Return a published number to recompute; ``tables``: by name.

    It is a mean of an interior cell, of all records, where there is one. A withheld number is
    chosen only if all are.
    """
    found = [
        (name, of_table, table)
        for name, of_table in facts.each_table.items()
        for of_outcomes in tables[name].values()
        for table in of_outcomes
    ]
    ordered = sorted(
        found, key=lambda each: (each[1].spec.table.where or "", _hardness(each[2].statistic))
    )
    name, of_table, table = next(
        (each for each in ordered if each[2].frame["se"].notna().any()), ordered[0]
    )
    row = _example_row(table, of_table)
    setting = _setting(of_table, table, row, separate_pair=separate_pair)
    if facts.microdata_format in PROGRAMS:
        columns = labelled_columns(facts.design, facts.labels, separate_pair=separate_pair)
        of_rows = [n for each in facts.spec.tables for n in (*each.by, *where_columns(each.where))]
        setting = _with_codes(setting, columns, of_rows)
    published = bool(table.frame["se"].notna().iloc[row])
    return Example(setting, table.outcome, row, published, name)


def _with_codes(
    setting: ExampleSetting, columns: Mapping[str, LabelledColumn], others: Iterable[str]
) -> ExampleSetting:
    """Return the setting for files of Stata or SPSS, whose numbers programs turn back into codes.

    ``columns``: of the files; ``others``: names that the reader may add to CODES.
    """
    named = dict.fromkeys([*setting.codes, *others])
    values = {name: columns[name].values for name in named if name in columns}
    whole = tuple(
        name for name, numbers in values.items()
        if numbers and all(code == str(number) for code, number in numbers.items())
    )  # fmt: skip
    places = {
        name: tuple(numbers) for name, numbers in values.items() if numbers and name not in whole
    }
    return replace(setting, whole=whole, places=places)


def _hardness(statistic: str) -> tuple[bool, ...]:
    """Return a sort key: first the easiest to follow, without sums and in the outcome's units."""
    kind = statistic_of(statistic)
    return (
        kind.additive, kind.is_count, kind.percent, kind.share_below is not None,
        kind.contrast is not None,
    )  # fmt: skip


def _units_by_stratum(design: "PublicDesign") -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of records of each stratum, or of PSUs if variances are by PSU."""
    strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
    if design.psu is not None and design.design_effect is None:
        strata = np.unique(np.stack([strata, design.psu]), axis=1)[0]
    return np.bincount(strata)


def has_lonely_stratum(design: "PublicDesign") -> bool:
    """Return True if some stratum has a single record (or primary sampling unit)."""
    return bool(np.any(_units_by_stratum(design) == 1))


def _example_row(table: ReleaseTable, facts: ReleaseFacts) -> int:
    frame, design = table.frame, facts.design
    shown, first = frame["se"].notna(), 0
    if table.categories:  # a level or a spike, which a program can compare with, and not of none
        outcome = design.outcomes[design.outcome_names.index(str(table.outcome))]
        if outcome.spikes:
            points = ~frame[LEVEL].isin(outcome.category_names[: len(outcome.sides)])
            shown, first = shown & points, int(np.flatnonzero(points)[0])
        shown &= frame["ci_lower"].notna()
    if statistic_of(table.statistic).share_below is not None:  # with an interval to both sides
        shown &= frame["ci_lower"].notna() & frame["ci_upper"].notna()
    # The average rule counts strata by the row's own records: show it where it is simplest.
    if not (has_lonely_stratum(design) and design.lonely_psu == "average"):
        for wanted in (~frame["is_margin"] & shown, shown):
            rows = np.flatnonzero(wanted & well_filled(frame))
            if rows.size:
                return int(rows[0])
    return first


def _cells(
    facts: ReleaseFacts,
    table: ReleaseTable,
    record: "pd.Series[Any]",
    written: Callable[[str], str],
    *,
    typed: bool,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the codes of a row, and for a contrast those of the row it is compared with."""
    # In csv files, which are read as text, no column holds whole numbers.
    numbers = [o.name for o in facts.design.outcomes if typed and not o.is_labelled]
    cell: dict[str, Any] = {
        written(each): int(record[each]) if each in numbers else written(str(record[each]))
        for each in table.by
        if record[each] != facts.labels.of(each).margin
    }
    contrast = statistic_of(table.statistic).contrast
    if contrast is None:
        return cell, None
    name, column = contrast.column, written(contrast.column)

    def code(level: str) -> Any:
        return int(level) if name in numbers else written(level)

    first = cell.get(column) if contrast.first is None else code(contrast.first)
    rest = {key: value for key, value in cell.items() if key != column}
    second = {} if contrast.second is None else {column: code(contrast.second)}
    return {**rest, column: first}, {**rest, **second}


def _setting(
    facts: ReleaseFacts, table: ReleaseTable, row: int, *, separate_pair: bool
) -> ExampleSetting:
    design, record = facts.design, table.frame.iloc[row]
    typed = facts.microdata_format != "csv"

    def written(text: str) -> str:
        return text if typed else safe_text(text)

    def column(name: str | None) -> str | None:
        return None if name is None else written(name)

    where = facts.spec.table.where
    deciding = (*table.by, *where_columns(where))
    others = [name for name in design.outcome_names if name not in deciding]
    outcome = table.outcome or (others or design.outcome_names)[0]
    kind = statistic_of(table.statistic)
    cell, other = _cells(facts, table, record, written, typed=typed)
    weight = weight_column(design)
    level, compared = _level_of(table, row, design)
    lonely: dict[str, LonelyRule] = {"adjust": "adjust", "average": "average"}
    pair = (written(outcome + VARIANCE_SUFFIX), written(weight + VARIANCE_SUFFIX))
    return ExampleSetting(
        statistic=table.statistic,
        rule=facts.spec.linearisation if facts.calibration is None else "plain",
        cell=cell,
        outcome=written(outcome),
        weight=written(weight),
        variance_pair=pair if separate_pair else None,
        strata=column(design.strata_name),
        psu=column(design.psu_name) if design.design_effect is None else None,
        fraction=column(fraction_name(design)),
        population=design.population_size,
        lonely=lonely.get(design.lonely_psu, "skip") if has_lonely_stratum(design) else "none",
        file_format=facts.microdata_format,
        design_effect=design.design_effect,
        public=tuple(written(name) for name in public_row_columns(design))
        if facts.mechanism.combining == "total_variance"
        else None,
        level=written(level) if isinstance(level, str) else level,
        compared=compared,
        df_design=float(facts.df_design),
        denominator=(written(kind.of[1]), written(kind.of[1] + VARIANCE_SUFFIX))
        if kind.of
        else None,
        other_cell=other,
        subset=subset_of(facts, where, (outcome, *kind.of)),
        calibrated=_calibrated(facts, written, separate_pair=separate_pair),
    )


def _calibrated(
    facts: ReleaseFacts, written: Callable[[str], str], *, separate_pair: bool
) -> CalibratedBy | None:
    """Return the calibration variables as the files have them, of a pair for variances its own."""
    if facts.calibration is None:
        return None

    def column(name: str) -> str:
        own = separate_pair and name in facts.design.outcome_names
        return written(name + VARIANCE_SUFFIX if own else name)

    base = base_weight_column(facts.design)
    if separate_pair and facts.design.public_weight is None:
        base += VARIANCE_SUFFIX
    margins = tuple(
        (tuple(map(written, each.by)), None if each.amount is None else column(each.amount))
        for each in facts.calibration.margins
    )
    return CalibratedBy(written(base), margins, facts.design.population_size is not None)


def _level_of(
    table: ReleaseTable, row: int, design: "PublicDesign"
) -> tuple[str | float | None, str]:
    """Return the level whose indicator replaces the outcome, and how values compare with it.

    None for an outcome that is a number. A side of a split without spikes is all from the split
    on, or all below it.
    """
    if table.outcome is None:
        return None, "=="
    outcome = design.outcomes[design.outcome_names.index(table.outcome)]
    if table.categories:
        level = str(table.frame[LEVEL].iloc[row])
    elif outcome.is_labelled:
        level = outcome.levels[-1]
    else:
        return None, "=="
    if outcome.split is not None and not outcome.spikes:
        return outcome.split, "<" if level == outcome.side_name(BELOW) else ">="
    return level if outcome.is_labelled else float(level), "=="
