"""The folder of a study on a frame, and its page."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from surveysynth._support.page import Picture
from surveysynth.errors import IncompleteError
from surveysynth.evaluation.methods import SAMPLE
from surveysynth.evaluation.studies import frame_figures as plots
from surveysynth.evaluation.studies.folder import (
    FIGURES,
    REFUSALS_NAME,
    REPLICATES_NAME,
    REPORT_NAME,
    SUMMARY_NAME,
    MemoryStore,
    Store,
    open_folder,
    replace_file,
    require_complete,
    run_missing,
    write_csv,
)
from surveysynth.evaluation.studies.frame_results import (
    ENOUGH,
    PLACE,
    CoverageResult,
    as_json,
    measure,
    row_label,
)
from surveysynth.evaluation.studies.frame_study import FrameStudy
from surveysynth.evaluation.style import Cell, PageTable, Row, cells, columns, page
from surveysynth.release.figure_style import draw, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surveysynth.evaluation.studies.folder import Progress

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
    progress: "Progress | None" = None,
) -> CoverageResult:
    """Run a study and write it to ``out``, a new folder or, with ``resume``, one of this study.

    Without ``out`` nothing is kept but the result. Raises ``InputError`` for a folder that exists
    or holds another study, ``StoppedError`` when interrupted, and ``IncompleteError``, after
    everything was written, when tasks failed.
    """
    folder = None if out is None else out.expanduser().resolve()
    store: Store | MemoryStore = MemoryStore()
    if folder is not None:
        identity = study.identity()
        store = open_folder(folder, identity, resume=resume, may_grow="replicates")
    failed = run_missing(study, store, scheduler=scheduler, workers=workers, progress=progress)
    result = _collected(study, store, failed, folder)
    if folder is not None:
        _write(study, result, folder)
    require_complete(failed, len(study.tasks()), store.place)
    return result


def _collected(
    study: FrameStudy, store: Store | MemoryStore, failed: dict[str, str], out: Path | None
) -> CoverageResult:
    """Measure the finished tasks, in the order of the tasks."""
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
    """Write the measures, figures and the page."""
    write_csv(result.rows.drop(columns="row"), folder / ROWS_NAME)
    write_csv(result.summary, folder / SUMMARY_NAME)
    write_csv(result.by_size, folder / BY_SIZE_NAME)
    write_csv(result.refusals, folder / REFUSALS_NAME)
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
         plots.coverage_by_records, (rows, methods, level, study.replicates, mark)),
        ("bias_by_records", "Bias by row",
         "Mean error against the frame, in mean standard errors of the sample's own estimate. "
         "Within the band a bias costs at most a few percent of coverage.",
         plots.bias_by_records, (rows, methods, mark)),
        ("coverage_by_size", "Coverage by number of records",
         "Mean over the rows of a class, with two Monte Carlo standard errors.",
         plots.coverage_by_size, (result.by_size, methods, level, mark)),
    ]  # fmt: skip
    for name, heading, text, function, arguments in made:
        yield Picture(name, heading, text, png_bytes(draw(function, *arguments)))


def _page(study: FrameStudy, result: CoverageResult, pictures: list[Picture]) -> str:
    """Return the page of a study."""
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
        yield PageTable(plots.place_title(tuple(map(str, key))), heads, rows, "summary")


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
        title = plots.place_title([each[name] for name in PLACE])
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
