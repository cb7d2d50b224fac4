"""The risk-utility map of [P] 4.3: bound and utility over a grid of (scale, shift).

Each point is a fit of the confidential data. The map shows what no release may show: realized
bounds and comparisons with confidential values. No epsilon covers a choice of a point by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from surveysynth._support.types import IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.evaluation.microdata.utility import DistributionUtility, distribution_utility
from surveysynth.inference import synthesis
from surveysynth.mechanisms.pseudo_posterior.risk import Lipschitz, RiskMeasure, Scalar
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings, epsilon_of
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run
from surveysynth.models.base import Model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey, require_survey

#: A target that no scale and shift can pass: the map measures costs and reaches no target.
_NO_TARGET = 1e12

Grid = Sequence[tuple[float, float]]


@dataclass(frozen=True, repr=False)
class RiskUtilityPoint:
    """One point of the map.

    Its measure, scale and shift (None: scalar weights at the bound of the point before), the
    realized bound (max of Delta and oscillation) of a draw, what the weights keep, and the utility
    of its synthetic data; ``refusal``: why there is none.
    """

    measure: str
    scale: float | None
    shift: float | None
    bound: float
    epsilon: float
    mean_risk_weight: float
    utility: DistributionUtility | None
    refusal: str = ""


@dataclass(frozen=True, repr=False)
class RiskUtilityMap:
    """The points in the order of the grid, after the unweighted one. Confidential."""

    points: tuple[RiskUtilityPoint, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a point.

        Columns: settings, bound, epsilon of the m draws, ks, and for each estimand its estimate,
        interval, and overlap with the interval of the confidential data.
        """
        return pd.DataFrame([_row(point) for point in self.points])


def _row(point: RiskUtilityPoint) -> dict[str, object]:
    row: dict[str, object] = {
        "measure": point.measure,
        "scale": point.scale,
        "shift": point.shift,
        "bound": point.bound,
        "epsilon": point.epsilon,
        "mean_risk_weight": point.mean_risk_weight,
        "refusal": point.refusal,
    }
    if point.utility is None:
        return row
    row["ks"] = point.utility.ks
    for _, each in point.utility.to_frame().iterrows():
        name = each["estimand"]
        row[name] = each["estimate_synthetic"]
        row[f"{name}_lower"] = each["ci_lower_synthetic"]
        row[f"{name}_upper"] = each["ci_upper_synthetic"]
        row[f"{name}_overlap"] = each["overlap"]
    return row


def risk_utility_map(
    model: Model,
    survey: Survey,
    grid: Grid,
    rng: np.random.Generator,
    *,
    measure: RiskMeasure | None = None,
    reweight: bool = False,
    compare_scalar: bool = False,
    m: int = 3,
    plan: SamplingPlan | None = None,
    outcome: int = 0,
    quantiles: Sequence[float] = (0.15, 0.9),
    resamples: int = 1000,
) -> RiskUtilityMap:
    """Fit, synthesize and compare at every (scale, shift), and unweighted.

    Parameters
    ----------
    model, survey
        The synthesizer and both halves of the survey.
    grid
        Scale (above 0) and shift (in [-1, 1]) of the linear weights of each point.
    rng
        For fits, synthesis and resamples.
    measure
        The risk measure; Lipschitz unless given.
    reweight
        Whether each risk weight is raised until its record reaches the bound.
    compare_scalar
        Add scalar weights at the bound of each point, as [P] does: what the exponential
        mechanism keeps at the same bound.
    m
        Synthetic datasets of a point, summarized by their barycentre.
    plan
        Size of each fit.
    outcome
        Position of the outcome whose distribution is compared, weighted where the survey has
        weights.
    quantiles, resamples
        As in ``distribution_utility``.

    Returns
    -------
    RiskUtilityMap
        ``to_frame()``: bound and utility of every point. Confidential. A point whose fit is refused
        has a row that says why.

    Raises
    ------
    InputError
        For an empty grid and settings out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> found = ss.risk_utility_map(
    ...     ss.get_model("fbs"), ss.example_survey(n=200), [(0.9, 0.0)], np.random.default_rng(1),
    ...     m=1, plan=ss.SamplingPlan(2, 250, 250), resamples=20,
    ... )
    >>> len(found.points)
    2
    """
    require_survey(survey, "risk_utility_map")
    if not grid:
        raise InputError("a risk-utility map needs at least one (scale, shift), got none.")
    base = MechanismSettings(
        epsilon=_NO_TARGET, m=m, risk=measure or Lipschitz(), weights="linear", reweight=reweight,
        plan=plan or SamplingPlan(), shared_weights="allow",
    )  # fmt: skip
    seeds = rng.integers(0, 2**63, size=2)

    comparing = _Comparing(model, survey, seeds, outcome, quantiles, resamples)
    point = comparing.at
    points = [point(replace(base, risk="none", weights="fixed_point", reweight=False))]
    for scale, shift in grid:
        points.append(point(replace(base, scale=scale, shift=shift)))
        price = epsilon_of(points[-1].bound, m)
        if compare_scalar and np.isfinite(price):
            points.append(point(replace(base, risk=Scalar(), reweight=False, epsilon=price)))
    return RiskUtilityMap(tuple(points))


@dataclass(frozen=True, eq=False)
class _Comparing:
    """Inputs that all points share.

    These include the random numbers, so that points differ only by their weights.
    """

    model: Model
    survey: Survey
    seeds: IntArray
    outcome: int
    quantiles: Sequence[float]
    resamples: int

    def at(self, settings: MechanismSettings) -> RiskUtilityPoint:
        """Fit, synthesize and compare with these settings."""
        survey, outcome = self.survey, self.outcome
        mechanism_rng, own_rng = (np.random.default_rng(seed) for seed in self.seeds)
        try:
            private, fit = run(
                self.model, survey.design, survey.confidential, settings, mechanism_rng
            )
            datasets = list(
                synthesis.synthesise(
                    self.model, survey.design, private, replicates_per_draw=1, rng=own_rng,
                    scale_to=None, variance="release",
                )
            )  # fmt: skip
        except RefusedError as refusal:
            unknown = float("nan")
            return _point(settings, unknown, unknown, None, str(refusal))
        weight = survey.sampling_weight
        utility = distribution_utility(
            survey.confidential.outcome[:, outcome],
            [data.outcome[:, outcome] for data in datasets],
            own_rng,
            weight=weight,
            weights=None if weight is None else [data.weight for data in datasets],
            quantiles=self.quantiles,
            resamples=self.resamples,
        )
        mean = float(fit.risk_weights.mean())
        return _point(settings, fit.realised_bound, mean, utility, "")


def _point(
    settings: MechanismSettings,
    bound: float,
    mean_risk_weight: float,
    utility: DistributionUtility | None,
    refusal: str,
) -> RiskUtilityPoint:
    return RiskUtilityPoint(
        measure=settings.measure.name,
        scale=settings.scale,
        shift=settings.shift if settings.scale is not None else None,
        bound=bound,
        epsilon=epsilon_of(bound, settings.m),
        mean_risk_weight=mean_risk_weight,
        utility=utility,
        refusal=refusal,
    )
