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
from typing import Any, Literal, TypeAlias, get_args

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
    """Simulate one row per person: field, gender, salary (dollars), size (for PPS).

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

    frame: one row per unit. outcome, by, strata, psu and size (measure of size for PPS) name its
    columns; strata and psu None: none. drawn: the column of the number of units that are drawn in a
    unit's stratum; None if a rule allocates them.
    """

    frame: pd.DataFrame
    outcome: tuple[str, ...]
    by: tuple[str, ...]
    strata: str | None = None
    size: str | None = None
    psu: str | None = None
    drawn: str | None = None

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
        assert self.drawn is not None  # there is a column of sample sizes
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
    """Simulate one row per household: region, tenure, income (a year), insured, heating, size.

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


DesignKind: TypeAlias = Literal["pps_wr", "pps", "srs", "two_stage"]
Allocation: TypeAlias = Literal["proportional", "equal", "power"]
ClusterRule: TypeAlias = Literal["units", "size", "srs"]
WithinRule: TypeAlias = Literal["srs", "pps"]
WEIGHT = "weight"
#: Fewest units of a stratum's sample that variance estimation needs.
MINIMUM = 2


def allocate(rule: Allocation, stratum_sizes: IntArray | FloatArray, n: int) -> IntArray:
    """Return sample sizes (H,) that sum to n, each at least ``MINIMUM``.

    They are in proportion to the sizes (H,) of the strata, equal, or in proportion to the square
    roots of the sizes ("power", between the two). Largest remainders decide the rounding; what the
    minimum adds is taken from the stratum that exceeds its share the most. Raises ``InputError`` if
    n cannot give every stratum the minimum.
    """
    exponent = {"proportional": 1.0, "equal": 0.0, "power": 0.5}[rule]
    sizes = np.asarray(stratum_sizes, dtype=np.float64) ** exponent
    if n < MINIMUM * sizes.size:
        raise InputError(
            f"n must be at least {MINIMUM * sizes.size} ({MINIMUM} records in each of "
            f"{sizes.size} strata), got {n}."
        )
    share = n * sizes / sizes.sum()
    allocation: IntArray = np.floor(share).astype(np.int64)
    largest_first = np.argsort(-(share - allocation), kind="stable")
    allocation[largest_first[: n - int(allocation.sum())]] += 1
    allocation = np.maximum(allocation, MINIMUM)
    while int(allocation.sum()) > n:
        excess = np.where(allocation > MINIMUM, allocation - share, -np.inf)
        allocation[int(np.argmax(excess))] -= 1
    return allocation


def select_pps_with_replacement(
    size: FloatArray, n: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Draw n units with probability p_i proportional to ``size`` (N,), weights 1/(n p_i).

    Returns indices (n,) in ascending order, with repeats of units that are drawn more than once,
    and the sampling weights (n,) whose sum estimates N without bias (Hansen and Hurwitz).
    """
    cumulative = np.cumsum(size)
    total = cumulative[-1]
    # Scaled uniforms can round up to the total itself, one past the last unit.
    position = np.searchsorted(cumulative, rng.random(n) * total, side="right")
    index = np.sort(np.minimum(position, size.size - 1)).astype(np.int64)
    return index, total / (n * size[index])


def select_pps_systematic(
    size: FloatArray, n: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Draw n distinct units with inclusion probabilities pi_i = n size_i / sum.

    Selection is systematic from a random order; units whose pi_i would exceed 1 are taken with
    certainty. Returns indices (n,) in ascending order and weights 1/pi_i (n,). Raises
    ``InputError`` for more than all units.
    """
    if n > size.size:
        raise InputError(f"n = {n} distinct units cannot be drawn from {size.size}.")
    probability = inclusion_probabilities(size, n)
    order = rng.permutation(size.size)
    # The running sum ends at n up to rounding: rounded there, so that n units are hit.
    ends = np.cumsum(probability[order])
    ends *= n / ends[-1]
    hits = np.searchsorted(ends, rng.random() + np.arange(n), side="right")
    index = np.sort(order[np.minimum(hits, size.size - 1)])
    return index.astype(np.int64), 1.0 / probability[index]


def inclusion_probabilities(size: FloatArray, n: int) -> FloatArray:
    """Return pi (N,) in proportion to ``size`` (N,), at most 1, that sum to n."""
    certain = np.zeros(size.size, dtype=bool)
    while True:
        rest = np.where(certain, 0.0, size)
        left = n - int(certain.sum())
        probability = np.where(certain, 1.0, left * rest / rest.sum() if left else 0.0)
        more = (probability >= 1.0) & ~certain
        if not more.any():
            return probability
        certain |= more


@dataclass(frozen=True)
class SamplingDesign:
    """A design that draws samples, by stratum if the population has strata.

    kind: "pps_wr" (PPS with replacement), "pps" (systematic, without), "srs" (simple random,
    without replacement), "two_stage" (clusters, then ``per_cluster`` units of each, or all of a
    smaller one). n counts records. clusters: how clusters of a two-stage sample are drawn: by PPS
    with replacement to their number of "units" or to the sum of their units' "size", or "srs"
    (simple random, without replacement). within: how units of a cluster are drawn: "srs", or "pps"
    (systematic, to their size). Weights are 1 / (expected number of draws of the cluster x
    inclusion probability in it): they are equal in a stratum under "units" with "srs", equal in a
    cluster under "srs", and as informative as the measure of size under "pps". Raises
    ``InputError`` for unknown words and sizes below 2.
    """

    kind: DesignKind = "pps_wr"
    n: int = 1000
    allocation: Allocation = "proportional"
    per_cluster: int = 5
    clusters: ClusterRule = "units"
    within: WithinRule = "srs"

    def __post_init__(self) -> None:
        for name, word, known in (
            ("design", self.kind, get_args(DesignKind)),
            ("allocation", self.allocation, get_args(Allocation)),
            ("clusters", self.clusters, get_args(ClusterRule)),
            ("within", self.within, get_args(WithinRule)),
        ):
            if word not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {word!r}.")
        if self.n < MINIMUM or self.per_cluster < 1:
            raise InputError("n must be at least 2 and per_cluster at least 1.")
        if self.kind != "two_stage" and (self.clusters, self.within) != ("units", "srs"):
            raise InputError("clusters and within need the design 'two_stage'; leave them out.")

    @property
    def two_stage(self) -> bool:
        """True if samples have PSUs."""
        return self.kind == "two_stage"

    def check(self, population: Population) -> None:
        """Raise ``InputError`` if the design does not fit the population."""
        by_size = self.kind in ("pps_wr", "pps") or self.clusters == "size" or self.within == "pps"
        if by_size and population.size is None:
            raise InputError(f"design {self.kind!r} needs a measure of size; name its column.")
        if self.two_stage and population.psu is None:
            raise InputError("design 'two_stage' needs clusters; name the column of PSUs.")
        sizes = self._sizes(population)
        units = [rows.size for rows in population.stratum_rows]
        if self.kind in ("pps", "srs") and (sizes > units).any():
            raise InputError(
                f"n = {self.n} distinct records cannot be drawn: a stratum has fewer units than "
                "its share. Lower n or choose another allocation."
            )
        there = [int(codes.max()) + 1 for codes in population.stratum_clusters]
        if self.two_stage and self.clusters == "srs" and any(
            self._clusters_drawn(int(n)) > k for n, k in zip(sizes, there, strict=True)
        ):
            raise InputError(
                f"n = {self.n} records, {self.per_cluster} a cluster, need more distinct clusters "
                "than a stratum has. Lower n, raise per_cluster or draw clusters by size."
            )

    def _clusters_drawn(self, n: int) -> int:
        return max(MINIMUM, round(n / self.per_cluster))

    def draw(self, population: Population, rng: np.random.Generator) -> pd.DataFrame:
        """Draw one sample: rows of the population, stratum by stratum, adding ``weight``.

        A cluster that was drawn twice is two PSUs, so the PSUs of a sample are numbered anew.
        """
        rows, weights, draws = self.select(population, rng)
        frame = population.frame.take(rows).reset_index(drop=True)
        frame[WEIGHT] = weights
        if self.two_stage and population.psu is not None:
            frame[population.psu] = draws.astype(str)
        return frame

    def select(
        self, population: Population, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray, IntArray]:
        """Draw one sample: rows (n,) of the population, weights (n,), and the draw of each record.

        Draws of clusters are numbered from 0 within a stratum.
        """
        rows, weights, draws = [], [], []
        sizes = self._sizes(population)
        strata = zip(population.stratum_rows, population.stratum_clusters, sizes, strict=True)
        for stratum, cluster, each in strata:
            n, size = int(each), population.sizes[stratum]
            if self.two_stage:
                drawn = self._clusters_drawn(n)
                index, weight, draw = self._draw_clusters(cluster, size, drawn, rng)
            elif self.kind == "srs":
                index, draw = np.sort(rng.choice(size.size, n, replace=False)), np.arange(n)
                weight = np.full(n, size.size / n)
            else:
                by_size = select_pps_systematic
                if self.kind == "pps_wr":
                    by_size = select_pps_with_replacement
                (index, weight), draw = by_size(size, n, rng), np.arange(n)
            rows.append(stratum[index])
            weights.append(weight)
            draws.append(draw)
        return np.concatenate(rows), np.concatenate(weights), np.concatenate(draws)

    def _sizes(self, population: Population) -> IntArray:
        if population.drawn is not None:
            return population.sampled_by_stratum
        units = np.array([rows.size for rows in population.stratum_rows])
        return allocate(self.allocation, units, self.n)

    def _draw_clusters(
        self, cluster: IntArray, size: FloatArray, drawn: int, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray, IntArray]:
        """Draw ``drawn`` clusters of one stratum, then units of each.

        Returns positions within the stratum, weights, and the draw of each record.
        """
        units = np.bincount(cluster)
        if self.clusters == "srs":
            chosen = np.sort(rng.choice(units.size, drawn, replace=False))
            first = np.full(drawn, units.size / drawn)
        else:
            measure = np.bincount(cluster, size) if self.clusters == "size" else units
            chosen, first = select_pps_with_replacement(measure.astype(np.float64), drawn, rng)
        parts, weights = [], []
        for code, weight in zip(chosen, first, strict=True):
            members = np.flatnonzero(cluster == code)
            taken = min(self.per_cluster, members.size)
            if self.within == "pps":
                place, second = select_pps_systematic(size[members], taken, rng)
            else:
                place = rng.choice(members.size, taken, replace=False)
                second = np.full(taken, members.size / taken)
            parts.append(members[place])
            weights.append(weight * second)
        draws = np.repeat(np.arange(drawn), [part.size for part in parts])
        return np.concatenate(parts), np.concatenate(weights), draws
