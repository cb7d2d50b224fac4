"""Learned transforms against SciPy's normal scores and bins written out."""

import numpy as np
import pytest
from scipy import stats

from surveysynth.errors import InputError
from surveysynth.survey import transforms
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import (
    BINS,
    EVERYWHERE,
    PARTS,
    LearnedTransform,
    bin_of,
    normal_scores,
)

RNG = np.random.default_rng(2)


def with_strata(low: float = -2000.0, high: float = 80_000.0) -> tuple[LearnedTransform, int]:
    """Three curves, and a stratum for each of n records."""
    counts = RNG.gamma(2.0, 10.0, (3, BINS)) * (RNG.random((3, BINS)) < 0.8)
    knots = tuple(map(tuple, normal_scores(counts).tolist()))
    n = 3000
    codes = RNG.integers(0, 3, n)
    return LearnedTransform(low=low, high=high, curves=(knots,), codes=codes), n


def test_normal_scores_are_those_of_scipy() -> None:
    counts = RNG.gamma(1.0, 10.0, (2, BINS))
    knots = normal_scores(counts)
    share = (1.0 - EVERYWHERE) * counts / counts.sum(1, keepdims=True) + EVERYWHERE / BINS
    expected = stats.norm.ppf(np.cumsum(share, 1)[:, :-1])
    assert knots[:, PARTS:-1:PARTS] == pytest.approx(expected, abs=2e-4)
    assert (np.diff(knots) > 0).all()
    assert (np.diff(normal_scores(np.eye(1, BINS, 7))) > 0).all()
    assert knots[:, 0] == pytest.approx(-np.abs(knots[:, 0]))
    assert np.isfinite(knots).all()


def test_a_normal_law_gives_a_straight_curve() -> None:
    """Between the middle bins, not only at their ends."""
    edges = np.arange(BINS + 1)
    counts = 1e6 * np.diff(stats.norm.cdf(edges, 30.0, 6.0))
    knots = normal_scores(counts[None])[0]
    place = np.linspace(0.0, BINS, BINS * PARTS + 1)
    inner = np.abs(place - 30.0) < 12.0
    assert knots[inner] == pytest.approx((place[inner] - 30.0) / 6.0, abs=0.01)


def test_inverse_undoes_forward_by_stratum() -> None:
    transform, n = with_strata()
    values = RNG.uniform(transform.low, transform.high, n)
    assert transform.inverse(transform.forward(values)) == pytest.approx(values, rel=1e-6, abs=1e-3)
    some = RNG.random(n) < 0.3
    part = transform.at(some)
    assert (part.forward(values[some]) == transform.forward(values)[some]).all()
    assert (part.inverse(np.zeros(some.sum())) == transform.inverse(np.zeros(n))[some]).all()


def test_no_value_lies_outside_the_range() -> None:
    transform, n = with_strata()
    values = transform.inverse(RNG.normal(0.0, 10.0, n))
    ends = [transform.low, transform.high]
    assert [values.min(), values.max()] == pytest.approx(ends, rel=1e-12)
    assert values.min() >= transform.low
    assert values.max() <= transform.high
    inside = np.clip(3.0 * values, transform.low, transform.high)
    assert (transform.forward(3.0 * values) == transform.forward(inside)).all()
    assert transform.outside(np.array([-2001.0, -2000.0, 0.0, 80_000.0, 1e12])) == 2
    assert transform.violations(np.array([-1e300, 1e300])) == 0


def test_bins_are_equal_steps_of_asinh() -> None:
    grid = LearnedTransform(low=-1000.0, high=50_000.0)
    s = 50.0  # a thousandth of the farther end
    edges = s * np.sinh(np.linspace(np.arcsinh(-1000 / s), np.arcsinh(50_000 / s), BINS + 1))
    values = RNG.uniform(-3000.0, 60_000.0, 5000)
    expected = np.clip(np.searchsorted(edges, values, "right") - 1, 0, BINS - 1)
    assert (bin_of(grid, values) == expected).all()


def test_each_side_of_a_split_has_a_curve() -> None:
    counts = RNG.gamma(2.0, 10.0, (2, 1, BINS))
    curves = tuple(tuple(map(tuple, normal_scores(side).tolist())) for side in counts)
    transform = LearnedTransform(low=-500.0, high=9000.0, curves=curves)
    tax = Outcome("tax", "semicontinuous", transform, spikes=(0.0,), split=0.0)
    values = np.array([-400.0, -3.0, 3.0, 8000.0])
    for side, there in ((0, values > 0), (1, values < 0)):
        z = tax.forward(values[there], side)
        assert tax.inverse(z, side) == pytest.approx(values[there], rel=1e-6)
    category = tax.category(values)
    drawn = tax.values(category, RNG.normal(0.0, 9.0, 4))
    assert ((drawn < 0) == (values < 0)).all()
    assert drawn.min() >= -500
    assert drawn.max() <= 9000
    assert tax.formulas == (
        "learned(tax, 0 to 9,000) above 0 and learned(-tax, 0 to 500) below 0"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"low": 5.0, "high": 5.0}, "range: expected two finite numbers"),
        ({"low": 0.0, "high": np.inf}, "range: expected two finite numbers"),
        ({"high": 10.0, "share": 0.0}, "share: expected a number between 0 and 1"),
    ],
)
def test_impossible_ranges_and_shares_are_errors(given: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        LearnedTransform(**given)


def test_bounds_and_a_split_outside_the_range_are_errors() -> None:
    transform = LearnedTransform(low=0.0, high=10.0)
    with pytest.raises(InputError, match=r"outcomes\.pay\.bounds: a learned transform has a range"):
        Outcome("pay", transform=transform, lower=0.0)
    with pytest.raises(InputError, match=r"outcomes\.pay\.split: expected a number inside"):
        Outcome("pay", "semicontinuous", transform, split=0.0)


@pytest.mark.parametrize("means", [2048, 32], ids=["as it is", "too few means"])
def test_many_weights_have_the_mean_of_a_few(monkeypatch: pytest.MonkeyPatch, means: int) -> None:
    """A table for many records against the integral of each; rejects a coarse one."""
    rng = np.random.default_rng(2)
    counts = np.histogram(rng.normal(0.0, 8.0, 20_000), np.arange(-32.0, 33.0))[0] + 0.5
    knots = normal_scores(counts[None])
    both = np.concatenate([knots, 0.8 * knots - 0.1])
    given = LearnedTransform(
        low=0.3, high=3000.0, curves=(tuple(map(tuple, both.tolist())),),
        codes=np.tile([0, 1], 15_000),
    )  # fmt: skip
    mean, variance = 1.2 * rng.standard_normal(30_000), np.repeat([0.3, 0.8], 15_000)
    monkeypatch.setattr(transforms, "PER_MEAN", np.inf)
    one_by_one = given.mean_of_inverse(mean, variance)
    monkeypatch.setattr(transforms, "MEANS", means)
    monkeypatch.setattr(transforms, "PER_MEAN", 0.0)
    off = np.abs(given.mean_of_inverse(mean, variance) / one_by_one - 1.0)
    assert (np.median(off) < 2e-6 and off.max() < 1e-3) == (means == 2048)
    assert off.max() > 0
