"""Checks of a specification and its public columns, made before anything is spent.

A by column is public, and its levels are published as they stand in the file. A level of one record
may be an amount that was typed into the wrong column. Where levels are declared
([labels.COLUMN] levels) such a record is refused; where they are not, a warning counts them, and
``surveysynth check`` does not print them.

A ``Warned`` says what a warning is about, and ``Kind`` where it is shown. All are public.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import numpy as np
import pandas as pd

from surveysynth.config.build import (
    calibration_of,
    model_of,
    noisy_settings_of,
    read_design,
    settings_of,
)
from surveysynth.config.sections import replicate_lines
from surveysynth.config.spec import Spec
from surveysynth.errors import (
    DroppedRecordsWarning,
    FewRecordsWarning,
    FormulaCutWarning,
    InputError,
    PublicWarning,
)
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.sample_design import cluster_lines
from surveysynth.estimation.subpopulation import WHERE, displayed_rows
from surveysynth.mechanisms.base import gap_of_weights
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.mechanism import GUARANTEE, column_names
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    FIRST_SHARE,
    LocationDesign,
)
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    check_public,
    costs_of,
    location_design,
    require_general,
    unit_sizes,
)
from surveysynth.mechanisms.noisy_statistics.release.unit_products import USUAL_ICC
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, NoisySettings
from surveysynth.mechanisms.pseudo_posterior.mechanism import outside_of_stated, smallest_records
from surveysynth.models.base import Model, psu_codes
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.weighted import weighted_form
from surveysynth.release.documents.codebook import DDI_NAME
from surveysynth.release.facts import files_of
from surveysynth.release.folder import DOSSIER_NAMES, INDEX_NAME, PRIVACY_NAME
from surveysynth.release.microdata import (
    check_names,
    format_of,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.reader import earlier_release
from surveysynth.release.tables.layout import Labels, listed, span, where_words
from surveysynth.release.tables.table import SMALL_SAMPLE
from surveysynth.release.tables.table_builder import public_domains, row_counts, synthetic_columns
from surveysynth.survey.declaration import RHO_FACTORS, refuse_sources
from surveysynth.survey.outcome import needs_general_form
from surveysynth.survey.pooling import ROUNDING
from surveysynth.survey.records import LEAST_RECORDS, MAX_LEVELS
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import LearnedTransform


class Kind(Enum):
    """The subject of a warning."""

    UNPUBLISHABLE = auto()
    GUARANTEE = auto()
    QUESTION = auto()
    RARE_LEVELS = auto()
    LEFT_OUT = auto()
    FORMULA = auto()
    FEW_RECORDS = auto()
    ACCURACY = auto()


#: Kinds that ``release`` shows with its last lines; ``check`` shows all of them.
LAST = frozenset({Kind.UNPUBLISHABLE, Kind.GUARANTEE, Kind.RARE_LEVELS, Kind.LEFT_OUT})
#: Kinds that ``release`` shows as Python warnings, before anything is spent.
BEFORE: Mapping[Kind, type[PublicWarning]] = {
    Kind.LEFT_OUT: DroppedRecordsWarning,
    Kind.FORMULA: FormulaCutWarning,
    Kind.FEW_RECORDS: FewRecordsWarning,
}


@dataclass(frozen=True)
class Warned:
    """One warning."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text if self.kind is Kind.QUESTION else f"WARNING: {self.text}"


#: Of a preview: a detail, or a warning.
Line: TypeAlias = str | Warned


def last_messages(warned: Iterable[Warned]) -> tuple[Warned, ...]:
    """Return the warnings that appear with the last lines of a release."""
    return tuple(each for each in warned if each.kind in LAST)


def check_formats(spec: Spec, design: PublicDesign) -> None:
    """Raise ``InputError`` for names of columns that files of the microdata cannot have."""
    pair = spec.privacy.down_weights and spec.synthesizer.inference == "debiased"
    synthetic = synthetic_column_names(design, separate_pair=pair)
    check_names((*public_column_names(design), *synthetic), format_of(spec))


def check_calibrated_name(design: PublicDesign) -> None:
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


#: delta times the number of records: where the warning begins, and what it should be.
_LARGE, _SMALL = 0.1, 0.01


def public_warnings(spec: Spec, design: PublicDesign) -> Iterator[Warned]:
    """Yield the problems of a release that the specification and the public columns show."""
    budget, n = spec.privacy.cost, design.n
    if budget is not None and (delta := budget.delta) * n > _LARGE:
        smaller = 10.0 ** math.floor(math.log10(_SMALL / n))
        yield Warned(
            Kind.GUARANTEE,
            f"delta = {delta:.3g}, times the number of records ({n:,}), is {delta * n:.2g}; it "
            "should be far below 1, since delta is the chance that epsilon is exceeded, for each "
            f"record. Set delta = {smaller:.0e} or less in [privacy]: the same epsilon then has "
            "more noise, or the same rho a larger epsilon.",
        )
    few, many = RHO_FACTORS
    # Which confidential answers may be in the weights.
    if (gap := gap_of_weights(design)) and design.weights_from is None:
        yield Warned(
            Kind.QUESTION,
            "Weights: were they calibrated, or adjusted for nonresponse, by columns besides the "
            "sample design? Name these in survey.weights_from; [] means design weights. Until "
            "then the statement assumes that nobody's weight depends on the answers of others.",
        )
    elif gap:
        yield Warned(
            Kind.GUARANTEE,
            f"{gap} If confidential answers went into them, the guarantee does not hold as stated: "
            f"on three public files rho was {few:g} to {many:g} times what is stated. The "
            "statement of the release names this gap.",
        )
    yield from design_warnings(design)
    for name, levels in rare_levels(spec, design).items():  # without a level
        yield Warned(
            Kind.RARE_LEVELS,
            f"{name!r} has {len(levels):,} level{'s' * (len(levels) > 1)} of fewer than "
            f"{LEAST_RECORDS} records, published as written in the file. They may be values of "
            "another column, entered by mistake: look at the file, and list the valid levels in "
            f"[labels.{name}] levels; others are then refused.",
        )


def design_warnings(design: PublicDesign) -> Iterator[Warned]:
    """Yield what the public columns cost in accuracy."""
    if design.shift:  # leaving out records with missing cells moves counts
        yield Warned(
            Kind.LEFT_OUT,
            f"{design.dropped:,} records with missing values are left out. {design.shift} Fill the "
            "cells in, leave the outcome with most blanks for a release of its own, or by noisy "
            'statistics set missing = "model".',
        )
    if left_out := design.matrix.left_out:
        yield Warned(
            Kind.FORMULA,
            f"The default formula leaves out {', '.join(left_out)}, whose cells have hardly any "
            "records, so these cells are modeled by main effects alone. Make these columns "
            "coarser, or write a formula of your own.",
        )
    if design.matrix.by_default and not design.strata_in_cells:
        yield Warned(
            Kind.FORMULA,
            f"The strata ({design.strata_name}) are many and their cells have few records, so they "
            "are no predictors: synthetic strata do not differ, and standard errors are a little "
            "larger than they could be. To keep them, write a formula of your own.",
        )
    if design.pooling is not None:
        yield Warned(
            Kind.FORMULA,
            f"The model's formula was cut, since few records support it: {design.pooling.words}. "
            f"{design.pooling.means} Make these columns coarser to decide yourself what is joined.",
        )
    # How many records are at a spike is confidential; the number of records and of kinds is not.
    for outcome in design.outcomes:
        kinds = len(outcome.category_names)
        if outcome.is_amount and kinds > 1 and design.n < LEAST_OF_A_KIND * kinds:
            yield Warned(
                Kind.FEW_RECORDS,
                f"{outcome.name!r} has {kinds} kinds of values "
                f"({', '.join(outcome.category_names)}) and {design.n:,} records: "
                f"{design.n / kinds:,.0f} of each, if all are equally common. Kinds with fewer "
                f"than {LEAST_OF_A_KIND} have a spread and weights that are hardly determined, and "
                "their totals can be far off. Declare fewer spikes, or leave the outcome out.",
            )


def warn_of_design(design: PublicDesign, stacklevel: int = 2) -> None:
    """Issue a Python warning for each of these reasons; all are public."""
    for each in design_warnings(design):
        if category := BEFORE.get(each.kind):
            warnings.warn(each.text, category, stacklevel=stacklevel + 1)


#: Shown instead of such a level where cells are listed.
NOT_SHOWN = "(rare level, not shown)"


def rare_levels(spec: Spec, design: PublicDesign) -> dict[str, tuple[str, ...]]:
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


def without_rare(labels: Labels, rare: Mapping[str, tuple[str, ...]]) -> Labels:
    """Return labels without rare levels."""
    columns = dict(labels.columns)
    for name, levels in rare.items():
        given, hidden = labels.of(name), dict.fromkeys(levels, NOT_SHOWN)
        columns[name] = given.model_copy(update={"levels": {**given.levels, **hidden}})
    return Labels(columns)


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


def preview_lines(spec: Spec, design: PublicDesign, model: Model) -> list[Line]:
    """Return validation results, cell sizes n_d and the files of a release, one line each."""
    check_formats(spec, design)
    labels = without_rare(Labels(spec.labels), rare_levels(spec, design))
    return [
        f"{spec.path}: valid.",
        *_survey_lines(spec, design, model),
        *public_warnings(spec, design),
        "",
        *(line for each in spec.each_table for line in _table_lines(each, design, labels)),
        *_published_lines(spec, design, model),
        "",
    ]


def _table_lines(spec: Spec, design: PublicDesign, labels: Labels) -> list[str]:
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


def _survey_lines(spec: Spec, design: PublicDesign, model: Model) -> list[Line]:
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


def _records_lines(spec: Spec, design: PublicDesign) -> list[Line]:
    """State records per coefficient, and what is pooled so that there are enough."""
    settings, smallest = settings_of(spec), smallest_records(design)
    least = settings.least_records_of(design)
    allowed = " (allow = [small_strata])" if "small_strata" in settings.allow else ""
    lines: list[Line] = [
        f"Records per coefficient: {smallest:,.4g} for the row of X that has fewest; at least "
        f"{least:.4g} are required{allowed}."
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


def _weight_lines(design: PublicDesign) -> list[str]:
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
    margin, inside = domains.table["is_margin"].to_numpy(dtype=bool), displayed_rows(domains)
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


def _published_lines(spec: Spec, design: PublicDesign, model: Model) -> list[str]:
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
    guarantee = 'risk = "none": NOT private'
    if spec.privacy.private:
        outside = outside_of_stated(design, settings_of(spec), weighted_form(model, design))
        guarantee = f"an asymptotic epsilon of at most {spec.privacy.epsilon:g}"
        guarantee += f", {outside}" if outside else ""
    return [
        f"A release publishes, with {guarantee}:",
        *files,
        f"  microdata/: {datasets} synthetic files of {design.n:,} records "
        f"(m = {privacy.m} draws, {privacy.replicates_per_draw} replicates each)",
        f"  {_DOCUMENTS}",
    ]


def check_strict(spec: Spec) -> list[Line]:
    """Return the lines on a specification by noisy statistics that ``check`` prints first.

    Raises ``InputError`` for a file, public columns or settings that a release could not take, and
    ``RefusedError`` for PSUs that neither the model nor a design effect allows for, and for weights
    that were computed from confidential columns.
    """
    design = read_design(spec)
    refuse_sources(design.confidential_sources)
    model = model_of(spec).of(design)
    settings = noisy_settings_of(spec)
    check_public(model, design, settings)
    # Whether a test or not: a release refuses the counts of a test.
    taken = earlier_release(spec, design, test=True) is not None
    return [
        *preview_lines(spec, design, model),
        f"Privacy: {GUARANTEE}, {budget_words(settings.budget)}, for every pair of neighbors.",
        f"No outcome{' and no weight' if design.weight_name else ''} was read for what follows.",
        *["  (records without an outcome or a weight would be dropped; they are counted here)"]
        * (spec.survey.missing == "drop"),
        *_constants(design, settings),
        *_noise_lines(design, settings, require_general(model)),
        f"Model: {model.title}.",
        *["Counts: those of the release that survey.weights names, at no cost."] * taken,
        "",
        *_units(design, settings),
    ]


def _noise_lines(
    design: PublicDesign, settings: NoisySettings, model: GeneralLocation
) -> list[Line]:
    """State the noise of counts and moments by block, and of sums by PSU."""
    public = location_design(model, design, settings)
    costs = costs_of(model, design, settings)
    variances = public.variances(
        costs.blocks.rho, settings.count_share, settings.unit_size(design)
    )
    shape = public.shape
    cells, combinations = len(shape.x_cells), len(shape.combinations)
    noise = f"on sums and products in each of {shape.groups:,} groups of rows."
    if public.centring is not None:
        noise += (
            f" A share of {FIRST_SHARE:g} of their budget goes to sums alone, which say where each "
            "group lies; its records are then clipped to "
            f"{public.centring.radius:.4g} spreads from there."
        )
    if shape.discrete:
        noise = (
            f"on {cells:,} x {combinations:,} numbers of records, of SD "
            f"{float(variances.count) ** 0.5:.3g} records each; on sums and products in "
            f"{len(public.blocks):,} blocks ({len(shape.patterns)} sets of amounts x "
            f"{shape.groups} groups of rows)."
        )
    return [f"Noise: {noise}", *_unit_lines(model, design, settings, public)]


def _unit_lines(
    model: GeneralLocation,
    design: PublicDesign,
    settings: NoisySettings,
    public: LocationDesign,
) -> list[Line]:
    """State the intraclass correlation that noise and the number of units can detect."""
    if psu_codes(model, design) is None:
        return []
    sizes = unit_sizes(public, design, settings)
    share = sizes.best_share()
    error = float(sizes.icc_error(np.array([share]), icc=0.0)[0])
    lines: list[Line] = [
        f"Products between {sizes.units:,} units ({design.psu_name}) of {sizes.size:,.3g} records "
        f"on average, with a share of {share:g} of the budget: an intraclass correlation near 0 is "
        f"known to within {error:.2g} (one standard error)."
    ]
    if error > USUAL_ICC:
        lines.append(Warned(
            Kind.ACCURACY,
            f"this noise hides intraclass correlations below {2.0 * error:.2g}, and standard "
            "errors may come out far too large or too small. Raise epsilon, or declare "
            "survey.design_effect from public sources.",
        ))  # fmt: skip
    return lines


def _constants(design: PublicDesign, settings: NoisySettings) -> Iterator[Line]:
    """Yield the constants that were declared for the guarantee, and which weights are clipped."""
    names, clipping = column_names(design), settings.clipping(design)
    if not needs_general_form(design.outcomes):
        described = zip(design.transforms, design.outcome_names, strict=True)
        names[: len(design.outcomes)] = [kind.describe(name) for kind, name in described]
    yield "Declared, on the scale of the model:"
    for name, centre, spread in zip(names, clipping.centre, clipping.spread, strict=True):
        yield f"  {name}: center {centre:.5g}, spread {spread:.5g}"
    yield f"  records are clipped to {clipping.radius:.4g} spreads from the centers"
    if design.weight_name is not None and not isinstance(design.weight_transform, LearnedTransform):
        reach = clipping.radius * clipping.spread[-1]
        low, high = np.exp(clipping.centre[-1] - reach), np.exp(clipping.centre[-1] + reach)
        yield Warned(
            Kind.ACCURACY,
            f"weights outside {low:,.3g} to {high:,.3g} are clipped. Where the survey has many, "
            "counts are wrong: declare the public range of the weight, range = [low, high] in "
            "[outcomes.weight], or a larger spread.",
        )


def _units(design: PublicDesign, settings: NoisySettings) -> list[str]:
    """State what is protected."""
    if settings.protect == RECORD:
        return ["Protected: single records.", ""]
    sizes, largest = settings.unit_sizes(design), settings.unit_size(design)
    times = f"; the noise is {largest:,} times that of single records" if largest > 1 else ""
    return [
        f"Protected: units of {settings.protect!r} as a whole. {sizes.size:,} units, of "
        f"{int(np.median(sizes)):,} records in the median and {largest:,} in the largest{times}.",
        "",
    ]
