"""A short simulation-based calibration of outcomes of several kinds, and what the long one has
written."""

import json
from dataclasses import replace

import pytest

from tests.long_runs import location_sbc, sbc


@pytest.mark.slow
def test_ranks_are_uniform_and_noise_ignored_is_rejected() -> None:
    case = replace(location_sbc.CASES["Binary"], replications=100, draws=15)
    assert sbc.smallest(location_sbc.calibrate(case, seed=91)) > 1e-4
    assert sbc.smallest(location_sbc.calibrate(case, seed=91, sampler="moments known")) < 1e-8


def test_the_long_run_is_that_of_these_cases_and_passed() -> None:
    results = json.loads(location_sbc.GOLDEN.read_text(encoding="utf-8"))["cases"]
    assert set(results) <= set(location_sbc.CASES)
    assert len(results) >= 4
    for name, result in results.items():
        case, settings = location_sbc.CASES[name], result["settings"]
        for key in ("outcomes", "records", "sigma", "count_sd", "squares_sd", "thin"):
            # A tuple is a list there.
            assert settings[key] == json.loads(json.dumps(getattr(case, key))), (name, key)
        assert settings["groups"] == list(case.groups)
        assert settings["replications"] >= 150
        assert result["smallest_p"] > sbc.LEVEL
        assert set(result["smallest_p_of_wrong_posteriors"]) == set(case.rejects)
        assert max(result["smallest_p_of_wrong_posteriors"].values()) < sbc.LEVEL
