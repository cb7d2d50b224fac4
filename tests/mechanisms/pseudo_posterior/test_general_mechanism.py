"""The whole way from records of every kind to tables, by the pseudo-posterior: fit, debiasing,
datasets, tables. Truth: shares of the records themselves, and what a probability can be."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
from surveysynth.mechanisms.pseudo_posterior.mechanism import privacy_statement
from surveysynth.models.general_location.forms import GeneralFBP, GeneralFBS
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.sampling.convergence import check_convergence
from tests.surveys import make_survey

PLAN = ss.SamplingPlan(4, 100, 125)
BENEFIT = ss.Outcome("benefit", "semicontinuous", spikes=(0.0,), upper=3_000.0)
EMPLOYED = ss.Outcome("employed", "binary")


def frame_of(n: int = 1_000) -> pd.DataFrame:
    """Benefits of unequal spread by region, zero for half; weights that know of both outcomes."""
    rng = np.random.default_rng(4)
    region, sex = rng.integers(0, 3, n), rng.integers(0, 2, n)
    employed = rng.random(n) < 0.55 + 0.15 * sex
    amount = np.exp(6.0 + 0.2 * region + (0.3 + 0.2 * region) * rng.standard_normal(n))
    benefit = np.where(rng.random(n) < 0.3 + 0.3 * employed, 0.0, np.minimum(amount, 2_999.0))
    log_weight = 4.0 + 0.4 * employed - 0.3 * (benefit > 0) + 0.4 * rng.standard_normal(n)
    return pd.DataFrame({
        "region": np.array(["a", "b", "c"])[region], "sex": np.array(["F", "M"])[sex],
        "benefit": benefit, "employed": employed.astype(int), "weight": np.exp(log_weight),
    })  # fmt: skip


def survey_of(*outcomes: ss.Outcome) -> ss.Survey:
    frame = frame_of()
    return make_survey(
        frame, outcome=None, outcomes=outcomes, by=["region", "sex"], strata="region",
        population_size=float(np.round(frame["weight"].sum(), -2)),
    )  # fmt: skip


CASES: dict[str, tuple[ss.Survey, type[GeneralLocation]]] = {
    "fbs": (survey_of(BENEFIT, EMPLOYED), GeneralFBS),
    "fbp": (survey_of(EMPLOYED), GeneralFBP),
}
OPTIONS: dict[str, dict[str, Any]] = {"fbs": {"covariance_by": ("region",)}, "fbp": {}}


class Way:
    """Fit, debiased draws and datasets of a case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.survey, self.form = CASES[name]
        rng = np.random.default_rng(7)
        declared = {"benefit": Declared(400.0, 0.6)}
        self.settings = ss.MechanismSettings(epsilon=10.8, plan=PLAN, declared=declared)
        design = self.settings.prepared(self.survey.design)
        self.survey = replace(self.survey, design=design)
        self.model = ss.get_model(name, **OPTIONS[name])
        private, fit = ss.run_mechanism(
            self.model, design, self.survey.confidential, self.settings, rng
        )
        self.private, self.fit = private, fit
        self.debiased = ss.debias_draws(self.model, design, private, rng)
        self.datasets = list(
            ss.synthesise(
                self.model, design, self.debiased.draws, replicates_per_draw=4, rng=rng,
                scale_to=design.population_size,
            )
        )  # fmt: skip


@pytest.fixture(scope="module", params=["fbs", "fbp"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param)


def test_the_mechanism_reaches_its_target_and_converges(way: Way) -> None:
    fit: Any = way.fit
    assert isinstance(fit, ConfidentialFit)
    assert isinstance(way.model.of(way.survey.design), way.form)
    assert 0.0 < fit.realised_epsilon <= way.settings.epsilon
    assert max(fit.r_hat.values()) < 1.05
    assert min(fit.ess.values()) > 100.0


def test_monitored_parts_are_those_that_are_sampled(way: Way) -> None:
    """Chains that have not met in a logit alone are found out."""
    design = way.survey.design
    model = way.model.of(design)
    records = model.records(design, way.survey.confidential)
    stats = model.compress(records, np.full(design.n, 0.5))
    theta = model.sample(stats, PLAN, np.random.default_rng(3))
    one = {name: values[0] for name, values in theta.items()}
    monitored = model.monitored(one)
    by_group = {"slopes"} if way.name == "fbs" else set()
    assert monitored.keys() == {"logit", "coefficients", "log_residual_sd"} | by_group
    r_hat, _ = check_convergence(monitored, None)
    assert max(r_hat.values()) < 1.05
    apart = {name: values.copy() for name, values in one.items()}
    apart[next(name for name in one if name.startswith("logit_"))][0] += 3.0
    with pytest.raises(RefusedError, match="logit"):
        check_convergence(model.monitored(apart), None)


def test_the_statement_names_kinds_and_no_value(way: Way) -> None:
    statement = privacy_statement(way.survey.design, way.settings, way.model.of(way.survey.design))
    text = "\n".join(statement.paragraphs)
    assert "epsilon at most 10.8" in text
    assert "employed (binary" in text
    assert "none of them read from the data" in text
    if way.name == "fbs":
        assert "benefit (semicontinuous" in text
        assert "3,000" in text


def test_debiasing_shifts_scales_and_odds(way: Way) -> None:
    record = way.debiased.record
    assert record.kinds.count("odds") == (2 if way.name == "fbs" else 1)
    assert {"scale", "odds", "slope"} <= set(record.kinds)
    assert np.isfinite(record.shift).all()
    assert np.abs(record.shift).max() < 1.5


def test_synthetic_values_are_of_their_kinds_and_shares_are_the_samples(way: Way) -> None:
    frame, design = frame_of(), way.survey.design
    total = float(design.population_size or 0.0)
    weight = frame["weight"].to_numpy()
    truth = float(np.average(frame["employed"], weights=weight))
    error = float(np.sqrt((weight**2).sum()) / weight.sum() * np.sqrt(truth * (1 - truth)))
    shares, unweighted = [], []
    for data in way.datasets:
        employed = data.outcome[:, -1]
        assert set(np.unique(employed)) == {0.0, 1.0}
        assert set(np.unique(data.variance_outcome[:, -1])) == {0.0, 1.0}
        assert abs(data.weight.sum() - total) < 1e-6 * total
        shares.append(np.average(employed, weights=data.weight))
        unweighted.append(employed.mean())
        if way.name == "fbs":
            benefit = data.outcome[:, 0]
            amounts = benefit[benefit != 0.0]
            assert 0 < amounts.min() < amounts.max() <= 3_000.0
            assert abs((benefit == 0).mean() - (frame["benefit"] == 0).mean()) < 0.08
    assert abs(np.mean(shares) - truth) < 3.5 * error
    # A share of the records without their weights is told apart.
    plain = float(frame["employed"].mean())
    assert abs(plain - truth) > 3.5 * error


@pytest.mark.parametrize("name", [pytest.param("fbs", marks=pytest.mark.slow), "fbp"])
def test_intervals_of_tables_are_probabilities(name: str) -> None:
    survey, _ = CASES[name]
    made = ss.tables(
        survey, name, 10.8, mechanism="pseudo_posterior", statistics=["count", "proportion"],
        options=OPTIONS[name], seed=11,
    )
    frame = made.frame
    rows = frame[frame["statistic"] == "proportion"]
    assert len(rows) == 12
    low, value, high = (rows[key].to_numpy() for key in ("ci_lower", "estimate", "ci_upper"))
    assert (low >= 0.0).all()
    assert (high <= 1.0).all()
    assert ((low < value) & (value < high)).all()
    truth = np.average(frame_of()["employed"], weights=frame_of()["weight"])
    whole = rows[(rows["region"] == "All") & (rows["sex"] == "All")]
    assert abs(float(whole["estimate"].iloc[0]) - truth) < 0.08
