"""``surveysynth check`` for noisy statistics: the guarantee and the noise of a release.

Nothing confidential is read: outcomes and weights are not looked at (strict 5).
"""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth.mechanisms.noisy_statistics.mechanism import GUARANTEE, column_names
from surveysynth.mechanisms.noisy_statistics.release.group_centres import FIRST_SHARE
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    check_public,
    costs_of,
    location_design,
    require_general,
    unit_sizes,
)
from surveysynth.mechanisms.noisy_statistics.release.unit_products import USUAL_ICC
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, NoisySettings
from surveysynth.models.base import psu_codes
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.release.preview import budget_words, preview_lines
from surveysynth.release.read_back import earlier_release
from surveysynth.release.warned import Kind, Line, Warned
from surveysynth.survey.declaration import refuse_sources
from surveysynth.survey.outcome import needs_general_form
from surveysynth.survey.transforms import LearnedTransform

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
    # Whether a test or not: a release refuses the counts of a test.
    taken = earlier_release(spec, design, test=True) is not None
    return [
        *preview_lines(spec, design, model),
        *_guarantee(spec, design, settings),
        *_constants(design, settings),
        *_noise_lines(design, settings, require_general(model)),
        f"Model: {model.title}.",
        *["Counts: those of the release that survey.weights names, at no cost."] * taken,
        "",
        *_units(design, settings),
    ]


def _noise_lines(
    design: "PublicDesign", settings: NoisySettings, model: GeneralLocation
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
    design: "PublicDesign",
    settings: NoisySettings,
    public: LocationDesign,
) -> list[Line]:
    """State the intraclass correlation that noise and the number of units let see."""
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
