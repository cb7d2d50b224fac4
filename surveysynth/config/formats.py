"""The formats of published tables and figures: their files, descriptions, and writers.

The specification, the writers, the README and the preview of ``check`` all use this registry. A
writer is imported when it is first used: those of HTML and workbooks load libraries that take a
second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from surveysynth.estimation.statistics import statistic_of

if TYPE_CHECKING:
    from collections.abc import Callable

Folder: TypeAlias = Literal["tables", "figures"]
TABLES_FOLDER: Folder = "tables"
FIGURES_FOLDER: Folder = "figures"


@dataclass(frozen=True)
class Format:
    """One format.

    ending: the suffix of its files; meaning: a description for readers of a release; writer:
    "module:function", called as function(shown, folder, format) with the tables as
    ``release.tables.layout.Shown``; one_file: the name of a file with all tables, if there is one;
    file_each: True if each statistic has a file; folder: the folder in a release.
    """

    ending: str
    meaning: str
    writer: str
    one_file: str | None = None
    file_each: bool = True
    folder: Folder = TABLES_FOLDER

    def file_of(self, statistic: str) -> str:
        """Return the file name of a statistic."""
        return f"{statistic_of(statistic).stem}.{self.ending}"

    def files(self, statistics: Sequence[str]) -> Iterator[str]:
        """Yield the names of all files."""
        if self.file_each:
            yield from map(self.file_of, statistics)
        if self.one_file:
            yield self.one_file

    def load_writer(self) -> "Callable[[Any, Any, Format], None]":
        """Import and return the writer."""
        module, _, name = self.writer.partition(":")
        function: Callable[[Any, Any, Format], None] = getattr(import_module(module), name)
        return function


_WRITERS = "surveysynth.release.writers"


def _figure(ending: str) -> Format:
    return Format(
        ending, "estimates with their intervals", f"{_WRITERS}.figures:write",
        folder=FIGURES_FOLDER,
    )  # fmt: skip


FORMATS: dict[str, Format] = {
    "csv": Format("csv", "unrounded numbers with codes, for programs", f"{_WRITERS}.csv:write"),
    "html": Format(
        "html", "rounded numbers with labels, for reading in a browser", f"{_WRITERS}.html:write"
    ),
    "latex": Format(
        "tex", "the same for LaTeX; all_tables.tex reads the others in", f"{_WRITERS}.latex:write",
        one_file="all_tables.tex",
    ),
    "xlsx": Format(
        "xlsx", "the same as a workbook with contents and notes", f"{_WRITERS}.xlsx:write",
        one_file="tables.xlsx", file_each=False,
    ),
    "ods": Format(
        "ods", "the same workbook as an OpenDocument spreadsheet", f"{_WRITERS}.ods:write",
        one_file="tables.ods", file_each=False,
    ),
    "markdown": Format("md", "the same as Markdown", f"{_WRITERS}.markdown:write"),
    "png": _figure("png"),
    "svg": _figure("svg"),
    "pdf": _figure("pdf"),
}  # fmt: skip
"""Formats by their names in a specification, in the order in which messages list them."""


def format_names(folder: Folder) -> tuple[str, ...]:
    """Return the formats of tables, or those of figures."""
    return tuple(name for name, made in FORMATS.items() if made.folder == folder)


def table_files(
    statistics: Sequence[str], formats: Sequence[str], table: str = ""
) -> Iterator[tuple[str, str, Format]]:
    """Yield folder, file name and format of every file of these tables and figures.

    ``table``: the name of one of several tables, whose files are in a folder of that name.
    """
    for name in formats:
        for file in FORMATS[name].files(statistics):
            yield folder_of(FORMATS[name], table), file, FORMATS[name]


def folder_of(made: Format, table: str = "") -> str:
    """Return the folder of a release for a format of a table."""
    return f"{made.folder}/{table}" if table else made.folder
