"""The search for the target on risks that are functions of the weights, written out here: their
fixed point is known, and every fit is counted."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior.fit import (
    LikelihoodExtremes,
    RecordBounds,
    weighted_bounds,
)
from surveysynth.mechanisms.pseudo_posterior.search import SMOOTH, search_target
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings

TARGET = 1.8
BASE = np.random.default_rng(1).gamma(1.0, 1.5, 400)


@dataclass(frozen=True)
class Fit:
    risk_weights: np.ndarray
    extremes: LikelihoodExtremes
    bounds: RecordBounds


class Fitter:
    """f_i as ``risks`` of the weights gives them, the oscillation a share of them."""

    pace = SMOOTH

    def __init__(self, risks, oscillation=0.5):
        self.risks, self.oscillation, self.fits = risks, oscillation, 0

    def __call__(self, alpha):
        self.fits += 1
        if self.fits > 60:
            raise RefusedError("too many fits")
        f = self.risks(alpha)
        extremes = LikelihoodExtremes(-f, f * (self.oscillation - 1.0))
        return Fit(alpha, extremes, weighted_bounds(extremes, alpha))

    def on_target(self, realised, target):
        return 0.97 * target <= realised <= target


def wider(alpha):
    """Less weight, a wider posterior, larger risks."""
    return BASE * (1.0 + 0.5 * (1.0 - alpha.mean()))


def search(fitter, begin=None, n=BASE.size, **settings):
    options = MechanismSettings(epsilon=6 * TARGET, **settings)
    steps = search_target(fitter, options, n, begin=begin)
    alpha = next(steps)
    while True:
        try:
            alpha = steps.send(fitter(alpha))
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("oscillation", [0.5, 1.3])
def test_the_fixed_point_is_found(oscillation):
    fit = search(Fitter(wider, oscillation))
    # alpha = min(1, c / r(alpha)), solved by plain iteration to the last digit.
    cap, alpha = 0.985 * TARGET, np.ones(BASE.size)
    for _ in range(200):
        alpha = np.minimum(1.0, cap / (wider(alpha) * max(1.0, oscillation)))
    np.testing.assert_allclose(fit.risk_weights, alpha, rtol=0.02)
    assert fit.bounds.realised <= TARGET


def test_a_search_may_begin_from_other_weights():
    """From those of the fixed point it takes one fit, from any others it comes to the same."""
    found = search(Fitter(wider)).risk_weights
    again = Fitter(wider)
    np.testing.assert_array_equal(search(again, found).risk_weights, found)
    assert again.fits == 2  # the unweighted one, and this
    far = search(Fitter(wider), np.full(BASE.size, 0.2)).risk_weights
    np.testing.assert_allclose(far, found, rtol=0.02)


def test_longer_steps_find_the_same_fixed_point_in_fewer_fits():
    """Where a full step leaves about half of the distance, in the same direction."""
    fits = {}
    for stride in (1.0, 1.5):
        fitter = Fitter(lambda alpha: BASE * (1.0 + 4.0 * (1.0 - alpha.mean())))
        fitter.pace = replace(SMOOTH, stride=stride, tolerances=(0.001, 0.001))
        fits[stride] = fitter, search(fitter).risk_weights
    (full, alpha), (longer, again) = fits.values()
    np.testing.assert_allclose(again, alpha, rtol=0.03)
    assert longer.fits < full.fits


def test_noise_in_the_risks_is_averaged_out():
    rng = np.random.default_rng(2)
    fits = []
    for _ in range(20):
        fitter = Fitter(lambda alpha: wider(alpha) * np.exp(0.05 * rng.standard_normal(400)))
        fit = search(fitter)
        assert 0.9 * TARGET <= fit.bounds.realised <= TARGET
        fits.append(fitter.fits)
    assert max(fits) < 60
    assert np.median(fits) < 25


def test_a_record_whose_risk_is_noisy_moves_no_other():
    """The cap stays, whatever the largest bound does: one that followed it would hand the noise, or
    the outcome, of a single record on to the weights of all."""
    rng, steady = np.random.default_rng(5), Fitter(lambda alpha: BASE)
    loud = int(np.argmax(BASE))

    def noisy(alpha):
        risks = BASE.copy()
        risks[loud] *= np.exp(0.05 * rng.standard_normal())
        return risks

    expected = np.delete(search(steady).risk_weights, loud)
    for _ in range(20):
        fitter = Fitter(noisy)
        fit = search(fitter)
        np.testing.assert_allclose(np.delete(fit.risk_weights, loud), expected, rtol=1e-12)
        assert fit.bounds.realised <= TARGET
        assert fitter.fits <= SMOOTH.patience + 1  # the unweighted fit, and those at one cap


def test_a_record_that_passes_at_the_end_gives_way_alone():
    """The step that it asks for would take all others the rest of their way."""
    plain = Fitter(wider)
    before = search(plain).risk_weights
    record = int(np.argmin(np.abs(before - np.median(before[before < 1.0]))))

    def bumped(alpha):
        late = fitter.fits >= plain.fits
        return wider(alpha) * np.where(late & (np.arange(BASE.size) == record), 1.05, 1.0)

    fitter = Fitter(bumped)
    fit = search(fitter)
    others = np.arange(BASE.size) != record
    assert fitter.fits > plain.fits
    assert fit.bounds.realised <= TARGET
    assert fit.risk_weights[record] < before[record] / 1.03
    np.testing.assert_array_equal(fit.risk_weights[others], before[others])


def test_an_outlier_falls_by_many_orders_of_magnitude():
    """A record that dominates the fit until its weight is next to nothing."""

    def dominated(alpha):
        spread = 1.0 + 1e20 * alpha[0] / alpha.sum()
        return np.concatenate([[1e20 / spread], BASE[1:] / spread])

    fitter = Fitter(dominated)
    fit = search(fitter)
    assert fit.risk_weights[0] == pytest.approx(0.985 * TARGET / 1e20, rel=0.2)
    assert fitter.fits < 40


def test_a_record_that_left_the_likelihood_may_come_back():
    calls = []

    def once_infinite(alpha):
        calls.append(1)
        risks = wider(alpha)
        risks[7] = np.inf if len(calls) < 3 else 2.0
        return risks

    fit = search(Fitter(once_infinite))
    assert fit.risk_weights[7] == pytest.approx(0.985 * TARGET / 2.0, rel=0.1)


def test_a_runaway_is_left_to_the_fitter_to_end():
    fitter = Fitter(lambda alpha: BASE * 2.0**fitter.fits)
    with pytest.raises(RefusedError, match="too many fits"):
        search(fitter)


@pytest.mark.parametrize("jump", [1.07, 1.5])
def test_linear_weights_stop_below_a_jump_of_the_bound(jump):
    """The bound steps over the whole window at some scale: the fit below it, if it is near."""

    def stepped(alpha):
        return BASE * np.where(alpha.max() > 0.4, jump, 1.0) * (1.7 / edge)

    edge = np.max(np.clip(0.4 * (1.0 - (BASE - BASE.min()) / np.ptp(BASE)), 0, 1) * BASE)
    # 1.7 x jump is above the target, 1.7 below the window of [0.97, 1] x 1.8.
    fitter = Fitter(stepped)
    fit = search(fitter, weights="linear")
    assert 1.69 < fit.bounds.realised <= 1.7 * (1 + 1e-9)
    assert fitter.fits < 30


def test_linear_weights_never_pass_the_target():
    for scale in (None, 0.1):
        fit = search(Fitter(wider), weights="linear", scale=scale)
        assert fit.bounds.realised <= TARGET
    with pytest.raises(RefusedError, match="pass the target"):
        search(Fitter(wider), weights="linear", scale=5.0, shift=1.0)


@pytest.mark.parametrize(("share", "passes"), [(0.999, True), (1.001, False)])
def test_a_scale_by_hand_may_not_pass_the_target(share, passes):
    """Weights all one by the shift: the bound is then the largest f_i."""
    fitter = Fitter(lambda alpha: BASE * (share * TARGET / BASE.max()))
    settings = {"weights": "linear", "scale": 1.0, "shift": 1.0}
    if passes:
        assert search(fitter, **settings).bounds.realised == pytest.approx(share * TARGET)
    else:
        with pytest.raises(RefusedError, match="pass the target epsilon"):
            search(fitter, **settings)


def test_reweighting_of_weights_by_hand_keeps_their_own_bound():
    """Half of the target is realised; re-weighting lifts other records up to that, not to it."""
    fitter = Fitter(lambda alpha: BASE * (2.0 * TARGET / BASE.max()))
    before = search(fitter, weights="linear", scale=0.5)
    after = search(fitter, weights="linear", scale=0.5, reweight=True)
    assert before.bounds.realised < 0.6 * TARGET
    assert after.bounds.realised <= before.bounds.realised
    assert after.risk_weights.mean() > before.risk_weights.mean()
