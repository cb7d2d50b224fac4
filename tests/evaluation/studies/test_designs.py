"""Truth: inclusion counts over repeated samples, totals of the population, known sums."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.evaluation.studies.population import (
    Population,
    SamplingDesign,
    allocate,
    inclusion_probabilities,
    select_pps_systematic,
    superpopulation,
)


@pytest.fixture(scope="module")
def population():
    return superpopulation(np.random.default_rng(1), sizes=(300, 120, 60), clusters=12)


def test_systematic_selection_has_its_probabilities():
    rng = np.random.default_rng(2)
    size = rng.lognormal(0, 1, 30)
    probability = inclusion_probabilities(size, 8)
    assert probability.sum() == pytest.approx(8)
    counts = np.zeros(30)
    for _ in range(3000):
        index, weight = select_pps_systematic(size, 8, rng)
        assert len(set(index)) == 8
        np.testing.assert_allclose(weight, 1 / probability[index])
        counts[index] += 1
    error = np.sqrt(probability * (1 - probability) / 3000) + 1e-12
    assert (np.abs(counts / 3000 - probability) < 4.5 * error).all()
    equal = np.full(30, 8 / 30)
    assert (np.abs(counts / 3000 - equal) > 4.5 * error).any()


def test_large_units_are_taken_with_certainty():
    probability = inclusion_probabilities(np.array([100.0, 30.0, 1.0, 1.0, 2.0]), 3)
    assert probability.tolist() == [1.0, 1.0, 0.25, 0.25, 0.5]
    index, weight = select_pps_systematic(np.ones(4), 4, np.random.default_rng(1))
    assert index.tolist() == [0, 1, 2, 3]
    assert weight.tolist() == [1.0] * 4
    with pytest.raises(InputError, match="5 distinct"):
        select_pps_systematic(np.ones(4), 5, np.random.default_rng(1))


@pytest.mark.parametrize("kind", ["pps_wr", "pps", "srs", "two_stage"])
def test_totals_are_unbiased(population, kind):
    rng = np.random.default_rng(4)
    design = SamplingDesign(kind, n=60, per_cluster=3)
    outcome = population.frame["outcome"]
    totals, sizes = [], []
    for _ in range(120):
        sample = design.draw(population, rng)
        totals.append((sample["weight"] * sample["outcome"]).sum())
        sizes.append(sample.loc[sample["stratum"] == "s2", "weight"].sum())
    for values, truth in ((totals, outcome.sum()), (sizes, 120)):
        error = np.std(values, ddof=1) / np.sqrt(len(values)) + 1e-9 * truth
        assert abs(np.mean(values) - truth) < 4 * error
    if kind in ("pps", "srs"):
        assert not sample[["outcome"]].duplicated().any()


@pytest.fixture(scope="module")
def clustered():
    """Unequal clusters with effects on the outcome and, directly, on the size; with their sums."""
    rng = np.random.default_rng(3)
    made = superpopulation(rng, sizes=(1500, 750), clusters=60, psu_variance=(0.2, 0.2))
    units = made.frame["psu"].factorize()[0]
    share = rng.uniform(0.1, 0.8, units.max() + 1)[units]
    frame = made.frame[rng.random(len(share)) < share].reset_index(drop=True)
    strata, clusters = frame.groupby("stratum"), frame.groupby("psu")
    return replace(
        made,
        frame=frame.assign(
            n_h=strata["psu"].transform("size"), n_c=clusters["psu"].transform("size"),
            s_h=strata["size"].transform("sum"), s_c=clusters["size"].transform("sum"),
            k_h=strata["psu"].transform("nunique"),
        ),
    )  # fmt: skip


#: 1 / probability of one draw of a cluster, and of a unit of a cluster: the definitions.
FIRST = {
    "units": lambda s: s["n_h"] / s["n_c"],
    "size": lambda s: s["s_h"] / s["s_c"],
    "srs": lambda s: s["k_h"],
}
SECOND = {"srs": lambda s: s["n_c"], "pps": lambda s: s["s_c"] / s["size"]}
RULES = [(first, second) for first in FIRST for second in SECOND]


@pytest.mark.parametrize("rule", RULES)
def test_two_stage_weights_are_unbiased_and_those_of_other_rules_are_not(clustered, rule):
    rng = np.random.default_rng(7)
    design = SamplingDesign(
        "two_stage", n=96, allocation="equal", per_cluster=6, clusters=rule[0], within=rule[1]
    )
    truth = clustered.frame["outcome"].sum()
    totals, own = [], {each: [] for each in RULES}
    for _ in range(200):
        frame = design.draw(clustered, rng)
        sample = {name: frame[name].to_numpy() for name in frame}
        unit = sample["psu"].astype(int) + 8 * (sample["stratum"] == "s2")
        taken = np.bincount(unit, minlength=16)[unit]
        assert len(set(unit)) == 16
        assert (taken == np.minimum(sample["n_c"], 6)).all()
        totals.append((sample["weight"] * sample["outcome"]).sum())
        for first, second in RULES:
            weight = FIRST[first](sample) * SECOND[second](sample) / (8 * taken)
            own[first, second].append((weight * sample["outcome"]).sum())
    error = np.std(totals, ddof=1) / np.sqrt(len(totals))
    assert abs(np.mean(totals) - truth) < 4 * error
    for each, values in own.items():
        # Units that are taken with certainty have another weight: equal but for those.
        same = np.mean(values) == pytest.approx(np.mean(totals), rel=0.02)
        biased = abs(np.mean(values) - truth) > 4 * np.std(values, ddof=1) / np.sqrt(len(values))
        assert same if each == rule else biased, each


def test_two_stage_weights_where_both_stages_cancel(clustered):
    design = SamplingDesign("two_stage", n=40, per_cluster=3, clusters="size", within="pps")
    sample = design.draw(clustered, np.random.default_rng(1))
    per_stratum = sample.groupby("stratum")["weight"].transform("size")
    share = 3 * sample["size"] / sample["s_c"]
    plain = (share < 1) & (sample["n_c"] > 3)
    expected = sample["s_h"] / (per_stratum * sample["size"])
    assert plain.mean() > 0.7
    whole = sample.groupby(["stratum", "psu"])["size"].transform(
        lambda taken: bool((3 * taken / sample.loc[taken.index, "s_c"]).max() < 1)
    ).astype(bool)  # fmt: skip
    np.testing.assert_allclose(sample["weight"][plain & whole], expected[plain & whole])


def test_clusters_have_effects_and_sizes():
    made = superpopulation(
        np.random.default_rng(2), sizes=(40_000,) * 2, clusters=100, psu_variance=(0.05, 0.1)
    )
    frame = made.frame
    assert frame.groupby("psu")["stratum"].nunique().max() == 1
    count = frame.groupby("psu").size()
    assert count.size == 800
    assert count.between(99, 101).all()
    effects = {}
    for name in ("outcome", "size"):
        log = np.log(frame[name])
        cell = [frame["stratum"], frame["group"]]
        effects[name] = (log - log.groupby(cell).transform("mean")).groupby(frame["psu"]).mean()
    noise = 0.4**2 / count.mean()
    assert effects["outcome"].var() == pytest.approx(0.05 + noise, rel=0.2)
    assert effects["size"].var() == pytest.approx(0.05 + 0.1 + 2 * noise, rel=0.2)
    covariance = np.cov(effects["outcome"], effects["size"])[0, 1]
    assert covariance == pytest.approx(0.05 + noise, rel=0.3)


def test_clusters_drawn_twice_are_two_units(population):
    sample = SamplingDesign("two_stage", n=480, per_cluster=3).draw(
        population, np.random.default_rng(5)
    )
    per_unit = sample.groupby(["stratum", "psu"]).size()
    assert per_unit.max() <= 3
    assert len(per_unit) == 160
    shared = sample.merge(population.frame, on="outcome", suffixes=("", "_original"))
    assert shared.groupby("stratum")["psu_original"].nunique().sum() < 160


def test_allocations():
    sizes = np.array([900, 100])
    assert allocate("proportional", sizes, 100).tolist() == [90, 10]
    assert allocate("equal", sizes, 100).tolist() == [50, 50]
    assert allocate("power", sizes, 100).tolist() == [75, 25]


def test_informativeness_is_the_link_of_size_and_outcome():
    for informativeness, expected in ((0.0, 0.0), (1.0, np.sqrt(0.5))):
        frame = superpopulation(
            np.random.default_rng(6), sizes=(4000, 2500, 1500), clusters=50,
            informativeness=informativeness, psu_variance=(0.0, 0.0),
        ).frame  # fmt: skip
        log = np.log(frame["outcome"])
        residual = log - log.groupby([frame["stratum"], frame["group"]]).transform("mean")
        found = np.corrcoef(residual, np.log(frame["size"]))[0, 1]
        assert found == pytest.approx(expected, abs=0.05)


def test_mistakes_are_told(population):
    frame = population.frame
    for make, words in (
        (lambda: SamplingDesign("spss"), "design must be one of"),
        (lambda: SamplingDesign(allocation="optimal"), "allocation must be one of"),
        (lambda: SamplingDesign(n=1), "at least 2"),
        (lambda: SamplingDesign("srs", n=400, allocation="equal").check(population), "distinct"),
        (lambda: SamplingDesign("two_stage", clusters="pps"), "clusters must be one of"),
        (lambda: SamplingDesign("two_stage", within="units"), "within must be one of"),
        (lambda: SamplingDesign("pps", within="pps"), "need the design 'two_stage'"),
        (lambda: SamplingDesign("two_stage", 400, per_cluster=2, clusters="srs").check(population),
         "distinct clusters"),
        (lambda: SamplingDesign("two_stage", n=60, within="pps").check(
            Population(frame, ("outcome",), (), psu="psu")), "size"),
        (lambda: SamplingDesign("pps", n=30).check(Population(frame, ("outcome",), ())), "size"),
    ):
        with pytest.raises(InputError, match=words):
            make()
