"""The pseudo-posterior as one of the mechanisms (methods 2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth.mechanisms.base import Combining, NoiseKeeper, Progress, Released
from surveysynth.mechanisms.pseudo_posterior import weighted_fits
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.statement import privacy_statement, smallest_records
from surveysynth.mechanisms.statement import Statement
from surveysynth.models.base import Model
from surveysynth.survey.survey import Confidential, PublicDesign

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
            f"for the whole release (m = {settings.m} draws), with the assumptions and limits "
            "stated in README.md."
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
        """See ``weighted_fits.run``, whose record of the fit stays confidential. No noise."""
        private, fit = weighted_fits.run(model, design, confidential, self.settings, rng, progress)
        settings = self.settings
        target = {"target_epsilon": settings.epsilon, "target_bound": settings.target_bound}
        by_record = {
            "risk_weight": fit.risk_weights,
            "lipschitz": fit.lipschitz_by_record,
            "oscillation": fit.oscillation_by_record,
            "unweighted_lipschitz": fit.unweighted_lipschitz_by_record,
        }
        realised = {**(target if settings.private else {}), **fit.to_json_dict()}
        return Released(private, realised=realised, by_record=by_record)

    def statement(self, model: Model, design: PublicDesign, *, test: bool = False) -> Statement:
        """Return the guarantee in words."""
        return privacy_statement(design, self.settings, model, test=test)

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
            "small_strata": settings.small_strata,
            "shared_weights": settings.shared_weights,
            "least_records_per_coefficient": settings.least_records,
            "records_per_coefficient": smallest_records(design),
            "pooled": None if design.pooling is None else design.pooling.as_dict(),
        }
