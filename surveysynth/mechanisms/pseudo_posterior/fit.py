"""The confidential input of the mechanism, and the confidential results of a fit (methods 2).

Extremes of the log-likelihood by record and by draw are streamed (methods 4). log_lik[s, i] is
always the unweighted log-likelihood; the risk weights alpha are applied here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import INTERNAL_SUFFIX, BoolArray, FloatArray, IntArray, Theta
from surveysynth.mechanisms.pseudo_posterior.risk import RiskData, require_pattern
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models.base import Simulated
from surveysynth.models.weighted import WeightedModel
from surveysynth.survey.survey import PublicDesign

#: Share of the records whose log-likelihood lies below the "peak". Not the largest of all, which
#: one record would set.
PEAK_QUANTILE = 0.98


@dataclass(frozen=True, repr=False)
class ConfidentialFit(Unpickled):
    """The confidential result of a fit: weights, realized bounds, the search, diagnostics.

    All by-record arrays are (n,) in file order. Its text does not show them.

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
        2 m times the realized bound; 2 m Delta, which leaves the range out and is the papers' for
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


@dataclass(frozen=True, repr=False)
class LikelihoodExtremes(Unpickled):
    """lowest, highest (n,): the extremes over draws of a record's unweighted log-likelihood."""

    lowest: FloatArray
    highest: FloatArray

    def peak(self) -> float:
        """Return the log-likelihood of records near the mode of their density.

        The quantile ``PEAK_QUANTILE`` over records of the middle of its range over draws
        (methods 2.2)."""
        with np.errstate(invalid="ignore"):
            middle = 0.5 * (self.lowest + self.highest)
        middle = middle[np.isfinite(middle)]
        return float(np.quantile(middle, PEAK_QUANTILE)) if middle.size else 0.0

    def measured_from(self, origin: float) -> "LikelihoodExtremes":
        """Return the extremes of log_lik + origin; the range stays the same."""
        return LikelihoodExtremes(self.lowest + origin, self.highest + origin)

    @property
    def lipschitz(self) -> FloatArray:
        """f_i = max_s |log_lik[s, i]|, (n,); infinite where a log-likelihood is not finite."""
        largest = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        return np.where(np.isfinite(largest), largest, np.inf)

    @property
    def oscillation(self) -> FloatArray:
        """max_s log_lik - min_s log_lik, (n,); infinite where one is not finite."""
        with np.errstate(invalid="ignore"):
            spread = self.highest - self.lowest
        return np.where(np.isfinite(spread), spread, np.inf)

    @property
    def risk(self) -> FloatArray:
        """max(f_i, oscillation), (n,): what alpha_i multiplies in the bound of record i."""
        return np.maximum(self.lipschitz, self.oscillation)


@dataclass(frozen=True, repr=False)
class RecordBounds(Unpickled):
    """Weighted bounds of the records: lipschitz L_i and oscillation, each (n,) (methods 2)."""

    lipschitz: FloatArray
    oscillation: FloatArray

    @property
    def realised(self) -> float:
        """max(Delta, max osc): the bound that epsilon counts 2 m times."""
        return float(max(self.lipschitz.max(), self.oscillation.max()))


@dataclass(frozen=True, repr=False)
class WeightedFit(Unpickled):
    """One weighted fit: draws (chains, draws), which of them are kept, extremes, bounds."""

    theta: Theta
    kept: BoolArray
    extremes: LikelihoodExtremes
    bounds: RecordBounds
    risk_weights: FloatArray

    def flat(self) -> Theta:
        """Return the draws (S, ...), without values that only the sampler uses."""
        return {
            name: values.reshape(-1, *values.shape[2:])
            for name, values in self.theta.items()
            if not name.endswith(INTERNAL_SUFFIX)
        }


def likelihood_extremes(
    blocks: Iterable[tuple[IntArray, FloatArray]], n: int
) -> LikelihoodExtremes:
    """Return running extremes over draws.

    Blocks of (rows (b,), log_lik (S, b)) cover each record once.

    A non-finite log-likelihood makes a record's extreme non-finite (methods 2: alpha = 0).
    """
    lowest, highest = np.empty(n), np.empty(n)
    for rows, log_lik in blocks:
        lowest[rows] = log_lik.min(axis=0)
        highest[rows] = log_lik.max(axis=0)
    return LikelihoodExtremes(lowest, highest)


def weighted_bounds(extremes: LikelihoodExtremes, risk_weights: FloatArray) -> RecordBounds:
    """Return L_i = alpha_i f_i and osc_i; a record with alpha_i = 0 has left the likelihood: 0."""
    active = risk_weights > 0
    with np.errstate(invalid="ignore"):
        lipschitz = np.where(active, risk_weights * extremes.lipschitz, 0.0)
        oscillation = np.where(active, risk_weights * extremes.oscillation, 0.0)
    return RecordBounds(lipschitz, oscillation)


def largest_by_draw(
    blocks: Iterable[tuple[IntArray, FloatArray]], risk_weights: FloatArray, draws: int
) -> FloatArray:
    """Return max_i alpha_i |log_lik[s, i]| for each draw, (S,): truncation orders draws by it."""
    largest = np.zeros(draws)
    for rows, log_lik in blocks:
        alpha = risk_weights[rows]
        active = alpha > 0
        if active.any():
            weighted = np.abs(log_lik[:, active]) * alpha[active]
            np.maximum(largest, weighted.max(axis=1), out=largest)
    return largest
