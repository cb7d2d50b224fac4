"""Expected SEs against the spread of what the real mechanism releases over simulated samples."""

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray, Theta
from surveysynth.estimation.domains import build_domains
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.expected_se import expected_errors
from surveysynth.mechanisms.noisy_statistics.posterior.draws import sample_noisy
from surveysynth.mechanisms.noisy_statistics.posterior.moments import NoisyMoments, PublicSums
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.statistics import NoisyStatistics
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    noise_design,
    release_statistics,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign, Survey
from surveysynth.survey.transforms import Transform

N, POPULATION = 400, 24_000
BUDGET = Budget.of_epsilon(1.0, 1e-6)
MODEL = get_model("fbs")


def sampled(rng: np.random.Generator) -> Survey:
    """Eight cells of four strata, log-normal outcomes and weights, centres half a spread off."""
    a, b = np.arange(N) % 4, np.arange(N) // 4 % 2
    frame = pd.DataFrame({"a": a.astype(str), "b": b.astype(str)})
    frame["y"] = np.exp(10.0 + 0.15 * a - 0.1 * b + 0.5 * rng.standard_normal(N))
    frame["w"] = np.exp(4.0 - 0.1 * a + 0.6 * rng.standard_normal(N))
    return Survey.from_frame(
        frame, outcome="y", weight="w", strata="a", by=["a", "b"], predictors="a + b",
        population_size=POPULATION, transforms=Transform("log"),
    )  # fmt: skip


def settings_of(noise: float) -> NoisySettings:
    """Noise so many times what the budget asks for."""
    return NoisySettings(
        Budget.of_rho(BUDGET.rho / noise**2, 1e-6),
        {"y": Declared(float(np.exp(10.2)), 0.5)},
        weight=Declared(float(np.log(POPULATION / N)), 0.6),
    )


def rows_of(design: PublicDesign) -> FloatArray:
    """Rows of the table as sets of cells, (D, G)."""
    domains = build_domains(design.frame, design.by, design.levels)
    cells = len(design.matrix.x_cells)
    rows = np.zeros((domains.n_rows, cells))
    for codes in domains.codes:
        rows[codes, design.matrix.cell] = 1.0
    return rows


def released(stacked: NoisyStatistics, design: PublicDesign, rng: np.random.Generator) -> Theta:
    """Posterior draws (databases, 1, draws) of noisy statistics."""
    moments = NoisyMoments(
        stacked.cross, stacked.squares, stacked.sigma, stacked.squares_sd, stacked.centre,
        stacked.spread,
    )  # fmt: skip
    sums = PublicSums.of(design.matrix.x_cells, design.matrix.cell, stacked.basis)
    repeated = PublicSums.stacked([sums] * len(stacked.cross))
    plan = SamplingPlan(chains=1, warmup=60, draws=80)
    return sample_noisy(MODEL, moments, repeated, plan, rng.spawn(len(stacked.cross)), thin=2)


def estimates(theta: Theta, design: PublicDesign, rows: FloatArray) -> FloatArray:
    """Posterior means of shares and means of the rows, (databases, 2, D)."""
    x, sizes = design.matrix.x_cells, np.bincount(design.matrix.cell)
    beta, covariance = theta["beta"][:, 0], theta["covariance"][:, 0]
    fit = x @ beta  # (databases, draws, G, 2)
    mean = np.exp(fit[..., 0] + (0.5 * covariance[..., 0, 0] + covariance[..., 0, 1])[..., None])
    weight = sizes * np.exp(fit[..., 1])
    size = weight @ rows.T
    both = np.array([size / size[..., :1], (weight * mean) @ rows.T / size])
    return np.moveaxis(both.mean(axis=2), 0, 1)


def found_over_expected(noise: float, samples: int, seed: int) -> float:
    """The SDs of counts and means over samples, over the sample's own and over what is expected
    of the budget: the geometric mean of all rows."""
    rng = np.random.default_rng(seed)
    surveys = [sampled(rng) for _ in range(samples)]
    design, settings = surveys[0].design, settings_of(noise)
    rows = rows_of(design)
    stacked = NoisyStatistics.stacked([
        release_statistics(MODEL, each.design, each.confidential, settings, SeededNoise(source))
        for each, source in zip(surveys, rng.spawn(samples), strict=True)
    ])  # fmt: skip
    ours = estimates(released(stacked, design, rng), design, rows)
    own = []
    for each in surveys:
        w, y = each.confidential.sampling_weight, each.confidential.outcome[:, 0]
        assert w is not None
        size, total = (rows @ np.bincount(design.matrix.cell, values) for values in (w, w * y))
        own.append([size / size[0], total / size])
    stratum = np.zeros(len(design.matrix.x_cells), dtype=np.int64)
    assert design.strata is not None
    stratum[design.matrix.cell] = design.strata
    stated = expected_errors(
        noise_design(MODEL, design, settings), np.bincount(design.matrix.cell), stratum, rows,
        [BUDGET.rho], inverse=np.exp,
    )  # fmt: skip
    ratio = ours.std(axis=0, ddof=1)[:, 1:] / np.std(own, axis=0, ddof=1)[:, 1:]
    return float(np.exp(np.log(ratio / [stated.count[0, 1:], stated.mean[0, 1:]]).mean()))


@pytest.mark.parametrize(("noise", "within"), [(1.0, True), (1.3, False)])
def test_releases_err_as_much_as_was_expected(noise: float, within: bool) -> None:
    found = found_over_expected(noise, samples=80, seed=3)
    assert (abs(np.log(found)) < 0.085) == within, found
