"""Public facts that ``surveysynth check`` prints about a survey before anything is fitted."""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth.config.build import calibration_of
from surveysynth.config.sections import replicate_lines
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.sample_design import cluster_lines
from surveysynth.estimation.subpopulation import WHERE, shown_rows
from surveysynth.mechanisms.base import gap_of_weights
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.release.documents.codebook import DDI_NAME
from surveysynth.release.facts import files_of, labels_of
from surveysynth.release.folder import DOSSIER_NAMES, INDEX_NAME, PRIVACY_NAME
from surveysynth.release.public_checks import (
    check_formats,
    public_warnings,
    rare_levels,
    without_rare,
)
from surveysynth.release.tables.labels import Labels, listed, span, where_words
from surveysynth.release.tables.table import SMALL_SAMPLE
from surveysynth.release.tables.table_builder import public_domains, row_counts, synthetic_columns
from surveysynth.release.warned import Kind, Line, Warned
from surveysynth.survey.pooling import ROUNDING

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign

_SHOWN_CELLS = 40
_DOCUMENTS = ", ".join(
    [INDEX_NAME, "codebook.json", DDI_NAME, PRIVACY_NAME, "README.md", *DOSSIER_NAMES]
)
#: Of ``tests/golden/skewness_study.json``: 1,000 records, a residual skewness of 1, FBS.
SKEWED = (
    "Skewed residuals: down-weighting moves means away from the longer tail, and debiasing cannot "
    "see it. In a study with a skewness of 1 they moved by 0.07 residual SDs at epsilon 10.8 and "
    "by 0.19 at epsilon 5. Choose a transform that makes residuals symmetric."
)

WITHOUT_CLUSTERS = (
    "without psu or design_effect the standard errors of the release are those of a sample without "
    "clusters. If the survey has clusters, name their column as psu, or declare design_effect from "
    "an earlier publication: the variance by replicate weights over that without clusters."
)


def preview_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[Line]:
    """Return validation results, cell sizes n_d and the files of a release, one line each."""
    check_formats(spec, design)
    labels = without_rare(labels_of(spec), rare_levels(spec, design))
    return [
        f"{spec.path}: valid.",
        *_survey_lines(spec, design, model),
        *public_warnings(spec, design),
        "",
        *(line for each in spec.each_table for line in _table_lines(each, design, labels)),
        *_published_lines(spec, design, model),
        "",
    ]


def _table_lines(spec: "Spec", design: "PublicDesign", labels: Labels) -> list[str]:
    """Describe the cells of one table."""
    section = spec.table
    lines: list[str] = []
    if section.name:
        lines.append(f"Table {section.name}, by {listed(section.by) or 'nothing'}:")
    if section.where is not None:
        lines.append(f"Of a subpopulation: {where_words(section.where, labels)}.")
    lines += _cell_lines(public_domains(spec, design), labels)
    if outcomes := synthetic_columns(spec):
        lines.append(
            f"Each is divided further by {listed(outcomes)}, into rows of synthetic records. How "
            "many sample records are in them is confidential: it is neither read nor published."
        )
    return [*lines, ""]


def _survey_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[Line]:
    lines: list[Line] = [
        f"Survey: {design.n:,} records, {design.dropped:,} dropped for missing values."
    ]
    if spec.privacy.adds_noise and spec.survey.missing == "drop":
        lines.append(Warned(
            Kind.ACCURACY,
            "outcomes and weights are not read here. A release also drops records where one of "
            "them is blank; its tables and noise are then for fewer records. Where blanks are more "
            "common at some levels, this moves counts and the means of other outcomes; the release "
            "says so before it draws noise. missing = \"model\" leaves none out.",
        ))  # fmt: skip
    if design.strata is not None:
        lines.append(f"Design: {int(design.strata.max()) + 1:,} strata ({design.strata_name}).")
    lines += cluster_lines(design, model)
    lines += _weight_lines(design)
    lines += replicate_lines(spec.survey, spec.data_path)
    if spec.survey.replicate_weights and not (design.psu_name or design.design_effect):
        lines.append(Warned(Kind.ACCURACY, WITHOUT_CLUSTERS))
    if design.population_size is not None:
        lines.append(f"Population size: {design.population_size:,.10g}.")
    if (calibration := calibration_of(spec, design)) is not None:
        lines.append(f"Calibration: {calibration.words}. It costs nothing.")
        if not (calibration.public and design.public_weight is not None):
            lines.append(
                "  Only the noisy data show whether ratios can keep their bounds. If they cannot, "
                "the release is refused, and continues from the same noise with other bounds."
            )
    lines.append(
        f"Model: {spec.synthesizer.model}, predictors {design.matrix.words}; "
        f"{design.matrix.n_columns} columns, {len(design.matrix.x_cells):,} distinct rows."
    )
    if spec.privacy.down_weights:
        lines += _records_lines(spec, design)
        if any(outcome.is_amount for outcome in design.outcomes):
            lines.append(Warned(Kind.ACCURACY, SKEWED))
    lines += [
        f"Outcome: {each.model_words} "
        f"({each.public_words or ('count' if model.takes_count else each.kind)})."
        for each in design.outcomes
    ]
    if design.learns_weight:
        lines.append(f"Weight: {design.modelled[-1].model_words}.")
    return lines + spec.privacy.risk_lines


def _records_lines(spec: "Spec", design: "PublicDesign") -> list[Line]:
    """State records per coefficient, and what is pooled so that there are enough."""
    from surveysynth.config.build import settings_of
    from surveysynth.mechanisms.pseudo_posterior.mechanism import smallest_records

    settings, smallest = settings_of(spec), smallest_records(design)
    least = settings.least_records_of(design)
    lines: list[Line] = [
        f"Records per coefficient: {smallest:,.4g} for the row of X that has fewest; at least "
        f"{least:.4g} are required (small_strata = {settings.small_strata!r})."
    ]
    if design.pooling is not None:
        lines.append(f"Pooled for that: {design.pooling.words}. {design.pooling.means}")
    elif smallest < least * (1.0 - ROUNDING):
        lines.append(Warned(
            Kind.GUARANTEE,
            f"a row of X has {smallest:,.4g} records per coefficient, fewer than {least:.4g}: the "
            "statement does not cover this release.",
        ))  # fmt: skip
    return lines


def _weight_lines(design: "PublicDesign") -> list[str]:
    """State how public weights are used, or what weights were computed from."""
    name = design.public_weight_name
    if name is None:
        words = f"Weights computed from the design and {listed(design.weights_from or ())}."
        return [words] if design.weights_from and not gap_of_weights(design) else []
    source = ", made of stratum_sizes, with sampling fractions" if design.stratum_sizes else ""
    model = (
        f"log({name}) is a predictor: records that are alike in the others have unequal weights."
        if name in design.predictors
        else "Records with the same row of X have equal weights."
    )
    return [f"Weight: {name}, public{source}: used and published unchanged. {model}"]


def _cell_lines(domains: Domains, labels: Labels) -> list[str]:
    """List unweighted cell sizes; only the smallest cells when there are many."""
    margin, inside = domains.table["is_margin"].to_numpy(dtype=bool), shown_rows(domains)
    interior = np.flatnonzero(~margin & inside)
    shown = interior if interior.size else np.flatnonzero(inside)
    n = domains.n[shown]
    lines = [
        f"Cells: {shown.size:,} and {int(inside.sum()) - shown.size:,} margins; "
        f"{int((n == 0).sum()):,} cells without records (no estimate), "
        f"{int(((n > 0) & (n < SMALL_SAMPLE)).sum()):,} with fewer than {SMALL_SAMPLE} (flagged)."
    ]
    order = np.arange(shown.size)
    if shown.size > _SHOWN_CELLS:
        order = np.sort(np.argsort(n, kind="stable")[:_SHOWN_CELLS])
        lines.append(f"The {_SHOWN_CELLS} smallest:")
    for position in order:
        record = domains.table.iloc[int(shown[position])]
        names = [labels.level(by, str(record[by])) for by in domains.by if by != WHERE]
        lines.append(f"  {n[position]:>8,}  {', '.join(names) or 'All'}")
    return lines


def budget_words(budget: Budget) -> str:
    """Describe a budget of noisy statistics in both currencies."""
    return f"rho = {budget.rho:.4g} (epsilon = {budget.epsilon:.4g} at delta = {budget.delta:.3g})"


def _guarantee(spec: "Spec", design: "PublicDesign", model: "Model") -> str:
    from surveysynth.config.build import settings_of
    from surveysynth.mechanisms.pseudo_posterior.mechanism import outside_of_stated
    from surveysynth.models.weighted import weighted_form

    if not spec.privacy.private:
        return 'risk = "none": NOT private'
    outside = outside_of_stated(design, settings_of(spec), weighted_form(model, design))
    return f"an asymptotic epsilon of at most {spec.privacy.epsilon:g}" + (
        f", {outside}" if outside else ""
    )


def _published_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    privacy = spec.privacy.for_records(design.n)
    datasets = privacy.m * privacy.replicates_per_draw
    files = [
        f"  {', '.join(files_of(each))} ({span(row_counts(each, design))} rows each)"
        for each in spec.each_table
    ]
    if privacy.cost is not None:
        return [
            f"A release publishes, with {budget_words(privacy.cost)}:",
            *files,
            f"  microdata/: {privacy.m} synthetic files of {design.n:,} records, one "
            f"of each draw; the tables rest on {datasets}, {privacy.replicates_per_draw} of each",
            f"  statistics.json, {_DOCUMENTS}",
        ]
    return [
        f"A release publishes, with {_guarantee(spec, design, model)}:",
        *files,
        f"  microdata/: {datasets} synthetic files of {design.n:,} records "
        f"(m = {privacy.m} draws, {privacy.replicates_per_draw} replicates each)",
        f"  {_DOCUMENTS}",
    ]
