"""Rebuilds every table of a release by noisy statistics from its published files alone.

The steps after the draws, which ``statistics.json`` has, are a function of that file and of the
public columns of the microdata: the same seed gives the same datasets and tables, to the last
digit, on any machine.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pydantic import ValidationError

from surveysynth._support import progress as stages
from surveysynth._support.fragment import fragment
from surveysynth.config.build import declaration_of, mechanism_of, model_of, noisy_settings_of
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.mechanisms.learned.histogram import learned_design
from surveysynth.mechanisms.learned.stage import histograms_in
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME, published_draws
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.release import files
from surveysynth.release.facts import curve_files, files_of
from surveysynth.release.folder.bundle import DOSSIER_NAMES, plan_folder, staged_folder, swap_in
from surveysynth.release.folder.microdata import (
    file_name,
    format_of,
    fraction_name,
    weight_column,
)
from surveysynth.release.folder.published_files import CODEBOOK_NAME, read_json, read_records
from surveysynth.release.pipeline import Streams, facts_of, synthetic_estimates
from surveysynth.release.tables.table import stacked_frame
from surveysynth.release.tables.table_builder import estimates_for, release_tables, tables_of_each
from surveysynth.release.writers.csv import plain_text
from surveysynth.release.writers.stata_spss import PROGRAMS
from surveysynth.survey.files import open_table
from surveysynth.survey.survey import PublicDesign, public_design

if TYPE_CHECKING:
    import pandas as pd

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
    source = _folder_of(Path(release))
    target = plan_folder(
        Path(out), overwrite=overwrite,
        own=("tables", "figures", "microdata", *DOSSIER_NAMES), marker="tables",
        what="rebuilt tables",
    )  # fmt: skip
    content = _read(source / STATISTICS_NAME)
    spec = _spec_of(content, source)
    say(stages.READING)
    design = replace(
        _design_of(spec, source, int(content["records_dropped"])), shift=content.get("shift", "")
    )
    histograms = histograms_in(content)
    design = learned_design(design, histograms)
    statistics = LocationStatistics.from_dict(content["statistics"])
    model, mechanism = model_of(spec).of(design), mechanism_of(spec)
    streams = Streams(int(content["seed"]), published=True)
    draws = published_draws(content, model, noisy_settings_of(spec))
    facts = facts_of(spec, design, mechanism, model, test=not statistics.is_private)
    say(stages.SYNTHESIS)
    with staged_folder(target, "rebuilt tables") as folder:
        kept = folder if all_datasets else None
        estimates = synthetic_estimates(
            facts, model, draws, streams.synthesis, kept, every=all_datasets
        )
        say(stages.DOCUMENTS)
        tables = tables_of_each(facts.spec, design, estimates)
        files.write_tables(facts, tables, folder)
        files.write_dossier(facts, folder)
        files.write_curves(facts, histograms, folder)
        made = [f"{place}/{name}" for place, name, _ in files_of(spec)] + curve_files(spec)
        made += DOSSIER_NAMES
        same = tuple(each for each in made if _equal(folder / each, source / each))
        swap_in(folder, target)
    return Rebuilt(target, same, tuple(each for each in made if each not in same))


class Datasets(Protocol):
    """The synthetic datasets of a release that was read back."""

    @property
    def folder(self) -> Path:
        """Of the published files."""
        ...

    @property
    def keys(self) -> tuple[tuple[int, int], ...]:
        """(draw, replicate) of every dataset."""
        ...

    def dataset(
        self, draw: int, replicate: int = 1, *, positions: bool = False
    ) -> "pd.DataFrame":
        """Return one of them; ``positions``: of levels, in place of codes."""
        ...

    def with_datasets(self, folder: Path) -> "Datasets":
        """Return the release with the datasets of another folder."""
        ...


def combined(
    release: Datasets, tables: Mapping[str, Any], microdata: Path | None = None
) -> "dict[str, pd.DataFrame]":
    """Return tables of a section [tables], by statistic: estimates of the datasets, stacked.

    microdata: a folder with all datasets, by ``rebuild``; None: those that are published. Raises
    ``InputError`` as ``rebuild``, and for a section that the columns do not allow.
    """
    content = _read(_folder_of(release.folder) / STATISTICS_NAME)
    content["specification"] = {**content["specification"], "tables": dict(tables)}
    content["specification"].pop("all_tables", None)
    spec = _spec_of(content, release.folder)
    design = _design_of(spec, release.folder, int(content["records_dropped"]))
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


def _folder_of(given: Path) -> Path:
    for folder in (given, given / "release"):
        if (folder / STATISTICS_NAME).is_file():
            return folder
    raise InputError(
        f"{given} has no {STATISTICS_NAME}: expected the folder of a release by noisy statistics. "
        "Tables of other releases cannot be made again from what they publish."
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        int(content["seed"]), int(content["records_dropped"]), dict(content["statistics"])
        dict(content["specification"])
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(
            f"{path} is not as a release writes it: expected statistics, specification, seed and "
            "records_dropped. Take the file from the release again."
        ) from None
    return dict(content)


def _spec_of(content: dict[str, Any], source: Path) -> Spec:
    try:
        return Spec.model_validate({**content["specification"], "path": source / "spec.toml"})
    except ValidationError as error:
        raise InputError(
            f"the specification in {source / STATISTICS_NAME} is not valid any more "
            f"({error.error_count()} mistakes): it was written by another version, or changed."
        ) from None


def _design_of(spec: Spec, source: Path, dropped: int) -> PublicDesign:
    """Return the public half of the survey, from the first dataset of the microdata."""
    path = source / "microdata" / file_name(1, 1, format_of(spec))
    frame = _first_dataset(source, path)
    assert spec.synthesizer.predictors is not None  # a release writes the formula that it used
    declared = declaration_of(spec)
    roles = replace(declared.roles, fpc=None)
    design = public_design(
        frame, replace(declared, roles=roles, source=str(path), missing="fail")
    )
    whole = _with_fractions(design, frame, spec.survey.fpc)
    return replace(whole, dropped=dropped, missing=spec.survey.missing)


def _first_dataset(source: Path, path: Path) -> "pd.DataFrame":
    """Read it as the survey file was: codes as text, and for csv files all cells."""
    if path.suffix[1:] in PROGRAMS:
        return read_records(path, read_json(source / CODEBOOK_NAME))
    table = open_table(path)
    frame = table.read(table.columns)
    if path.suffix == ".csv":
        frame = frame.rename(columns=plain_text).map(plain_text)
    return frame


def _with_fractions(
    design: PublicDesign, frame: "pd.DataFrame", fpc: str | None
) -> PublicDesign:
    """Add to the design the sampling fractions (H,) that the microdata show."""
    if fpc is None:
        return design
    strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
    fractions = np.empty(int(strata.max()) + 1)
    named = replace(design, fpc=fractions, fpc_name=fpc)
    column = fraction_name(named)
    assert column is not None  # there is an fpc
    fractions[strata] = frame[column].astype(float).to_numpy()
    return named


def _equal(made: Path, published: Path) -> bool:
    return published.is_file() and made.read_bytes() == published.read_bytes()
