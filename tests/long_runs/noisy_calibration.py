"""What calibrations under noise share: verdicts on cases, and the command line."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.long_runs import sbc


def run(case: Any, seed: int, calibrate: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """One case as written to the golden file."""
    sound = calibrate(case, seed)
    wrong = {name: sbc.smallest(calibrate(case, seed, name)) for name in case.rejects}
    return {
        "settings": {**asdict(case), "seed": seed},
        "smallest_p": sbc.smallest(sound),
        "tests": 2 * len(sound),
        "uniform": sbc.smallest(sound) > sbc.LEVEL,
        "smallest_p_of_wrong_posteriors": wrong,
        "rejects_wrong_posteriors": max(wrong.values(), default=0.0) < sbc.LEVEL,
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
