"""``surveysynth check`` of sums by primary sampling unit (PSU): what their noise leaves to see."""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.release.group_centres import group_noise
from surveysynth.mechanisms.noisy_statistics.release.unit_share import USUAL_ICC, UnitNoise
from surveysynth.mechanisms.noisy_statistics.release.unit_sums import divided, unit_variances
from surveysynth.models.base import psu_codes
from surveysynth.models.parts.unit_design import UnitDesign
from surveysynth.survey.formula import quote

if TYPE_CHECKING:
    from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
    from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
    from surveysynth.models.general_location.model import GeneralLocation
    from surveysynth.survey.survey import PublicDesign

#: Another share is proposed where the sum of both errors is smaller by this with it.
WORTH = 0.1


def unit_lines(
    model: "GeneralLocation",
    design: "PublicDesign",
    settings: "NoisySettings",
    public: "LocationDesign",
) -> list[str]:
    """Return the noise of unit means, and the intraclass correlation that it lets see.

    public: of the noise of blocks.
    """
    psu = psu_codes(model, design)
    if psu is None:
        return []
    units = UnitDesign.of_survey(design)
    sizes, amount, share = unit_noise(units, design, settings, public)
    shares = f", on its shares of SD {share:.2g}" * bool(public.shape.discrete)
    error = float(sizes.icc_error(np.array([settings.psu_share]), icc=0.0)[0])
    lines = [
        f"Sums by {design.psu_name}: {units.units:,} units of {sizes.size:,.3g} records on "
        f"average; noise on a unit's mean of SD {amount:.2g} (spread 1){shares}; "
        f"an intraclass correlation near 0 is known to within {error:.2g} (one standard error)."
    ]
    lines += _best_share(settings.psu_share, sizes)
    lines += _without_strata(design)
    if error > USUAL_ICC:
        lines.append(
            f"WARNING: this noise hides intraclass correlations below {2.0 * error:.2g}, and "
            "standard errors may come out far too large. Raise epsilon or privacy.psu_share, or "
            "declare survey.design_effect from public sources."
        )
    return lines


def unit_noise(
    units: UnitDesign, design: "PublicDesign", settings: "NoisySettings", public: "LocationDesign"
) -> tuple[UnitNoise, float, float]:
    """Return the sizes of a clustered design, and what noise all of its budget would buy.

    And the SDs of the noise on a unit's mean as it is, in spreads, and on its shares."""
    clipping, discrete, size = public.clipping, public.shape.discrete, float(units.size.mean())
    whole, records = settings.of_sums(design.modelled), settings.unit_size(design)
    cost, _ = divided(whole, settings.psu_share)
    variances = unit_variances(clipping, cost, len(discrete), settings.count_share, records)
    amount = float(variances.amounts) ** 0.5 * clipping.step / size
    share = float(variances.counts) ** 0.5 / size if discrete else 0.0
    if public.centring is None:
        noise = public.variances(whole.rho, settings.count_share, records)
        of_sums = noise.cross_sd(clipping)
    else:
        of_sums, _ = group_noise(clipping, whole.rho, records, public.centring.radius)
    # Shares of one half have the SD 0.5.
    of_units = max(amount, share / 0.5) ** 2 * settings.psu_share
    sizes = UnitNoise(
        units=units.free, size=size, cell=design.n / len(public.shape.x_cells),
        of_units=of_units, of_sums=of_sums**2,
    )  # fmt: skip
    return sizes, amount, share


def _best_share(declared: float, sizes: UnitNoise) -> list[str]:
    """Propose another share of the budget where the declared one is far worse than the best."""
    best = sizes.best_share()
    shares = np.array([declared, best])
    errors = sizes.rmse_gain(shares), sizes.se_error(shares)
    now, then = np.sum(errors, axis=0)
    if now - then < WORTH:
        return []
    rmse, se = map(_percents, errors)
    return [
        f"psu_share = {best:.2g} in [privacy] suits these sizes better than {declared:.2g}: sums "
        f"by unit cost means of cells {rmse[1]} of their RMSE then, and {rmse[0]} now, "
        f"and leave standard errors unsure by {se[1]}, and {se[0]} now (with an "
        f"intraclass correlation of {USUAL_ICC:.2g})."
    ]


def _percents(shares: FloatArray) -> list[str]:
    return [f"{100.0 * each:.{int(each < 0.1)}f}%" for each in shares.tolist()]


def _without_strata(design: "PublicDesign") -> list[str]:
    """Say that effects of units can stand for strata, where these multiply the cells."""
    strata, by, cells = design.strata_name, design.by, len(design.matrix.x_cells)
    if strata is None or strata in by or strata not in design.predictors or not by:
        return []
    fewer = len(design.frame[list(by)].drop_duplicates())
    if 2 * fewer > cells:
        return []
    formula = " * ".join(quote(name) for name in by)
    return [
        f'Effects of units can stand for those of strata: predictors = "{formula}" in '
        f"[synthesizer] has {fewer:,} cells in place of {cells:,}. Chains are far quicker, and "
        "levels that are rare in every stratum keep their shares; synthetic strata do not differ."
    ]
