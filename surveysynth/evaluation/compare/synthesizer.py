"""One synthesizer of a comparison: its run, its tables, and how far from the sample they are."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth.evaluation.compare.adequacy import Findings, compare_with_sample
from surveysynth.evaluation.compare.tables import Key, frames
from surveysynth.inference.synthesis import SyntheticDataset, synthesise
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.release.compared import published_of
from surveysynth.release.run import Generators, run

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
    made = run(spec, survey, Generators.of(stream), test=seeded)
    facts, design, draws = made.facts, made.facts.design, made.draws
    (figures,) = stream.spawn(1)
    shown = next(
        synthesise(
            made.model, design, draws, replicates_per_draw=1, rng=np.random.default_rng(figures),
            scale_to=design.population_size, variance="sample",
        )
    )  # fmt: skip
    noisy = made.released.published.get(STATISTICS_NAME)
    found = None if draws.settings.m < 2 else compare_with_sample(
        facts, made.model, replace(made.survey, design=design), draws, published_of(made.tables),
        statistics=None if noisy is None else LocationStatistics.from_dict(noisy["statistics"]),
        risk_weights=made.released.by_record.get("risk_weight"),
    )  # fmt: skip
    return ModelRun(made.model.title, spec, shown, found), frames(spec, made.tables)
