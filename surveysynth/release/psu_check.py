"""``surveysynth check`` of products between primary sampling units (PSUs): what noise leaves."""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import unit_sizes
from surveysynth.mechanisms.noisy_statistics.release.unit_products import USUAL_ICC
from surveysynth.models.base import psu_codes
from surveysynth.release.warned import Kind, Line, Warned
from surveysynth.survey.formula import quote

if TYPE_CHECKING:
    from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
    from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
    from surveysynth.models.general_location.model import GeneralLocation
    from surveysynth.survey.survey import PublicDesign


def unit_lines(
    model: "GeneralLocation",
    design: "PublicDesign",
    settings: "NoisySettings",
    public: "LocationDesign",
) -> list[Line]:
    """Return the intraclass correlation that noise and the number of units let see.

    public: of the noise of blocks.
    """
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
    lines += _without_strata(design)
    if error > USUAL_ICC:
        lines.append(Warned(
            Kind.ACCURACY,
            f"this noise hides intraclass correlations below {2.0 * error:.2g}, and standard "
            "errors may come out far too large. Raise epsilon, or declare survey.design_effect "
            "from public sources.",
        ))  # fmt: skip
    return lines


def _without_strata(design: "PublicDesign") -> list[Line]:
    """Say that effects of units can stand for strata, where these multiply the cells."""
    strata, by, cells = design.strata_name, design.by, len(design.matrix.x_cells)
    if strata is None or strata in by or strata not in design.predictors or not by:
        return []
    fewer = len(design.frame[list(by)].drop_duplicates())
    if 2 * fewer > cells:
        return []
    formula = " * ".join(quote(name) for name in by)
    return [Warned(
        Kind.ACCURACY,
        f'Effects of units can stand for those of strata: predictors = "{formula}" in '
        f"[synthesizer] has {fewer:,} cells in place of {cells:,}. Chains are far quicker, and "
        "levels that are rare in every stratum keep their shares; synthetic strata do not differ.",
    )]  # fmt: skip
