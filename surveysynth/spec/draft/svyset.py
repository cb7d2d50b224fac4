"""Take the survey settings of a Stata file (``svyset``) for choices that nobody made."""

from dataclasses import replace

from surveysynth.spec.draft.choices import Choices
from surveysynth.spec.draft.columns import DataFile
from surveysynth.survey.files import LabelledTable
from surveysynth.survey.svyset import svy_settings


def with_svyset(choices: Choices, file: DataFile) -> tuple[Choices, str]:
    """Return the choices with weight, strata, units and fpc of the file, and a line that says so.

    Made choices stay; a column that has another role is left out. The line is empty where the file
    has no settings, or none is used.
    """
    table = file.table
    found = svy_settings(table.content) if isinstance(table, LabelledTable) else None
    if found is None:
        return choices, ""
    taken = {*(each.name for each in choices.outcomes), choices.weight}
    given = {
        role: column
        for role in ("weight", "strata", "psu", "fpc")
        if (column := getattr(found, role)) in file.names
        and getattr(choices, role) is None and column not in taken
    }  # fmt: skip
    if not given:
        return choices, ""
    words = ", ".join(f"{role} {column}" for role, column in given.items())
    stages = f" Of its {found.stages} stages the first is used." if found.stages > 1 else ""
    return replace(choices, **given), f"From svyset in the file: {words}.{stages}"
