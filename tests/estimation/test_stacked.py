"""Estimates of stacked datasets, margins too: NumPy on the concatenated file, and errors over
simulated draws. Rejects the mean of the datasets' ratios."""

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import IntArray
from surveysynth.estimation.combining import CombiningRule, PartialSynthesis, linearised_at_ratio
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.linearised import weighted_quantiles
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.total_variance import TotalVariance
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

M, R, N = 5, 2, 40
LEVELS = {"a": ("1", "2", "3"), "b": ("f", "m")}
SHARE = "ratio(count, a: margin)"
STATISTICS = [
    "mean", "median", "ratio(tax, income)", "difference(mean, b: f - m)",
    "difference(median, b: f - m)", "ratio(mean, b: f / m)", SHARE, "count",
    "total",
]  # fmt: skip


def frame(rng: np.random.Generator) -> pd.DataFrame:
    """Every cell has records, some of them few."""
    a, b = np.repeat(["1", "2", "3"], [25, 10, 5]), rng.choice(["f", "m"], N)
    b[[0, 1, 25, 26, 35, 36]] = ["f", "m"] * 3
    return pd.DataFrame({"a": a, "b": b})


def made(seed: int, rule: CombiningRule) -> tuple[Estimates, pd.DataFrame, list[SyntheticDataset]]:
    rng = np.random.default_rng(seed)
    public = frame(rng)
    rows = build_domains(public, ["a", "b"], LEVELS)
    outcomes = [Outcome(name, transform=Transform("log")) for name in ("income", "tax")]
    keys = [(name, None if name in ("count", SHARE) else 0) for name in STATISTICS]
    keys[2] = ("ratio(tax, income)", 1)
    estimates = Estimates(
        rows, SampleDesign(np.zeros(N, dtype=np.int64)), keys, linearisation="plain",
        population_size=None, draws=M, replicates=R, rule=rule, outcomes=outcomes,
    )  # fmt: skip
    kept = []
    for draw in range(1, M + 1):
        level = rng.normal(0, 0.4, N)  # weights move with the values: ratios are not linear
        for replicate in range(1, R + 1):
            y = np.exp(rng.normal(2 + level, 0.8))
            w = np.exp(rng.normal(level, 0.7))
            both = np.column_stack([y, y * rng.uniform(0.1, 0.4, N)])
            kept.append(SyntheticDataset(draw, replicate, both, w, both, w))
            estimates.add(kept[-1])
    return estimates, public, kept


RULES = [PartialSynthesis(), TotalVariance(np.arange(N))]


@pytest.mark.parametrize("rule", RULES, ids=["partial synthesis", "total variance"])
def test_an_estimate_is_that_of_the_datasets_in_one_file(rule: CombiningRule) -> None:
    estimates, public, kept = made(1, rule)
    file = pd.concat([public] * len(kept), ignore_index=True)
    file["w"] = np.concatenate([each.weight for each in kept]) / len(kept)
    file[["y", "t"]] = np.concatenate([each.outcome for each in kept])
    table = estimates.rows.table
    for key in estimates.keys:
        found = estimates.combined(key).estimate
        for row in range(len(table)):
            a, b = table["a"][row], table["b"][row]
            inside = file[file["a"].eq(a) | (a not in LEVELS["a"])]
            cell = inside[inside["b"].eq(b) | (b not in LEVELS["b"])]
            f, m = (inside[inside["b"] == sex] for sex in "fm")

            def mean(of: pd.DataFrame) -> float:
                return float((of["w"] * of["y"]).sum() / of["w"].sum())

            def median(of: pd.DataFrame) -> float:
                values, weights = of["y"].to_numpy(), of["w"].to_numpy()
                return float(weighted_quantiles(values, weights, np.array([0.5]))[0])

            whole = file[file["b"].eq(b) | (b not in LEVELS["b"])]["w"].sum()
            contrast = b == "f"
            expected = {
                "mean": mean(cell), "median": median(cell), "count": cell["w"].sum(),
                "total": (cell["w"] * cell["y"]).sum(),
                "ratio(tax, income)": (cell["w"] * cell["t"]).sum() / (cell["w"] * cell["y"]).sum(),
                "difference(mean, b: f - m)": mean(f) - mean(m) if contrast else np.nan,
                "difference(median, b: f - m)": median(f) - median(m) if contrast else np.nan,
                "ratio(mean, b: f / m)": mean(f) / mean(m) if contrast else np.nan,
                SHARE: cell["w"].sum() / whole if a in LEVELS["a"] else np.nan,
            }[key[0]]  # fmt: skip
            assert found[row] == pytest.approx(expected, rel=1e-10, nan_ok=True), (key, row)
    # Which the mean of the datasets' own means is not.
    means = [np.average(each.outcome[:, 0], weights=each.weight) for each in kept]
    whole_mean = estimates.combined(("mean", 0)).estimate[0]
    assert abs(np.mean(means) / whole_mean - 1.0) > 1e-3


def test_the_variance_between_draws_is_that_of_the_ratio_of_means() -> None:
    """b / m against the errors of R over many sets of draws, whose denominators vary by half.

    b of the draws' plain ratios, whose mean is another estimate, is far from it.
    """
    rng, sets, draws = np.random.default_rng(5), 20_000, 20
    size = rng.gamma(4.0, 0.25, (sets, draws))
    total = 2.0 * size + rng.normal(0, 1.0, (sets, draws)) * size**0.25
    ratio = total.mean(axis=1) / size.mean(axis=1)
    e = linearised_at_ratio(total.T[:, None], size.T[:, None])[:, 0]
    np.testing.assert_allclose(e.mean(axis=0), ratio, rtol=1e-12)
    stated = e.var(axis=0, ddof=1).mean() / draws
    assert stated / ratio.var() == pytest.approx(1.0, abs=0.07)
    plain = (total / size).var(axis=1, ddof=1).mean() / draws
    assert plain / ratio.var() > 1.3


def test_the_parts_by_hand() -> None:
    total, size = np.array([3.0, 0.0, 9.0]), np.array([1.0, 0.0, 5.0])  # the second has no record
    e = linearised_at_ratio(total[:, None, None], size[:, None, None]).ravel()
    np.testing.assert_allclose(e, [2.5, 2.0, 1.5])  # R = 12/6 = 2, and (3 - 2)/2, 0, (9 - 10)/2
    np.testing.assert_array_equal(linearised_at_ratio(*np.full((2, 3, 1, 1), 7.0)), 1.0)
    alike: IntArray = np.ones((4, 1, 1), dtype=np.int64)
    np.testing.assert_array_equal(linearised_at_ratio(total[:1] * alike, 1.0 * alike), 3.0)
