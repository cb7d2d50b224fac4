"""One record replaced by an outlier: how far do the two pseudo-posteriors part? (methods 2)

The truth is the definition: the log ratio of the two densities at draws of both, each with the
risk weights of its own database; the ratio of normalizing constants by bridge sampling.
"""

import numpy as np
import pytest
from scipy.special import logsumexp

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.survey.design_matrix import records_per_coefficient
from tests.mechanisms.pseudo_posterior.mechanism_cases import (
    PLAN,
    run_on_records,
    sample_frame,
    sample_survey,
    survey_of,
    with_outlier,
)

pytestmark = pytest.mark.xdist_group("mechanism")  # what its tests share is made once

RECORD = 500


def weighted_log_lik(model, theta, records, alpha):
    total = 0.0
    for rows, log_lik in model.log_lik_blocks(theta, records):
        total = total + log_lik @ alpha[rows]
    return total


def largest_log_ratio(model, first, second):
    """max over draws of |log xi(theta | D) - log xi(theta | D')|; each side (records, fit)."""
    ratios = []
    for _, fit in (first, second):
        theta = {name: v.reshape(-1, *v.shape[2:]) for name, v in fit.theta.items()}
        one, other = (
            weighted_log_lik(model, theta, records, each.risk_weights)
            for records, each in (first, second)
        )
        ratios.append(one - other)
    # Bennett's estimate of log Z / Z' from as many draws of either.
    constant = float(np.median(np.concatenate(ratios)))
    for _ in range(500):
        upper = logsumexp(-np.logaddexp(0.0, constant - ratios[1]))
        lower = logsumexp(-np.logaddexp(0.0, ratios[0] - constant))
        constant += upper - lower
    return float(np.abs(np.concatenate(ratios) - constant).max())


def ratio_to_stated(model, surveys, settings, change=lambda design: design):
    """The largest log ratio of two neighbors over epsilon / m; change: of the prepared design."""
    fits = []
    for survey in surveys:
        design = change(settings.prepared(model.with_ridge(survey.design)))
        own = model.of(design)
        made = own.records(design, survey.confidential)
        fits.append((made, run_on_records(own, made, settings, np.random.default_rng(11))[1]))
    return largest_log_ratio(own, *fits) / (settings.epsilon / settings.m)


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_fixed_point_weights_hold_the_bound_and_linear_weights_do_not(name):
    survey, model = sample_survey(), get_model(name)
    records = model.records(survey.design, survey.confidential)
    largest = {}
    for weights in ("fixed_point", "linear"):
        settings = MechanismSettings(epsilon=10.8, weights=weights, plan=PLAN)

        def fit(database, settings=settings):
            rng = np.random.default_rng(11)
            return database, run_on_records(model, database, settings, rng)[1]

        base = fit(records)
        for sds in (4, 8):
            replaced = fit(with_outlier(records, RECORD, sds))
            if weights == "fixed_point":  # the whole search, and with it the origin, again
                origins = [each[1].search[-1]["origin"] for each in (base, replaced)]
                assert origins[0] != origins[1]
            largest[weights, sds] = largest_log_ratio(model, base, replaced)
    bound = 2 * 1.8
    assert largest["fixed_point", 4] < 0.5 * bound
    assert largest["fixed_point", 8] < 0.6 * bound
    assert largest["linear", 4] > bound
    assert largest["linear", 8] > 4 * bound


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_the_default_formula_with_pooled_cells_holds_the_bound(name):
    """One record of the row that rests on the fewest records."""
    survey, model = survey_of(sample_frame(), predictors=None), get_model(name)
    settings = MechanismSettings(epsilon=10.8, plan=PLAN)
    design = settings.prepared(model.with_ridge(survey.design))
    assert design.pooling is not None
    assert design.pooling.cells
    row = int(np.argmin(records_per_coefficient(design.matrix)))
    records = model.records(design, survey.confidential)
    other = with_outlier(records, int(np.flatnonzero(design.matrix.cell == row)[0]), 8)
    first, second = (
        (each, run_on_records(model, each, settings, np.random.default_rng(11))[1])
        for each in (records, other)
    )
    assert largest_log_ratio(model, first, second) < 0.8 * 2 * 1.8


@pytest.mark.parametrize(("size", "reached"), [(1e10, True), (1e160, False)])
def test_a_value_of_any_size_is_weighted_down_or_refused(size, reached):
    """No warning, no other exception: the value is one record's, and confidential."""
    survey, model = sample_survey(), get_model("fbs")
    records = model.records(survey.design, survey.confidential)
    huge = with_outlier(records, RECORD, size)
    settings, rng = MechanismSettings(epsilon=10.8, plan=PLAN), np.random.default_rng(11)
    if reached:
        fit = run_on_records(model, huge, settings, rng)[1]
        assert fit.risk_weights[RECORD] < 1e-9
        assert np.delete(fit.risk_weights, RECORD).mean() > 0.7
    else:
        with pytest.raises(RefusedError, match=r"broke down|not reached"):
            run_on_records(model, huge, settings, rng)
