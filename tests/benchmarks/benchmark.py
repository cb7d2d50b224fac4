"""Speed and memory of the main jobs: ``python tests/benchmarks/benchmark.py``.

Prints seconds (wall and processor) and, for comparisons, ratios measured in one run. Not a test:
machines are shared and noisy. One BLAS thread, as in production.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402


def timed(work: Callable[[], object], repeats: int = 1) -> tuple[float, float]:
    """Smallest wall and processor seconds of ``repeats`` runs."""
    best = (np.inf, np.inf)
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        spent = (time.perf_counter() - wall, time.process_time() - processor)
        best = min(best, spent, key=lambda pair: pair[1])
    return best


def row(what: str, wall: float, processor: float, note: str = "") -> None:
    print(f"{what:<58} {wall:8.2f} s  {processor:8.2f} s cpu  {note}", flush=True)


def example_survey(n: int):
    from surveysynth.api.start import simulate_survey
    from surveysynth.survey.survey import Survey

    return Survey.from_frame(
        simulate_survey(n, np.random.default_rng(1)), outcome="salary", weight="weight",
        by=["field", "gender"], strata="field", predictors="field + gender",
        population_size=100_000,
    )  # fmt: skip


def fits() -> None:
    """4 chains x (250 + 250) at n = 1,000, K = 9."""
    from surveysynth.models import get_model
    from surveysynth.sampling.plan import SamplingPlan

    survey = example_survey(1000)
    for name in ("fbs", "fbp"):
        model = get_model(name)
        records = model.records(survey.design, survey.confidential)
        stats = model.compress(records, np.ones(1000))

        def work(model=model, stats=stats) -> object:
            return model.sample(stats, SamplingPlan(), np.random.default_rng(1))

        row(f"{name}: 4 x (250 + 250) draws, n = 1,000, K = 9", *timed(work, 5))


def whole_release(n: int) -> None:
    """``surveysynth release`` in a process of its own, imports included."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "surveysynth"]
        spec, out = Path(folder) / "ex" / "spec.toml", Path(folder) / "out"
        subprocess.run([*run, "example", str(spec.parent), "--n", str(n)], check=True, **QUIET)
        text = spec.read_text(encoding="utf-8")
        size = f"population_size = {max(100_000, 10 * n)}"
        spec.write_text(text.replace("population_size = 100000", size), encoding="utf-8")
        wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*run, "release", str(spec), "--out", str(out)], check=True, **QUIET)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        row(
            f"release: n = {n:,}, epsilon 10.8, m = 3, S = 1,000",
            time.perf_counter() - wall, processor, f"peak {after.ru_maxrss / 2**20:.2f} GB",
        )  # fmt: skip


def lipschitz_memory(n: int) -> None:
    """The streamed pass over n records x 1,000 draws (run as a process of its own)."""
    from surveysynth.mechanisms.pseudo_posterior.fit import likelihood_extremes
    from surveysynth.models import get_model
    from surveysynth.models.gaussian.model import GaussianRecords
    from surveysynth.sampling.plan import SamplingPlan

    rng = np.random.default_rng(1)
    x_cells = np.column_stack([np.ones(16), rng.integers(0, 2, (16, 8))]).astype(float)
    cell = rng.integers(0, 16, n)
    records = GaussianRecords(x_cells, cell, rng.standard_normal((n, 2)))
    model = get_model("fbs")
    theta = model.sample(model.compress(records, np.ones(n)), SamplingPlan(), rng)
    flat = {name: values.reshape(-1, *values.shape[3:]) for name, values in theta.items()}
    wall, processor = timed(lambda: likelihood_extremes(model.log_lik_blocks(flat, records), n))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row(f"bounds of {n:,} records x 1,000 draws", wall, processor, f"peak {peak:.2f} GB")


def lipschitz_ratio(n: int = 10_000) -> None:
    """Streamed bounds against the matrix S x n at once."""
    from surveysynth.mechanisms.pseudo_posterior.fit import likelihood_extremes
    from surveysynth.models import get_model
    from surveysynth.sampling.plan import SamplingPlan

    survey = example_survey(n)
    model = get_model("fbs")
    records = model.records(survey.design, survey.confidential)
    theta = model.sample(
        model.compress(records, np.ones(n)), SamplingPlan(), np.random.default_rng(1)
    )
    flat = {name: values.reshape(-1, *values.shape[3:]) for name, values in theta.items()}
    x = records.x_cells[records.cell]

    def plain() -> object:
        inverse = np.linalg.inv(flat["covariance"])
        log_det = np.linalg.slogdet(flat["covariance"])[1]
        residual = records.z - np.einsum("nk,skq->snq", x, flat["beta"])
        squares = np.einsum("snq,sqr,snr->sn", residual, inverse, residual, optimize=True)
        log_lik = -0.5 * (squares + log_det[:, None]) - np.log(2 * np.pi)
        return log_lik.min(axis=0), log_lik.max(axis=0)

    streamed = timed(lambda: likelihood_extremes(model.log_lik_blocks(flat, records), n), 3)
    whole = timed(plain, 2)
    row(f"bounds, n = {n:,}: streamed by cells of X", *streamed)
    row(f"bounds, n = {n:,}: S x n at once", *whole, f"ratio {whole[1] / streamed[1]:.1f}")


def clustered_records(n: int, psus: int, effects: bool):
    """Records of a two-stage survey on the scale of FBS: 10 strata, half a PSU in each group."""
    from surveysynth.models.gaussian.model import GaussianRecords

    rng = np.random.default_rng(2)
    x_cells = np.zeros((20, 11))
    x_cells[:, 0] = 1.0
    x_cells[np.arange(20), np.arange(20) // 2] = 1.0
    x_cells[1::2, 10] = 1.0
    psu = np.arange(n) * psus // n
    cell = psu * 10 // psus * 2 + rng.integers(0, 2, n)
    z = 0.14 * rng.standard_normal((psus, 2))[psu] + 0.4 * rng.standard_normal((n, 2))
    return GaussianRecords(x_cells, cell, z - [0.0, 0.5] * z[:, :1], psu if effects else None)


def clusters(n: int = 10_000, psus: int = 100) -> None:
    """The mechanism at epsilon 10.8, m = 3 with effects of PSUs and without, run by turns."""
    from surveysynth.mechanisms.pseudo_posterior.fit import Database
    from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
    from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
    from surveysynth.models import get_model

    for name in ("fbs", "fbp"):
        model, spent, fits_made = get_model(name), {}, {}
        if not model.clustered:
            continue
        for repeat in range(3):
            for effects in (False, True):
                database = Database(clustered_records(n, psus, effects), n)
                settings = MechanismSettings(epsilon=10.8, m=3)

                def work(database=database, settings=settings, effects=effects, repeat=repeat):
                    rng = np.random.default_rng(repeat)
                    (result,) = run_batch(model, [database], settings, rng)  # noqa: B023
                    fits_made.setdefault(effects, []).append(len(result[1].search))  # noqa: B023

                spent.setdefault(effects, []).append(timed(work))
        for effects, times in spent.items():
            wall, processor = np.sum(times, axis=0) / len(times)
            note = f"{np.mean(fits_made[effects]):.1f} fits"
            if effects:
                ratios = np.array(spent[True])[:, 1] / np.array(spent[False])[:, 1]
                note += f", ratio {np.median(ratios):.2f} (pairs: {np.round(ratios, 2)})"
            what = f"{psus} PSUs" if effects else "no PSUs"
            row(f"{name}: mechanism, n = {n:,}, {what}", wall, processor, note)


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lipschitz-memory", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--clusters", action="store_true", help="the runs with PSUs alone")
    parser.add_argument("--large", type=int, default=1_000_000, help="records of the memory runs")
    arguments = parser.parse_args()
    if arguments.lipschitz_memory:
        lipschitz_memory(arguments.lipschitz_memory)
        return
    if arguments.clusters:
        clusters()
        return
    # Processes first: a child's peak counts what its parent held when it was started.
    for n in (10_000, arguments.large):
        own = [sys.executable, __file__, "--lipschitz-memory", str(n)]
        subprocess.run(own, check=True)
    whole_release(10_355)
    whole_release(arguments.large)
    fits()
    clusters()
    lipschitz_ratio()


if __name__ == "__main__":
    main()
