"""How a search goes about it, by how draws move with the weights. Truth: risks that are functions
of the weights, times noise of a known law; the fixed point of the mean, by plain iteration."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior import pace
from surveysynth.mechanisms.pseudo_posterior.lipschitz import LikelihoodExtremes, weighted_bounds
from surveysynth.mechanisms.pseudo_posterior.pace import APART, SMOOTH, pace_of
from surveysynth.models import get_model
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from tests.mechanisms.pseudo_posterior.test_search import TARGET, Fit, search

N = 4000
RISKS = np.random.default_rng(1).gamma(4.0, 0.5, N)
LEVELS = Outcome("level", "categorical", levels=("a", "b", "c"))
YES_NO = Outcome("level", "categorical", levels=("a", "b"))


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


def apart(n=N):
    return replace(APART, aim=pace.AIM - pace.APART_SCALE * math.log(n))


def fixed_point(fitter, cap):
    alpha = np.ones(N)
    for _ in range(200):
        alpha = np.minimum(1.0, cap / fitter.mean(alpha))
    return alpha


@pytest.mark.parametrize("seed", range(5))
def test_draws_that_drift_apart_end_in_few_fits_with_the_weights_of_the_mean(seed):
    fitter = Fitter(apart(), 0.025, seed)
    fit = fitter.search()
    assert fit.bounds.realised <= TARGET
    assert fitter.fits <= 6
    cap = fitter.pace.aim * 0.99 ** max(0, fitter.fits - 1 - fitter.pace.patience) * TARGET
    mean = fixed_point(fitter, cap).mean()
    assert fit.risk_weights.mean() == pytest.approx(mean, rel=0.015)


def test_a_search_that_takes_them_for_smooth_waits_for_the_cap_to_fall():
    """As the general form did: it ended after thirty fits, or not at all, with less weight or
    little more."""
    fitter, other = Fitter(SMOOTH, 0.025, 1), Fitter(apart(), 0.025, 1)
    weights = fitter.search().risk_weights
    assert fitter.fits > 25
    assert weights.mean() < 1.1 * other.search().risk_weights.mean()
    with pytest.raises(RefusedError, match="too many fits"):
        Fitter(SMOOTH, 0.03, 0).search()


def test_without_noise_both_end_at_their_fixed_points():
    for wanted in (SMOOTH, apart()):
        fitter = Fitter(wanted, 0.0, 1)
        alpha = fitter.search().risk_weights
        expected = fixed_point(fitter, wanted.aim * TARGET)
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


def design_of(outcome, **given):
    rng = np.random.default_rng(2)
    names = rng.choice(outcome.levels, 300)
    frame = {"level": names, "w": rng.uniform(1.0, 2.0, 300), "g": np.arange(300) % 2,
             "unit": np.arange(300) // 10}  # fmt: skip
    return Survey.from_frame(
        pd.DataFrame(frame), outcomes=(outcome,), weight="w", by=["g"], **given
    ).design


def test_only_several_levels_in_units_drift_apart():
    model = get_model("fbs")
    several, units = design_of(LEVELS), design_of(LEVELS, psu="unit")
    two = design_of(YES_NO, psu="unit")
    for design, expected in ((several, SMOOTH), (two, SMOOTH), (None, SMOOTH)):
        own = model if design is None else model.of(design)
        assert pace_of(own, design, 300, protects=True) == expected
    found = pace_of(model.of(units), units, 300, protects=True)
    assert found == apart(300)
    assert found.aim == pytest.approx(0.985 - 0.025 * math.log(300))
    assert pace_of(model.of(units), units, 10**12, protects=True).aim == pace.LEAST_AIM


def test_simulated_databases_have_the_cap_of_the_real_one_and_no_limit():
    model, units = get_model("fbs"), design_of(LEVELS, psu="unit")
    real, simulated = (
        pace_of(model.of(units), units, 300, protects=each) for each in (True, False)
    )
    assert simulated.aim == real.aim
    assert simulated.limit == math.inf
    assert simulated.share == math.inf  # of their noise
    assert simulated.stride == 1.0  # longer steps went past the fixed point
    smooth = design_of(YES_NO)
    found = pace_of(model, smooth, 300, protects=False)
    assert (found.share, found.stride) == (pace.SIMULATED_SHARE, pace.SIMULATED_STRIDE)
    assert simulated.window(1) == simulated.window(50) == pace.SIMULATED_WINDOW
