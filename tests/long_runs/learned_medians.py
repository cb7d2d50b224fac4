"""Where the error of medians under learned transforms comes from: ``python -m
tests.long_runs.learned_medians``.

Samples of the population of ``learned_study``, without a posterior: the curve of every stratum,
then for each cell the normal law with the mean and variance of the sample's z within the ball, and
the regression of log w on z. Medians of cells and margins by these, against the population's. The
curve comes from counts without noise, with the noise of a tenth of epsilon 10.8, with two thirds of
its variance (a share of 0.15), and of amounts above zero alone, with losses as a category (a split
at 0); ``sample's law`` has the sample's own z in place of the normal law.

``golden/learned_medians.json`` has bias and RMSE of all rows. A sample takes a quarter of a second.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy.special import ndtr  # noqa: E402

from surveysynth._support.types import FloatArray, IntArray  # noqa: E402
from surveysynth.mechanisms.learned.smoothing import smoothed_counts  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.accounting import Budget  # noqa: E402
from surveysynth.survey.transforms import (  # noqa: E402
    BINS,
    PARTS,
    LearnedTransform,
    bin_of,
    normal_scores,
)
from tests.long_runs.learned_study import EPSILON, RANGE, RECORDS, population  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "learned_medians.json"
SEED, DELTA, BALL = 7, 1e-6, 3.1
GRID = LearnedTransform(low=RANGE[0], high=RANGE[1])
X = np.linspace(*GRID.grid, BINS * PARTS + 1)
#: Cells of a row: regions by sex, regions, sexes, all.
ROWS = [
    *([c] for c in range(8)), *([2 * r, 2 * r + 1] for r in range(4)),
    *([s + 2 * r for r in range(4)] for s in range(2)), list(range(8)),
]  # fmt: skip


def knots(
    y: FloatArray, stratum: IntArray, variance: float, rng: np.random.Generator
) -> FloatArray:
    """Return the curves (4, parts + 1) of amounts in strata, with noise of a variance."""
    counts = np.zeros((4, BINS))
    np.add.at(counts, (stratum, bin_of(GRID, y)), 1)
    noisy = counts + np.round(rng.normal(0.0, np.sqrt(variance), counts.shape))
    return normal_scores(smoothed_counts(noisy, variance, np.linspace(*GRID.grid, BINS + 1)))


def medians(
    y: FloatArray, weight: FloatArray, cell: IntArray, curve: FloatArray, *, normal: bool = True
) -> FloatArray:
    """Return the median of every row by the model; zeros are a category."""
    below, mass, none = np.zeros((8, X.size)), np.zeros(8), np.zeros(8)
    for each in range(8):
        here = cell == each
        amount = here & (y != 0.0)
        own = curve[each // 2]
        z = np.clip(np.interp(np.arcsinh(y[amount] / GRID.divisor), X, own), -BALL, BALL)
        log_w, variance = np.log(weight[amount]), z.var()
        slope = ((z - z.mean()) * log_w).mean() / variance
        rest = (log_w - log_w.mean() - slope * (z - z.mean())).var()
        mass[each] = z.size * np.exp(log_w.mean() + 0.5 * (slope**2 * variance + rest))
        none[each] = weight[here & (y == 0.0)].sum()
        if normal:
            below[each] = ndtr((own - z.mean() - slope * variance) / np.sqrt(variance))
        else:
            order, tilt = np.argsort(z), np.exp(slope * (z - z.mean()))
            below[each] = np.interp(own, z[order], np.cumsum(tilt[order]) / tilt.sum(), 0.0, 1.0)
    found = []
    for row in ROWS:
        share = (mass[row] @ below[row] + none[row].sum() * (X >= 0.0)) / (mass + none)[row].sum()
        found.append(np.interp(0.5, share, X))
    return np.asarray(GRID.divisor * np.sinh(found))


def one_sample(frame: dict[str, Any], rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return the medians (15,) by all variants of one sample drawn in proportion to size."""
    chance = np.minimum(RECORDS * frame["size"] / frame["size"].sum(), 1.0)
    order = rng.permutation(chance.size)
    points = rng.random() + np.arange(RECORDS)
    chosen = order[np.searchsorted(np.cumsum(chance[order]), points[points < chance.sum()])]
    y, weight, cell = frame["income"][chosen], 1.0 / chance[chosen], frame["cell"][chosen]
    amount, gain = y != 0.0, y > 0.0
    variance = 1.0 / (0.1 * Budget.of_epsilon(EPSILON, DELTA).rho)
    given = y[amount], cell[amount] // 2
    noisy = knots(*given, variance, rng)
    above = knots(y[gain], cell[gain] // 2, variance, rng)
    rest = y, weight, cell
    ranked = [np.argsort(np.where(np.isin(cell, row), y, np.inf)) for row in ROWS]
    totals = [np.cumsum(np.where(np.isin(cell, row), weight, 0.0)[each])
              for row, each in zip(ROWS, ranked, strict=True)]  # fmt: skip
    return {
        "sample": np.array([y[each[np.searchsorted(total, total[-1] / 2)]]
                            for each, total in zip(ranked, totals, strict=True)]),
        "no noise": medians(*rest, knots(*given, 0.0, rng)),
        "learned": medians(*rest, noisy),
        "share 0.15": medians(*rest, knots(*given, variance / 1.5, rng)),
        "split at 0": medians(np.maximum(y, 0.0), weight, cell, above),
        "sample's law": medians(*rest, noisy, normal=False),
    }  # fmt: skip


def study(samples: int) -> list[dict[str, Any]]:
    """Return a line for each variant: root mean square bias in the sample's SDs, RMSE over its."""
    given = population()
    frame = {
        "income": given["income"].to_numpy(dtype=np.float64), "size": given["size"].to_numpy(),
        "cell": given.groupby(["region", "sex"]).ngroup().to_numpy(),
    }  # fmt: skip
    truth = np.array([np.median(frame["income"][np.isin(frame["cell"], row)]) for row in ROWS])
    made = [one_sample(frame, np.random.default_rng([SEED, each])) for each in range(samples)]
    errors = {name: np.array([each[name] for each in made]) - truth for name in made[0]}
    sd = errors["sample"].std(axis=0)
    own = np.sqrt((errors["sample"] ** 2).mean(axis=0))
    return [
        {
            "variant": name, "samples": samples,
            "bias": round(float(np.sqrt(np.mean((each.mean(axis=0) / sd) ** 2))), 2),
            "rmse_ratio": round(float(np.median(np.sqrt((each**2).mean(axis=0)) / own)), 2),
        }
        for name, each in errors.items()
    ]  # fmt: skip


def main() -> None:
    """Run the study and keep its lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=100)
    lines = study(parser.parse_args().samples)
    GOLDEN.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
