"""Builds the tables of a release from its specification: rows, estimates, words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.config.build import calibration_of
from surveysynth.errors import InputError
from surveysynth.estimation.combining import (
    Combined,
    CombiningRule,
    PartialSynthesis,
    interval_of,
    korn_graubard_interval,
    t_interval,
)
from surveysynth.estimation.domains import (
    ByOutcome,
    Domains,
    RowsByOutcome,
    TableRows,
    build_domains,
    build_rows,
)
from surveysynth.estimation.estimates import Estimates, Key, TableLines
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic, statistic_of, table_keys
from surveysynth.estimation.subpopulation import (
    Subpopulation,
    build_public_rows,
    build_subpopulation,
    shown_pairs,
    shown_rows,
)
from surveysynth.estimation.total_variance import TotalVariance, public_rows_of
from surveysynth.release.tables.flags import policy_of
from surveysynth.release.tables.table import ReleaseTable, TableNumbers, make_table
from surveysynth.release.tables.table_notes import (
    by_korn_graubard,
    level_note,
    method_note,
    table_notes,
)
from surveysynth.survey.where import parse_where

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.mechanisms.base import Mechanism
    from surveysynth.survey.survey import PublicDesign

Tables: TypeAlias = Mapping[str, Sequence[ReleaseTable]]
"""One table of a release: by statistic, one ``ReleaseTable`` an outcome."""


def rows_of(spec: "Spec", design: "PublicDesign") -> Domains | RowsByOutcome:
    """Return the rows of one table, with labelled margins.

    Of a subpopulation there are also rows outside, which ``shown_rows`` leaves out.
    Raises ``InputError`` for a condition that the columns do not allow, and for contrasts of levels
    that do not exist, before anything is spent.
    """
    rows = _rows(spec, design, spec.table.by, subpopulation_of(spec, design))
    for contrast in (statistic_of(name).contrast for name in spec.table.statistics):
        if contrast is not None:
            try:
                shown_pairs(contrast, rows)
            except InputError as error:
                raise InputError(f"tables.statistics{_named(spec)}: {error}") from None
    return rows


def row_counts(spec: "Spec", design: "PublicDesign") -> list[int]:
    """Return the rows of one table by statistic; only some rows show contrasts."""
    rows = rows_of(spec, design)
    shown, counts = shown_rows(rows), []
    for contrast in (statistic_of(name).contrast for name in spec.table.statistics):
        holds = shown if contrast is None else shown & shown_pairs(contrast, rows).holds
        counts.append(int(holds.sum()))
    return counts


def _rows(
    spec: "Spec", design: "PublicDesign", by: Sequence[str], inside: Subpopulation | None
) -> Domains | RowsByOutcome:
    outcomes = {
        outcome.name: ByOutcome(column, outcome)
        for column, outcome in enumerate(design.outcomes)
        if outcome.name in by
    }
    margins = {column: spec.margin_label(column) for column in by}
    if inside is None:
        return build_rows(design.frame, by, design.levels, outcomes, margins)
    return build_subpopulation(inside, by, design.levels, outcomes, margins)


def subpopulation_of(spec: "Spec", design: "PublicDesign") -> Subpopulation | None:
    """Return the subpopulation of one table, or None for all records.

    Raises ``InputError`` for a condition that the columns do not allow.
    """
    where = spec.table.where
    if where is None:
        return None
    try:
        return Subpopulation(parse_where(where), design.frame, design.outcomes)
    except InputError as error:
        raise InputError(f"tables.where{_named(spec)}: {error}") from None


def _named(spec: "Spec") -> str:
    """Name one of several tables for a message."""
    return f" of table {spec.table.name!r}" if spec.table.name else ""


def public_domains(spec: "Spec", design: "PublicDesign") -> Domains:
    """Return the rows of one table over all levels of outcomes, public with their record numbers.

    Of a subpopulation these are the rows that public columns allow inside.
    """
    inside, by = subpopulation_of(spec, design), spec.public_by
    margins = {column: spec.margin_label(column) for column in by}
    if inside is not None:
        return build_public_rows(inside, by, design.levels, margins)
    return build_domains(design.frame, by, design.levels, margins)


def keys_of(spec: "Spec") -> tuple[Key, ...]:
    """Return every table that a specification asks for, in its order."""
    return table_keys(spec.table.statistics, spec.declared, spec.table.by)


def estimates_of_each(
    spec: "Spec",
    design: "PublicDesign",
    mechanism: "Mechanism | None" = None,
    rule: CombiningRule | None = None,
) -> dict[str, Estimates]:
    """Return ``estimates_for`` every table of a release, by name, "" for a table without one."""
    return {
        each.table.name or "": estimates_for(each, design, mechanism, rule)
        for each in spec.each_table
    }


def flat_tables(tables: Mapping[str, Tables]) -> Tables:
    """Return the tables of a release by statistic, or several by "NAME/statistic"."""
    return {
        f"{name}/{statistic}" if name else statistic: of_outcomes
        for name, table in tables.items()
        for statistic, of_outcomes in table.items()
    }


def tables_of_each(
    spec: "Spec", design: "PublicDesign", estimates: Mapping[str, Estimates]
) -> dict[str, Tables]:
    """Return ``release_tables`` of every table of a release, by name."""
    return {
        each.table.name or "": release_tables(each, design, estimates[each.table.name or ""])
        for each in spec.each_table
    }


def estimates_for(
    spec: "Spec",
    design: "PublicDesign",
    mechanism: "Mechanism | None" = None,
    rule: CombiningRule | None = None,
) -> Estimates:
    """Return the collector of datasets for one table.

    It takes the datasets of a release by ``mechanism``, or without it one dataset alone, with the
    standard errors of ``rule``.
    """
    alone = mechanism is None
    return Estimates(
        rows_of(spec, design),
        SampleDesign.from_public(design),
        keys_of(spec),
        linearisation=spec.linearisation,
        population_size=design.population_size,
        draws=1 if alone else spec.privacy.m,
        replicates=1 if alone else spec.privacy.replicates_per_draw,
        rule=rule if mechanism is None else rule_of(mechanism, design),
        outcomes=design.outcomes,
        calibration=calibration_of(spec, design),
    )


def rule_of(mechanism: "Mechanism", design: "PublicDesign") -> CombiningRule:
    """Return the rule by which datasets from draws of a mechanism combine."""
    if mechanism.combining == "partial_synthesis":
        return PartialSynthesis()
    return TotalVariance(public_rows_of(design))


def release_tables(spec: "Spec", design: "PublicDesign", estimates: Estimates) -> Tables:
    """Combine one table, by statistic in the order of the specification."""
    tables: dict[str, list[ReleaseTable]] = {}
    for key in estimates.keys:
        made = _table(spec, design, key, estimates.combined(key), estimates)
        tables.setdefault(key[0], []).append(made)
    return tables


def _table(
    spec: "Spec", design: "PublicDesign", key: Key, combined: Combined, estimates: Estimates
) -> ReleaseTable:
    statistic, column = key
    lines, categories = estimates.lines(key), estimates.levels(key)
    held = np.repeat(lines.held, len(categories) or 1)
    kind = statistic_of(statistic)
    named = kind.of or (() if column is None else (design.outcome_names[column],))
    if kind.interval == "t" and not kind.signed and all(
        each.is_positive for each in design.outcomes if each.name in named
    ):  # fmt: skip
        kind = replace(kind, interval="positive")
    lower, upper = _interval(spec, kind, combined, lines, len(categories) or 1)
    pooled = _pooled(estimates.rows, design)
    numbers = TableNumbers(
        estimate=combined.estimate[held],
        se=combined.standard_error[held],
        df=combined.df[held],
        df_design=combined.df_design,
        ci_lower=lower[held],
        ci_upper=upper[held],
        n=lines.n,
        by_dataset=lines.by_dataset,
        pooled=None if pooled is None else pooled[lines.held],
    )
    return make_table(
        statistic,
        None if column is None else design.outcome_names[column],
        lines.cells,
        numbers,
        level=spec.table.level,
        notes=[*level_note(spec, design, key), *table_notes(spec, design, statistic)],
        flags=policy_of(spec.table.flags, spec.table.flag_action),
        categories=categories,
        method=method_note(spec),
    )


def _interval(
    spec: "Spec", kind: Statistic, combined: Combined, lines: TableLines, times: int
) -> tuple[FloatArray, FloatArray]:
    """Return the interval that the specification asks for, of every row and level."""
    level = spec.table.level
    if spec.table.interval == "t":
        return t_interval(combined, level)
    if not by_korn_graubard(spec, kind):
        return interval_of(kind, combined, level)
    n = np.zeros(lines.held.size, dtype=np.int64)
    n[lines.held] = lines.n
    return korn_graubard_interval(combined, np.repeat(n, times), level)


def _pooled(rows: TableRows, design: "PublicDesign") -> BoolArray | None:
    """Return rows (D,) with at least half of their records in pooled levels; None without pooling.

    Records count as far as public columns place them.
    """
    if design.pooling is None:
        return None
    pooled = rows.shares(design.pooling.record)
    return np.asarray(pooled >= 0.5, dtype=bool)
