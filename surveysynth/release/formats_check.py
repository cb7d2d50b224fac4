"""Whether the files that a specification asks for can be written, told before anything is spent."""

from typing import TYPE_CHECKING

from surveysynth._support.extras import check_installed
from surveysynth.release.folder.microdata import (
    format_of,
    public_column_names,
    synthetic_column_names,
)
from surveysynth.release.writers.stata_spss import PROGRAMS, check_names
from surveysynth.spec.formats import FORMATS

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign


def check_tables(spec: "Spec") -> None:
    """Raise ``InputError`` where the extra of a format of tables is not installed."""
    for name in dict.fromkeys(name for each in spec.every_section for name in each.formats):
        if FORMATS[name].needs:
            check_installed(FORMATS[name].needs, f'tables.formats: "{name}"')


def check_formats(spec: "Spec", design: "PublicDesign") -> None:
    """The same of tables and microdata; raises ``InputError`` also for names of columns that files
    of the microdata cannot have."""
    check_tables(spec)
    file_format = format_of(spec)
    if file_format not in PROGRAMS:
        return
    check_installed("pyreadstat", f'tables.microdata = "{file_format}"')
    pair = not spec.privacy.strict and spec.synthesizer.inference == "debiased"
    synthetic = synthetic_column_names(design, separate_pair=pair)
    check_names((*public_column_names(design), *synthetic), file_format)
