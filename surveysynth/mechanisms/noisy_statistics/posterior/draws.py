"""Private draws of a model's parameters given noisy statistics (strict 2): post-processing.

The noise is in the model: the target is p(theta | T~, Q~, X) under the model's own prior, by data
augmentation around the model's own Gibbs sweeps (``augmentation``). It costs no epsilon.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.types import INTERNAL_SUFFIX, FloatArray, IntArray, Theta
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.posterior import moments
from surveysynth.mechanisms.noisy_statistics.posterior.augmentation import Augmentation
from surveysynth.mechanisms.noisy_statistics.posterior.location.levels import alike
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.posterior.location.unit_draws import draws_with_effects
from surveysynth.mechanisms.noisy_statistics.posterior.model_adapters import (
    ImpliedSample,
    implied_sample,
)
from surveysynth.mechanisms.noisy_statistics.posterior.moments import (
    NoisyMoments,
    NoisySums,
    NoisyTarget,
    PublicSums,
)
from surveysynth.mechanisms.noisy_statistics.posterior.patience import Patience, Said
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.module_statistics import ModuleStatistics
from surveysynth.mechanisms.noisy_statistics.release.statistics import NoisyStatistics
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    Statistics,
    public_sums,
    table_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.module_parameters import with_modules
from surveysynth.sampling.convergence import check_convergence
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import SWEEPS_AT_ONCE, Streams, run_sweeps
from surveysynth.survey.survey import PublicDesign


def sample_noisy(
    model: Any,
    noisy: NoisySums,
    public: PublicSums,
    plan: SamplingPlan,
    rng: np.random.Generator | Sequence[np.random.Generator],
    thin: int = 1,
) -> Theta:
    """Return draws as of ``model.sample``, leading axes (databases, chains, draws).

    ``thin``: rounds a draw, in the warm-up as after it. Raises ``InputError`` for a model without
    such statistics, and where n - r <= q + 1 leaves the posterior without a proper residual.
    """
    sweeps = noisy_sweeps(model, noisy, public, plan.chains, rng)
    sweeps.thin = thin
    return run_sweeps(sweeps, plan)


def noisy_sweeps(
    model: Any,
    noisy: NoisySums,
    public: PublicSums,
    chains: int,
    rng: np.random.Generator | Sequence[np.random.Generator],
) -> "NoisySweeps":
    """Return chains at their starts, ``chains`` of each database; raise ``InputError`` likewise."""
    build = implied_sample(model)
    moments.check(noisy, public)
    streams = Streams.of(rng, noisy.cross.shape[0], chains)
    target = NoisyTarget.of(noisy, public, chains)
    augmentation = Augmentation(target, noisy.spread, streams)
    implied = build(augmentation.statistics(), model.priors, streams)
    return NoisySweeps(implied, augmentation)


class NoisySweeps:
    """``thin`` rounds of the model's sweep and the moves of the augmentation; ``rounds``: so far.

    They stay where a run has left them, and the next one goes on from there.
    """

    def __init__(self, implied: ImpliedSample, augmentation: Augmentation) -> None:
        self.implied, self.augmentation, self.thin = implied, augmentation, 1
        self.rounds = 0

    def state(self) -> Theta:
        """Return the parameters of the model."""
        return self.implied.sampler.state()

    def draw_random_numbers(self, c: int) -> None:
        """Do nothing: rounds draw their own numbers, and there are ``thin`` of them in a sweep."""

    def sweep(self, i: int) -> None:
        """Run ``thin`` rounds."""
        self.go(self.thin)

    def go(self, rounds: int) -> None:
        """Run rounds of which nothing is kept."""
        for _ in range(rounds):
            i = self.rounds % SWEEPS_AT_ONCE
            if i == 0:
                self.implied.sampler.draw_random_numbers(SWEEPS_AT_ONCE)
                self.augmentation.draw_random_numbers(SWEEPS_AT_ONCE)
            self._round(i)
            self.rounds += 1

    def _round(self, i: int) -> None:
        implied, data = self.implied, self.augmentation
        # The model's sweep first: Sigma is then near what T and W say, wherever it started.
        implied.sampler.sweep(i)
        coefficients, covariance = implied.moments()
        coefficients = data.draw_coefficients(i, coefficients, covariance, implied.prior())
        implied.assign(coefficients, data.reference)
        coefficients, covariance = data.shift(
            i, coefficients, covariance, implied.prior(), implied.log_covariance_prior
        )
        implied.assign(coefficients, covariance)
        covariance = data.rescale(i, coefficients, covariance, implied.log_covariance_prior)
        implied.assign(coefficients, covariance)
        data.draw_scatter(i, covariance)
        implied.observe(data.statistics())


#: Rounds between kept draws: at first, and whenever a fit that has not converged goes on, with all
#: that it has run so far as its warm-up. Nothing but time is spent by going on.
THINNINGS = (1, 2, 4, 16, 64, 256)
#: Two at first for more logits and regressions than FEW_PARTS.
LOCATION_THINNINGS, FEW_PARTS = (1, 2, 4, 8, 16, 32, 64), 4


@dataclass(frozen=True)
class PosteriorRecord:
    """The public record of a fit.

    Largest R-hat and smallest effective sample size by group of parameters, and the number of
    rounds between kept draws."""

    r_hat: Mapping[str, float]
    ess: Mapping[str, float]
    thinning: int


def posterior_draws(
    model: Model,
    design: PublicDesign,
    statistics: Statistics,
    settings: NoisySettings,
    rng: np.random.Generator,
    progress: Said | None = None,
) -> tuple[PrivateDraws, PosteriorRecord]:
    """Return m draws of the parameters given the noisy statistics, and the record of the fit.

    ``progress``: told how long the chains will take, where that is long.
    """
    (result,) = posterior_batch(model, [(design, statistics)], settings, [rng], progress)
    if isinstance(result, RefusedError):
        raise result
    return result


def posterior_batch(
    model: Model,
    releases: Sequence[tuple[PublicDesign, Statistics]],
    settings: NoisySettings,
    rngs: Sequence[np.random.Generator],
    progress: Said | None = None,
) -> list[tuple[PrivateDraws, PosteriorRecord] | RefusedError]:
    """Return ``posterior_draws`` of many releases side by side: draws, or why there are none.

    Their numbers of columns of X and of PSUs must be the same, and their settings. Fits that have
    not converged go on; what a fit gives does not depend on the others.
    """
    general = [(d, each) for d, each in releases if not isinstance(each, NoisyStatistics)]
    if isinstance(model, GeneralLocation) and len(general) == len(releases):
        return [
            _module_draws(model, design, each, settings, rng, progress)
            if isinstance(each, ModuleStatistics)
            else location_draws(model, design, each, settings, rng, progress)
            for (design, each), rng in zip(general, rngs, strict=True)
        ]
    gaussian = [(d, each) for d, each in releases if isinstance(each, NoisyStatistics)]
    if len(gaussian) < len(releases):
        raise InputError(f"These noisy statistics were not made for the model {model.name!r}.")
    return _gaussian_batch(model, gaussian, settings, rngs)


def _gaussian_batch(
    model: Model,
    releases: Sequence[tuple[PublicDesign, NoisyStatistics]],
    settings: NoisySettings,
    rngs: Sequence[np.random.Generator],
) -> list[tuple[PrivateDraws, PosteriorRecord] | RefusedError]:
    """Return ``posterior_batch`` for models with one normal distribution of all records."""
    implied_sample(model)  # refuses a model without such statistics
    results: dict[int, tuple[PrivateDraws, PosteriorRecord] | RefusedError] = {}
    # Where most fits are done the others are better off alone: they come to the same place, since
    # each has random numbers of its own.
    begun = [deepcopy(rng) for rng in rngs]
    members = waiting = list(range(len(releases)))
    sweeps = _chains(model, releases, settings, rngs)
    plan = settings.plan
    for thinning in THINNINGS:
        if 2 * len(waiting) <= len(members):
            members, rounds = waiting, sweeps.rounds
            sweeps = _chains(
                model, [releases[i] for i in members], settings, [begun[i] for i in members]
            )
            sweeps.go(rounds)
        sweeps.thin = thinning
        theta = run_sweeps(sweeps, plan)
        plan = replace(plan, warmup=0)
        for i in waiting:
            own = {name: values[members.index(i)] for name, values in theta.items()}
            results[i] = draws_if_converged(model, own, settings, thinning)
        waiting = [i for i in waiting if isinstance(results[i], RefusedError)]
        if not waiting:
            break
    return [results[i] for i in range(len(releases))]


def _chains(
    model: Model,
    releases: Sequence[tuple[PublicDesign, NoisyStatistics]],
    settings: NoisySettings,
    rngs: Sequence[np.random.Generator],
) -> NoisySweeps:
    parts = [_moments(model, *each) for each in releases]
    return noisy_sweeps(
        model,
        NoisyMoments.stacked([moments for moments, _ in parts]),
        PublicSums.stacked([sums for _, sums in parts]),
        settings.plan.chains,
        rngs,
    )


def _moments(
    model: Model, design: PublicDesign, statistics: NoisyStatistics
) -> tuple[NoisyMoments, PublicSums]:
    """Return the statistics on the model's scale, and the public sums that belong to them."""
    centre, sign = statistics.centre.copy(), np.ones(statistics.centre.size)
    if model.tilted:
        # The last column of a model of the population is log pi~ = log(N/n) - log w (methods 3).
        assert design.population_size is not None  # the model requires it
        centre[-1] = np.log(design.population_size / design.n) - centre[-1]
        sign[-1] = -1.0
    moments = NoisyMoments(
        cross=statistics.cross * sign,
        squares=statistics.squares * sign[:, None] * sign,
        sigma=statistics.sigma,
        squares_sd=statistics.squares_sd,
        centre=centre,
        spread=statistics.spread,
    )
    return moments, public_sums(model, design, statistics.basis, statistics.psu_weight)


def location_draws(
    model: GeneralLocation,
    design: PublicDesign,
    statistics: LocationStatistics,
    settings: NoisySettings,
    rng: np.random.Generator,
    progress: Said | None = None,
) -> tuple[PrivateDraws, PosteriorRecord] | RefusedError:
    """Return m draws given the noisy statistics with the record, or why there are none.

    Chains that have not converged continue, if they were near with half of the draws so far."""
    plan, layout = settings.plan, Layout.of(design, model.grouped)
    many = len(layout.logits) + len(layout.regressions) > FEW_PARTS
    thinnings = LOCATION_THINNINGS[1:] if many else LOCATION_THINNINGS
    patience = Patience(thinnings, plan, progress)
    shape, root = table_of(model, design), alike(design.matrix)
    plain = LocationTarget.of(shape, design.matrix.cell, [statistics], plan.chains)
    target = plain.about_centre().on_columns(root)
    sweeps = LocationSweeps(layout, target, model.priors, Streams((rng,), 1), thinnings[0])
    if plan.warmup:  # its first sweep shows how long the others take
        sweeps.sweep(0)
        patience.begin(sweeps.rounds)
    sweeps.warm_up(max(plan.warmup - 1, 0))
    plan = replace(plan, chains=1, warmup=0)  # to the sampler a chain is a database of its own
    kept: Theta = {}
    for thinning in thinnings:
        more = plan.draws - (plan.draws // 2 if kept else 0)
        patience.say(thinning, sweeps.rounds, more)
        sweeps.thin = thinning
        new = run_sweeps(sweeps, replace(plan, draws=more))
        own = {
            name: np.concatenate([*([kept[name]] if kept else []), values[:, 0]], axis=1)
            for name, values in new.items()
        }
        theta = own | on_x(own, layout, root, plain.ones, statistics.centre)
        result = draws_if_converged(model, theta, settings, thinning)
        if not isinstance(result, RefusedError):
            drawn, record = result
            return draws_with_effects(drawn, model, design, shape, statistics, rng), record
        if (hopeless := patience.refusal(result, thinning, sweeps.rounds)) is not None:
            return hopeless
        # Every other draw lies as far apart as those of the next stage.
        near = patience.near(result)
        kept = {name: values[:, 1::2] for name, values in own.items()} if near else {}
    return result


def _module_draws(
    model: GeneralLocation,
    design: PublicDesign,
    statistics: ModuleStatistics,
    settings: NoisySettings,
    rng: np.random.Generator,
    progress: Said | None = None,
) -> tuple[PrivateDraws, PosteriorRecord] | RefusedError:
    """Return m draws of all outcomes, by module, or why there are none.

    The record has the worst of all modules.
    """
    modules = settings.modules_of(design)
    if statistics.outcomes != tuple(each.design.outcome_names for each in modules):
        raise InputError(
            "These noisy statistics are of other modules than the specification declares: "
            f"{'; '.join(map(listing, statistics.outcomes))}."
        )
    parts: list[PrivateDraws] = []
    records: list[PosteriorRecord] = []
    for module, own in zip(modules, statistics.modules, strict=True):
        result = location_draws(
            model.of(module.design), module.design, own, module.settings, rng, progress
        )
        if isinstance(result, RefusedError):
            return result
        parts.append(result[0])
        records.append(result[1])
    theta = with_modules([each.theta for each in parts], [each.columns for each in modules])
    record = PosteriorRecord(
        _worst(max, [each.r_hat for each in records]),
        _worst(min, [each.ess for each in records]),
        max(each.thinning for each in records),
    )
    return PrivateDraws(model.name, theta, settings), record


def _worst(
    choose: Callable[[Iterable[float]], float], found: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Return the worst value of each group of parameters."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: choose(each[name] for each in found if name in each) for name in names}


def on_x(
    theta: Theta, layout: Layout, root: FloatArray, ones: FloatArray, centre: FloatArray
) -> Theta:
    """Return coefficients of z on x~, given those of z - centre on X root.

    ones (W,): coefficients on x~ of the number one; root (K, K); centre (q,)."""
    result = {}
    for part in layout.regressions:
        name, number = f"coefficients_{part.name}", np.zeros(part.width)
        number[: part.columns.size] = ones[part.columns]
        values = theta[name].copy()
        values[..., : len(root)] = theta[name][..., : len(root)] @ root.T
        result[name] = values + centre[part.position] * number
    return result


def draws_if_converged(
    model: Model, theta: Theta, settings: NoisySettings, thinning: int
) -> tuple[PrivateDraws, PosteriorRecord] | RefusedError:
    """Return draws of one database, (chains, draws, ...), if they have converged."""
    try:
        r_hat, ess = check_convergence(model.monitored(theta), None)
    except RefusedError as refusal:
        return refusal
    positions = _spread_out(settings.m, settings.plan.kept)
    released = {
        name: values.reshape(-1, *values.shape[2:])[positions]
        for name, values in theta.items()
        if not name.endswith(INTERNAL_SUFFIX)
    }
    return PrivateDraws(model.name, released, settings), PosteriorRecord(r_hat, ess, thinning)


def _spread_out(m: int, kept: int) -> IntArray:
    """Return positions (m,) of m draws, evenly spaced over all chains."""
    return np.asarray((np.arange(m) * kept) // m + kept // (2 * m), dtype=np.int64)
