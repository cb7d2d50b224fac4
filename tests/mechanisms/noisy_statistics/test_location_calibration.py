"""A short simulation-based calibration of posteriors under noise, and what the long one has
written."""

import json
from dataclasses import replace

import pytest

from tests.long_runs import location_sbc, sbc


@pytest.mark.slow
def test_ranks_are_uniform_and_sums_taken_for_known_are_rejected() -> None:
    case = replace(location_sbc.CASES["Few records"], replications=128)
    assert sbc.smallest(location_sbc.calibrate(case, seed=91)) > 1e-4
    wrong = location_sbc.calibrate(case, seed=91, law=location_sbc.SUMS_KNOWN)
    assert sbc.smallest(wrong) < 1e-5


def test_the_long_run_is_that_of_these_cases_and_passed() -> None:
    results = json.loads(location_sbc.GOLDEN.read_text(encoding="utf-8"))["cases"]
    assert set(results) == set(location_sbc.CASES)
    for name, result in results.items():
        case, settings = location_sbc.CASES[name], result["settings"]
        for key in ("outcomes", "groups", "records", "sigma", "count_sd", "squares_sd", "priors"):
            # A tuple is a list there.
            assert settings[key] == json.loads(json.dumps(getattr(case, key))), (name, key)
        assert settings["replications"] == case.replications
        assert result["smallest_p"] > sbc.LEVEL
        assert set(result["smallest_p_of_wrong_laws"]) == set(case.rejects)
        assert max(result["smallest_p_of_wrong_laws"].values(), default=0.0) < sbc.LEVEL
