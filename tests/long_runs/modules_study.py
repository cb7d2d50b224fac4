"""Twelve outcomes of four kinds in three modules, one release: ``python -m
tests.long_runs.modules_study run DIR``.

Samples of a simulated population by region and sex, in which all outcomes and the chance of being
drawn hang together by a common cause, so that modules are independent in no cell. What intervals of
counts, means, medians and shares cover, and the processor time and memory of one release of 6,000
records, in ``tests/golden/modules_study.json``. A run that was broken off continues where it was.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.release.documents.context import library_versions  # noqa: E402
from surveysynth.release.pipeline import release  # noqa: E402
from tests.long_runs.real_populations.__main__ import page, records  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "modules_study.json"
SEED, UNITS, RECORDS, EPSILON = 71, 60_000, 2_000, 10.8
LEVELS = ["a", "b", "c"]
KINDS = ("amount", "spiked", "yes", "level")
MODULES = [[f"{kind}_{k}" for kind in KINDS] for k in range(3)]


def population(units: int = UNITS) -> pd.DataFrame:
    """Three outcomes of every kind, and a measure of size, that follow a common cause."""
    rng = np.random.default_rng(SEED)
    frame = pd.DataFrame({
        "region": rng.choice(["east", "north", "south", "west"], units),
        "sex": rng.choice(["f", "m"], units),
    })  # fmt: skip
    cause = rng.standard_normal(units) + 0.3 * (frame["sex"] == "f")
    for k in range(3):
        log = 7.0 + 0.4 * cause + 0.5 * rng.standard_normal(units)
        frame[f"amount_{k}"] = np.exp(log + 0.1 * k * (frame["region"] == "east"))
        some = rng.random(units) < 1 / (1 + np.exp(-0.5 - 0.5 * cause))
        frame[f"spiked_{k}"] = some * np.exp(log + 0.6 * rng.standard_normal(units))
        chance = 1 / (1 + np.exp(0.4 * cause - k / 2))
        frame[f"yes_{k}"] = (rng.random(units) < chance).astype(int)
        utility = rng.gumbel(size=(units, 3)) + np.outer(cause, [0.0, 0.3, -0.3])
        frame[f"level_{k}"] = np.array(LEVELS)[np.argmax(utility, axis=1)]
    # Units with a large cause are drawn less often, and have larger weights.
    frame["size"] = np.exp(-0.3 * cause + 0.2 * rng.standard_normal(units))
    return frame


def specification(data: str) -> dict[str, Any]:
    """Sections of the specification: public ranges and levels, all else by default."""
    outcomes: dict[str, Any] = {}
    for k in range(3):
        outcomes[f"amount_{k}"] = {"range": [0, 100_000]}
        outcomes[f"spiked_{k}"] = {
            "kind": "semicontinuous", "spikes": [0], "range": [0, 200_000]
        }
        outcomes[f"yes_{k}"] = {"kind": "binary"}
        outcomes[f"level_{k}"] = {"kind": "categorical", "levels": LEVELS}
    return {
        "survey": {"data": data, "weight": "weight", "population_size": UNITS},
        "synthesizer": {"model": "fbs"},
        "privacy": {"mechanism": "noisy_statistics", "epsilon": EPSILON, "modules": MODULES},
        "tables": {"by": ["region", "sex"], "statistics": ["count", "mean", "median", "share"]},
        "outcomes": outcomes,
    }


def coverage(folder: Path, samples: int, workers: int) -> dict[str, Any]:
    """What intervals cover in repeated samples."""
    frame = folder / "population.csv"
    population().to_csv(frame, index=False)
    result = ss.coverage(
        frame, specification("sample.csv"), samples=samples, seed=SEED, size="size",
        design="pps_wr", n=RECORDS, out=folder / f"modules_{samples}", resume=True,
        workers=workers,
        progress=lambda line, k, total: print(f"{k}/{total} {line}", flush=True),
    )  # fmt: skip
    return {
        "mechanism": "noisy_statistics", "epsilon": EPSILON, "samples": samples, "seed": SEED,
        "units": UNITS, "records": RECORDS, "refused": len(result.refusals),
        "failed": len(result.failed), "tables": records(result.summary),
        "by_size": records(result.by_size), "versions": library_versions(),
    }  # fmt: skip


def cost(n: int = 6_000) -> dict[str, float]:
    """Processor seconds and memory of one release of n records, tables and files included."""
    rng = np.random.default_rng(SEED)
    whole = population()
    drawn = whole.iloc[rng.choice(len(whole), n, replace=False)].assign(weight=UNITS / n)
    drawn["weight"] *= np.exp(0.3 * rng.standard_normal(n))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drawn.drop(columns="size").to_csv(folder / "sample.csv", index=False)
        (folder / "spec.toml").write_text(toml(specification("sample.csv")), encoding="utf-8")
        start = time.process_time()
        release(folder / "spec.toml", folder / "out", seed=SEED)
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"n": n, "seconds": round(seconds, 1), "peak_memory_mb": round(peak)}


def toml(sections: Mapping[str, Any], above: str = "") -> str:
    """Write sections as a file; numbers, words and lists of JSON are those of TOML."""
    lines = []
    for name, section in sections.items():
        inner = {key: each for key, each in section.items() if isinstance(each, dict)}
        lines.append(f"[{above}{name}]")
        lines += [f"{key} = {json.dumps(each)}" for key, each in section.items()
                  if key not in inner]  # fmt: skip
        lines.append(toml(inner, f"{above}{name}."))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "cost", "page"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args(arguments)
    found = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    if given.what == "run":
        if given.folder is None:
            parser.error("name a folder for samples")
        given.folder.mkdir(parents=True, exist_ok=True)
        found["coverage"] = coverage(given.folder, given.samples, given.workers)
    if given.what == "cost":
        found["cost"] = cost()
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if "coverage" in found:
        print("\n".join(page({"simulated": {"noisy_10.8": found["coverage"]}})))
    print(found.get("cost", ""))


if __name__ == "__main__":
    main()
