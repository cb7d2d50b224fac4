"""Take titles and labels from a data file of Stata, SPSS or SAS into a specification.

The specification has precedence. Titles of columns and labels of values are the survey's data
dictionary and count as public. Labels of values are used for public columns only.
"""

from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from surveysynth._support.messages import visible
from surveysynth.config.sections import LabelSection
from surveysynth.errors import InputError
from surveysynth.survey.columns import text_column
from surveysynth.survey.files import LABELLED_SUFFIXES, LabelledTable, open_table
from surveysynth.survey.records import LEAST_RECORDS, MAX_LEVELS

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec


def with_file_labels(spec: "Spec") -> "Spec":
    """Return the specification with titles and labels from the data file.

    Titles of all columns with a role and labels of levels of public ones are added if the
    specification has none. Only cells of public columns with labels are read. Raises
    ``InputError`` as ``open_table`` does, and for labels that are not distinct.
    """
    if not spec.data_path.name.lower().endswith(LABELLED_SUFFIXES):
        return spec
    table = open_table(spec.data_path)
    assert isinstance(table, LabelledTable)  # by its ending
    weight = () if spec.survey.weight is None else (spec.survey.weight,)
    amounts = (*spec.synthesizer.outcome, *weight)
    public = [name for name in spec.public_names if name not in amounts]
    labels = dict(spec.labels)
    for name in dict.fromkeys((*public, *amounts)):
        if name in table.described:
            section = _section(spec, table, name, public=name in public)
            if section is not None:
                labels[name] = section
    return spec.model_copy(update={"labels": labels}) if labels != spec.labels else spec


def _section(
    spec: "Spec", table: LabelledTable, name: str, *, public: bool
) -> LabelSection | None:
    """Return the section ``[labels.NAME]``, or None."""
    given = spec.labels.get(name)
    found: dict[str, object] = {} if given is None else given.model_dump(exclude_unset=True)
    title = table.described[name].title
    if title:
        found.setdefault("title", title)
    if public and not found.get("levels") and (levels := _levels(table, name)):
        found["levels"] = levels
    if not found:
        return given
    try:
        return LabelSection(**found)  # type: ignore[arg-type]
    except ValidationError as error:
        reasons = [str(each["ctx"]["error"]) for each in error.errors() if "ctx" in each]
        raise InputError(
            f"{spec.data_path}: labels of the values of {name!r}: {' '.join(reasons)} Set "
            f"this column's labels in the specification: [labels.{name}] levels."
        ) from None


def _levels(table: LabelledTable, name: str) -> dict[str, str]:
    """Return the labels of the levels that occur, in natural order; other levels keep their code.

    Empty if a level without a label is so rare that it may be an error: listing it here would
    declare it as valid and suppress the warning.
    """
    labels = table.described[name].labels
    if not labels:
        return {}
    column = text_column(table.read([name])[name], name, labels)
    counts = np.bincount(column.codes[~column.missing], minlength=len(column.levels))
    known = [
        level in labels or count >= LEAST_RECORDS
        for level, count in zip(column.levels, counts, strict=True)
    ]
    if not all(known) or len(column.levels) > MAX_LEVELS:
        return {}
    return {level: labels.get(level, visible(level)) for level in column.levels}
