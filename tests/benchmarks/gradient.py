"""Time of a gradient: one pass over the records against weighted sufficient statistics.

    python tests/benchmarks/gradient.py [stan]

FBS and the normal regression with nine columns of X, at n = 1,000, 10,000 and 100,000:
milliseconds a gradient of the weighted log posterior in both forms, and their ratio; in NumPy and,
with "stan", in Stan through PyStan, as Stan itself tells it at the start of a run
(``regression_records.stan`` takes all records in one expression of matrices). In NumPy a gradient
of either form has a floor, the calls themselves. The statistics are made once for a whole fit.
"""

import importlib
import re
import sys
import tempfile
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from surveysynth._support.resources import stan_directory
from surveysynth.models.gaussian.statistics import GaussianStats
from surveysynth.sampling.stan.pystan import compile_program
from surveysynth.sampling.stan.source import flattened_source
from tests import oracles
from tests.models.model_cases import make_case

MODELS = ("fbs", "normal")
SIZES = (1_000, 10_000, 100_000)
COLUMNS, OUTCOMES = 9, 2
ROUNDS = 7


def statistics_at(case, x, coefficients):
    """What the density needs of the likelihood at these coefficients, from all records."""
    residual = case.z - x @ coefficients
    weighted = case.alpha[:, None] * residual
    return residual.T @ weighted, x.T @ weighted


def by_records(case, x, u):
    """Value and gradient with the sums taken over the records at u itself.

    A least-squares fit at the coefficients of u would make X'AX (beta - fit) zero: the density is
    asked with the sums of squares about them, and X'A(residuals) is added to its gradient.
    """
    k = case.shape[0]
    theta = oracles.constrain(case.model, u, case.shape)
    if case.model.name == "fbs":
        coefficients = theta["beta"]
    else:  # log w ~ x gamma + delta y is log w ~ x (gamma + delta beta) + delta (y - x beta)
        delta, gamma = theta["weight_coefficients"][0], theta["weight_coefficients"][1:]
        coefficients = np.column_stack([theta["beta"], gamma + delta * theta["beta"]])
    squares, slope = statistics_at(case, x, coefficients)
    total = np.array([case.alpha.sum()])
    at_point = GaussianStats(
        total, np.zeros((1, k)), np.zeros((1, k, k)), coefficients[None], squares[None]
    )
    value, gradient = oracles.log_density(case.model, u, at_point)
    if case.model.name == "fbs":
        gradient[: coefficients.size] += (slope @ np.linalg.inv(theta["covariance"])).T.ravel()
        return value, gradient
    gradient[:k] += slope[:, 0] / theta["variance"][0]
    by_gamma = (slope[:, 1] - delta * slope[:, 0]) / theta["variance"][1]
    gradient[-k - 2 : -1] += np.append(by_gamma @ theta["beta"], by_gamma)
    return value, gradient


def milliseconds(function, repeats):
    """Best mean time of a call over a few rounds, of the processor."""
    best = np.inf
    for _ in range(ROUNDS):
        start = process_time()
        for _ in range(repeats):
            function()
        best = min(best, (process_time() - start) / repeats)
    return 1e3 * best


def numpy_times(case):
    """Milliseconds a gradient over the records and on statistics, after comparing them."""
    x, u = case.x, case.points(1, np.random.default_rng(1))[0]
    value, gradient = by_records(case, x, u)
    expected = oracles.log_density(case.model, u, case.stats)
    np.testing.assert_allclose(value, expected[0], rtol=1e-9)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-6, atol=1e-6)
    return (
        milliseconds(lambda: by_records(case, x, u), max(3, 100_000 // case.records.n)),
        milliseconds(lambda: oracles.log_density(case.model, u, case.stats), 100),
    )


def stan_times(case):
    """The same of Stan's programs: ``regression_records.stan`` and the model's own."""
    by_record = Path(__file__).parents[1] / "stan" / case.records_program
    on_statistics = stan_directory() / case.model.stan.program
    statistics = case.model.stan.data(case.stats, case.model.priors)
    return (
        gradient_milliseconds(by_record, case.records_data()),
        gradient_milliseconds(on_statistics, statistics),
    )


def gradient_milliseconds(path, data):
    """Best of the times of a gradient that Stan itself tells at the start of a run."""
    stan, cache = importlib.import_module("stan"), importlib.import_module("httpstan.cache")
    code, times = flattened_source(path), []
    compile_program(code)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(ROUNDS):
            # PyStan would answer a second call from its cache.
            cache.fit_path = lambda name, to=seed: Path(folder) / f"{to}{name.replace('/', '_')}"
            model = stan.build(code, data=data, random_seed=seed + 1)
            fit = model.sample(num_chains=1, num_warmup=0, num_samples=1, max_depth=1)
            told = re.search(rb"Gradient evaluation took ([-+.e\d]+) seconds", fit.stan_outputs[0])
            times.append(1e3 * float(told[1]))
    return min(times)


def main():
    """Prints a line a model, size and route."""
    routes = {"numpy": numpy_times}
    if "stan" in sys.argv[1:]:
        routes["stan"] = stan_times
    columns = f"{'records, ms':>12} {'statistics, ms':>15} {'ratio':>7}"
    print(f"{'n':>8} {'model':>7} {'route':>6} {columns}")
    for name, n in product(MODELS, SIZES):
        case = make_case(name, OUTCOMES, n=n, k=COLUMNS)
        for route, times in routes.items():
            records, statistics = times(case)
            sizes = f"{records:>12.3f} {statistics:>15.3f} {records / statistics:>7.1f}"
            print(f"{n:>8,} {name:>7} {route:>6} {sizes}")


if __name__ == "__main__":
    main()
