"""The folder of a study on a frame, its figures, and its page.

A figure is made without a display, from the rows or the table by size. A panel is a table (rows of
panels) and a method.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.page import Picture, fragment
from surveysynth._support.types import FloatArray
from surveysynth.errors import IncompleteError
from surveysynth.estimation.statistics import LEVEL, TABLE, statistic_of
from surveysynth.evaluation.methods import LAPLACE, SAMPLE, color_of
from surveysynth.evaluation.studies.study import FrameStudy, row_keys
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


KEYS = ("method", "epsilon", "statistic", "outcome", "row")
#: A public total is known to rounding, and its interval is a point.
ROUNDING = 1e-9


def measure_cells(replicates: pd.DataFrame, truth: pd.DataFrame) -> pd.DataFrame:
    """Compute the measures of methods 7 for every cell, with Monte Carlo standard errors.

    One row per cell. truth: columns statistic, outcome, row, truth. bias, sd (empirical), se
    (mean), rmse against the truth, rmse_ratio to the confidential sample's over the same samples,
    coverage of the nominal intervals, ci_length (mean), cv (mean SE over truth); ``replicates``
    counts samples with an estimate. A ratio is NaN if the sample has no error.
    """
    frame = replicates.merge(truth, on=["statistic", "outcome", "row"], how="left")
    frame["error"] = frame["estimate"] - frame["truth"]
    frame["covered"] = is_covered(frame)
    frame["length"] = frame["ci_upper"] - frame["ci_lower"]
    reference = frame.loc[frame["method"] == SAMPLE, ["statistic", "outcome", "row", "sample",
                                                      "error"]]  # fmt: skip
    frame = frame.merge(
        reference.rename(columns={"error": "sample_error"}),
        on=["statistic", "outcome", "row", "sample"],
        how="left",
    )
    grouped = frame.groupby(list(KEYS), sort=False)
    return grouped[list(frame.columns)].apply(_measures).reset_index()


def is_covered(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return 1 if the interval holds the truth, 0 if not, NaN without an interval."""
    slack = ROUNDING * frame["truth"].abs()
    inside = (frame["ci_lower"] <= frame["truth"] + slack) & (
        frame["truth"] - slack <= frame["ci_upper"]
    )
    return inside.astype(float).where(frame["ci_lower"].notna() & frame["ci_upper"].notna())


def _measures(cell: pd.DataFrame) -> "pd.Series[Any]":
    cell = cell[cell["estimate"].notna()]
    error = cell["error"].to_numpy()
    truth = float(cell["truth"].iloc[0]) if len(cell) else np.nan
    coverage, covered = mean_with_error(cell["covered"].to_numpy())
    length, length_error = mean_with_error(cell["length"].to_numpy())
    bias, bias_error = mean_with_error(error)
    ratio, ratio_error = root_ratio(error, cell["sample_error"].to_numpy(), abs(truth))
    se = float(cell["se"].mean())
    # The binomial error would be zero at a coverage of 0 or 1: add one sample of each kind.
    counted = int(cell["covered"].notna().sum())
    shrunk = (coverage * counted + 1) / (counted + 2)
    return pd.Series(
        {
            "truth": truth,
            "bias": bias,
            "sd": float(np.std(error, ddof=1)) if error.size > 1 else np.nan,
            "se": se,
            "rmse": float(np.sqrt(np.mean(error**2))) if error.size else np.nan,
            "rmse_ratio": ratio,
            "coverage": coverage,
            "coverage_mcse": covered
            if 0 < coverage < 1
            else float(np.sqrt(shrunk * (1 - shrunk) / max(counted, 1))),
            "ci_length": length,
            "cv": se / abs(truth) if truth else np.nan,
            "replicates": int(error.size),
            "bias_mcse": bias_error,
            "rmse_ratio_mcse": ratio_error,
            "ci_length_mcse": length_error,
        }
    )


def mean_with_error(values: FloatArray) -> tuple[float, float]:
    """Return the mean of the finite values and its standard error; NaN for too few."""
    values = values[np.isfinite(values)]
    if values.size == 0:
        return np.nan, np.nan
    error = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan
    return float(values.mean()), error


def root_ratio(errors: FloatArray, reference: FloatArray, size: float) -> tuple[float, float]:
    """Return the root of the ratio of mean squares of ``errors`` and ``reference``, with its error.

    Both are pairs of the same samples; the standard error is by the delta method. NaN if the
    reference has no error but rounding.
    """
    both = np.isfinite(errors) & np.isfinite(reference)
    a, b = errors[both] ** 2, reference[both] ** 2
    if b.size == 0 or np.sqrt(b.mean()) <= ROUNDING * size:
        return np.nan, np.nan
    ratio = a.mean() / b.mean()
    if b.size < 2:
        return float(np.sqrt(ratio)), np.nan
    influence = (a - ratio * b) / b.mean()
    error = influence.std(ddof=1) / np.sqrt(b.size)
    # The root of a ratio r has the error of r over 2 sqrt(r).
    return float(np.sqrt(ratio)), float(error / (2 * np.sqrt(ratio))) if ratio else 0.0


#: Rows of fewer records than these, in the mean sample, are a class of their own.
BOUNDS = (30, 100, 300)
CLASSES = ("<30", "30-100", "100-300", ">=300")
#: A row of as many records should not fall far below the nominal level.
ENOUGH = 100
#: What names a table of the summary.
PLACE = [TABLE, "statistic", "outcome"]


@dataclass(frozen=True, repr=False)
class CoverageResult:
    """Results of repeated samples from a frame, by row, by size of row, and by table.

    Attributes
    ----------
    summary
        One row per table, statistic, outcome and method: coverage with its Monte Carlo standard
        error, its gap to the sample's own, the worst row of at least 100 records, RMSE and length
        over the sample's own (median row), ``whole_table``, the share of samples in which all rows
        hold at once, bias in standard errors of the sample, share refused.
    by_size
        The same by the number of records that a row has in the mean sample.
    rows
        One row for each table row and method, with labels, truth and all measures.
    replicates
        Every estimate of every sample; ``row`` counts the rows of ``truth``.
    truth
        The rows of the frame's own tables.
    refusals
        Samples without a release, with the reason.
    failed
        Tasks that failed twice, by name, with the reason.
    out
        The folder with report.html, or None.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.CoverageResult.__name__
    'CoverageResult'
    """

    summary: pd.DataFrame
    by_size: pd.DataFrame
    rows: pd.DataFrame
    replicates: pd.DataFrame
    truth: pd.DataFrame
    refusals: pd.DataFrame
    failed: dict[str, str] = field(default_factory=dict)
    out: Path | None = None

    def __repr__(self) -> str:
        shown = self.summary[[*PLACE, "method", "coverage", "rmse_ratio", "bias", "refused"]]
        return shown.round(3).to_string(index=False)

    def _repr_html_(self) -> str:
        """Show the summary in notebooks."""
        lines = [] if self.out is None else [f"Report: {self.out / 'report.html'}."]
        failed = f"Tasks that failed: {len(self.failed):,}." if self.failed else ""
        return fragment(
            "Coverage on a frame", mark=failed, lines=lines, frames=[("By table", self.summary)]
        )


def measure(
    study: FrameStudy,
    replicates: pd.DataFrame,
    refusals: pd.DataFrame,
    failed: dict[str, str],
    out: Path | None,
) -> CoverageResult:
    """Measure the finished tasks of a study against the truth of its frame."""
    truth, keys = study.truth, row_keys(study.spec)
    epsilons = {name: spec.privacy.stated_epsilon for name, spec in study.specs.items()}
    named = replicates.merge(truth[["row", "statistic", "outcome"]], on="row").assign(
        epsilon=lambda made: made["method"].map(epsilons).fillna(np.inf)
    )
    cells = measure_cells(named, truth[["statistic", "outcome", "row", "truth"]])
    rows = _with_sample(cells, named)
    labels = truth[["row", *keys, "is_margin", "units"]]
    measured = [name for name in rows.columns if name not in ("row", "statistic", "outcome")]
    rows = labels.merge(rows[["row", *measured]], on="row")
    order = {name: number for number, name in enumerate(study.methods)}
    rows = rows.iloc[np.lexsort((rows["row"].to_numpy(), rows["method"].map(order).to_numpy()))]
    covered = named.merge(truth[["row", TABLE, "truth"]], on="row")
    covered["covered"] = is_covered(covered)
    covered = covered.merge(rows[["row", "method", "size", "has_error"]], on=["row", "method"])
    refused = _refused(study, refusals)
    return CoverageResult(
        _summary(study, rows, covered, PLACE, refused),
        _summary(study, rows, covered, [*PLACE, "size"], refused),
        rows.reset_index(drop=True), replicates, truth, refusals, failed, out,
    )  # fmt: skip


def _refused(study: FrameStudy, refusals: pd.DataFrame) -> dict[str, float]:
    counts = refusals.groupby("method")["sample"].nunique()
    return {name: float(counts.get(name, 0)) / study.replicates for name in study.methods}


def _with_sample(cells: pd.DataFrame, replicates: pd.DataFrame) -> pd.DataFrame:
    """Add to the measures of each row what relates them to the sample's own.

    records: in the mean sample; size: its class; has_error: whether the sample has any error there;
    length_ratio; bias_ratio: bias in standard errors of the sample.
    """
    own = cells[cells["method"] == SAMPLE].set_index("row")
    records = replicates[replicates["method"] == SAMPLE].groupby("row")["n"].mean()
    of = cells["row"]
    n = of.map(records).to_numpy(dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return cells.assign(
            records=n,
            size=size_class(n),
            has_error=(of.map(own["rmse"]) > ROUNDING * of.map(own["truth"]).abs()).to_numpy(),
            length_ratio=cells["ci_length"] / of.map(own["ci_length"]).replace(0.0, np.nan),
            bias_ratio=cells["bias"] / of.map(own["se"]).replace(0.0, np.nan),
        )


def size_class(records: FloatArray) -> Sequence[str]:
    """Return the class of each number of records (n,)."""
    return [CLASSES[place] for place in np.searchsorted(BOUNDS, records, side="right")]


def _summary(
    study: FrameStudy,
    rows: pd.DataFrame,
    covered: pd.DataFrame,
    place: list[str],
    refused: dict[str, float],
) -> pd.DataFrame:
    """Return one row per place and method, over all rows that have sampling error."""
    rows, covered = rows[rows["has_error"]], covered[covered["has_error"]]
    of_sample = covered.groupby([*place, "method", "sample"], sort=False)["covered"]
    by_sample = of_sample.mean()
    # Of a sample without a single interval nothing is known.
    whole = of_sample.min().groupby([*place, "method"], sort=False).mean()
    known = {key: part.droplevel([*place, "method"])
             for key, part in by_sample.groupby([*place, "method"], sort=False)}  # fmt: skip
    lines = []
    for key, of_place in rows.groupby(place, sort=False):
        at = key if isinstance(key, tuple) else (key,)
        for method in study.methods:
            part = of_place[(of_place["method"] == method) & (of_place["replicates"] > 0)]
            if method not in study.specs and part.empty:
                continue  # there is no noise for this statistic
            mine, own = known.get((*at, method)), known.get((*at, SAMPLE))
            lines.append({
                **dict(zip(place, at, strict=True)), "method": method, "rows": len(part),
                **_line(part, mine, own, study),
                "whole_table": whole.get((*at, method), math.nan),
                "refused": refused[method],
            })  # fmt: skip
    made = pd.DataFrame(lines)
    if "size" in place and len(made):
        first = {at: k for k, at in enumerate(dict.fromkeys(map(tuple, made[PLACE].to_numpy())))}
        table = [first[tuple(at)] for at in made[PLACE].to_numpy()]
        of_class = np.array([CLASSES.index(each) for each in made["size"]])
        made = made.iloc[np.lexsort((of_class, np.array(table)))]
    return made.reset_index(drop=True)


def _line(
    part: pd.DataFrame,
    mine: "pd.Series[float] | None",
    own: "pd.Series[float] | None",
    study: FrameStudy,
) -> dict[str, Any]:
    gap = gap_error = error = math.nan
    if mine is not None and own is not None:
        _, error = mean_with_error(np.asarray(mine, dtype=np.float64))
        gap, gap_error = mean_with_error(np.asarray(mine - own, dtype=np.float64))
    enough = part[(part["records"] >= ENOUGH) & part["coverage"].notna()]
    worst = enough.sort_values("coverage", kind="stable").iloc[0] if len(enough) else None
    return {
        "coverage": part["coverage"].mean(),
        "coverage_mcse": error,
        "gap": gap,
        "gap_mcse": gap_error,
        "worst": math.nan if worst is None else float(worst["coverage"]),
        "worst_row": "" if worst is None else row_label(worst, study),
        "rmse_ratio": part["rmse_ratio"].median(),
        "length_ratio": part["length_ratio"].median(),
        "bias": part["bias_ratio"].mean(),
        "absolute_bias": part["bias_ratio"].abs().mean(),
    }


def row_label(row: Any, study: FrameStudy) -> str:
    """Return the labels of a row in words."""
    names = [LEVEL, *study.spec.by]
    return ", ".join(f"{name} {row[name]}" for name in names if row[name]) or "all"


def as_json(study: FrameStudy, result: CoverageResult) -> dict[str, Any]:
    """Return the summary of a study, JSON-ready."""
    design = study.design
    return {
        "frame": study.source,
        "units": study.population.n_units,
        "samples": study.replicates,
        "records": design.n,
        "seed": study.seed,
        "design": {"kind": design.kind, "allocation": study.population.drawn or design.allocation,
                   "size": study.population.size},
        "specifications": {
            name: {"mechanism": spec.privacy.mechanism, "epsilon": spec.privacy.stated_epsilon,
                   "model": spec.synthesizer.model, "m": spec.privacy.m}
            for name, spec in study.specs.items()
        },
        "refused": _refused(study, result.refusals),
        "failed": result.failed,
        "tables": list(_records(result.summary)),
        "by_size": list(_records(result.by_size)),
    }  # fmt: skip


def _records(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    yield from json.loads(frame.to_json(orient="records", double_precision=6))


#: A method whose intervals cover too little is drawn down to here.
_FLOOR = 0.45
_COLORS = ("#0072B2", "#009E73", "#CC79A7", "#7F5AA2", "#882255", "#999933")


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
    """Draw a panel for each table and method: a dot per row, over its records."""
    places = list(dict.fromkeys(rows[PLACE].itertuples(index=False, name=None)))
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


#: Keys of a cell: a method at an epsilon, a statistic, a row of its table.
