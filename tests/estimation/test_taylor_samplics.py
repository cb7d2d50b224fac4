"""Domain means and totals against samplics, a second implementation in Python."""

import warnings

import numpy as np
import pandas as pd
import pytest

from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains


@pytest.mark.parametrize(("statistic", "parameter"), [("mean", "Mean"), ("total", "Total")])
@pytest.mark.parametrize("clustered", [False, True])
def test_equals_samplics(statistic: str, parameter: str, clustered: bool) -> None:
    with warnings.catch_warnings():
        # Raised with the stack level of whoever imports it first, here this module.
        warnings.filterwarnings(
            "ignore", message="samplics is archived and no longer maintained", module=__name__
        )
        from samplics import TaylorEstimator
        from samplics.utils.types import PopParam
    rng = np.random.default_rng(2)
    n = 300
    strata = np.sort(rng.integers(0, 5, n))
    psu, _ = pd.factorize(strata * 10 + rng.integers(0, 4, n))
    weight, outcome = rng.lognormal(2, 0.5, n), rng.lognormal(3, 0.5, n)
    group = rng.choice(["1", "2", "3"], n)
    estimator = TaylorEstimator(PopParam(parameter))
    estimator.estimate(
        y=outcome,
        samp_weight=weight,
        stratum=strata,
        psu=psu if clustered else None,
        domain=group,
        remove_nan=True,
    )
    got = estimate_domains(
        build_domains(pd.DataFrame({"g": group}), ["g"], {"g": ["1", "2", "3"]}),
        SampleDesign(strata, psu if clustered else None),
        weight=weight,
        outcome=outcome,
        statistic=statistic,  # type: ignore[arg-type]
        linearisation="plain",
    )
    expected = [estimator.point_est[level] for level in ("1", "2", "3")]
    np.testing.assert_allclose(got.estimate[1:], expected, rtol=1e-12)
    expected = [estimator.stderror[level] for level in ("1", "2", "3")]
    np.testing.assert_allclose(np.sqrt(got.variance[1:]), expected, rtol=1e-10)
