"""Simulated populations: doctorate holders (methods 7), a model of strata and clusters, households.

Cell sizes and cell means of doctorate holders are published figures (Tables 4 and 5 of the
tabular-products paper). Within a cell the salary is log-normal, and the measure of size is a noisy
multiple of it, so the sampling is informative: people who earn more are more likely to be sampled.
The published simulation draws samples of 1,000 within fields, in proportion to size, with
replacement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing
from surveysynth._support.resources import literature_table
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError

SPREAD = 0.4
"""Standard deviation of log salary within a cell, and of log size given log salary."""

MARGIN = "All"


def published_cells() -> pd.DataFrame:
    """Read the 16 interior cells: field, gender, size (persons), mean (dollars)."""
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
    return cells.reset_index(drop=True)


def simulate_population(cells: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Simulate one row a person: field, gender, salary (dollars), size (for PPS).

    log salary ~ N(log mean - 0.08, 0.4^2), whose mean is the cell's published mean; log size = log
    salary + N(0, 0.4^2) (methods 7).
    """
    persons = cells.loc[cells.index.repeat(cells["size"])].reset_index(drop=True)
    n_persons = len(persons)
    center = np.log(persons["mean"].to_numpy(dtype=np.float64)) - SPREAD**2 / 2
    log_salary = rng.normal(center, SPREAD)
    log_size = log_salary + rng.normal(0.0, SPREAD, n_persons)
    population = persons[["field", "gender"]].copy()
    population["salary"] = np.exp(log_salary)
    population["size"] = np.exp(log_size)
    return population


@dataclass(frozen=True, eq=False)
class Population:
    """A finite population to draw samples from, which defines the truths of a study.

    frame: one row a unit. outcome, by, strata, psu and size (measure of size for PPS) name its
    columns; strata and psu None: none. drawn: the column of the number of units that are drawn in a
    unit's stratum; None if a rule allocates them. Raises ``InputError`` for a missing column.
    """

    frame: pd.DataFrame
    outcome: tuple[str, ...]
    by: tuple[str, ...]
    strata: str | None = None
    size: str | None = None
    psu: str | None = None
    drawn: str | None = None

    def __post_init__(self) -> None:
        used = (*self.outcome, *self.by, self.strata, self.size, self.psu, self.drawn)
        for name in used:
            if name is not None and name not in self.frame.columns:
                raise InputError(
                    f"the population has no column {name!r}; its columns are "
                    f"{', '.join(map(str, self.frame.columns))}."
                )
        if self.size is not None:
            size = self.frame[self.size].to_numpy(dtype=np.float64)
            if not (np.isfinite(size).all() and (size > 0).all()):
                raise InputError(f"the measure of size {self.size!r} must be positive everywhere.")

    @property
    def n_units(self) -> int:
        """N, the number of units."""
        return len(self.frame)

    @cached_property
    def stratum_rows(self) -> tuple[IntArray, ...]:
        """Row numbers of each stratum, in the order of the labels; all rows without strata."""
        if self.strata is None:
            return (np.arange(self.n_units),)
        grouped = self.frame.groupby(self.strata, sort=True).indices
        return tuple(np.asarray(rows, dtype=np.int64) for rows in grouped.values())

    @cached_property
    def stratum_clusters(self) -> tuple[IntArray, ...]:
        """Cluster of each unit of each stratum, codes 0.. within the stratum."""
        if self.psu is None:
            return tuple(np.arange(rows.size) for rows in self.stratum_rows)
        labels = self.frame[self.psu].to_numpy()
        return tuple(
            np.unique(labels[rows], return_inverse=True)[1].astype(np.int64)
            for rows in self.stratum_rows
        )

    @cached_property
    def sampled_by_stratum(self) -> IntArray:
        """The number of units (H,) drawn in each stratum, from the column ``drawn``.

        Raises ``InputError`` unless it is one whole number of at least 2 in each stratum.
        """
        if self.drawn is None:
            raise InputError("the population has no column of sample sizes.")
        values = self.frame[self.drawn].to_numpy(dtype=np.float64)
        found = []
        for rows in self.stratum_rows:
            distinct = np.unique(values[rows])
            if distinct.size > 1 or distinct[0] < 2 or distinct[0] != np.floor(distinct[0]):
                where = "" if self.strata is None else (
                    f" in stratum {str(self.frame[self.strata].iloc[rows[0]])!r}"
                )
                raise InputError(
                    f"the sample sizes of column {self.drawn!r} must be one whole number of at "
                    f"least 2 in each stratum; there are {listing(distinct.tolist(), 3)}{where}."
                )
            found.append(int(distinct[0]))
        return np.array(found, dtype=np.int64)

    @cached_property
    def sizes(self) -> FloatArray:
        """The measure of size of each unit (N,), 1 where there is none."""
        if self.size is None:
            return np.ones(self.n_units)
        return self.frame[self.size].to_numpy(dtype=np.float64)


def superpopulation(
    rng: np.random.Generator,
    *,
    sizes: Sequence[int],
    clusters: int,
    informativeness: float = 1.0,
    psu_variance: tuple[float, float] = (0.02, 0.015),
) -> Population:
    """Draw a population from a model: log outcome ~ N(mu_group, 0.4^2) by stratum and group.

    The measure of size is exp(informativeness x residual of the log outcome + N(0, 0.4^2)): with 0
    the design contains nothing about the outcome given X, with 1 it is as informative as the
    published simulation's. ``sizes``: units of each stratum. ``clusters``: their approximate size,
    in a column psu. ``psu_variance``: variances of effects of clusters on the log outcome, beside
    the residual, and directly on the log size (methods 3): with informativeness k the variance
    between clusters is v_1 in the log outcome and k^2 v_1 + v_2 in the log size.
    """
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    group = rng.integers(0, 2, stratum.size)
    residual = rng.normal(0.0, SPREAD, stratum.size)
    # Clusters are nested in strata, about N_h / clusters of them; each has one unit at least.
    psu, n_codes = np.empty(stratum.size, dtype=np.int64), 0
    for label in range(len(sizes)):
        rows = np.flatnonzero(stratum == label)
        count = max(2, round(rows.size / clusters))
        ends = np.cumsum(np.full(count, 1.0 / count)) * (rows.size - count)
        drawn = np.searchsorted(ends, np.arange(rows.size - count), side="right")
        within = np.concatenate([np.arange(count), np.minimum(drawn, count - 1)])
        psu[rng.permutation(rows)] = n_codes + within
        n_codes += count
    shared = rng.normal(0.0, 1.0, (2, n_codes))[:, psu]
    residual = residual + np.sqrt(psu_variance[0]) * shared[0]
    frame = pd.DataFrame({
        "stratum": np.char.add("s", (stratum + 1).astype(str)),
        "group": np.array(["a", "b"])[group],
        "psu": np.char.add("c", (psu + 1).astype(str)),
        "outcome": np.exp(10.0 + 0.1 * stratum - 0.2 * group + residual),
    })  # fmt: skip
    direct = np.sqrt(psu_variance[1]) * shared[1]
    noise = rng.normal(0.0, SPREAD, stratum.size)
    frame["size"] = np.exp(informativeness * residual + direct + noise)
    return Population(frame, ("outcome",), ("stratum", "group"), "stratum", "size", "psu")


N_HOUSEHOLDS = 30_000
REGIONS = ("north", "east", "south", "west")
HEATING = ("gas", "electric", "oil")

#: Shares of heating by tenure, owners first.
_HEATING_SHARES = np.array([[0.55, 0.25, 0.20], [0.40, 0.50, 0.10]])


def simulate_households(rng: np.random.Generator) -> pd.DataFrame:
    """Simulate one row a household: region, tenure, income (a year), insured, heating, size.

    A tenth of the owners and a fifth of the tenants have no income; the others' is a gamma variable
    of shape 2, with a mean by region and tenure. Insurance becomes likelier with income. The
    measure of size of a PPS sample rises with income, so that the sampling is informative.
    """
    n = N_HOUSEHOLDS
    region, owner = rng.integers(0, len(REGIONS), n), rng.random(n) < 0.6
    mean = 30_000 * (1 + 0.12 * region) * np.where(owner, 1.4, 1.0)
    amount = rng.gamma(2.0, mean / 2)
    income = np.where(rng.random(n) < np.where(owner, 0.1, 0.2), 0.0, amount.round(-1))
    odds = np.exp(0.4 + 0.6 * owner + income / 40_000)
    insured = rng.random(n) < odds / (1 + odds)
    cumulated = _HEATING_SHARES.cumsum(axis=1)[np.where(owner, 0, 1)]
    heating = (rng.random(n)[:, None] > cumulated[:, :-1]).sum(axis=1)
    size = (income + 20_000) ** 0.7 * np.exp(rng.normal(0.0, 0.4, n))
    return pd.DataFrame(
        {
            "region": np.array(REGIONS)[region],
            "tenure": np.where(owner, "owner", "tenant"),
            "income": income,
            "insured": np.where(insured, "yes", "no"),
            "heating": np.array(HEATING)[heating],
            "size": size,
        }
    )


SOURCE = "the frame of the published simulation"
#: The design of its samples.
DESIGN: Mapping[str, Any] = {"n": 1000, "design": "pps_wr", "size": "size"}
#: The epsilon of three draws.
EPSILON = 10.8
#: As a public report could say: salaries of about 100,000 dollars that differ by a factor of about
#: exp(0.42) within and between the cells. One center serves all cells, so that it reveals none.
DECLARED = {"center": 100_000.0, "spread": 0.42}


def published_frame(seed: int = 0) -> pd.DataFrame:
    """Simulate 100,000 persons: field, gender, salary, and the measure of size."""
    stream = np.random.SeedSequence(seed, spawn_key=(0,))  # a study has others
    return simulate_population(published_cells(), np.random.default_rng(stream))


def published_specs() -> dict[str, dict[str, Any]]:
    """Return the sections of a release by name: both mechanisms, and the papers' inference.

    The pseudo-posterior leaves small strata unpooled, as in the papers.
    """
    pseudo = {"mechanism": "pseudo_posterior", "epsilon": EPSILON, "allow": ["small_strata"]}
    made = {
        model + suffix: _release(pseudo, model=model, inference=inference)
        for model in ("fbs", "fbp")
        for suffix, inference in (("_paper", "paper"), ("", "debiased"))
    }
    noisy = {"mechanism": "noisy_statistics", "epsilon": EPSILON}
    made["fbs_noisy"] = {**_release(noisy, model="fbs"), "outcomes": {"salary": DECLARED}}
    return made


def _release(privacy: dict[str, Any], **synthesizer: Any) -> dict[str, Any]:
    return {
        "survey": {
            "weight": "weight", "strata": "field",
            "population_size": int(published_cells()["size"].sum()),
        },
        "synthesizer": {"outcome": "salary", **synthesizer},
        "privacy": privacy,
        "tables": {"by": ["field", "gender"], "statistics": ["count", "mean"]},
    }  # fmt: skip
