"""How a search goes about it, by how draws move with the weights. Truth: risks that are functions
of the weights, times noise of a known law; the fixed point of the mean, by plain iteration."""

import math
from dataclasses import replace

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior import search as pace
from surveysynth.mechanisms.pseudo_posterior.fit import LikelihoodExtremes, weighted_bounds
from surveysynth.mechanisms.pseudo_posterior.search import SMOOTH, pace_of
from surveysynth.models import get_model
from tests.mechanisms.pseudo_posterior.test_search import TARGET, Fit, search

N = 4000
RISKS = np.random.default_rng(1).gamma(4.0, 0.5, N)


class Fitter:
    """Risks that grow as weights fall, with fresh deviations in every fit: exponential ones of
    ``scale``, on the log scale."""

    def __init__(self, wanted, scale, seed):
        self.pace, self.scale, self.rng = wanted, scale, np.random.default_rng(seed)
        self.fits = 0

    def mean(self, alpha):
        return RISKS * (1.0 + 0.5 * (1.0 - alpha.mean()))

    def __call__(self, alpha):
        self.fits += 1
        if self.fits > self.pace.most_fits:
            raise RefusedError("too many fits")
        noise = self.scale * (self.rng.exponential(size=N) - 1.0)
        risks = self.mean(alpha) * np.exp(noise)
        extremes = LikelihoodExtremes(-risks, -0.5 * risks)
        return Fit(alpha, extremes, weighted_bounds(extremes, alpha))

    def search(self):
        return search(self, n=N)


def fixed_point(fitter, cap):
    alpha = np.ones(N)
    for _ in range(200):
        alpha = np.minimum(1.0, cap / fitter.mean(alpha))
    return alpha


def test_without_noise_a_search_ends_at_its_fixed_point():
    fitter = Fitter(SMOOTH, 0.0, 1)
    alpha = fitter.search().risk_weights
    expected = fixed_point(fitter, SMOOTH.aim * TARGET)
    assert alpha.mean() == pytest.approx(expected.mean(), rel=0.01)


def test_the_way_that_is_left_is_small_beside_the_way_where_few_records_lose_weight():
    """One record in fifty is capped, and risks grow as it loses weight: after the first step the
    mean distance is within the tolerance, and a tenth of the way and more is left."""
    rng = np.random.default_rng(3)
    risks = np.where(np.arange(N) % 50, 0.1, TARGET * rng.uniform(1.0, 1.6, N))

    class Rare(Fitter):
        def mean(self, alpha):
            return risks * (1.0 + 2.0 * (1.0 - alpha[::50].mean()) / 5.0)

    simulated = replace(
        SMOOTH, tolerances=(0.02, 0.02), limit=math.inf, stride=pace.SIMULATED_STRIDE
    )
    loose = Rare(simulated, 0.0, 1)
    close = Rare(replace(simulated, share=pace.SIMULATED_SHARE), 0.0, 1)
    lost = [1.0 - each.search().risk_weights[::50].mean() for each in (loose, close)]
    exact = 1.0 - fixed_point(close, pace.AIM * TARGET)[::50].mean()
    assert loose.fits < close.fits <= 4
    assert lost[0] < 0.9 * exact
    assert lost[1] == pytest.approx(exact, rel=0.05)


def test_simulated_databases_have_the_cap_of_the_real_one_and_no_limit():
    model = get_model("fbs")
    real, simulated = (pace_of(model, protects=each) for each in (True, False))
    assert real == SMOOTH
    assert simulated.aim == real.aim
    assert simulated.limit == math.inf
    assert (simulated.share, simulated.stride) == (pace.SIMULATED_SHARE, pace.SIMULATED_STRIDE)
    assert simulated.window(1) == simulated.window(50) == pace.SIMULATED_WINDOW
