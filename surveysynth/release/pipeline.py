"""From a specification to a published folder, and from a published folder back to its tables.

``release`` is the only function that publishes. ``rebuild`` makes the tables of a release by noisy
statistics again from its published files alone (``reader``), to the last digit, on any machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from surveysynth._support import progress as stages
from surveysynth._support.page import fragment
from surveysynth._support.progress import shows_stages
from surveysynth.config.build import (
    engine_of,
    mechanism_of,
    model_of,
    read_survey,
    with_file_labels,
)
from surveysynth.config.spec import load_spec
from surveysynth.errors import StoppedError, SurveySynthError
from surveysynth.release import files
from surveysynth.release.check import (
    Kind,
    Warned,
    check_formats,
    last_messages,
    public_warnings,
)
from surveysynth.release.facts import ReleaseFacts, files_of
from surveysynth.release.files import shared_context, write_compared
from surveysynth.release.folder import (
    DOSSIER_NAMES,
    INDEX_NAME,
    RELEASE,
    Staging,
    plan_bundle,
    plan_folder,
    publish,
    reserved,
    staged,
    staged_folder,
    swap_in,
)
from surveysynth.release.ledger import LedgerSummary, summarize
from surveysynth.release.reader import COUNTS_NAME, PublishedRelease, statistics_folder
from surveysynth.release.run import Progress, Run, facts_of, run, synthetic_estimates
from surveysynth.release.run_record import PendingNoise, hints_of, run_to_record, with_unit_size
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.tables.table_builder import flat_tables, tables_by_name
from surveysynth.sampling.randomness import Streams
from surveysynth.survey.declaration import refuse_sources


@dataclass(frozen=True)
class ReleaseResult:
    """The location of the files, their tables, and the totals of the ledger (confidential).

    ``tables``: by statistic, and where there are several tables by "NAME/statistic";
    ``ledger_path``: the file of the ledger; ``ledger_hints``: spending that its totals may miss.
    Only the person who ran the release may read ``confidential_warning``, which is empty where
    there is none.
    """

    out: Path
    confidential: Path
    tables: Mapping[str, Sequence[ReleaseTable]]
    warnings: tuple[Warned, ...]
    ledger: LedgerSummary
    ledger_path: Path
    ledger_hints: tuple[str, ...] = ()
    confidential_warning: str = field(default="", repr=False)

    def closing(self, details: str) -> list[str]:
        """Return where everything is and what has been spent; ``details``: where to read more."""
        hints = len(self.ledger_hints)
        notes = f" {hints} note{'s' * (hints > 1)}." if hints else ""
        barred = any(each.kind is Kind.UNPUBLISHABLE for each in self.warnings)
        told = "do not publish" if barred else "publish this folder"
        return [
            f"Released: {self.out / RELEASE} ({told}). Start with {INDEX_NAME}.",
            f"Private:  {self.confidential} (never publish).",
            f"Budget:   {self.ledger.short()}.{notes} Details: {details}",
        ]

    def _repr_html_(self) -> str:
        """Return where everything is, for notebooks; without a confidential number."""
        return fragment(
            "Release",
            mark=[each.text for each in self.warnings],
            lines=self.closing("ledger and ledger_hints of this result."),
        )


@shows_stages()
def release(
    spec: str | Path,
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleaseResult:
    """Run the mechanism on a survey and write its private tables and microdata.

    Parameters
    ----------
    spec
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    confidential
        The folder for realized bounds, risk weights and a copy of the ledger; by default
        ``out``/confidential.
    ledger
        The file of the survey's ledger; by default one in the user's state folder, named by the id
        of the survey ([survey] id) or else by the location of its file.
    overwrite
        Replaces ``out`` if a release wrote it.
    seed
        Makes the run repeatable, which undoes its protection: every file is then marked as a
        test and not private. Without it, random numbers come from the operating system.
    progress
        Called with the name of each stage; otherwise notebooks show a progress bar.

    Returns
    -------
    ReleaseResult
        The location of the files, the tables, and the totals of the ledger.

    Raises
    ------
    InputError
        For unusable input and existing targets.
    RefusedError
        If a release would not satisfy its statement, or would exceed the budget ([privacy] budget).
        After any exception nothing is written, except the ledger and the noisy numbers of a run of
        noisy statistics. The same specification and data continue from them at no further cost.

    Warns
    -----
    FormulaCutWarning
        If levels, cells, or interactions have too few records for coefficients of their own.
    FewRecordsWarning
        If spikes have few records even if all kinds of values are equally common.
    DroppedRecordsWarning
        If dropping records with missing cells changes counts and means.
    ConfidentialWarning
        Before noise is drawn: amounts outside their declared range, and weights far from the
        population size.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     released = ss.release(spec, Path(folder) / "out", seed=1)
    ...     sorted(path.name for path in (released.out / "release").iterdir() if path.is_dir())
    ['figures', 'microdata', 'tables']
    """
    say = progress or (lambda stage: None)
    plan = plan_bundle(
        Path(out), None if confidential is None else Path(confidential), overwrite=overwrite
    )
    specification = with_file_labels(load_spec(spec))
    streams, test = Streams(seed, published=specification.privacy.rebuildable), seed is not None
    chosen = engine_of(specification, model_of(specification))
    if chosen.compiled:  # a program that cannot run fails before anything is read
        say(stages.COMPILING)
        chosen.prepare()
    pending = run_to_record(specification, plan, ledger, test=test)
    with _advice_on_errors(pending), reserved(plan, files_of(specification)), ExitStack() as stack:
        pending.require_room()  # before the confidential values are looked at
        say(stages.READING)
        survey = read_survey(specification)
        refuse_sources(survey.design.confidential_sources)
        staging: list[Staging] = []

        def ready(facts: ReleaseFacts) -> None:
            check_formats(specification, facts.design)
            pending.entry = with_unit_size(pending.entry, specification, facts.design)
            survey.warn(stacklevel=4)

        def folder() -> Path:
            staging.append(stack.enter_context(staged(plan)))
            return staging[0].release

        made = run(
            specification, survey, streams, test=test, chosen=chosen,
            keeper=None if test else pending, say=say, ready=ready, folder=folder,
        )  # fmt: skip
        say(stages.DOCUMENTS)
        _write(made, staging[0], streams)
        say(stages.WRITING)
        barred = (Warned(Kind.UNPUBLISHABLE, text) for text in made.facts.warnings)
        of_survey = public_warnings(made.facts.spec, made.facts.design)
        warned = last_messages((*barred, *of_survey))
        # What can fail goes before what cannot be undone.
        hints = hints_of(pending.ledger, pending.entry, named=ledger is not None)
        entries = publish(plan, staging[0], pending.ledger, pending.entry)
        pending.published = True
    return ReleaseResult(
        plan.out, plan.confidential, flat_tables(made.tables), warned,
        summarize(entries, pending.ledger.survey), pending.ledger.path,
        hints, survey.confidential_warning(),
    )  # fmt: skip


@contextmanager
def _advice_on_errors(pending: PendingNoise) -> Iterator[None]:
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


def _write(made: Run, staging: Staging, streams: Streams) -> None:
    """Fill the temporary folders, which have the microdata."""
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


@dataclass(frozen=True)
class Rebuilt:
    """The folder of rebuilt files, and which of them equal those of the release byte by byte."""

    out: Path
    same: tuple[str, ...]
    different: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Return which files are equal, for notebooks."""
        lines = [f"Rebuilt: {self.out}.", f"Equal, byte by byte: {len(self.same):,} files."]
        return fragment("Tables rebuilt", mark=[f"Not equal: {each}" for each in self.different],
                        lines=lines)  # fmt: skip


def rebuild(
    release: str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    all_datasets: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Rebuild the tables of a release by noisy statistics.

    Parameters
    ----------
    release
        The published folder, or the one that holds it as ``release``.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set and it is such a one.
    all_datasets
        Whether to write all m r datasets to ``microdata`` too.
    progress
        Called with the name of each stage.

    Raises
    ------
    InputError
        For a folder without ``statistics.json`` or microdata, files that do not fit together, and
        targets that exist.
    """
    say = progress or (lambda stage: None)
    source = statistics_folder(Path(release))
    target = plan_folder(
        Path(out), overwrite=overwrite,
        own=("tables", "figures", "microdata", *DOSSIER_NAMES), marker="tables",
        what="rebuilt tables",
    )  # fmt: skip
    say(stages.READING)
    published = PublishedRelease.read(source)
    spec = published.spec
    facts = facts_of(
        spec, published.design, mechanism_of(spec), published.model,
        test=not published.is_private, counts=published.counts,
    )  # fmt: skip
    say(stages.SYNTHESIS)
    with staged_folder(target, "rebuilt tables") as folder:
        kept = folder if all_datasets else None
        estimates = synthetic_estimates(
            facts, published.model, published.draws, published.synthesis_rng(), kept,
            every=all_datasets,
        )  # fmt: skip
        say(stages.DOCUMENTS)
        tables = tables_by_name(facts.spec, facts.design, estimates)
        files.write_tables(facts, tables, folder)
        files.write_dossier(facts, shared_context(facts), folder)
        made = [*files_of(spec), *DOSSIER_NAMES]
        same = tuple(
            each for each in made
            if (source / each).is_file()
            and (folder / each).read_bytes() == (source / each).read_bytes()
        )  # fmt: skip
        swap_in(folder, target)
    return Rebuilt(target, same, tuple(each for each in made if each not in same))
