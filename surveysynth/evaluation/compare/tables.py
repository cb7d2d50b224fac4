"""Tables of the sample and of synthesizers, as frames; several tables of one release are stacked.

Comparisons look at all rows of a statistic together, whichever their table; pages show each table
by itself. All frames are confidential.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.config import build
from surveysynth.config.sections import replicates_of
from surveysynth.errors import InputError
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.replicated_sample import ReplicatedSample
from surveysynth.estimation.statistics import TABLE
from surveysynth.inference.synthesis import SyntheticDataset, published_draws, synthesise
from surveysynth.models.base import require
from surveysynth.release.folder.microdata import public_order
from surveysynth.release.pipeline import facts_of, synthetic_estimates
from surveysynth.release.tables.table_builder import estimates_of_each, tables_of_each

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.survey.survey import PublicDesign, Survey

Key: TypeAlias = tuple[str, str | None]
"""A statistic and an outcome by their names, None for counts."""


def stacked(spec: "Spec", tables: Mapping[str, Mapping[Key, pd.DataFrame]]) -> (
    dict[Key, pd.DataFrame]
):
    """Stack the frames of all tables, by name, into one for each key.

    By-columns that a table lacks are empty.
    """
    if not spec.named_tables:
        (alone,) = tables.values()
        return dict(alone)
    keys = dict.fromkeys(key for frames in tables.values() for key in frames)
    return {
        key: _below_each_other(
            spec, {name: frames[key] for name, frames in tables.items() if key in frames}
        )
        for key in keys
    }


def _below_each_other(spec: "Spec", frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    parts = [frame.assign(**{TABLE: name}) for name, frame in frames.items()]
    whole = pd.concat(parts, ignore_index=True)
    by = [name for name in spec.by if name in whole]
    whole = whole.fillna(dict.fromkeys(by, ""))
    first = [TABLE, *by]
    return whole[[*first, *(name for name in whole if name not in first)]]


def by_table(spec: "Spec", frame: pd.DataFrame) -> "Iterator[tuple[Spec, pd.DataFrame]]":
    """Yield the rows of each table in a stacked frame, with its by-columns and specification."""
    for each in spec.each_table:
        if not spec.named_tables:
            yield each, frame
            continue
        rows = frame[frame[TABLE] == each.table.name].reset_index(drop=True)
        others = [name for name in spec.by if name not in each.table.by and name in rows]
        if len(rows):
            yield each, rows.drop(columns=[TABLE, *others])


@dataclass(frozen=True, eq=False, repr=False)
class ModelRun:
    """One synthesizer's run, confidential, and one dataset in the form of a release.

    spec: as it ran; by_record: what the mechanism found for each record, (n,) by name, empty for
    noisy statistics. ``dataset`` holds smoothed weights, and as the pair for variances the drawn
    ones.
    """

    title: str
    spec: "Spec"
    by_record: Mapping[str, FloatArray]
    dataset: SyntheticDataset


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
    """Return tables in the form of a release, without degrees of freedom.

    n comes before the numbers, the flag after; several tables are stacked.
    """
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


#: Rows farther from the sample than this, in its standard errors, are marked.
FAR = 3.0

#: Standard errors below this share of an estimate are rounding: the number is public.
ROUNDING = 1e-9


def without_flags(spec: "Spec") -> "Spec":
    """Return the specification with every row kept, even if a release would withhold it."""
    unflagged = tuple(each.model_copy(update={"flags": "none"}) for each in spec.tables)
    return spec.model_copy(update={"tables": unflagged})


def sample_weight(survey: "Survey") -> FloatArray:
    """Return the weights (n,) for estimates of the sample; raise ``InputError`` without any."""
    weight = survey.sampling_weight
    if weight is None:
        raise InputError("a comparison of survey tables needs sampling weights; give weight.")
    return weight


def sample_tables(spec: "Spec", survey: "Survey") -> dict[Key, pd.DataFrame]:
    """Estimate the tables of a specification from the sample itself.

    Design, statistics and weights are those of a release. Values are real, so variances are by PSU
    even if a design effect is declared, or by the agency's replicate weights.
    """
    by_psu = replace(survey.design, design_effect=None)
    estimates = estimates_of_each(spec, by_psu, rule=_replication(spec, survey))
    for of_table in estimates.values():
        of_table.add_alone(survey.confidential.outcome, sample_weight(survey))
    return frames(spec, by_psu, estimates)


def _replication(spec: "Spec", survey: "Survey") -> ReplicatedSample | None:
    """Return the rule of the sample's replicate weights, calibrated like its weight; or None."""
    replicates = replicates_of(spec.survey, survey)
    if replicates is None:
        return None
    calibration = build.calibration_of(spec, survey.design)
    return ReplicatedSample.of(
        replicates,
        sample_weight(survey),
        None
        if calibration is None
        else lambda weight: calibration.calibrate(weight, survey.confidential.outcome),
    )


def distances(
    estimate: FloatArray | pd.Series, sample: FloatArray | pd.Series, se: FloatArray | pd.Series
) -> FloatArray:
    """Return estimate less the sample's, in standard errors of the sample, (D,).

    NaN if the sample has no error, as for a public total, or if there is no estimate.
    """
    theirs, own, error = (np.asarray(each, dtype=np.float64) for each in (estimate, sample, se))
    result = np.full(own.shape, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        usable = np.isfinite(theirs) & (error > ROUNDING * np.abs(own)) & np.isfinite(error)
        result[usable] = (theirs[usable] - own[usable]) / error[usable]
    return result
