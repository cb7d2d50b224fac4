"""Debiasing against databases whose unweighted posterior is known, and what may not reach it."""

import inspect
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError, RefusedError
from surveysynth.inference import debias
from surveysynth.inference.debias import debias_draws, debias_many, thinned
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey
from tests.guesses import guessed_theta
from tests.long_runs import debias_study

PLAN = SamplingPlan(4, 60, 200)
#: The papers' origin, under which more of every scale is lost.
SETTINGS = MechanismSettings(epsilon=10.8, plan=PLAN, origin="density")


def design_of(n=600, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "stratum": np.repeat(["a", "b", "c", "d"], n // 4),
            "sex": np.tile(["f", "m"], n // 2),
            "income": np.exp(rng.normal(3.0, 0.4, n)),
            "weight": np.exp(rng.normal(4.0, 0.3, n)),
        }
    )
    return Survey.from_frame(
        frame, outcome="income", weight="weight", by=["sex"], strata="stratum",
        population_size=50_000,
    )  # fmt: skip


def draws_of(model, design, spread=0.4, settings=SETTINGS):
    guess = guessed_theta(model, design, spread)
    theta = {name: np.stack([values] * settings.m) for name, values in guess.items()}
    return PrivateDraws(model.name, theta, settings)


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_scales_come_back_to_those_of_the_unweighted_fit(name):
    """Three databases, each through the mechanism and debiased from its released draws alone."""
    design, model = design_of().design, get_model(name)
    truth = guessed_theta(model, design, 0.4)
    rng = np.random.default_rng(2)
    databases = []
    for _ in range(3):
        simulated = model.simulate(truth, design, rng, "sample")
        databases.append(Database.simulated(model, design, simulated))
    results = run_batch(model, databases, SETTINGS, rng)
    releases = [(design, private) for private, _ in results]
    debiased = debias_many(model, releases, rng, databases=9, rounds=3)
    assert all(each.record.debiased for each in debiased)
    unweighted = np.array([fit.unweighted_means for _, fit in results])
    weighted = np.array([fit.means for _, fit in results])
    shift = np.array([each.record.shift for each in debiased])
    locations = np.array(debiased[0].record.kinds) == "location"
    assert locations.sum() == (3 if name == "fbp" else 0)
    # Against the shift of the posterior mean: the draws themselves vary about it.
    left = (weighted + shift - unweighted).mean(axis=0)
    assert np.all((weighted - unweighted).mean(axis=0)[~locations] < -0.1)
    assert np.all(np.abs(left) < 0.025)
    for each, (private, _) in zip(debiased, results, strict=True):
        before, after = (model.debiased(one.theta, design).values for one in (private, each.draws))
        np.testing.assert_allclose(after - before, np.tile(each.record.shift, (3, 1)), rtol=1e-9)
        if name == "fbs":
            np.testing.assert_array_equal(each.draws.theta["beta"], private.theta["beta"])


def test_the_means_of_fbp_are_those_of_the_population_and_move_apart_from_the_slope():
    design, model = design_of(200).design, get_model("fbp")
    rng = np.random.default_rng(5)
    k, x = design.matrix.n_columns, design.matrix.x_cells[design.matrix.cell]
    theta = {
        "beta": rng.normal(size=(2, k)),
        "selection": rng.normal(size=(2, 1 + k)),
        "variance": np.full((2, 2), 0.2),
    }

    def means(theta):
        y = theta["beta"] @ x.T
        return y, theta["selection"][:, :1] * y + theta["selection"][:, 1:] @ x.T

    found = model.debiased(theta, design)
    assert found.kinds == ("scale",) * 2 + ("location",) * 3
    y, log_pi = means(theta)
    expected = np.column_stack([y.mean(axis=1), log_pi.mean(axis=1), theta["selection"][:, 0]])
    np.testing.assert_allclose(found.values[:, 2:], expected)
    shift = np.array([0.1, -0.1, 0.3, 0.2, 0.5])
    moved = model.with_debiased(theta, found.values + shift, design)
    np.testing.assert_allclose(model.debiased(moved, design).values, found.values + shift)
    for before, after, by in zip((y, log_pi), means(moved), (0.3, 0.2), strict=True):
        np.testing.assert_allclose(after, before + by)  # of every record by as much


def test_confidential_data_cannot_reach_it():
    names = set(inspect.signature(debias_draws).parameters)
    public = {"model", "design", "private_draws", "rng", "databases", "rounds", "progress"}
    assert names == public
    assert "Confidential" not in inspect.getsource(debias).replace("ConfidentialFit", "")
    model = get_model("fbp")
    first, second = design_of(seed=1), design_of(seed=7)
    private = draws_of(model, first.design)
    one, other = (
        debias_draws(model, survey.design, private, np.random.default_rng(3), databases=3, rounds=1)
        for survey in (first, second)
    )
    assert one.record == other.record
    for name, values in one.draws.theta.items():
        np.testing.assert_array_equal(values, other.draws.theta[name])


def test_a_release_is_debiased_the_same_in_a_batch():
    model, design = get_model("fbs"), design_of().design
    releases = [(design, draws_of(model, design, spread)) for spread in (0.3, 0.6)]
    narrow, wide = debias_many(model, releases, np.random.default_rng(4), databases=3, rounds=1)
    rng, first = np.random.default_rng(4), releases[0][1]
    alone = debias_draws(model, design, first, rng, databases=3, rounds=1)
    np.testing.assert_allclose(narrow.record.shift, alone.record.shift, atol=0.03)
    assert wide.record.shift[0] > narrow.record.shift[0]


def test_where_it_does_not_converge_it_is_refused_and_studies_get_the_draws_as_they_were(
    monkeypatch,
):
    def no_run(model, databases, *_, **__):
        return [RefusedError("missed")] * len(databases)

    monkeypatch.setattr(debias, "run_batch", no_run)
    model, design = get_model("fbs"), design_of(200).design
    private = draws_of(model, design)
    (result,) = debias_many(model, [(design, private)], np.random.default_rng(5), databases=1)
    assert result.record.status == "not converged"
    assert result.draws is private
    with pytest.raises(RefusedError, match="Debiasing did not converge") as refusal:
        debias_draws(model, design, private, np.random.default_rng(5), databases=1)
    for remedy in ("Raise epsilon", "noisy_statistics", 'inference = "paper"'):
        assert remedy in str(refusal.value)
    # The same words whatever the draws are: no value of theirs, nor of anything simulated.
    assert result.record.reason in str(refusal.value)
    assert not re.search(r"\d", str(refusal.value))


def test_nothing_to_debias():
    design, rng = design_of().design, np.random.default_rng(6)
    model = get_model("fbs")
    not_private = draws_of(model, design, settings=replace(SETTINGS, risk="none"))
    assert debias_draws(model, design, not_private, rng).record.status == "nothing to debias"

    class LabelsSwitch(type(model)):
        identified = False

    result = debias_draws(LabelsSwitch(), design, draws_of(model, design), rng)
    assert (result.record.status, result.record.databases) == ("nothing to debias", 0)
    with pytest.raises(InputError, match="at least 1"):
        debias_draws(model, design, draws_of(model, design), rng, databases=0)


def test_a_thinned_design_keeps_the_shares_of_cells():
    design = design_of(4000).design
    small = thinned(design, 400)
    assert small.n == 400
    shares = [np.bincount(d.matrix.cell) / d.n for d in (design, small)]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.01)
    np.testing.assert_array_equal(np.bincount(small.strata), [100] * 4)
    assert thinned(design, 5000) is design


def test_the_study_of_counts_leaves_nothing_of_the_bias():
    """``python -m tests.long_runs.debias_study``: within 1.5% or its error, of many times that."""
    cases = json.loads(debias_study.GOLDEN.read_text(encoding="utf-8"))["cases"]
    assert {"Negative binomial", "Poisson"} <= cases.keys()
    for name, case in cases.items():
        assert case["released"] >= 20
        assert list(case["shifts"]) == debias_study.names_of(debias_study.CASES[name])
        for what, shift in case["shifts"].items():
            before, after = shift["before"], shift["after"]
            assert abs(after["mean"]) < 0.015 or abs(after["mean"]) < 4 * after["standard_error"]
            if what != "slope":
                errors = 5.0 if what == "intercept" else 10.0
                assert abs(before["mean"]) > errors * before["standard_error"]
    assert cases["Negative binomial"]["shifts"]["log phi"]["before"]["mean"] > 0.2
    assert all(case["status"] == ["debiased"] for case in cases.values())


def test_overdispersion_comes_back_to_that_of_the_unweighted_fit():
    """One release of the study's negative binomial, smaller."""
    case = replace(debias_study.CASES["Negative binomial"], databases=2, n=400, simulated=3)
    found = debias_study.study(case)
    scale = found["shifts"]["log phi"]
    assert found["status"] == ["debiased"]
    assert scale["before"]["mean"] > 0.15
    assert abs(scale["after"]["mean"]) < 0.5 * scale["before"]["mean"]
