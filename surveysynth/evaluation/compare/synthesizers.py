"""One synthesizer of a comparison: a release that is not written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.estimation.clusters import refuse_clusters
from surveysynth.estimation.estimates import Estimates
from surveysynth.evaluation.compare.several import Key, stacked
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.tables.table_builder import tables_of_each

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign, Survey


@dataclass(frozen=True, eq=False, repr=False)
class ModelRun:
    """One synthesizer's run, confidential, and one dataset as it would be released.

    spec: as it ran; by_record: what the mechanism found of each record, (n,) by name, empty for
    noisy statistics, which find nothing. ``dataset`` holds smoothed weights, and as the pair for
    variances what was drawn.
    """

    title: str
    spec: "Spec"
    by_record: Mapping[str, FloatArray]
    dataset: SyntheticDataset


def run_synthesizer(
    spec: "Spec", survey: "Survey", stream: np.random.SeedSequence, *, seeded: bool
) -> tuple[ModelRun, dict[Key, pd.DataFrame]]:
    """The mechanism and the tables that a release of ``spec`` would publish.

    Generators of the mechanism and of what follows it come from ``stream`` as those of a release
    come from its seed. ``seeded``: noise comes from it too, else from the operating system.
    """
    from surveysynth.inference.published import published_draws
    from surveysynth.inference.synthesis import synthesise
    from surveysynth.models.base import require
    from surveysynth.release.folder.microdata import public_order
    from surveysynth.release.pipeline import facts_of, synthetic_estimates
    from surveysynth.spec import build

    if spec.privacy.rebuildable:  # as in a release, whose tables can be made again from its files
        survey = survey.in_order(public_order(survey.design))
    mechanism = build.mechanism_of(spec)
    design = mechanism.prepared(survey.design)
    mechanism_rng, synthesis_rng, figure_rng = map(np.random.default_rng, stream.spawn(3))
    model = build.engine_of(spec, build.model_of(spec)).of(design)
    refuse_clusters(design, model)
    require(model, design)
    model.prepare()
    released = mechanism.run(model, design, survey.confidential, mechanism_rng, seeded=seeded)
    draws = released.draws
    if mechanism.down_weights:
        inference = spec.synthesizer.inference
        draws = published_draws(model, design, draws, synthesis_rng, inference=inference).draws
    facts = facts_of(spec, design, mechanism, model, test=seeded)
    estimates = synthetic_estimates(facts, model, draws, synthesis_rng, None)
    shown = next(
        synthesise(
            model, design, draws, replicates_per_draw=1, rng=figure_rng,
            scale_to=design.population_size, variance="sample",
        )
    )  # fmt: skip
    run = ModelRun(model.title, spec, released.by_record, shown)
    return run, frames(spec, design, estimates)


def frames(
    spec: "Spec", design: "PublicDesign", estimates: Mapping[str, Estimates]
) -> dict[Key, pd.DataFrame]:
    """Tables as a release has them, without degrees of freedom; n before the numbers, the flag
    after; stacked where there are several."""
    made = tables_of_each(spec.for_records(design.n), design, estimates)
    return stacked(spec, {
        name: {
            (table.statistic, table.outcome): _columns(table.frame)
            for of_statistic in tables.values()
            for table in of_statistic
        }
        for name, tables in made.items()
    })  # fmt: skip


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    numbers = ["estimate", "se", "ci_lower", "ci_upper"]
    apart = {*numbers, "n", "flag", "df", "df_design"}
    return frame[[*(name for name in frame if name not in apart), "n", *numbers, "flag"]].copy()
