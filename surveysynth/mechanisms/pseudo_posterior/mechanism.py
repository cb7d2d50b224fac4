"""The pseudo-posterior as one of the mechanisms, and its guarantee in words (methods 2)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth._support.resources import render
from surveysynth.mechanisms.base import (
    SEEDED,
    Combining,
    NoiseKeeper,
    Progress,
    Released,
    Statement,
    not_units,
    public_assumptions,
    uncovered_weights,
)
from surveysynth.mechanisms.pseudo_posterior import weighted_fits
from surveysynth.mechanisms.pseudo_posterior.settings import DEFAULT_ORIGIN, MechanismSettings
from surveysynth.models.base import Model
from surveysynth.models.weighted import WeightedModel, weighted_form
from surveysynth.sampling.convergence import MAX_R_HAT
from surveysynth.sampling.randomness import STAN_SEED_BITS
from surveysynth.survey.design_matrix import records_per_coefficient
from surveysynth.survey.survey import Confidential, PublicDesign, require_variation

_PACKAGE = "surveysynth.mechanisms.pseudo_posterior"
_BEYOND = (
    "replacing one record where fewer support a row was measured to move the log posterior ratio "
    "by many times the stated bound."
)
#: Of linear weights, and of normal mixtures of 300, 1,000 and 3,000 records.
_MEASURED = (
    "Replacing one record was measured to move the log posterior ratio by more than ten times the "
    "stated bound."
)


def privacy_statement(
    design: PublicDesign, settings: MechanismSettings, model: WeightedModel, *, test: bool = False
) -> Statement:
    """Return the statement of a release with these settings.

    Parameters
    ----------
    design, settings, model
        Those of the release, all public.
    test
        True for a release with a seed, which undoes the protection.

    Returns
    -------
    Statement
        ``guarantee``, ``assumptions`` and ``not_covered``; ``paragraphs`` has all of it.

    Examples
    --------
    >>> import surveysynth as ss
    >>> design, settings = ss.example_survey(n=100).design, ss.MechanismSettings(epsilon=10.8)
    >>> statement = ss.privacy_statement(design, settings, ss.get_model("fbs"))
    >>> statement.assumptions[0]
    'who is in the sample: the 100 records and hence every unweighted cell size'
    """
    public, plan, measure = design.public_weight is not None, settings.plan, settings.measure
    linear = settings.weights == "linear"
    dependence = render(_PACKAGE, "words/own_dependence.md.j2", risk=measure.name)
    text = render(
        _PACKAGE,
        "words/statement.md.j2",
        test=test,
        seeded=SEEDED,
        private=settings.private,
        epsilon=f"{settings.epsilon:g}",
        m=settings.m,
        bound=f"{settings.target_bound:g}",
        differing="outcome" if public else "outcome and sampling weight",
        title=model.title,
        public_weight=public,
        public=public_assumptions(design),
        uncovered_weights=uncovered_weights(design, proved=False),
        kept_draws=f"{settings.kept_draws:,}",
        draws=f"{plan.kept:,}",
        plan=plan,
        warmup=f"{plan.warmup:,}",
        draws_per_chain=f"{plan.draws:,}",
        max_r_hat=f"{MAX_R_HAT:g}",
        seed_bits=STAN_SEED_BITS,
        truncate=f"{settings.truncate:g}" if settings.truncate < 1 else None,
        origin=settings.origin or DEFAULT_ORIGIN,
        weights=settings.weights,
        risk=measure.name if linear else None,
        risk_words=measure.words,
        reweight=settings.reweight,
        own_dependence=dependence.strip(),
        one_record_sets_weights=settings.shares_weights,
        shares_weights=settings.shares_weights_of(model),
        measured=_MEASURED,
        smallest=f"{smallest_records(design):g}",
        least=f"{settings.least_records_of(design):.4g}",
        few=_few(design, settings),
        pseudo=f"{design.pseudo:.4g}" if model.takes_count and design.pseudo else None,
        beyond=_BEYOND,
        pooling=design.pooling,
        not_units=not_units(design),
        compiled=model.compiled,
        identified=model.identified,
        noisy_weights=not model.common_random_numbers and not linear,
    )
    return Statement.read(text, outside_of_stated(design, settings, model))


def smallest_records(design: PublicDesign) -> float:
    """Return records per coefficient of the row of X that has fewest, to a tenth: public."""
    return float(np.round(records_per_coefficient(design.matrix).min(), 1))


def _few(design: PublicDesign, settings: MechanismSettings) -> bool:
    return smallest_records(design) < math.floor(10.0 * settings.least_records_of(design)) / 10.0


def outside_of_stated(
    design: PublicDesign, settings: MechanismSettings, model: WeightedModel
) -> str:
    """Return the settings that make the statement inapplicable, if any."""
    few = settings.private and _few(design, settings)
    given = ((settings.shares_weights_of(model), "shared_weights"), (few, "small_strata"))
    keys = ", ".join(key for applies, key in given if applies)
    return keys and (
        f"outside the statement (allow = [{keys}]): replacing one record was measured to move such "
        "releases by many times as much"
    )


UNPROTECTED = (
    'NOT PRIVATE: made with risk = "none", without any protection of the confidential records. '
    "Do not publish."
)


@dataclass(frozen=True)
class PseudoPosterior:
    """Risk weights that bring the bound of every record to its target."""

    settings: MechanismSettings
    name: str = "pseudo_posterior"
    combining: Combining = "partial_synthesis"
    down_weights: bool = True

    @property
    def risk(self) -> str:
        """Name of the risk measure."""
        return self.settings.measure.name

    @property
    def note(self) -> str:
        """One sentence below every table."""
        settings = self.settings
        if not settings.private:
            return UNPROTECTED
        return (
            f"Privacy: asymptotic differential privacy with epsilon at most {settings.epsilon:g} "
            f"for the whole release (m = {settings.m} draws); the privacy statement has "
            "assumptions and limits."
        )

    def prepared(self, design: PublicDesign) -> PublicDesign:
        """Return the design with small strata pooled; raise ``RefusedError`` if impossible."""
        return self.settings.prepared(design)

    def run(
        self,
        model: Model,
        design: PublicDesign,
        confidential: Confidential,
        rng: np.random.Generator,
        progress: Progress | None = None,
        *,
        seeded: bool = False,
        keeper: NoiseKeeper | None = None,
    ) -> Released:
        """See ``weighted_fits.run``, whose record of the fit stays confidential.

        There is no noise to keep. Raises ``InputError`` for outcomes and weights that do not vary.
        """
        require_variation(design, confidential)
        settings = self.settings
        private, fit = weighted_fits.run(model, design, confidential, settings, rng, progress)
        target = {"target_epsilon": settings.epsilon, "target_bound": settings.target_bound}
        by_record = {
            "risk_weight": fit.risk_weights,
            "lipschitz": fit.lipschitz_by_record,
            "oscillation": fit.oscillation_by_record,
            "unweighted_lipschitz": fit.unweighted_lipschitz_by_record,
        }
        realised = {**(target if settings.private else {}), **fit.to_json_dict()}
        return Released(private, {}, realised, by_record, design=design)

    def statement(self, model: Model, design: PublicDesign, *, test: bool = False) -> Statement:
        """Return the guarantee in words."""
        return privacy_statement(design, self.settings, weighted_form(model, design), test=test)

    def guarantee(self) -> dict[str, Any]:
        """Return the guarantee; epsilon and lipschitz_bound are targets, hence upper bounds."""
        settings = self.settings
        words = "asymptotic differential privacy" if settings.private else "none (risk = none)"
        return {
            "guarantee": words,
            "epsilon": settings.epsilon if settings.private else None,
            "lipschitz_bound": settings.target_bound if settings.private else None,
        }

    def described(self, design: PublicDesign) -> dict[str, Any]:
        """Return risk measure and weights."""
        settings = self.settings
        return {
            **settings.measure.settings,
            "weights": settings.weights,
            "scale": settings.scale,
            "shift": settings.shift,
            "reweight": settings.reweight,
            "truncate": settings.truncate,
            "origin": settings.origin,
            "allow": list(settings.allow),
            "least_records_per_coefficient": settings.least_records_of(design),
            "records_per_coefficient": smallest_records(design),
            "pseudo_records": design.pseudo,
            "pooled": None if design.pooling is None else design.pooling.as_dict(),
        }
