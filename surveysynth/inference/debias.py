"""Debiasing of draws: find what down-weighting did to them by simulation, and undo it.

Down-weighted tails shrink residual scales, and with them every log-normal mean; means move where
the likelihood is not symmetric about them (methods 8).

The method is indirect inference on the released draws. Databases are simulated from them as the
sample would have been, and the whole mechanism is run on each at the same target. The bias is the
shift of its posterior mean against that of the unweighted fit to the same database. It is
subtracted from every released draw, before synthesis.

This is post-processing: it uses PrivateDraws, PublicDesign and fresh random numbers only. So it
costs no epsilon, and all of its results may be published.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.progress import DEBIASING
from surveysynth.errors import InputError, RefusedError
from surveysynth.inference.bias_search import MOST_BATCHES, BiasSearch, DebiasRecord
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings, own_settings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models.base import Model
from surveysynth.models.weighted import WeightedModel, weighted_form
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import Start, starts
from surveysynth.survey.survey import PublicDesign

#: Simulated databases, at least; the same number from each released draw.
DATABASES = 12
#: Rounds at most; the search ends where a round changes next to nothing.
ROUNDS = 6
#: Warm-up of the simulated fits.
MAX_WARMUP = 150

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Debiased:
    """The draws to synthesise from, debiased or as they were released, and what was done.

    Attributes
    ----------
    draws
        Of the same settings as those that were released.
    record
        What was done to them.

    Examples
    --------
    >>> import surveysynth as ss
    >>> draws = ss.PrivateDraws("fbs", {}, ss.MechanismSettings(epsilon=10.8))
    >>> ss.Debiased(draws, ss.DebiasRecord("not asked for")).record.status
    'not asked for'
    """

    draws: PrivateDraws
    record: DebiasRecord


def debias_draws(
    model: Model,
    design: PublicDesign,
    private_draws: PrivateDraws,
    rng: np.random.Generator,
    *,
    databases: int = DATABASES,
    rounds: int = ROUNDS,
    progress: Progress | None = None,
) -> Debiased:
    """Return the debiased draws of one release (methods 8.3).

    It is post-processing, and costs no epsilon.

    Parameters
    ----------
    model, design, private_draws
        Of the release.
    rng
        For the simulated databases.
    databases
        Simulated a round; rounded up to a multiple of m.
    rounds
        How often the shift is found again, at most.
    progress
        Called with the name of the stage.

    Returns
    -------
    Debiased
        Draws and record.

    Raises
    ------
    InputError
        For fewer than one database or round.
    RefusedError
        If the simulated mechanism does not reach its target, or the shift does not settle. That
        follows from the released draws alone.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> survey, model = ss.example_survey(n=400), ss.get_model("fbs")
    >>> settings = ss.MechanismSettings(epsilon=10.8, m=1)
    >>> design, rng = settings.prepared(survey.design), np.random.default_rng(1)
    >>> private, _ = ss.run_mechanism(model, design, survey.confidential, settings, rng)
    >>> made = ss.debias_draws(model, design, private, rng, databases=2, rounds=1)
    >>> made.record.databases
    2
    """
    if progress is not None:
        progress(DEBIASING)
    (result,) = debias_many(
        model, [(design, private_draws)], rng, databases=databases, rounds=rounds
    )
    if result.record.status == "not converged":
        raise not_debiased(result.record)
    return result


def not_debiased(record: DebiasRecord) -> RefusedError:
    """Return the refusal of a release whose debiasing has not converged."""
    return RefusedError(
        f"Debiasing did not converge ({record.reason}): published means and intervals would be "
        "biased by an unknown amount. Raise epsilon, release fewer draws m, or use fewer "
        'predictors; mechanism = "noisy_statistics" needs no debiasing. With inference = "paper" '
        "in [synthesizer] the draws are published without it, and intervals cover less than they "
        "say."
    )


def debias_many(
    model: Model,
    releases: Sequence[tuple[PublicDesign, PrivateDraws]],
    rng: np.random.Generator,
    *,
    databases: int = DATABASES,
    rounds: int = ROUNDS,
    plan: SamplingPlan | None = None,
) -> list[Debiased]:
    """Return debiased draws of many releases with the same settings.

    Their simulated runs are in one batch. Where a search does not converge, the draws come back as
    they are, and the record says so.

    ``plan``: of the simulated fits, as many kept draws as in the release; None: the release's own
    with a shorter warm-up.
    """
    if databases < 1 or rounds < 1:
        raise InputError(
            f"databases and rounds must be at least 1, got {databases!r} and {rounds!r}."
        )
    if not releases:
        return []
    weighted = weighted_form(model, releases[0][0])
    searches = [BiasSearch(weighted, design, draws, databases, rng) for design, draws in releases]
    active = [search for search in searches if search.record is None]
    # Every round starts the same streams, so that the shift moves smoothly with the bias.
    streams = starts(rng, MOST_BATCHES)
    for number in range(1, rounds + 1):
        if not active:
            break
        settings = own_settings(active[0].draws.settings)
        settings = replace(settings, plan=plan or _shorter_warmup(settings.plan))
        _run_round(weighted, active, settings, streams)
        active = [each for each in active if not each.conclude(last=number == rounds)]
    return [Debiased(*search.finish()) for search in searches]


def _run_round(
    model: WeightedModel,
    searches: Sequence[BiasSearch],
    settings: MechanismSettings,
    streams: Sequence[Start],
) -> None:
    """Run the mechanism on the databases of a round, and on more where too few runs succeed."""
    for stream in streams:
        if not searches:
            return
        batches = [search.simulate() for search in searches]
        databases = [database for batch in batches for database in batch]
        results = run_batch(model, databases, settings, stream.generator(), protects=False)
        for search, batch in zip(searches, batches, strict=True):
            search.receive(results[: len(batch)])
            results = results[len(batch) :]
        searches = [search for search in searches if search.short]


def _shorter_warmup(plan: SamplingPlan) -> SamplingPlan:
    """Return a plan with as many kept draws and a shorter warm-up.

    The bound grows with the number of kept draws; chains on simulated data need less warm-up."""
    return replace(plan, warmup=min(plan.warmup, MAX_WARMUP))
