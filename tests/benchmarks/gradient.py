"""Time of a gradient: one pass over the records against weighted sufficient statistics.

    python tests/benchmarks/gradient.py [stan]

FBS with nine columns of X, at n = 1,000, 10,000 and 100,000: milliseconds a gradient of the
weighted log posterior in both forms, and their ratio; in NumPy and, with "stan", in Stan through
PyStan, as Stan itself tells it at the start of a run (``fbs_records.stan`` is a plain loop over the
records). In NumPy a gradient of either form has a floor, the calls themselves. The statistics are
made once for a whole fit.
"""

import importlib
import re
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from model_cases import make_case  # noqa: E402

from surveysynth.models.gaussian import GaussianStats  # noqa: E402
from surveysynth.resources import stan_directory  # noqa: E402
from surveysynth.sampling.pystan_worker import _compile as compile_program  # noqa: E402
from surveysynth.sampling.stan_source import flattened_source  # noqa: E402

SIZES = (1_000, 10_000, 100_000)
COLUMNS, OUTCOMES = 9, 2
ROUNDS = 7


def statistics_at(case, x, beta):
    """What the density needs of the likelihood at one beta, from all records."""
    residual = case.z - x @ beta
    weighted = case.alpha[:, None] * residual
    return residual.T @ weighted, x.T @ weighted


def by_records(case, x, u):
    """Value and gradient with the sums taken over the records at u itself.

    A least-squares fit at beta itself would make X'AX (beta - fit) zero: the density is asked with
    the sums of squares about beta, and the slope X'A(Z - X beta) is added to its gradient.
    """
    k, q = case.shape
    beta = u[: k * q].reshape(q, k).T
    squares, slope = statistics_at(case, x, beta)
    total = np.array([case.alpha.sum()])
    at_point = GaussianStats(
        total, np.zeros((1, k)), np.zeros((1, k, k)), beta[None], squares[None]
    )
    value, gradient = case.model.log_density(u, at_point)
    covariance = case.model.constrain(u, case.shape)["covariance"]
    gradient[: k * q] += (slope @ np.linalg.inv(covariance)).T.ravel()
    return value, gradient


def milliseconds(function, repeats):
    """Best mean time of a call over a few rounds."""
    best = np.inf
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(repeats):
            function()
        best = min(best, (perf_counter() - start) / repeats)
    return 1e3 * best


def numpy_times(case):
    """Milliseconds a gradient over the records and on statistics, after comparing them."""
    x, u = case.x, case.points(1, np.random.default_rng(1))[0]
    value, gradient = by_records(case, x, u)
    expected = case.model.log_density(u, case.stats)
    np.testing.assert_allclose(value, expected[0], rtol=1e-9)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-6, atol=1e-6)
    return (
        milliseconds(lambda: by_records(case, x, u), max(3, 100_000 // case.records.n)),
        milliseconds(lambda: case.model.log_density(u, case.stats), 100),
    )


def stan_times(case):
    """The same of Stan's programs ``fbs_records.stan`` and ``fbs.stan``."""
    priors = case.model.priors
    records = {
        "n": case.records.n, "K": COLUMNS, "q": OUTCOMES, "x": case.x.tolist(),
        "z": case.z.tolist(), "alpha": case.alpha.tolist(), "lkj": priors["lkj"],
        "coefficient_scale_prior": priors["coefficient_scale"],
        "residual_scale_prior": priors["residual_scale"],
    }  # fmt: skip
    by_record = Path(__file__).parents[1] / "stan" / "fbs_records.stan"
    on_statistics = stan_directory() / case.model.stan.program
    statistics = case.model.stan.data(case.stats, priors)
    return gradient_milliseconds(by_record, records), gradient_milliseconds(
        on_statistics, statistics
    )


def gradient_milliseconds(path, data):
    """Median of the times of a gradient that Stan itself tells at the start of a run."""
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
    return float(np.median(times))


def main():
    """Prints a line a size and route."""
    routes = {"numpy": numpy_times}
    if "stan" in sys.argv[1:]:
        routes["stan"] = stan_times
    print(f"{'n':>8} {'route':>6} {'records, ms':>12} {'statistics, ms':>15} {'ratio':>7}")
    for n in SIZES:
        case = make_case("fbs", OUTCOMES, n=n, k=COLUMNS)
        for route, times in routes.items():
            records, statistics = times(case)
            ratio = records / statistics
            print(f"{n:>8,} {route:>6} {records:>12.3f} {statistics:>15.3f} {ratio:>7.1f}")


if __name__ == "__main__":
    main()
