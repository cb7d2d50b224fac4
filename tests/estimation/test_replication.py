"""Replicate weights: what they must average to, Taylor variances, and wrong schemes rejected."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.replication import (
    ReplicateWeights,
    preston_bootstrap,
    preston_multipliers,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import DomainEstimates, Linearisation, estimate_domains
from tests.estimation.replicates import jackknife, replicated

REPLICATES = 2000


class Sample:
    """A stratified sample of clusters of different sizes, by two variables."""

    def __init__(self, psus: list[int], size: int, *, clusters: bool, seed: int = 4) -> None:
        rng = np.random.default_rng(seed)
        psu_strata = np.repeat(np.arange(len(psus)), psus)
        sizes = rng.integers(size, size + 4 if clusters else size + 1, psu_strata.size)
        psu = np.repeat(np.arange(psu_strata.size), sizes)
        self.strata = psu_strata[psu]
        self.psu = psu if clusters else None
        n = psu.size
        effect = rng.normal(0, 0.4, psu_strata.size)[psu]
        self.outcome = np.exp(1.0 + 0.9 * self.strata + effect + rng.normal(0, 0.4, n))
        self.weight = rng.uniform(10, 20, n)
        levels = {"a": list("pqr"), "b": list("xy")}
        frame = pd.DataFrame({name: rng.choice(each, n) for name, each in levels.items()})
        self.domains: Domains = build_domains(frame, ["a", "b"], levels)

    def design(self, lonely: str = "fail", fpc: FloatArray | None = None) -> SampleDesign:
        return SampleDesign(self.strata, self.psu, fpc, lonely)  # type: ignore[arg-type]

    def taylor(self, design: SampleDesign, statistic: Statistic, linearisation: Linearisation):  # type: ignore[no-untyped-def]
        return estimate_domains(
            self.domains, design, weight=self.weight, outcome=self.outcome,
            statistic=statistic, linearisation=linearisation, population_size=5000.0,
        )  # fmt: skip

    def replicated(
        self, replicates: ReplicateWeights, statistic: Statistic, linearisation: Linearisation
    ) -> DomainEstimates:
        return replicated(
            self.domains, replicates, weight=self.weight, outcome=self.outcome,
            statistic=statistic, linearisation=linearisation, population_size=5000.0,
        )[0]  # fmt: skip

    def bootstrap(self, design: SampleDesign, replicates: int = REPLICATES) -> ReplicateWeights:
        return preston_bootstrap(design, self.weight, replicates, np.random.default_rng(3))


STRATIFIED = Sample([80, 61, 120, 45], 1, clusters=False)
CLUSTERED = Sample([40, 31, 25], 4, clusters=True)


def largest_disagreement(
    sample: Sample, replicates: ReplicateWeights, design: SampleDesign, statistic: Statistic
) -> float:
    """|log SE ratio to Taylor's| over the rows, in Monte Carlo standard errors."""
    largest = 0.0
    for linearisation in ("plain", "ratio"):
        taylor = sample.taylor(design, statistic, linearisation)  # type: ignore[arg-type]
        got = sample.replicated(replicates, statistic, linearisation)  # type: ignore[arg-type]
        np.testing.assert_allclose(got.estimate, taylor.estimate, rtol=1e-12)
        varies = taylor.variance > 1e-12 * taylor.estimate**2
        ratio = 0.5 * np.log(got.variance[varies] / taylor.variance[varies])
        largest = max(largest, float(np.abs(ratio).max()))
    return largest / np.sqrt(0.5 / REPLICATES)


@pytest.mark.parametrize(
    ("sample", "sampled"), [(STRATIFIED, 0.0), (CLUSTERED, 0.4)], ids=["stratified", "clusters"]
)
def test_bootstrap_variances_agree_with_taylor(sample: Sample, sampled: float) -> None:
    design = sample.design(fpc=np.full(sample.strata.max() + 1, sampled))
    replicates = sample.bootstrap(design)
    # Linear statistics: 4.5 standard errors over 24 rows. Ratios and calibrated counts are
    # not linear in the weights: a few percent more, on domains of some 20 records or more.
    counts = largest_disagreement(sample, replicates, design, "count")
    assert counts < 4.5 + (0 if sample is STRATIFIED else 2.5)
    assert largest_disagreement(sample, replicates, design, "total") < 7
    assert largest_disagreement(sample, replicates, design, "mean") < 9
    own = sample.weight[:, None]
    wrong = replace(replicates, weights=own + 1.3 * (replicates.weights - own))
    assert largest_disagreement(sample, wrong, design, "count") > 12
    for other in (SampleDesign(np.zeros_like(sample.strata), sample.psu), sample.design()):
        if other.n_strata == 1 or sampled:  # drawn as if there were no strata, no fpc
            wrong = sample.bootstrap(other)
            assert largest_disagreement(sample, wrong, design, "total") > 12


def test_clusters_are_not_ignored() -> None:
    as_records = SampleDesign(CLUSTERED.strata)
    replicates = CLUSTERED.bootstrap(as_records)
    assert largest_disagreement(CLUSTERED, replicates, CLUSTERED.design(), "total") > 12


@pytest.mark.parametrize("sample", [STRATIFIED, CLUSTERED], ids=["stratified", "clusters"])
@pytest.mark.parametrize("rule", ["remove", "certainty", "adjust", "average"])
def test_the_jackknife_is_taylors_for_linear_statistics(sample: Sample, rule: str) -> None:
    lonely = Sample([1, 9, 1, 7], 3, clusters=sample is CLUSTERED, seed=8)
    fpc = np.array([0.1, 0.3, 0.2, 0.0])
    design = lonely.design(rule, fpc)
    whole = 0  # the "average" rule counts strata by row in Taylor, for the whole sample here
    rows = slice(whole, whole + 1) if rule == "average" else slice(None)
    for statistic in ("count", "total"):
        taylor = lonely.taylor(design, statistic, "plain").variance[rows]
        got = lonely.replicated(jackknife(design, lonely.weight), statistic, "plain").variance[rows]
        np.testing.assert_allclose(got, taylor, rtol=1e-10)


@pytest.mark.parametrize("rule", ["remove", "certainty", "adjust", "average"])
def test_lonely_rules_of_the_bootstrap(rule: str) -> None:
    sample = Sample([1, 30, 1, 40], 1, clusters=False)
    design = sample.design(rule)
    replicates = sample.bootstrap(design, 4000)
    factors = replicates.weights / sample.weight[:, None]
    lonely = factors[np.isin(design.psu_strata, [0, 2])].round(12)
    if rule == "adjust":
        assert np.unique(lonely).tolist() == [0.0, 2.0]
        assert abs(np.corrcoef(lonely)[0, 1]) < 4 / np.sqrt(4000)
    else:
        assert (lonely == 1.0).all()
    taylor = sample.taylor(design, "total", "plain").variance[0]
    got = sample.replicated(replicates, "total", "plain").variance[0]
    assert abs(got / taylor - 1) < 4.5 * np.sqrt(2 / 4000)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(2, 9), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_multipliers_add_up_in_every_stratum(psus: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    strata = rng.permutation(np.repeat(np.arange(len(psus)), psus))
    design = SampleDesign(strata, fpc=rng.random(len(psus)))
    multipliers = preston_multipliers(design, 6, rng)
    sums = np.array([multipliers[strata == h].sum(axis=0) for h in range(len(psus))])
    np.testing.assert_allclose(sums, np.array(psus)[:, None] * np.ones(6), rtol=1e-12)
    assert multipliers.min() >= -1e-12


def test_a_replicate_without_weight_is_left_out_of_the_row() -> None:
    replicates = ReplicateWeights(np.ones((2, 4)), 0.25, np.array([1.0, 1.0, 2.0, 0.0]), df=3.0)
    each = np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 6.0], [9.0, 9.0]])
    expected = [0.25 * (1 + 0 + 2), 0.25 * (1 + 2 * 4) / (3 / 4)]
    np.testing.assert_allclose(replicates.variance(np.array([2.0, 4.0]), each), expected)


def test_a_sample_without_variance_has_no_bootstrap() -> None:
    one, rng = np.zeros(1, dtype=int), np.random.default_rng(0)
    for rule, words in (("average", "needs a stratum with two PSUs"), ("remove", "are 0.0")):
        with pytest.raises(InputError, match=words):
            preston_bootstrap(SampleDesign(one, lonely_psu=rule), np.ones(1), 3, rng)  # type: ignore[arg-type]


def test_replicate_weights_are_the_weights_times_the_multipliers() -> None:
    design = CLUSTERED.design()
    got = preston_bootstrap(design, CLUSTERED.weight, 7, np.random.default_rng(2)).weights
    factors = preston_multipliers(design, 7, np.random.default_rng(2))
    assert CLUSTERED.psu is not None
    np.testing.assert_array_equal(got, CLUSTERED.weight[:, None] * factors[CLUSTERED.psu])
