"""The tables of a release, made from its specification: rows, estimates, notes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.config.build import calibration_of
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError
from surveysynth.estimation.combining import (
    Combined,
    CombiningRule,
    PartialSynthesis,
    interval_of,
    korn_graubard_interval,
)
from surveysynth.estimation.domains import (
    ByOutcome,
    Domains,
    RowsByOutcome,
    build_domains,
    build_rows,
)
from surveysynth.estimation.estimates import Estimates, Key, TableLines
from surveysynth.estimation.linearised import Contrast
from surveysynth.estimation.sample_design import SampleDesign, clusters_of
from surveysynth.estimation.statistics import Statistic, statistic_of, table_keys
from surveysynth.estimation.subpopulation import (
    Subpopulation,
    build_public_rows,
    build_subpopulation,
    displayed_pairs,
    displayed_rows,
)
from surveysynth.estimation.total_variance import TotalVariance, public_rows_of
from surveysynth.mechanisms.base import COMBINING_RULES, Mechanism
from surveysynth.release.tables.layout import Labels, listed
from surveysynth.release.tables.table import (
    ReleaseTable,
    TableNumbers,
    make_table,
    policy_of,
)
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.where import columns_of, parse_where


def by_korn_graubard(spec: Spec, kind: Statistic) -> bool:
    """Return whether a statistic has the intervals of the NCHS standards, which judge by them."""
    return spec.table.flags in ("nchs", "nchs_marked") and kind.standard == "proportion"


def table_notes(spec: Spec, design: PublicDesign, key: Key) -> list[str]:
    """Return what readers of a table must know about its estimates and intervals."""
    kind, m, notes = statistic_of(key[0]), spec.privacy.m, []
    outcome = None if key[1] is None else design.outcomes[key[1]]
    if kind.binary and outcome is not None and outcome.is_labelled:  # which level counts
        label = Labels(spec.labels).level(outcome.name, outcome.levels[-1])
        notes.append(f"Of all with a value of {outcome.name}, the share of {label!r}.")
    noise = " and the noise that protects privacy" if m > 1 else ""
    notes.append(f"Standard errors and intervals include sampling error{noise}.")
    notes += _known_totals(spec, kind)
    if kind.share_below is not None:
        notes.append("Intervals are those of the distribution function, inverted.")
    if kind.contrast is not None:
        notes.append(
            f"{_contrasted(spec, kind.contrast)}; standard errors are those of the contrast "
            "itself. Sample records are those of the row with fewer."
        )
    if kind.by_level and kind.contrast is None:
        notes.append("The percentages of a row add up to 100 over the levels.")
    if by_korn_graubard(spec, kind):
        notes.append(
            "Intervals are Korn and Graubard's: Clopper and Pearson's at the effective sample size."
        )
    elif kind.interval == "logit":
        notes.append(
            "Intervals are computed on the logit scale, so that they stay between 0% and 100%."
        )
    if spec.table.where is not None:
        notes.append(
            "Estimates for a subpopulation: standard errors are those of domain estimation, in "
            "which all records of the sample enter, inside or outside."
        )
    if synthetic := synthetic_columns(spec):
        titles = listed([Labels(spec.labels).title(name) for name in synthetic])
        notes.append(
            f"Rows by {titles} contain different synthetic records in every dataset, so that no "
            "number of sample records is published for them; flags use the dataset with the fewest."
        )
    if clusters := clusters_of(design):
        notes.append(clusters.note)
    if m == 1:
        notes.append(
            "With a single draw (m = 1) the variance of the synthesis cannot be estimated: "
            "the standard errors leave it out."
        )
    if design.dropped:
        left_out = f"{design.dropped:,} survey records with missing values were left out."
        notes.append(f"{left_out} {design.shift}".strip())
    return notes


def _known_totals(spec: Spec, kind: Statistic) -> list[str]:
    """Name the totals that weights add up to, where estimates show them."""
    if spec.calibration:
        margins = "; ".join(each.words for each in spec.calibration)
        return [
            f"Weights are calibrated to published totals of {margins}; standard errors allow for "
            "that, and estimates that are such totals have none."
        ]
    if kind.is_count and spec.linearisation == "ratio":
        part = "" if spec.table.where is None else " of all records, of which these are a part,"
        return [
            f"{kind.title}{part} add up to the public population size, which has no sampling error."
        ]
    return []


def _contrasted(spec: Spec, contrast: Contrast) -> str:
    """Name the rows that are compared, in words."""

    def named(level: str | None) -> str:
        labels, column = Labels(spec.labels), contrast.column
        return f"all of {labels.title(column)}" if level is None else labels.level(column, level)

    first = "Each row" if contrast.first is None else named(contrast.first)
    between = {"difference": "less", "ratio": "over"}[contrast.kind]
    return f"{first} {between} {named(contrast.second)}"


def synthetic_columns(spec: Spec) -> tuple[str, ...]:
    """Return the outcomes that decide in which row of a table a record is.

    These are outcomes among the by columns or in the condition of the subpopulation.
    """
    where = spec.table.where
    named = spec.table.by if where is None else (*spec.table.by, *columns_of(parse_where(where)))
    return tuple(name for name in spec.synthesizer.outcome if name in named)


Tables: TypeAlias = Mapping[str, Sequence[ReleaseTable]]
"""One table of a release: by statistic, one ``ReleaseTable`` an outcome."""


def rows_of(spec: Spec, design: PublicDesign) -> Domains | RowsByOutcome:
    """Return the rows of one table, with labeled margins.

    Of a subpopulation there are also rows outside, which ``displayed_rows`` leaves out.
    Raises ``InputError`` for a condition that the columns do not allow, and for contrasts of levels
    that do not exist, before anything is spent.
    """
    by, inside = spec.table.by, subpopulation_of(spec, design)
    outcomes = {
        outcome.name: ByOutcome(column, outcome)
        for column, outcome in enumerate(design.outcomes)
        if outcome.name in by
    }
    margins = {column: spec.margin_label(column) for column in by}
    if inside is None:
        rows = build_rows(design.frame, by, design.levels, outcomes, margins)
    else:
        rows = build_subpopulation(inside, by, design.levels, outcomes, margins)
    for contrast in (statistic_of(name).contrast for name in spec.table.statistics):
        if contrast is not None:
            try:
                displayed_pairs(contrast, rows)
            except InputError as error:
                raise InputError(f"tables.statistics{_named(spec)}: {error}") from None
    return rows


def row_counts(spec: Spec, design: PublicDesign) -> list[int]:
    """Return the rows of one table by statistic; only some rows show contrasts."""
    rows = rows_of(spec, design)
    shown, counts = displayed_rows(rows), []
    for contrast in (statistic_of(name).contrast for name in spec.table.statistics):
        holds = shown if contrast is None else shown & displayed_pairs(contrast, rows).holds
        counts.append(int(holds.sum()))
    return counts


def subpopulation_of(spec: Spec, design: PublicDesign) -> Subpopulation | None:
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


def _named(spec: Spec) -> str:
    return f" of table {spec.table.name!r}" if spec.table.name else ""


def public_domains(spec: Spec, design: PublicDesign) -> Domains:
    """Return the rows of one table over all levels of outcomes, public with their record numbers.

    Of a subpopulation these are the rows that public columns allow inside.
    """
    inside, by = subpopulation_of(spec, design), spec.public_by
    margins = {column: spec.margin_label(column) for column in by}
    if inside is not None:
        return build_public_rows(inside, by, design.levels, margins)
    return build_domains(design.frame, by, design.levels, margins)


def keys_of(spec: Spec) -> tuple[Key, ...]:
    """Return every table that a specification asks for, in its order."""
    return table_keys(spec.table.statistics, spec.declared, spec.table.by)


def estimates_by_table(
    spec: Spec,
    design: PublicDesign,
    mechanism: Mechanism | None = None,
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


def tables_by_name(
    spec: Spec, design: PublicDesign, estimates: Mapping[str, Estimates]
) -> dict[str, Tables]:
    """Return ``release_tables`` of every table of a release, by name."""
    return {
        each.table.name or "": release_tables(each, design, estimates[each.table.name or ""])
        for each in spec.each_table
    }


def estimates_for(
    spec: Spec,
    design: PublicDesign,
    mechanism: Mechanism | None = None,
    rule: CombiningRule | None = None,
) -> Estimates:
    """Return the collector of datasets for one table.

    It takes the datasets of a release by ``mechanism``, or without it one dataset alone, with the
    standard errors of ``rule``.
    """
    alone = mechanism is None
    if mechanism is not None:
        by_parts = mechanism.combining == "partial_synthesis"
        rule = PartialSynthesis() if by_parts else TotalVariance(public_rows_of(design))
    return Estimates(
        rows_of(spec, design),
        SampleDesign.from_public(design),
        keys_of(spec),
        linearisation=spec.linearisation,
        population_size=design.population_size,
        draws=1 if alone else spec.privacy.m,
        replicates=1 if alone else spec.privacy.replicates_per_draw,
        rule=rule,
        outcomes=design.outcomes,
        calibration=calibration_of(spec, design),
    )


def release_tables(spec: Spec, design: PublicDesign, estimates: Estimates) -> Tables:
    """Combine one table, by statistic in the order of the specification."""
    tables: dict[str, list[ReleaseTable]] = {}
    for key in estimates.keys:
        made = _table(spec, design, key, estimates.combined(key), estimates)
        tables.setdefault(key[0], []).append(made)
    return tables


def _table(
    spec: Spec, design: PublicDesign, key: Key, combined: Combined, estimates: Estimates
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
    pooled = None
    if design.pooling is not None:  # records count as far as public columns place them
        pooled = estimates.rows.shares(design.pooling.record)[lines.held] >= 0.5
    numbers = TableNumbers(
        estimate=combined.estimate[held], se=combined.standard_error[held], df=combined.df[held],
        df_design=combined.df_design, ci_lower=lower[held], ci_upper=upper[held], n=lines.n,
        by_dataset=lines.by_dataset, pooled=pooled,
    )  # fmt: skip
    m, r = spec.privacy.m, spec.privacy.replicates_per_draw
    return make_table(
        statistic,
        None if column is None else design.outcome_names[column],
        lines.cells,
        numbers,
        level=spec.table.level,
        notes=table_notes(spec, design, key),
        flags=policy_of(spec.table.flags),
        categories=categories,
        method=f"Method: estimates from {m * r} synthetic dataset{'s' * (m * r > 1)} (m = {m} "
        f"released draw{'s' * (m > 1)}), stacked; standard errors by Taylor linearization, "
        f"combined by the {COMBINING_RULES[spec.privacy.combining]}.",
    )


def _interval(
    spec: Spec, kind: Statistic, combined: Combined, lines: TableLines, times: int
) -> tuple[FloatArray, FloatArray]:
    """Return the interval that the specification asks for, of every row and level."""
    level = spec.table.level
    if not by_korn_graubard(spec, kind):
        return interval_of(kind, combined, level)
    n = np.zeros(lines.held.size, dtype=np.int64)
    n[lines.held] = lines.n
    return korn_graubard_interval(combined, np.repeat(n, times), level)
