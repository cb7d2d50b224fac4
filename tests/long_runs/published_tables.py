"""Published tables of the papers next to ours: ``python -m tests.long_runs.published_tables``.

Reads the papers' figures in ``tables/literature``, the committed cells of 100 samples (engine of
commit 2812de3d), and ``golden/risk_study.json``; writes ``vignettes/technical/replication.md``.
Every number in it comes from there.
"""

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.resources import literature_table
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import COUNT, MEAN

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = Path(__file__).parents[2] / "vignettes" / "technical" / "replication.md"
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
DOCTORATES = {
    COUNT.name: ("counts (Table 2)", "sdr2017_counts_table2.csv"),
    MEAN.name: ("mean salary (Table 3)", "sdr2017_mean_salary_table3.csv"),
}
ESTIMANDS = {"mean": "mean", "median": "median", "q15": "15% quantile", "q90": "90% quantile"}
SCHEMES = {
    "data": "data", "LW": "Lipschitz", "LW_final": "Lipschitz, re-weighted",
    "CW": "count-based", "CW_final": "count-based, re-weighted",
}  # fmt: skip
INCOME = {
    "Unweighted": "no weights", "CW at scale 1": "count-based, 1 - risk",
    "Pairwise at scale 1": "pairwise, 1 - risk",
}  # fmt: skip


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
    error = table["default_coverage_mcse"].combine(table["published_coverage_mcse"], max).max()
    parts = [
        _HEAD, overview(table), _where_we_differ(table),
        _CELLS.format(error=error),
    ]  # fmt: skip
    for statistic, title in STATISTICS.items():
        parts.append(f"{title}:\n\n{_cells(table[table['statistic'] == statistic])}")
    parts += [_doctorates(), _reweighting(), _weights()]
    return "\n".join(parts)


def filled(text: str) -> str:
    """Paragraphs in lines of the length of the other pages."""
    paragraphs = text.strip().split("\n\n")
    lines = [textwrap.fill(" ".join(each.split()), 104, break_on_hyphens=False)
             for each in paragraphs]  # fmt: skip
    return "\n\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"


_HEAD = """\
# Replication of the papers' tables

`python -m tests.long_runs.published_tables` makes this page from the papers' numbers
([tables/literature](../../tables/literature); [sources](../reference/cite.md#sources)) and our
committed results (`tests/golden`).

## Tables 4 and 5: simulated coverage

[T] reports coverage and average length of nominal 95% intervals for 100 samples of 1,000 from a
population of 100,000 (m = 3, epsilon 10.8). Ours are from 100 samples of the same design, computed
with the code of commit 2812de3d:

- **as published**: linear risk weights, FBP weights smoothed by the outcome, plain linearization,
  the paper's inference, and the conventions below;
- **ours**: our defaults: fixed-point risk weights, FBP weights smoothed by E(pi | x), ratio
  linearization, and debiased inference (six datasets per draw).

Means over the 24 cells of each table, and median ratios of lengths:
"""

_CELLS = """\
### Cells

Each entry is the coverage and mean length of intervals. Our coverages have Monte Carlo standard
errors of up to {error:.2f}.
"""

_TEXT = """\
**Conventions of the published intervals.** Their lengths imply that intervals extend 1.96 standard
errors on either side. For FBP the variances of counts ignore the strata: with Taylor variances by
stratum (and t quantiles) our intervals would be {stratified_length:.2f} times as long as the
published ones in the median cell ({stratified_least:.2f} in the most different one); without strata
they are {published_length:.2f} times as long. Means of FBP data have equal weights within a cell of
field and gender. With these conventions our lengths are {length_least:.2f} to {length_largest:.2f}
times theirs in all 96 cells.

**Field 7 under FBP.** We reproduce the published coverage of 0.51, with {field_7:.2f} for the whole
field and {field_7_male:.2f} for men. Weights smoothed by the outcome alone omit the selection that
depends on the strata, and the estimate for this field is {field_7_bias:,.0f} persons below
{field_7_truth:,.0f}. With strata in the variance, coverage would be {field_7_strata:.2f}; with
our default smoothing it is {field_7_default:.2f} and {field_7_male_default:.2f}.

**Remaining differences.** With the published settings, coverage differs by more than three standard
errors in {far} of 96 cells ({far_of}). For means, our coverage is {mean_fbp:.2f} under FBP (theirs
is {mean_fbp_paper:.2f}) and {mean_fbs:.2f} under FBS (theirs is {mean_fbs_paper:.2f}). The paper
does not say how risk weights were scaled and shifted (ours are scaled but not shifted) or how the
smoothed weights of FBS were scaled to the population (ours sum to it). For FBS counts its coverage
is {interior_paper:.2f} in interior cells and {fields_paper:.2f} for whole fields; ours is
{interior:.2f} and {fields:.2f}.

**Outcome smoothing is only for reproduction.** With `get_model("fbp", smoothing="outcome")` and its
weights by record, means of FBP data are corrected for selection twice and have coverage of
{twice:.2f}.

**Our defaults** have coverage of {default_least:.2f} to {default_largest:.2f} in every cell.
"""


def _where_we_differ(table: pd.DataFrame) -> str:
    return "### Where we differ, and why\n\n" + filled(_TEXT.format(**_facts(table)))


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
    """A row for each cell: coverage and length, of both models."""
    rows = []
    for (field, gender), of_cell in part.groupby(["field", "gender"], sort=False):
        by_model = of_cell.set_index("model").to_dict("index")
        cells = [
            f"{by_model[m][f'{name}coverage']:.2f}, {by_model[m][f'{name}ci_length']:,.0f}"
            for m in MODELS for name in ("", "published_", "default_")
        ]  # fmt: skip
        rows.append((str(field), str(gender), *cells))
    head = [words for m in MODELS.values() for words in (f"{m}: paper", "as published", "ours")]
    return _table(("field", "gender", *head), rows)


def _doctorates() -> str:
    """Standard errors of Tables 2 and 3 over the sample's, with those of the simulation."""
    cells = cells_of("paper").pivot_table(
        index=["statistic", "field", "gender"], columns="method", values="se"
    )
    ours = cells.div(cells["sample"], axis=0).groupby("statistic").median()
    own = {"laplace": "laplace", **{model: f"{model}_published" for model in MODELS}}
    rows = []
    for statistic, (title, name) in DOCTORATES.items():
        table = pd.read_csv(literature_table(name))
        numbers: list[str] = []
        for model, method in own.items():
            ratio = (table[f"{model}_se"] / table["sample_se"]).median()
            numbers += [f"{ratio:.2f}", f"{ours.loc[statistic, method]:.2f}"]
        rows.append((title, *numbers))
    head = ("", "Laplace: paper", "ours", "FBS: paper", "ours", "FBP: paper", "ours")
    text = """
    We do not have the records of the 2017 Survey of Doctorate Recipients. The table compares the
    ratio of published standard errors to the sample's, in the median of 27 rows, with the same
    ratio in the simulation above ("as published").
    """
    return f"## Tables 2 and 3: doctorate recipients\n\n{filled(text)}\n{_table(head, rows)}"


def _risk_study() -> Any:
    return json.loads((GOLDEN / "risk_study.json").read_text(encoding="utf-8"))


def _reweighting() -> str:
    """Table 1: published intervals of one database beside the mean ends of ours."""
    study = _risk_study()["mixture"]
    rows = []
    for scheme, title in SCHEMES.items():
        own = [each["data"] if scheme == "data" else each["schemes"][scheme]
               for each in study["databases"]]  # fmt: skip
        ends = {name: np.mean([each["intervals"][name] for each in own], axis=0)
                for name in ESTIMANDS}  # fmt: skip
        for whose, found in ((title, study["published"][scheme]), ("ours", ends)):
            cells = [f"{found[name][0]:.1f} to {found[name][1]:.1f}" for name in ESTIMANDS]
            rows.append((whose, *cells))
    text = f"""
    The data are 1,000 counts from 0.2 NB(100, 5) + 0.8 NB(100, 20). The paper reports intervals
    from one database; our lines are mean endpoints over {len(study["databases"])}. Count-based
    weights miss the quantiles in both, and re-weighting corrects them. Lipschitz weights change
    little.
    """
    table = _table(("scheme, paper", *ESTIMANDS.values()), rows)
    return f"## Table 1 of the paper on re-weighting\n\n{filled(text)}\n{table}"


def _weights() -> str:
    """Findings on weights and identification risk."""
    study = _risk_study()
    scalar, lipschitz = (
        [each["schemes"][name]["mean_weight"] for each in study["poisson"]["databases"]]
        for name in ("SW", "LW")
    )
    rows = []
    for key, title in (("income", "regression"), ("income_mixture", "mixture of three")):
        for name, words in INCOME.items():
            row = study[key]["schemes"][name]
            fifths = row["risk_after_by_fifth_before"]
            numbers = (row["mean_weight"], fifths[-1], fifths[0], row["risk_after_sd"])
            rows.append((title, words, *(f"{number:.3f}" for number in numbers)))
    text = f"""
    **Poisson counts** ([R], early version). At the bound of Lipschitz weights, the paper's scalar
    weight is about 0.375 for every record. Ours is {min(scalar):.2f} to {max(scalar):.2f} in
    {len(scalar)} databases, where Lipschitz weights are {min(lipschitz):.2f} to
    {max(lipschitz):.2f} on average.

    **Identification risk of family incomes** ([S], figures without a table). In the slides,
    count-based weights of 1 - risk lower the risk of isolated records and raise that of moderate
    ones, and pairwise weights do so less. So do ours, for {study["income"]["n"]:,} households of a
    consumer survey. The table shows the mean risk after synthesis and its SD over records:
    """
    head = ("synthesizer", "scheme", "mean weight", "most isolated fifth", "least isolated fifth",
            "SD")  # fmt: skip
    return f"## Risk weights and identification risk\n\n{filled(text)}\n{_table(head, rows)}"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"Wrote {PAGE}.")
