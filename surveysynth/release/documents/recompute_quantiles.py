"""What a README's programs have more for quantiles: the mean distribution function of all
datasets before the loop over these, and its inverse at the ends of the interval after it."""

from typing import TYPE_CHECKING

from surveysynth.estimation.quantiles import ROUNDING
from surveysynth.estimation.statistics import statistic_of

if TYPE_CHECKING:
    from surveysynth.release.documents.recompute_setting import ExampleSetting


def python_distribution(setting: "ExampleSetting", y: str, inside: list[str]) -> list[str]:
    """Statements that set ``Q``; y: the outcome; inside: statements that set ``inside``."""
    replicates = "*" if setting.public is None else "01*"
    return [
        "def distribution(data):",
        *inside,
        f"    y, w = {y}, data[WEIGHT]",
        '    return pd.DataFrame({"y": y[inside], "w": w[inside] / w[inside].sum()})',
        "",
        "",
        f'paths = sorted(Path("microdata").glob("draw_*_rep_{replicates}"))',
        "pooled = pd.concat([distribution(read(path)) for path in paths]).sort_values(\"y\")",
        'reached = (pooled["w"].cumsum() / pooled["w"].sum()).to_numpy()',
        "",
        "",
        "def value_at(share):",
        f'    return pooled["y"].iloc[np.searchsorted(reached, share * (1 - {ROUNDING!r}))]',
        "",
        "",
        f"Q = value_at({statistic_of(setting.statistic).share_below!r})",
        "",
        "",
    ]


def r_distribution(setting: "ExampleSetting", y: str, inside: list[str]) -> list[str]:
    """The same in R."""
    replicates = "" if setting.public is None else "01"
    return [
        "distribution <- function(data) {",
        *inside,
        f"  y <- {y}",
        "  w <- data[[WEIGHT]]",
        "  data.frame(y = y[inside], w = w[inside] / sum(w[inside]))",
        "}",
        f'paths <- sort(list.files("microdata", "^draw_[0-9]+_rep_{replicates}", '
        "full.names = TRUE))",
        "pooled <- do.call(rbind, lapply(paths, function(path) distribution(read(path))))",
        "pooled <- pooled[order(pooled$y), ]",
        "reached <- cumsum(pooled$w) / sum(pooled$w)",
        f"value_at <- function(share) pooled$y[which(reached >= share * (1 - {ROUNDING!r}))[1]]",
        f"Q <- value_at({statistic_of(setting.statistic).share_below!r})",
        "",
    ]


def python_df(setting: "ExampleSetting") -> list[str]:
    """Statements that set ``df`` under partial synthesis."""
    df = "min((m - 1) * (1 + within / (between / m))**2, DF) if between > 0 else DF"
    return [f"DF = {setting.df_design!r}", f"df = {df}"]


def r_df(setting: "ExampleSetting") -> list[str]:
    """The same in R."""
    df = "if (between > 0) min((m - 1) * (1 + within / (between / m))^2, DF) else DF"
    return [f"DF <- {setting.df_design!r}", f"df <- {df}"]


def python_end() -> list[str]:
    """Statements that print the estimate and its standard error; they know ``share``, ``se`` and
    ``df``."""
    t = "t.ppf(0.975, df)"
    return [
        f"ends = [value_at(share + sign * {t} * se) for sign in (-1, 1)]",
        f"print(Q, (ends[1] - ends[0]) / (2 * {t}))",
    ]


def r_end() -> list[str]:
    """The same in R."""
    t = "qt(0.975, df)"
    return [
        f"ends <- sapply(c(-1, 1), function(sign) value_at(share + sign * {t} * se))",
        f'cat(format(c(Q, (ends[2] - ends[1]) / (2 * {t})), digits = 15), "\\n")',
    ]
