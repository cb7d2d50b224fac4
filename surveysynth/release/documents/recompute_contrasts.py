"""What a README's programs do for a contrast: the estimate and u of both rows, then of these."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surveysynth.estimation.contrasts import Contrast
from surveysynth.estimation.statistics import statistic_of

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.release.documents.recompute_setting import ExampleSetting
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.release.tables.table import ReleaseTable


def both_cells(
    contrast: Contrast,
    cell: dict[str, Any],
    numbers: list[str],
    written: Callable[[str], str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The codes of both rows of a contrast, from those of the table's row."""
    column = written(contrast.column)

    def code(level: str) -> Any:
        return int(level) if contrast.column in numbers else written(level)

    first = cell.get(column) if contrast.first is None else code(contrast.first)
    rest = {name: value for name, value in cell.items() if name != column}
    second = {} if contrast.second is None else {column: code(contrast.second)}
    return {**rest, column: first}, {**rest, **second}


def cells_of(
    facts: "ReleaseFacts",
    table: "ReleaseTable",
    record: "pd.Series[Any]",
    written: Callable[[str], str],
    *,
    typed: bool,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The codes of a row, and of a contrast those of the row that it is compared with."""
    # What is a whole number in the file is none in csv alone, which is read as text.
    numbers = [o.name for o in facts.design.outcomes if typed and not o.is_labelled]
    cell: dict[str, Any] = {
        written(each): int(record[each]) if each in numbers else written(str(record[each]))
        for each in table.by
        if record[each] != facts.labels.of(each).margin
    }
    contrast = statistic_of(table.statistic).contrast
    return (cell, None) if contrast is None else both_cells(contrast, cell, numbers, written)


def _formulas(setting: "ExampleSetting") -> tuple[str, str]:
    """Of the contrast and of its u, in words that both languages know."""
    contrast = statistic_of(setting.statistic).contrast
    assert contrast is not None  # the caller has seen it
    if contrast.kind == "difference":
        return "first - second", "u_first - u_second"
    return "first / second", "(u_first - value * u_second) / second"


def _pairs(setting: "ExampleSetting") -> list[tuple[str, str, str]]:
    """Both cells, and the other arguments: of the estimate, then of a pair of their own."""
    divisors = (", DENOMINATOR", ", VARIANCE_DENOMINATOR") if setting.denominator else ("", "")
    found = [("CELL", "OTHER_CELL", f"OUTCOME, WEIGHT{divisors[0]}")]
    if setting.variance_pair:
        cells = ("CELL", "OTHER_CELL")
        if setting.variance_cell is not None:
            cells = ("VARIANCE_CELL", "VARIANCE_OTHER_CELL")
        found.append((*cells, f"VARIANCE_OUTCOME, VARIANCE_WEIGHT{divisors[1]}"))
    return found


def python_contrast(setting: "ExampleSetting", y: str, inside: list[str]) -> list[str]:
    """``estimate``; y: the outcome by its column ``outcome``; inside: sets that from ``cell``."""
    program, (value, u) = statistic_of(setting.statistic).python, _formulas(setting)
    more = ", divisor" if setting.denominator else ""
    lines = [
        f"def of_row(data, cell, outcome, weight{more}):",
        *inside,
        f"    y, w = {y}, data[weight]",
        *(["    x = data[divisor]"] if more else []),
        *(f"    {line}" for line in program.estimate),
        *(f"    {line}" for line in program.variable(setting.rule)),
        "    return value, u",
        "",
        "",
        "def estimate(data):",
    ]
    pairs = _pairs(setting)
    for number, (cell, other, given) in enumerate(pairs):
        lines += ["    published = value"] * number
        lines += [
            f"    first, u_first = of_row(data, {cell}, {given})",
            f"    second, u_second = of_row(data, {other}, {given})",
            f"    value = {value}",
        ]
    returned = "published" if len(pairs) > 1 else "value"
    spread = "variance(data, u)" if setting.public is None else "u"
    return [*lines, f"    u = {u}", f"    return {returned}, {spread}", "", ""]


def r_contrast(setting: "ExampleSetting", y: str, inside: list[str]) -> list[str]:
    """The same in R."""
    program, (value, u) = statistic_of(setting.statistic).r, _formulas(setting)
    more = ", divisor" if setting.denominator else ""
    lines = [
        f"of_row <- function(data, cell, outcome, weight{more}) {{",
        *inside,
        f"  y <- {y}",
        "  w <- data[[weight]]",
        *(["  x <- data[[divisor]]"] if more else []),
        *(f"  {line}" for line in program.estimate),
        *(f"  {line}" for line in program.variable(setting.rule)),
        "  list(value, u)",
        "}",
        "",
        "estimate <- function(data) {",
    ]
    pairs = _pairs(setting)
    for number, (cell, other, given) in enumerate(pairs):
        lines += ["  published <- value"] * number
        lines += [
            f"  one <- of_row(data, {cell}, {given})",
            f"  other <- of_row(data, {other}, {given})",
            "  first <- one[[1]]",
            "  second <- other[[1]]",
            "  u_first <- one[[2]]",
            "  u_second <- other[[2]]",
            f"  value <- {value}",
        ]
    returned = "published" if len(pairs) > 1 else "value"
    spread = f"c({returned}, variance(data, u))"
    return [
        *lines,
        f"  u <- {u}",
        f"  {spread if setting.public is None else f'list({returned}, u)'}",
        "}",
        "",
    ]
