"""A survey simulated from the public inputs of a specification.

Its public columns are the file's own, and so is the number of records; outcomes and weights are
drawn from what is declared. Nothing confidential is read: ``read_design`` takes the public columns
of the file and no others.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.evaluation.audit.lines import Case
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.pseudo_posterior.feasibility import UNDECLARED, guessed_dataset
from surveysynth.models import get_model
from surveysynth.models.base import Model, require
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign, Survey

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec


def specified_case(spec: "Spec", seed: int) -> Case:
    """The specification's own model and mechanism, on a simulated survey of its design.

    Raises ``InputError`` for public columns or settings that a release could not take.
    """
    from surveysynth.spec.build import engine_of, mechanism_of, model_of, read_design, spreads_of

    design = read_design(spec)
    model = engine_of(spec, model_of(spec))
    mechanism = mechanism_of(spec)
    rng = np.random.default_rng(seed)
    if isinstance(mechanism.settings, NoisySettings):
        confidential = _declared(design, mechanism.settings, rng)
    else:
        confidential = _guessed(model.of(design), design, spreads_of(spec), rng)
    return Case(spec.path.name, model, Survey(design, confidential), mechanism)


def _guessed(
    model: Model, design: PublicDesign, spreads: Mapping[str, float], rng: np.random.Generator
) -> Confidential:
    """A dataset from the model's own guess, as ``surveysynth check`` uses it; from that of FBS
    where it has none, as programs of the caller's own."""
    require(model, design)
    if model.prior_guess(design, UNDECLARED) is None:
        model = get_model("fbs").of(design)
    simulated = guessed_dataset(design, model, 1.0, spreads, rng)
    weight = None if design.weight_name is None else model.drawn_weight(design, simulated)
    return Confidential(simulated.outcomes(design), weight)


def _declared(
    design: PublicDesign, settings: NoisySettings, rng: np.random.Generator
) -> Confidential:
    """Amounts and log weights about their declared centres; equally many in every category."""
    clipping = settings.clipping(design)
    normal = rng.standard_normal((design.n, clipping.q)) * clipping.spread + clipping.centre
    columns, amounts = [], iter(normal.T)
    for outcome in design.outcomes:
        category = rng.integers(0, outcome.categories, design.n)
        z = next(amounts) if outcome.is_amount else np.zeros(design.n)
        columns.append(_inside(outcome, outcome.values(category, z)))
    weight = None if design.weight_name is None else np.exp(normal[:, -1])
    return Confidential(np.stack(columns, axis=1), weight)


def _inside(outcome: Outcome, values: FloatArray) -> FloatArray:
    """Amounts at no spike cut at the declared bounds."""
    there = outcome.regular(values)
    cut = np.clip(values, outcome.lower, outcome.upper) if outcome.is_amount else values
    return np.where(there, cut, values)
