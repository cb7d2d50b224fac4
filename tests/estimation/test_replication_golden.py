"""Replication against R's survey package (tests/golden/replication_survey.R wrote the figures)."""

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.replication import (
    ReplicateWeights,
    agency_replicates,
    preston_multipliers,
)
from tests.estimation.replicates import jackknife, replicated
from tests.estimation.test_taylor_golden import FRAME, GOLDEN, LEVELS, RELATIVE, sample_design

RESULTS: dict[str, Any] = json.loads((GOLDEN / "replication_survey.json").read_text())
DOMAINS = build_domains(FRAME, ["a", "b"], LEVELS)
WEIGHT = FRAME["weight"].to_numpy()


def assert_equals_r(
    replicates: ReplicateWeights, case: dict[str, Any], linearisation: str, statistic: str
) -> None:
    expected = case[linearisation][statistic]
    outcome = FRAME["z" if statistic == "proportion" else "y"].to_numpy(dtype=float)
    arguments: dict[str, Any] = {
        "weight": WEIGHT,
        "outcome": outcome,
        "statistic": statistic,
        "linearisation": linearisation,
        "population_size": RESULTS["population"],
    }
    got, each = replicated(DOMAINS, replicates, **arguments)
    estimate, se = (np.array(expected[name], dtype=float) for name in ("estimate", "se"))
    # R drops replicates that leave a row without weight, and lets the others count for themselves.
    se /= np.sqrt(np.maximum(np.isfinite(each).mean(axis=0), 1e-9))
    if statistic in ("mean", "proportion"):
        se[DOMAINS.n == 1] = np.nan
    np.testing.assert_allclose(got.estimate, estimate, rtol=RELATIVE)
    # Zeros come with rounding on both sides: the whole under calibration, a mean in one PSU.
    size = 1e-9 * np.abs(np.nan_to_num(estimate)) + 1e-12
    np.testing.assert_array_less(
        np.abs(np.sqrt(got.variance) - se)[~np.isnan(se)], (RELATIVE * se + size)[~np.isnan(se)]
    )
    np.testing.assert_array_equal(np.isnan(got.variance), np.isnan(se))


@pytest.mark.parametrize("case", RESULTS["jackknife"], ids=lambda case: case["name"])
def test_the_jackknife_equals_r_survey(case: dict[str, Any]) -> None:
    made = jackknife(sample_design(case), WEIGHT)
    for linearisation in ("plain", "ratio"):
        for statistic in case["estimate"][linearisation]:
            assert_equals_r(made, case["estimate"], linearisation, statistic)
    assert made.df == case["df_design"]


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("case", RESULTS["balanced"], ids=lambda case: f"rho {case['rho']}")
def test_the_agencys_columns_equal_r_survey(case: dict[str, Any], linearisation: str) -> None:
    columns = np.array(case["columns"]) * WEIGHT[:, None]
    made = agency_replicates(columns, scale=case["scale"], rscales=np.array(case["rscales"]))
    assert made.df == case["df"]
    for statistic in case[linearisation]:
        assert_equals_r(made, case, linearisation, statistic)


def assert_distributed_as_in_r(
    multipliers: FloatArray, strata: FloatArray, case: dict[str, Any]
) -> None:
    """Two values a stratum, one number of PSUs kept, frequencies alone and together."""
    for code, expected in enumerate(case["strata"]):
        inside = multipliers[strata == code]
        high = inside > 1.0
        np.testing.assert_allclose(np.unique(inside.round(10)), expected["values"], atol=1e-9)
        assert np.unique(high.sum(axis=0)).tolist() == np.atleast_1d(expected["kept"]).tolist()
        together = (high[:, None] & high).mean(axis=-1)
        share = np.array(expected["together"])
        error = np.sqrt(share * (1 - share) * (1 / case["replicates"] + 1 / inside.shape[1]))
        # 4.5 standard errors for some forty frequencies; a pair that never is together stays so.
        assert (np.abs(together - share) <= 4.5 * error).all()


@pytest.mark.parametrize("case", RESULTS["preston"], ids=lambda case: str(case["fpc"]))
def test_preston_multipliers_are_distributed_as_in_r_survey(case: dict[str, Any]) -> None:
    plan = {"strata": "stratum", "psu": "psu", "lonely_psu": "fail"}
    design = sample_design({**plan, "fpc": case["fpc"]})
    rng = np.random.default_rng(14)
    made = preston_multipliers(design, 4000, rng)
    assert_distributed_as_in_r(made, design.psu_strata, case)
    # Strata are drawn independently of each other.
    high = np.unique(design.psu_strata, return_index=True)[1]
    correlation = np.corrcoef(made[high[:3]] > 1.0)
    assert np.abs(correlation - np.eye(3)).max() < 4 / np.sqrt(4000)
    # The paper's doubling of half the PSUs (no lambda), another number kept, and with replacement.
    n_h, n_kept = design.psus_in_stratum, design.psus_in_stratum // 2
    doubled = np.where(made > 1.0, (n_h / n_kept)[design.psu_strata][:, None], 0.0)
    for wrong in (doubled, 2.0 - made):
        with pytest.raises(AssertionError):
            assert_distributed_as_in_r(wrong, design.psu_strata, case)


def test_the_golden_strata_have_odd_and_even_numbers_of_psus() -> None:
    design = sample_design({"strata": "stratum", "psu": "psu", "fpc": None, "lonely_psu": "fail"})
    assert set(design.psus_in_stratum % 2) == {0, 1}
    assert stats.mode(design.psus_in_stratum).count < design.n_strata
