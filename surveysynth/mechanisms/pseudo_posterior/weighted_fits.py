"""The pseudo-posterior mechanism (methods 2): from confidential records to m private draws.

This is the one place that hits a target epsilon; releases, debiasing and studies all call it.
``run`` splits its result by confidentiality: PrivateDraws may be published, ConfidentialFit not.
"""

from collections.abc import Sequence

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.progress import CONVERGENCE, RISK_WEIGHTS, UNWEIGHTED_FIT
from surveysynth._support.types import (
    DIVERGENT,
    BoolArray,
    FloatArray,
    IntArray,
    Theta,
)
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import PrivateDraws, Progress
from surveysynth.mechanisms.pseudo_posterior.fit import (
    ConfidentialFit,
    Database,
    WeightedFit,
    largest_by_draw,
    likelihood_extremes,
    weighted_bounds,
)
from surveysynth.mechanisms.pseudo_posterior.risk import require_pattern
from surveysynth.mechanisms.pseudo_posterior.search import MAX_FITS, Search, pace_of, search_target
from surveysynth.mechanisms.pseudo_posterior.settings import (
    MechanismSettings,
    epsilon_of,
)
from surveysynth.models.base import Model
from surveysynth.models.weighted import WeightedModel, stacked, weighted_form
from surveysynth.sampling.convergence import OF_MEANS, STRICT, check_convergence
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import Start, secret_generator, starts
from surveysynth.survey.survey import Confidential, PublicDesign

#: A search fails if its weights add up to fewer records than this: with all weights near zero any
#: target is reached, by draws from the prior that say nothing of the survey. In the first fits a
#: far outlier may cause that in passing.
MIN_EFFECTIVE_RECORDS = 30.0
PASSING_FITS = 15


class _Run(Unpickled):
    """The search of one database: what it wants fitted, the fits so far, and how it ended."""

    def __init__(
        self,
        model: WeightedModel,
        database: Database,
        settings: MechanismSettings,
        start: Start,
        protects: bool,
    ) -> None:
        self.model, self.database, self.settings = model, database, settings
        # Every fit starts the same stream, so that the bound moves smoothly with the weights.
        self.start = start
        self.gates = STRICT if protects else OF_MEANS
        self.pace = pace_of(model, protects=protects)
        fixed_point = settings.weights == "fixed_point"
        self.most_fits = self.pace.most_fits if fixed_point else MAX_FITS
        self.history: list[dict[str, float]] = []
        self.unweighted: WeightedFit | None = None
        self.fit: WeightedFit | None = None
        self.refusal: RefusedError | None = None
        self._search: Search = search_target(
            self, settings, database.n, lambda f: database.risks(settings, f), database.begin
        )
        self.risk_weights = next(self._search)

    @property
    def searching(self) -> bool:
        """True if another fit is needed."""
        return self.fit is None and self.refusal is None

    def receive(self, theta: Theta) -> None:
        """Judge the fit (chains, draws) under ``risk_weights``; take the next step."""
        fit = self._fit(theta)
        self.unweighted = self.unweighted or fit
        try:
            self.risk_weights = self._search.send(fit)
            late = len(self.history) >= PASSING_FITS
            if len(self.history) >= self.most_fits or (late and self._ran_away()):
                raise _target_not_reached()
        except StopIteration as done:
            self.fit = done.value
            self.risk_weights = self.fit.risk_weights
            if self._ran_away():
                self.fit, self.refusal = None, _target_not_reached()
        except RefusedError as refusal:
            self.refusal = refusal

    def _fit(self, theta: Theta) -> WeightedFit:
        flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in theta.items()}
        kept = self._truncate(flat)
        flat = flat if kept.all() else {name: values[kept] for name, values in flat.items()}
        blocks = self.model.log_lik_blocks(flat, self.database.records)
        extremes, from_peak = likelihood_extremes(blocks, self.database.n), {}
        if self.settings.origin == "peak":
            # Of every fit its own, since down-weighted tails move the peak.
            from_peak = {"origin": self.settings.target_bound - extremes.peak()}
            extremes = extremes.measured_from(from_peak["origin"])
        bounds = weighted_bounds(extremes, self.risk_weights)
        self.history.append(
            {
                "mean_risk_weight": float(self.risk_weights.mean()),
                "delta": float(bounds.lipschitz.max()),
                "oscillation": float(bounds.oscillation.max()),
                **from_peak,
            }
        )
        return WeightedFit(theta, kept, extremes, bounds, self.risk_weights)

    def _ran_away(self) -> bool:
        """Return True if the weights add up to too few records to describe the survey."""
        return bool(self.risk_weights.sum() < min(MIN_EFFECTIVE_RECORDS, 0.5 * self.database.n))

    def on_target(self, realised: float, target: float) -> bool:
        """Return whether the bound is in the window, [0.97, 1] x target, or close enough."""
        low, high = self.pace.window(len(self.history))
        return low * target <= realised <= high * target

    def _truncate(self, flat: Theta) -> BoolArray:
        """Keep the draws up to a quantile of their largest weighted bounds ([P] 3.1)."""
        draws = self.settings.plan.kept
        if self.settings.truncate >= 1.0:
            return np.ones(draws, dtype=bool)
        blocks = self.model.log_lik_blocks(flat, self.database.records)
        largest = largest_by_draw(blocks, self.risk_weights, draws)
        order = np.argsort(largest, kind="stable")
        kept = np.zeros(draws, dtype=bool)
        kept[order[: self.settings.kept_draws]] = True
        return kept


Result = tuple[PrivateDraws, ConfidentialFit]


def run(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: MechanismSettings,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run the mechanism at ``settings.epsilon`` and split the result by confidentiality.

    Methods 2: unweighted fit, risks, weights that reach the target bound epsilon / (2 m) without
    passing it, gates on convergence, and m draws at positions fixed beforehand.

    Parameters
    ----------
    model, design, confidential
        The synthesizer and both halves of the survey.
    settings
        All public.
    rng
        None: unpredictable numbers. A reproducible generator protects nobody.
    progress
        Called with the name of each stage.

    Returns
    -------
    tuple of PrivateDraws and ConfidentialFit
        The parts that may be published, and the others.

    Raises
    ------
    RefusedError
        If the target was missed, chains did not converge, or ``settings.prepared`` would pool or
        refuse: rows of X with few records, and weights that one record sets for all.
    InputError
        For a risk measure that does not fit the survey.

    Notes
    -----
    A call writes to no ledger, and its epsilon adds up all the same: ``release``, and ``tables``
    with a ``survey_id``, keep the sum.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> survey = ss.example_survey(n=400)
    >>> settings = ss.MechanismSettings(epsilon=10.8, m=1)
    >>> private, fit = ss.run_mechanism(
    ...     ss.get_model("fbs"), settings.prepared(survey.design), survey.confidential, settings,
    ...     np.random.default_rng(1),  # without a seed, where it is to protect
    ... )
    >>> fit.realised_bound <= settings.target_bound
    True
    """
    require_pattern(settings.measure, design.frame)
    settings.require_prepared(model.with_ridge(design))
    settings.require_identified(weighted := weighted_form(model, design))
    records = weighted.records(design, confidential)
    database = Database(records, design.n, confidential.outcome, design.frame, design)
    (result,) = run_batch(weighted, [database], settings, rng or secret_generator(), progress)
    if isinstance(result, RefusedError):
        raise result
    return result


def run_batch(
    model: WeightedModel,
    databases: Sequence[Database],
    settings: MechanismSettings,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    protects: bool = True,
) -> list[Result | RefusedError]:
    """Return ``run`` for many databases side by side: one result each, or why it was refused.

    A batched model fits all of them in one sweep of arrays; the number of columns of X must be
    the same for all. Each database has random numbers of its own, whatever else is in the batch.
    ``protects``: False for simulated databases whose results stay inside: fixed-point weights need
    not be exact for every single record then.
    """
    say = progress or (lambda stage: None)
    runs = [
        _Run(model, database, settings, start, protects)
        for database, start in zip(databases, starts(rng, len(databases), words=4), strict=True)
    ]
    say(UNWEIGHTED_FIT)
    for batch in [runs] if model.batched else [[each] for each in runs]:
        searching = batch
        while searching:
            for each, theta in zip(searching, _sample(model, searching, settings), strict=True):
                if theta is None:
                    each.refusal = RefusedError(
                        "The fit broke down: some values are far too large on the scale of the "
                        "transform. Choose another one (log, or asinh with a public scale), or "
                        "check the outcome for wrong values."
                    )
                else:
                    each.receive(theta)
            if settings.private and all(len(each.history) == 1 for each in searching):
                say(RISK_WEIGHTS)
            searching = [each for each in searching if each.searching]
    say(CONVERGENCE)
    return [_result(each) for each in runs]


def _sample(
    model: WeightedModel, runs: Sequence[_Run], settings: MechanismSettings
) -> list[Theta | None]:
    """Return one fit of each database in a batch, (chains, draws).

    None where the squares of far too large values overflow."""
    generators = [each.start.generator() for each in runs]
    try:
        with np.errstate(over="ignore", invalid="raise"):
            stats = stacked(
                [model.compress(each.database.records, each.risk_weights) for each in runs]
            )
            rng = generators if model.batched else generators[0]
            theta = model.posterior_draws(stats, settings.plan, rng)
    except (np.linalg.LinAlgError, FloatingPointError):
        if len(runs) == 1:
            return [None]
        return [part for each in runs for part in _sample(model, [each], settings)]
    return [{name: values[i] for name, values in theta.items()} for i in range(len(runs))]


def _result(run_: _Run) -> Result | RefusedError:
    model, settings, fit, unweighted = run_.model, run_.settings, run_.fit, run_.unweighted
    if fit is None or unweighted is None:
        return run_.refusal or _target_not_reached()
    divergent = fit.theta.get(DIVERGENT)
    try:
        r_hat, ess = check_convergence(model.monitored(fit.theta), divergent, run_.gates)
    except RefusedError as refusal:
        return refusal
    released = release_positions(settings.m, settings.plan, fit.kept)
    flat = fit.flat()
    private = PrivateDraws(
        model.name, {name: values[released] for name, values in flat.items()}, settings
    )
    delta, m = float(fit.bounds.lipschitz.max()), settings.m
    of_density = settings.origin == "density"
    return private, ConfidentialFit(
        risk_weights=fit.risk_weights,
        lipschitz_by_record=fit.bounds.lipschitz,
        oscillation_by_record=fit.bounds.oscillation,
        unweighted_lipschitz_by_record=unweighted.extremes.lipschitz,
        unweighted_bound=unweighted.bounds.realised,
        realised_bound=fit.bounds.realised,
        realised_epsilon=epsilon_of(fit.bounds.realised, m),
        papers_epsilon=epsilon_of(delta, m) if of_density else None,
        search=tuple(run_.history),
        r_hat=r_hat,
        ess=ess,
        kept_draws=int(fit.kept.sum()),
        divergent_draws=None if divergent is None else int(divergent.sum()),
        theta=fit.theta,
        means=_coordinate_means(model, run_.database, fit),
        unweighted_means=_coordinate_means(model, run_.database, unweighted),
    )


def _coordinate_means(model: WeightedModel, database: Database, fit: WeightedFit) -> FloatArray:
    """Return posterior means (d,), over the kept draws, of the values that debiasing shifts."""
    theta, design = {k: v[fit.kept] for k, v in fit.flat().items()}, database.design
    logs = model.log_scales(theta) if design is None else model.debiased(theta, design).values
    return np.asarray(logs.mean(axis=0), dtype=np.float64)


def release_positions(m: int, plan: SamplingPlan, kept: BoolArray) -> IntArray:
    """Return positions (m,) of the released draws among the S = chains x draws, far apart.

    Draw l comes from chain l mod chains, the draws of a chain evenly spaced up to its end. Under
    truncation the same rule runs over the kept draws, in order. It does not depend on results.
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
