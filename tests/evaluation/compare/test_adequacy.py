"""Expected errors of a release about its sample. Truth: formulas of a normal mean, differences of
simulated releases of that model, and frames written out."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.estimates import Estimates, StoredTables
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.evaluation.compare.adequacy import (
    ExpectedError,
    Findings,
    _to_error,
    expected_error,
    rows_with_sample,
)
from surveysynth.inference.synthesis import SyntheticDataset
from tests.long_runs.adequacy_study import GOLDEN as STUDY
from tests.long_runs.adequacy_study import summary

N, M, R = 200, 20, 4
#: Variances of records, of the noise of their sum, and of draws of the mean.
SIGMA, NOISE, BETWEEN = 4.0, 600.0, 0.05


def of_a_mean(
    rng: np.random.Generator, noisy: float | None, draws: np.ndarray, statistic: str = "mean"
) -> ExpectedError:
    """The expected error of the mean of N normals, whose sum is known with noise."""
    rule, design = StoredTables(), SampleDesign(np.zeros(N, dtype=np.int64))
    frame = pd.DataFrame({"sex": np.repeat(["f", "m"], N // 2)})
    estimates = Estimates(
        build_domains(frame, ["sex"], {"sex": ("f", "m")}), design, [(statistic, 0)],
        linearisation="plain", population_size=None, rule=rule,
    )  # fmt: skip
    ones, datasets = np.ones(N), []
    for draw, mean in enumerate(draws):
        for replicate in range(R):
            y = mean + np.sqrt(SIGMA) * rng.standard_normal((N, 1))
            datasets.append(SyntheticDataset(draw + 1, replicate + 1, y, ones, y, ones))
    return expected_error(
        [(estimates, rule)], datasets, lambda dataset: dataset.outcome,
        None if noisy is None else (np.array([noisy]), np.array([NOISE])),
    )  # fmt: skip


def test_of_a_normal_mean_they_are_the_formulas() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(10.0, np.sqrt(BETWEEN), M)
    found = of_a_mean(rng, 2100.0, draws)
    gain = SIGMA / (N * SIGMA + NOISE)
    left = SIGMA / N - 2 * gain * SIGMA + gain**2 * N * SIGMA
    pull = gain * (2100.0 - N * draws.mean())
    assert found.pull[0] == pytest.approx(pull, abs=0.03)  # of 80 datasets: SD 0.009
    # One of two halves is known through the sum of both alone.
    half = 2 * SIGMA / N - 2 * gain * SIGMA + gain**2 * N * SIGMA
    known = np.array([left, half, half]) + gain**2 * NOISE
    np.testing.assert_allclose(np.diag(found.known), known, rtol=0.05)
    np.testing.assert_allclose(found.within, np.array([left, half, half]) / R, rtol=0.1)
    drawn = np.diag(found.spread) - found.within
    between = (1 - gain * N) ** 2 * draws.var(ddof=1)
    assert drawn[0] == pytest.approx((1 + 1 / M) * between, rel=0.3)
    # Without noise the mean is known, but for the number of draws and for 1/N of its variance: h is
    # linearized at the mean of each dataset. A half is not known.
    exact = of_a_mean(np.random.default_rng(4), None, draws)
    assert exact.known[0, 0] == pytest.approx(SIGMA / N**2, rel=0.6)  # SD 0.22
    assert exact.known[1, 1] == pytest.approx(SIGMA / N, rel=0.06)  # SD 0.016
    spread = (draws.var(ddof=1) + SIGMA / N / R) / M
    assert exact.spread[0, 0] == pytest.approx(spread, rel=0.4)
    assert (exact.pull == 0).all()


def test_one_row_in_a_hundred_is_far_and_one_release_in_twenty() -> None:
    """Posteriors of the mean given a noisy sum, about the samples whose sum it is."""
    rng, z, p = np.random.default_rng(2), [], []
    for _ in range(40):
        y = 10.0 + np.sqrt(SIGMA) * rng.standard_normal(N)
        noisy = y.sum() + np.sqrt(NOISE) * rng.standard_normal()
        sd = np.sqrt(N * SIGMA + NOISE) / N
        found = of_a_mean(rng, noisy, rng.normal(noisy / N, sd, M))
        sample = np.array([y.mean(), y[: N // 2].mean(), y[N // 2 :].mean()])
        z.append((noisy / N - sample) / found.error)
        # Of errors half as large the test finds most.
        p.append([found.p_value(z[-1]), found.p_value(2.0 * z[-1])])
    assert 0.8 < np.sqrt(np.mean(np.square(z))) < 1.2
    level, wrong = (np.array(p) < 0.05).mean(axis=0)
    assert level < 0.15
    assert wrong > 0.3


def test_a_quantile_has_the_error_of_its_share() -> None:
    rng = np.random.default_rng(3)
    draws = rng.normal(10.0, np.sqrt(BETWEEN), M)
    found = of_a_mean(rng, None, draws, "median")
    # Of the variance of a share 1/2 a normal mean, known here, has 2/pi.
    of_share = (0.25 - 0.25 * 2 / np.pi) / N
    assert found.known[0, 0] == pytest.approx(of_share, rel=0.1)
    density = 1 / np.sqrt(2 * np.pi * SIGMA)
    assert found.scale[0] == pytest.approx(1 / density, rel=0.25)


def test_values_have_the_digits_that_their_error_warrants() -> None:
    assert _to_error(1234.567, 0.52) == "1,234.57"
    assert _to_error(-1234.567, 520.0) == "−1,230"
    assert _to_error(1234.567, 0.0) == "1,234.57"  # a row that no noise and no draw moves
    assert _to_error(-0.125, 0.0) == "−0.125"


def test_only_far_rows_are_counted_and_withheld_ones_are_not_compared() -> None:
    cells = pd.DataFrame({"sex": list("abcde"), "is_margin": False, "n": 9})
    sample = cells.assign(
        estimate=10.0, se=[0.0, 1.0, 1.0, 1.0, 1.0], ci_lower=0.0, ci_upper=0.0, flag=""
    )
    published = np.array([10.0, 15.3, 4.7, 15.1, np.nan])
    table = rows_with_sample(sample, published, np.ones(5), published, np.full(5, 2.0))
    np.testing.assert_allclose(table["difference"], [np.nan, 2.65, -2.65, 2.55, np.nan])
    other: Any = None
    found = Findings(other, {("mean", "y"): table, ("count", None): table}, 0.5, other)
    assert (found.compared, found.beyond) == (6, 4)
    assert list(found.frame)[:3] == ["statistic", "outcome", "sex"]


def test_the_kept_study_found_the_rates_that_are_claimed() -> None:
    """``tests.long_runs.adequacy_study``: false alarms, and planted biases of two sample errors."""
    settings = json.loads(STUDY.read_text(encoding="utf-8"))["settings"]
    kept = settings["noisy 10.8, 600"]
    assert kept == {**summary(kept["each"]), "each": kept["each"]}
    for found, claimed in ((kept["beyond"], 0.01), (kept["level"], 0.05)):
        assert abs(found["rate"] - claimed) < 3 * found["error"]
    assert kept["power"]["count"]["rate"] > 0.8
    # In 600 records noise hides a bias of means from the test; in 2,000 it does less.
    assert settings["noisy 10.8, 2000"]["power"]["mean"]["rate"] > kept["power"]["mean"]["rate"]
