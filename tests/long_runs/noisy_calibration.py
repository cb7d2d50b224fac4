"""What calibrations under noise share: batches of ranks, verdicts on cases, the command line."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth._support.types import Theta
from tests.long_runs import sbc

#: Databases at once.
BATCH = 250
#: Smallest p-value of a sound sampler, which wrong ones must pass.
LEVEL = 1e-5


def ranks_of(values: Theta, true: Theta) -> dict[str, Any]:
    """Ranks (count,) of each true quantity (count, 1, d) among its draws (count, draws, d)."""
    return {
        f"{name}[{j}]": (own[..., j] < true[name][..., j]).sum(axis=1)
        for name, own in values.items() for j in range(own.shape[-1])
    }  # fmt: skip


def uniformity(
    ranks: Callable[[int, np.random.Generator], dict[str, Any]], case: Any, seed: int
) -> dict[str, Any]:
    """Uniformity by parameter of ranks, which come in batches of some databases."""
    rng = np.random.default_rng(seed)
    parts = [
        ranks(min(BATCH, case.replications - begin), rng)
        for begin in range(0, case.replications, BATCH)
    ]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {name: sbc.uniformity(each, case.draws) for name, each in joined.items()}


def run(case: Any, seed: int, calibrate: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """One case as written to the golden file."""
    sound = calibrate(case, seed)
    wrong = {name: sbc.smallest(calibrate(case, seed, name)) for name in case.rejects}
    return {
        "settings": {**asdict(case), "seed": seed},
        "smallest_p": sbc.smallest(sound),
        "tests": 2 * len(sound),
        "uniform": sbc.smallest(sound) > LEVEL,
        "smallest_p_of_wrong_posteriors": wrong,
        "rejects_wrong_posteriors": max(wrong.values(), default=0.0) < LEVEL,
        "parameters": sound,
    }


def main(
    description: str,
    cases: Mapping[str, Any],
    calibrate: Callable[..., dict[str, Any]],
    golden: Path,
) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=golden)
    parser.add_argument("--case", action="append", choices=list(cases))
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    if arguments.case and arguments.out.exists():
        found = json.loads(arguments.out.read_text(encoding="utf-8"))["cases"]
    for offset, (name, case) in enumerate(cases.items()):
        if not arguments.case or name in arguments.case:
            found[name] = run(case, arguments.seed + offset, calibrate)
            row = found[name]
            print(
                f"{name:30s} {row['tests']} tests: smallest p {row['smallest_p']:.3g}; wrong: "
                f"{row['smallest_p_of_wrong_posteriors']}", flush=True
            )  # fmt: skip
            ordered = {each: found[each] for each in cases if each in found}
            text = json.dumps({"cases": ordered}, indent=1) + "\n"
            arguments.out.write_text(text, encoding="utf-8")
    failed = [
        name for name, row in found.items()
        if not (row["uniform"] and row["rejects_wrong_posteriors"])
    ]  # fmt: skip
    if failed:
        raise SystemExit(f"Not as it should be: {', '.join(failed)}")
