"""One learned curve, or one for each stratum (``real_populations curves DIR``).

Samples of a frame, each with a noisy histogram by stratum or of all records as a release draws it,
the smoothed curves, and no other noise: the law of score and log weight is fitted by moments, as in
``law.py``, to the records of the sample. What it says about means and medians of all rows is
compared with the frame; errors are over those of the sample's own estimates.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.evaluation.studies.population import Population, SamplingDesign
from surveysynth.mechanisms.learned.histogram import gaussian_variance
from surveysynth.mechanisms.learned.smoothing import smoothed_counts
from surveysynth.mechanisms.noisy_statistics.accounting import rho_of
from surveysynth.survey.transforms import BINS, LearnedTransform, Transform, bin_of, normal_scores
from tests.long_runs.real_populations.law import (
    FEWEST,
    Units,
    estimates_of,
    law_of_cells,
    model_matrix,
    own_estimates,
)

SAMPLES, DELTA, SHARE = 20, 1e-6, Fraction(1, 10)
#: Epsilon of a release, of which a tenth of rho goes to the histogram.
EPSILONS = (10.8, 3.6)


def curves_study(
    units: Units,
    population: Population,
    design: SamplingDesign,
    ends: tuple[float, float],
    seed: int,
) -> dict[str, Any]:
    """Return by transform and statistic: RMSE over the sample's own, in the median and worst row.

    ends: of the public range.
    """
    stratum = np.zeros(units.amount.size, dtype=np.int64)
    for code, rows in enumerate(population.stratum_rows):
        stratum[rows] = code
    truth = own_estimates(units, np.arange(units.amount.size), np.ones(units.amount.size))
    own, found = [], {}
    for number in range(SAMPLES):
        drawn = design.draw(population, np.random.default_rng([seed, number]))
        sample, weight = drawn["unit"].to_numpy(), drawn["weight"].to_numpy()
        own.append(own_estimates(units, sample, weight))
        for name, transform in _transforms(units, stratum, sample, ends, [seed, number]):
            made = _estimates(units, sample, np.log(weight), transform)
            found.setdefault(name, []).append(made)
    shown = np.mean([each["records"] for each in own], axis=0) >= FEWEST
    return {name: _measures(truth, own, made, shown) for name, made in found.items()}


def _transforms(
    units: Units,
    stratum: IntArray,
    sample: IntArray,
    ends: tuple[float, float],
    seed: list[int],
) -> list[tuple[str, Callable[[IntArray], Transform]]]:
    """Return names, and the transform for the units (n,) of a frame."""
    made: list[tuple[str, Callable[[IntArray], Transform]]] = [
        ("declared", lambda rows: units.transform)
    ]
    for epsilon in EPSILONS:
        variance = float(gaussian_variance(SHARE * Fraction(rho_of(epsilon, DELTA))))
        for name, code in (("all", np.zeros_like(stratum)), ("strata", stratum)):
            rng = np.random.default_rng([*seed, 7])
            grid = LearnedTransform(low=ends[0], high=ends[1])
            counts = np.zeros((int(code.max()) + 1, BINS))
            np.add.at(counts, (code[sample], bin_of(grid, units.amount[sample])), 1)
            noisy = counts + np.round(rng.normal(0.0, np.sqrt(variance), counts.shape))
            knots = normal_scores(smoothed_counts(noisy, variance, grid.ends))
            learned = replace(grid, curves=(tuple(map(tuple, knots.tolist())),))
            made.append((
                f"{name}, {epsilon}",
                lambda rows, learned=learned, code=code: replace(learned, codes=code[rows]),
            ))
    return made


def _estimates(
    units: Units,
    sample: IntArray,
    log_weight: FloatArray,
    transform: Callable[[IntArray], Transform],
) -> dict[str, FloatArray]:
    """Return what the law of a sample says of every row."""
    x, ridge = model_matrix(units.by, interactions=True)
    z = np.column_stack([transform(sample).forward(units.amount[sample]), log_weight])
    first = np.unique(units.cell, return_index=True)[1]
    once, cell = np.ones(sample.size), units.cell[sample]
    weight, points = law_of_cells(z, once, cell, x[first], ridge, by_cell=True)
    amounts = [
        transform(np.full(each.size, unit)).inverse(each)
        for unit, each in zip(first, points, strict=True)
    ]
    return estimates_of(units, weight, np.array(amounts), np.zeros(first.size))


def _measures(
    truth: dict[str, FloatArray],
    own: list[dict[str, FloatArray]],
    made: list[dict[str, FloatArray]],
    shown: BoolArray,
) -> dict[str, dict[str, float]]:
    result = {}
    for name in ("mean", "median"):
        rmse, least = (
            np.sqrt(np.nanmean([(each[name] - truth[name]) ** 2 for each in every], axis=0))[shown]
            for every in (made, own)
        )
        ratio = rmse / least
        result[name] = {"median_row": round(float(np.median(ratio)), 2),
                        "worst_row": round(float(ratio.max()), 2)}  # fmt: skip
    return result
