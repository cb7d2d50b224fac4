"""What ``surveysynth check`` says about a survey before anything is fitted: public facts only."""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth.estimation.clusters import cluster_lines
from surveysynth.estimation.domains import Domains
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.release.facts import labels_of
from surveysynth.release.rare_levels import rare_level_warnings, rare_levels, without_rare
from surveysynth.release.tables.labels import Labels, listed
from surveysynth.release.tables.making import public_domains, rows_of
from surveysynth.release.tables.table import SMALL_SAMPLE
from surveysynth.report.formats import table_files
from surveysynth.survey.pooling import ROUNDING

if TYPE_CHECKING:
    from surveysynth.models.base import Model
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

_SHOWN_CELLS = 40


def preview_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    """Validation results, cell sizes n_d and the files of a release, one line each."""
    domains = public_domains(spec, design)
    rare = rare_levels(spec, design)
    return [
        f"{spec.path}: valid.",
        *_survey_lines(spec, design, model),
        *(f"WARNING: {warning}" for warning in rare_level_warnings(rare)),
        "",
        *_cell_lines(domains, without_rare(labels_of(spec), rare)),
        *_outcome_lines(spec),
        "",
        *_published_lines(spec, domains, rows_of(spec, design).n_rows),
        "",
    ]


def _survey_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    lines = [f"Survey: {design.n:,} records, {design.dropped:,} dropped for missing values."]
    if design.strata is not None:
        lines.append(f"Design: {int(design.strata.max()) + 1:,} strata ({design.strata_name}).")
    lines += cluster_lines(design, model)
    lines += _weight_lines(design)
    if design.population_size is not None:
        lines.append(f"Population size: {design.population_size:,.10g}.")
    lines.append(
        f"Model: {spec.synthesizer.model}, predictors {design.matrix.formula}, "
        f"{design.matrix.n_columns} columns, {len(design.matrix.x_cells):,} distinct rows."
    )
    if not spec.privacy.strict:
        lines += _records_lines(spec, design)
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


def _records_lines(spec: "Spec", design: "PublicDesign") -> list[str]:
    """Records per coefficient, and what is pooled so that there are enough."""
    from surveysynth.mechanisms.pseudo_posterior.statement import POOLED_MEANS, smallest_records
    from surveysynth.spec.build import settings_of

    least, smallest = settings_of(spec).least_records, smallest_records(design)
    lines = [
        f"Records per coefficient: {smallest:,.4g} for the row of X that has fewest; at least "
        f"{least:g} are asked for (small_strata = {spec.privacy.small_strata!r})."
    ]
    if design.pooling is not None:
        lines.append(f"Pooled for that: {design.pooling.words}. {POOLED_MEANS}")
    elif smallest < least * (1.0 - ROUNDING):
        lines.append("There are fewer: the release is outside of what its statement says.")
    return lines


def _weight_lines(design: "PublicDesign") -> list[str]:
    """What becomes of public weights."""
    name = design.public_weight_name
    if name is None:
        return []
    source = ", made of stratum_sizes, with sampling fractions" if design.stratum_sizes else ""
    model = (
        f"log({name}) is a predictor: records that are alike in the others have unequal weights."
        if name in design.predictors
        else "Records with the same row of X have equal weights."
    )
    return [f"Weight: {name}, public{source}: used and published as it is. {model}"]


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


def _outcome_lines(spec: "Spec") -> list[str]:
    """What divides the cells further: outcomes, whose levels nobody counts here."""
    outcomes = [name for name in spec.tables.by if name not in spec.public_by]
    if not outcomes:
        return []
    return [
        f"Each is divided further by {listed(outcomes)}, into rows of synthetic records. How many "
        "sample records lie there is confidential: it is not looked at, and not published."
    ]


def budget_words(budget: Budget) -> str:
    """A budget of noisy statistics in both currencies."""
    return f"rho = {budget.rho:.4g} (epsilon = {budget.epsilon:.4g} at delta = {budget.delta:.3g})"


def row_label(domains: Domains, labels: Labels, row: int) -> str:
    """The levels of a row of the table."""
    record = domains.table.iloc[row]
    return ", ".join(labels.level(by, str(record[by])) for by in domains.by) or "All"


def _published_lines(spec: "Spec", domains: Domains, rows: int) -> list[str]:
    tables, privacy = spec.tables, spec.privacy.for_records(int(domains.n[0]))
    formats = (*tables.formats, *tables.figures)
    names = [f"{folder}/{name}" for folder, name, _ in table_files(tables.statistics, formats)]
    datasets = privacy.m * privacy.replicates_per_draw
    if privacy.strict:
        return [
            f"A release publishes, with {budget_words(privacy.cost)}:",
            f"  {', '.join(names)} ({rows:,} rows each)",
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
        f"  {', '.join(names)} ({rows:,} rows each)",
        f"  microdata/: {datasets} synthetic files of {int(domains.n[0]):,} records "
        f"(m = {privacy.m} draws, {privacy.replicates_per_draw} replicates each)",
        "  codebook.json, privacy.json, README.md",
    ]
