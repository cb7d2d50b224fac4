"""The worked example of a release's README: one published number recomputed from the microdata.

The programs are text for the data user, who needs pandas and NumPy, or R alone. Tests run them and
compare the results with the published table.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.estimation.statistics import LEVEL, statistic_of
from surveysynth.estimation.total_variance import public_row_columns
from surveysynth.release.documents.recompute_contrasts import cells_of, python_contrast
from surveysynth.release.documents.recompute_quantiles import (
    python_df,
    python_distribution,
    python_end,
)
from surveysynth.release.documents.recompute_setting import ExampleSetting, LonelyRule
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.folder.microdata import VARIANCE_SUFFIX, fraction_name, weight_column
from surveysynth.release.tables.table import ReleaseTable, well_filled
from surveysynth.release.writers.csv import safe_text
from surveysynth.survey.outcome import BELOW

if TYPE_CHECKING:

    from surveysynth.survey.survey import PublicDesign


@dataclass(frozen=True)
class Example:
    """The setting, the program in Python, and the row of the published table it recomputes."""

    setting: ExampleSetting
    code: str
    outcome: str | None
    row: int
    published: bool

    @property
    def statistic(self) -> str:
        """The table's statistic."""
        return self.setting.statistic


def make_example(
    facts: ReleaseFacts, tables: list[ReleaseTable], *, separate_pair: bool
) -> Example:
    """Choose a published number (a mean of an interior cell where there is one) and write it.

    Only where every number is withheld does it choose one of those.
    """
    ordered = sorted(tables, key=lambda each: _hardness(each.statistic))
    table = next((t for t in ordered if t.frame["se"].notna().any()), ordered[0])
    row = _example_row(table, facts.design)
    setting = _setting(facts, table, row, separate_pair=separate_pair)
    published = bool(table.frame["se"].notna().iloc[row])
    return Example(setting, python_program(setting), table.outcome, row, published)


def _hardness(statistic: str) -> tuple[bool, ...]:
    """What is first in order is the easiest to follow: no sums, and in the outcome's own units."""
    kind = statistic_of(statistic)
    return (
        kind.additive, kind.is_count, kind.percent, kind.share_below is not None,
        kind.contrast is not None,
    )  # fmt: skip


def _units_by_stratum(design: "PublicDesign") -> np.ndarray[Any, np.dtype[np.int64]]:
    """Numbers of records of each stratum, or of PSUs where variances are by PSU."""
    strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
    if design.psu is not None and design.design_effect is None:
        strata = np.unique(np.stack([strata, design.psu]), axis=1)[0]
    return np.bincount(strata)


def has_lonely_stratum(design: "PublicDesign") -> bool:
    """Whether some stratum has a single record (or primary sampling unit)."""
    return bool(np.any(_units_by_stratum(design) == 1))


def _example_row(table: ReleaseTable, design: "PublicDesign") -> int:
    frame = table.frame
    shown, first = frame["se"].notna(), 0
    if table.categories:  # a level or a spike, which a program can compare with, and not of none
        outcome = design.outcomes[design.outcome_names.index(str(table.outcome))]
        if outcome.spikes:
            points = ~frame[LEVEL].isin(outcome.category_names[: len(outcome.sides)])
            shown, first = shown & points, int(np.flatnonzero(points)[0])
        shown &= frame["ci_lower"].notna()
    if statistic_of(table.statistic).share_below is not None:  # with an interval to both sides
        shown &= frame["ci_lower"].notna() & frame["ci_upper"].notna()
    # The average rule counts strata by the row's own records: show it where it is simplest.
    if not (has_lonely_stratum(design) and design.lonely_psu == "average"):
        for wanted in (~frame["is_margin"] & shown, shown):
            rows = np.flatnonzero(wanted & well_filled(frame))
            if rows.size:
                return int(rows[0])
    return first


def _setting(
    facts: ReleaseFacts, table: ReleaseTable, row: int, *, separate_pair: bool
) -> ExampleSetting:
    design, record = facts.design, table.frame.iloc[row]
    parquet = facts.microdata_format == "parquet"

    def written(text: str) -> str:
        return text if parquet else safe_text(text)

    def column(name: str | None) -> str | None:
        return None if name is None else written(name)

    others = [name for name in design.outcome_names if name not in table.by]
    outcome = table.outcome or (others or design.outcome_names)[0]
    kind = statistic_of(table.statistic)
    cell, other = cells_of(facts, table, record, written, parquet=parquet)
    synthetic = {written(name): written(name + VARIANCE_SUFFIX) for name in design.outcome_names}
    own_cells = separate_pair and not synthetic.keys().isdisjoint({**cell, **(other or {})})

    def of_pair(given: dict[str, Any]) -> dict[str, Any]:
        return {synthetic.get(name, name): code for name, code in given.items()}

    weight = weight_column(design)
    level, compared = _level_of(table, row, design)
    lonely: dict[str, LonelyRule] = {"adjust": "adjust", "average": "average"}
    return ExampleSetting(
        statistic=table.statistic,
        rule=facts.spec.linearisation,
        cell=cell,
        outcome=written(outcome),
        weight=written(weight),
        variance_pair=(written(outcome + VARIANCE_SUFFIX), written(weight + VARIANCE_SUFFIX))
        if separate_pair
        else None,
        strata=column(design.strata_name),
        psu=column(design.psu_name) if design.design_effect is None else None,
        fraction=column(fraction_name(design)),
        population=design.population_size,
        lonely=lonely.get(design.lonely_psu, "skip") if has_lonely_stratum(design) else "none",
        parquet=parquet,
        design_effect=design.design_effect,
        public=tuple(written(name) for name in public_row_columns(design))
        if facts.mechanism.combining == "total_variance"
        else None,
        level=written(level) if isinstance(level, str) else level,
        compared=compared,
        variance_cell=of_pair(cell) if own_cells else None,
        df_design=float(facts.df_design),
        denominator=(written(kind.of[1]), written(kind.of[1] + VARIANCE_SUFFIX))
        if kind.of
        else None,
        other_cell=other,
        variance_other_cell=of_pair(other) if own_cells and other is not None else None,
    )


def _level_of(
    table: ReleaseTable, row: int, design: "PublicDesign"
) -> tuple[str | float | None, str]:
    """Of a statistic by level that of the row, of numbers of a binary outcome with names the last;
    None for an outcome that is a number itself. With it how values compare: a side of a split
    without spikes is all that lies from the split on, or below it."""
    if table.outcome is None:
        return None, "=="
    outcome = design.outcomes[design.outcome_names.index(table.outcome)]
    if table.categories:
        level = str(table.frame[LEVEL].iloc[row])
    elif outcome.is_labelled:
        level = outcome.levels[-1]
    else:
        return None, "=="
    if outcome.split is not None and not outcome.spikes:
        return outcome.split, "<" if level == outcome.side_name(BELOW) else ">="
    return level if outcome.is_labelled else float(level), "=="


def literal(value: Any) -> str:
    """A Python literal that cannot end the surrounding Markdown block."""
    return repr(value).replace("`", "\\x60")


def python_program(setting: ExampleSetting) -> str:
    """The program, for pandas and NumPy."""
    lines = [
        *_header(setting),
        *_reading(setting),
        *_variance(setting),
        *(
            python_distribution(setting, _y(setting, "OUTCOME"), _inside("CELL"))
            if setting.of_share
            else ()
        ),
        *_estimate(setting),
        *(_combining(setting) if setting.public is None else _total_variance(setting)),
    ]
    return "\n".join(lines)


def _header(setting: ExampleSetting) -> list[str]:
    lines = [
        "from pathlib import Path",
        "",
        "import numpy as np",
        "import pandas as pd",
        *(["from scipy.stats import t"] if setting.of_share else []),
        "",
        f"CELL = {literal(setting.cell)}  # leave a column out to sum over its levels",
        f"OUTCOME, WEIGHT = {literal(setting.outcome)}, {literal(setting.weight)}",
    ]
    others = (("OTHER_CELL", setting.other_cell), ("VARIANCE_CELL", setting.variance_cell),
              ("VARIANCE_OTHER_CELL", setting.variance_other_cell))  # fmt: skip
    lines += [f"{name} = {literal(value)}" for name, value in others if value is not None]
    if setting.denominator is not None:
        lines.append(f"DENOMINATOR = {literal(setting.denominator[0])}")
        if setting.variance_pair:
            lines.append(f"VARIANCE_DENOMINATOR = {literal(setting.denominator[1])}")
    if setting.variance_pair:
        pair = ", ".join(map(literal, setting.variance_pair))
        lines.append(f"VARIANCE_OUTCOME, VARIANCE_WEIGHT = {pair}")
    if setting.level is not None:
        lines.append(f"LEVEL = {literal(setting.level)}  # whose share it is")
    if setting.public is not None:
        lines.append(f"PUBLIC = {literal(list(setting.public))}")
    lines.append(f"CODES = {literal(setting.codes)}")
    given = (("STRATA", setting.strata), ("PSU", setting.psu), ("FRACTION", setting.fraction))
    lines += [f"{name} = {literal(value)}" for name, value in given if value is not None]
    numbers = (("POPULATION", setting.population), ("DESIGN_EFFECT", setting.design_effect))
    lines += [f"{name} = {value!r}" for name, value in numbers if value is not None]
    return lines


def _reading(setting: ExampleSetting) -> list[str]:
    if setting.parquet:
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
    outcome, of_variance = "OUTCOME, ", ", VARIANCE_OUTCOME"
    if isinstance(setting.level, str):  # among the codes
        outcome = of_variance = ""
    pair = f"{of_variance}, VARIANCE_WEIGHT" if setting.variance_pair else ""
    if setting.denominator is not None:
        pair += ", DENOMINATOR" + ", VARIANCE_DENOMINATOR" * bool(setting.variance_pair)
    fraction = ", FRACTION" if setting.fraction else ""
    return [
        f"NUMBERS = [{outcome}WEIGHT{pair}{fraction}]",
        "",
        "",
        "def read(path):",
        *read,
        "",
        "",
    ]


def _variance(setting: ExampleSetting) -> list[str]:
    """Between units within strata; a stratum of one unit follows the lonely-PSU rule."""
    stratum = "data[STRATA]" if setting.strata else 'pd.Series("", index=data.index)'
    limited = "limited * " if setting.public is not None else ""
    fpc = f"(1 - {limited}fraction[h]) * " if setting.fraction else ""
    both = ", limited=0" if setting.fraction and setting.public is not None else ""
    lines = [f"def variance(data, u{both}):", f"    stratum = {stratum}"]
    if setting.psu:
        lines.append("    u = u.groupby([stratum, data[PSU]]).sum()")
        lines.append('    groups = u.groupby(level=0)')
    else:
        lines.append("    groups = u.groupby(stratum)")
    if setting.fraction:
        lines.append("    fraction = data[FRACTION].groupby(stratum).first()")
    lines += ["    total = 0.0", "    for h, u_h in groups:", "        n = len(u_h)"]
    if setting.lonely == "adjust":
        lines += [
            "        if n == 1:",
            f"            total += {fpc}(u_h**2).sum()",
            "            continue",
        ]
    elif setting.lonely != "none":
        lines += ["        if n == 1:", "            continue"]
    lines.append(f"        total += {fpc}n / (n - 1) * ((u_h - u_h.mean()) ** 2).sum()")
    if setting.lonely == "average":
        lines += ["    size = groups.size()", "    total *= len(size) / (size > 1).sum()"]
    factor = "DESIGN_EFFECT * " if setting.design_effect is not None else ""
    return [*lines, f"    return {factor}total", "", ""]


def _y(setting: ExampleSetting, column: str) -> str:
    """The outcome, or 1 where it has the level and 0 elsewhere."""
    if setting.level is None:
        return f"data[{column}]"
    return f"1.0 * (data[{column}] {setting.compared} LEVEL)"


def _estimate(setting: ExampleSetting) -> list[str]:
    kind = statistic_of(setting.statistic)
    if kind.contrast is not None:
        return python_contrast(setting, _y(setting, "outcome"), _inside("cell"))
    program, divided = kind.python, setting.denominator is not None
    lines = [
        "def estimate(data):",
        *_inside("CELL"),
        f"    y, w = {_y(setting, 'OUTCOME')}, data[WEIGHT]",
        *(["    x = data[DENOMINATOR]"] if divided else []),
        *(f"    {line}" for line in program.estimate),
    ]
    if setting.variance_pair:
        lines += [
            "    published = value",
            *(_inside("VARIANCE_CELL") if setting.variance_cell is not None else ()),
            f"    y, w = {_y(setting, 'VARIANCE_OUTCOME')}, data[VARIANCE_WEIGHT]",
            *(["    x = data[VARIANCE_DENOMINATOR]"] if divided else []),
            *(f"    {line}" for line in program.estimate),
        ]
    returned = "published" if setting.variance_pair else "value"
    spread = "variance(data, u)" if setting.public is None else "u"
    return [
        *lines,
        *(f"    {line}" for line in program.variable(setting.rule)),
        f"    return {returned}, {spread}",
        "",
        "",
    ]


def _inside(cell: str) -> list[str]:
    return [
        "    inside = pd.Series(True, index=data.index)",
        f"    for column, code in {cell}.items():",
        "        inside &= data[column] == code",
    ]


def _total_variance(setting: ExampleSetting) -> list[str]:
    """The law of total variance, from one dataset of each draw."""
    lines = [
        'datasets = [read(path) for path in sorted(Path("microdata").glob("draw_*_rep_01*"))]',
        "results = [estimate(data) for data in datasets]",
        "values = pd.Series([value for value, u in results])",
        "m, first = len(datasets), datasets[0]",
        "between = values.var(ddof=1)",
        "within = np.mean([variance(data, u) for data, (_, u) in zip(datasets, results)])",
        "# What the sample's composition varies: u averaged over datasets and over records alike.",
        "mean_u = sum(u for _, u in results) / m",
        "alike = [first[column] for column in PUBLIC] or [pd.Series(0, index=first.index)]",
        'composition = variance(first, mean_u.groupby(alike).transform("mean"))',
        "rest = (1 + 1 / m) * between - max(within - composition, 0)",
        "total = composition + max(rest, between / 5)",
        *(python_df(setting) if setting.of_share else ()),
    ]
    if setting.fraction:
        lines += [
            "limited = [variance(data, u, limited=1) for data, (_, u) in zip(datasets, results)]",
            "total = max(total - (within - np.mean(limited)), between / 5)",
        ]
    if setting.of_share:
        return [*lines, "share, se = values.mean(), np.sqrt(total)", *python_end()]
    return [*lines, "print(values.mean(), np.sqrt(total))"]


def _combining(setting: ExampleSetting) -> list[str]:
    lines = [
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
        'within = by_draw["variance"].mean()',
        "standard_error = np.sqrt(within + between / m)",
    ]
    if setting.of_share:
        return [*lines, *python_df(setting), "share, se = combined, standard_error", *python_end()]
    return [*lines, "print(combined, standard_error)"]
