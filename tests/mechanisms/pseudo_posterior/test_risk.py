"""Risks and risk weights. Truths: every pair of records in fractions (ties, zeros, negatives,
values on the ends of balls), groups by pandas, literal transcriptions of the published maps."""

import dataclasses
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior.risk import (
    CountBased,
    Lipschitz,
    NoRisk,
    Pairwise,
    RiskData,
    Scalar,
    ball_edges,
    capped,
    count_risk,
    from_risks,
    pairwise_risk,
    pattern_codes,
    relative,
    require_pattern,
    reweighted,
    risk_measure,
)

N = 60


def data(seed=0, outcomes=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"sex": rng.choice(["F", "M"], N), "region": rng.choice(list("ABC"), N),
         "age": rng.integers(1, 3, N)}
    )  # fmt: skip
    return RiskData(rng.lognormal(2, 1, (N, outcomes)), rng.gamma(2, 2, N), frame)


MEASURES = (
    Lipschitz(), CountBased(), CountBased(pattern=("sex", "region")), Pairwise(0.4),
    Pairwise(2.0, absolute=True), Scalar(), NoRisk(),
)  # fmt: skip


@pytest.mark.parametrize("measure", MEASURES)
def test_risks_are_between_zero_and_one(measure):
    for outcomes in (1, 3):
        risks = measure.risks(data(outcomes=outcomes))
        assert risks.shape == (N,)
        assert ((risks >= 0) & (risks <= 1)).all()
    assert hash(measure) == hash(dataclasses.replace(measure))


def test_lipschitz_runs_from_zero_to_one_and_keeps_what_is_infinite():
    known = dataclasses.replace(data(), lipschitz=np.array([2.0, 4.0, np.inf, 3.0]))
    np.testing.assert_array_equal(Lipschitz().risks(known), [0.0, 1.0, np.inf, 0.5])


def test_patterns_are_the_groups_of_pandas():
    frame = data().frame
    codes = pattern_codes(frame, ("sex", "age", "region"), N)
    groups = frame.groupby(["sex", "age", "region"]).ngroup().to_numpy()
    pairs = set(zip(codes.tolist(), groups.tolist(), strict=True))
    assert len(pairs) == codes.max() + 1 == groups.max() + 1
    np.testing.assert_array_equal(pattern_codes(frame, (), N), np.zeros(N))


@pytest.mark.parametrize("measure", [CountBased(), Pairwise(0.3, ("sex",))])
def test_the_largest_risk_over_outcomes_counts(measure):
    known = data(outcomes=2)
    each = [
        measure.risks(dataclasses.replace(known, outcome=known.outcome[:, [j]])) for j in (0, 1)
    ]
    assert (each[0] > each[1]).any()
    assert (each[1] > each[0]).any()
    np.testing.assert_array_equal(measure.risks(known), np.maximum(*each))


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("lipschitz", Lipschitz()),
        ("count", CountBased(0.3, ("sex",))),
        ("pairwise", Pairwise(0.3, ("sex",))),
        ("scalar", Scalar()),
        ("none", NoRisk()),
    ],
)
def test_measures_by_name(name, measure):
    found = risk_measure(name, radius=0.3, pattern=("sex",))
    assert found == measure
    assert type(found) is type(measure)
    assert found.name == name
    assert found.words


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: risk_measure("pairwis", radius=0.2), "Did you mean 'pairwise'"),
        (lambda: CountBased(0.0), "above 0"),
        (lambda: CountBased(float("nan")), "above 0"),
        (lambda: CountBased(1.5), "absolute radius"),
        (lambda: Pairwise(float("inf"), absolute=True), "finite"),
        (lambda: CountBased(True), "number above 0"),
        (lambda: CountBased(pattern="sex"), "list of names"),
        (lambda: CountBased(pattern=("sex", "sex")), "each once"),
        (lambda: require_pattern(CountBased(pattern=("sexe",)), data().frame), "mean 'sex'"),
    ],
)
def test_mistakes(make, match):
    with pytest.raises(InputError, match=match):
        make()


# --- counts within balls

#: Tenths, so that many values tie and many lie on the very end of a ball.
TENTHS = st.lists(st.integers(-60, 60), min_size=1, max_size=25)
#: Relative radii in tenths up to 1.
RADII = st.integers(1, 10)


def exact_inside(y, centre, radius, absolute):
    """Whether each value lies in the closed ball of each centre, in fractions."""
    reach = [radius if absolute else radius * abs(c) for c in centre]
    return np.array([[abs(h - c) <= r for h in y] for c, r in zip(centre, reach, strict=True)])


def exact_risks(tenths, codes, tenth, absolute=False):
    """IR and pairwise risk record by record and pair by pair, from their definitions."""
    y = [Fraction(each, 10) for each in tenths]
    inside = exact_inside(y, y, Fraction(tenth, 10), absolute)
    count, pairwise = [], []
    for i, code in enumerate(codes):
        members = [h for h, other in enumerate(codes) if other == code]
        count.append(1 - np.mean([inside[i, h] for h in members]))
        weights = [
            1 - np.mean([not (inside[i, h] or inside[j, h]) for h in members])
            for j in members
            if j != i
        ]
        pairwise.append(1 - np.mean(weights) if weights else count[-1])
    return np.array(count), np.array(pairwise)


@given(TENTHS, RADII, st.booleans(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_risks_are_those_of_every_pair_in_fractions(tenths, tenth, absolute, patterns, random):
    codes = np.array([random.randrange(patterns) for _ in tenths])
    codes = np.unique(codes, return_inverse=True)[1]
    count, pairwise = exact_risks(tenths, codes, tenth, absolute)
    y, radius = np.array(tenths) / 10, tenth / 10
    np.testing.assert_allclose(
        count_risk(y, radius, codes, absolute=absolute), count, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        pairwise_risk(y, radius, codes, absolute=absolute), pairwise, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("radius", [0.1, 0.3, 0.7, 0.9, 1.0])
def test_values_on_the_ends_of_a_ball_are_inside(radius):
    """Closed balls in decimal numbers, which are rounded: 0.7 + 0.1 < 0.8 to a computer."""
    y = np.arange(1, 2001) / 100
    tenth = round(10 * radius)
    ends = {(100 * each - 10 * tenth * each) for each in range(1, 2001)}
    assert any(end % 100 == 0 for end in ends)
    lower, upper = ball_edges(y, radius)
    for i in range(0, 2000, 37):
        centre = i + 1
        inside = [10 * abs(h - centre) <= tenth * centre for h in range(1, 2001)]
        np.testing.assert_array_equal((y >= lower[i]) & (y <= upper[i]), inside)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=40), st.floats(1e-6, 1.0))
def test_ends_rise_with_the_centre(values, radius):
    for absolute in (False, True):
        lower, upper = ball_edges(np.sort(values), radius, absolute=absolute)
        assert (np.diff(lower) >= 0).all()
        assert (np.diff(upper) >= 0).all()
        assert (lower <= np.sort(values)).all()
        assert (upper >= np.sort(values)).all()


def test_order_of_records_and_units_do_not_matter():
    rng = np.random.default_rng(5)
    y, codes = rng.lognormal(2, 1, 400), rng.integers(0, 5, 400)
    order = rng.permutation(400)
    for risk in (count_risk, pairwise_risk):
        found = risk(y, 0.2, codes)
        np.testing.assert_array_equal(risk(y[order], 0.2, codes[order]), found[order])
        np.testing.assert_array_equal(risk(4.0 * y, 0.2, codes), found)


# --- weights from risks

RISKS = arrays(np.float64, st.integers(1, 30), elements=st.floats(0.0, 1e6) | st.just(np.inf))


@given(RISKS, st.floats(1e-3, 1e3), st.floats(1.0, 10.0))
def test_capped_weights(risks, cap, more):
    alpha = capped(risks, cap)
    assert ((alpha >= 0) & (alpha <= 1)).all()
    assert (alpha[np.isinf(risks)] == 0).all()
    assert (alpha[risks <= cap] == 1).all()
    finite = np.isfinite(risks)
    assert (alpha[finite] * risks[finite] <= cap * (1 + 1e-12)).all()
    assert (capped(risks, cap * more) >= alpha).all()


@given(RISKS, st.floats(1e-3, 10.0), st.floats(0.0, 1.0))
def test_linear_weights_are_the_published_map(risks, scale, shift):
    alpha = from_risks(relative(risks), scale, shift)
    finite = risks[np.isfinite(risks)]
    expected = np.zeros(risks.size)
    for i, risk in enumerate(risks):
        if np.isfinite(risk):
            spread = finite.max() - finite.min()
            own = (risk - finite.min()) / spread if spread > 0 else 0.0
            expected[i] = min(1.0, max(0.0, scale * (1.0 - own) + shift))
    np.testing.assert_allclose(alpha, expected, rtol=1e-12, atol=1e-15)


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(0.0, 1.0) | st.just(np.inf)),
    st.floats(1e-3, 10.0),
    st.floats(-1.0, 1.0),
    st.floats(1.0, 10.0),
)
def test_weights_of_any_risks(risks, scale, shift, more):
    alpha = from_risks(risks, scale, shift)
    expected = [
        0.0 if np.isinf(risk) else min(1.0, max(0.0, scale * (1.0 - risk) + shift))
        for risk in risks
    ]
    np.testing.assert_allclose(alpha, expected, rtol=1e-12, atol=1e-15)
    assert (from_risks(risks, scale * more, shift) >= alpha).all()
    assert (relative(np.full(3, 2.0)) == 0.0).all()


def test_reweighting_divides_by_the_record_and_leaves_zeros():
    alpha = np.array([0.0, 0.2, 0.5, 1.0])
    bounds = np.array([0.0, 0.5, 2.0, 0.1])
    result = reweighted(alpha, bounds, target=2.0, factor=0.9)
    np.testing.assert_allclose(result, [0.0, 0.9 * 0.2 * 2 / 0.5, 0.9 * 0.5 * 1.0, 1.0])


@pytest.mark.parametrize("cap", [0.5, 2.0])
def test_repeated_reweighting_ends_at_the_fixed_point(cap):
    """With risks that stay as they are, eq. 2.1 repeated gives min(1, c / f) at once."""
    risks = np.array([0.1, 1.0, 4.0, 9.0])
    alpha = np.array([1.0, 0.8, 0.3, 0.01])
    for _ in range(3):
        alpha = reweighted(alpha, alpha * risks, target=cap, factor=1.0)
    np.testing.assert_allclose(alpha, capped(risks, cap))
