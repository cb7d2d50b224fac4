"""The release pipeline, from a specification to a folder: the only one that publishes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth._support import progress as stages
from surveysynth.errors import StoppedError, SurveySynthError
from surveysynth.release.compared import write_compared
from surveysynth.release.folder import Staging, plan_bundle, publish, reserved, staged
from surveysynth.release.ledger import summarise
from surveysynth.release.public_checks import check_formats, public_warnings
from surveysynth.release.release_counts import COUNTS_NAME
from surveysynth.release.result import ReleaseResult
from surveysynth.release.run import Progress, Run, run
from surveysynth.release.run_record import hints_of, run_to_record, with_unit_size
from surveysynth.release.tables.table_builder import flat_tables
from surveysynth.release.warned import Kind, Warned, shown_last
from surveysynth.sampling.randomness import Streams
from surveysynth.survey.declaration import refuse_sources

if TYPE_CHECKING:
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.release.run_record import PendingNoise


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
    from surveysynth.config.build import engine_of, model_of, read_survey, with_file_labels
    from surveysynth.config.spec import load_spec
    from surveysynth.release.facts import files_of

    say = progress or (lambda stage: None)
    plan = plan_bundle(
        Path(out), None if confidential is None else Path(confidential), overwrite=overwrite
    )
    spec = with_file_labels(load_spec(spec_path))
    streams, test = Streams(seed, published=spec.privacy.rebuildable), seed is not None
    chosen = engine_of(spec, model_of(spec))
    if chosen.compiled:  # a program that cannot run fails before anything is read
        say(stages.COMPILING)
        chosen.prepare()
    pending = run_to_record(spec, plan, ledger, test=test)
    with _advice_on_errors(pending), reserved(plan, files_of(spec)), ExitStack() as stack:
        pending.require_room()  # before the confidential values are looked at
        say(stages.READING)
        survey = read_survey(spec)
        refuse_sources(survey.design.confidential_sources)
        staging: list[Staging] = []

        def ready(facts: "ReleaseFacts") -> None:
            check_formats(spec, facts.design)
            pending.entry = with_unit_size(pending.entry, spec, facts.design)
            survey.warn(stacklevel=4)

        def folder() -> Path:
            staging.append(stack.enter_context(staged(plan)))
            return staging[0].release

        made = run(
            spec, survey, streams, test=test, chosen=chosen, keeper=None if test else pending,
            say=say, ready=ready, folder=folder,
        )  # fmt: skip
        say(stages.DOCUMENTS)
        _write(made, staging[0], streams)
        say(stages.WRITING)
        warned = _warned(made.facts)
        # What can fail goes before what cannot be undone.
        hints = hints_of(pending.ledger, pending.entry, named=ledger is not None)
        entries = publish(plan, staging[0], pending.ledger, pending.entry)
        pending.published = True
    return ReleaseResult(
        plan.out, plan.confidential, flat_tables(made.tables), warned,
        summarise(entries, pending.ledger.survey), pending.ledger.path,
        hints, survey.confidential_warning(),
    )  # fmt: skip


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


def _warned(facts: "ReleaseFacts") -> tuple[Warned, ...]:
    """Return reasons not to publish the files, and what to look at before they are published."""
    barred = (Warned(Kind.UNPUBLISHABLE, text) for text in facts.warnings)
    return shown_last((*barred, *public_warnings(facts.spec, facts.design)))


def _write(made: Run, staging: Staging, streams: Streams) -> None:
    """Fill the temporary folders, which have the microdata."""
    from surveysynth.release import files

    facts, tables, released = made.facts, made.tables, made.released
    files.write_tables(facts, tables, staging.release)
    separate_pair = any(each.separate_pair for each in made.estimates.values())
    files.write_documents(
        facts, tables, made.model.title, staging.release, separate_pair=separate_pair
    )
    published = released.published
    if facts.counts is not None:
        taken = {COUNTS_NAME: facts.counts.to_dict()}
        published = {name: {**content, **taken} for name, content in published.items()}
    files.write_published(facts, published, streams.entropy, staging.release)
    files.write_index(facts, staging.release)
    files.write_confidential(released, staging.confidential, facts.microdata_format)
    write_compared(staging.confidential, facts.spec, made.draws, tables)
