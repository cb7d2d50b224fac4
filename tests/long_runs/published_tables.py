"""Tables 4 and 5 of the tabular-products paper beside ours:
``python -m tests.long_runs.published_tables``.

Reads the committed cells of 100 samples, by the engine of commit 2812de3d, and writes
``vignettes/technical/coverage/README.md``; every number in it comes from there.
"""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd

from surveysynth._support.resources import literature_table
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import COUNT, MEAN

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = Path(__file__).parents[2] / "vignettes" / "technical" / "coverage" / "README.md"
#: Names of settings here: (file of cells, suffix of methods).
SETTINGS = {
    "published": ("paper", "_published"),
    "paper": ("paper", "_paper"),
    "default": ("default", ""),
}
STATISTICS = {"count": "Counts (Table 4)", "mean": "Mean salary (Table 5)"}
MODELS = {"fbs": "FBS", "fbp": "FBP"}
#: Published tables by statistic.
PUBLISHED = {
    COUNT.name: "simulation_counts_table4.csv",
    MEAN.name: "simulation_mean_salary_table5.csv",
}
_PLACE = ("field", "gender")


def cells_of(name: str) -> pd.DataFrame:
    """The committed cells of one study."""
    return pd.read_csv(GOLDEN / f"coverage_{name}_cells.csv", dtype={"field": str})


def published_tables() -> pd.DataFrame:
    """Tables 4 and 5 in one frame: statistic, field, gender, model, coverage, ci_length."""
    parts = []
    for statistic, name in PUBLISHED.items():
        table = pd.read_csv(literature_table(name), dtype={"field": str})
        for model in MODELS:
            part = table[list(_PLACE)].assign(statistic=statistic, model=model)
            for column in ("coverage", "ci_length"):
                part[column] = table[f"{model}_{column}"]
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def beside_published(settings: dict[str, tuple[pd.DataFrame, str]]) -> pd.DataFrame:
    """The published cells with the same cells of studies beside them.

    settings: by name the cells of a study (``cells.csv``, with field and gender) and the suffix of
    its methods, as "_published" or "". Adds to each row, by name of the setting, coverage,
    coverage_mcse, ci_length, ci_length_mcse. Raises ``InputError`` for cells that lack one.
    """
    result = published_tables()
    keys = ["statistic", *_PLACE, "model"]
    columns = ["coverage", "coverage_mcse", "ci_length", "ci_length_mcse"]
    for name, (cells, suffix) in settings.items():
        methods = {f"{model}{suffix}": model for model in MODELS}
        ours = cells[cells["method"].isin(methods)]
        ours = ours.assign(model=ours["method"].map(methods))[[*keys, *columns]]
        ours = ours.rename(columns={each: f"{name}_{each}" for each in columns})
        result = result.merge(ours, on=keys, how="left", validate="one_to_one")
        missing = int(result[f"{name}_coverage"].isna().sum())
        if missing:
            raise InputError(
                f"the study {name!r} lacks {missing} of the {len(result)} published cells; "
                f"expected the methods {' and '.join(methods)} on the published population."
            )
    return result


def comparison() -> pd.DataFrame:
    """All published cells with ours beside them."""
    return beside_published({name: (cells_of(file), suffix)
                             for name, (file, suffix) in SETTINGS.items()})  # fmt: skip


def differences(table: pd.DataFrame, setting: str) -> "pd.Series[float]":
    """Our coverage less the published one, in standard errors of both over 100 samples."""
    counted = (table["coverage"] * 100 + 1) / 102  # a coverage of 1 has an error too
    published = counted * (1 - counted) / 100
    error = np.sqrt(published + table[f"{setting}_coverage_mcse"] ** 2)
    return (table[f"{setting}_coverage"] - table["coverage"]) / error


def render() -> str:
    """The page."""
    table = comparison()
    parts = [_HEAD, overview(table), _where_we_differ(table)]
    for statistic, title in STATISTICS.items():
        for model, label in MODELS.items():
            part = table[(table["statistic"] == statistic) & (table["model"] == model)]
            parts.append(f"## {title}, {label}\n\n{_cells(part)}")
    return "\n".join(parts)


_HEAD = """\
# Tables 4 and 5 of the paper next to ours

Hu, Savitsky and Williams (2022) report the coverage and the average length of their nominal 95%
intervals, cell by cell, for 100 samples of 1,000 from a population of 100,000 (m = 3, epsilon
10.8). Below are their numbers next to ours, from 100 samples of the same design with other random
numbers, each with its Monte Carlo standard error in brackets:

- **as published**: linear risk weights, FBP weights smoothed by the outcome, plain linearization,
  the paper's inference, and the conventions described below;
- **ours**: the defaults of this package: fixed-point risk weights, FBP weights smoothed by
  E(pi | x), ratio linearization, and debiased inference (six datasets a draw).

The studies were run by the engine of commit 2812de3d (`python -m tests.long_runs.coverage_table`
there), which knew the conventions; `python -m tests.long_runs.published_tables` makes this page.
In summary, over the 24 cells of each table:
"""

_TEXT = """\
**Conventions of the published intervals.** The paper states them in part; the lengths of the
intervals show the rest. Intervals are 1.96 standard errors on either side, without degrees of
freedom for the few draws. For FBP the variances of counts ignore the strata: with Taylor variances
by stratum (and t quantiles) our intervals would be {stratified_length:.2f} times as long as the
published ones in the median cell ({stratified_least:.2f} in the one that differs most); without
strata they are {published_length:.2f} times as long. Means of FBP data have equal weights within a
cell of field and gender, as section 2.3 of the paper says. With these conventions our lengths are
{length_least:.2f} to {length_largest:.2f} times theirs in all 96 cells.

**Field 7 under FBP.** We reproduce the published 0.51: {field_7:.2f} for the whole field and
{field_7_male:.2f} for men. Weights smoothed by the outcome alone omit the part of the selection
that depends on the strata, and the estimate for the field that earns the most is
{field_7_bias:,.0f} persons short of {field_7_truth:,.0f}. Intervals that ignore the strata are so
long that they still cover in half of the samples; with strata in the variance they would cover
{field_7_strata:.2f}. Our default smooths by E(pi | x), and covers {field_7_default:.2f} and
{field_7_male_default:.2f}.

**Remaining differences.** Coverage as published differs by more than three standard errors in
{far} of 96 cells ({far_of}). Our means cover more, {mean_fbp:.2f} against {mean_fbp_paper:.2f}
under FBP and {mean_fbs:.2f} against {mean_fbs_paper:.2f} under FBS, with intervals as long, so
their point estimates must be farther off. The paper does not say how the risk weights were scaled
and shifted for each sample (ours are scaled, with no shift), nor how the smoothed weights of FBS
were brought to the size of the population (ours sum to it). Their intervals of FBS counts cover
{interior_paper:.2f} in the interior and {fields_paper:.2f} for whole fields; ours cover
{interior:.2f} and {fields:.2f}.

**Outcome smoothing is only for reproduction.** With `smoothing = "outcome"` and its weights by
record, means of FBP data are corrected for selection twice and cover {twice:.2f}. The published
tables avoid this by equal weights within cells, which the default smoothing always has.

**Our defaults** cover {default_least:.2f} to {default_largest:.2f} in every cell. On average FBS
counts cover {default_fbs_count:.2f}, FBP counts {default_fbp_count:.2f}, and means
{default_fbs_mean:.2f} (FBS) and {default_fbp_mean:.2f} (FBP). In the median cell, intervals of
means are {default_mean_length:.2f} times as long as the published ones, those of FBS counts
{default_fbs_length:.2f} times, and those of FBP counts {default_fbp_length:.2f} times.
"""


def _where_we_differ(table: pd.DataFrame) -> str:
    paragraphs = _TEXT.format(**_facts(table)).split("\n\n")
    filled = [textwrap.fill(each, 99, break_on_hyphens=False) for each in paragraphs]
    return "## Where we differ, and why\n\n" + "\n\n".join(filled) + "\n"


def overview(table: pd.DataFrame) -> str:
    lines = [
        "| | coverage: paper | as published | ours | length: as published / paper | ours / paper |",
        "|---|---|---|---|---|---|",
    ]
    for statistic, title in STATISTICS.items():
        for model, label in MODELS.items():
            part = table[(table["statistic"] == statistic) & (table["model"] == model)]
            ratios = [(part[f"{name}_ci_length"] / part["ci_length"]).median()
                      for name in ("published", "default")]  # fmt: skip
            means = [part[name].mean() for name in
                     ("coverage", "published_coverage", "default_coverage")]  # fmt: skip
            numbers = " | ".join(f"{each:.3f}" for each in means)
            lengths = " | ".join(f"{each:.2f}" for each in ratios)
            lines.append(f"| {title}, {label} | {numbers} | {lengths} |")
    return "\n".join(lines) + "\n"


def _facts(table: pd.DataFrame) -> dict[str, float | int | str]:
    """The numbers of the text."""
    part = {(s, m): table[(table["statistic"] == s) & (table["model"] == m)]
            for s in STATISTICS for m in MODELS}  # fmt: skip
    counts, ratio = part["count", "fbp"], {}
    for name in SETTINGS:
        ratio[name] = table[f"{name}_ci_length"] / table["ci_length"]
    far = differences(table, "published").abs() > 3
    tables = table[far].groupby(["statistic", "model"], sort=False).size()
    seven = counts[counts["field"] == "7"].set_index("gender")
    cells = cells_of("paper")
    bias = cells[(cells["method"] == "fbp_published") & (cells["statistic"] == "count")
                 & (cells["field"] == "7") & (cells["gender"] == "All")].iloc[0]  # fmt: skip
    means = pd.concat([part["mean", model] for model in MODELS])
    return {
        "stratified_length": ratio["paper"][counts.index].median(),
        "stratified_least": ratio["paper"][counts.index].min(),
        "published_length": ratio["published"][counts.index].median(),
        "length_least": ratio["published"].min(),
        "length_largest": ratio["published"].max(),
        "field_7": seven.loc["All", "published_coverage"],
        "field_7_male": seven.loc["Male", "published_coverage"],
        "field_7_bias": -bias["bias"],
        "field_7_truth": bias["truth"],
        "field_7_strata": seven.loc["All", "paper_coverage"],
        "field_7_default": seven.loc["All", "default_coverage"],
        "field_7_male_default": seven.loc["Male", "default_coverage"],
        "far": int(far.sum()),
        "far_of": ", ".join(f"{MODELS[m]} {'means' if s == 'mean' else 'counts'} {n}"
                            for (s, m), n in tables.items()),
        **_interior(part["count", "fbs"]),
        "mean_fbp": part["mean", "fbp"]["published_coverage"].mean(),
        "mean_fbp_paper": part["mean", "fbp"]["coverage"].mean(),
        "mean_fbs": part["mean", "fbs"]["published_coverage"].mean(),
        "mean_fbs_paper": part["mean", "fbs"]["coverage"].mean(),
        "twice": part["mean", "fbp"]["paper_coverage"].mean(),
        "default_least": table["default_coverage"].min(),
        "default_largest": table["default_coverage"].max(),
        **{f"default_{m}_{s}": part[s, m]["default_coverage"].mean() for s, m in part},
        "default_mean_length": ratio["default"][means.index].median(),
        "default_fbs_length": ratio["default"][part["count", "fbs"].index].median(),
        "default_fbp_length": ratio["default"][counts.index].median(),
    }  # fmt: skip


def _interior(table: pd.DataFrame) -> dict[str, float]:
    whole = table["gender"] == "All"
    return {
        "interior_paper": table.loc[~whole, "coverage"].mean(),
        "fields_paper": table.loc[whole, "coverage"].mean(),
        "interior": table.loc[~whole, "published_coverage"].mean(),
        "fields": table.loc[whole, "published_coverage"].mean(),
    }


def _cells(part: pd.DataFrame) -> str:
    lines = [
        "| field | gender | paper: coverage | length | as published: coverage | length "
        "| ours: coverage | length |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in part.to_dict("records"):
        cells = [row["field"], row["gender"], f"{row['coverage']:.2f}", f"{row['ci_length']:,.0f}"]
        for name in ("published", "default"):
            cells += [
                f"{row[f'{name}_{what}']:{form}} ({row[f'{name}_{what}_mcse']:{form}})"
                for what, form in (("coverage", ".2f"), ("ci_length", ",.0f"))
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"Wrote {PAGE}.")
