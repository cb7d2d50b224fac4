"""The worked example of a release's README: one published number recomputed from the microdata.

The program below is text for the data user, who needs pandas and NumPy only. A test runs it and
compares its result with the published table.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import DEFAULT_WEIGHT_NAME, VARIANCE_SUFFIX, fraction_name
from surveysynth.release.table import SMALL_SAMPLE, ReleaseTable, Statistic

if TYPE_CHECKING:
    from surveysynth.survey import PublicDesign

_PREFERENCE: tuple[Statistic, ...] = ("mean", "proportion", "total", "count")

_ESTIMATES: dict[str, str] = {
    "count": "w[inside].sum()",
    "total": "(w * y)[inside].sum()",
    "mean": "(w * y)[inside].sum() / w[inside].sum()",
    "proportion": "(w * y)[inside].sum() / w[inside].sum()",
}

_LINEARISED: dict[tuple[str, str], str] = {
    ("count", "plain"): "w * inside",
    ("total", "plain"): "w * y * inside",
    ("mean", "plain"): "w * inside * (y - value) / w[inside].sum()",
    ("count", "ratio"): "w * (inside - value / POPULATION)",
    ("total", "ratio"): "w * (y * inside - value / POPULATION)",
}


@dataclass(frozen=True)
class Example:
    """Python source, and the row of the published table that it recomputes."""

    code: str
    statistic: Statistic
    outcome: str | None
    row: int


def make_example(
    facts: ReleaseFacts, tables: list[ReleaseTable], *, separate_pair: bool
) -> Example:
    """Choose a published number (a mean of an interior cell where there is one) and write it."""
    table = min(tables, key=lambda each: _PREFERENCE.index(each.statistic))
    row = _example_row(table, facts.design)
    code = _program(facts, table, row, separate_pair=separate_pair)
    return Example(code, table.statistic, table.outcome, row)


def has_lonely_stratum(design: "PublicDesign") -> bool:
    """Whether some stratum has a single record (releases have no PSUs yet)."""
    return design.strata is not None and bool(np.any(np.bincount(design.strata) == 1))


def _example_row(table: ReleaseTable, design: "PublicDesign") -> int:
    frame = table.frame
    # The average rule counts strata by the row's own records: show it where it is simplest.
    if not (has_lonely_stratum(design) and design.lonely_psu == "average"):
        for wanted in (~frame["is_margin"], frame["n"] > 0):
            rows = np.flatnonzero(wanted & (frame["n"] >= SMALL_SAMPLE))
            if rows.size:
                return int(rows[0])
    return 0


def literal(value: Any) -> str:
    """A Python literal that cannot end the surrounding Markdown block."""
    return repr(value).replace("`", "\\x60")


def _program(facts: ReleaseFacts, table: ReleaseTable, row: int, *, separate_pair: bool) -> str:
    design, statistic = facts.design, table.statistic
    record = table.frame.iloc[row]
    cell = {
        column: str(record[column])
        for column in table.by
        if record[column] != facts.labels.of(column).margin
    }
    codes = list(dict.fromkeys([*cell, *([design.strata_name] if design.strata_name else [])]))
    outcome = table.outcome or design.outcome_names[0]
    return "\n".join(
        [
            *_header(facts, cell, outcome, codes),
            *_reading(facts, separate_pair=separate_pair),
            *_variance(facts),
            *_estimate(facts, statistic, separate_pair=separate_pair),
            *_combining(),
        ]
    )


def _header(facts: ReleaseFacts, cell: dict[str, str], outcome: str, codes: list[str]) -> list[str]:
    design = facts.design
    lines = [
        "from pathlib import Path",
        "",
        "import numpy as np",
        "import pandas as pd",
        "",
        f"CELL = {literal(cell)}  # leave a column out to sum over its levels",
        f"OUTCOME, WEIGHT = {literal(outcome)}, "
        f"{literal(design.weight_name or DEFAULT_WEIGHT_NAME)}",
        f"CODES = {literal(codes)}",
    ]
    if design.strata_name:
        lines.append(f"STRATA = {literal(design.strata_name)}")
    if design.population_size is not None:
        lines.append(f"POPULATION = {design.population_size!r}")
    if fraction_name(design):
        lines.append(f"FRACTION = {literal(fraction_name(design))}")
    return lines


def _reading(facts: ReleaseFacts, *, separate_pair: bool) -> list[str]:
    if facts.microdata_format == "parquet":
        read = ["    return pd.read_parquet(path)"]
    else:
        read = [
            "    return pd.read_csv(",
            "        path,",
            "        usecols=[*CODES, *NUMBERS],",
            "        dtype=dict.fromkeys(CODES, str),",
            "        keep_default_na=False,",
            "    )",
        ]
    suffix = literal(VARIANCE_SUFFIX)
    pair = f", OUTCOME + {suffix}, WEIGHT + {suffix}" if separate_pair else ""
    fraction = ", FRACTION" if fraction_name(facts.design) else ""
    return [
        f"NUMBERS = [OUTCOME, WEIGHT{pair}{fraction}]",
        "",
        "",
        "def read(path):",
        *read,
        "",
        "",
    ]


def _variance(facts: ReleaseFacts) -> list[str]:
    """Between records within strata; a stratum of one record follows the lonely-PSU rule."""
    design = facts.design
    stratum = "data[STRATA]" if design.strata_name else 'pd.Series("", index=data.index)'
    fpc = "(1 - data.loc[u_h.index[0], FRACTION]) * " if fraction_name(design) else ""
    lines = [
        "def variance(data, u):",
        "    total = 0.0",
        f"    for _, u_h in u.groupby({stratum}):",
        "        n = len(u_h)",
    ]
    if has_lonely_stratum(design) and design.lonely_psu == "adjust":
        lines += [
            "        if n == 1:",
            f"            total += {fpc}(u_h**2).sum()",
            "            continue",
        ]
    elif has_lonely_stratum(design):
        lines += ["        if n == 1:", "            continue"]
    lines.append(f"        total += {fpc}n / (n - 1) * ((u_h - u_h.mean()) ** 2).sum()")
    if has_lonely_stratum(design) and design.lonely_psu == "average":
        lines += [
            f"    size = {stratum}.value_counts()",
            "    total *= len(size) / (size > 1).sum()",
        ]
    return [*lines, "    return total", "", ""]


def _estimate(facts: ReleaseFacts, statistic: Statistic, *, separate_pair: bool) -> list[str]:
    kind = "mean" if statistic == "proportion" else statistic
    rule = "plain" if kind == "mean" else facts.spec.linearisation
    lines = [
        "def estimate(data):",
        "    inside = pd.Series(True, index=data.index)",
        "    for column, code in CELL.items():",
        "        inside &= data[column] == code",
        "    y, w = data[OUTCOME], data[WEIGHT]",
        f"    value = {_ESTIMATES[statistic]}",
    ]
    if separate_pair:
        suffix = literal(VARIANCE_SUFFIX)
        lines += [
            "    published = value",
            f"    y, w = data[OUTCOME + {suffix}], data[WEIGHT + {suffix}]",
            f"    value = {_ESTIMATES[statistic]}",
        ]
    returned = "published" if separate_pair else "value"
    return [
        *lines,
        f"    u = {_LINEARISED[kind, rule]}",
        f"    return {returned}, variance(data, u)",
        "",
        "",
    ]


def _combining() -> list[str]:
    return [
        "results = pd.DataFrame(",
        "    [",
        '        (path.name.split("_")[1], *estimate(read(path)))',
        '        for path in sorted(Path("microdata").glob("draw_*_rep_*"))',
        "    ],",
        '    columns=["draw", "estimate", "variance"],',
        ")",
        'by_draw = results.groupby("draw").mean()',
        "m = len(by_draw)",
        'combined = by_draw["estimate"].mean()',
        'between = by_draw["estimate"].var(ddof=1) if m > 1 else 0.0',
        'standard_error = np.sqrt(by_draw["variance"].mean() + between / m)',
        "print(combined, standard_error)",
    ]
