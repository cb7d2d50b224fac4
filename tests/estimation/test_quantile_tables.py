"""Quantiles of tables: of a sample, and of several datasets by both combining rules.

Truth: R's svyquantile (tests/golden/statistics_survey.R wrote the figures); the definition, value
by value in plain Python; the combining rules on the share up to a value; repeated samples.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.estimation import linearised
from surveysynth.estimation.combining import (
    Combined,
    CombiningRule,
    PartialSynthesis,
    interval_of,
    t_interval,
)
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.linearised import RowDistributions, Weighted, weighted_quantiles
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.estimation.total_variance import TotalVariance, public_rows
from surveysynth.inference.synthesis import SyntheticDataset
from tests.estimation.replicates import jackknife, replicated
from tests.estimation.test_taylor_golden import FRAME, GOLDEN, LEVELS, sample_design

RESULTS: dict[str, Any] = json.loads((Path(GOLDEN) / "statistics_survey.json").read_text())
DOMAINS = build_domains(FRAME, ["a", "b"], LEVELS)
Y, WEIGHT = FRAME["y"].to_numpy(), FRAME["weight"].to_numpy()
QUANTILES = ["median", "quantile(0.25)", "quantile(0.9)"]


def of_sample(case: dict[str, Any], statistic: str, linearisation: Any) -> Combined:
    estimates = Estimates(
        DOMAINS, sample_design(case), [(statistic, 0)], linearisation=linearisation,
        population_size=RESULTS["population"],
    )  # fmt: skip
    estimates.add_alone(Y[:, None], WEIGHT)
    return estimates.combined((statistic, 0))


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("statistic", QUANTILES)
@pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])
def test_equals_r_survey(case: dict[str, Any], statistic: str, linearisation: str) -> None:
    expected = {
        name: np.array(each, dtype=float) for name, each in case[linearisation][statistic].items()
    }
    made = of_sample(case, statistic, linearisation)
    lower, upper = interval_of(statistic_of(statistic), made, 0.95)
    several = DOMAINS.n >= 2
    # Below the share of the first record this release of R takes the second value for the first.
    share = t_interval(made.of_share, 0.95)[0]  # type: ignore[attr-defined]
    for row in np.flatnonzero(several & (share >= 0)):
        inside = (DOMAINS.codes == row).any(axis=0)
        if share[row] < WEIGHT[inside][Y[inside].argmin()] / WEIGHT[inside].sum():
            assert lower[row] == Y[inside].min() < expected["lower"][row]
            expected["lower"][row], expected["se"][row] = lower[row], np.nan
    np.testing.assert_allclose(made.estimate[several], expected["estimate"][several], rtol=1e-12)
    np.testing.assert_allclose(lower[several], expected["lower"][several], rtol=1e-12)
    np.testing.assert_allclose(upper[several], expected["upper"][several], rtol=1e-12)
    # Where R has an interval to one side alone it has no error; here it is that side's.
    both = np.isfinite(expected["se"])
    assert both.sum() >= 3
    np.testing.assert_allclose(made.standard_error[both], expected["se"][both], rtol=1e-8)
    alone = estimate_domains(
        DOMAINS, sample_design(case), weight=WEIGHT, outcome=Y, statistic=statistic,
        linearisation=linearisation, population_size=RESULTS["population"],  # type: ignore[arg-type]
    )  # fmt: skip
    np.testing.assert_array_equal(alone.estimate, made.estimate)
    np.testing.assert_allclose(alone.variance, made.standard_error**2, rtol=1e-12)


def test_a_variance_that_forgets_the_design_is_found_out() -> None:
    case = RESULTS["cases"][2]
    expected = np.array(case["plain"]["median"]["se"], dtype=float)
    one_stage = {**case, "psu": None, "strata": None}
    wrong = of_sample(one_stage, "median", "plain").standard_error
    assert abs(wrong[0] / expected[0] - 1) > 0.05


def test_one_side_alone_gives_the_error_where_the_other_has_no_end() -> None:
    case = RESULTS["cases"][2]
    made = of_sample(case, "quantile(0.9)", "plain")
    lower, upper = interval_of(statistic_of("quantile(0.9)"), made, 0.95)
    one = np.isfinite(lower) & np.isnan(upper)
    assert one.any()
    t = stats.t.ppf(0.975, case["df"])
    np.testing.assert_allclose(
        made.standard_error[one], (made.estimate - lower)[one] / t, rtol=1e-12
    )
    assert "the distance of the other from Q over t" in statistic_of("median").explanation


def datasets(m: int, r: int, *, pair: bool) -> list[SyntheticDataset]:
    rng = np.random.default_rng(5)
    made = []
    for draw in range(1, m + 1):
        for replicate in range(1, r + 1):
            y, w = (
                (values * rng.lognormal(0.0, 0.1, values.size))[:, None] if wide
                else values * rng.lognormal(0.0, 0.1, values.size)
                for values, wide in ((Y, True), (WEIGHT, False))
            )  # fmt: skip
            others = (y * 1.05, w[::-1].copy()) if pair else (y, w)
            made.append(SyntheticDataset(draw, replicate, y, w, *others))
    return made


def smallest(values: FloatArray, weights: FloatArray, share: float) -> float:
    """The definition, in plain Python."""
    reached, total = 0.0, weights.sum()
    if not 0 <= share <= 1:
        return float("nan")
    for value, weight in sorted(zip(values.tolist(), weights.tolist(), strict=True)):
        reached += weight
        if reached >= share * total * (1 - 1e-12):
            return float(value)
    raise AssertionError


RULES: list[CombiningRule] = [
    PartialSynthesis(), TotalVariance(public_rows(*(pd.factorize(FRAME[c])[0] for c in "abc"))),
]  # fmt: skip


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("rule", RULES, ids=["partial synthesis", "total variance"])
def test_several_datasets_are_one_distribution_function_whose_interval_is_inverted(
    rule: CombiningRule, pair: bool
) -> None:
    design, given = sample_design(RESULTS["cases"][2]), datasets(4, 2, pair=pair)
    made = Estimates(
        DOMAINS, design, [("quantile(0.4)", 0)], linearisation="plain", population_size=None,
        draws=4, replicates=2, rule=rule,
    )  # fmt: skip
    for each in given:
        made.add(each)
    combined = made.combined(("quantile(0.4)", 0))
    lower, upper = interval_of(statistic_of("quantile(0.4)"), combined, 0.9)
    for row in (0, 1, 4, 9):
        inside = (DOMAINS.codes == row).any(axis=0)
        values = np.concatenate([each.outcome[inside, 0] for each in given])
        shares = np.concatenate([each.weight[inside] for each in given])  # as one file
        q = smallest(values, shares, 0.4)
        assert combined.estimate[row] == q
        # The share up to q in each dataset, as the mean of an indicator by the same rule.
        indicator = Estimates(
            DOMAINS, design, [("mean", 0)], linearisation="plain", population_size=None,
            draws=4, replicates=2, rule=rule.of_quantile(0.4),
        )  # fmt: skip
        for each in given:
            y = (each.outcome <= q).astype(float)
            other = (each.variance_outcome <= q).astype(float) if pair else y
            weight = each.variance_weight if pair else each.weight
            indicator.add(
                SyntheticDataset(each.draw, each.replicate, y, each.weight, other, weight)
            )
        share = indicator.combined(("mean", 0))
        assert combined.df[row] == pytest.approx(share.df[row])
        ends = [float(end[row]) for end in t_interval(share, 0.9)]
        np.testing.assert_array_equal(
            [lower[row], upper[row]], [smallest(values, shares, end) for end in ends]
        )
        wide = [smallest(values, shares, float(end[row])) for end in t_interval(share, 0.95)]
        if not np.isfinite(wide).all():
            continue
        se = (wide[1] - wide[0]) / (2 * stats.t.ppf(0.975, share.df[row]))
        assert combined.standard_error[row] == pytest.approx(se, rel=1e-12)


def test_rows_without_records_have_none_and_alike_records_no_error() -> None:
    frame = pd.DataFrame({"a": ["a1", "a1", "a1", "a2"]})
    rows = build_domains(frame, ["a"], LEVELS)
    estimates = Estimates(
        rows, SampleDesign(np.zeros(4, dtype=np.int64)), [("median", 0)], linearisation="plain",
        population_size=None,
    )  # fmt: skip
    estimates.add_alone(np.array([[3.0], [3.0], [3.0], [8.0]]), np.ones(4))
    made = estimates.combined(("median", 0))
    np.testing.assert_array_equal(made.estimate, [3.0, 3.0, 8.0, np.nan, np.nan])
    assert made.standard_error[1] == 0.0
    assert np.isnan(made.standard_error[2:]).all()  # one record, none


def test_replicates_are_quantiles_under_their_weights() -> None:
    replicates = jackknife(sample_design(RESULTS["cases"][2]), WEIGHT)
    made, each = replicated(
        DOMAINS, replicates, weight=WEIGHT, outcome=Y, statistic="median", linearisation="plain"
    )
    for row in (0, 1, 5):
        inside = (DOMAINS.codes == row).any(axis=0)
        assert made.estimate[row] == smallest(Y[inside], WEIGHT[inside], 0.5)
        for replicate in range(0, len(each), 5):
            w = replicates.weights[inside, replicate]
            assert each[replicate, row] == smallest(Y[inside][w > 0], w[w > 0], 0.5)


def test_the_linearised_variable_has_the_variance_of_repeated_samples() -> None:
    rng = np.random.default_rng(3)
    n, repeats, p = 500, 600, 0.3
    whole = build_domains(pd.DataFrame(index=range(n)), [], {})
    design = SampleDesign(np.zeros(n, dtype=np.int64))
    linearise, found = statistic_of(f"quantile({p})").linearise, np.empty((repeats, 3))
    for repeat in range(repeats):
        y, w = rng.lognormal(0.0, 1.0, n), rng.uniform(1.0, 3.0, n)
        made = linearise(whole, w, y, calibrated=False)
        u = made.inside(whole.codes[0])
        woodruff = estimate_domains(
            whole, design, weight=w, outcome=y, statistic=f"quantile({p})", linearisation="plain"
        )
        found[repeat] = made.estimate[0], n * u.var(ddof=1), woodruff.variance[0]
    truth = found[:, 0].var(ddof=1)
    # The Monte Carlo error of a ratio of variances is about sqrt(2 / 600) = 0.058.
    assert abs(found[:, 1].mean() / truth - 1) < 0.2
    assert abs(found[:, 2].mean() / truth - 1) < 0.2
    # Equal weights, or the density at another place, would be far off.
    density = stats.lognorm(1.0).pdf
    q = stats.lognorm(1.0).ppf(p)
    assert abs(truth * n * density(q) ** 2 / (p * (1 - p)) - 13 / 12) < 0.2
    assert abs(truth * n * density(1.0) ** 2 / (p * (1 - p)) - 13 / 12) > 0.3


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from([1, 3, 40]))
def test_quantiles_of_rows_are_those_of_their_records(seed: int, count: int, bins: int) -> None:
    """Ties, weights of zero and below, rows without weight; bins of many values, and of one."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 60), "b": rng.choice(list("fm"), 60)})
    domains = build_domains(frame, ["a", "b"], {"a": tuple("xyz"), "b": tuple("fm")})
    data = [
        Weighted(
            domains, rng.integers(0, 30, 60) / 2.0,
            rng.choice([-0.5, 0.0, 0.5, 1.0, 3.0], 60) * (frame["a"] != "z").to_numpy(),
        )
        for _ in range(count)
    ]  # fmt: skip
    shares = rng.choice([-0.1, 0.0, 0.25, 0.5, 0.9, 1.0, 1.1], (3, domains.n_rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linearised, "FEWEST_BINS", bins)
        patch.setattr(linearised, "MOST_BINS", bins)
        found = RowDistributions(data).inverse(shares)
    for row in range(domains.n_rows):
        inside = (domains.codes == row).any(axis=0)
        weights = np.concatenate([each.weight[inside] for each in data])
        values = np.concatenate([each.values[inside] for each in data])
        positive = weights > 0.0
        known = (shares[:, row] >= 0.0) & (shares[:, row] <= 1.0) & positive.any()
        expected = np.full(3, np.nan)
        if known.any():
            expected[known] = weighted_quantiles(
                values[positive], weights[positive], shares[known, row]
            )
        np.testing.assert_array_equal(found[:, row], expected)
