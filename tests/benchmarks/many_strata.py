"""Categories and counts in many strata: ``python -m tests.benchmarks.many_strata``.

Two simulated surveys of the shape of public files, released and checked by default settings:
voters (7,500 in 50 strata, trust in five levels and vote in three, answers missing, 10 cells) and
visits to physicians (8,000 in 59 strata, a count and a reason of seven, 12 cells). Processor
seconds and peak memory in processes of their own go to ``many_strata.json``. Not a test.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import surveysynth as ss
from tests.benchmarks.kinds import written
from tests.benchmarks.releases import measured
from tests.long_runs.real_files import commit_of

RESULTS = Path(__file__).with_suffix(".json")
EPSILON = {"voters": 10.8, "visits": 3.6}


def voters(folder: Path, n: int = 7_500) -> Path:
    """Write an election study and its specification."""
    rng = np.random.default_rng(11)
    stratum, education, sex = (rng.integers(k, size=n) for k in (50, 5, 2))
    cause = rng.standard_normal(n) + 0.3 * rng.standard_normal(50)[stratum] + 0.2 * education
    trust = np.digitize(cause + rng.standard_normal(n), [-1.0, 0.0, 1.0, 2.0])
    vote = np.digitize(0.5 * cause + rng.standard_normal(n), [-0.3, 0.6])
    records = pd.DataFrame({
        "stratum": [f"s{k:02}" for k in stratum], "education": [f"e{k}" for k in education],
        "sex": np.where(sex, "f", "m"), "trust": [f"t{k}" for k in trust],
        "vote": [f"v{k}" for k in vote],
        "weight": np.exp(7.0 + 0.8 * rng.standard_normal(n) + 0.1 * cause),
    })  # fmt: skip
    for name, share in (("trust", 0.12), ("vote", 0.25)):
        records.loc[rng.random(n) < share, name] = None
    declared = {
        "trust": 'kind = "categorical"\nlevels = ["t0", "t1", "t2", "t3", "t4"]',
        "vote": 'kind = "categorical"\nlevels = ["v0", "v1", "v2"]',
    }
    return written(
        folder, records, declared,
        survey=['strata = "stratum"', 'missing = "model"', "population_size = 230000000"],
        privacy=['mechanism = "noisy_statistics"', f"epsilon = {EPSILON['voters']}"],
        by=["sex", "education"], statistics=["count", "share"],
    )  # fmt: skip


def visits(folder: Path, n: int = 8_000) -> Path:
    """Write a survey of visits and its specification."""
    rng = np.random.default_rng(12)
    stratum, age, sex = (rng.integers(k, size=n) for k in (59, 6, 2))
    cause = rng.standard_normal(n) + 0.3 * rng.standard_normal(59)[stratum] + 0.2 * age
    drugs = np.minimum(rng.poisson(np.exp(0.5 + 0.4 * cause)), 30)
    reason = np.digitize(cause + rng.logistic(size=n), [-2.5, -1.5, -0.5, 0.5, 1.5, 3.5])
    records = pd.DataFrame({
        "stratum": [f"s{k:02}" for k in stratum], "age": [f"a{k}" for k in age],
        "sex": np.where(sex, "f", "m"), "drugs": drugs, "reason": [f"r{k}" for k in reason],
        "weight": np.exp(11.0 + 1.2 * rng.standard_normal(n) + 0.1 * cause),
    })  # fmt: skip
    levels = json.dumps([f"r{k}" for k in range(7)])
    declared = {
        "drugs": 'kind = "count"\nrange = [0, 30]',
        "reason": f'kind = "categorical"\nlevels = {levels}',
    }
    return written(
        folder, records, declared, survey=['strata = "stratum"', "population_size = 990000000"],
        privacy=['mechanism = "noisy_statistics"', f"epsilon = {EPSILON['visits']}"],
        by=["age", "sex"], statistics=["count", "mean", "share"],
    )  # fmt: skip


SURVEYS = {"voters": voters, "visits": visits}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = list[dict[str, Any]]()
    commit = commit_of(Path(ss.__file__).parent)
    for name, write in SURVEYS.items():
        with tempfile.TemporaryDirectory() as folder:
            spec = write(Path(folder))
            for command in ("release", "check"):
                out = ["--out", str(Path(folder) / "out")] * (command == "release")
                row = {"survey": name, "command": command, "commit": commit}
                row |= measured([command, str(spec), *out])
                if given.against:
                    shutil.rmtree(Path(folder) / "out", ignore_errors=True)
                    before = measured([command, str(spec), *out], given.against)
                    row["against"] = {"commit": commit_of(given.against), **before}
                print(row, flush=True)
                found.append(row)
                lines = ",\n ".join(json.dumps(each) for each in found)
                given.out.write_text(f"[\n {lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
