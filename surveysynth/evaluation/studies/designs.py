"""Sample designs of simulation studies: stratified PPS, simple random, two-stage (methods 7).

samplics 0.6.1 confirms the systematic selection in the tests, but draws no sample here: its
generator is NumPy's global one, which no thread can seed for itself; its PPS with replacement
raises TypeError; and its systematic selection in random order takes units with wrong probabilities.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.evaluation.studies.population import Population

DesignKind: TypeAlias = Literal["pps_wr", "pps", "srs", "two_stage"]
Allocation: TypeAlias = Literal["proportional", "equal", "power"]
ClusterRule: TypeAlias = Literal["units", "size", "srs"]
WithinRule: TypeAlias = Literal["srs", "pps"]
WEIGHT = "weight"
#: Fewest units of a stratum's sample that variance estimation needs.
MINIMUM = 2


def proportional_allocation(
    stratum_sizes: IntArray | FloatArray, n: int, minimum: int = 2
) -> IntArray:
    """Return sample sizes (H,) in proportion to ``stratum_sizes`` (H,) that sum to n.

    Each is at least ``minimum``. Largest remainders decide the rounding; what the minimum adds is
    taken from the stratum that exceeds its share the most. Raises ``InputError`` if n cannot give
    every stratum the minimum.
    """
    sizes = np.asarray(stratum_sizes, dtype=np.float64)
    if n < minimum * sizes.size:
        raise InputError(
            f"n must be at least {minimum * sizes.size} ({minimum} records in each of "
            f"{sizes.size} strata), got {n}."
        )
    share = n * sizes / sizes.sum()
    allocation: IntArray = np.floor(share).astype(np.int64)
    largest_first = np.argsort(-(share - allocation), kind="stable")
    allocation[largest_first[: n - int(allocation.sum())]] += 1
    allocation = np.maximum(allocation, minimum)
    while int(allocation.sum()) > n:
        excess = np.where(allocation > minimum, allocation - share, -np.inf)
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


def allocate(rule: Allocation, stratum_sizes: IntArray, n: int) -> IntArray:
    """Return sample sizes (H,) that sum to n, each at least 2.

    They are in proportion to the sizes of the strata, equal, or in proportion to the square roots
    of the sizes ("power", between the two).
    """
    exponent = {"proportional": 1.0, "equal": 0.0, "power": 0.5}[rule]
    return proportional_allocation(np.asarray(stratum_sizes, np.float64) ** exponent, n, MINIMUM)


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
