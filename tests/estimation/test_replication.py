"""Replicate weights: what they must average to, Taylor variances, and wrong schemes rejected."""


import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import (
    Domains,
    build_domains,
    cell_of_record,
    margin_matrix,
)
from surveysynth.estimation.replication import (
    ReplicateWeights,
    agency_replicates,
    balanced_half_samples,
    estimate_domains_replicated,
    jackknife,
    preston_bootstrap,
    replication_variance,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import DomainEstimates, Linearisation, estimate_domains

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
        return estimate_domains_replicated(
            self.domains, replicates, weight=self.weight, outcome=self.outcome,
            statistic=statistic, linearisation=linearisation, population_size=5000.0,
        )  # fmt: skip


STRATIFIED = Sample([80, 61, 120, 45], 1, clusters=False)
CLUSTERED = Sample([40, 31, 25], 4, clusters=True)


def with_multipliers(replicates: ReplicateWeights, multipliers: FloatArray) -> ReplicateWeights:
    return ReplicateWeights(
        multipliers, replicates.unit, replicates.scale, replicates.rscales, replicates.df
    )


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


@pytest.mark.parametrize("sample", [STRATIFIED, CLUSTERED], ids=["stratified", "clusters"])
@pytest.mark.parametrize("sampled", [0.0, 0.4])
def test_bootstrap_variances_agree_with_taylor(sample: Sample, sampled: float) -> None:
    design = sample.design(fpc=np.full(sample.strata.max() + 1, sampled))
    replicates = preston_bootstrap(design, REPLICATES, np.random.default_rng(3))
    # Linear statistics: 4.5 standard errors over 24 rows. Ratios and calibrated counts are
    # not linear in the weights: a few percent more, on domains of some 20 records or more.
    counts = largest_disagreement(sample, replicates, design, "count")
    assert counts < 4.5 + (0 if sample is STRATIFIED else 2.5)
    assert largest_disagreement(sample, replicates, design, "total") < 7
    assert largest_disagreement(sample, replicates, design, "mean") < 9
    wrong = with_multipliers(replicates, 1.0 + 1.3 * (replicates.multipliers - 1.0))
    assert largest_disagreement(sample, wrong, design, "count") > 12
    for other in (SampleDesign(np.zeros_like(sample.strata), sample.psu), sample.design()):
        if other.n_strata == 1 or sampled:  # drawn as if there were no strata, no fpc
            wrong = preston_bootstrap(other, REPLICATES, np.random.default_rng(3))
            assert largest_disagreement(sample, wrong, design, "total") > 12


def test_clusters_are_not_ignored() -> None:
    as_records = SampleDesign(CLUSTERED.strata)
    replicates = preston_bootstrap(as_records, REPLICATES, np.random.default_rng(3))
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
        got = lonely.replicated(jackknife(design), statistic, "plain").variance[rows]
        np.testing.assert_allclose(got, taylor, rtol=1e-10)


@pytest.mark.parametrize("fay", [0.0, 0.4])
@pytest.mark.parametrize("rule", ["remove", "adjust", "average"])
def test_balanced_half_samples_are_taylors_for_linear_statistics(fay: float, rule: str) -> None:
    sample = Sample([2, 2, 1, 2, 2], 4, clusters=True)
    fpc = np.array([0.1, 0.3, 0.2, 0.0, 0.5])
    design = sample.design(rule, fpc)
    replicates = balanced_half_samples(design, fay)
    rows = slice(0, 1) if rule == "average" else slice(None)
    for statistic in ("count", "total"):
        taylor = sample.taylor(design, statistic, "plain").variance[rows]
        got = sample.replicated(replicates, statistic, "plain").variance[rows]
        np.testing.assert_allclose(got, taylor, rtol=1e-10)
    shuffled = replicates.multipliers.copy()
    shuffled[:2] = shuffled[2:4]  # two strata with the same column are not balanced
    if rule == "remove":
        got = sample.replicated(with_multipliers(replicates, shuffled), "total", "plain").variance
        expected = sample.taylor(design, "total", "plain").variance
        assert np.abs(got / expected - 1).max() > 1e-3


@pytest.mark.parametrize("rule", ["remove", "certainty", "adjust", "average"])
def test_lonely_rules_of_the_bootstrap(rule: str) -> None:
    sample = Sample([1, 30, 1, 40], 1, clusters=False)
    design = sample.design(rule)
    replicates = preston_bootstrap(design, 4000, np.random.default_rng(5))
    lonely = replicates.multipliers[np.isin(design.psu_strata, [0, 2])]
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
    multipliers = preston_bootstrap(design, 6, rng).multipliers
    sums = np.array([multipliers[strata == h].sum(axis=0) for h in range(len(psus))])
    np.testing.assert_allclose(sums, np.array(psus)[:, None] * np.ones(6), rtol=1e-12)
    assert multipliers.min() >= -1e-12
    full = jackknife(SampleDesign(strata))
    sums = np.array([full.multipliers[strata == h].sum(axis=0) for h in range(len(psus))])
    np.testing.assert_allclose(sums, np.array(psus)[:, None] * np.ones(full.n_replicates))


@pytest.mark.parametrize("strata", [1, 2, 3, 4, 11, 12, 23, 24, 27, 28, 31, 32, 93])
def test_half_samples_are_balanced(strata: int) -> None:
    """Products of different strata cancel, and so does each stratum by itself."""
    made = balanced_half_samples(SampleDesign(np.repeat(np.arange(strata), 2)))
    first, second = made.multipliers[::2] - 1.0, made.multipliers[1::2] - 1.0
    np.testing.assert_array_equal(first, -second)
    np.testing.assert_array_equal(first @ first.T, made.n_replicates * np.eye(strata))
    assert (first.sum(axis=1) == 0.0).all()
    assert made.n_replicates <= max(2 * strata, strata + 4)


def test_a_jackknife_deletes_each_unit_once() -> None:
    """Strata out of order, one of them with a unit that is adjusted."""
    design = SampleDesign(np.array([2, 0, 1, 2, 0, 2]), lonely_psu="adjust")
    made = jackknife(design)
    deleted = (made.multipliers == 0.0).argmax(axis=0)
    assert sorted(deleted) == [0, 1, 2, 3, 4, 5]
    for psu, column, rscale in zip(deleted, made.multipliers.T, made.rscales, strict=True):
        same = design.psu_strata == design.psu_strata[psu]
        others = same.sum() / max(same.sum() - 1, 1)
        assert column.tolist() == [
            0.0 if at == psu else others if own else 1.0 for at, own in enumerate(same)
        ]
        assert rscale == (1.0 if same.sum() == 1 else 1.0 / others)


def test_a_replicate_without_weight_is_left_out_of_the_row() -> None:
    replicates = ReplicateWeights(
        np.ones((2, 4)), np.arange(2), 0.25, np.array([1.0, 1.0, 2.0, 0.0]), df=3.0
    )
    each = np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 6.0], [9.0, 9.0]])
    full = np.array([2.0, 4.0])
    expected = [0.25 * (1 + 0 + 2), 0.25 * (1 + 2 * 4) / (3 / 4)]
    np.testing.assert_allclose(replication_variance(full, each, replicates), expected)
    around = ReplicateWeights(
        np.ones((2, 4)), np.arange(2), 0.25, replicates.rscales, df=3.0, center="mean"
    )
    expected = [0.25 * (1 + 0 + 2), 0.25 * (0.25 + 2 * 0.25) / (3 / 4)]
    np.testing.assert_allclose(replication_variance(full, each, around), expected)


def test_margins_are_sums_of_cells_of_the_table() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({name: rng.choice(list("uvw"), 50) for name in "abc"})
    for by in ([], ["a"], ["a", "b"], ["a", "b", "c"]):
        domains = build_domains(frame, by, {name: list("uvwz") for name in "abc"})
        cell = cell_of_record(domains)
        matrix = margin_matrix(domains.labels)
        counts = np.bincount(cell, minlength=matrix.shape[1])
        np.testing.assert_array_equal(matrix @ counts, domains.n)


def test_errors_name_what_is_wrong() -> None:
    design, rng = STRATIFIED.design(), np.random.default_rng(0)
    with pytest.raises(InputError, match="at least two replicates, but got 1"):
        preston_bootstrap(design, 1, rng)
    with pytest.raises(InputError, match="two PSUs in each stratum, but 4 of 4 strata have more"):
        balanced_half_samples(design)
    with pytest.raises(InputError, match=r"at least 0 and below 1, but got 1\.0"):
        balanced_half_samples(design, fay=1.0)
    with pytest.raises(InputError, match="2 of 6 are not"):
        agency_replicates(np.array([[1.0, np.nan], [1, 1], [np.inf, 1]]), np.ones(3), scale=1.0)
    with pytest.raises(InputError, match=r"shape \(3, R\), a row a record"):
        agency_replicates(np.ones((2, 4)), np.ones(3), scale=1.0)
    with pytest.raises(InputError, match="one number for each of 4 replicates"):
        agency_replicates(np.ones((3, 4)), np.ones(3), scale=1.0, rscales=np.ones(3))
    with pytest.raises(InputError, match="finite and above zero"):
        agency_replicates(np.ones((3, 4)), np.ones(3), scale=0.0)
    with pytest.raises(InputError, match="every stratum is completely sampled"):
        jackknife(SampleDesign(np.zeros(1, dtype=int), lonely_psu="remove"))
    with pytest.raises(InputError, match="needs a stratum with two PSUs"):
        preston_bootstrap(SampleDesign(np.zeros(1, dtype=int), lonely_psu="average"), 3, rng)
    replicates = preston_bootstrap(design, 5, rng)
    with pytest.raises(InputError, match="has 306 records, but the weight"):
        estimate_domains_replicated(
            CLUSTERED.domains, replicates, weight=np.ones(3), outcome=None,
            statistic="count", linearisation="plain",
        )  # fmt: skip


def test_replicate_weights_are_the_weights_times_the_multipliers() -> None:
    replicates = preston_bootstrap(CLUSTERED.design(), 7, np.random.default_rng(2))
    got = replicates.replicate_weights(CLUSTERED.weight)
    assert got.shape == (CLUSTERED.strata.size, 7)
    assert CLUSTERED.psu is not None
    expected = CLUSTERED.weight * replicates.multipliers[CLUSTERED.psu, 3]
    np.testing.assert_array_equal(got[:, 3], expected)
