"""Rebuilds every table of a release by noisy statistics from its published files alone.

Datasets are those of ``read_back``, and so are the tables, to the last digit, on any machine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surveysynth._support import progress as stages
from surveysynth._support.page import fragment
from surveysynth.config.build import mechanism_of
from surveysynth.release import files
from surveysynth.release.documents.context import shared_context
from surveysynth.release.facts import files_of
from surveysynth.release.folder import DOSSIER_NAMES, plan_folder, staged_folder, swap_in
from surveysynth.release.read_back import PublishedRelease, statistics_folder
from surveysynth.release.run import facts_of, synthetic_estimates
from surveysynth.release.tables.table_builder import tables_of_each

Progress = Callable[[str], None]


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
        tables = tables_of_each(facts.spec, facts.design, estimates)
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
