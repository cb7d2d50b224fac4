"""The general location model (Olkin and Tate 1961; Schafer 1997, ch. 9), as a chain (methods 3).

    d_j | x, earlier d        multinomial logit
    z_j | x, d, earlier z     N(x~ c_j + r (b_j + d_jg), s_jg^2), of the records at no spike;
                              with a split one above it and one below
    log w | x, d, z           the same form, all records

d_j is the discrete part of an outcome, z_j its amount, g a group of public rows; x~ are x and
indicators of the other outcomes' categories, r the residuals of earlier z about their own x~ c.
Noisy statistics are of this form. It has data from draws but no fit of records: their own posterior
draws its parameters. FBP's form releases the population that the law of the sample implies. FBS and
the normal regression release the sample's own.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Model, Simulated, SimulationKind, psu_codes, require
from surveysynth.models.general_location.completion import Completion, steadied
from surveysynth.models.general_location.layout import (
    CovarianceGroups,
    Layout,
    covariance_groups,
    default_columns,
)
from surveysynth.models.general_location.simulate import Population, Simulation, columns_of
from surveysynth.models.units import (
    UnitDesign,
    fresh_effects,
)
from surveysynth.survey.survey import Confidential, PublicDesign

#: Constants of priors that the papers' models do not have.
OWN_PRIORS = MappingProxyType(
    {"logit_sd": 2.5, "slope_scale": 1.0, "pooling_df": 20.0, "interaction_scale": 0.3}
)
#: Constants of the priors of effects of PSUs, as in the papers' models.
PSU_PRIORS = MappingProxyType({"psu_scale": 10.0, "lkj": 6.0})


@dataclass(frozen=True, repr=False)
class GeneralRecords(Unpickled):
    """Records by cell (n,) of X: categories (n, p), and z (n, q), whose absent values are zero."""

    layout: Layout
    cell: IntArray
    category: IntArray
    z: FloatArray


def on_scale(design: PublicDesign, dataset: Confidential) -> Simulated:
    """Return the categories of a dataset's outcomes, with amounts and weight on their scales."""
    values = np.zeros((len(dataset.outcome), len(design.outcomes)))
    category = np.zeros(values.shape, dtype=np.int64)
    for j, outcome in enumerate(design.outcomes):
        given = dataset.outcome[:, j]
        category[:, j] = outcome.category(given) if outcome.is_discrete else 0
        for side in outcome.sides:
            there = category[:, j] == side
            values[there, j] = outcome.at(there).forward(given[there], side)
    if dataset.sampling_weight is not None:
        weight = design.weight_transform.forward(dataset.sampling_weight)
        values = np.column_stack([values, weight])
    return Simulated(values, category)


@dataclass(frozen=True)
class GeneralLocation(Model):
    """Base of the forms.

    covariance_by: public columns whose combinations are the groups, empty for none; None for what
    ``of`` takes from the design.
    """

    covariance_by: tuple[str, ...] | None = ()

    default_priors = MappingProxyType(
        {"coefficient_scale": 10.0, "residual_scale": 10.0, **PSU_PRIORS, **OWN_PRIORS}
    )
    clustered = True

    #: Name of the form in words, for its title.
    words: ClassVar[str] = ""

    @property
    def title(self) -> str:
        """Name in words, with the form."""
        names = self.covariance_by or ()
        by = f", residual spread by {' and '.join(names)}" if names else ""
        return f"{self.words} as a general location model{by}"

    @property
    def grouped(self) -> bool:
        """True if variances and slopes differ by group."""
        if self.covariance_by is None:
            raise InputError(
                f"covariance_by of {self.name!r} depends on the design: take the form that its "
                "method of(design) returns."
            )
        return bool(self.covariance_by)

    def of(self, design: PublicDesign) -> Self:
        """Return the model with the groups that a design has.

        covariance_by None: the cells of by and strata columns, unless PSUs are too few for effects.
        Raises ``InputError`` for columns that cannot define groups, for priors without effect, and
        for a design that lacks what the model ``requires``.
        """
        clustered, names = psu_codes(self, design) is not None, self.covariance_by
        if names is None:
            amounts = bool(Layout.of(design, grouped=False).regressions)
            able = not clustered or UnitDesign.of_survey(design).is_enough
            names = default_columns(design) if amounts and able else ()
        if names and covariance_groups(design, names).count == 1:
            names = ()
        for key in self.changed_priors:
            if key in PSU_PRIORS and not clustered:
                raise InputError(
                    f"priors.{key}: this prior is of effects of primary sampling units, and the "
                    "model has none here. Leave it out."
                )
        require(self, design)
        return self if names == self.covariance_by else replace(self, covariance_by=names)

    def under_noise(self) -> "GeneralLocation":
        """Return the model, which is in that form."""
        return self

    def groups(self, design: PublicDesign) -> CovarianceGroups:
        """Return the groups of the cells of X."""
        return covariance_groups(design, self.covariance_by or ())

    # --- records ------------------------------------------------------------------------------

    def records(self, design: PublicDesign, confidential: Confidential) -> GeneralRecords:
        """Return discrete parts, transformed amounts at no spike, and the transformed weight.

        Raises ``InputError`` for a design that lacks what the model ``requires``.
        """
        require(self, design)
        return self.records_from_simulated(design, on_scale(design, confidential))

    def records_from_simulated(
        self, design: PublicDesign, simulated: Simulated
    ) -> GeneralRecords:
        """Return the records of a dataset on the model's scale."""
        layout, category = Layout.of(design, self.grouped), simulated.category
        if category is None:
            category = np.zeros((simulated.z.shape[0], len(design.outcomes)), dtype=np.int64)
        z = columns_of(layout, category, simulated.z)
        return GeneralRecords(layout, design.matrix.cell, category, z)

    def _simulation(
        self, theta: Theta, design: PublicDesign, effects: FloatArray | None = None
    ) -> Simulation:
        return Simulation(*self._on_records(theta, design), effects)

    def _on_records(
        self, theta: Theta, design: PublicDesign
    ) -> tuple[Theta, PublicDesign, Layout, IntArray, IntArray]:
        """Return the starting point of simulations from a draw."""
        layout, groups = Layout.of(design, self.grouped), self.groups(design)
        return theta, design, layout, groups.cell, design.matrix.cell

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw categories, amounts and log weight of n records; both kinds are the same.

        Amounts of an outcome with bounds are drawn from the normal distribution that, cut there,
        has the regression's mean and variance. All PSUs have new effects.
        """
        effects = fresh_effects(theta, psu_codes(self, design), rng)
        return self._simulation(theta, design, effects).sample(rng)

    def steadied(self, theta: Theta, design: PublicDesign) -> Theta:
        """Give effects of missing answers on other parts the prior of interactions."""
        layout = Layout.of(design, self.grouped)
        return steadied(theta, layout, design.outcomes, self.priors["interaction_scale"])

    def completed(
        self,
        theta: Theta,
        design: PublicDesign,
        simulated: Simulated,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Impute missing answers from the model, as if they had been given."""
        if not any(each.missing for each in design.outcomes):
            return simulated
        completion = Completion(*self._on_records(theta, design), simulated.effects)
        return completion.filled(simulated, rng)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return E(w | x, d*, z*) (n,), given effects of PSUs; public weights, or ones."""
        if design.weight_name is None:
            return self.drawn_weight(design, simulated)
        return self._simulation(theta, design, simulated.effects).mean_weight(simulated)



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
        """Impute missing answers from the model of the population, or of the sample."""
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
