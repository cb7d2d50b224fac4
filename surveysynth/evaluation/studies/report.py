"""The folder of a study on a frame, its figures, and its page.

A figure is made without a display, from the rows or the table by size. A panel is a table (rows of
panels) and a method.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.page import Picture
from surveysynth.errors import IncompleteError
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.methods import LAPLACE, SAMPLE, color_of
from surveysynth.evaluation.studies.results import (
    BOUNDS,
    ENOUGH,
    PLACE,
    CoverageResult,
    as_json,
    measure,
    row_label,
)
from surveysynth.evaluation.studies.study import FrameStudy
from surveysynth.evaluation.studies.tasks import (
    FIGURES,
    REFUSALS_NAME,
    REPLICATES_NAME,
    REPORT_NAME,
    SUMMARY_NAME,
    Progress,
    Store,
    open_folder,
    replace_file,
    run_missing,
)
from surveysynth.evaluation.style import Cell, PageTable, Row, cells, columns, page
from surveysynth.release import figure_style as style
from surveysynth.release.figure_style import draw, log_ticks, new_figure, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: A method whose intervals cover too little is drawn down to here.
_FLOOR = 0.45
_COLORS = ("#0072B2", "#009E73", "#CC79A7", "#7F5AA2", "#882255", "#999933")


def places_of(rows: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return (table, statistic, outcome) of every table, in order."""
    return list(dict.fromkeys(rows[PLACE].itertuples(index=False, name=None)))


def place_title(place: Sequence[str]) -> str:
    """Return the title of a table."""
    table, statistic, outcome = place
    title = statistic_of(statistic).title
    words = f"{title}: {outcome}" if outcome else title
    return f"{words} ({table})" if table else words


def coverage_by_records(
    rows: pd.DataFrame, methods: Sequence[str], level: float, samples: int, mark: str
) -> "Figure":
    """Draw the coverage of every row against its records in the mean sample."""
    error = 2 * np.sqrt(level * (1 - level) / samples)
    low = min(_FLOOR, float(rows["coverage"].min()) - 0.04)

    def band(panel: Any, part: pd.DataFrame) -> None:
        panel.axhspan(level - error, min(level + error, 1.0), color="#eeeeee", linewidth=0)
        panel.axhline(level, color=style.FAINT, linewidth=1, linestyle=(0, (5, 2)))
        panel.set_ylim(low, 1.03)
        if len(part):
            panel.text(0.985, 0.05, f"mean {part['coverage'].mean():.3f}, least "
                       f"{part['coverage'].min():.2f}", transform=panel.transAxes, ha="right",
                       fontsize=8, color=style.INK)  # fmt: skip

    return _panels(rows, methods, "coverage", "coverage", band, mark)


def bias_by_records(rows: pd.DataFrame, methods: Sequence[str], mark: str) -> "Figure":
    """Draw the bias of every row, in standard errors of the sample, against its records."""
    shown = rows[rows["method"].isin(methods)]["bias_ratio"].abs()
    reach = float(np.clip(shown.max(), 1.2, 4.0)) if len(shown) else 1.2

    def band(panel: Any, part: pd.DataFrame) -> None:
        panel.axhspan(-0.5, 0.5, color="#eeeeee", linewidth=0)
        panel.axhline(0.0, color=style.FAINT, linewidth=1)
        panel.set_ylim(-1.08 * reach, 1.08 * reach)
        beyond = int((part["bias_ratio"].abs() > 1.08 * reach).sum())
        if beyond:
            panel.text(0.985, 0.05, f"{beyond} beyond", transform=panel.transAxes, ha="right",
                       fontsize=8, color=style.WARNING)  # fmt: skip

    return _panels(rows, methods, "bias_ratio", "bias / sample's SE", band, mark)


def _panels(
    rows: pd.DataFrame, methods: Sequence[str], column: str, label: str, band: Any, mark: str
) -> "Figure":
    """Draw a panel for each table and method: a dot a row, over its records."""
    places = places_of(rows)
    figure = new_figure(
        1.0 + 2.6 * len(methods), 0.7 + 1.9 * len(places), mark, style.FAINT
    )
    panels = figure.subplots(
        len(places), len(methods), squeeze=False, sharey="row", sharex=True
    )
    for line, place in zip(panels, places, strict=True):
        here = (rows[PLACE] == list(place)).all(axis=1)
        for panel, method in zip(line, methods, strict=True):
            part = rows[here & (rows["method"] == method) & (rows["records"] > 0)]
            band(panel, part)
            panel.plot(np.log10(part["records"]), part[column], "o", markersize=3.6, alpha=0.7,
                       markeredgewidth=0, color=method_color(method, methods))  # fmt: skip
            panel.set_title(f"{place_title(place)}\n{method}" if method == methods[0] else (
                f"\n{method}"), fontsize=9, color=style.INK)  # fmt: skip
            for bound in BOUNDS:
                panel.axvline(np.log10(bound), color="#e0e0e0", linewidth=0.8)
        line[0].set_ylabel(label)
    for panel in panels[-1]:
        log_ticks(panel)
        panel.set_xlabel("records in the mean sample")
    return figure


def method_color(method: str, methods: Sequence[str]) -> str:
    """Return the color of a method; those of specifications follow their order."""
    if method in (SAMPLE, LAPLACE):
        return color_of(method)
    others = [each for each in methods if each not in (SAMPLE, LAPLACE)]
    return _COLORS[others.index(method) % len(_COLORS)]


ROWS_NAME, BY_SIZE_NAME, JSON_NAME = "rows.csv", "by_size.csv", "summary.json"
#: Rows that the page shows, those of the lowest coverage.
SHOWN = 40


def run_frame_study(
    study: FrameStudy,
    out: Path | None,
    *,
    resume: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CoverageResult:
    """Run a study and write it to ``out``, a new folder or, with ``resume``, one of this study.

    Without ``out`` nothing is kept but the result. Raises ``InputError`` for a folder that exists
    or holds another study, ``StoppedError`` when interrupted, and ``IncompleteError``, after
    everything was written, when tasks failed.
    """
    folder = None if out is None else out.expanduser().resolve()
    store = Store()
    if folder is not None:
        identity = study.identity()
        store = open_folder(folder, identity, resume=resume)
    failed = run_missing(study, store, scheduler=scheduler, workers=workers, progress=progress)
    result = _collected(study, store, failed, folder)
    if folder is not None:
        _write(study, result, folder)
    if failed:
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items()))
        raise IncompleteError(
            f"{len(failed)} of {len(study.tasks())} tasks failed again; the measures in "
            f"{store.place} cover the others, and --resume tries again. {reasons}"
        )
    return result


def _collected(
    study: FrameStudy, store: Store, failed: dict[str, str], out: Path | None
) -> CoverageResult:
    read = [store.read(task) for task in study.tasks() if store.has(task)]
    with_rows = [each.replicates for each in read if len(each.replicates)]
    if not with_rows:
        reasons = [*failed.values(), *(each.refusals["reason"].iloc[0] for each in read)]
        raise IncompleteError(f"no sample gave any table. The first reason: {reasons[0]}")
    replicates = pd.concat(with_rows, ignore_index=True)
    refused = [each.refusals for each in read if len(each.refusals)]
    none = pd.DataFrame(columns=["sample", "method", "reason"])
    refusals = pd.concat(refused, ignore_index=True) if refused else none
    return measure(study, replicates, refusals, failed, out)


def _write(study: FrameStudy, result: CoverageResult, folder: Path) -> None:
    frames = {ROWS_NAME: result.rows.drop(columns="row"), SUMMARY_NAME: result.summary,
              BY_SIZE_NAME: result.by_size, REFUSALS_NAME: result.refusals}  # fmt: skip
    for name, frame in frames.items():
        frame.to_csv(folder / name, index=False, lineterminator="\n")
    keys = [name for name in result.truth.columns if name not in ("is_margin", "units", "truth")]
    result.replicates.merge(result.truth[keys], on="row").drop(columns="row").to_parquet(
        folder / REPLICATES_NAME, index=False
    )
    text = json.dumps(as_json(study, result), indent=1, ensure_ascii=False)
    replace_file(folder / JSON_NAME, text.encode())
    pictures = list(_pictures(study, result))
    (folder / FIGURES).mkdir(exist_ok=True)
    for picture in pictures:
        (folder / FIGURES / f"{picture.name}.png").write_bytes(picture.png)
    (folder / REPORT_NAME).write_text(_page(study, result, pictures), encoding="utf-8")


def _mark(study: FrameStudy) -> str:
    return (
        f"Simulation: {study.replicates:,} samples of {study.records:,} records from "
        f"{study.source}, {study.population.n_units:,} units"
    )


def _pictures(study: FrameStudy, result: CoverageResult) -> Iterator[Picture]:
    mark, level = _mark(study), study.spec.tables[0].level
    rows = result.rows[result.rows["has_error"]]
    methods = [name for name in study.methods if (rows["method"] == name).any()]
    made: list[tuple[str, str, str, Callable[..., Figure], tuple[Any, ...]]] = [
        ("coverage_by_records", "Coverage by row",
         f"A dot is a row of the tables. The line is the nominal {level:g}; the band is two Monte "
         "Carlo standard errors of a coverage that is right.",
         coverage_by_records, (rows, methods, level, study.replicates, mark)),
        ("bias_by_records", "Bias by row",
         "Mean error against the frame, in mean standard errors of the sample's own estimate. "
         "Within the band a bias costs at most a few percent of coverage.",
         bias_by_records, (rows, methods, mark)),
    ]  # fmt: skip
    for name, heading, text, function, arguments in made:
        yield Picture(name, heading, text, png_bytes(draw(function, *arguments)))


def _page(study: FrameStudy, result: CoverageResult, pictures: list[Picture]) -> str:
    level = study.spec.tables[0].level
    outcomes = ", ".join(study.spec.synthesizer.outcome)
    refused = result.refusals.groupby("method")["sample"].nunique()
    worst = _worst(study, result)
    return page(
        f"Coverage on a frame: {outcomes}", "", "frame_study.html.j2",
        outcomes=outcomes,
        mark=_mark(study),
        design=study.design_words,
        seed=study.seed,
        specifications=_specifications(study, refused),
        refused="; ".join(
            f"{method}: {count:,} of {study.replicates:,}" for method, count in refused.items()
        ),
        failed=len(result.failed),
        enough=ENOUGH,
        summary=list(_tables(result.summary, PLACE)),
        by_size=list(_tables(result.by_size, PLACE, size=True)),
        pictures=pictures,
        worst_heading=f"Rows of the lowest coverage ({len(worst.rows)})",
        worst=worst,
        level=level,
        samples=study.replicates,
        error=math.sqrt(level * (1 - level) / study.replicates),
        laplace=study.laplace,
    )  # fmt: skip


def _specifications(study: FrameStudy, refused: "pd.Series[int]") -> PageTable:
    rows = []
    for name, spec in study.specs.items():
        privacy, synthesizer = spec.privacy, spec.synthesizer
        said = (privacy.mechanism.replace("_", " "), f"{privacy.stated_epsilon:.4g}",
                synthesizer.model, f"{privacy.m}", synthesizer.predictors or "default",
                f"{refused.get(name, 0):,} of {study.replicates:,}")  # fmt: skip
        rows.append(Row([name], cells(*said)))
    heads = columns("Specification", "Mechanism", "Epsilon", "Model", "Draws", "Formula", "Refused")
    return PageTable("", heads, rows, "summary")


def _tables(frame: pd.DataFrame, place: list[str], *, size: bool = False) -> Iterator[PageTable]:
    """Yield a table for each place: a row for each method, or each method and size."""
    heads = columns(
        *(["Records"] if size else []), "Method", "Rows", "Coverage", "Gap to sample", "Worst row",
        "All rows at once", "RMSE ratio", "Length ratio", "Bias", "|Bias|",
    )  # fmt: skip
    for key, part in frame.groupby(place, sort=False):
        rows = []
        for row in part.to_dict("records"):
            own = row["method"] == SAMPLE
            gap = Cell("") if own else Cell(
                _number(row["gap"], 3, sign=True), (_bracket(row["gap_mcse"]),)
            )
            shown = [
                *cells(row["rows"]),
                Cell(_number(row["coverage"], 3), (_bracket(row["coverage_mcse"]),)),
                gap,
                Cell(_number(row["worst"], 2), (row["worst_row"],)),
                *cells(*(_number(row[each], 2) for each in (
                    "whole_table", "rmse_ratio", "length_ratio", "bias", "absolute_bias"))),
            ]  # fmt: skip
            first = [row["size"]] if size else []
            rows.append(Row([*first, row["method"]], shown))
        yield PageTable(place_title(tuple(map(str, key))), heads, rows, "summary")


def _worst(study: FrameStudy, result: CoverageResult) -> PageTable:
    """Return the rows in which a release covers least, with the sample's own coverage."""
    rows = result.rows[result.rows["has_error"]]
    own = rows[rows["method"] == SAMPLE].set_index("row")["coverage"]
    released = rows[rows["method"].isin(list(study.specs)) & rows["coverage"].notna()]
    lowest = released.sort_values(["coverage", "row"], kind="stable").head(SHOWN)
    heads = columns(
        "Row", "Method", "Records", "Truth", "Coverage", "Sample's own", "Bias / SE", "RMSE ratio"
    )
    made = []
    for each in lowest.to_dict("records"):
        title = place_title([each[name] for name in PLACE])
        label = f"{title}; {row_label(each, study)}"
        made.append(Row([label], cells(
            each["method"], f"{each['records']:,.0f}", f"{each['truth']:,.4g}",
            _number(each["coverage"], 2), _number(own.get(each["row"], math.nan), 2),
            _number(each["bias_ratio"], 2), _number(each["rmse_ratio"], 2),
        )))  # fmt: skip
    return PageTable("", heads, made, "cells")


def _bracket(value: float) -> str:
    return f"({value:.3f})" if math.isfinite(value) else ""


def _number(value: Any, digits: int, *, sign: bool = False) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
