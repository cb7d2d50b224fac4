"""One run of a specification on a survey, in memory: the one place that knows the order of steps.

``release`` writes a run, ``tables`` shows it, ``compare``, ``study`` and ``check`` call it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from surveysynth._support import progress as stages
from surveysynth.config.build import calibration_of, engine_of, mechanism_of, model_of
from surveysynth.config.spec import Spec
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign, clusters_of
from surveysynth.inference.synthesis import published_draws
from surveysynth.mechanisms.base import Mechanism, NoiseKeeper, PrivateDraws, Released
from surveysynth.models.base import Model, require
from surveysynth.release.check import check_calibrated_name, warn_of_design
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import MicrodataWriter, public_order
from surveysynth.release.reader import ReleaseCounts, counts_of, published_datasets
from surveysynth.release.tables.layout import Labels
from surveysynth.release.tables.table_builder import (
    Tables,
    estimates_by_table,
    rows_of,
    tables_by_name,
)
from surveysynth.sampling.randomness import Streams
from surveysynth.survey.survey import PublicDesign, Survey

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins; never with anything computed from the data."""


@dataclass(frozen=True)
class Generators:
    """Random numbers of the mechanism and of what follows it, as ``Streams`` has them."""

    mechanism: np.random.Generator
    synthesis: np.random.Generator

    @classmethod
    def of(cls, stream: np.random.SeedSequence) -> "Generators":
        """Return the generators of a stream, made as a release makes them from its seed."""
        return cls(*map(np.random.default_rng, stream.spawn(2)))


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The results of a run; ``facts``, ``draws`` and ``estimates`` contain nothing confidential.

    survey: as the mechanism had it; released: what left the mechanism, and its confidential
    record; draws: what datasets are made from; estimates: of every table, by name.
    """

    facts: ReleaseFacts
    survey: Survey
    model: Model
    released: Released
    draws: PrivateDraws
    estimates: dict[str, Estimates]

    @cached_property
    def tables(self) -> dict[str, Tables]:
        """The tables, by name."""
        return tables_by_name(self.facts.spec, self.facts.design, self.estimates)


def run(
    spec: Spec,
    survey: Survey,
    streams: Generators | Streams,
    *,
    test: bool,
    chosen: Model | None = None,
    keeper: NoiseKeeper | None = None,
    say: Progress = lambda stage: None,
    ready: Callable[[ReleaseFacts], None] = lambda facts: None,
    folder: Callable[[], Path | None] = lambda: None,
) -> Run:
    """Run a specification on a survey.

    test: noise comes from the streams, and the statement says so; chosen: the model, if it is not
    that of the specification; keeper: has noise as soon as it is drawn; ready: called while nothing
    is spent; folder: returns, after the mechanism, where published datasets are written. Raises
    ``InputError`` and ``RefusedError`` where a release would.
    """
    survey, model, mechanism = prepared(spec, survey, chosen)
    facts = facts_of(spec, survey.design, mechanism, model, test=test)
    ready(facts)
    released = mechanism.run(
        model, survey.design, survey.confidential, streams.mechanism, say,
        seeded=test, keeper=keeper,
    )  # fmt: skip
    facts, draws = facts.with_design(released.design_of(facts.design)), released.draws
    place = folder()
    if mechanism.down_weights:
        debiased = published_draws(
            model, facts.design, draws, streams.synthesis,
            inference=spec.synthesizer.inference, progress=say,
        )  # fmt: skip
        facts, draws = facts.with_inference(debiased.record), debiased.draws
    say(stages.SYNTHESIS)
    estimates = synthetic_estimates(facts, model, draws, streams.synthesis, place)
    return Run(facts, survey, model, released, draws, estimates)


def prepared(
    spec: Spec, survey: Survey, chosen: Model | None = None
) -> tuple[Survey, Model, Mechanism]:
    """Return the survey as the mechanism gets it, the model of its design, and the mechanism.

    The survey has the ridge, and small strata pooled. Records of noisy statistics are sorted as
    published files are, so that tables can be rebuilt. A program that cannot run fails here, unless
    the caller has chosen (and prepared) the model.
    """
    mechanism, form = mechanism_of(spec), chosen or engine_of(spec, model_of(spec))
    design = mechanism.prepared(form.with_ridge(survey.design))
    survey = replace(survey, design=design)
    if spec.privacy.rebuildable:
        survey = survey.in_order(public_order(design))
    model = form.of(survey.design)
    require(model, survey.design)
    if chosen is None:
        model.prepare()
    return survey, model, mechanism


def synthetic_estimates(
    facts: ReleaseFacts,
    model: Model,
    draws: PrivateDraws,
    rng: np.random.Generator,
    folder: Path | None,
    *,
    every: bool = False,
) -> dict[str, Estimates]:
    """Estimate every table, by name, from all synthetic datasets, rounded as published.

    Published datasets, or with ``every`` all, are written to ``microdata`` in the folder, if one is
    given.
    """
    spec, design, mechanism = facts.spec, facts.design, facts.mechanism
    estimates = estimates_by_table(spec, design, mechanism)
    writer = None
    if folder is not None:
        writer = MicrodataWriter(
            design, folder / "microdata", facts.microdata_format, facts.labels, facts.title
        )
    for dataset in published_datasets(
        spec, design, model, draws, rng,
        inference=spec.synthesizer.inference if mechanism.down_weights else "paper",
        counts=facts.counts, calibration=facts.calibration,
    ):  # fmt: skip
        for of_table in estimates.values():
            of_table.add(dataset)
        if writer is not None and (every or dataset.replicate <= facts.published_replicates):
            writer.write(dataset)
    return estimates


def facts_of(
    spec: Spec,
    design: PublicDesign,
    mechanism: Mechanism,
    model: Model,
    *,
    test: bool,
    counts: ReleaseCounts | None = None,
) -> ReleaseFacts:
    """Gather the public facts for the files of a release.

    ``counts``: of an earlier release, if they are not to be read from its folder. Raises
    ``InputError`` for a condition or contrast of a table that the public columns do not allow, and
    for an earlier release of another design.
    """
    for each in spec.each_table:
        rows_of(each, design)
    calibration = calibration_of(spec, design)
    if calibration is not None:
        public = (name for name in calibration.columns if name not in design.outcome_names)
        design = replace(design, calibrated_by=tuple(public))
        check_calibrated_name(design)
    warn_of_design(design, stacklevel=5)
    return ReleaseFacts(
        spec=spec.for_records(design.n),
        design=design,
        mechanism=mechanism,
        statement=mechanism.statement(model, design, test=test),
        labels=Labels(spec.labels),
        df_design=float(SampleDesign.from_public(design).degrees_of_freedom),
        test=test,
        clusters=clusters_of(design, model),
        engine=model.versions(),
        calibration=calibration,
        counts=counts or counts_of(spec, design, test=test),
    ).with_public_totals()
