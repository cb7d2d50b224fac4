"""The program in Python of a release's README: one published number recomputed from the microdata.

The programs are text for the data user, who needs pandas and NumPy, or R alone. Tests run them and
compare the results with the published table.
"""

from typing import Any

from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.total_variance import LEAST_DF
from surveysynth.release.documents.recompute_contrasts import python_contrast
from surveysynth.release.documents.recompute_labelled import python_reading
from surveysynth.release.documents.recompute_quantiles import (
    python_df,
    python_distribution,
    python_end,
)
from surveysynth.release.documents.recompute_setting import ExampleSetting


def literal(value: Any) -> str:
    """A Python literal that cannot end the surrounding Markdown block."""
    return repr(value).replace("`", "\\x60")


def python_program(setting: ExampleSetting) -> str:
    """The program, for pandas and NumPy."""
    lines = [
        *_header(setting),
        *_reading(setting),
        *_subsets(setting),
        *_variance(setting),
        *(
            python_distribution(setting, _y(setting, "OUTCOME"), _inside(setting, "CELL"))
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
    if setting.file_format != "csv":
        read = python_reading(setting)
    else:
        read = [
            "",
            "",
            "def read(path):",
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
        *read,
        "",
        "",
    ]


def _subsets(setting: ExampleSetting) -> list[str]:
    """Who is in the subpopulation of the table."""
    if setting.subset is None:
        return []
    return [
        line
        for name, code in setting.subset.functions("python")
        for line in (f"def {name}(data):", f"    return {code}", "", "")
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
    # By the law of total variance it goes on what the datasets make together.
    alone = setting.design_effect is not None and setting.public is None
    return [*lines, f"    return {'DESIGN_EFFECT * ' if alone else ''}total", "", ""]


def _y(setting: ExampleSetting, column: str) -> str:
    """The outcome, or 1 where it has the level and 0 elsewhere."""
    if setting.level is None:
        return f"data[{column}]"
    return f"1.0 * (data[{column}] {setting.compared} LEVEL)"


def _estimate(setting: ExampleSetting) -> list[str]:
    kind = statistic_of(setting.statistic)
    if kind.contrast is not None:
        return python_contrast(setting, _y(setting, "outcome"), _inside(setting, "cell"))
    program, divided = kind.python, setting.denominator is not None
    lines = [
        "def estimate(data):",
        *_inside(setting, "CELL"),
        f"    y, w = {_y(setting, 'OUTCOME')}, data[WEIGHT]",
        *(["    x = data[DENOMINATOR]"] if divided else []),
        *(f"    {line}" for line in program.estimate),
    ]
    if setting.variance_pair:
        lines += [
            "    published = value",
            *_inside_of_pair(setting),
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


def _inside_of_pair(setting: ExampleSetting) -> list[str]:
    """Where the pair for variances has records of its own in the cell."""
    if setting.variance_cell is None and not setting.own_pair:
        return []
    cell = "CELL" if setting.variance_cell is None else "VARIANCE_CELL"
    return _inside(setting, cell, pair=setting.own_pair)


def _inside(setting: ExampleSetting, cell: str, *, pair: bool = False) -> list[str]:
    start = "pd.Series(True, index=data.index)"
    if setting.subset is not None:
        start = "variance_subset(data)" if pair else "subset(data)"
        if cell == "cell" and setting.own_pair:
            start = "(variance_subset if outcome == VARIANCE_OUTCOME else subset)(data)"
    return [
        f"    inside = {start}",
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
        "drawn, given = (1 + 1 / m) * between, max(within - composition, 0)",
        "total = composition + max(drawn - given, between / 5)",
        f"DF = {setting.df_design!r}",
        "squares = drawn**2 / (m - 1) + composition**2 / DF",
        "df = total**2 / (squares + given**2 / DF) if squares > 0 else DF",
        f"if df < {LEAST_DF:g}:  # too few datasets to tell what to take off",
        "    total = composition + drawn",
        "    df = total**2 / squares",
    ]
    if setting.fraction:
        lines += [
            "limited = [variance(data, u, limited=1) for data, (_, u) in zip(datasets, results)]",
            "total = max(total - (within - np.mean(limited)), between / 5)",
        ]
    if setting.design_effect is not None:
        sampled = "np.mean(limited)" if setting.fraction else "within"
        lines.append(f"total += (DESIGN_EFFECT - 1) * min(total, {sampled})")
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
