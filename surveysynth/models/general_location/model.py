"""The general location model (Olkin and Tate 1961; Schafer 1997, ch. 9), as a chain (methods 3).

    d_j | x, earlier d        multinomial logit
    z_j | x, d, earlier z     N(x~ c_j + r (b_j + d_jg), s_jg^2), of the records at no spike;
                              with a split one above it and one below
    log w | x, d, z           the same form, all records

d_j is the discrete part of an outcome, z_j its amount, g a group of public rows; x~ are x and
indicators of the other outcomes' categories, r the residuals of earlier z about their own x~ c. FBS
and FBP take this form where an outcome has a discrete part or bounds, or residual spread is by
groups. FBP's form samples the same distribution and releases the population that it implies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import (
    Coordinates,
    Model,
    Simulated,
    SimulationKind,
    psu_codes,
    require,
)
from surveysynth.models.general_location import coordinates
from surveysynth.models.general_location import records as general_records
from surveysynth.models.general_location.completion import Completion, steadied
from surveysynth.models.general_location.groups import CovarianceGroups, covariance_groups
from surveysynth.models.general_location.layout import Layout, names_of, of_parts
from surveysynth.models.general_location.module_parameters import MODULES, steadied_modules
from surveysynth.models.general_location.modules import Modules
from surveysynth.models.general_location.psu_sampler import LOGISTIC_VARIANCE, ClusteredGibbs
from surveysynth.models.general_location.records import GeneralRecords
from surveysynth.models.general_location.sampler import Gibbs
from surveysynth.models.general_location.simulate import Simulation, columns_of
from surveysynth.models.general_location.stan import STAN
from surveysynth.models.general_location.stats import GeneralStats, compress
from surveysynth.models.parts import psu_effects
from surveysynth.models.parts.psu_effects import INTRACLASS_GUESS, PSU_COVARIANCE
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.pseudo_records import require_scales
from surveysynth.survey.survey import Confidential, PublicDesign

#: Constants of priors that the papers' models do not have.
OWN_PRIORS = MappingProxyType(
    {"logit_sd": 2.5, "slope_scale": 1.0, "pooling_df": 20.0, "interaction_scale": 0.3}
)
#: Constants of the priors of effects of PSUs, as in the papers' models.
PSU_PRIORS = MappingProxyType({"psu_scale": 10.0, "lkj": 6.0})


@dataclass(frozen=True)
class GeneralLocation(Model):
    """Base of both forms.

    covariance_by: public columns whose combinations are the groups, empty for none.
    """

    covariance_by: tuple[str, ...] = ()

    default_priors = MappingProxyType(
        {"coefficient_scale": 10.0, "residual_scale": 10.0, **PSU_PRIORS, **OWN_PRIORS}
    )
    batched = True
    common_random_numbers = True
    takes_discrete = True
    clustered = True
    stan = STAN

    #: Name of the form in words, for its title.
    words: ClassVar[str] = ""

    @property
    def title(self) -> str:
        """Name in words, with the form."""
        by = f", residual spread by {' and '.join(self.covariance_by)}" if self.grouped else ""
        return f"{self.words} as a general location model{by}"

    @property
    def grouped(self) -> bool:
        """True if variances and slopes differ by group."""
        return bool(self.covariance_by)

    def of(self, design: PublicDesign) -> "GeneralLocation":
        """Return the model, without groups where the design has only one.

        Raises ``InputError`` for an amount without a public scale that pseudo-records need."""
        require_scales(design.pseudo, design.outcomes)
        if self.grouped and self.groups(design).count == 1:
            return replace(self, covariance_by=())
        return self

    def under_noise(self) -> "GeneralLocation":
        """Return the model, which is in that form."""
        return self

    def draws_stay_together(self, design: PublicDesign) -> bool:
        """Return whether they do: not where logits of several categories have effects of PSUs.

        Their moves are accepted or not, which differs from fit to fit, and scales mix slowly."""
        several = any(each.categories > 2 for each in design.outcomes)
        clustered = psu_codes(self, design) is not None
        return self.common_random_numbers and not (several and clustered)

    def groups(self, design: PublicDesign) -> CovarianceGroups:
        """Return the groups of the cells of X."""
        return covariance_groups(design, self.covariance_by)

    # --- records ------------------------------------------------------------------------------

    def records(self, design: PublicDesign, confidential: Confidential) -> GeneralRecords:
        """Return discrete parts, transformed amounts at no spike, and the transformed weight.

        Raises ``InputError`` for a design that lacks what the model ``requires``.
        """
        require(self, design)
        n = confidential.outcome.shape[0]
        values = np.zeros((n, len(design.outcomes)))
        category = np.zeros(values.shape, dtype=np.int64)
        for j, outcome in enumerate(design.outcomes):
            given = confidential.outcome[:, j]
            category[:, j] = outcome.category(given) if outcome.is_discrete else 0
            for side in outcome.sides:
                there = category[:, j] == side
                values[there, j] = outcome.at(there).forward(given[there], side)
        if confidential.sampling_weight is not None:
            values = np.column_stack(
                [values, design.weight_transform.forward(confidential.sampling_weight)]
            )
        return self.records_from_simulated(design, Simulated(values, category))

    def records_from_simulated(
        self, design: PublicDesign, simulated: Simulated
    ) -> GeneralRecords:
        """Return the records of a dataset on the model's scale."""
        layout = Layout.of(design, self.grouped)
        groups = self.groups(design)
        category = simulated.category
        if category is None:
            category = np.zeros((simulated.z.shape[0], len(design.outcomes)), dtype=np.int64)
        return GeneralRecords(
            layout=layout,
            x_cells=design.matrix.x_cells,
            cell=design.matrix.cell,
            category=category,
            z=columns_of(layout, category, simulated.z),
            group_of_cell=groups.cell,
            groups=groups.count,
            psu=psu_codes(self, design),
        )

    def compress(self, records: GeneralRecords, risk_weights: FloatArray) -> GeneralStats:
        """Compute weighted sufficient statistics (methods 4); raise ``InputError`` as it does."""
        return compress(records, risk_weights)

    # --- posterior ----------------------------------------------------------------------------

    def sample(
        self,
        stats: GeneralStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Draw by Gibbs; leading axes (databases, chains, draws).

        Each part has a name, the position of its outcome from 1 on ("1_below" below a split) or
        "weight": logit_* (P, C - 1), coefficients_* (C,), variance_* (groups,), coefficient_scale_*
        (); with groups pooled_scale_* and pooled_df_* (), slopes_* (groups, k) and slope_scale_*
        (). With PSUs also psu_covariance (D, D) and the effects (C, D), which stay in the
        mechanism: D are the categories but the first of each logit, then the columns of z.
        """
        streams = Streams.of(rng, stats.databases, plan.chains)
        if not stats.psus:
            return run_sweeps(Gibbs(stats, self.priors, streams), plan)
        clustered = ClusteredGibbs(stats, self.priors, streams)
        return run_sweeps(clustered, plan, clustered.each)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients, slopes of groups, log residual SDs and PSU SDs.

        They are the law of the data: b and d_g are in it as their sum alone."""
        coefficients, slopes = list[FloatArray](), list[FloatArray]()
        for name in names_of(theta, "coefficients_"):
            values, of_groups = theta[name], theta.get(name.replace("coefficients_", "slopes_"))
            if of_groups is not None:
                values, core = np.split(values, [-of_groups.shape[-1]], axis=-1)
                of_groups = of_groups + core[..., None, :]
                slopes.append(of_groups.reshape(*values.shape[:-1], -1))
            coefficients.append(values)
        logits = of_parts(theta, "logit_")
        monitored = {
            "logit": _joined([each.reshape(*each.shape[:-2], -1) for each in logits]),
            "slopes": _joined(slopes),
            "coefficients": _joined(coefficients),
            "log_residual_sd": 0.5 * np.log(_joined(of_parts(theta, "variance_"))),
        }
        if PSU_COVARIANCE in theta:
            monitored["log_psu_sd"] = psu_effects.log_psu_sd(theta)
        return {group: values for group, values in monitored.items() if values.size}

    def log_lik_blocks(
        self, theta: Theta, records: GeneralRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, (S, rows)): sums of a record's parts."""
        return general_records.log_lik_blocks(theta, records)

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return the log residual SDs of each regression, group by group, (S, J groups)."""
        return coordinates.log_scales(theta)

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Replace residual SDs of all groups, and SDs of effects of PSUs in the same ratio."""
        return coordinates.with_log_scales(theta, log_scales)

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """Return log scales, coefficients of amounts with bounds, and log odds."""
        return coordinates.debiased(theta, design, Layout.of(design, self.grouped))

    def with_debiased(self, theta: Theta, values: FloatArray, design: PublicDesign) -> Theta:
        """Replace scales, coefficients of amounts with bounds, and logits; the rest stays."""
        layout = Layout.of(design, self.grouped)
        return coordinates.with_debiased(theta, values, design, layout)

    # --- simulation ---------------------------------------------------------------------------

    def _simulation(
        self, theta: Theta, design: PublicDesign, effects: FloatArray | None = None
    ) -> Simulation:
        return Simulation(*self._on_records(theta, design), effects)

    def _modules(self, theta: Theta, design: PublicDesign) -> Modules:
        groups = self.groups(design).cell
        return Modules(theta, design, self.grouped, groups, psu_codes(self, design))

    def _on_records(
        self, theta: Theta, design: PublicDesign
    ) -> tuple[Theta, PublicDesign, Layout, IntArray, IntArray]:
        """Return what simulations of a draw begin with."""
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
        has the regression's mean and variance. All PSUs have fresh effects.
        """
        if MODULES in theta:
            return self._modules(theta, design).sample(rng)
        effects = psu_effects.fresh_effects(theta, psu_codes(self, design), rng)
        given = effects if isinstance(effects, np.ndarray) else None
        return self._simulation(theta, design, given).sample(rng)

    def steadied(self, theta: Theta, design: PublicDesign) -> Theta:
        """Give effects of missing answers on other parts the prior of interactions."""
        scale = self.priors["interaction_scale"]
        if MODULES in theta:
            return steadied_modules(theta, design, self.grouped, scale)
        layout = Layout.of(design, self.grouped)
        return steadied(theta, layout, design.outcomes, scale)

    def completed(
        self,
        theta: Theta,
        design: PublicDesign,
        simulated: Simulated,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Fill missing answers by what the model says of them, as if they had been given."""
        if not any(each.missing for each in design.outcomes):
            return simulated
        if MODULES in theta:
            return self._modules(theta, design).filled(simulated, rng)
        completion = Completion(*self._on_records(theta, design), simulated.effects)
        return completion.filled(simulated, rng)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return E(w | x, d*, z*) (n,), given effects of PSUs; public weights, or ones."""
        if design.weight_name is None:
            return self.drawn_weight(design, simulated)
        if MODULES in theta:
            return self._modules(theta, design).mean_weight(simulated)
        return self._simulation(theta, design, simulated.effects).mean_weight(simulated)

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Guess residual SD ``spread`` of each amount, that of the weight, correlation -0.5.

        Means are zero. All categories are equally frequent, for lack of a better guess. Effects of
        PSUs hold a twentieth of the variance, as in many household surveys.
        """
        layout, groups = Layout.of(design, self.grouped), self.groups(design).count
        theta: Theta = {
            f"logit_{part.name}": np.zeros((part.columns.size, part.own.size))
            for part in layout.logits
        }
        amounts = sum(sides > 0 for sides in layout.sides)
        weight_sd = design.guessed_weight_sd
        for part in layout.regressions:
            core, sd = np.zeros(part.width), spread
            if part.outcome is None:
                sd = weight_sd
                if amounts:
                    sd *= np.sqrt(0.75)
                    core[part.columns.size :] = -0.5 * weight_sd / (spread * np.sqrt(amounts))
            theta[f"coefficients_{part.name}"] = core
            theta[f"variance_{part.name}"] = np.full(groups, sd * sd)
            if self.grouped and part.earlier.size:
                theta[f"slopes_{part.name}"] = np.zeros((groups, part.earlier.size))
        if psu_codes(self, design) is not None:
            variance = np.full(layout.amount_effects.stop, LOGISTIC_VARIANCE)
            variance[layout.amount_effects] = [each[0] for each in of_parts(theta, "variance_")]
            theta[PSU_COVARIANCE] = np.diag(INTRACLASS_GUESS * variance)
        return theta


def _joined(parts: list[FloatArray]) -> FloatArray:
    return np.concatenate(parts, axis=-1) if parts else np.empty(0)
