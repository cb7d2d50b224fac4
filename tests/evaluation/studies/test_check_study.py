"""What ``check`` announces beside releases, as kept by ``python -m tests.long_runs.check_study``.

Truth: releases of real samples and of other simulated surveys; rejects a check whose records fill
the declared ranges.
"""

import json
from pathlib import Path

import numpy as np
import pytest

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "check_study.json").read_text(encoding="utf-8")
)


def quotients(announced: str, releases: str) -> dict[str, float]:
    """By case, what is announced over the median of the releases."""
    return {
        name: found[announced] / float(np.median(found[releases]))
        for name, found in GOLDEN["cases"].items()
    }


def near(quotient: dict[str, float], factor: float) -> list[str]:
    """Cases whose quotient is within a factor."""
    return [name for name, each in quotient.items() if 1.0 / factor <= each <= factor]


def test_simulated_surveys_are_announced_within_a_tenth() -> None:
    found = quotients("announced", "simulated")
    assert near({"median": float(np.median(list(found.values())))}, 1.1)


def test_real_samples_are_announced_within_a_factor() -> None:
    """In three files at least, most cases, and never as the ranges would say."""
    found = quotients("announced", "real")
    files = {name.split(",")[0] for name in near(found, 1.3)}
    assert len(files) >= 3


@pytest.mark.parametrize("releases", ["simulated", "real"])
def test_records_that_fill_ranges_are_told(releases: str) -> None:
    """Without declared constants they hide the noise."""
    alone = {n: q for n, q in quotients("filled", releases).items() if n.endswith("range alone")}
    assert float(np.median(list(alone.values()))) < 0.9
