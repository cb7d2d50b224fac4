"""Check, before any privacy budget is spent, that the files of the microdata can be written."""

from typing import TYPE_CHECKING

from surveysynth.release.folder.microdata import (
    format_of,
    public_column_names,
    synthetic_column_names,
)
from surveysynth.release.writers.stata_spss import PROGRAMS, check_names

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign


def check_formats(spec: "Spec", design: "PublicDesign") -> None:
    """Raise ``InputError`` for names of columns that files of the microdata cannot have."""
    file_format = format_of(spec)
    if file_format not in PROGRAMS:
        return
    pair = not spec.privacy.strict and spec.synthesizer.inference == "debiased"
    synthetic = synthetic_column_names(design, separate_pair=pair)
    check_names((*public_column_names(design), *synthetic), file_format)
