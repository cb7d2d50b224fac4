"""Propensity scores against SciPy's optimizer, and the expected pMSE by resampling."""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from surveysynth.errors import InputError
from surveysynth.evaluation.microdata import propensity_score


def frame(seed, n=400, slope=2.0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n)
    age = rng.uniform(20, 60, n)
    income = 5.0 + slope * (sex == "M") + 0.1 * age + rng.normal(0, 1, n)
    return pd.DataFrame({"sex": sex, "age": age, "income": income, "w": rng.gamma(3, 1, n)})


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
    assert found.ratio > 100


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: propensity_score("income ~ sex", frame(1), frame(2)), "predictors alone"),
        (lambda: propensity_score("poly(incom, 2)", frame(1), frame(2)), "incom"),
    ],
)
def test_mistakes(call, match):
    with pytest.raises(InputError, match=match):
        call()
