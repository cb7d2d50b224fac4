"""Figures of a study and one HTML page that shows them beside its tables."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from surveysynth._support.page import Picture
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.methods import SAMPLE, label_of
from surveysynth.evaluation.studies import figures as plots
from surveysynth.evaluation.studies.coverage import CoverageStudy
from surveysynth.evaluation.studies.work import FIGURES, REPORT_NAME, StudyResult
from surveysynth.evaluation.style import Cell, Column, PageTable, Row, cells, columns, page
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
        "Errors against the truth of the population, not the sample. Left of the line a method is "
        "nearer to the truth than the confidential sample itself. A dot is a cell or margin, the "
        "bar their median.",
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
    """Yield (m, bound) of every release of a sample."""
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


def render_page(
    study: CoverageStudy, result: StudyResult, pictures: "Iterable[Picture]"
) -> str:
    """Return the page of a study."""
    outcomes = ", ".join(study.population.outcome)
    refused = result.refusals.groupby("method")["sample"].nunique()
    return page(
        f"Coverage study of {outcomes}",
        "",
        "study.html.j2",
        outcomes=outcomes,
        mark=_mark(study, result.cells),
        study=study,
        design=study.design,
        population=study.population,
        epsilons=_listed(study.epsilons),
        bounds=_listed(study.bounds),
        draws=_listed(study.draws),
        strict=_strict(study) if study.strict_methods else None,
        refused="; ".join(f"{method}: {count} samples" for method, count in refused.items()),
        failed=len(result.failed),
        summary=list(_summary(result.summary)),
        pictures=pictures,
        cells=[
            each
            for m, bound in _shown_settings(study)
            for each in _cells(study, result.cells, m, bound)
        ],
        error=math.sqrt(study.level * (1 - study.level) / study.replicates),
        published=any(method.endswith("_published") for method in study.methods),
    )


def _strict(study: CoverageStudy) -> dict[str, Any]:
    """Return the constants of the methods with zero-concentrated privacy, in words."""
    noise = study.noise
    return {
        "methods": ", ".join(label_of(name) for name in study.strict_methods),
        "delta": noise.delta,
        "rho": _listed(noise.at(each).budget.rho for each in study.epsilons),
        "m": noise.m,
        "replicates_per_draw": noise.replicates_per_draw,
        "declared": "; ".join(
            f"{name}: centre {each.centre:g}, spread {each.spread:g}"
            for name, each in noise.declared.items()
        ),
    }


def _summary(summary: "pd.DataFrame") -> Iterator[PageTable]:
    """Yield a table for each statistic: a row for each method, number of draws and epsilon."""
    heads = columns(
        "Method", "m", "Epsilon", "Coverage", "Least", "RMSE ratio", "Length ratio", "Samples"
    )
    for statistic, of_statistic in summary.groupby("statistic", sort=False):
        rows = []
        for row in of_statistic.to_dict("records"):
            sample = row["method"] == SAMPLE
            m, epsilon = ("", "") if sample else (f"{row['m']}", f"{row['epsilon']:.4g}")
            coverage = Cell(
                _number(row["coverage"], 3), (f"({_number(row['coverage_mcse'], 3)})",)
            )
            rest = (_number(row[c], 2) for c in ("coverage_min", "rmse_ratio", "length_ratio"))
            shown = [*cells(m, epsilon), coverage, *cells(*rest, row["replicates"])]
            rows.append(Row([label_of(row["method"])], shown))
        yield PageTable(plots.table_title(str(statistic), "", []), heads, rows, "summary")


def _shown_settings(study: CoverageStudy) -> Iterator[tuple[int, float]]:
    """Yield the settings whose cells the page shows: the mechanism's m at every bound."""
    m = study.settings.m if study.settings.m in study.draws else study.draws[-1]
    yield from ((m, bound) for bound in study.bounds)


def _cells(
    study: CoverageStudy, cells_: "pd.DataFrame", m: int, bound: float
) -> Iterator[tuple[str, PageTable]]:
    """Yield heading and table of coverage and mean length, in the form of Tables 4 and 5 of [T]."""
    epsilon = 2.0 * m * bound
    here = ((cells_["m"] == m) & _close(cells_["epsilon"], epsilon)) | (cells_["method"] == SAMPLE)
    tables = plots.tables_of(cells_)
    for statistic, outcome in tables:
        of_table = cells_[
            here & (cells_["statistic"] == statistic) & (cells_["outcome"] == outcome)
        ]
        title = plots.table_title(statistic, outcome, tables)
        digits = 3 if statistic_of(statistic).percent else 0
        heading = f"{title}, cell by cell: m = {m}, epsilon {epsilon:.4g}"
        yield heading, _cell_table(study, of_table, digits)


def _cell_table(study: CoverageStudy, cells_: "pd.DataFrame", digits: int) -> PageTable:
    """Return one row a cell, one column a method."""
    labels = study.domains(study.population.frame).table[list(study.population.by)]
    found: dict[tuple[str, int], dict[Hashable, Any]] = {
        (record["method"], record["row"]): record for record in cells_.to_dict("records")
    }
    present = [row for row in range(len(labels)) if (SAMPLE, row) in found]
    methods = [name for name in study.methods if (name, present[0]) in found]
    heads = [
        *columns(*study.population.by, "Population"),
        *(Column(label_of(name), "coverage, mean length") for name in methods),
    ]
    rows = []
    for row in present:
        shown = cells(_number(found[SAMPLE, row]["truth"], digits))
        for name in methods:
            each = found[name, row]
            error, length = _number(each["coverage_mcse"], 2), _number(each["ci_length"], digits)
            shown.append(Cell(_number(each["coverage"], 2), (f"({error})", length)))
        rows.append(Row([str(value) for value in labels.iloc[row]], shown))
    caption = "Coverage with its Monte Carlo standard error, mean length of the intervals"
    return PageTable(caption, heads, rows, "cells")


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else ""
