"""Feasibility is decided right where the answer is clear, and without confidential data."""

import inspect
import itertools

import numpy as np
import pytest

from surveysynth.api.start import simulate_survey
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior import feasibility
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run
from surveysynth.models import get_model
from surveysynth.sampling.convergence import NotConvergedError
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.transforms import Transform
from tests.surveys import make_survey

RNG = np.random.default_rng
PLAN = SamplingPlan(4, 60, 100)


def report(n, epsilon, **settings):
    frame = simulate_survey(n, np.random.default_rng(2))
    design = make_survey(frame, by=["gender"], population_size=100_000).design
    options = MechanismSettings(
        **{"epsilon": epsilon, "plan": PLAN, "small_strata": "allow", **settings}
    )
    return feasibility.check(design, get_model("fbp"), options, np.random.default_rng(3))


def test_a_comfortable_target_is_feasible():
    result = report(1000, 30.0)
    assert result.feasible
    assert all(trial.reached for trial in result.trials)
    assert any(line.startswith("Feasible under every guess: ") for line in result.lines())


def test_a_tiny_target_is_not():
    result = report(60, 0.2)
    assert not result.feasible
    assert any("not reached" in line for line in result.lines())
    assert "Raise epsilon" in result.lines()[-1]


def test_the_advice_is_that_of_a_release():
    """A refusal of the same data by the mechanism, word for word."""
    result = report(60, 0.2)
    frame = simulate_survey(60, np.random.default_rng(2))
    survey = make_survey(frame, by=["gender"], population_size=100_000)
    settings = MechanismSettings(epsilon=0.2, plan=PLAN, small_strata="allow")
    with pytest.raises(RefusedError) as refused:
        run(get_model("fbp"), survey.design, survey.confidential, settings, RNG(3))
    assert str(refused.value) in result.lines()


def test_guesses_are_in_units_of_what_is_declared():
    """Of an amount in plain units a residual SD of 0.5 is no guess at all: with epsilon measured
    from the unit of the density, one database is far beyond the target and the other is not."""
    frame = simulate_survey(500, np.random.default_rng(2))
    design = make_survey(frame, by=["gender"], transforms=Transform("identity")).design
    settings = MechanismSettings(epsilon=40.0, m=1, plan=PLAN, origin="density")
    kept = [
        feasibility.check(design, get_model("normal"), settings, RNG(3), spreads=spreads)
        for spreads in (None, {"salary": 20_000.0}, {"another": 1.0})
    ]
    weights = [[trial.mean_risk_weight for trial in each.trials] for each in kept]
    assert weights[0] == weights[2]
    assert weights[1][1] < weights[0][1] - 0.01
    assert "times the declared spreads" in "\n".join(kept[1].lines())


def test_the_time_is_limited_and_progress_is_told(monkeypatch):
    frame = simulate_survey(200, np.random.default_rng(2))
    design = make_survey(frame, by=["gender"]).design
    settings, told = MechanismSettings(epsilon=30.0, plan=PLAN, small_strata="allow"), []
    monkeypatch.setattr(feasibility, "REPORT_EVERY", 0.0)
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr(feasibility.time, "monotonic", lambda: next(clock))
    result = feasibility.check(
        design, get_model("normal"), settings, RNG(3), time_limit=5.0, progress=told.append
    )
    assert told[0] == "feasibility, guess 1 of 3, fit 1, at most 4 seconds left"
    assert [trial.reached for trial in result.trials][-1] is None
    assert result.feasible  # nothing is known against it
    assert any("Not decided for" in line and "--time-limit" in line for line in result.lines())


@pytest.fixture
def unconverged(monkeypatch):
    """Fits whose length the planted rule names end as not converged; lengths of all fits."""
    real, lengths = feasibility.run_batch, []

    def plant(rule):
        def run_batch(model, databases, settings, rng, **options):
            lengths.append((settings.plan.warmup, settings.plan.draws))
            if rule(settings.plan, len(lengths)):
                return [NotConvergedError("Planted.")]
            return real(model, databases, settings, rng, **options)

        monkeypatch.setattr(feasibility, "run_batch", run_batch)
        return lengths

    return plant


def test_short_chains_that_do_not_converge_are_no_refusal(unconverged):
    """The chains of a release decide, and are the first that the other guesses try."""
    lengths = unconverged(lambda plan, _: plan.draws == 125)
    result = report(400, 30.0, plan=SamplingPlan(2, 200, 250))
    assert lengths == [(125, 125)] + [(200, 250)] * 3
    assert result.feasible
    assert result.lines()[-1].startswith("Feasible under every guess: ")


def test_a_fit_that_does_not_converge_is_no_matter_of_the_spread(unconverged):
    unconverged(lambda plan, fit: fit == 2)
    result = report(400, 30.0)
    told = "\n".join(result.lines())
    assert result.feasible
    assert "reached, but the fit had not converged." in told
    assert "under 1 of 3 guesses the fit had not converged with the draws and warmup" in told
    assert result.lines()[-1] == "Planted."
    assert "spread" not in told
    assert "refused." not in told


def test_no_guess_that_converges_is_told_as_that(unconverged):
    lengths = unconverged(lambda *_: True)
    result = report(400, 30.0)
    assert lengths == [(60, 100)] * 3  # no second try: these are a release's chains
    assert not result.feasible
    assert "under 3 of 3 guesses" in "\n".join(result.lines())
    assert "Not feasible" not in "\n".join(result.lines())


def test_a_check_says_the_same_again():
    frame = simulate_survey(200, np.random.default_rng(2))
    design = make_survey(frame, by=["gender"]).design
    settings = MechanismSettings(
        epsilon=10.8, plan=SamplingPlan(2, 30, 60), small_strata="allow"
    )
    once, again = (feasibility.check(design, get_model("fbs"), settings) for _ in range(2))
    assert once == again


def test_more_draws_than_short_chains_keep_after_truncation():
    """The trial then runs the chains that were asked for."""
    long = SamplingPlan(4, 30, 126)
    result = report(200, 1e6, m=480, truncate=0.96, plan=long)
    assert result.settings.plan == long
    assert result.trials


def test_nothing_to_reach_without_a_risk_measure():
    assert report(200, 1.0, risk="none").feasible


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_simulated_databases_have_the_guessed_spread(name):
    frame = simulate_survey(1000, np.random.default_rng(2))
    design = make_survey(frame, by=(), population_size=1e5).design
    model, rng = get_model(name), np.random.default_rng(1)
    simulated = model.simulate(model.prior_guess(design, 0.7), design, rng, "sample")
    assert simulated.z[:, 0].std() == pytest.approx(0.7, rel=0.1)
    assert simulated.z[:, 1].std() == pytest.approx(0.5, rel=0.1)
    assert abs(np.corrcoef(simulated.z.T)[0, 1]) == pytest.approx(0.5, abs=0.1)


def test_confidential_data_cannot_be_passed():
    parameters = set(inspect.signature(feasibility.check).parameters)
    public = {"design", "model", "settings", "rng", "spreads", "time_limit", "progress"}
    assert parameters == public
