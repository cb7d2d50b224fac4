"""The pseudo-posterior mechanism (methods 2): from confidential records to m private draws.

This is the one place that hits a target epsilon; releases, debiasing and studies all call it.
``run`` splits its result by confidentiality: PrivateDraws may be published, ConfidentialFit not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surveysynth._types import (
    DIVERGENT,
    INTERNAL_SUFFIX,
    BoolArray,
    FloatArray,
    IntArray,
    Theta,
)
from surveysynth.errors import RefusedError
from surveysynth.models.base import Model, SamplingPlan
from surveysynth.privacy.budget import LEAST_SHARE, MechanismSettings, epsilon_of
from surveysynth.privacy.lipschitz import (
    LikelihoodExtremes,
    RecordBounds,
    largest_by_draw,
    likelihood_extremes,
    weighted_bounds,
)
from surveysynth.privacy.search import reach_target
from surveysynth.sampling import diagnostics
from surveysynth.survey import Confidential, PublicDesign

MAX_FITS = 60
#: A search whose weights add up to fewer records than this has run away: with all weights next to
#: zero any target is reached, by draws from the prior that tell nothing of the survey.
#: In its first fits a far outlier may bring that about in passing.
MIN_EFFECTIVE_RECORDS = 30.0
PASSING_FITS = 15
#: A sampler without common random numbers (NUTS) moves the bound by some percent from fit to fit,
#: whatever the weights. For such a one closeness to the fixed point is a root mean square instead
#: of a maximum, and after this many fits a bound somewhat below the window is taken: the safe side.
NOISY_FITS = 10
NOISY_LEAST_SHARE = 0.8
#: Gates on the fit that is released: a fit that has not converged is refused.
MAX_R_HAT = 1.05
MIN_ESS = 100.0
MAX_DIVERGENT_SHARE = 0.01

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PrivateDraws:
    """What the mechanism releases: m draws of theta (leading axis m) and public settings."""

    model: str
    theta: Theta
    settings: MechanismSettings

    @property
    def lipschitz_bound(self) -> float:
        """The target bound of one draw, an upper bound on the realised one; none: infinite."""
        return self.settings.target_bound if self.settings.private else np.inf

    def draw(self, index: int) -> Theta:
        """Parameters of released draw ``index`` (from 0), without a leading axis."""
        return {name: values[index] for name, values in self.theta.items()}


@dataclass(frozen=True, repr=False)
class ConfidentialFit:
    """What must stay in ``confidential/``: weights, realised bounds, the search, diagnostics.

    All by-record arrays are (n,) in file order.
    """

    risk_weights: FloatArray
    lipschitz_by_record: FloatArray
    oscillation_by_record: FloatArray
    unweighted_lipschitz_by_record: FloatArray
    unweighted_bound: float
    realised_bound: float
    realised_epsilon: float
    papers_epsilon: float
    search: tuple[dict[str, float], ...]
    r_hat: dict[str, float]
    ess: dict[str, float]
    kept_draws: int
    divergent_draws: int | None = None  # None: the sampler cannot diverge
    theta: Theta = field(default_factory=dict)

    def to_json_dict(self) -> dict[str, Any]:
        """Scalars and the search, for ``confidential/``; arrays are written apart."""
        return {
            "unweighted_bound": self.unweighted_bound,
            "realised_bound": self.realised_bound,
            "realised_epsilon": self.realised_epsilon,
            "papers_epsilon_2_m_delta": self.papers_epsilon,
            "effective_records": float(self.risk_weights.sum()),
            "kept_draws": self.kept_draws,
            **({} if self.divergent_draws is None else {"divergent_draws": self.divergent_draws}),
            "search": list(self.search),
            "r_hat": self.r_hat,
            "ess": self.ess,
        }


@dataclass(frozen=True, repr=False)
class _Fit:
    """One weighted fit: draws (chains, draws), their flat form of the kept ones, extremes."""

    theta: Theta
    kept: BoolArray
    extremes: LikelihoodExtremes
    bounds: RecordBounds
    risk_weights: FloatArray


class _Fitter:
    """Refits one model to one set of records under changing weights, with common random numbers:
    every fit starts the same stream, so the bound moves smoothly with the weights. A model whose
    sampler cannot do that says so by ``common_random_numbers = False``."""

    def __init__(
        self, model: Model, records: Any, n: int, settings: MechanismSettings, seed: IntArray
    ) -> None:
        self.model, self.records, self.n = model, records, n
        self.settings, self.seed = settings, seed
        self.smooth = bool(getattr(model, "common_random_numbers", True))
        self.search: list[dict[str, float]] = []

    def __call__(self, risk_weights: FloatArray) -> _Fit:
        late = len(self.search) >= PASSING_FITS
        if len(self.search) >= MAX_FITS or (late and self.ran_away(risk_weights)):
            raise _target_not_reached()
        theta = {name: values[0] for name, values in self._sample(risk_weights).items()}
        flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in theta.items()}
        kept = self._truncate(flat, risk_weights)
        if not kept.all():
            flat = {name: values[kept] for name, values in flat.items()}
        extremes = likelihood_extremes(self.model.log_lik_blocks(flat, self.records), self.n)
        bounds = weighted_bounds(extremes, risk_weights)
        self.search.append(
            {
                "mean_risk_weight": float(risk_weights.mean()),
                "delta": float(bounds.lipschitz.max()),
                "oscillation": float(bounds.oscillation.max()),
            }
        )
        return _Fit(theta, kept, extremes, bounds, risk_weights)

    def ran_away(self, risk_weights: FloatArray) -> bool:
        """Whether the weights add up to too few records to tell anything of the survey."""
        return bool(risk_weights.sum() < min(MIN_EFFECTIVE_RECORDS, 0.5 * self.n))

    def _sample(self, risk_weights: FloatArray) -> Theta:
        """One fit; refused where the squares of far too large values overflow."""
        rng = np.random.default_rng(self.seed)
        try:
            with np.errstate(over="ignore", invalid="raise"):
                stats = self.model.compress(self.records, risk_weights)
                return self.model.sample(stats, self.settings.plan, rng)
        except (np.linalg.LinAlgError, FloatingPointError):
            raise RefusedError(
                "The fit broke down: some values are far too large for numbers on the scale of "
                "the transform. Choose another transform (log, or asinh with a public scale), or "
                "check the outcome for values that cannot be right."
            ) from None

    def on_target(self, realised: float, target: float) -> bool:
        """Whether the bound lies in [0.97, 1] x target, or close enough on the safe side for a
        sampler without common random numbers."""
        patient = self.smooth or len(self.search) < NOISY_FITS
        least = LEAST_SHARE if patient else NOISY_LEAST_SHARE
        return least * target <= realised <= target

    def _truncate(self, flat: Theta, risk_weights: FloatArray) -> BoolArray:
        """[P] 3.1: keep the draws up to a quantile of their largest weighted bounds."""
        draws = self.settings.plan.kept
        if self.settings.truncate >= 1.0:
            return np.ones(draws, dtype=bool)
        blocks = self.model.log_lik_blocks(flat, self.records)
        largest = largest_by_draw(blocks, risk_weights, draws)
        order = np.argsort(largest, kind="stable")
        kept = np.zeros(draws, dtype=bool)
        kept[order[: self.settings.kept_draws]] = True
        return kept


def run(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: MechanismSettings,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> tuple[PrivateDraws, ConfidentialFit]:
    """Runs the mechanism at ``settings.epsilon`` and splits the result by confidentiality.

    Methods 2: unweighted fit, risks, weights that reach the target bound epsilon / (2 m) without
    passing it, gates on convergence, and m draws at positions fixed beforehand. Raises
    ``RefusedError`` if the target is not reached or the fit has not converged.
    """
    records = model.records(design, confidential)
    return run_on_records(model, records, design.n, settings, rng, progress)


def run_on_records(
    model: Model,
    records: Any,
    n: int,
    settings: MechanismSettings,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> tuple[PrivateDraws, ConfidentialFit]:
    """``run`` for records already on the model's scale (n of them): simulated databases too."""
    say = progress or (lambda stage: None)
    fitter = _Fitter(model, records, n, settings, rng.integers(0, 2**63, size=4))
    say("unweighted fit")
    unweighted = fitter(np.ones(n))
    if settings.private:
        say("risk weights for the target epsilon")
    fit = reach_target(fitter, unweighted, settings)
    if fitter.ran_away(fit.risk_weights):
        raise _target_not_reached()
    say("convergence")
    r_hat, ess = _diagnose(model, fit)
    divergent = fit.theta.get(DIVERGENT)
    release = release_positions(settings.m, settings.plan, fit.kept)
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in fit.theta.items()}
    private = PrivateDraws(
        model.name,
        {n: values[release] for n, values in flat.items() if not n.endswith(INTERNAL_SUFFIX)},
        settings,
    )
    delta, m = float(fit.bounds.lipschitz.max()), settings.m
    return private, ConfidentialFit(
        risk_weights=fit.risk_weights,
        lipschitz_by_record=fit.bounds.lipschitz,
        oscillation_by_record=fit.bounds.oscillation,
        unweighted_lipschitz_by_record=unweighted.extremes.lipschitz,
        unweighted_bound=unweighted.bounds.realised,
        realised_bound=fit.bounds.realised,
        realised_epsilon=epsilon_of(fit.bounds.realised, m),
        papers_epsilon=epsilon_of(delta, m),
        search=tuple(fitter.search),
        r_hat=r_hat,
        ess=ess,
        kept_draws=int(fit.kept.sum()),
        divergent_draws=None if divergent is None else int(divergent.sum()),
        theta=fit.theta,
    )


def release_positions(m: int, plan: SamplingPlan, kept: BoolArray) -> IntArray:
    """Positions (m,) of the released draws among the S = chains x draws, far apart.

    Draw l comes from chain l mod chains, the draws of a chain evenly spaced up to its end. Under
    truncation the same rule runs over the kept draws, in order. Results play no part in it.
    """
    positions = np.flatnonzero(kept)
    if positions.size < kept.size:
        return np.asarray(positions[((np.arange(m) + 1) * positions.size) // m - 1])
    chain = np.arange(m) % plan.chains
    round_ = np.arange(m) // plan.chains
    rounds = -(-m // plan.chains)
    return np.asarray(positions[chain * plan.draws + ((round_ + 1) * plan.draws) // rounds - 1])


def _target_not_reached() -> RefusedError:
    return RefusedError(
        "The target epsilon was not reached: with so small an epsilon or so few records the "
        "down-weighted posterior widens as fast as its weights fall. Raise epsilon, release "
        "fewer draws m, use fewer predictors, or run 'surveysynth check' to try settings."
    )


def _diagnose(model: Model, fit: _Fit) -> tuple[dict[str, float], dict[str, float]]:
    """R-hat and ESS by parameter group; refuses a fit that has not converged."""
    divergent = fit.theta.get(DIVERGENT)
    if divergent is not None and divergent.mean() > MAX_DIVERGENT_SHARE:
        raise RefusedError(
            f"More than {MAX_DIVERGENT_SHARE:.0%} of the draws diverged: the sampler could not "
            "follow the posterior, and its draws may miss a part of it. Raise warmup, raise "
            "adapt_delta towards 1 (a Stan program of your own) or write the program in other "
            "parameters, or use the engine 'embedded' where the model has it."
        )
    monitored = model.monitored(fit.theta)
    r_hat = {name: float(diagnostics.r_hat(draws).max()) for name, draws in monitored.items()}
    ess = {
        name: float(diagnostics.effective_sample_size(draws).min())
        for name, draws in monitored.items()
    }
    failing = sorted(
        name for name in monitored if not (r_hat[name] <= MAX_R_HAT and ess[name] >= MIN_ESS)
    )
    if failing:
        raise RefusedError(
            f"The fit has not converged (R-hat above {MAX_R_HAT} or an effective sample size "
            f"below {MIN_ESS:.0f} for {', '.join(failing)}): raise draws and warmup in "
            "[synthesizer]."
        )
    return r_hat, ess
