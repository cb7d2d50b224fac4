"""Effects of PSUs in the general location model: identities of its density for its draws (the
density is held against SciPy in ``test_general_density.py``), the prior where no record counts,
moments of records as they are, moments of simulated units. Wrong samplers are rejected."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.models.base import stacked
from surveysynth.models.general_location.psu_amounts import AmountSums
from surveysynth.models.general_location.psu_logits import PsuLogit
from surveysynth.models.general_location.psu_records import ConstantDirections
from surveysynth.models.general_location.psu_sampler import ClusteredGibbs
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from tests import oracles
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    INCOME,
    SICK,
    WORK,
    confidential_of,
    draw,
    general_design,
    layout_of,
    model_for,
    random_theta,
)
from tests.models.general_location.test_general_posterior import largest_error

PSUS = 12


def statistics_of(
    outcomes: tuple[Outcome, ...], n: int = 150, seed: int = 3, **options: bool
) -> GeneralStats:
    """Of a simulated database; a share of the records has weight one."""
    design, model = general_design(n, outcomes, psus=PSUS, **options), model_for()
    theta = draw(random_theta(model, design, 1, seed=seed), 0)
    rng = np.random.default_rng(seed)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    alpha = np.where(rng.random(n) < 0.7, 1.0, rng.random(n))
    return model.compress(model.records(design, survey), alpha)


def error_of(statistics: GeneralStats, draws: int, seed: int = 1) -> float:
    model = model_for()
    drawn = model.sample(statistics, SamplingPlan(4, 300, draws), np.random.default_rng(seed))
    u = oracles.unconstrain(model, {name: values[0] for name, values in drawn.items()})
    return largest_error(model, u, statistics)


@pytest.mark.parametrize(
    ("outcomes", "ridged"),
    [((BENEFIT, SICK), True), ((WORK,), False)],
    ids=["two-part and binary", "categorical"],
)
def test_draws_satisfy_the_identities_of_the_density(
    outcomes: tuple[Outcome, ...], ridged: bool
) -> None:
    assert error_of(statistics_of(outcomes, ridged=ridged), 1500) < 4.5
