"""A short simulation-based calibration of each case of ``python -m tests.long_runs.sbc``, and
what the long one has written."""

import json
from dataclasses import replace

import pytest

from tests.long_runs import sbc

#: A fraction of the long run: fewer databases, fewer and closer draws.
SHORT = {name: replace(case, replications=150, draws=31) for name, case in sbc.CASES.items()}
LEVEL = 1e-4


@pytest.mark.parametrize("name", ["FBS, one outcome", "FBP", "FBP, narrow priors"])
def test_ranks_are_uniform_and_a_wrong_sigma_is_rejected(name: str) -> None:
    sound, wrong = sbc.calibrate(replace(SHORT[name], thin=10), seed=90)
    for parameter, row in sound.items():
        assert min(row["chi_square_p"], row["ks_p"]) > LEVEL, parameter
    for j in range(2):
        assert wrong[f"residual_sd[{j}]"]["ks_p"] < 1e-8


def test_ranks_are_uniform_for_two_outcomes() -> None:
    sound, wrong = sbc.calibrate(replace(SHORT["FBS, two outcomes"], thin=10), seed=91)
    assert sum(name.startswith("coefficient_scale") for name in sound) == 9
    assert sum("correlation" in name for name in sound) == 6
    assert sbc.smallest(sound) > LEVEL
    assert sbc.smallest(wrong) < 1e-8


@pytest.mark.parametrize("name", ["FBS, four records", "FBP, four records"])
def test_ranks_are_uniform_with_four_records(name: str) -> None:
    sound, _ = sbc.calibrate(replace(SHORT[name], thin=15), seed=92)
    assert sbc.smallest(sound) > LEVEL


@pytest.mark.parametrize("name", ["FBS, shrunken", "FBP, shrunken"])
def test_ranks_are_uniform_with_shrunken_columns_and_a_wide_ridge_is_rejected(name: str) -> None:
    sound, wrong = sbc.calibrate(replace(SHORT[name], replications=250, thin=10), seed=96)
    assert sbc.smallest(sound) > LEVEL
    assert sbc.smallest(wrong) < 1e-5


def test_ranks_are_uniform_for_counts() -> None:
    case = replace(SHORT["Negative binomial"], thin=10)
    sound, wrong = sbc.calibrate(case, seed=93)
    assert {"overdispersion[0]", "log_likelihood[0]", "beta[2]"} < sound.keys()
    assert sbc.smallest(sound) > LEVEL
    assert wrong["log_likelihood[0]"]["ks_p"] < 1e-4


def test_the_long_run_is_that_of_these_cases_and_passed() -> None:
    golden = json.loads(sbc.GOLDEN.read_text(encoding="utf-8"))
    assert list(golden["cases"]) == list(sbc.CASES)
    for name, case in sbc.CASES.items():
        result = golden["cases"][name]
        settings = result["settings"]
        assert settings["priors"] == dict(case.priors)
        for key in ("model", "outcomes", "n", "columns", "replications", "draws", "thin"):
            assert settings.get(key, 0) == getattr(case, key), (name, key)
        assert result["smallest_p"] > sbc.LEVEL
        assert result["rejects_the_wrong_sampler"]
        for row in result["parameters"].values():
            assert sum(row["counts"]) == case.replications
