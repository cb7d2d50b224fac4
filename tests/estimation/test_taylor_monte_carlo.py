"""Taylor variances against the true sampling variance over repeated stratified samples.

All samples are estimated by one call: each is a set of strata and a level of a by variable of its
own, so that the others lie outside its rows and, without calibration, contribute nothing.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import estimate_domains

pytestmark = pytest.mark.xdist_group("taylor")  # what its tests share is made once

SIZES = np.array([120, 60, 40])
TAKEN = np.array([36, 24, 20])
SAMPLES = 3000


@dataclass(frozen=True)
class Repeated:
    """A population of three strata and many samples of it without replacement."""

    stratum: IntArray
    y: FloatArray
    inside: BoolArray
    units: IntArray  # (SAMPLES, sample size)
    domains: Domains
    rows: IntArray  # (SAMPLES,) table row: this sample, units inside

    def estimate(self, statistic: Statistic, design: SampleDesign) -> tuple[FloatArray, FloatArray]:
        got = estimate_domains(
            self.domains,
            design,
            weight=np.tile(np.repeat(SIZES / TAKEN, TAKEN), SAMPLES),
            outcome=self.y[self.units].ravel(),
            statistic=statistic,
            linearisation="plain",
        )
        return got.estimate[self.rows], got.variance[self.rows]


@pytest.fixture(scope="module")
def repeated() -> Repeated:
    rng = np.random.default_rng(12)
    stratum = np.repeat(np.arange(3), SIZES)
    y = rng.normal(10 + 5 * stratum, 2)
    inside = rng.random(len(y)) < 0.15 + 0.35 * stratum
    starts = np.cumsum(SIZES) - SIZES
    units = np.hstack(
        [
            start + rng.permuted(np.tile(np.arange(size), (SAMPLES, 1)), axis=1)[:, :taken]
            for start, size, taken in zip(starts, SIZES, TAKEN, strict=True)
        ]
    )
    samples = [str(number) for number in range(SAMPLES)]
    frame = pd.DataFrame(
        {
            "sample": np.repeat(samples, TAKEN.sum()),
            "group": np.where(inside[units].ravel(), "in", "out"),
        }
    )
    levels = {"sample": samples, "group": ["in", "out"]}
    rows = 3 * (1 + np.arange(SAMPLES)) + 1
    domains = build_domains(frame, ["sample", "group"], levels)
    assert (domains.table.loc[rows, "group"] == "in").all()
    return Repeated(stratum, y, inside, units, domains, rows)


def stratified() -> SampleDesign:
    strata = np.add.outer(3 * np.arange(SAMPLES), np.repeat(np.arange(3), TAKEN)).ravel()
    return SampleDesign(strata, fpc=np.tile(TAKEN / SIZES, SAMPLES))


def without_strata() -> SampleDesign:
    return SampleDesign(
        np.repeat(np.arange(SAMPLES), TAKEN.sum()), fpc=np.full(SAMPLES, 80 / SIZES.sum())
    )


def without_fpc() -> SampleDesign:
    return SampleDesign(stratified().strata)


def test_variance_of_a_count_is_unbiased(repeated: Repeated) -> None:
    """The true variance of an expanded count is known from the population."""
    within = [repeated.inside[repeated.stratum == h].var(ddof=1) for h in range(3)]
    truth = ((1 - TAKEN / SIZES) * SIZES**2 / TAKEN * within).sum()
    estimate, variance = repeated.estimate("count", stratified())
    assert abs(estimate.mean() - repeated.inside.sum()) < 4 * np.sqrt(truth / SAMPLES)
    error = variance.std() / np.sqrt(SAMPLES)
    assert abs(variance.mean() - truth) < 4 * error
    for wrong in (without_strata(), without_fpc()):
        assert abs(repeated.estimate("count", wrong)[1].mean() - truth) > 20 * error


def test_variance_of_a_mean_is_unbiased_to_first_order(repeated: Repeated) -> None:
    """A ratio: its true variance comes from the samples, its Taylor variance holds to O(1/n)."""
    estimate, variance = repeated.estimate("mean", stratified())
    truth = estimate.var(ddof=1)
    error = np.sqrt(2 / SAMPLES)  # of the empirical variance; that of the mean is far smaller
    assert abs(variance.mean() / truth - 1) < 4 * error + 2 / TAKEN.sum()
    for wrong in (without_strata(), without_fpc()):
        assert abs(repeated.estimate("mean", wrong)[1].mean() / truth - 1) > 8 * error
