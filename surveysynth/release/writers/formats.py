"""The formats of published tables: which files they make and what a reader needs to know of them.

The one place that names them; writing, the README and the preview of ``check`` all ask here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surveysynth.release.tables.table import FILE_STEMS

if TYPE_CHECKING:
    from surveysynth.spec.sections import TablesSection

WORKBOOK_NAME = "tables.xlsx"
DOCUMENT_NAME = "all_tables.tex"
TABLES_FOLDER, FIGURES_FOLDER = "tables", "figures"


@dataclass(frozen=True)
class Format:
    """``ending`` of its files; ``one_file`` is for all tables, if the format has such a file."""

    ending: str
    meaning: str
    one_file: str | None = None
    file_each: bool = True


_FIGURE = "estimates with their intervals"

FORMATS: dict[str, Format] = {
    "csv": Format("csv", "unrounded numbers with codes, for programs"),
    "html": Format("html", "rounded numbers with labels, for reading in a browser"),
    "latex": Format(
        "tex", "the same for LaTeX; all_tables.tex reads the others in", DOCUMENT_NAME
    ),
    "xlsx": Format(
        "xlsx", "the same as a workbook with contents and notes", WORKBOOK_NAME, file_each=False
    ),
    "markdown": Format("md", "the same as Markdown"),
    "png": Format("png", _FIGURE),
    "svg": Format("svg", _FIGURE),
    "pdf": Format("pdf", _FIGURE),
}
"""By the names of a specification: ``tables.formats``, then ``tables.figures``."""


def table_files(tables: "TablesSection") -> Iterator[tuple[str, str, str]]:
    """Folder, file name and format of every table and figure of a release."""
    for folder, formats in ((TABLES_FOLDER, tables.formats), (FIGURES_FOLDER, tables.figures)):
        for name in formats:
            made = FORMATS[name]
            if made.file_each:
                for statistic in tables.statistics:
                    yield folder, f"{FILE_STEMS[statistic]}.{made.ending}", name
            if made.one_file:
                yield folder, made.one_file, name
