"""What a study on a frame finds: measures by row, by size of row, and by table.

Measures over repeated samples are bias, RMSE and coverage, with Monte Carlo errors. Replicates are
a frame with one row a sample, method and row of a table: the columns of ``KEYS``, then sample,
estimate, se, df, ci_lower, ci_upper.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.page import fragment
from surveysynth._support.types import FloatArray
from surveysynth.estimation.statistics import LEVEL, TABLE
from surveysynth.evaluation.methods import SAMPLE
from surveysynth.evaluation.studies.study import FrameStudy, row_keys

#: Keys of a cell: a method at an epsilon, a statistic, a row of its table.
KEYS = ("method", "epsilon", "statistic", "outcome", "row")
#: A public total is known to rounding, and its interval is a point.
ROUNDING = 1e-9


def measure_cells(replicates: pd.DataFrame, truth: pd.DataFrame) -> pd.DataFrame:
    """Compute the measures of methods 7 for every cell, with Monte Carlo standard errors.

    One row a cell. truth: columns statistic, outcome, row, truth. bias, sd (empirical), se (mean),
    rmse against the truth, rmse_ratio to the confidential sample's over the same samples, coverage
    of the nominal intervals, ci_length (mean), cv (mean SE over truth); ``replicates`` counts
    samples with an estimate. A ratio is NaN if the sample has no error.
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
        One row a table, statistic, outcome and method: coverage with its Monte Carlo standard
        error, its gap to the sample's own, the worst row of at least 100 records, RMSE and length
        over the sample's own (median row), ``whole_table``, the share of samples in which all rows
        hold at once, bias in standard errors of the sample, share refused.
    by_size
        The same by the number of records that a row has in the mean sample.
    rows
        One row a row of the tables and method, with labels, truth and all measures.
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
    """Return one row a place and method, over all rows that have sampling error."""
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
