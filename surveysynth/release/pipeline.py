"""The release pipeline, from a specification to a folder: the only one that publishes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support import progress as stages
from surveysynth.errors import StoppedError, SurveySynthError
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import clusters_of
from surveysynth.release.compared import write_compared
from surveysynth.release.folder import Staging, plan_bundle, publish, reserved, staged
from surveysynth.release.ledger import summarise
from surveysynth.release.microdata import public_order
from surveysynth.release.public_checks import (
    check_calibrated_name,
    check_formats,
    public_warnings,
    warn_of_design,
)
from surveysynth.release.read_back import counts_of
from surveysynth.release.release_counts import COUNTS_NAME, ReleaseCounts, published_datasets
from surveysynth.release.result import ReleaseResult
from surveysynth.release.run_record import hints_of, run_to_record, with_unit_size
from surveysynth.release.tables.table_builder import (
    Tables,
    estimates_of_each,
    flat_tables,
    rows_of,
    tables_of_each,
)
from surveysynth.release.warned import Kind, Warned, shown_last
from surveysynth.sampling.randomness import Streams
from surveysynth.survey.declaration import refuse_sources

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.mechanisms.base import Mechanism, PrivateDraws, Released
    from surveysynth.models.base import Model
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.release.run_record import PendingNoise
    from surveysynth.survey.survey import PublicDesign, Survey

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins; never with anything computed from the data."""


def release(
    spec_path: str | Path,
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleaseResult:
    """Run the mechanism on a survey and write its private tables and microdata.

    Arguments, result, and errors are those of ``surveysynth.release``.
    """
    from surveysynth.config.build import engine_of, mechanism_of, model_of, with_file_labels
    from surveysynth.config.spec import load_spec
    from surveysynth.release.facts import files_of

    say = progress or (lambda stage: None)
    plan = plan_bundle(
        Path(out), None if confidential is None else Path(confidential), overwrite=overwrite
    )
    spec = with_file_labels(load_spec(spec_path))
    streams, test = Streams(seed, published=spec.privacy.rebuildable), seed is not None
    chosen, mechanism = engine_of(spec, model_of(spec)), mechanism_of(spec)
    if chosen.compiled:  # a program that cannot run fails before anything is read
        say(stages.COMPILING)
        chosen.prepare()
    pending = run_to_record(spec, plan, ledger, test=test)
    with _advice_on_errors(pending), reserved(plan, files_of(spec)):
        pending.require_room()  # before the confidential values are looked at
        say(stages.READING)
        survey, model = survey_and_model(spec, chosen, mechanism)
        facts = facts_of(spec, survey.design, mechanism, model, test=test)
        pending.entry = with_unit_size(pending.entry, spec, survey.design)
        survey.warn(stacklevel=2)  # while nothing is spent
        released = mechanism.run(
            model, survey.design, survey.confidential, streams.mechanism, say,
            seeded=test, keeper=None if test else pending,
        )  # fmt: skip
        facts = facts.with_design(released.design_of(facts.design))
        with staged(plan) as staging:
            facts, tables = _write(facts, model, released, staging, streams, say)
            say(stages.WRITING)
            warned = shown_last((
                *(Warned(Kind.UNPUBLISHABLE, text) for text in facts.warnings),
                *public_warnings(facts.spec, facts.design),
            ))  # fmt: skip
            # What can fail goes before what cannot be undone.
            hints = hints_of(pending.ledger, pending.entry, named=ledger is not None)
            entries = publish(plan, staging, pending.ledger, pending.entry)
            pending.published = True
    return ReleaseResult(
        plan.out, plan.confidential, flat_tables(tables), warned,
        summarise(entries, pending.ledger.survey), pending.ledger.path,
        hints, survey.confidential_warning(),
    )  # fmt: skip


def survey_and_model(
    spec: "Spec", chosen: "Model", mechanism: "Mechanism"
) -> "tuple[Survey, Model]":
    """Read the survey as the mechanism gets it, with its model; refuse what cannot be released."""
    from surveysynth.config.build import read_survey

    survey = read_survey(spec)
    refuse_sources(survey.design.confidential_sources)
    survey = prepared_survey(survey, spec, chosen, mechanism)
    model = chosen.of(survey.design)
    check_formats(spec, survey.design)
    return survey, model


def prepared_survey(
    survey: "Survey", spec: "Spec", model: "Model", mechanism: "Mechanism"
) -> "Survey":
    """Return the survey as the mechanism gets it: with the ridge, small strata pooled, and sorted.

    Records of noisy statistics are sorted as published files do, so that tables can be rebuilt.
    """
    design = mechanism.prepared(model.with_ridge(survey.design))
    made = replace(survey, design=design)
    return made.in_order(public_order(design)) if spec.privacy.rebuildable else made


@contextmanager
def _advice_on_errors(pending: "PendingNoise") -> Iterator[None]:
    """Add to errors, and to Ctrl-C, what happens to noise that is pending.

    Once the release is published, nothing is left that Ctrl-C could stop.
    """
    try:
        yield
    except KeyboardInterrupt:
        if pending.published:
            return
        if pending.waits:
            raise StoppedError(pending.stopped) from None
        raise
    except SurveySynthError as error:
        if pending.used and not pending.published:
            raise type(error)(f"{error} {pending.advice}") from None
        raise


def _write(
    facts: "ReleaseFacts",
    model: "Model",
    released: "Released",
    staging: Staging,
    streams: "Streams",
    say: Progress,
) -> "tuple[ReleaseFacts, Mapping[str, Tables]]":
    """Synthesize, estimate each dataset as it streams by, and fill the temporary folders."""
    from surveysynth.release import files

    facts, draws = synthesis_draws(facts, model, released.draws, streams.synthesis, say)
    say(stages.SYNTHESIS)
    estimates = synthetic_estimates(facts, model, draws, streams.synthesis, staging.release)
    say(stages.DOCUMENTS)
    tables = tables_of_each(facts.spec, facts.design, estimates)
    files.write_tables(facts, tables, staging.release)
    separate_pair = any(each.separate_pair for each in estimates.values())
    files.write_documents(facts, tables, model.title, staging.release, separate_pair=separate_pair)
    published = released.published
    if facts.counts is not None:
        taken = {COUNTS_NAME: facts.counts.to_dict()}
        published = {name: {**content, **taken} for name, content in published.items()}
    files.write_published(facts, published, streams.entropy, staging.release)
    files.write_index(facts, staging.release)
    files.write_confidential(released, staging.confidential, facts.microdata_format)
    write_compared(staging.confidential, facts.spec, draws, tables)
    return facts, tables


def private_estimates(
    facts: "ReleaseFacts",
    model: "Model",
    draws: "PrivateDraws",
    rng: np.random.Generator,
    say: Progress,
) -> "tuple[ReleaseFacts, dict[str, Estimates]]":
    """Return the facts, with the inference, and the estimates of ``synthetic_estimates``.

    These are the steps after the mechanism. They see nothing confidential.
    """
    facts, draws = synthesis_draws(facts, model, draws, rng, say)
    say(stages.SYNTHESIS)
    return facts, synthetic_estimates(facts, model, draws, rng, None)


def synthesis_draws(
    facts: "ReleaseFacts",
    model: "Model",
    draws: "PrivateDraws",
    rng: np.random.Generator,
    say: Progress,
) -> "tuple[ReleaseFacts, PrivateDraws]":
    """Return the draws that datasets are made from, debiased if asked for, and the facts."""
    from surveysynth.inference.synthesis import published_draws

    if not facts.mechanism.down_weights:
        return facts, draws
    debiased = published_draws(
        model, facts.design, draws, rng, inference=facts.spec.synthesizer.inference, progress=say
    )
    return facts.with_inference(debiased.record), debiased.draws


def synthetic_estimates(
    facts: "ReleaseFacts",
    model: "Model",
    draws: "PrivateDraws",
    rng: np.random.Generator,
    folder: Path | None,
    *,
    every: bool = False,
) -> dict[str, Estimates]:
    """Estimate every table, by name, from all synthetic datasets, rounded as published.

    Published datasets, or with ``every`` all, are written to ``microdata`` in the folder, if one is
    given.
    """
    from surveysynth.release.microdata import MicrodataWriter

    spec, design, mechanism = facts.spec, facts.design, facts.mechanism
    estimates = estimates_of_each(spec, design, mechanism)
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
    spec: "Spec",
    design: "PublicDesign",
    mechanism: "Mechanism",
    model: "Model",
    *,
    test: bool,
    counts: ReleaseCounts | None = None,
) -> "ReleaseFacts":
    """Gather the public facts for the files of a release.

    ``counts``: of an earlier release, where they are not to be read from its folder. Raises
    ``InputError`` for a condition or contrast of a table that the public columns do not allow, and
    for an earlier release of another design.
    """
    from surveysynth.config.build import calibration_of
    from surveysynth.estimation.sample_design import SampleDesign
    from surveysynth.release.facts import ReleaseFacts, labels_of

    for each in spec.each_table:
        rows_of(each, design)
    calibration = calibration_of(spec, design)
    if calibration is not None:
        public = (name for name in calibration.columns if name not in design.outcome_names)
        design = replace(design, calibrated_by=tuple(public))
        check_calibrated_name(design)
    warn_of_design(design, stacklevel=4)
    return ReleaseFacts(
        spec=spec.for_records(design.n),
        design=design,
        mechanism=mechanism,
        statement=mechanism.statement(model, design, test=test),
        labels=labels_of(spec),
        df_design=float(SampleDesign.from_public(design).degrees_of_freedom),
        test=test,
        clusters=clusters_of(design, model),
        engine=model.versions(),
        calibration=calibration,
        counts=counts or counts_of(spec, design, test=test),
    ).with_counts().with_calibration()
