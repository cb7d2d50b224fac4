"""Releases of one outcome of each kind, and of four together: ``python -m tests.benchmarks.kinds``.

Simulated records in 16 cells of two by columns, epsilon 10.8, by both mechanisms: processor seconds
of ``surveysynth release`` in a process of its own, and peak memory. With ``--units`` records lie in
units that have effects; four together are by noisy statistics alone. Results go to ``kinds.json``;
the chains that noise calls for, and so its seconds, differ from release to release. Not a test.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.benchmarks.releases import MECHANISMS, measured

RESULTS = Path(__file__).with_suffix(".json")
OUTCOMES = {
    "pay": 'transform = "log"\ncenter = 22000\nspread = 0.7',
    "income": 'kind = "semicontinuous"\nspikes = [0]\ntransform = "log"\ncenter = 22000\n'
              "spread = 0.8",
    "works": 'kind = "binary"\nlevels = [0, 1]',
    "health": 'kind = "categorical"\nlevels = ["1", "2", "3", "4"]',
    "rooms": 'kind = "count"\nrange = [0, 20]',
}  # fmt: skip
#: Numbers of records and outcomes.
CASES = [
    *((10_000, (name,)) for name in OUTCOMES), (20_000, ("income", "works", "health", "rooms")),
]  # fmt: skip
UNITS = 100


def frame(n: int, seed: int = 7) -> pd.DataFrame:
    """Records whose outcomes and weight hang together by a common cause, partly of units."""
    rng = np.random.default_rng(seed)
    region, age = rng.choice(list("abcd"), n), rng.choice(list("wxyz"), n)
    unit = rng.integers(UNITS // 4, size=n)
    label = [f"{a}{b:02}" for a, b in zip(region, unit, strict=True)]
    effect = 0.2 * rng.standard_normal((4, UNITS // 4))
    cause = rng.standard_normal(n) + effect[np.searchsorted(list("abcd"), region), unit]
    cause += 0.3 * (region == "a") + 0.2 * (age == "w")
    income = np.exp(10.0 + 0.7 * cause + 0.4 * rng.standard_normal(n)).round(2)
    level = np.clip(np.floor(1.5 + cause + rng.standard_normal(n)), 0, 3).astype(int)
    return pd.DataFrame({
        "region": region, "age": age, "unit": label,
        "pay": np.exp(10.0 + 0.5 * cause + 0.4 * rng.standard_normal(n)).round(2),
        "income": np.where(rng.random(n) < 0.1, 0.0, income),
        "works": (rng.random(n) < 1.0 / (1.0 + np.exp(-cause))).astype(int),
        "health": (level + 1).astype(str),
        "rooms": np.clip(rng.poisson(3.0 * np.exp(0.2 * cause)), 0, 15),
        "weight": np.exp(3.0 + 0.4 * rng.standard_normal(n) + 0.1 * cause),
    })  # fmt: skip


def specification(
    folder: Path, n: int, outcomes: tuple[str, ...], mechanism: str, units: bool
) -> Path:
    """A survey with these outcomes, and what a statistician would declare."""
    statistics = ["count"]
    statistics += ["mean"] if {"pay", "income", "rooms"} & set(outcomes) else []
    statistics += ["share"] if {"income", "works", "health"} & set(outcomes) else []
    clusters = ['psu = "unit"'] if units else []
    return written(
        folder, frame(n), {name: OUTCOMES[name] for name in outcomes},
        survey=['strata = "region"', *clusters, f"population_size = {30 * n}"],
        privacy=[f'mechanism = "{mechanism}"', "epsilon = 10.8"],
        by=["region", "age"], statistics=statistics,
    )  # fmt: skip


def written(
    folder: Path, records: pd.DataFrame, outcomes: Mapping[str, str], *,
    survey: Sequence[str], privacy: Sequence[str], by: Sequence[str], statistics: Sequence[str],
) -> Path:  # fmt: skip
    """Write records and their specification: lines of sections, and of each outcome."""
    records.to_csv(folder / "survey.csv", index=False)
    declared = [f"[outcomes.{name}]\n{lines}" for name, lines in outcomes.items()]
    lines = [
        "spec_version = 1",
        "[survey]", 'data = "survey.csv"', 'weight = "weight"', *survey,
        "[synthesizer]", 'model = "fbs"', f"outcome = {json.dumps(list(outcomes))}", *declared,
        "[privacy]", *privacy,
        "[tables]", f"by = {json.dumps(by)}", f"statistics = {json.dumps(statistics)}",
    ]  # fmt: skip
    path = folder / "spec.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(n: int, outcomes: tuple[str, ...], mechanism: str, units: bool) -> dict[str, Any]:
    """One release, as written to the results."""
    with tempfile.TemporaryDirectory() as name:
        spec = specification(Path(name), n, outcomes, mechanism, units)
        spent = measured(["release", str(spec), "--out", str(Path(name) / "out")])
    return {"n": n, "outcomes": list(outcomes), "mechanism": mechanism, "units": units, **spent}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mechanism", action="append", choices=MECHANISMS)
    parser.add_argument("--units", action="store_true")
    arguments = parser.parse_args()
    mechanisms = arguments.mechanism or MECHANISMS
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    for mechanism in mechanisms:
        for n, outcomes in CASES:
            if arguments.units and mechanism == "pseudo_posterior" and len(outcomes) > 1:
                continue  # a quarter of an hour
            row = run(n, outcomes, mechanism, arguments.units)
            print(row, flush=True)
            key = ("n", "outcomes", "mechanism", "units")
            found = [each for each in found if any(each[name] != row[name] for name in key)]
            found.append(row)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
