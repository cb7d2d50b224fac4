"""FBS and FBP as general location models, and when they are (methods 3.6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Simulated, SimulationKind, psu_codes, require
from surveysynth.models.general_location.groups import covariance_groups, default_columns
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import PSU_PRIORS, GeneralLocation
from surveysynth.models.general_location.population import Population
from surveysynth.models.parts.unit_design import UnitDesign
from surveysynth.survey.pseudo_records import require_scales
from surveysynth.survey.survey import PublicDesign

if TYPE_CHECKING:
    from surveysynth.models.stan_engine import StanEngine


@dataclass(frozen=True)
class GeneralFBS(GeneralLocation):
    """FBS for any outcomes, with a weight or without.

    It releases the sample's distribution, with weights smoothed given all outcomes.
    """

    name = "fbs"
    takes_learned_weight = True
    words = "FBS (fully Bayes model for the observed sample)"


@dataclass(frozen=True)
class GeneralFBP(GeneralLocation):
    """FBP for one outcome: the same distribution of the sample with the same priors.

    It releases the population that the sample implies, with one weight for each cell of X.
    """

    name = "fbp"
    words = "FBP (fully Bayes model for the population)"
    requires = frozenset({"weight", "confidential_weight", "population_size", "one_outcome"})
    tilted = True

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw n records of the population ("release") or of the sample; fresh effects of units."""
        if kind == "sample":
            return super().simulate(theta, design, rng, kind)
        population = self._population(theta, design)
        units = psu_codes(self, design)
        if units is not None:
            population = population.with_units(units, rng)
        return population.drawn(rng)

    def completed(
        self,
        theta: Theta,
        design: PublicDesign,
        simulated: Simulated,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Fill missing answers by what the model says of the population, or of the sample."""
        if kind == "sample" or not design.outcomes[0].missing:
            return super().completed(theta, design, simulated, rng, kind)
        return self._population(theta, design, simulated.effects).filled(simulated, rng)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return E(w | x) in the sample (n,), constant in a cell of X."""
        of_cell = np.exp(self._population(theta, design).cell_log_weight())
        return np.asarray(of_cell[design.matrix.cell], dtype=np.float64)

    def _population(
        self, theta: Theta, design: PublicDesign, effects: FloatArray | None = None
    ) -> Population:
        return Population(*self._on_records(theta, design), effects)


@dataclass(frozen=True)
class GeneralNormal(GeneralFBS):
    """Normal regression with a log weight given the outcome: FBS with one residual covariance."""

    name = "normal"
    words = "a normal regression of the transformed outcome"
    requires = frozenset({"one_outcome"})


def general_form(
    form: type[GeneralLocation],
    design: PublicDesign,
    covariance_by: tuple[str, ...] | None,
    priors: Mapping[str, float],
    engine: "StanEngine | None" = None,
    *,
    always: bool = False,
) -> GeneralLocation | None:
    """Return the general form of FBS or FBP that a design needs, or None if it needs none.

    Outcomes with a discrete part or bounds need it, and so does residual spread by groups.
    covariance_by None: the cells of by and strata columns, unless PSUs are too few for effects.
    ``priors``: those that differ from the model's defaults; ``always``: whatever the design.

    Raises ``InputError`` for columns that cannot define groups, and for priors that the general
    form does not have.
    """
    clustered = design.psu is not None and design.design_effect is None
    special = [outcome for outcome in design.outcomes if not outcome.is_plain]
    names = covariance_by
    if names is None:
        amounts = bool(Layout.of(design, grouped=False).regressions)
        able = not clustered or UnitDesign.of_survey(design).is_enough
        names = default_columns(design) if amounts and able else ()
    if names and covariance_groups(design, names).count == 1:
        names = ()
    if not (names or special or always):
        return None
    require_scales(design.pseudo, design.outcomes)
    for key in priors:
        own = key in GeneralLocation.default_priors and (clustered or key not in PSU_PRIORS)
        if not own:
            remedy = "" if special or always else ", or set covariance_by = []"
            raise InputError(
                f"priors.{key}: this is no prior of the general location model, which outcomes of "
                "several kinds, spreads by cell and noisy statistics need. Leave it out"
                f"{remedy}."
            )
    model = form(names, priors=priors, engine=engine)
    require(model, design)
    return model
