"""A short simulation-based calibration of noisy statistics, and what the long one has written."""

import json
from dataclasses import replace

import pytest

from tests.long_runs import noisy_sbc, sbc


@pytest.mark.slow
@pytest.mark.parametrize("name", list(noisy_sbc.CASES))
def test_ranks_are_uniform(name: str) -> None:
    case = replace(noisy_sbc.CASES[name], replications=150)
    assert sbc.smallest(noisy_sbc.calibrate(case, seed=90)) > 1e-4


def test_ranks_are_uniform_and_noise_ignored_is_rejected() -> None:
    case = replace(
        noisy_sbc.CASES["FBS, one outcome"], replications=100, draws=15, thin=6, warmup=60
    )
    assert sbc.smallest(noisy_sbc.calibrate(case, seed=91)) > 1e-4
    assert sbc.smallest(noisy_sbc.calibrate(case, seed=91, sampler="no noise")) < 1e-8


def test_the_long_run_is_that_of_these_cases_and_passed() -> None:
    results = json.loads(noisy_sbc.GOLDEN.read_text(encoding="utf-8"))["cases"]
    assert set(results) <= set(noisy_sbc.CASES)
    assert len(results) >= 4
    for name, result in results.items():
        case, settings = noisy_sbc.CASES[name], result["settings"]
        for key in ("model", "n", "columns", "psus", "sigma", "squares_sd", "replications", "thin"):
            assert settings[key] == getattr(case, key), (name, key)
        assert result["smallest_p"] > sbc.LEVEL
        assert set(result["smallest_p_of_wrong_posteriors"]) == set(case.rejects)
        assert max(result["smallest_p_of_wrong_posteriors"].values()) < sbc.LEVEL
