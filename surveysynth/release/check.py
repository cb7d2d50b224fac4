"""Checks before anything is spent, and what ``surveysynth check`` prints of them.

A by column is public, and its levels are published as they stand in the file. A level of one record
may be an amount that was typed into the wrong column. Where levels are declared
([labels.COLUMN] levels) such a record is refused; where they are not, a warning counts them, and
``surveysynth check`` does not print them. Outcomes and weights are not looked at (strict 5).
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing
from surveysynth.config.build import calibration_of
from surveysynth.config.replicates import replicate_lines
from surveysynth.errors import (
    FewRecordsWarning,
    FormulaCutWarning,
    InputError,
    RecordsLeftOutWarning,
)
from surveysynth.estimation.clusters import cluster_lines
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.subpopulation import WHERE, shown_rows
from surveysynth.mechanisms.base import gap_of_weights
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.mechanism import GUARANTEE, column_names
from surveysynth.mechanisms.noisy_statistics.release.group_centres import FIRST_SHARE
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    budget_of_blocks,
    check_public,
    location_design,
    require_general,
    unit_sizes,
)
from surveysynth.mechanisms.noisy_statistics.release.unit_products import USUAL_ICC
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, Module, NoisySettings
from surveysynth.models.base import psu_codes
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.release.documents.codebook import DDI_NAME
from surveysynth.release.facts import curve_files, files_of, labels_of
from surveysynth.release.folder import DOSSIER_NAMES, PRIVACY_NAME
from surveysynth.release.microdata import (
    check_names,
    format_of,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.tables.labels import Labels, listed, span, where_words
from surveysynth.release.tables.table import SMALL_SAMPLE
from surveysynth.release.tables.table_builder import public_domains, row_counts, synthetic_columns
from surveysynth.survey.formula import quote
from surveysynth.survey.learned import LearnedTransform
from surveysynth.survey.outcome import needs_general_form
from surveysynth.survey.pooling import ROUNDING
from surveysynth.survey.records import LEAST_RECORDS, MAX_LEVELS
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.weights_from import RHO_FACTORS, refuse_sources

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
    from surveysynth.models.base import Model


def check_formats(spec: "Spec", design: "PublicDesign") -> None:
    """Raise ``InputError`` for names of columns that files of the microdata cannot have."""
    pair = spec.privacy.down_weights and spec.synthesizer.inference == "debiased"
    synthetic = synthetic_column_names(design, separate_pair=pair)
    check_names((*public_column_names(design), *synthetic), format_of(spec))


def check_calibrated_name(design: "PublicDesign") -> None:
    """Raise ``InputError`` where a column already has the name of the calibrated weight."""
    name = weight_column(design)
    if name in design.frame or name in design.outcome_names:
        raise InputError(
            f"calibration: the microdata name the calibrated weight {name!r}, but the survey has "
            "a column of this name; rename it."
        )


#: A spike or a side of a split with fewer records has a spread and weights of its own that are
#: hardly determined.
LEAST_OF_A_KIND = 50


def formula_warnings(design: "PublicDesign") -> tuple[str, ...]:
    """Name the levels, cells, and interactions without coefficients of their own; or nothing."""
    texts = []
    if left_out := design.matrix.left_out:
        texts.append(
            f"The default formula leaves out {', '.join(left_out)}, whose cells have hardly any "
            "records, so these cells are modeled by main effects alone. Make these columns "
            "coarser, or write a formula of your own."
        )
    if design.pooling is not None:
        texts.append(
            f"The model's formula was cut, since few records support it: {design.pooling.words}. "
            f"{design.pooling.means} Make these columns coarser to decide yourself what is joined."
        )
    return tuple(texts)


def few_record_warnings(design: "PublicDesign") -> tuple[str, ...]:
    """Warn of kinds of values that have few records even if all kinds are equally common.

    How many records are at a spike is confidential; the number of records and of kinds is not.
    """
    return tuple(
        f"{outcome.name!r} has {kinds} kinds of values "
        f"({', '.join(outcome.category_names)}) and {design.n:,} records: "
        f"{design.n / kinds:,.0f} of each, if all are equally common. Kinds with "
        f"fewer than {LEAST_OF_A_KIND} have a spread and weights that are hardly determined, and "
        "their totals can be far off. Declare fewer spikes, or leave the outcome out."
        for outcome in design.outcomes
        if outcome.is_amount and (kinds := len(outcome.category_names)) > 1
        and design.n < LEAST_OF_A_KIND * kinds
    )


def left_out_warning(design: "PublicDesign") -> tuple[str, ...]:
    """Warn where leaving out records with missing cells moves counts; empty where it does not."""
    return (
        f"{design.dropped:,} records with missing values are left out. {design.shift} Fill the "
        "cells in, leave the outcome with most blanks for a release of its own, or by noisy "
        "statistics set missing = \"model\".",
    ) * bool(design.shift)


def warn_of_design(design: "PublicDesign") -> None:
    """Issue a Python warning for each of these reasons, all public, to the caller of a release."""
    for texts, category in (
        (formula_warnings(design), FormulaCutWarning),
        (few_record_warnings(design), FewRecordsWarning),
        (left_out_warning(design), RecordsLeftOutWarning),
    ):
        for text in texts:
            warnings.warn(text, category, stacklevel=5)


#: delta times the number of records: where the warning begins, and what it should be.
_LARGE, _SMALL = 0.1, 0.01


def delta_warning(spec: "Spec", design: "PublicDesign") -> tuple[str, ...]:
    """Warn of a delta that is too large, with the remedy; empty where it is not."""
    budget, n = spec.privacy.cost, design.n
    if budget is None or (delta := budget.delta) * n <= _LARGE:
        return ()
    smaller = 10.0 ** math.floor(math.log10(_SMALL / n))
    return (
        f"delta = {delta:.3g}, times the number of records ({n:,}), is {delta * n:.2g}; it should "
        "be far below 1, since delta is the chance that epsilon is exceeded, for each record. Set "
        f"delta = {smaller:.0e} or less in [privacy]: the same epsilon then has more noise, or the "
        "same rho a larger epsilon.",
    )


def rare_levels(spec: "Spec", design: "PublicDesign") -> dict[str, tuple[str, ...]]:
    """Return undeclared levels with fewer than ``LEAST_RECORDS`` records, by public column.

    Units, columns of numbers, and columns with so many levels that they are names or notes of
    records are left out.
    """
    rare = {}
    for name in map(str, design.frame):
        label = spec.labels.get(name)
        numbers = pd.api.types.is_numeric_dtype(design.frame[name])
        if numbers or name == design.psu_name or (label is not None and label.levels):
            continue
        counts = design.frame[name].astype("str").value_counts()
        counts = counts[counts.index != ""]
        found = tuple(map(str, counts.index[counts < LEAST_RECORDS]))
        if found and len(counts) <= MAX_LEVELS:
            rare[name] = found
    return rare


def rare_level_warnings(rare: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return one warning for each column, without a level."""
    return tuple(
        f"{name!r} has {len(levels):,} level{'s' * (len(levels) > 1)} of fewer than "
        f"{LEAST_RECORDS} records, published as written in the file. They may be values of another "
        "column, entered by mistake: look at the file, and list the valid levels in "
        f"[labels.{name}] levels; others are then refused."
        for name, levels in rare.items()
    )


_SHOWN_CELLS = 40
_DOCUMENTS = ", ".join(["codebook.json", DDI_NAME, PRIVACY_NAME, "README.md", *DOSSIER_NAMES])
#: Shown instead of an undeclared rare level where cells are listed.
_NOT_SHOWN = "(rare level, not shown)"
#: Of ``tests/golden/skewness_study.json``: 1,000 records, a residual skewness of 1, FBS.
SKEWED = (
    "Skewed residuals: down-weighting moves means away from the longer tail, and debiasing cannot "
    "see it. In a study with a skewness of 1 they moved by 0.07 residual SDs at epsilon 10.8 and "
    "by 0.19 at epsilon 5. Choose a transform that makes residuals symmetric."
)


def preview_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    """Return validation results, cell sizes n_d and the files of a release, one line each."""
    check_formats(spec, design)
    labels, rare = labels_of(spec), rare_levels(spec, design)
    hidden = {name: dict.fromkeys(levels, _NOT_SHOWN) for name, levels in rare.items()}
    labels = Labels({**labels.columns, **{
        name: replace(labels.of(name), levels={**labels.of(name).levels, **levels})
        for name, levels in hidden.items()
    }})  # fmt: skip
    warnings = (
        *delta_warning(spec, design), *rare_level_warnings(rare), *formula_warnings(design),
        *few_record_warnings(design),
    )  # fmt: skip
    return [
        f"{spec.path}: valid.",
        *_survey_lines(spec, design, model),
        *(f"WARNING: {warning}" for warning in warnings),
        "",
        *(line for each in spec.each_table for line in _table_lines(each, design, labels)),
        *_published_lines(spec, design, model),
        "",
    ]


def _table_lines(spec: "Spec", design: "PublicDesign", labels: Labels) -> list[str]:
    """Describe the cells of one table; nobody counts the levels of outcomes here."""
    section, lines = spec.table, []
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


def _survey_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    left_out = f"{design.dropped:,} dropped for missing values. {design.shift}"
    lines = [f"Survey: {design.n:,} records, {left_out}".strip()]
    if spec.privacy.answers_every_survey and spec.survey.missing == "drop":
        lines.append(
            "  Outcomes and weights are not read here. A release also drops records where one of "
            "them is blank; its tables and noise are then for fewer records. Where blanks are more "
            "common at some levels, this moves counts and the means of other outcomes; the release "
            "says so before it draws noise. missing = \"model\" leaves none out."
        )
    if design.strata is not None:
        lines.append(f"Design: {int(design.strata.max()) + 1:,} strata ({design.strata_name}).")
    lines += cluster_lines(design, model)
    lines += _weight_lines(design)
    lines += replicate_lines(spec.survey, spec.data_path)
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
        lines += [SKEWED] * any(outcome.is_amount for outcome in design.outcomes)
    lines += [
        f"Outcome: {each.model_words} "
        f"({each.public_words or ('count' if model.takes_count else each.kind)})."
        for each in design.outcomes
    ]
    if design.learns_weight:
        lines.append(f"Weight: {design.modelled[-1].model_words}.")
    lines += [
        f"  {each.name}: the range has amounts below zero. If they are few, noise hides how far "
        "out they lie: choose a low end no farther than they go. Hundreds of them may be a group "
        f"of their own, with kind = 'semicontinuous' and split = 0 in [outcomes.{each.name}]."
        for each in design.outcomes
        if each.learned is not None and each.split is None
        and each.learned.low < 0 < each.learned.high
    ]  # fmt: skip
    return lines + spec.privacy.risk_lines


def _records_lines(spec: "Spec", design: "PublicDesign") -> list[str]:
    """State records per coefficient, and what is pooled so that there are enough."""
    from surveysynth.config.build import settings_of
    from surveysynth.mechanisms.pseudo_posterior.mechanism import smallest_records

    settings, smallest = settings_of(spec), smallest_records(design)
    least = settings.least_records_of(design)
    lines = [
        f"Records per coefficient: {smallest:,.4g} for the row of X that has fewest; at least "
        f"{least:.4g} are required (small_strata = {settings.small_strata!r})."
    ]
    if design.pooling is not None:
        lines.append(f"Pooled for that: {design.pooling.words}. {design.pooling.means}")
    elif smallest < least * (1.0 - ROUNDING):
        lines.append("There are fewer: the statement does not cover this release.")
    return lines


#: Asked as long as nobody has answered in the specification.
_QUESTION = (
    "Weights: were they calibrated, or adjusted for nonresponse, by columns besides the sample "
    "design? Name these in survey.weights_from; [] means design weights. Until then the statement "
    "assumes that nobody's weight depends on the answers of others."
)


def _weight_lines(design: "PublicDesign") -> list[str]:
    """State how public weights are used, and what weights were computed from, or ask."""
    name, given, lines = design.public_weight_name, design.weights_from, []
    if name is not None:
        source = ", made of stratum_sizes, with sampling fractions" if design.stratum_sizes else ""
        model = (
            f"log({name}) is a predictor: records that are alike in the others have unequal "
            "weights."
            if name in design.predictors
            else "Records with the same row of X have equal weights."
        )
        lines.append(f"Weight: {name}, public{source}: used and published unchanged. {model}")
    gap, (few, many) = gap_of_weights(design), RHO_FACTORS
    if gap and given is None:
        lines.append(_QUESTION)
    elif gap:
        lines.append(
            f"WARNING: {gap} If confidential answers went into them, the guarantee does not hold "
            f"as stated: on three public files rho was {few:g} to {many:g} times what is stated. "
            "The statement of the release names this gap."
        )
    elif given:
        lines.append(f"Weights computed from the design and {listed(given)}.")
    return lines


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
    by = [name for name in domains.by if name != WHERE]
    for position in order:
        record = domains.table.iloc[shown[position]]
        levels = ", ".join(labels.level(name, str(record[name])) for name in by)
        lines.append(f"  {n[position]:>8,}  {levels or 'All'}")
    return lines


def budget_words(budget: Budget) -> str:
    """Describe a budget of noisy statistics in both currencies."""
    return f"rho = {budget.rho:.4g} (epsilon = {budget.epsilon:.4g} at delta = {budget.delta:.3g})"


def _published_lines(spec: "Spec", design: "PublicDesign", model: "Model") -> list[str]:
    """List what a release publishes: the files of each table with its rows, then the others."""
    privacy = spec.privacy.for_records(design.n)
    m, replicates = privacy.m, privacy.replicates_per_draw
    lines = []
    for each in spec.each_table:
        lines.append(f"  {', '.join(files_of(each))} ({span(row_counts(each, design))} rows each)")
    if figures := curve_files(spec):
        lines.append(f"  {', '.join(figures)}: the curves of learned transforms")
    if privacy.cost is not None:
        return [
            f"A release publishes, with {budget_words(privacy.cost)}:",
            *lines,
            f"  microdata/: {m} synthetic files of {design.n:,} records, one of each draw; the "
            f"tables rest on {m * replicates}, {replicates} of each",
            f"  statistics.json, {_DOCUMENTS}",
        ]
    return [
        f"A release publishes, with {_target_words(spec, design, model)}:",
        *lines,
        f"  microdata/: {m * replicates} synthetic files of {design.n:,} records "
        f"(m = {m} draws, {replicates} replicates each)",
        f"  {_DOCUMENTS}",
    ]


def _target_words(spec: "Spec", design: "PublicDesign", model: "Model") -> str:
    from surveysynth.config.build import settings_of
    from surveysynth.mechanisms.pseudo_posterior.mechanism import outside_of_stated
    from surveysynth.models.weighted import weighted_form

    if not spec.privacy.private:
        return 'risk = "none": NOT private'
    outside = outside_of_stated(design, settings_of(spec), weighted_form(model, design))
    return ", ".join(
        filter(None, [f"an asymptotic epsilon of at most {spec.privacy.epsilon:g}", outside])
    )


def check_strict(spec: "Spec") -> list[str]:
    """Return the lines on a specification by noisy statistics that ``check`` prints first.

    Raises ``InputError`` for a file, public columns or settings that a release could not take, and
    ``RefusedError`` for PSUs that neither the model nor a design effect allows for, and for weights
    that were computed from confidential columns.
    """
    from surveysynth.config.build import model_of, noisy_settings_of, read_design

    design = read_design(spec)
    refuse_sources(design.confidential_sources)
    model = model_of(spec).of(design)
    settings = noisy_settings_of(spec)
    check_public(model, design, settings)
    lines = [
        *preview_lines(spec, design, model),
        f"Privacy: {GUARANTEE}, {budget_words(settings.budget)}, for every pair of neighbours.",
        f"No outcome{' and no weight' if design.weight_name else ''} was read for what follows.",
    ]
    if spec.survey.missing == "drop":
        lines.append(
            "  (records without an outcome or a weight would be dropped; they are counted here)"
        )
    for module in settings.modules_of(design):
        if settings.modules:
            names = listing(module.design.outcome_names)
            lines.append(f"Module of {names}, with an equal share of the budget of the sums:")
        lines += _constants(module.design, module.settings)
        lines += _noise_lines(module, require_general(model).of(module.design))
    return [*lines, f"Model: {model.title}.", "", *_protected(design, settings), ""]


def _constants(design: "PublicDesign", settings: NoisySettings) -> list[str]:
    """State the constants that were declared for the guarantee."""
    names, clipping = column_names(design), settings.clipping(design)
    if not needs_general_form(design.outcomes):
        described = zip(design.transforms, design.outcome_names, strict=True)
        names[: len(design.outcomes)] = [kind.describe(name) for kind, name in described]
    lines = ["Declared, on the scale of the model:"]
    for name, centre, spread in zip(names, clipping.centre, clipping.spread, strict=True):
        lines.append(f"  {name}: centre {centre:.5g}, spread {spread:.5g}")
    lines.append(f"  records are clipped to {clipping.radius:.4g} spreads from the centres")
    if design.weight_name is not None and not isinstance(design.weight_transform, LearnedTransform):
        reach = clipping.radius * clipping.spread[-1]
        low, high = np.exp(clipping.centre[-1] - reach), np.exp(clipping.centre[-1] + reach)
        lines.append(
            f"  so weights from {low:,.3g} to {high:,.3g} are taken as they are, and others are "
            "cut. Where the survey has many others, counts are wrong: declare the public range of "
            "the weight, range = [low, high] in [outcomes.weight], or a larger spread"
        )
    return lines


def _noise_lines(module: Module, model: GeneralLocation) -> list[str]:
    """State the noise of counts and moments by block, and of sums by PSU."""
    design, settings = module.design, module.settings
    public = location_design(model, design, settings)
    shape = public.shape
    if shape.discrete:
        budget = budget_of_blocks(model, design, settings)
        variances = public.variances(
            budget.rho, settings.count_share, settings.unit_size(design)
        )
        noise = (
            f"on {len(shape.x_cells):,} x {len(shape.combinations):,} numbers of records, of SD "
            f"{float(variances.count) ** 0.5:.3g} records each; on sums and products in "
            f"{len(public.blocks):,} blocks ({len(shape.patterns)} sets of amounts x "
            f"{shape.groups} groups of rows)."
        )
    else:
        noise = f"on sums and products in each of {shape.groups:,} groups of rows."
        if public.centring is not None:
            noise += (
                f" A share of {FIRST_SHARE:g} of their budget goes to sums alone, which say where "
                "each group lies; its records are then clipped to "
                f"{public.centring.radius:.4g} spreads from there."
            )
    units = [] if psu_codes(model, design) is None else _unit_lines(design, settings, public)
    return [f"Noise: {noise}", *units]


def _unit_lines(
    design: "PublicDesign", settings: NoisySettings, public: LocationDesign
) -> list[str]:
    """Return the intraclass correlation that noise and the number of PSUs let see.

    public: of the noise of blocks. Effects of units can stand for strata that multiply the cells.
    """
    sizes = unit_sizes(public, design, settings)
    share = sizes.best_share()
    error = float(sizes.icc_error(np.array([share]), icc=0.0)[0])
    lines = [
        f"Products between {sizes.units:,} units ({design.psu_name}) of {sizes.size:,.3g} records "
        f"on average, with a share of {share:g} of the budget: an intraclass correlation near 0 is "
        f"known to within {error:.2g} (one standard error)."
    ]
    strata, by, cells = design.strata_name, list(design.by), len(design.matrix.x_cells)
    fewer = len(design.frame[by].drop_duplicates())
    if by and strata in design.predictors and strata not in by and 2 * fewer <= cells:
        lines.append(
            f'Effects of units can stand for those of strata: predictors = "'
            f'{" * ".join(map(quote, by))}" in [synthesizer] has {fewer:,} cells in place of '
            f"{cells:,}. Chains are far quicker, and levels that are rare in every stratum keep "
            "their shares; synthetic strata do not differ."
        )
    if error > USUAL_ICC:
        lines.append(
            f"WARNING: this noise hides intraclass correlations below {2.0 * error:.2g}, and "
            "standard errors may come out far too large. Raise epsilon, or declare "
            "survey.design_effect from public sources."
        )
    return lines


def _protected(design: "PublicDesign", settings: NoisySettings) -> list[str]:
    """State what is protected."""
    if settings.protect == RECORD:
        return ["Protected: single records."]
    sizes, largest = settings.unit_sizes(design), settings.unit_size(design)
    times = f"; the noise is {largest:,} times that of single records" if largest > 1 else ""
    return [
        f"Protected: units of {settings.protect!r} as a whole. {sizes.size:,} units, of "
        f"{int(np.median(sizes)):,} records in the median and {largest:,} in the largest{times}."
    ]
