"""A short simulation-based calibration of the general location model, and what the long one
(``python -m tests.long_runs.general_sbc``) has written."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.long_runs import general_sbc
from tests.long_runs.sbc import LEVEL, smallest

SHORT = {
    name: replace(case, replications=150, draws=31, thin=5, warmup=80)
    for name, case in general_sbc.CASES.items()
}


@pytest.mark.parametrize(
    "name",
    [
        "semicontinuous, fractional weights",
        "categorical and semicontinuous",
        "interactions",
        "interactions, cells",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "semicontinuous, groups", "categorical", "two sides, groups",
                "semicontinuous, clusters", "categorical, clusters, fractional weights",
            )
        ),
    ],
)
def test_ranks_are_uniform_and_wrong_samplers_are_rejected(name: str) -> None:
    sound, scaled, wrong = general_sbc.calibrate(SHORT[name], seed=61)
    for parameter, row in sound.items():
        assert min(row["chi_square_p"], row["ks_p"]) > LEVEL, parameter
    one = scaled["variance_weight[0]"]["ks_p"]
    # With PSUs it is the SDs of their effects that are scaled.
    assert (smallest(scaled) if general_sbc.CASES[name].psus else one) < 1e-8
    assert smallest(wrong) < 1e-8


def test_records_in_fractional_parts_have_the_statistics_of_whole_ones() -> None:
    case = general_sbc.CASES["semicontinuous"]
    rng = np.random.default_rng(2)
    data = general_sbc.databases(case, general_sbc.prior(case, 3, rng), rng)
    whole, split = (
        general_sbc.statistics(replace(case, split=parts), data, case.model)
        for parts in (False, True)
    )
    assert whole.rows is not None
    assert split.rows is not None
    np.testing.assert_allclose(whole.rows.total, split.rows.total)
    for one, other in zip(
        (whole.rows.x, whole.rows.z), (split.rows.x, split.rows.z), strict=True
    ):
        for database in range(3):
            first, second = one[database, 0], other[database, 0]
            np.testing.assert_allclose(first.T @ first, second.T @ second, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(whole.logits[0].counts, split.logits[0].counts)


def test_the_long_run_is_that_of_these_cases_and_passed() -> None:
    golden = json.loads(general_sbc.GOLDEN.read_text(encoding="utf-8"))
    assert list(golden["cases"]) == list(general_sbc.CASES)
    assert not general_sbc.failures(golden)
    for name, case in general_sbc.CASES.items():
        settings = golden["cases"][name]["settings"]
        assert case.replications >= 250
        for key in ("outcomes", "wrong", "n", "split", "replications", "draws", "thin"):
            assert settings[key] == getattr(case, key), (name, key)
        assert settings["priors"] == dict(case.priors)
        for row in golden["cases"][name]["parameters"].values():
            assert sum(row["counts"]) == case.replications
