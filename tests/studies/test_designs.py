"""Truth: inclusion counts over repeated samples, totals of the population, known sums."""

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.studies.designs import (
    SamplingDesign,
    allocate,
    inclusion_probabilities,
    select_pps_systematic,
)
from surveysynth.studies.population import Population, superpopulation


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
            np.random.default_rng(6), informativeness=informativeness
        ).frame
        log = np.log(frame["outcome"])
        residual = log - log.groupby([frame["stratum"], frame["group"]]).transform("mean")
        found = np.corrcoef(residual, np.log(frame["size"]))[0, 1]
        assert found == pytest.approx(expected, abs=0.05)


def test_mistakes_are_told(population):
    frame = population.frame
    for make, words in (
        (lambda: SamplingDesign("spss"), "design must be one of"),
        (lambda: SamplingDesign(allocation="neyman"), "allocation must be one of"),
        (lambda: SamplingDesign(n=1), "at least 2"),
        (lambda: Population(frame, ("income",), ("group",)), "no column 'income'"),
        (lambda: Population(frame.assign(size=0.0), ("outcome",), (), size="size"), "positive"),
        (lambda: superpopulation(np.random.default_rng(1), sizes=(5,)), "at least 8"),
        (lambda: superpopulation(np.random.default_rng(1), spread=0.0), "positive"),
        (lambda: SamplingDesign("srs", n=400, allocation="equal").check(population), "distinct"),
        (lambda: SamplingDesign("pps", n=30).check(Population(frame, ("outcome",), ())), "size"),
    ):
        with pytest.raises(InputError, match=words):
            make()
