"""Intervals of proportions and of counts that stay where these can be.

Truth: R's svyciprop (tests/golden/statistics_survey.R wrote the figures); binomial and Poisson
probabilities, exact; coverage of counts of few records over repeated samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.estimation.combining import (
    Combined,
    korn_graubard_interval,
    logit_interval,
    positive_interval,
    t_interval,
)
from tests.estimation.test_taylor_golden import GOLDEN

RESULTS: dict[str, Any] = json.loads((Path(GOLDEN) / "statistics_survey.json").read_text())
CASES = pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])


def combined(estimate: FloatArray, se: FloatArray, df: Any) -> Combined:
    df = np.broadcast_to(np.asarray(df, dtype=float), estimate.shape).copy()
    return Combined(estimate, se, df, float(df.max()), np.zeros_like(se), se**2)


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@CASES
def test_intervals_of_proportions_equal_r_survey(case: dict[str, Any], linearisation: str) -> None:
    found = {
        name: np.array(values, dtype=float)
        for name, values in case[linearisation]["proportions"].items()
    }
    known = np.isfinite(found["estimate"])
    p, se, n, df = (found[name][known] for name in ("estimate", "se", "n", "df"))
    if linearisation == "ratio":  # R keeps the other records in calibrated domains, without weight
        n[:] = n.max()
    made = korn_graubard_interval(combined(p, se, df), n.astype(int))
    # This release of R does not limit the effective size to the number of records.
    size = p * (1 - p) / se**2 * (stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, df)) ** 2
    within = size <= n
    assert within.sum() >= 3
    for ends, name in zip(made, ("beta_lower", "beta_upper"), strict=True):
        np.testing.assert_allclose(ends[within], found[name][known][within], rtol=1e-8)
    # The Wald interval of a logistic regression, which R fits to about as many digits.
    of_logit = logit_interval(combined(p, se, case["df"]))
    for ends, name in zip(of_logit, ("logit_lower", "logit_upper"), strict=True):
        np.testing.assert_allclose(ends, found[name][known], rtol=2e-5)


def test_at_none_and_all_the_interval_is_the_exact_binomial_one() -> None:
    n = np.array([20, 20])
    lower, upper = korn_graubard_interval(combined(np.array([0.0, 1.0]), np.zeros(2), 19), n)
    end = 1 - 0.025 ** (1 / 20)
    np.testing.assert_allclose([lower, upper], [[0.0, 1 - end], [end, 1.0]], rtol=1e-12)
    assert np.isnan(logit_interval(combined(np.array([0.0, 1.0]), np.zeros(2), 19))).all()


def test_korn_graubard_holds_its_level_where_others_do_not() -> None:
    """All samples of 40 records at once, each with its binomial probability."""
    n, p = 40, 0.03
    k = np.arange(n + 1)
    share = k / n
    made = combined(share, np.sqrt(share * (1 - share) / (n - 1)), n - 1)
    chance = stats.binom.pmf(k, n, p)
    covered = {}
    for name, (lower, upper) in (
        ("exact", korn_graubard_interval(made, np.full(n + 1, n))), ("t", t_interval(made)),
    ):  # fmt: skip
        covered[name] = chance[(lower <= p) & (p <= upper)].sum()
        assert name == "t" or (lower.min() >= 0 and upper.max() <= 1)
    assert covered["exact"] >= 0.95
    assert covered["t"] < 0.75
    assert t_interval(made)[0].min() < 0


@pytest.mark.parametrize("expected", [2.0, 4.0, 8.0])
def test_counts_of_few_records_have_intervals_above_zero_that_cover(expected: float) -> None:
    """Numbers of records of a row are Poisson, their weights vary: of samples with a record there,
    each number of records with its probability and 400 sets of weights."""
    rng, truth = np.random.default_rng(2), 100.0 * expected
    covered = {"t": 0.0, "positive": 0.0}
    total = 0.0
    for records in range(1, 30):
        w = rng.lognormal(0.0, 0.4, (400, records)) * 100.0 / np.exp(0.08)
        estimate, se = w.sum(axis=1), np.sqrt((w**2).sum(axis=1))
        made = combined(estimate, se, 500.0)
        chance = stats.poisson.pmf(records, expected)
        total += chance
        for name, ends in (("t", t_interval(made)), ("positive", positive_interval(made))):
            lower, upper = ends
            covered[name] += chance * np.mean((lower <= truth) & (truth <= upper))
        lower, upper = positive_interval(made)
        assert (lower > 0).all()
        plain = t_interval(made)
        far = plain[0] >= 0
        np.testing.assert_array_equal(np.stack([lower, upper])[:, far], np.stack(plain)[:, far])
    assert covered["positive"] / total - covered["t"] / total > 0.04
    assert covered["positive"] / total > 0.94
