"""Taylor estimates against R's survey package (tests/golden/taylor_survey.R wrote the figures)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains

GOLDEN = Path(__file__).parents[1] / "golden"
RELATIVE = 1e-8
LEVELS = {"a": ["a1", "a2", "a3", "a4"], "b": ["b1", "b2"], "c": ["c1", "c2"]}

RESULTS: dict[str, Any] = json.loads((GOLDEN / "taylor_survey.json").read_text())
FRAME = pd.read_csv(GOLDEN / "taylor_survey.csv")


def sample_design(case: dict[str, Any]) -> SampleDesign:
    """Codes for the columns that R was told about."""
    stratum = FRAME[case["strata"]] if case["strata"] else pd.Series("all", index=FRAME.index)
    strata, _ = pd.factorize(stratum)
    psu = pd.factorize(FRAME[case["psu"]])[0] if case["psu"] else None
    fpc = FRAME.groupby(strata)[case["fpc"]].first().to_numpy() if case["fpc"] else None
    return SampleDesign(strata, psu, fpc, case["lonely_psu"])


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])
def test_equals_r_survey(case: dict[str, Any], linearisation: str) -> None:
    domains = build_domains(FRAME, case["by"], LEVELS)
    design = sample_design(case)
    assert design.degrees_of_freedom == case["df"]
    for statistic, expected in case[linearisation].items():
        got = estimate_domains(
            domains,
            design,
            weight=FRAME["weight"].to_numpy(),
            outcome=FRAME["z" if statistic == "proportion" else "y"].to_numpy(dtype=float),
            statistic=statistic,
            linearisation=linearisation,
            population_size=RESULTS["population"],
        )
        estimate = np.array(expected["estimate"], dtype=float)
        se = np.array(expected["se"], dtype=float)
        if statistic in ("mean", "proportion"):
            # R gives zero, or what is left of it after rounding, to the mean of one record.
            assert (
                np.nan_to_num(se[domains.n == 1]) < 1e-8 * estimate[domains.n == 1] + 1e-12
            ).all()
            se[domains.n == 1] = np.nan
        if statistic == "count" and linearisation == "ratio":
            assert se[0] < 1e-8 * estimate[0]  # the calibrated whole; R leaves rounding
            se[0] = 0.0
        np.testing.assert_allclose(got.estimate, estimate, rtol=RELATIVE)
        np.testing.assert_allclose(np.sqrt(got.variance), se, rtol=RELATIVE, atol=0)


def test_golden_values_cover_the_difficult_domains() -> None:
    """The comparison is worth nothing if the records do not hold what it is meant to cover."""
    domains = build_domains(FRAME, ["a", "b"], LEVELS)
    assert 0 in domains.n
    assert 1 in domains.n
    strata_of_a3 = FRAME.loc[FRAME["a"] == "a3", "stratum"].nunique()
    assert strata_of_a3 < FRAME["stratum"].nunique()
    averages = [case for case in RESULTS["cases"] if case["lonely_psu"] == "average"]
    assert any(None in case["plain"]["count"]["se"][:-1] for case in averages)
