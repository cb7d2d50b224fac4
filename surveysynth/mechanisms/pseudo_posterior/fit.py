"""The confidential input of the mechanism, and the confidential results of a fit."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, Theta
from surveysynth.mechanisms.pseudo_posterior.risk import RiskData, require_pattern
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models.base import Simulated
from surveysynth.models.weighted import WeightedModel
from surveysynth.survey.survey import PublicDesign


@dataclass(frozen=True, repr=False)
class ConfidentialFit(Unpickled):
    """The confidential result of a fit: weights, realised bounds, the search, diagnostics.

    All by-record arrays are (n,) in file order. Its text shows nothing of them.

    Attributes
    ----------
    risk_weights
        alpha (n,) in [0, 1]: the share of each record's likelihood that was kept.
    lipschitz_by_record, oscillation_by_record
        Largest absolute log-likelihood of each record over the kept draws, measured from the origin
        in force, and its range, both weighted.
    unweighted_lipschitz_by_record
        The same before weighting.
    unweighted_bound, realised_bound
        max(Delta, max osc) before and after weighting.
    realised_epsilon, papers_epsilon
        2 m times the realised bound; 2 m Delta, which leaves the range out and is the papers' for
        origin = "density" alone: None for another.
    search
        Mean risk weight and bounds of each fit, and the origin where it is found.
    r_hat, ess
        Worst rank R-hat and bulk ESS by parameter.
    kept_draws, divergent_draws
        Draws left by truncation; divergences, None for a sampler that cannot diverge.
    theta
        All draws.
    means, unweighted_means
        Posterior means of the log scales and coefficients that debiasing compares, of the scales
        alone where the database came without its design.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> survey, model = ss.example_survey(n=400), ss.get_model("fbs")
    >>> settings, rng = ss.MechanismSettings(epsilon=10.8, m=1), np.random.default_rng(1)
    >>> design = settings.prepared(survey.design)
    >>> _, fit = ss.run_mechanism(model, design, survey.confidential, settings, rng)
    >>> fit.risk_weights.shape, fit.realised_epsilon <= 10.8
    ((400,), True)
    """

    risk_weights: FloatArray
    lipschitz_by_record: FloatArray
    oscillation_by_record: FloatArray
    unweighted_lipschitz_by_record: FloatArray
    unweighted_bound: float
    realised_bound: float
    realised_epsilon: float
    papers_epsilon: float | None
    search: tuple[dict[str, float], ...]
    r_hat: dict[str, float]
    ess: dict[str, float]
    kept_draws: int
    divergent_draws: int | None = None  # None: the sampler cannot diverge
    theta: Theta = field(default_factory=dict)
    # Weighted and unweighted: what debiasing by simulation compares, on simulated databases.
    means: FloatArray = field(default_factory=lambda: np.empty(0))
    unweighted_means: FloatArray = field(default_factory=lambda: np.empty(0))

    def to_json_dict(self) -> dict[str, Any]:
        """Return scalars and the search, for ``confidential/``; arrays are written apart."""
        return {
            "unweighted_bound": self.unweighted_bound,
            "realised_bound": self.realised_bound,
            "realised_epsilon": self.realised_epsilon,
            **(
                {}
                if self.papers_epsilon is None
                else {"papers_epsilon_2_m_delta": self.papers_epsilon}
            ),
            "effective_records": float(self.risk_weights.sum()),
            "kept_draws": self.kept_draws,
            **({} if self.divergent_draws is None else {"divergent_draws": self.divergent_draws}),
            "search": list(self.search),
            "r_hat": self.r_hat,
            "ess": self.ess,
        }


@dataclass(frozen=True, repr=False)
class Database(Unpickled):
    """One database as the mechanism sees it.

    The model's ``records``, n of them, and for risk measures that need them the outcomes (n, p)
    in original units and the frame of public columns. design: the public half, which debiasing
    needs. begin: of a simulated one, the weights (n,) that a search for a fixed point tries first,
    where a search of nearly the same database has found them."""

    records: Any
    n: int
    outcome: FloatArray | None = None
    frame: pd.DataFrame | None = None
    design: PublicDesign | None = None
    begin: FloatArray | None = None

    @classmethod
    def simulated(
        cls,
        model: WeightedModel,
        design: PublicDesign,
        dataset: Simulated,
        begin: FloatArray | None = None,
    ) -> "Database":
        """Return the database of a simulated dataset on the model's scale."""
        records = model.records_from_simulated(design, dataset)
        return cls(records, design.n, dataset.outcomes(design), design.frame, design, begin)

    def risks(self, settings: MechanismSettings, lipschitz: FloatArray) -> FloatArray:
        """Return risks (n,) in [0, 1] under the measure of ``settings``; lipschitz: f_i (n,).

        Raises ``InputError`` if the measure needs what this database lacks.
        """
        outcome = np.empty((self.n, 0)) if self.outcome is None else self.outcome
        frame = pd.DataFrame(index=range(self.n)) if self.frame is None else self.frame
        require_pattern(settings.measure, frame)
        return settings.measure.risks(RiskData(outcome, lipschitz, frame))
