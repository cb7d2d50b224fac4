"""A covariance by group over one for all, under noise: ``python -m tests.benchmarks.groups``.

Processor seconds of ``ss.tables`` by noisy statistics of the example survey, with the residual
spread by field and gender and with one for all, in turn and several times in one process: ratios of
one sitting, since a shared machine is never quiet. Results go to ``groups.json``. Not a test.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import surveysynth as ss

RESULTS = Path(__file__).with_suffix(".json")
BY = {"one covariance": [], "by field and gender": ["field", "gender"]}


def seconds(n: int, epsilon: float, by: list[str], seed: int) -> float:
    """Processor seconds of one release in memory."""
    survey = ss.example_survey(n=n)
    begin = time.process_time()
    ss.tables(
        survey,
        epsilon=epsilon,
        options={"covariance_by": by},
        outcomes={"salary": {"center": 80_000, "spread": 0.5}},
        mechanism="noisy_statistics",
        seed=seed,
    )
    return time.process_time() - begin


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="*", default=[2_000, 10_355])
    parser.add_argument("--epsilon", type=float, default=3.6)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for n in arguments.n:
        found: dict[str, list[float]] = {name: [] for name in BY}
        for seed in range(arguments.repeats):
            for name, by in BY.items():
                found[name].append(seconds(n, arguments.epsilon, by, seed + 1))
        one, grouped = (median(found[name]) for name in BY)
        rows.append(
            {"n": n, "epsilon": arguments.epsilon, "seconds": found, "ratio": grouped / one}
        )
        print(f"n = {n:,}: {one:.1f} s and {grouped:.1f} s, ratio {grouped / one:.2f}", flush=True)
        RESULTS.write_text(json.dumps({"releases": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
