"""Surveys of the published simulation, small, and fits of them with short chains."""

from functools import lru_cache

import numpy as np

from surveysynth.errors import RefusedError
from surveysynth.evaluation.studies.population import (
    Population,
    SamplingDesign,
    published_cells,
    simulate_population,
)
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run, run_batch
from surveysynth.models import get_model
from surveysynth.models.gaussian.model import GaussianRecords
from surveysynth.sampling.plan import SamplingPlan
from tests.surveys import make_survey

PLAN = SamplingPlan(4, 100, 125)


@lru_cache
def population():
    return simulate_population(published_cells(), np.random.default_rng(20))


def survey_of(frame, predictors="field + gender"):
    """Main effects, as in the papers: the default formula has cells that have to be pooled."""
    return make_survey(
        frame[["field", "gender", "salary", "weight"]], population_size=100_000,
        predictors=predictors,
    )  # fmt: skip


@lru_cache
def sample_frame(n=1000, seed=3):
    persons = Population(population(), ("salary",), (), "field", "size")
    return SamplingDesign(n=n).draw(persons, np.random.default_rng(seed))


@lru_cache
def sample_survey(n=1000, seed=3):
    return survey_of(sample_frame(n, seed))


@lru_cache
def fitted(name="fbs", n=1000, **settings):
    survey = sample_survey(n)
    given = {
        "epsilon": 10.8, "plan": PLAN, "allow": ("small_strata", "shared_weights"),
        **settings,
    }  # fmt: skip
    options = MechanismSettings(**given)
    return run(
        get_model(name), survey.design, survey.confidential, options, np.random.default_rng(5)
    )


def run_on_records(model, records, settings, rng):
    """``run`` for records that are on the model's scale already."""
    (result,) = run_batch(model, [Database(records, records.n)], settings, rng)
    if isinstance(result, RefusedError):
        raise result
    return result


def with_outlier(records, record, sds):
    """The same records, but the outcome of one lies ``sds`` residual SDs from its fit."""
    x = records.x_cells[records.cell]
    fit = np.linalg.lstsq(x, records.z, rcond=None)[0]
    z = records.z.copy()
    z[record, 0] = (x @ fit)[record, 0] + sds * (z - x @ fit)[:, 0].std()
    return GaussianRecords(records.x_cells, records.cell, z)
