"""One record replaced in every model of the pseudo-posterior, and mechanisms that protect nothing.

A quick part of ``python -m tests.long_runs.audit_runs``: of each model the replacement that moved
most there, through the whole search on both databases.
"""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior import weighted_fits as mechanism
from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from tests.audit.cases import EXAMPLES, GENDER
from tests.audit.neighbours import Change, changed, places
from tests.audit.posterior import (
    Alike,
    Side,
    compared,
    databases,
    log_ratios,
    over_stated,
    posterior_lines,
    prepared,
    side,
)
from tests.audit.runs import examples, lines_of

BY_NAME = {each.name: each for each in EXAMPLES}
SEED = 31
FAR = Change(-8.0, 50.0)
#: The models, of which those that take longer have two columns of X and fewer records; and the
#: worst of their replacements.
CASES = {
    "fbs": (1000, False, "smallest stratum", Change(2.0)),
    "fbs, two outcomes": (400, True, "typical", Change(-8.0, 50.0, turns=True)),
    "fbs, public weights": (1000, False, "smallest stratum", Change(2.0)),
    "fbs, by gender alone": (300, True, "smallest cell", FAR),
    "fbp": (1000, False, "smallest stratum", Change(2.0)),
    "fbp, by gender alone": (300, True, "smallest cell", FAR),
    "normal": (400, True, "typical", Change(2.0)),
    "poisson": (400, True, "typical", Change(-2.0)),
    "negative_binomial": (400, True, "typical", Change(-2.0)),
}


def case_of(name):
    """The example, with two columns of X where that is asked for."""
    n, coarse, _, _ = CASES[name]
    example = BY_NAME[name]
    if coarse:
        example = replace(example, survey={**example.survey, **GENDER})
    return example.case(n, SEED)


def ratio_of(case, place, change):
    """The fields of the one line."""
    case = prepared(case)
    model, survey = case.model.of(case.survey.design), case.survey
    count = getattr(model, "takes_count", False)
    made = changed(survey, places(survey)[place], change, count=count)
    pair = databases(model, survey.design, [survey.confidential, made])
    settings = case.mechanism.settings
    return compared(
        model, settings, *zip(pair, run_batch(model, pair, settings, Alike(SEED)), strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_one_record_moves_the_posterior_by_less_than_is_stated(name):
    _, _, place, change = CASES[name]
    found = ratio_of(case_of(name), place, change)
    assert found["verdict"] == "holds"
    # Something moves: the instrument is not blind.
    assert 0.03 < found["ratio"] < 1.0
    assert found["beyond"] < 0.01


def test_every_model_is_here():
    from surveysynth.models import model_names

    # The mixture is a Stan program, which the audit of programs looks at.
    assert {BY_NAME[name].model for name in CASES} == set(model_names()) - {"normal_mixture"}
    claims = {each.name for each in EXAMPLES if not each.noisy}
    # Others differ in settings of the mechanism alone.
    assert {BY_NAME[name].model for name in claims - set(CASES)} == {"fbs"}


@pytest.fixture(scope="module")
def small():
    return BY_NAME["fbs, by gender alone"].case(300, SEED)


def test_no_protection_is_found(small):
    """alpha = 1, and epsilon claimed all the same."""
    open_ = replace(small, mechanism=PseudoPosterior(MechanismSettings(
        epsilon=10.8, risk="none", plan=small.mechanism.settings.plan
    )))  # fmt: skip
    found = ratio_of(open_, "typical", FAR)
    assert found["verdict"] == "passed"
    assert found["ratio"] > 2.0
    assert found["beyond"] > 0.5


def test_what_fits_of_their_own_random_numbers_add(small, monkeypatch):
    """Lines of a full audit: every place and change, then fresh numbers, of which the first is the
    database against itself."""
    few = (Change(2.0), FAR)
    lines = list(posterior_lines(small, few, SEED, fresh=True))
    common = [line for line in lines if line.random_numbers == "common"]
    fresh = [line for line in lines if line.random_numbers == "fresh"]
    assert len(common) == 2 * len({line.record for line in common})
    assert fresh[0].change == "none, fitted twice"
    worst = sorted(common, key=lambda line: line.ratio, reverse=True)
    assert [(line.record, line.change) for line in fresh[1:]] == [
        (line.record, line.change) for line in worst[:3]
    ]
    # Two fits to the same data differ by Monte Carlo error, which common numbers do not have.
    assert 0.0 < fresh[0].ratio < 1.0


def test_alike_numbers_leave_no_difference_but_the_data(small):
    model, survey = small.model, small.survey
    given = databases(model, survey.design, [survey.confidential] * 2)
    one, other = run_batch(model, given, small.mechanism.settings, Alike(2))
    ratios = log_ratios(model, side(given[0], one), side(given[1], other))
    assert over_stated(ratios, small.mechanism.settings) < 1e-9
    half = Side(given[0].records, 0.5 * one[1].risk_weights, one[1].theta)
    assert log_ratios(model, side(given[0], one), half).largest > 1.0


def test_refusals_are_told(small, monkeypatch):
    tight = replace(small.mechanism.settings, epsilon=0.05)
    lines = list(posterior_lines(
        replace(small, mechanism=PseudoPosterior(tight)), (Change(2.0),), SEED
    ))  # fmt: skip
    assert {line.verdict for line in lines} == {"refused"}
    assert all(line.reason and line.ratio is None for line in lines)


def test_what_is_not_tested_says_why(small):
    cut = replace(small, mechanism=PseudoPosterior(MechanismSettings(epsilon=10.8, truncate=0.9)))
    (line,) = lines_of(cut, SEED)
    assert line.verdict == "skipped"
    assert "truncated" in line.reason
    with pytest.raises(InputError, match="There is no audit case 'fbz'; the cases are: fbs;"):
        list(examples(300, SEED, ["fbz"]))


def test_the_whole_search_runs_on_the_neighbour(small, monkeypatch):
    """Weights of the neighbour are its own: the record that lies far out has less of it."""
    made = changed(small.survey, np.array([3]), FAR)
    given = databases(small.model, small.survey.design, [small.survey.confidential, made])
    one, other = mechanism.run_batch(small.model, given, small.mechanism.settings, Alike(2))
    assert other[1].risk_weights[3] < 0.5 * one[1].risk_weights[3]
    assert np.abs(other[1].risk_weights - one[1].risk_weights).max() > 0.0
