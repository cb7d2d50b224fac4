"""Truth: the published cell sizes and means, and the moments stated in methods 7."""

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.evaluation.studies.population import (
    Population,
    SamplingDesign,
    allocate,
    published_cells,
    select_pps_with_replacement,
    simulate_population,
)


def test_cells_are_the_published_ones() -> None:
    cells = published_cells()
    assert cells["size"].sum() == 100_000
    assert len(cells) == 16
    row = cells.set_index(["field", "gender"]).loc[("7", "Male")]
    assert (row["size"], row["mean"]) == (14358, 136370)


def test_population_means_and_moments() -> None:
    cells = published_cells()
    population = simulate_population(cells, np.random.default_rng(1))
    counts = population.groupby(["field", "gender"]).size()
    expected = cells.set_index(["field", "gender"])
    assert counts.sort_index().equals(expected["size"].sort_index().rename(None))
    # The standard error of a cell mean is 0.42 mean / sqrt(N_d): five of them.
    means = population.groupby(["field", "gender"])["salary"].mean()
    error = (means - expected["mean"]).abs() / (0.42 * expected["mean"])
    assert (error * np.sqrt(expected["size"])).max() < 5
    residual = np.log(population["size"]) - np.log(population["salary"])
    assert residual.mean() == pytest.approx(0.0, abs=0.01)
    assert residual.std() == pytest.approx(0.4, abs=0.01)


def test_allocation_is_proportional_with_a_minimum() -> None:
    sizes = np.array([27963, 2734, 4035, 18109, 11197, 12842, 18131, 4989])
    assert allocate("proportional", sizes, 1000).tolist() == [280, 27, 40, 181, 112, 129, 181, 50]
    tight = allocate("proportional", np.array([1000, 1, 1, 1]), 8)
    assert tight.tolist() == [2, 2, 2, 2]
    assert allocate("proportional", np.array([1000, 1, 1]), 20).tolist() == [16, 2, 2]
    with pytest.raises(InputError, match="at least 8"):
        allocate("proportional", np.array([1000, 1, 1, 1]), 7)


def test_weights_estimate_the_population_without_bias() -> None:
    rng = np.random.default_rng(2)
    size = rng.lognormal(0, 1, 500)
    sums = [select_pps_with_replacement(size, 50, rng)[1].sum() for _ in range(400)]
    error = np.std(sums, ddof=1) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - 500) < 4 * error
    index, weight = select_pps_with_replacement(size, 50, rng)
    assert weight == pytest.approx(size.sum() / (50 * size[index]))


def test_sample_is_informative_as_stated() -> None:
    persons = simulate_population(published_cells(), np.random.default_rng(3))
    population = Population(persons, ("salary",), (), "field", "size")
    sample = SamplingDesign(n=5000).draw(population, np.random.default_rng(4))
    assert len(sample) == 5000
    assert sample["weight"].sum() == pytest.approx(100_000, rel=0.05)
    assert np.corrcoef(np.log(sample["salary"]), np.log(sample["weight"]))[0, 1] < -0.5
