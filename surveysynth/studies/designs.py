"""Sample designs: proportional allocation and stratified PPS with replacement (methods 7)."""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth._types import FloatArray, IntArray
from surveysynth.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def proportional_allocation(stratum_sizes: IntArray, n: int, minimum: int = 2) -> IntArray:
    """Sample sizes (H,) in proportion to ``stratum_sizes`` (H,), each >= minimum, that sum to n.

    Largest remainders decide the rounding; what the minimum adds is taken from the stratum that
    exceeds its share the most. Raises ``InputError`` when n cannot give every stratum the minimum.
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
    """n units drawn with probability p_i proportional to ``size`` (N,), and weights 1/(n p_i).

    Returns indices (n,) in ascending order, with repeats where a unit is drawn more than once,
    and the sampling weights (n,) whose sum estimates N without bias (Hansen and Hurwitz).
    """
    cumulative = np.cumsum(size)
    total = cumulative[-1]
    # Scaled uniforms can round up to the total itself, one past the last unit.
    position = np.searchsorted(cumulative, rng.random(n) * total, side="right")
    index = np.sort(np.minimum(position, size.size - 1)).astype(np.int64)
    return index, total / (n * size[index])


def stratified_pps_sample(
    population: "pd.DataFrame", *, strata: str, size: str, n: int, rng: np.random.Generator
) -> "pd.DataFrame":
    """Rows of ``population`` drawn by stratum with PPS with replacement, plus column ``weight``.

    ``strata`` and ``size`` name columns; the allocation is proportional to stratum sizes. The
    rows come stratum by stratum, sorted by stratum label, with a fresh index.
    """
    import pandas as pd

    groups = list(population.groupby(strata, sort=True))
    stratum_sizes = np.array([len(group) for _, group in groups], dtype=np.int64)
    parts = []
    for n_h, (_, group) in zip(proportional_allocation(stratum_sizes, n), groups, strict=True):
        index, weight = select_pps_with_replacement(
            group[size].to_numpy(dtype=np.float64), int(n_h), rng
        )
        parts.append(group.iloc[index].assign(weight=weight))
    return pd.concat(parts, ignore_index=True)
