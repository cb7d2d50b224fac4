"""A release folder read back: tables and synthetic datasets as frames, codebook and guarantee.

A convenience. The files are plain csv and JSON, and their README says how to do without it. What
cannot be read as it was written is an error that names the file.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from surveysynth._support.messages import listing
from surveysynth._support.page import fragment
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.config.build import (
    calibration_of,
    declaration_of,
    mechanism_of,
    model_of,
    noisy_settings_of,
)
from surveysynth.config.spec import Spec
from surveysynth.config.tables_section import FORMATS, folder_of
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import Calibration, calibrated_dataset, twelve_digits
from surveysynth.estimation.statistics import statistic_of
from surveysynth.inference.synthesis import Inference, SyntheticDataset, datasets_of
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.learned.histogram import histograms_in, learned_design
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME, published_draws
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.models.base import Model
from surveysynth.release.folder import PRIVACY_NAME, RELEASE
from surveysynth.release.microdata import (
    CODEBOOK_NAME,
    PROGRAMS,
    Digits,
    damaged,
    file_name,
    format_of,
    fraction_name,
    read_csv,
    read_json,
    read_records,
    weight_column,
)
from surveysynth.release.tables.table import stacked_frame
from surveysynth.release.tables.table_builder import estimates_for, release_tables
from surveysynth.release.writers.csv import plain_text
from surveysynth.sampling.randomness import Streams
from surveysynth.survey.files import open_table
from surveysynth.survey.survey import PublicDesign, public_design
from surveysynth.survey.where import columns_of, parse_where

if TYPE_CHECKING:
    import pandas as pd


#: Key of the counts in ``statistics.json``.
COUNTS_NAME = "counts"
Cell = tuple[str, ...]


@dataclass(frozen=True)
class ReleaseCounts:
    """Sums of weights of every dataset of an earlier release, by cell: published numbers.

    columns: that define the cells; cells (C,): labels of each; keys (datasets,): draw and
    replicate; totals (datasets, C).
    """

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    keys: tuple[tuple[int, int], ...]
    totals: FloatArray

    @classmethod
    def of(
        cls, design: PublicDesign, columns: Sequence[str], datasets: Iterable[SyntheticDataset]
    ) -> "ReleaseCounts":
        """Add up the weights of datasets on the records of a design."""
        labels = _cells_of(design, columns)
        cells = tuple(sorted(set(labels)))
        code = _codes(labels, cells)
        keys, totals = [], []
        for each in datasets:
            keys.append((each.draw, each.replicate))
            totals.append(np.bincount(code, weights=each.weight, minlength=len(cells)))
        return cls(tuple(columns), cells, tuple(keys), np.array(totals))

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, words and nested lists."""
        return {
            "columns": list(self.columns), "cells": [list(each) for each in self.cells],
            "datasets": [list(each) for each in self.keys], "totals": self.totals.tolist(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "ReleaseCounts":
        """Return the inverse of ``to_dict``; raise ``InputError`` where entries do not fit."""
        try:
            made = cls(
                tuple(given["columns"]), tuple(map(tuple, given["cells"])),
                tuple((int(draw), int(replicate)) for draw, replicate in given["datasets"]),
                np.array(given["totals"], dtype=np.float64),
            )  # fmt: skip
            fits = made.totals.shape == (len(made.keys), len(made.cells))
        except (KeyError, TypeError, ValueError):
            fits = False
        if not fits:
            raise InputError("the counts of an earlier release do not fit together.")
        return made

    @property
    def words(self) -> str:
        """The counts that are used, in words."""
        by = f"each cell of {listing(self.columns)}" if self.columns else "the whole sample"
        return f"the weights of every synthetic dataset add up in {by} to those of an earlier one"

    def matched(
        self, design: PublicDesign, datasets: Iterable[SyntheticDataset]
    ) -> Iterator[SyntheticDataset]:
        """Yield datasets with weights that add up, by cell, to those of the earlier release.

        Datasets are matched by number, and the weights of a cell are multiplied by one factor: the
        relation of outcomes and weights inside it does not change. Both sets of weights are
        functions of what was published under noise, so this costs nothing (strict 7).
        """
        code, place = _codes(_cells_of(design, self.columns), self.cells), dict(
            zip(self.keys, self.totals, strict=True)
        )
        for each in datasets:
            sums = np.bincount(code, weights=each.weight, minlength=len(self.cells))
            factor = place[each.draw, each.replicate] / np.where(sums > 0, sums, 1.0)
            weight = twelve_digits(each.weight * factor[code])
            yield replace(each, weight=weight, variance_weight=weight)


def published_datasets(
    spec: Spec,
    design: PublicDesign,
    model: Model,
    draws: PrivateDraws,
    rng: np.random.Generator,
    *,
    inference: Inference,
    counts: ReleaseCounts | None,
    calibration: Calibration | None,
) -> Iterator[SyntheticDataset]:
    """Yield the datasets of a release as they are published: rounded, with the tables' weights.

    Raises as ``datasets_of``, and ``InputError`` where weights cannot be calibrated.
    """
    digits = Digits(design, spec.all_tables.microdata_digits)
    made = datasets_of(
        model, design, draws, rng, inference=inference,
        replicates_per_draw=spec.privacy.replicates_per_draw,
    )  # fmt: skip
    rounded = map(digits.rounded, made)
    for each in rounded if counts is None else counts.matched(design, rounded):
        yield each if calibration is None else calibrated_dataset(calibration, each)


def _cells_of(design: PublicDesign, columns: Sequence[str]) -> list[Cell]:
    """Return the cell of every record; a number has one text, whatever the format of the file."""
    if not columns:
        return [()] * design.n
    texts = [
        design.frame[name].astype(float).map(repr)
        if design.frame[name].dtype.kind in "iufb"
        else design.frame[name].astype(str)
        for name in columns
    ]
    return list(zip(*texts, strict=True))


def _codes(labels: Sequence[Cell], cells: Sequence[Cell]) -> IntArray:
    """Return the position (n,) of each label among the cells."""
    place = {cell: number for number, cell in enumerate(cells)}
    return np.array([place[each] for each in labels], dtype=np.int64)


@dataclass(frozen=True)
class PublishedRelease:
    """A release as it was published; ``content``: of statistics.json."""

    content: Mapping[str, Any]
    spec: Spec
    design: PublicDesign

    @classmethod
    def read(cls, folder: Path) -> "PublishedRelease":
        """Read the folder of a release; raise ``InputError`` for files that do not fit together."""
        source = statistics_folder(folder)
        content = read_statistics(source)
        spec = published_spec(content, source)
        design = published_design(spec, source, content)
        return cls(content, spec, learned_design(design, histograms_in(content)))

    @property
    def is_private(self) -> bool:
        """False for a test with a seed."""
        return LocationStatistics.from_dict(self.content["statistics"]).is_private

    @cached_property
    def model(self) -> Model:
        """The model that the draws are of."""
        return model_of(self.spec).of(self.design)

    @property
    def draws(self) -> PrivateDraws:
        """The draws that datasets are made from."""
        return published_draws(self.content, self.model, noisy_settings_of(self.spec))

    @property
    def counts(self) -> ReleaseCounts | None:
        """The counts that it took from an earlier release, or None."""
        given = self.content.get(COUNTS_NAME)
        return None if given is None else ReleaseCounts.from_dict(given)

    def synthesis_rng(self) -> np.random.Generator:
        """Return the generator of its datasets, at its beginning."""
        return Streams(int(self.content["seed"]), published=True).synthesis

    def datasets(self) -> Iterator[SyntheticDataset]:
        """Make all datasets again, with the weights of its tables."""
        return published_datasets(
            self.spec.for_records(self.design.n), self.design, self.model, self.draws,
            self.synthesis_rng(), inference="paper", counts=self.counts,
            calibration=calibration_of(self.spec, self.design),
        )  # fmt: skip


def statistics_folder(given: Path) -> Path:
    """Return the folder with the published files of a release by noisy statistics.

    Raises ``InputError`` where neither it nor its ``release`` has statistics.
    """
    for folder in (given, given / "release"):
        if (folder / STATISTICS_NAME).is_file():
            return folder
    raise InputError(
        f"{given} has no {STATISTICS_NAME}: expected the folder of a release by noisy statistics. "
        "Tables of other releases cannot be made again from what they publish."
    )


def read_statistics(folder: Path) -> dict[str, Any]:
    """Return the content of ``statistics.json``; raise ``InputError`` where it is damaged."""
    path = folder / STATISTICS_NAME
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


def published_spec(content: Mapping[str, Any], source: Path) -> Spec:
    """Return the specification as it was published; raise ``InputError`` if it is not valid."""
    try:
        return Spec.model_validate({**content["specification"], "path": source / "spec.toml"})
    except ValidationError as error:
        raise InputError(
            f"the specification in {source / STATISTICS_NAME} is not valid any more "
            f"({error.error_count()} mistakes): it was written by another version, or changed."
        ) from None


def published_design(spec: Spec, source: Path, content: Mapping[str, Any]) -> PublicDesign:
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
    return replace(
        whole, dropped=int(content["records_dropped"]), missing=spec.survey.missing,
        shift=content.get("shift", ""),
    )  # fmt: skip


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


def counts_of(spec: Spec, design: PublicDesign, *, test: bool) -> ReleaseCounts | None:
    """Return the counts of the release that ``survey.weights`` names; None where it names none.

    Raises ``InputError`` as ``earlier_release``.
    """
    found = earlier_release(spec, design, test=test)
    if found is None:
        return None
    first, columns = found
    return ReleaseCounts.of(first.design, columns, first.datasets())


def earlier_release(
    spec: Spec, design: PublicDesign, *, test: bool
) -> tuple[PublishedRelease, tuple[str, ...]] | None:
    """Return the release that ``survey.weights`` names, and the columns of the cells.

    design: of the release that takes its counts; test: whether that is one with a seed.

    Raises ``InputError`` where it cannot be read, is not private, or is of another design.
    """
    folder = spec.weights_release
    if folder is None or spec.privacy.down_weights:  # in a comparison
        return None
    first = PublishedRelease.read(folder)
    conditions = (columns_of(parse_where(each.where)) for each in spec.tables if each.where)
    used = dict.fromkeys((*design.by, *(name for names in conditions for name in names)))
    columns = tuple(name for name in used if name not in design.outcome_names)
    for problem in _differences(first, spec.for_records(design.n), design, columns, test=test):
        raise InputError(f"survey.weights: the release in {folder} {problem}")
    return first, columns


def _differences(
    first: PublishedRelease, spec: Spec, design: PublicDesign, columns: Sequence[str], *, test: bool
) -> Iterator[str]:
    """Yield why a release cannot take the counts of the first one, with remedies."""
    if not (first.is_private or test):
        yield "is a test with a seed and not private. Make it without a seed first."
    if first.design.public_weight is not None:
        yield "has public weights, as this one may: set weights = 'public' in both."
    before, privacy = first.design, first.spec.for_records(design.n).privacy
    for name, there, here in (
        ("records", before.n, design.n),
        ("population_size", before.population_size, design.population_size),
        ("strata", before.strata_name, design.strata_name),
        ("psu", before.psu_name, design.psu_name),
        ("m", privacy.m, spec.privacy.m),
        ("replicates_per_draw", privacy.replicates_per_draw, spec.privacy.replicates_per_draw),
    ):
        if there != here:
            yield (
                f"has {name} = {there!r}, and this one {here!r}: every dataset takes the counts of "
                "one there, so give both the same."
            )
    unknown = [name for name in columns if name not in first.design.frame]
    if unknown:
        yield (
            f"has no public column {listing(unknown)}, by which this one makes tables: name it in "
            "public_columns of that release, or make no table by it here."
        )
    roles = filter(None, (design.strata_name, design.psu_name))
    together = tuple(dict.fromkeys((*columns, *roles)))
    # Numbers of records by cell.
    sizes = [Counter(_cells_of(each, together)) for each in (before, design)]
    if sizes[0] != sizes[1]:
        cells = {cell for cell in {**sizes[0], **sizes[1]} if sizes[0][cell] != sizes[1][cell]}
        yield (
            f"has other numbers of records in {len(cells):,} of the cells of {listing(together)}: "
            "take the counts of a release of the same sample, with the same levels."
        )


_DATASET = re.compile(r"draw_(\d+)_rep_(\d+)")
#: Columns of tables that a first look does without.
_DETAILS = ["is_margin", "df", "df_design"]
_TABLE_NUMBERS = ("estimate", "se", "df", "df_design", "ci_lower", "ci_upper")


@dataclass(frozen=True, repr=False)
class Release:
    """A release folder as Python objects; ``read_release`` makes it.

    Attributes
    ----------
    folder
        The folder of the published files.
    tables
        Unrounded, by file name without its ending ("counts", "means"; of several tables
        "NAME/counts"), where the release has csv files; by-columns are codes as text, ``outcome``
        comes first where there are several.
    codebook, privacy
        The JSON files. Datasets are read on first use.

    Examples
    --------
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> ss.Release(Path("out"), tables={}, codebook={}, privacy={"private": True})
    Release('out': tables none; 0 datasets)
    """

    folder: Path
    tables: Mapping[str, "pd.DataFrame"]
    codebook: Mapping[str, Any]
    privacy: Mapping[str, Any]
    _files: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"Release({str(self.folder)!r}: tables {', '.join(self.tables) or 'none'}; "
            f"{len(self._files)} datasets)"
        )

    def _repr_html_(self) -> str:
        """Return the tables of the folder, for notebooks."""
        epsilon = self.privacy.get("epsilon")
        guarantee = str(self.privacy.get("guarantee", "no guarantee"))
        if epsilon is not None:
            guarantee += f", epsilon {epsilon:.4g}"
        return fragment(
            str(self.codebook.get("title", "Release")),
            mark=self.codebook.get("warnings", ()),
            lines=[f"{self.folder}: {len(self._files):,} synthetic datasets; {guarantee}."],
            frames=[(stem, self._labelled(frame)) for stem, frame in self.tables.items()],
        )

    def _labelled(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return a table with titles and labels instead of names and codes, for a first look."""
        shown, titles = frame.drop(columns=_DETAILS), {}
        for column in self.codebook.get("columns", ()):
            name, levels = column["name"], column.get("levels", ())
            if name in shown:
                label_of = {level["code"]: level["label"] for level in levels}
                shown[name] = shown[name].map(lambda code, of=label_of: of.get(code, code))
                titles[name] = column["title"]
        return shown.rename(columns=titles)

    @property
    def private(self) -> bool:
        """True if the release claims a guarantee; tests with a seed do not."""
        return bool(self.privacy["private"])

    @property
    def keys(self) -> tuple[tuple[int, int], ...]:
        """(draw, replicate) of every dataset; both count from 1."""
        return tuple(self._files)

    def dataset(
        self, draw: int, replicate: int = 1, *, positions: bool = False
    ) -> "pd.DataFrame":
        """Return one synthetic dataset with the columns of the codebook; codes are text.

        ``positions``: give synthetic outcomes with levels as positions of the levels, starting at
        0, in the order of the codebook, as models and estimates require.

        Raises ``InputError`` if there is no such dataset or its file is missing.
        """
        if (draw, replicate) not in self._files:
            draws = max((key[0] for key in self._files), default=0)
            replicates = max((key[1] for key in self._files), default=0)
            raise InputError(
                f"there is no dataset of draw {draw}, replicate {replicate}; the release has "
                f"draws 1 to {draws} with replicates 1 to {replicates}."
            )
        path = self.folder / self._files[draw, replicate]
        frame = read_records(path, self.codebook)
        if not positions:
            return frame
        for column in self.codebook["columns"]:
            if column["source"] == "synthetic" and "levels" in column:
                places = {
                    level["code"]: float(place) for place, level in enumerate(column["levels"])
                }
                frame[column["name"]] = frame[column["name"]].map(places)
                if frame[column["name"]].isna().any():
                    raise damaged(path)
        return frame

    def combine(
        self, statistics: Sequence[str], *, microdata: str | Path | None = None, **tables: Any
    ) -> "dict[str, pd.DataFrame]":
        """Return tables of your own, by statistic, from a release by noisy statistics.

        The estimates are those of the datasets stacked in one file, the standard errors follow from
        what each adds, and from the rule of the release. With all datasets, or one a draw (r = 1),
        these are the numbers of the release's own tables.

        Parameters
        ----------
        statistics
            "count", "mean", "quantile(0.9)", .. as in a specification.
        microdata
            Folder of all datasets, which ``rebuild`` with ``all_datasets`` writes; None: the
            published ones.
        **tables
            Other keys of the section [tables]: by, where, level.

        Raises
        ------
        InputError
            For a release by the pseudo-posterior, whose README has a program instead, and for keys
            that do not suit the columns.
        """
        content = read_statistics(statistics_folder(self.folder))
        section = {"statistics": list(statistics), **tables}
        content["specification"] = {**content["specification"], "tables": section}
        content["specification"].pop("all_tables", None)
        spec = published_spec(content, self.folder)
        design = published_design(spec, self.folder, content)
        whole = self if microdata is None else self.with_datasets(Path(microdata))
        m, r = (max(numbers) for numbers in zip(*whole.keys, strict=True))
        privacy = spec.privacy.model_copy(update={"m": m, "replicates_per_draw": r})
        spec = spec.model_copy(update={"privacy": privacy})
        estimates = estimates_for(spec, design, mechanism_of(spec))
        for draw, replicate in whole.keys:
            frame = whole.dataset(draw, replicate, positions=True)
            outcome = frame[list(design.outcome_names)].to_numpy(dtype="float64")
            weight = frame[weight_column(design)].to_numpy(dtype="float64")
            estimates.add(SyntheticDataset(draw, replicate, outcome, weight, outcome, weight))
        made = release_tables(spec, design, estimates)
        return {statistic: stacked_frame(of_outcomes) for statistic, of_outcomes in made.items()}

    def with_datasets(self, folder: Path) -> "Release":
        """Return the release with the datasets of another folder."""
        found = {
            (int(match[1]), int(match[2])): str(path.resolve())
            for path in sorted(folder.iterdir())
            if (match := _DATASET.fullmatch(path.stem))
        }
        return replace(self, _files=found)

    def datasets(self) -> Iterator[tuple[int, int, "pd.DataFrame"]]:
        """Draw, replicate and frame of every dataset, one at a time."""
        for draw, replicate in self.keys:
            yield draw, replicate, self.dataset(draw, replicate)


def read_release(folder: str | Path) -> Release:
    """Read a release from its folder, or from the folder above it that a run wrote.

    Parameters
    ----------
    folder
        Of the release.

    Returns
    -------
    Release
        Tables and synthetic datasets as frames, codebook and guarantee.

    Raises
    ------
    InputError
        If there is none or a file of it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     _ = ss.release(spec, Path(folder) / "out", seed=1)
    ...     released = ss.read_release(Path(folder) / "out")
    >>> sorted(released.tables), released.private
    (['counts', 'means'], False)
    """
    given = Path(folder)
    found = [each for each in (given, given / RELEASE) if (each / PRIVACY_NAME).is_file()]
    if not found:
        raise InputError(
            f"{given} holds no release: neither it nor {given / RELEASE} has a {PRIVACY_NAME}."
        )
    root = found[0]
    codebook, privacy = read_json(root / CODEBOOK_NAME), read_json(root / PRIVACY_NAME)
    try:
        files = {(each["draw"], each["replicate"]): each["file"] for each in codebook["files"]}
        _, paths = privacy["private"], _table_paths(root, codebook, privacy["settings"])
    except (KeyError, TypeError, InputError):
        raise damaged(root / CODEBOOK_NAME) from None
    tables = {
        stem: _read_table(path, columns) for stem, (path, columns) in paths.items()
        if path.is_file()
    }  # fmt: skip
    return Release(root, tables, codebook, privacy, files)


def _table_paths(
    root: Path, codebook: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, tuple[Path, list[str]]]:
    """Return the csv file and the by columns of every statistic, named as in ``Release.tables``."""
    by = [c["name"] for c in codebook["columns"] if "table" in c["roles"]]
    one = {"name": "", "by": by, "statistics": settings["statistics"]}
    made, paths = FORMATS["csv"], {}
    for table in settings.get("tables", [one]):
        folder = root / folder_of(made, table["name"])
        for kind in map(statistic_of, table["statistics"]):
            name = f"{table['name']}/{kind.stem}" if table["name"] else kind.stem
            paths[name] = (folder / made.file_of(kind.name), kind.columns_of(table["by"]))
    return paths


def _read_table(path: Path, by: list[str]) -> "pd.DataFrame":
    frame = read_csv(path)
    if not {*by, "is_margin", "n", "flag", *_TABLE_NUMBERS} <= set(frame.columns):
        raise damaged(path)
    try:
        for column in _TABLE_NUMBERS:
            frame[column] = frame[column].replace("", "nan").map(float)
        known = frame["n"] != ""  # rows by an outcome have none
        frame["n"] = frame["n"].mask(~known).map(int, na_action="ignore")
        frame["n"] = frame["n"].astype("int64" if known.all() else "Int64")
    except ValueError:
        raise damaged(path) from None
    frame["is_margin"] = frame["is_margin"] == "True"
    return frame
