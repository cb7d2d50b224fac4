"""FBS, FBP and the normal regression as general location models (methods 3.6)."""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Model, Simulated, SimulationKind, psu_codes
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.population import Population
from surveysynth.survey.survey import PublicDesign


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


def noisy_form(
    form: type[GeneralLocation], model: Model, covariance_by: tuple[str, ...] | None
) -> GeneralLocation:
    """Return the general form of a model, with the priors that it changes.

    Raises ``InputError`` for priors that the general form does not have.
    """
    changed = model.changed_priors
    for key in changed:
        if key not in form.default_priors:
            raise InputError(
                f"priors.{key}: this is no prior of the general location model, which noisy "
                "statistics need. Leave it out."
            )
    return form(covariance_by, priors=changed)
