"""What ``surveysynth check`` says about a survey before anything is fitted: public facts only."""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth.estimation.clusters import cluster_lines
from surveysynth.estimation.domains import Domains
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.release.facts import labels_of
from surveysynth.release.tables.labels import Labels
from surveysynth.release.tables.making import domains_of
from surveysynth.release.tables.table import SMALL_SAMPLE
from surveysynth.report.formats import table_files

if TYPE_CHECKING:
    from surveysynth.models.base import Model
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

_SHOWN_CELLS = 40


def preview_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    """Validation results, cell sizes n_d and the files of a release, one line each."""
    domains = domains_of(spec, design)
    return [
        f"{spec.path}: valid.",
        *_survey_lines(spec, design, model),
        "",
        *_cell_lines(domains, labels_of(spec)),
        "",
        *_published_lines(spec, domains),
        "",
    ]


def _survey_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    lines = [f"Survey: {design.n:,} records, {design.dropped:,} dropped for missing values."]
    if design.strata is not None:
        lines.append(f"Design: {int(design.strata.max()) + 1:,} strata ({design.strata_name}).")
    lines += cluster_lines(design, model)
    if design.population_size is not None:
        lines.append(f"Population size: {design.population_size:,.10g}.")
    lines.append(
        f"Model: {spec.synthesizer.model}, predictors {design.matrix.formula}, "
        f"{design.matrix.n_columns} columns, {len(design.matrix.x_cells):,} distinct rows."
    )
    lines += [
        f"Outcome: {each.model_words} ({each.public_words or each.kind})."
        for each in design.outcomes
    ]
    privacy = spec.privacy
    if privacy.risk in ("count", "pairwise"):
        same = ", ".join(privacy.pattern) or "none, all records together"
        lines.append(
            f"Risk: {privacy.risk}, radius {privacy.radius:g} of the outcome, pattern {same}; "
            "linear weights."
        )
    elif privacy.weight_map == "linear":
        lines.append(f"Risk: {privacy.risk}; linear weights.")
    return lines


def _cell_lines(domains: Domains, labels: Labels) -> list[str]:
    """Unweighted sizes; the smallest cells when there are many."""
    interior = np.flatnonzero(~domains.table["is_margin"].to_numpy(dtype=bool))
    shown = interior if interior.size else np.arange(domains.n_rows)
    n = domains.n[shown]
    lines = [
        f"Cells: {shown.size:,} and {domains.n_rows - shown.size:,} margins; "
        f"{int((n == 0).sum()):,} cells without records (no estimate), "
        f"{int(((n > 0) & (n < SMALL_SAMPLE)).sum()):,} with fewer than {SMALL_SAMPLE} (flagged)."
    ]
    order = np.arange(shown.size)
    if shown.size > _SHOWN_CELLS:
        order = np.sort(np.argsort(n, kind="stable")[:_SHOWN_CELLS])
        lines.append(f"The {_SHOWN_CELLS} smallest:")
    for position in order:
        lines.append(f"  {n[position]:>8,}  {row_label(domains, labels, int(shown[position]))}")
    return lines


def budget_words(budget: Budget) -> str:
    """A budget of noisy statistics in both currencies."""
    return f"rho = {budget.rho:.4g} (epsilon = {budget.epsilon:.4g} at delta = {budget.delta:.3g})"


def row_label(domains: Domains, labels: Labels, row: int) -> str:
    """The levels of a row of the table."""
    record = domains.table.iloc[row]
    return ", ".join(labels.level(by, str(record[by])) for by in domains.by) or "All"


def _published_lines(spec: "Spec", domains: Domains) -> list[str]:
    tables, privacy = spec.tables, spec.privacy.for_records(int(domains.n[0]))
    formats = (*tables.formats, *tables.figures)
    names = [f"{folder}/{name}" for folder, name, _ in table_files(tables.statistics, formats)]
    datasets = privacy.m * privacy.replicates_per_draw
    if privacy.strict:
        return [
            f"A release publishes, with {budget_words(privacy.budget)}:",
            f"  {', '.join(names)} ({domains.n_rows:,} rows each)",
            f"  microdata/: {privacy.m} synthetic files of {int(domains.n[0]):,} records, one "
            f"of each draw; the tables rest on {datasets}, {privacy.replicates_per_draw} of each",
            "  statistics.json, codebook.json, privacy.json, README.md",
        ]
    guarantee = (
        f"epsilon at most {privacy.epsilon:g}"
        if privacy.risk != "none"
        else 'risk = "none": NOT private'
    )
    return [
        f"A release publishes, with {guarantee}:",
        f"  {', '.join(names)} ({domains.n_rows:,} rows each)",
        f"  microdata/: {datasets} synthetic files of {int(domains.n[0]):,} records "
        f"(m = {privacy.m} draws, {privacy.replicates_per_draw} replicates each)",
        "  codebook.json, privacy.json, README.md",
    ]
