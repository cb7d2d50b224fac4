"""How wrong the model's law is on a whole frame (``real_populations law DIR``).

No privacy: the transformed amount and the log weight of a frame are fitted by moments, each unit
counted as often as it is expected in a sample. The law is normal given the columns of X: main
effects, or all interactions of two with a ridge worth ``RIDGE`` records; with one covariance, or
with one by cell that counts the common one as ``POOLED`` records. What it says about counts, means
and medians is compared with the frame itself, in standard deviations of the sample's own estimates.
A release has this bias at any epsilon, and in these units it grows with n.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.config.spec import load_spec
from surveysynth.evaluation.studies.population import Population, SamplingDesign, allocate
from surveysynth.survey.transforms import Transform

SAMPLES, RIDGE, POOLED, FEWEST = 80, 11.0, 20.0, 20
#: Points of the normal distribution with their weights.
POINTS, MASS = np.polynomial.hermite_e.hermegauss(120)
MASS = MASS / MASS.sum()


@dataclass(frozen=True)
class Units:
    """The units of a frame: amount, transform, spikes, expected draws, cell; columns of tables."""

    amount: FloatArray
    transform: Transform
    spikes: tuple[float, ...]
    draws: FloatArray
    by: pd.DataFrame

    @cached_property
    def cell(self) -> IntArray:
        """Codes of the cells (N,)."""
        return self.by.groupby(list(self.by)).ngroup().to_numpy()

    @property
    def modeled(self) -> BoolArray:
        """Units that are at no spike."""
        return ~np.isin(self.amount, self.spikes)

    @cached_property
    def rows(self) -> list[BoolArray]:
        """Units (N,) of every cell and margin."""
        found = [np.ones(len(self.by), dtype=bool)]
        for k in range(1, self.by.shape[1] + 1):
            for some in combinations(self.by, k):
                code = self.by.groupby(list(some)).ngroup().to_numpy()
                found += [code == each for each in range(code.max() + 1)]
        return found


def model_matrix(by: pd.DataFrame, interactions: bool) -> tuple[FloatArray, FloatArray]:
    """Return X (N, K), indicators with a first level left out, and its ridge (K,)."""
    mains = [pd.get_dummies(by[name]).to_numpy(float)[:, 1:] for name in by]
    pairs = [(a[:, :, None] * b[:, None, :]).reshape(len(by), -1)
             for a, b in combinations(mains, 2)] if interactions else []  # fmt: skip
    x = np.column_stack([np.ones(len(by)), *mains, *pairs])
    free = 1 + sum(each.shape[1] for each in mains)
    return x, np.where(np.arange(x.shape[1]) < free, 0.0, RIDGE)


def law(
    units: Units, *, interactions: bool, by_cell: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what the law says of each cell: weight (C,) and amounts (C, points), weight at spikes.

    Weights count units; the amounts of a cell are equal to its points with masses ``MASS``.
    """
    x, ridge = model_matrix(units.by, interactions)
    kept, draws, cell = units.modeled, units.draws, units.cell
    z = np.column_stack([units.transform.forward(units.amount[kept]), -np.log(draws[kept])])
    x_cells = x[np.unique(cell, return_index=True)[1]]
    weight, points = law_of_cells(
        z, draws[kept], cell[kept], x_cells, ridge, by_cell=by_cell
    )  # fmt: skip
    spiked = np.bincount(cell[~kept], minlength=len(x_cells)).astype(np.float64)
    return weight, np.array([units.transform.inverse(each) for each in points]), spiked


def law_of_cells(
    z: FloatArray,
    rate: FloatArray,
    cell: IntArray,
    x_cells: FloatArray,
    ridge: FloatArray,
    *,
    by_cell: bool,
) -> tuple[FloatArray, FloatArray]:
    """Fit the law by moments; return the weight (C,) of each cell and points (C, points) of z.

    z (n, 2): score and log weight; rate (n,): how often each counts; x_cells (C, K), ridge (K,).
    """
    x = x_cells[cell]
    gram = x.T @ (x * rate[:, None]) + np.diag(ridge)
    coefficients = np.linalg.solve(gram, x.T @ (z * rate[:, None]))
    residual = z - x @ coefficients
    common = (residual * rate[:, None]).T @ residual / rate.sum()
    weight, points = [], []
    for code, centre in enumerate(x_cells @ coefficients):
        own = cell == code
        records, of_cell = rate[own].sum(), residual[own]
        spread = common
        if by_cell:
            squares = (of_cell * rate[own][:, None]).T @ of_cell
            spread = (squares + POOLED * common) / (records + POOLED)
        weight.append(records * np.exp(centre[1] + spread[1, 1] / 2.0))
        # A weight that is log-normal with the amount moves the law of the amount in the population.
        points.append(centre[0] + spread[0, 1] + np.sqrt(spread[0, 0]) * POINTS)
    return np.array(weight), np.array(points)


def estimates(units: Units, *, interactions: bool, by_cell: bool) -> dict[str, FloatArray]:
    """Return count, mean and median of every row, as the law has them."""
    return estimates_of(units, *law(units, interactions=interactions, by_cell=by_cell))


def estimates_of(
    units: Units, weight: FloatArray, amounts: FloatArray, spiked: FloatArray
) -> dict[str, FloatArray]:
    """Return count, mean and median of every row from what ``law`` returns."""
    first = np.unique(units.cell, return_index=True)[1]
    total, at_spikes = weight.sum() + spiked.sum(), units.amount[~units.modeled]
    spike = float(at_spikes.mean()) if at_spikes.size else 0.0
    made: dict[str, list[float]] = {"count": [], "mean": [], "median": []}
    for row in units.rows:
        cells = row[first]
        values = np.append(amounts[cells].ravel(), spike)
        mass = np.append((weight[cells, None] * MASS).ravel(), spiked[cells].sum())
        made["count"].append(mass.sum() * row.size / total)
        some = mass.sum() > 0.0
        made["mean"].append(float(np.average(values, weights=mass)) if some else np.nan)
        made["median"].append(weighted_median(values, mass) if some else np.nan)
    return {name: np.array(found) for name, found in made.items()}


def weighted_median(values: FloatArray, weight: FloatArray) -> float:
    """Return the median, interpolated between the middles of the steps."""
    order = np.argsort(values, kind="stable")
    middle = np.cumsum(weight[order]) - weight[order] / 2.0
    return float(np.interp(weight.sum() / 2.0, middle, values[order]))


def own_estimates(units: Units, sample: IntArray, weight: FloatArray) -> dict[str, FloatArray]:
    """Return count, mean and median of every row from units of a sample; NaN without any."""
    amount = units.amount[sample]
    made: dict[str, list[float]] = {"count": [], "mean": [], "median": [], "records": []}
    for row in units.rows:
        inside = row[sample]
        w, y = weight[inside], amount[inside]
        made["records"].append(float(inside.sum()))
        made["count"].append(w.sum() * row.size / weight.sum())
        made["mean"].append(float(np.average(y, weights=w)) if w.size else np.nan)
        made["median"].append(weighted_median(y, w) if w.size else np.nan)
    return {name: np.array(found) for name, found in made.items()}


def units_of(frame: pd.DataFrame, path: Path, design: SamplingDesign) -> tuple[Units, Population]:
    """Return the units of a frame with a specification, and the population to sample."""
    spec = load_spec(path)
    outcome, by = spec.declared[0], list(spec.table.by)
    frame = frame.astype(dict.fromkeys(by, str)).assign(unit=np.arange(len(frame)))
    population = Population(
        frame, (outcome.name,), tuple(by), spec.survey.strata, "size", spec.survey.psu
    )
    draws = np.zeros(len(frame))
    sizes = np.array([rows.size for rows in population.stratum_rows])
    drawn = allocate(design.allocation, sizes, design.n)
    for rows, n in zip(population.stratum_rows, drawn, strict=True):
        draws[rows] = n * population.sizes[rows] / population.sizes[rows].sum()
    amount = frame[outcome.name].to_numpy(dtype=np.float64)
    spikes = tuple(float(each) for each in outcome.spikes)
    return Units(amount, outcome.transform, spikes, draws, frame[by]), population


def bias(units: Units, population: Population, design: SamplingDesign, seed: int) -> dict[str, Any]:
    """Return by variant and statistic: root mean square and largest bias over rows, in SDs."""
    truth = own_estimates(units, np.arange(units.amount.size), np.ones(units.amount.size))
    drawn = []
    for number in range(SAMPLES):
        sample = design.draw(population, np.random.default_rng([seed, number]))
        drawn.append(own_estimates(units, sample["unit"].to_numpy(), sample["weight"].to_numpy()))
    enough = np.mean([each["records"] for each in drawn], axis=0) >= FEWEST
    made: dict[str, Any] = {"rows": int(enough.sum())}
    for interactions, by_cell in ((False, False), (False, True), (True, False), (True, True)):
        found = estimates(units, interactions=interactions, by_cell=by_cell)
        name = f"{'interactions' if interactions else 'main'}, {'by cell' if by_cell else 'one'}"
        made[name] = dict(_measures(truth, drawn, found, enough))
    return made


def _measures(
    truth: dict[str, FloatArray],
    drawn: list[dict[str, FloatArray]],
    found: dict[str, FloatArray],
    enough: BoolArray,
) -> Iterator[tuple[str, dict[str, float]]]:
    for statistic, values in found.items():
        sd = np.nanstd([each[statistic] for each in drawn], axis=0, ddof=1)
        shown = enough & (sd > 1e-6 * np.abs(truth[statistic]))  # the total count is public
        z = (values - truth[statistic])[shown] / sd[shown]
        yield statistic, {"rms": round(float(np.sqrt(np.mean(z**2))), 3),
                          "largest": round(float(np.abs(z).max()), 2)}  # fmt: skip
