"""Rebuilds every table of a release by noisy statistics from its published files alone.

Datasets are those of ``read_back``, and so are the tables, to the last digit, on any machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support import progress as stages
from surveysynth._support.page import fragment
from surveysynth.config.build import mechanism_of
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release import files
from surveysynth.release.documents.context import shared_context
from surveysynth.release.facts import files_of
from surveysynth.release.folder import DOSSIER_NAMES, plan_folder, staged_folder, swap_in
from surveysynth.release.microdata import weight_column
from surveysynth.release.pipeline import facts_of, synthetic_estimates
from surveysynth.release.read_back import (
    PublishedRelease,
    published_design,
    published_spec,
    read_statistics,
    statistics_folder,
)
from surveysynth.release.tables.table import stacked_frame
from surveysynth.release.tables.table_builder import estimates_for, release_tables, tables_of_each

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.release.reader import Release

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


def combined(
    release: "Release", tables: Mapping[str, Any], microdata: Path | None = None
) -> "dict[str, pd.DataFrame]":
    """Return tables of a section [tables], by statistic: estimates of the datasets, stacked.

    microdata: a folder with all datasets, by ``rebuild``; None: those that are published. Raises
    ``InputError`` as ``rebuild``, and for a section that the columns do not allow.
    """
    content = read_statistics(statistics_folder(release.folder))
    content["specification"] = {**content["specification"], "tables": dict(tables)}
    content["specification"].pop("all_tables", None)
    spec = published_spec(content, release.folder)
    design = published_design(spec, release.folder, content)
    whole = release if microdata is None else release.with_datasets(microdata)
    m, r = (max(numbers) for numbers in zip(*whole.keys, strict=True))
    privacy = spec.privacy.model_copy(update={"m": m, "replicates_per_draw": r})
    spec = spec.model_copy(update={"privacy": privacy})
    estimates = estimates_for(spec, design, mechanism_of(spec))
    for draw, replicate in whole.keys:
        frame = whole.dataset(draw, replicate, positions=True)
        outcome = frame[list(design.outcome_names)].to_numpy(dtype=np.float64)
        weight = frame[weight_column(design)].to_numpy(dtype=np.float64)
        estimates.add(SyntheticDataset(draw, replicate, outcome, weight, outcome, weight))
    made = release_tables(spec, design, estimates)
    return {statistic: stacked_frame(of_outcomes) for statistic, of_outcomes in made.items()}

