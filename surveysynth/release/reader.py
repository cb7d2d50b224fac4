"""A release folder read back: tables and synthetic datasets as frames, codebook and guarantee.

A convenience. The files are plain csv and JSON, and their README says how to do without it. What
cannot be read as it was written is an error that names the file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.page import fragment
from surveysynth.config.build import mechanism_of
from surveysynth.config.tables_section import FORMATS, folder_of
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import statistic_of
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release import read_back
from surveysynth.release.folder import PRIVACY_NAME, RELEASE
from surveysynth.release.microdata import (
    CODEBOOK_NAME,
    damaged,
    read_csv,
    read_json,
    read_records,
    weight_column,
)
from surveysynth.release.tables.table import stacked_frame
from surveysynth.release.tables.table_builder import estimates_for, release_tables

if TYPE_CHECKING:
    import pandas as pd


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

        ``positions``: synthetic outcomes with levels as the positions of these, from 0 on, in the
        order of the codebook: numbers as models and estimates take them.

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
        content = read_back.read_statistics(read_back.statistics_folder(self.folder))
        section = {"statistics": list(statistics), **tables}
        content["specification"] = {**content["specification"], "tables": section}
        content["specification"].pop("all_tables", None)
        spec = read_back.published_spec(content, self.folder)
        design = read_back.published_design(spec, self.folder, content)
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
