"""The risk-utility map against single runs of the mechanism with the same settings, and the order
that [P] 4.3 finds: less scale and shift, a smaller bound and less utility."""

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.evaluation.microdata.risk_utility import risk_utility_map
from surveysynth.evaluation.microdata.utility import ks_distance
from surveysynth.mechanisms.pseudo_posterior.risk import CountBased
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey

pytestmark = pytest.mark.xdist_group("risk-utility")  # what its tests share is made once

PLAN = SamplingPlan(4, 50, 100)


@pytest.fixture(scope="module")
def survey():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"sex": rng.choice(["F", "M"], 300)})
    frame["income"] = rng.lognormal(10, 0.8, 300)
    return Survey.from_frame(frame, outcome="income", by=["sex"])


@pytest.fixture(scope="module")
def found(survey):
    grid = [(3.0, 0.0), (2.0, 0.0), (2.0, -0.1), (0.1, 0.9)]
    return risk_utility_map(
        get_model("normal"), survey, grid, np.random.default_rng(2), measure=CountBased(0.5),
        compare_scalar=True, plan=PLAN, resamples=200,
    ).to_frame()  # fmt: skip


def test_points_are_in_order(found):
    assert found["measure"].tolist() == ["none"] + ["count", "scalar"] * 4
    own = found[found["measure"] == "count"].set_index(["scale", "shift"])
    assert own.loc[(3.0, 0.0), "bound"] > own.loc[(2.0, 0.0), "bound"]
    assert own.loc[(2.0, 0.0), "bound"] > own.loc[(2.0, -0.1), "bound"]
    assert (own["bound"] < found["bound"][0]).all()
    assert (found["refusal"] == "").all()
    np.testing.assert_allclose(found["epsilon"], 6 * found["bound"])


def test_scalar_weights_cost_no_more_and_keep_less(found):
    own, scalar = (found[found["measure"] == name] for name in ("count", "scalar"))
    assert (scalar["bound"].to_numpy() <= own["bound"].to_numpy()).all()
    assert (scalar["bound"].to_numpy() >= 0.9 * own["bound"].to_numpy()).all()
    assert scalar["mean_risk_weight"].iloc[0] < own["mean_risk_weight"].iloc[0]


def test_utility_is_that_of_the_confidential_data(found, survey):
    unweighted = found.iloc[0]
    truth = survey.confidential.outcome[:, 0]
    assert unweighted["median"] == pytest.approx(np.median(truth), rel=0.2)
    assert unweighted["q90_overlap"] > 0
    assert unweighted["ks"] < 0.15
    assert ks_distance(truth, truth * 2) > 0.15


def test_a_refused_point_says_why(survey):
    found = risk_utility_map(
        get_model("normal"), survey, [(0.5, 0.0)], np.random.default_rng(2),
        plan=SamplingPlan(2, 0, 20), resamples=10,
    ).to_frame()  # fmt: skip
    assert found["refusal"].str.contains("not converged").all()
    assert found["bound"].isna().all()


def test_an_empty_grid(survey):
    with pytest.raises(InputError, match="at least one"):
        risk_utility_map(get_model("normal"), survey, [], np.random.default_rng(2))
