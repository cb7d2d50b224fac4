"""The worked example of a release's README in R; of packages it needs those that read files other
than csv."""

import json
from typing import Any

from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.total_variance import LEAST_DF
from surveysynth.release.documents.recompute_contrasts import r_contrast
from surveysynth.release.documents.recompute_labelled import r_reading
from surveysynth.release.documents.recompute_quantiles import r_df, r_distribution, r_end
from surveysynth.release.documents.recompute_setting import ExampleSetting


def r_text(text: str) -> str:
    """A string of R that cannot end the surrounding Markdown block; JSON escapes as R does."""
    return json.dumps(text, ensure_ascii=False).replace("`", "\\x60")


def r_program(setting: ExampleSetting) -> str:
    """The program; it prints the same two numbers as that in Python."""
    lines = [
        *_header(setting),
        *_reading(setting),
        *_subsets(setting),
        *_variance(setting),
        *(
            r_distribution(setting, _y(setting, "OUTCOME"), _inside(setting, "CELL"))
            if setting.of_share
            else ()
        ),
        *_estimate(setting),
        *(_combining(setting) if setting.public is None else _total_variance(setting)),
    ]
    return "\n".join(lines)


def _vector(texts: list[str]) -> str:
    return f"c({', '.join(map(r_text, texts))})" if texts else "character(0)"


def _header(setting: ExampleSetting) -> list[str]:
    lines = [
        "# Leave a column out of CELL to sum over its levels.",
        _cell_line("CELL", setting.cell),
    ]
    cells = (("OTHER_CELL", setting.other_cell), ("VARIANCE_CELL", setting.variance_cell),
             ("VARIANCE_OTHER_CELL", setting.variance_other_cell))  # fmt: skip
    lines += [_cell_line(name, cell) for name, cell in cells if cell is not None]
    names: list[tuple[str, str | None]] = [("OUTCOME", setting.outcome), ("WEIGHT", setting.weight)]
    if setting.variance_pair:
        names += zip(("VARIANCE_OUTCOME", "VARIANCE_WEIGHT"), setting.variance_pair, strict=True)
    if setting.denominator is not None:
        names += zip(("DENOMINATOR", "VARIANCE_DENOMINATOR"), setting.denominator, strict=True)
    names += [("STRATA", setting.strata), ("PSU", setting.psu), ("FRACTION", setting.fraction)]
    lines += [f"{name} <- {r_text(value)}" for name, value in names if value is not None]
    if setting.public is not None:
        lines.append(f"PUBLIC <- {_vector(list(setting.public))}")
    lines.append(f"CODES <- {_vector(setting.codes)}")
    if isinstance(setting.level, str):
        lines.append(f"LEVEL <- {r_text(setting.level)}")
    level = None if isinstance(setting.level, str) else setting.level
    numbers = (("POPULATION", setting.population), ("DESIGN_EFFECT", setting.design_effect),
               ("LEVEL", level))  # fmt: skip
    lines += [f"{name} <- {value!r}" for name, value in numbers if value is not None]
    return [*lines, ""]


def _cell_line(name: str, cell: dict[str, Any]) -> str:
    return f"{name} <- setNames({_vector(list(map(str, cell.values())))}, {_vector(list(cell))})"


def _reading(setting: ExampleSetting) -> list[str]:
    if setting.file_format != "csv":
        return r_reading(setting)
    return [
        "read <- function(path) {",
        '  text <- setNames(rep("character", length(CODES)), CODES)',
        "  read.csv(path, check.names = FALSE, colClasses = text,",
        '           na.strings = character(0), encoding = "UTF-8")',
        "}",
        "",
    ]


def _subsets(setting: ExampleSetting) -> list[str]:
    """Who is in the subpopulation of the table."""
    if setting.subset is None:
        return []
    functions = setting.subset.functions("r")
    return [*(f"{name} <- function(data) {code}" for name, code in functions), ""]


def _variance(setting: ExampleSetting) -> list[str]:
    """Between units within strata; a stratum of one unit follows the lonely-PSU rule."""
    stratum = "data[[STRATA]]" if setting.strata else 'rep("", length(u))'
    limited = "limited * " if setting.public is not None else ""
    fpc = f"(1 - {limited}data[[FRACTION]][rows[1]]) * " if setting.fraction else ""
    both = ", limited = 0" if setting.fraction and setting.public is not None else ""
    totals = "tapply(u[rows], data[[PSU]][rows], sum)" if setting.psu else "u[rows]"
    average = setting.lonely == "average"
    lines = [
        f"variance <- function(data, u{both}) {{",
        f"  strata <- split(seq_along(u), {stratum})",
        "  total <- 0",
        *(["  size <- c()"] if average else []),
        "  for (rows in strata) {",
        f"    u_h <- as.vector({totals})",
        "    n <- length(u_h)",
        *(["    size <- c(size, n)"] if average else []),
    ]
    if setting.lonely == "adjust":
        lines.append(f"    if (n == 1) {{ total <- total + {fpc}sum(u_h^2); next }}")
    elif setting.lonely != "none":
        lines.append("    if (n == 1) next")
    lines += [f"    total <- total + {fpc}n / (n - 1) * sum((u_h - mean(u_h))^2)", "  }"]
    if average:
        lines.append("  total <- total * length(size) / sum(size > 1)")
    # By the law of total variance it goes on what the datasets make together.
    alone = setting.design_effect is not None and setting.public is None
    return [*lines, f"  {'DESIGN_EFFECT * ' if alone else ''}total", "}", ""]


def _y(setting: ExampleSetting, column: str) -> str:
    """The outcome, or 1 where it has the level and 0 elsewhere."""
    if setting.level is None:
        return f"data[[{column}]]"
    return f"1 * (data[[{column}]] {setting.compared} LEVEL)"


def _estimate(setting: ExampleSetting) -> list[str]:
    kind = statistic_of(setting.statistic)
    if kind.contrast is not None:
        return r_contrast(setting, _y(setting, "outcome"), _inside(setting, "cell"))
    program, divided = kind.r, setting.denominator is not None
    lines = [
        "estimate <- function(data) {",
        *_inside(setting, "CELL"),
        f"  y <- {_y(setting, 'OUTCOME')}",
        *(["  x <- data[[DENOMINATOR]]"] if divided else []),
        "  w <- data[[WEIGHT]]",
        *(f"  {line}" for line in program.estimate),
    ]
    if setting.variance_pair:
        lines += [
            "  published <- value",
            *_inside_of_pair(setting),
            f"  y <- {_y(setting, 'VARIANCE_OUTCOME')}",
            *(["  x <- data[[VARIANCE_DENOMINATOR]]"] if divided else []),
            "  w <- data[[VARIANCE_WEIGHT]]",
            *(f"  {line}" for line in program.estimate),
        ]
    returned = "published" if setting.variance_pair else "value"
    result = f"c({returned}, variance(data, u))" if setting.public is None else "list(value, u)"
    return [
        *lines,
        *(f"  {line}" for line in program.variable(setting.rule)),
        f"  {result}",
        "}",
        "",
    ]


def _inside_of_pair(setting: ExampleSetting) -> list[str]:
    """Where the pair for variances has records of its own in the cell."""
    if setting.variance_cell is None and not setting.own_pair:
        return []
    cell = "CELL" if setting.variance_cell is None else "VARIANCE_CELL"
    return _inside(setting, cell, pair=setting.own_pair)


def _inside(setting: ExampleSetting, cell: str, *, pair: bool = False) -> list[str]:
    start = "rep(TRUE, nrow(data))"
    if setting.subset is not None:
        start = "variance_subset(data)" if pair else "subset(data)"
        if cell == "cell" and setting.own_pair:
            start = "(if (outcome == VARIANCE_OUTCOME) variance_subset else subset)(data)"
    return [
        f"  inside <- {start}",
        f"  for (column in names({cell})) inside <- inside & data[[column]] == {cell}[[column]]",
    ]


def _total_variance(setting: ExampleSetting) -> list[str]:
    """The law of total variance, from one dataset of each draw."""
    lines = [
        'files <- sort(list.files("microdata", "^draw_[0-9]+_rep_01", full.names = TRUE))',
        "datasets <- lapply(files, read)",
        "results <- lapply(datasets, estimate)",
        "values <- sapply(results, function(each) each[[1]])",
        "m <- length(values)",
        "between <- var(values)",
        "spread <- function(data, each, ...) variance(data, each[[2]], ...)",
        "within <- mean(mapply(spread, datasets, results))",
        "# What the sample's composition varies: u averaged over datasets and over records alike.",
        "mean_u <- Reduce(`+`, lapply(results, function(each) each[[2]])) / m",
        "first <- datasets[[1]]",
        "columns <- c(list(rep(\"\", length(mean_u))), lapply(PUBLIC, function(p) first[[p]]))",
        "alike <- do.call(paste, c(columns, sep = \"\\r\"))",
        "composition <- variance(first, ave(mean_u, alike))",
        "drawn <- (1 + 1 / m) * between",
        "given <- max(within - composition, 0)",
        "total <- composition + max(drawn - given, between / 5)",
        f"DF <- {setting.df_design!r}",
        "squares <- drawn^2 / (m - 1) + composition^2 / DF",
        "df <- if (squares > 0) total^2 / (squares + given^2 / DF) else DF",
        f"if (df < {LEAST_DF:g}) {{  # too few datasets to tell what to take off",
        "  total <- composition + drawn",
        "  df <- total^2 / squares",
        "}",
    ]
    if setting.fraction:
        lines += [
            "limited <- mean(mapply(spread, datasets, results, MoreArgs = list(limited = 1)))",
            "total <- max(total - (within - limited), between / 5)",
        ]
    if setting.design_effect is not None:
        sampled = "limited" if setting.fraction else "within"
        lines.append(f"total <- total + (DESIGN_EFFECT - 1) * min(total, {sampled})")
    if setting.of_share:
        return [*lines, "share <- mean(values)", "se <- sqrt(total)", *r_end()]
    return [*lines, "cat(format(c(mean(values), sqrt(total)), digits = 15), \"\\n\")"]


def _combining(setting: ExampleSetting) -> list[str]:
    lines = [
        'files <- sort(list.files("microdata", "^draw_[0-9]+_rep_", full.names = TRUE))',
        "results <- sapply(files, function(path) estimate(read(path)))",
        "draw <- sub(\"^draw_([0-9]+)_.*\", \"\\\\1\", basename(files))",
        "estimates <- as.vector(tapply(results[1, ], draw, mean))",
        "variances <- as.vector(tapply(results[2, ], draw, mean))",
        "m <- length(estimates)",
        "between <- if (m > 1) var(estimates) else 0",
        "within <- mean(variances)",
        "standard_error <- sqrt(within + between / m)",
    ]
    if setting.of_share:
        end = ["share <- mean(estimates)", "se <- standard_error"]
        return [*lines, *r_df(setting), *end, *r_end()]
    return [
        *lines, "cat(format(c(mean(estimates), standard_error), digits = 15), \"\\n\")"
    ]
