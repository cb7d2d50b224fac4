"""Means after debiasing, against unweighted fits to the same databases, of a toy model with one
parameter: the log mean of exponential amounts, of which large ones lose most weight, or the mean of
normal ones, which are symmetric."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from surveysynth.inference.debias import debias_many
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models.base import Simulated
from surveysynth.models.weighted import Coordinates, WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from tests.inference.test_debias import design_of

SETTINGS = MechanismSettings(epsilon=4.0, m=2, plan=SamplingPlan(2, 10, 150))


@dataclass(frozen=True)
class Location(WeightedModel):
    """y of log mean mu, or of mean mu; the posterior is taken as normal about its mode."""

    skewed: bool = True

    name = "location"
    title = "a toy"
    common_random_numbers = True

    def records_from_simulated(self, design, simulated):
        return simulated.z[:, 0]

    def compress(self, records, risk_weights):
        return records, risk_weights

    def sample(self, stats, plan, rng):
        y, alpha = stats
        mean = alpha @ y / alpha.sum()
        noise = rng.standard_normal((1, plan.chains, plan.draws, 1)) / np.sqrt(alpha.sum())
        return {"mu": (np.log(mean) if self.skewed else mean) + noise}

    def monitored(self, theta):
        return theta

    def log_lik_blocks(self, theta, records):
        mu = theta["mu"]
        normal = -0.5 * ((records - mu) ** 2 + np.log(2 * np.pi))
        yield np.arange(records.size), -mu - records * np.exp(-mu) if self.skewed else normal

    def simulate(self, theta, design, rng, kind="release"):
        amounts = np.exp(theta["mu"]) * rng.standard_exponential(design.n)
        symmetric = theta["mu"] + rng.standard_normal(design.n)
        return Simulated((amounts if self.skewed else symmetric)[:, None])

    def debiased(self, theta, design):
        return Coordinates.of("location", theta["mu"])

    def with_debiased(self, theta, values, design):
        return {"mu": values}


class Half(Location):
    """It moves half of the way."""

    def with_debiased(self, theta, values, design):
        return {"mu": 0.5 * (theta["mu"] + values)}


class WrongWay(Location):
    """It moves away."""

    def with_debiased(self, theta, values, design):
        return {"mu": 2.0 * theta["mu"] - values}


@cache
def left(kind, skewed=True):
    """Mean shift of the location before and after, in posterior SDs, its error; the releases."""
    model = kind(skewed=skewed)
    design, rng = design_of(200).design, np.random.default_rng(3)
    truth = {"mu": np.array([1.0])}
    databases = [
        Database.simulated(model, design, model.simulate(truth, design, rng, "sample"))
        for _ in range(12)
    ]
    results = run_batch(model, databases, SETTINGS, rng)
    made = debias_many(model, [(design, private) for private, _ in results], rng)
    assert all(each.record.debiased for each in made)
    before = np.array([(fit.means - fit.unweighted_means)[0] for _, fit in results])
    moved = np.array(
        [
            (each.draws.theta["mu"] - private.theta["mu"]).mean()
            for each, (private, _) in zip(made, results, strict=True)
        ]
    )
    error = (before + moved).std(ddof=1) / np.sqrt(before.size)
    root = np.sqrt(design.n)
    return root * before.mean(), root * (before + moved).mean(), root * error, made


def corrected(kind):
    """Whether debiasing leaves less than a fifth of the shift, or four of its own errors."""
    before, after, error, _ = left(kind)
    return abs(after) < max(0.2 * abs(before), 4.0 * error)


def test_a_skewed_tail_that_loses_weight_takes_the_location_with_it_and_it_comes_back():
    assert left(Location)[0] < -1.0  # posterior SDs
    assert corrected(Location)


@pytest.mark.parametrize("wrong", [Half, WrongWay])
def test_half_of_the_shift_and_the_wrong_sign_are_seen(wrong):
    assert not corrected(wrong)


def test_of_symmetric_errors_the_location_stays_within_monte_carlo_error():
    _, _, _, made = left(Location, skewed=False)
    shift, error = (
        np.array([getattr(each.record, name)[0] for each in made])
        for name in ("shift", "standard_error")
    )
    assert np.mean(np.abs(shift) < 2.2 * error) > 0.7  # t of 11 degrees of freedom: 95%
    assert abs(shift.mean()) < 4.0 * np.sqrt(np.mean(error**2) / shift.size)
