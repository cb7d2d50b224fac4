"""``surveysynth check`` for noisy statistics: the guarantee and the noise of a release.

Nothing confidential is read: outcomes and weights are not looked at (strict 5).
"""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.messages import listing
from surveysynth.mechanisms.noisy_statistics.mechanism import GUARANTEE, column_names
from surveysynth.mechanisms.noisy_statistics.release.group_centres import FIRST_SHARE
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    check_public,
    costs_of_modules,
    location_design,
    require_general,
)
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, Module, NoisySettings
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.release.preview import budget_words, preview_lines
from surveysynth.release.psu_check import unit_lines
from surveysynth.release.warned import Kind, Line, Warned
from surveysynth.survey.learned import LearnedTransform
from surveysynth.survey.outcome import needs_general_form
from surveysynth.survey.weights_from import refuse_sources

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.survey.survey import PublicDesign


def check_strict(spec: "Spec") -> list[Line]:
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
    return [
        *preview_lines(spec, design, model),
        *_promise(spec, design, require_general(model)),
        "",
        *_units(design, settings),
    ]


def _promise(spec: "Spec", design: "PublicDesign", model: GeneralLocation) -> list[Line]:
    """State the guarantee, the constants, and the noise of counts and moments by block."""
    from surveysynth.config.build import noisy_settings_of

    settings = noisy_settings_of(spec)
    later: list[Line] = []
    for module in settings.modules_of(design):
        general = model.of(module.design)
        if settings.modules:
            names = listing(module.design.outcome_names)
            later.append(f"Module of {names}, with an equal share of the budget of the sums:")
        later += _constants(module.design, module.settings)
        later += _noise_lines(module, general)
    return [*_guarantee(spec, design, settings), *later, f"Model: {model.title}."]


def _noise_lines(module: Module, model: GeneralLocation) -> list[Line]:
    """State the noise of counts and moments by block, and of sums by PSU."""
    design, settings = module.design, module.settings
    public = location_design(model, design, settings)
    (costs,) = costs_of_modules(model, design, settings)
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
    return [f"Noise: {noise}", *unit_lines(model, design, settings, public)]


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


def _constants(design: "PublicDesign", settings: NoisySettings) -> list[Line]:
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


def _weight_lines(design: "PublicDesign", clipping: Clipping) -> list[Line]:
    """State which weights are taken as they are, where their logarithm has a centre and spread."""
    if design.weight_name is None or isinstance(design.weight_transform, LearnedTransform):
        return []
    reach = clipping.radius * clipping.spread[-1]
    low, high = np.exp(clipping.centre[-1] - reach), np.exp(clipping.centre[-1] + reach)
    return [Warned(
        Kind.ACCURACY,
        f"weights outside {low:,.3g} to {high:,.3g} are clipped. Where the survey has many, counts "
        "are wrong: declare the public range of the weight, range = [low, high] in "
        "[outcomes.weight], or a larger spread.",
    )]  # fmt: skip


def _units(design: "PublicDesign", settings: NoisySettings) -> list[str]:
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
