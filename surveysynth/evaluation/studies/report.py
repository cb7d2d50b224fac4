"""Figures of a study and one HTML page that shows them beside its tables."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.page import Picture, bullets, figure_section, scrolled, whole_page
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.methods import SAMPLE, label_of
from surveysynth.evaluation.studies import figures as plots
from surveysynth.evaluation.studies.coverage import CoverageStudy
from surveysynth.evaluation.studies.work import FIGURES, REPORT_NAME, StudyResult
from surveysynth.release.figure_style import draw, png_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def write_report(study: CoverageStudy, result: StudyResult) -> None:
    """Write figures/*.png and report.html into the folder of a study."""
    pictures = list(_pictures(study, result.cells))
    folder = result.out / FIGURES
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    for picture in pictures:
        (folder / f"{picture.name}.png").write_bytes(picture.png)
    page = render_page(study, result, pictures)
    (result.out / REPORT_NAME).write_text(page, encoding="utf-8")


def _pictures(study: CoverageStudy, cells: "pd.DataFrame") -> Iterator[Picture]:
    mark, shown = _mark(study, cells), plots.with_error(cells)

    def picture(
        name: str, heading: str, text: str, function: "Callable[..., Figure]", *arguments: Any
    ) -> Picture:
        return Picture(name, heading, text, png_bytes(draw(function, *arguments)))

    several = len(list(_settings(study))) > 1
    for m, bound in _settings(study) if len(shown) else ():
        epsilon = 2.0 * m * bound
        part = cells[((cells["m"] == m) & _close(cells["epsilon"], epsilon))
                     | (cells["method"] == SAMPLE)]  # fmt: skip
        yield picture(
            "coverage_against_cv" + (f"_m{m}_epsilon{epsilon:.4g}" if several else ""),
            f"Coverage against the coefficient of variation, m = {m}, epsilon {epsilon:.4g}",
            f"A dot is a cell or margin. The line is the nominal {study.level:g}; the band is two "
            "Monte Carlo standard errors of a coverage that is right.",
            plots.coverage_against_cv, part, study.level, mark,
        )  # fmt: skip
    if not (shown["method"] != SAMPLE).any():
        return
    yield picture(
        "rmse_ratio", "Root mean squared error over the sample's",
        "Against the truth of the population, not against the sample. Left of the line a method is "
        "nearer to it than the confidential sample itself. A dot is a cell or margin, the bar "
        "their median.",
        plots.rmse_ratio_violins, cells, mark,
    )  # fmt: skip
    if len(study.epsilons) > 1:
        yield picture(
            "rmse_against_epsilon", "Root mean squared error against epsilon",
            "The median cell. A line joins numbers of draws m of the same fits, epsilon = 2 m "
            "times the bound of one draw.",
            plots.rmse_against_epsilon, cells, mark,
        )  # fmt: skip


def _settings(study: CoverageStudy) -> Iterator[tuple[int, float]]:
    """(m, bound) of every release of a sample."""
    for bound in study.bounds:
        for m in study.draws:
            yield m, bound


def _close(values: "pd.Series[float]", value: float) -> "pd.Series[bool]":
    return (values - value).abs() <= 1e-9 * value


def _mark(study: CoverageStudy, cells: "pd.DataFrame") -> str:
    samples = int(cells.loc[cells["method"] == SAMPLE, "replicates"].max())
    return (
        f"Simulation: {samples:,} samples of {study.design.n:,} records from a population of "
        f"{study.population.n_units:,}"
    )


# --- The page -----------------------------------------------------------------------------------


def render_page(
    study: CoverageStudy, result: StudyResult, pictures: "Iterable[Picture]"
) -> str:
    """The page as text, which needs nothing else; every label is escaped."""
    body = [
        f"<h1>Coverage study: {escape(_outcomes(study))}</h1>",
        _facts(study, result),
        _summary(result.summary),
        *(figure_section(each, each.heading) for each in pictures),
        *(_cells(study, result.cells, m, bound) for m, bound in _shown_settings(study)),
        _notes(study),
    ]
    return whole_page(f"Coverage study of {_outcomes(study)}", "", body)


def _outcomes(study: CoverageStudy) -> str:
    return ", ".join(study.population.outcome)


def _facts(study: CoverageStudy, result: StudyResult) -> str:
    design, population = study.design, study.population
    strata = f"stratified by {population.strata}" if population.strata else "not stratified"
    size = f", size measured by {population.size}" if population.size else ""
    lines = [
        f"{_mark(study, result.cells)}: {design.kind}, {strata}, {design.allocation} allocation"
        f"{size}; seed {study.seed}.",
        f"Every method has the same epsilon: {_listed(study.epsilons)} "
        f"({_listed(study.bounds)} a draw; m = {_listed(study.draws)}). "
        f"{study.linearisation.capitalize()} linearisation, nominal level {study.level:g}, "
        f"{study.replicates_per_draw} dataset{'s' * (study.replicates_per_draw > 1)} a draw.",
    ]
    if study.strict_methods:
        lines.append(_strict(study))
    if len(result.refusals):
        refused = result.refusals.groupby("method")["sample"].nunique()
        told = "; ".join(f"{method}: {count} samples" for method, count in refused.items())
        lines.append(f"Refused, and left out: {told}. Reasons: refusals.csv.")
    if result.failed:
        lines.append(f"{len(result.failed)} batches failed and are not in these numbers.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _strict(study: CoverageStudy) -> str:
    """What the methods with zero-concentrated privacy promise, and with which constants."""
    strict = study.noise
    named = ", ".join(label_of(name) for name in study.strict_methods)
    rho = _listed(strict.at(each).budget.rho for each in study.epsilons)
    declared = "; ".join(
        f"{name}: centre {each.centre:g}, spread {each.spread:g}"
        for name, each in strict.declared.items()
    )
    return (
        f"{named}: another currency. Their epsilon is that of (epsilon, delta) at delta = "
        f"{strict.delta:g}, proved for all valid databases at any n (rho = {rho}); that of the "
        "pseudo-posterior is asymptotic, a bound found on each sample alone. Equal numbers are "
        f"not the same promise. Noisy statistics: {strict.m} draws of {strict.replicates_per_draw} "
        f"datasets. Declared from outside the samples: {declared}."
    )


def _summary(summary: "pd.DataFrame") -> str:
    """A row a method, number of draws and epsilon; the measures of each statistic side by side."""
    parts = ["<h2>In short</h2><p>Over all cells and margins that have sampling error. Coverage: "
             "mean with its Monte Carlo standard error, then the least. Error and length: median "
             "cell, over the confidential sample's.</p>"]  # fmt: skip
    for statistic, of_statistic in summary.groupby("statistic", sort=False):
        head = ("<tr><th>Method</th><th>m</th><th>Epsilon</th><th>Coverage</th><th>Least</th>"
                "<th>RMSE ratio</th><th>Length ratio</th><th>Samples</th></tr>")  # fmt: skip
        rows = []
        for row in of_statistic.to_dict("records"):
            sample = row["method"] == SAMPLE
            m, epsilon = ("", "") if sample else (f"{row['m']}", f"{row['epsilon']:.4g}")
            rows.append(
                f"<tr><th>{escape(label_of(row['method']))}</th><td>{m}</td>"
                f"<td>{epsilon}</td><td>{_number(row['coverage'], 3)}"
                f"<span>({_number(row['coverage_mcse'], 3)})</span></td>"
                f"<td>{_number(row['coverage_min'], 2)}</td><td>{_number(row['rmse_ratio'], 2)}"
                f"</td><td>{_number(row['length_ratio'], 2)}</td><td>{row['replicates']}</td></tr>"
            )
        words = plots.table_title(str(statistic), "", [])
        parts.append(scrolled(words, [head], rows, "summary"))
    return "\n".join(parts)


def _shown_settings(study: CoverageStudy) -> Iterator[tuple[int, float]]:
    """Settings whose cells the page shows: at every bound the m of the mechanism's settings."""
    m = study.settings.m if study.settings.m in study.draws else study.draws[-1]
    yield from ((m, bound) for bound in study.bounds)


def _cells(study: CoverageStudy, cells: "pd.DataFrame", m: int, bound: float) -> str:
    """Coverage and mean length by cell in the form of Tables 4 and 5 of [T]."""
    epsilon = 2.0 * m * bound
    here = ((cells["m"] == m) & _close(cells["epsilon"], epsilon)) | (cells["method"] == SAMPLE)
    tables = plots.tables_of(cells)
    parts = []
    for statistic, outcome in tables:
        of_table = cells[here & (cells["statistic"] == statistic) & (cells["outcome"] == outcome)]
        title = plots.table_title(statistic, outcome, tables)
        parts.append(
            f"<h2>{escape(title)}, cell by cell: m = {m}, epsilon {epsilon:.4g}</h2>"
            + _cell_table(study, of_table, digits=3 if statistic_of(statistic).percent else 0)
        )
    return "\n".join(parts)


def _cell_table(study: CoverageStudy, cells: "pd.DataFrame", digits: int) -> str:
    """One row a cell, a column a method."""
    labels = study.domains(study.population.frame).table[list(study.population.by)]
    found: dict[tuple[str, int], dict[Hashable, Any]] = {
        (record["method"], record["row"]): record for record in cells.to_dict("records")
    }
    held = [row for row in range(len(labels)) if (SAMPLE, row) in found]
    methods = [name for name in study.methods if (name, held[0]) in found]
    head = "".join(f"<th>{escape(name)}</th>" for name in study.population.by)
    head += "<th>Population</th>" + "".join(
        f"<th>{escape(label_of(name))}<br>coverage, mean length</th>" for name in methods
    )
    rows = []
    for row in held:
        values = labels.iloc[row]
        cells_of_row = "".join(f"<th>{escape(str(value))}</th>" for value in values)
        truth = found[SAMPLE, row]["truth"]
        cells_of_row += f"<td>{_number(truth, digits)}</td>"
        for name in methods:
            each = found[name, row]
            cells_of_row += (
                f"<td>{_number(each['coverage'], 2)}"
                f"<span>({_number(each['coverage_mcse'], 2)})</span>"
                f"<span>{_number(each['ci_length'], digits)}</span></td>"
            )
        rows.append(f"<tr>{cells_of_row}</tr>")
    caption = "Coverage with its Monte Carlo standard error, mean length of the intervals"
    return scrolled(caption, [f"<tr>{head}</tr>"], rows, "cells")


def _notes(study: CoverageStudy) -> str:
    notes = [
        "Truth is the population's own value. Bias, empirical standard deviation, mean standard "
        "error, RMSE and the Monte Carlo error of each are in cells.csv; every estimate of every "
        "sample is in replicates.parquet.",
        "A method that is debiased shifts its draws by simulation and takes variances from data as "
        "the sample would have been; with inference as in the paper neither is done.",
        "Laplace noise is scaled by sensitivities of each sample, so that it protects nobody; it "
        "is there to be compared with.",
        f"Over {study.replicates:,} samples the Monte Carlo standard error of a coverage of "
        f"{study.level:g} is {np.sqrt(study.level * (1 - study.level) / study.replicates):.3f} a "
        "cell.",
    ]
    if any(method.endswith("_published") for method in study.methods):
        notes.append(
            "As published: 1.96 standard errors on either side; for a model of the population "
            "variances without strata and means with equal weights in a cell of X."
        )
    return f"<h2>How to read this</h2>{bullets(notes)}"


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else ""
