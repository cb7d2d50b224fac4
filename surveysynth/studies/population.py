"""The simulated population of doctorate holders (methods 7).

Cell sizes and cell means are published figures (Tables 4 and 5 of the tabular-products paper);
within a cell the salary is log-normal and the measure of size is a noisy multiple of it, which
makes the sampling informative: people who earn more are more likely to be sampled.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surveysynth.resources import literature_table

if TYPE_CHECKING:
    import pandas as pd

SPREAD = 0.4
"""Standard deviation of log salary within a cell, and of log size given log salary."""

MARGIN = "All"


@dataclass(frozen=True)
class Cells:
    """The 16 interior cells: ``frame`` has field, gender, size (persons), mean (dollars)."""

    frame: "pd.DataFrame"

    @property
    def size(self) -> int:
        """Number of persons in the population."""
        return int(self.frame["size"].sum())


def published_cells() -> Cells:
    """Interior cells of the published simulation population, in the order of the tables."""
    import pandas as pd

    labels = {"field": str, "gender": str}
    counts = pd.read_csv(literature_table("simulation_counts_table4.csv"), dtype=labels)
    means = pd.read_csv(literature_table("simulation_mean_salary_table5.csv"), dtype=labels)
    cells = counts[["field", "gender", "population"]].merge(
        means[["field", "gender", "population"]],
        on=["field", "gender"],
        suffixes=("_count", "_mean"),
        validate="one_to_one",
    )
    cells = cells[(cells["field"] != MARGIN) & (cells["gender"] != MARGIN)]
    cells = cells.rename(columns={"population_count": "size", "population_mean": "mean"})
    return Cells(cells.reset_index(drop=True))


def simulate_population(cells: Cells, rng: np.random.Generator) -> "pd.DataFrame":
    """One row a person: field, gender, salary (dollars), size (the PPS measure of size).

    log salary ~ N(log mean - 0.08, 0.4^2), whose mean is the cell's published mean;
    log size = log salary + N(0, 0.4^2) (methods 7).
    """
    persons = cells.frame.loc[cells.frame.index.repeat(cells.frame["size"])].reset_index(drop=True)
    n_persons = len(persons)
    centre = np.log(persons["mean"].to_numpy(dtype=np.float64)) - SPREAD**2 / 2
    log_salary = rng.normal(centre, SPREAD)
    log_size = log_salary + rng.normal(0.0, SPREAD, n_persons)
    population = persons[["field", "gender"]].copy()
    population["salary"] = np.exp(log_salary)
    population["size"] = np.exp(log_size)
    return population
