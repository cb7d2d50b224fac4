"""The search for the target with a sampler that has no common random numbers, and the gate on
divergent draws. Truth: the realised bound recomputed record by record from the fit's own draws."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import DIVERGENT, Theta
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior import pace
from surveysynth.mechanisms.pseudo_posterior import weighted_fits as mechanism
from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit, Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models.gaussian.fbs import FBS
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey
from tests.long_runs.noisy_search import Restarted

PLAN = SamplingPlan(chains=4, warmup=100, draws=150)


class Noisy(Restarted):
    """Gibbs that starts another stream for every fit, as NUTS in effect does, and says how many
    of its draws diverged."""

    key = ()
    fits = 0
    diverged = 0

    def sample(self, stats: Any, plan: SamplingPlan, rng: np.random.Generator) -> Theta:
        theta = super().sample(stats, plan, rng)
        divergent = np.zeros((1, plan.chains, plan.draws))
        divergent.reshape(-1)[: self.diverged] = 1.0
        return {**theta, DIVERGENT: divergent}


def survey(n: int) -> Survey:
    rng = np.random.default_rng(4)
    log_y = rng.normal(10.0, 0.5, n)
    frame = pd.DataFrame(
        {
            "field": np.array(list("abc"))[np.arange(n) % 3],
            "y": np.exp(log_y),
            "w": np.exp(14 - log_y + 0.3 * rng.standard_normal(n)),
        }
    )
    return Survey.from_frame(frame, outcome="y", weight="w", by=["field"])


def run(model: FBS, n: int = 400, **settings: Any) -> tuple[PrivateDraws, ConfidentialFit]:
    data = survey(n)
    chosen = MechanismSettings(**{
        "epsilon": 10.8, "plan": PLAN, "origin": "density", "shared_weights": "allow", **settings,
    })  # fmt: skip
    rng = np.random.default_rng(1)
    return mechanism.run(model, data.design, data.confidential, chosen, rng)


def recomputed_bound(model: FBS, fit: ConfidentialFit, n: int) -> float:
    """max(Delta, max osc) from the kept draws, record by record."""
    data = survey(n)
    records = model.records(data.design, data.confidential)
    flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in fit.theta.items()}
    bound = 0.0
    for rows, log_lik in model.log_lik_blocks(flat, records):
        weighted = log_lik * fit.risk_weights[rows]
        bound = max(bound, float(np.abs(weighted).max()), float(np.ptp(weighted, axis=0).max()))
    return bound


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": "fixed_point"},
        {"weights": "linear"},
        {"weights": "linear", "reweight": True},
        {"weights": "fixed_point", "truncate": 0.9},
    ],
)
@pytest.mark.parametrize("seed", [0, 100, 200])
def test_a_noisy_bound_ends_on_the_safe_side(settings: dict[str, Any], seed: int) -> None:
    Noisy.fits, model = seed, Noisy()
    private, fit = run(model, **settings)
    target = private.settings.target_bound
    assert pace.NOISY_LEAST_SHARE * target <= fit.realised_bound <= target
    assert len(fit.search) <= 30
    if "truncate" not in settings:
        assert recomputed_bound(model, fit, 400) == pytest.approx(fit.realised_bound, rel=1e-9)


def test_weights_that_run_away_with_the_noise_are_refused_soon() -> None:
    """Where the cap had to fall for long, one record would decide how far."""
    Noisy.fits = 0
    with pytest.raises(RefusedError, match="target epsilon was not reached"):
        run(Noisy(), n=800, epsilon=1.0, small_strata="allow")
    assert Noisy.fits == pace.NOISY_MOST_FITS


@pytest.mark.parametrize(
    ("model", "protects", "fits", "low", "high"),
    [
        (Noisy(), True, pace.NOISY_FITS - 1, 0.97, 1.0),
        (Noisy(), True, pace.NOISY_FITS, 0.8, 1.0),
        (FBS(), True, 50, 0.97, 1.0),
        (FBS(), False, 1, 0.9, 1.1),
    ],
)
def test_what_counts_as_on_target(
    model: FBS, protects: bool, fits: int, low: float, high: float
) -> None:
    """A wider window only for samplers with noise, after the stated number of fits; above the
    target only where nobody is protected."""
    data = survey(60)
    database = Database(model.records(data.design, data.confidential), 60)
    seed = np.arange(4, dtype=np.int64)
    settings = MechanismSettings(epsilon=10.8, plan=PLAN, origin="density")
    judge = mechanism._Run(model, database, settings, seed, protects)
    judge.history = [{}] * fits
    for share, wanted in ((low - 0.01, False), (low + 0.01, True), (high + 0.01, False)):
        assert judge.on_target(share * 1.8, 1.8) is wanted


def test_common_random_numbers_keep_the_narrow_window() -> None:
    private, fit = run(FBS())
    assert 0.97 * private.settings.target_bound <= fit.realised_bound
    assert fit.realised_bound <= private.settings.target_bound


def test_what_concerns_the_sampler_does_not_leave_the_mechanism() -> None:
    Noisy.fits, model = 0, Noisy()
    private, fit = run(model)
    assert set(private.theta) == set(fit.theta) - {DIVERGENT}
    assert fit.divergent_draws == 0
    assert fit.to_json_dict()["divergent_draws"] == 0
    assert "divergent_draws" not in run(FBS())[1].to_json_dict()


@pytest.mark.parametrize(("diverged", "refused"), [(6, False), (7, True)])
def test_more_than_one_in_a_hundred_divergent_draws_refuse(diverged: int, refused: bool) -> None:
    Noisy.fits, model = 0, Noisy()
    object.__setattr__(model, "diverged", diverged)
    if refused:
        with pytest.raises(RefusedError, match=r"More than 1% of the draws diverged.*raise warmup"):
            run(model)
    else:
        assert run(model)[1].divergent_draws == diverged
