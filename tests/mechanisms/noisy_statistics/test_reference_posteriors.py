"""The posterior of noisy statistics beside long runs of a chain that keeps the true sums as
unknowns (``tests.long_runs.reference_posteriors``), functional by functional and cell by cell."""

import json
from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.draws import fit, theta_of
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.mechanisms.noisy_statistics.posterior.prior_columns import alike
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    statistics_of,
    table_of,
)
from surveysynth.models.general_location.layout import Layout
from surveysynth.sampling.plan import SamplingPlan
from tests.long_runs.reference_posteriors import CASES, GOLDEN, design_of, settings
from tests.posterior_functionals import functionals

#: Of (posterior mean - reference) / SD, and of SD / reference.
MEDIAN_GAP, LARGEST_GAP = 0.1, 0.3
MEDIAN_RATIO, RATIO = (0.97, 1.03), (0.85, 1.15)
FILES = sorted(each.stem for each in GOLDEN.glob("*.json"))


def compared(file: str, plan: SamplingPlan) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Gaps in SDs and ratios of SDs, (cells,) each, by name of the functional."""
    content = json.loads((GOLDEN / f"{file}.json").read_text(encoding="utf-8"))
    case = CASES[content["case"]]
    design, statistics = design_of(case, content), statistics_of(content["statistics"])
    assert isinstance(statistics, LocationStatistics)
    model, root = case.model(design), alike(design.matrix)
    layout = Layout.of(design, model.grouped)
    table = NoisyTable.of(table_of(model, design), design.matrix.cell, statistics, root)
    # The chain knows of no deviations of levels by group.
    parameters = Parameters(layout, table, model.priors, deviating=False)
    chosen = replace(settings(content["epsilon"]), plan=plan)
    points, _ = fit(parameters, chosen, np.random.default_rng(5))
    theta = theta_of(parameters, points, root)
    found = functionals(theta, layout, model.groups(design).cell, design.matrix.x_cells)
    result = {}
    for name, reference in content["functionals"].items():
        own, sd = found[name], np.array(reference["sd"])
        result[name] = (own.mean(0) - reference["mean"]) / sd, own.std(0) / sd
    return result
