"""Coefficients and propensity scores against weighted normal equations written out, sandwich
variances by hand, SciPy's optimiser, and the expected pMSE by resampling."""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from surveysynth.errors import InputError
from surveysynth.evaluation.microdata.regression import coefficient_utility, propensity_score


def frame(seed, n=400, slope=2.0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n)
    age = rng.uniform(20, 60, n)
    income = 5.0 + slope * (sex == "M") + 0.1 * age + rng.normal(0, 1, n)
    return pd.DataFrame({"sex": sex, "age": age, "income": income, "w": rng.gamma(3, 1, n)})


def by_hand(data, weight):
    x = np.column_stack([np.ones(len(data)), data.sex == "M", data.age]).astype(float)
    w = data[weight].to_numpy() if weight else np.ones(len(data))
    bread = np.linalg.inv(x.T @ (w[:, None] * x))
    beta = bread @ (x.T @ (w * data.income.to_numpy()))
    scores = x * (w * (data.income.to_numpy() - x @ beta))[:, None]
    n, k = x.shape
    return beta, np.diag(bread @ (scores.T @ scores) @ bread) * n / (n - k)


@pytest.mark.parametrize("weight", [None, "w"])
def test_coefficients_by_hand(weight):
    truth, datasets = frame(1), [frame(seed) for seed in (2, 3, 4)]
    found = coefficient_utility("income ~ sex + age", truth, datasets, weight=weight)
    beta, variance = by_hand(truth, weight)
    np.testing.assert_allclose(found.confidential, beta, rtol=1e-9)
    np.testing.assert_allclose(found.confidential_se, np.sqrt(variance), rtol=1e-9)
    each = [by_hand(data, weight) for data in datasets]
    np.testing.assert_allclose(found.synthetic, np.mean([b for b, _ in each], axis=0), rtol=1e-9)
    between = np.var([b for b, _ in each], axis=0, ddof=1)
    total = np.mean([v for _, v in each], axis=0) + between / 3
    np.testing.assert_allclose(found.synthetic_se, np.sqrt(total), rtol=1e-9)
    assert found.terms == ("Intercept", "sex[T.M]", "age")
    assert found.datasets.shape == (3, 3)


def test_another_slope_shows():
    truth = frame(1)
    same = coefficient_utility("income ~ sex + age", truth, [frame(9)]).to_frame()
    other = coefficient_utility("income ~ sex + age", truth, [frame(9, slope=1.0)]).to_frame()
    row = 1
    assert abs(same["difference_in_se"][row]) < 3 < -other["difference_in_se"][row]
    assert same["overlap"][row] > 0.2 > other["overlap"][row]


def test_propensity_score_by_another_optimiser():
    first, second = frame(1, 150), frame(2, 300, slope=1.0)
    found = propensity_score("sex + age + income", first, second)
    both = pd.concat([first, second])
    x = np.column_stack([np.ones(450), both.sex == "M", both.age, both.income]).astype(float)
    x[:, 2:] = (x[:, 2:] - x[:, 2:].mean(axis=0)) / x[:, 2:].std(axis=0)
    t = np.repeat([0.0, 1.0], [150, 300])
    fit = optimize.minimize(
        lambda b: np.logaddexp(0.0, x @ b).sum() - t @ (x @ b), np.zeros(4), tol=1e-12
    )
    chance = 1 / (1 + np.exp(-x @ fit.x))
    assert found.pmse == pytest.approx(np.mean((chance - 2 / 3) ** 2), rel=1e-5)


def test_the_expected_score_is_that_of_records_drawn_from_the_confidential_ones():
    """Chi-squares with three degrees of freedom over 3: mean 1, here with standard error 0.08.
    Two independent samples of one source differ more: 1/(1 - c) = 3 times."""
    resampled, independent = [], []
    for seed in range(100):
        truth = frame(seed, 150)
        drawn = truth.sample(300, replace=True, random_state=seed)
        resampled.append(propensity_score("sex + age + income", truth, drawn).ratio)
        other = frame(seed + 1000, 300)
        independent.append(propensity_score("sex + age + income", truth, other).ratio)
    assert 0.75 < np.mean(resampled) < 1.25
    assert 2.2 < np.mean(independent) < 3.8


def test_data_that_are_told_apart_always():
    first = frame(1)
    second = first.assign(income=first.income + 1000.0)
    found = propensity_score("income", first, second)
    assert found.pmse == pytest.approx(0.25, abs=1e-6)
    assert propensity_score("income", first, first).pmse == pytest.approx(0.0, abs=1e-12)
    assert found.to_frame().loc[0, "ratio"] > 100


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: coefficient_utility("income ~ sexe", frame(1), [frame(2)]), "sexe"),
        (lambda: coefficient_utility("sex + age", frame(1), [frame(2)]), "outcome ~ predictors"),
        (lambda: coefficient_utility("income ~ sex", frame(1), []), "at least one"),
        (lambda: coefficient_utility("income ~ sex", frame(1), [frame(2)], weight="v"), "'v'"),
        (
            lambda: coefficient_utility("income ~ sex", frame(1), [frame(2).assign(sex="X")]),
            "dataset 1: its regression has other terms",
        ),
        (lambda: propensity_score("income ~ sex", frame(1), frame(2)), "predictors alone"),
        (lambda: propensity_score("poly(incom, 2)", frame(1), frame(2)), "incom"),
    ],
)
def test_mistakes(call, match):
    with pytest.raises(InputError, match=match):
        call()
