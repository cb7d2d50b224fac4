"""One synthesizer of a comparison: its run, its tables, and how far from the sample they are."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth.config import build
from surveysynth.evaluation.compare.adequacy import Findings, compare_with_sample
from surveysynth.evaluation.compare.tables import Key, frames
from surveysynth.inference.synthesis import SyntheticDataset, published_draws, synthesise
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import statistics_of
from surveysynth.models.base import require
from surveysynth.release.folder.compared import published_of
from surveysynth.release.folder.microdata import public_order
from surveysynth.release.pipeline import facts_of, synthetic_estimates
from surveysynth.release.tables.table_builder import tables_of_each

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.survey.survey import Survey


@dataclass(frozen=True, eq=False, repr=False)
class ModelRun:
    """One synthesizer's run, confidential, and one dataset in the form of a release.

    spec: as it ran; found: its distance from the sample, None for a single draw.
    """

    title: str
    spec: "Spec"
    dataset: SyntheticDataset
    found: Findings | None = None


def run_synthesizer(
    spec: "Spec", survey: "Survey", stream: np.random.SeedSequence, *, seeded: bool
) -> tuple[ModelRun, dict[Key, pd.DataFrame]]:
    """Run the mechanism and make the tables that a release of ``spec`` would publish.

    Generators of the mechanism and of the later steps come from ``stream`` as those of a release
    come from its seed. ``seeded``: noise comes from it too, else from the operating system.
    """
    if spec.privacy.rebuildable:  # as in a release that can be rebuilt from its files
        survey = survey.in_order(public_order(survey.design))
    mechanism = build.mechanism_of(spec)
    chosen = build.engine_of(spec, build.model_of(spec))
    design = mechanism.prepared(chosen.with_ridge(survey.design))
    mechanism_rng, synthesis_rng, figure_rng = map(np.random.default_rng, stream.spawn(3))
    model = chosen.of(design)
    require(model, design)
    model.prepare()
    released = mechanism.run(model, design, survey.confidential, mechanism_rng, seeded=seeded)
    draws, design = released.draws, released.design_of(design)
    if mechanism.down_weights:
        inference = spec.synthesizer.inference
        draws = published_draws(model, design, draws, synthesis_rng, inference=inference).draws
    facts = facts_of(spec, design, mechanism, model, test=seeded)
    estimates = synthetic_estimates(facts, model, draws, synthesis_rng, None)
    tables = tables_of_each(spec.for_records(design.n), design, estimates)
    shown = next(
        synthesise(
            model, design, draws, replicates_per_draw=1, rng=figure_rng,
            scale_to=design.population_size, variance="sample",
        )
    )  # fmt: skip
    noisy = released.published.get(STATISTICS_NAME)
    found = None if draws.settings.m < 2 else compare_with_sample(
        facts, model, replace(survey, design=design), draws, published_of(tables),
        statistics=None if noisy is None else statistics_of(noisy["statistics"]),
        risk_weights=released.by_record.get("risk_weight"),
    )  # fmt: skip
    return ModelRun(model.title, spec, shown, found), frames(spec, tables)
