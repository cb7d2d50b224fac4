"""``surveysynth check`` for noisy statistics: the guarantee and the expected errors of a release.

Nothing confidential is read: outcomes and weights are not looked at (strict 5).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.messages import capitalised, listing
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.clusters import refuse_clusters
from surveysynth.estimation.estimates import Key
from surveysynth.estimation.statistics import statistic_of
from surveysynth.mechanisms.noisy_statistics.mechanism import GUARANTEE, column_names
from surveysynth.mechanisms.noisy_statistics.release.group_centres import FIRST_SHARE
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    budget_of_blocks,
    check_public,
    location_design,
)
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, Module, NoisySettings
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.release.expected import FACTORS, Expectation, Misdeclared, UnitLimit
from surveysynth.release.facts import labels_of
from surveysynth.release.folder.bundle import plan_folder, staged_folder, swap_in
from surveysynth.release.preview import budget_words, preview_lines, row_label
from surveysynth.release.psu_check import unit_lines
from surveysynth.release.public_checks import rare_levels, without_rare
from surveysynth.survey.learned import LearnedTransform
from surveysynth.survey.outcome import needs_general_form
from surveysynth.survey.weights_from import refuse_sources

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

TABLE_NAME, FIGURE_NAME = "expected_se.csv", "expected_se.png"
_WHAT = "expected standard errors"
_NOT_AVAILABLE = (
    "Expected standard errors are not available for outcomes with categories, spikes or bounds: "
    "the formulas assume one normal distribution of all records. --simulate finds them."
)
_ONE_SPREAD = (
    "Expected standard errors are those of one spread for all cells, the declared one. The model "
    "has spreads by cell, which noise leaves less certain: at a small epsilon means err by up to "
    "half as much again, as --simulate shows."
)
#: Numbers of records beyond which chains are slow: 270 took a minute, 20,250 three hours.
MANY = 5_000
#: A table with more rows is shown by its margins and its worst cells, so many of each at most.
_SHOWN_ROWS, _SHOWN_OF_A_KIND = 40, 12


def check_strict(
    spec: "Spec",
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> list[str]:
    """Return the lines that ``check`` prints for a specification by noisy statistics.

    Parameters
    ----------
    spec
        The specification.
    out
        A folder for the expected standard errors of all rows, as a table and a figure. Both are
        public.
    overwrite
        Whether to replace such a folder.

    Raises
    ------
    InputError
        For a file, public columns or settings that a release could not take; for a folder that
        exists, or standard errors that cannot be computed.
    RefusedError
        For PSUs that neither the model nor a design effect allows for, and for weights that were
        computed from confidential columns.
    """
    from surveysynth.spec.build import model_of, noisy_settings_of, read_design

    target = None
    if out is not None:
        own = (TABLE_NAME, FIGURE_NAME)
        target = plan_folder(Path(out), overwrite=overwrite, own=own, marker=own[0], what=_WHAT)
    design = read_design(spec)
    refuse_sources(design.confidential_sources)
    chosen = model_of(spec)
    model = chosen.of(design)
    refuse_clusters(design, model)
    settings = noisy_settings_of(spec)
    if settings.modules:
        check_public(model, design, settings)
    promise: list[str] = []
    if isinstance(model, GeneralLocation):
        promise = _general_promise(spec, design, model)
        if needs_general_form(design.outcomes):
            if out is not None:
                raise InputError(f"--out: {_NOT_AVAILABLE} Leave it out.")
            return [*preview_lines(spec, design, model), *promise, _NOT_AVAILABLE]
    first, *rest = spec.each_table
    expected = [Expectation(first, design, chosen)]
    expected += [Expectation(each, design, chosen, expected[0]) for each in rest]
    lines = [
        *preview_lines(spec, design, model),
        *(promise or _promise(expected[0])),
        "",
        *_units(expected[0]),
        *([_ONE_SPREAD] if promise else []),
        *(line for each in expected for line in _errors(each)),
    ]
    return lines if target is None else [*lines, "", *_written(expected, target)]


def _general_promise(
    spec: "Spec", design: "PublicDesign", model: GeneralLocation
) -> list[str]:
    """State the guarantee, the constants, and the noise of counts and moments by block."""
    from surveysynth.spec.build import noisy_settings_of

    settings = noisy_settings_of(spec)
    promise, later = _guarantee(spec, design, settings), []
    for module in settings.modules_of(design):
        general = model.of(module.design)
        if settings.modules:
            names = listing(module.design.outcome_names)
            later.append(f"Module of {names}, with an equal share of the budget of the sums:")
        later += _constants(module.design, module.settings)
        later += _noise_lines(module, general)
    return [*promise, *later, f"Model: {model.title}."]


def _noise_lines(module: Module, model: GeneralLocation) -> list[str]:
    """State the noise of counts and moments by block, and of sums by PSU."""
    design, settings = module.design, module.settings
    public = location_design(model, design, settings)
    budget = budget_of_blocks(model, design, settings)
    variances = public.variances(
        budget.rho, settings.count_share, settings.unit_size(design)
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
            f"{shape.groups} groups of rows); small blocks are not used."
        )
    many = _many(design.n, cells * combinations) if shape.discrete else []
    return [f"Noise: {noise}", *many, *unit_lines(model, design, settings, public)]


def _many(n: int, numbers: int) -> list[str]:
    """Warn of numbers of records that are too many for the posterior to be quick."""
    if numbers <= MANY:
        return []
    return [
        f"WARNING: these are {numbers:,} numbers of records, {n / numbers:.2g} records in each on "
        "average. The posterior draws all of them in every round, which may take hours and "
        "gigabytes of memory; a release says how long soon after its noise is drawn and spent. "
        "Coarser strata, by columns and predictors, or fewer outcomes with levels, make them "
        "fewer: say modules of three or four outcomes each, modules = [[..], [..]] in [privacy]."
    ]


def _written(expected: Sequence[Expectation], target: Path) -> list[str]:
    import pandas as pd

    from surveysynth.release.expected import expected_png
    from surveysynth.release.writers.csv import write_records

    if expected[0].not_available is not None:
        raise InputError(f"--out: {expected[0].not_available} Leave it out.")
    frame = pd.concat([each.frame() for each in expected], ignore_index=True)
    with staged_folder(target, _WHAT) as folder:
        write_records(frame, folder / TABLE_NAME, "csv")
        (folder / FIGURE_NAME).write_bytes(expected_png(expected))
        swap_in(folder, target)
    return [f"All rows: {target / TABLE_NAME}; {target / FIGURE_NAME} shows them. Both are public."]


def _promise(expected: Expectation) -> list[str]:
    """State the guarantee, the constants, and the noise of the moments of all records."""
    clipping, settings, design = expected.noise.clipping, expected.settings, expected.design
    rows = expected.noise.rank + expected.noise.n_psu
    q = clipping.q
    return [
        *_guarantee(expected.spec, design, settings),
        *_constants(design, settings),
        f"Noise: on {rows:,} x {q} sums and {q * (q + 1) // 2} sums of squares and products; "
        f"{design.n - expected.columns:,} degrees of freedom for residuals, of which {q + 2} are "
        "needed.",
    ]


def _guarantee(spec: "Spec", design: "PublicDesign", settings: NoisySettings) -> list[str]:
    """State the guarantee, and what was not read."""
    dropped = (
        ["  (records without an outcome or a weight would be dropped; they are counted here)"]
        if spec.survey.missing == "drop"
        else []
    )
    return [
        f"Privacy: {GUARANTEE}, {budget_words(settings.budget)}, for every pair of neighbours.",
        f"No outcome{' and no weight' if design.weight_name else ''} was read for what follows.",
        *dropped,
    ]


def _constants(design: "PublicDesign", settings: NoisySettings) -> list[str]:
    """State the constants that were declared for the guarantee."""
    names, clipping = column_names(design), settings.clipping(design)
    if not needs_general_form(design.outcomes):
        described = zip(design.transforms, design.outcome_names, strict=True)
        names[: len(design.outcomes)] = [kind.describe(name) for kind, name in described]
    constants = zip(names, clipping.centre, clipping.spread, strict=True)
    return [
        "Declared, on the scale of the model:",
        *(f"  {name}: centre {centre:.5g}, spread {spread:.5g}"
          for name, centre, spread in constants),
        f"  records are clipped to {clipping.radius:.4g} spreads from the centres",
        *_weight_lines(design, clipping),
    ]  # fmt: skip


def _weight_lines(design: "PublicDesign", clipping: Clipping) -> list[str]:
    """State which weights are taken as they are, where their logarithm has a centre and spread."""
    if design.weight_name is None or isinstance(design.weight_transform, LearnedTransform):
        return []
    reach = clipping.radius * clipping.spread[-1]
    low, high = np.exp(clipping.centre[-1] - reach), np.exp(clipping.centre[-1] + reach)
    return [
        f"  so weights from {low:,.3g} to {high:,.3g} are taken as they are, and others are cut. "
        "Where the survey has many others, counts are wrong: declare the public range of the "
        "weight, range = [low, high] in [outcomes.weight], or a larger spread"
    ]


def _units(expected: Expectation) -> list[str]:
    settings, design = expected.settings, expected.design
    if settings.protect == RECORD:
        return ["Protected: single records.", ""]
    sizes = settings.unit_sizes(design)
    largest = expected.unit_size
    times = f"; the noise is {largest:,} times that of single records" if largest > 1 else ""
    lines = [
        f"Protected: units of {settings.protect!r} as a whole. {sizes.size:,} units, of "
        f"{int(np.median(sizes)):,} records in the median and {largest:,} in the largest{times}.",
    ]
    limits = expected.unit_limits()
    if len(limits) > 1:
        lines.append(
            "If a public rule kept at most k records of each unit (this package has no such rule; "
            "the cost of leaving out the others is not counted):"
        )
        lines += [_limit_line(expected, each) for each in limits]
    return [*lines, ""]


def _limit_line(expected: Expectation, limit: UnitLimit) -> str:
    beyond = (
        f"{limit.units_beyond:,} units have more, {limit.records_beyond:,} records beyond it"
        if limit.units_beyond
        else "all units whole"
    )
    return f"  k = {limit.records:,}: {beyond}{_typical(expected, limit.typical)}"


def _typical(expected: Expectation, medians: dict[Key, float]) -> str:
    if not medians:
        return "."
    each = ", ".join(f"{_number(v)} ({_name(expected, key)})" for key, v in medians.items())
    return f"; median SE over the sample's: {each}."


def _errors(expected: Expectation) -> list[str]:
    if expected.not_available is not None:
        return [expected.not_available]
    budgets, own = expected.budgets, expected.settings.budget
    labels = labels_of(expected.spec)
    labels = without_rare(labels, rare_levels(expected.spec, expected.design))
    heads = [f"{'*' if b is own else ''}{b.epsilon:.4g}" for b in budgets]
    name = expected.spec.table.name
    lines = [
        *([f"Table {name}."] if name else []),
        "Expected standard errors over those of the sample without privacy, by epsilon at delta = "
        f"{own.delta:.3g} (* this specification; - no error, or no estimate).",
        "Computed at the declared centres and spreads; accurate to 15 to 20% where these are "
        "right, and to 5% in the median row. Below 1, the model adds information.",
    ]
    for key in expected.tables:
        ratios = expected.ratios(key, budgets)
        shown, left = _shown_rows(expected, ratios[budgets.index(own)])
        lines += ["", f"{capitalised(_name(expected, key))}:", _line("n", heads, "")]
        for row in shown:
            numbers = [_number(each) for each in ratios[:, row]]
            place = int(expected.shown[row])
            label = row_label(expected.domains, labels, place)
            lines.append(_line(f"{expected.domains.n[place]:,}", numbers, label))
        medians = [_number(each) for each in _medians(ratios)]
        lines.append(_line("", medians, f"median of all {ratios.shape[1]:,} rows"))
        if left:
            lines.append(f"  {left:,} rows are left out: margins first, then the worst cells.")
    return [*lines, *_misdeclared(expected)]


def _medians(ratios: FloatArray) -> FloatArray:
    known = ratios[:, np.isfinite(ratios).all(axis=0)]
    return np.median(known, axis=1) if known.size else np.full(len(ratios), np.nan)


def _shown_rows(expected: Expectation, ratio: FloatArray) -> tuple[IntArray, int]:
    """Return the rows to show (margins and worst cells of a large table) and how many are not."""
    rows = ratio.size
    if rows <= _SHOWN_ROWS:
        return np.arange(rows), 0
    margin = expected.domains.table["is_margin"].to_numpy(dtype=bool)[expected.shown]
    order = np.argsort(np.where(np.isfinite(ratio), -ratio, np.inf), kind="stable")
    cells = order[~margin[order]][:_SHOWN_OF_A_KIND]
    shown = np.concatenate([np.flatnonzero(margin)[:_SHOWN_OF_A_KIND], np.sort(cells)])
    return shown, rows - shown.size


def _misdeclared(expected: Expectation) -> list[str]:
    if all(each.learned is not None for each in expected.design.outcomes):
        return []  # no spread of an outcome is declared
    own = expected.settings.budget
    return [
        "",
        f"Spreads declared too small or too large, at epsilon {own.epsilon:.4g} (too large: more "
        "noise, which intervals show; too small: clipped records, which no interval shows):",
        *(
            line
            for factor in FACTORS
            for line in _misdeclared_lines(expected, expected.misdeclared(factor))
        ),
        "If in doubt, declare a spread too large.",
    ]


def _misdeclared_lines(expected: Expectation, made: Misdeclared) -> list[str]:
    share = f"{100 * made.outside:.2g}%" if made.outside >= 1e-5 else "none"
    lines = [
        f"  {made.factor:g} times the true ones: {share} of normal records clipped"
        f"{_typical(expected, made.typical)}"
    ]
    for column, (whole, row) in made.bias.items():
        name = expected.design.outcome_names[column]
        if max(abs(whole), abs(row)) >= 0.05:
            lines.append(
                f"    Clipping moves the mean of {name} by {whole:+.1f} of the sample's SEs in the "
                f"whole table, by {row:+.1f} in a row of median size"
                f"{' one spread above the centre' * (not expected.centred)}."
            )
    return lines


def _name(expected: Expectation, key: Key) -> str:
    plural = statistic_of(key[0]).plural
    return plural if key[1] is None else f"{plural} of {expected.design.outcome_names[key[1]]}"


def _number(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:.2f}" if value < 99.995 else f"{value:,.0f}"


def _line(n: str, numbers: list[str], label: str) -> str:
    return f"  {n:>8}{''.join(f'{each:>8}' for each in numbers)}  {label}".rstrip()
