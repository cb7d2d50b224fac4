"""Summaries of the comparison: coverage, error, length and seconds by statistic, and their tables.

A line of the golden file is one population, epsilon, method and statistic. Errors and lengths are
divided by the sample's own over the same samples, row by row; the line has the median row.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.evaluation.studies.report import ROUNDING

GOLDEN = Path(__file__).parents[2] / "golden" / "comparison.json"
METHODS = {
    "package": "surveysynth, defaults",
    "fay_herriot": "noisy totals, Fay-Herriot",
    "fay_herriot_wide": "noisy totals, Fay-Herriot, wide bounds",
    "totals": "noisy totals",
    "three_pairs": "marginals, three pairs",
    "mst": "marginals, MST",
    "aim": "marginals, AIM",
    "exact": "noise ignored",
    "laplace": "Laplace, epsilon sqrt(2 rho)",
    "laplace_papers": "Laplace, this epsilon",
    "pseudo_posterior": "pseudo-posterior",
}
POPULATIONS = {"published": "published simulation", "fares": "air fares",
               "earnings": "hourly earnings"}  # fmt: skip
RESAMPLES = 400


def summaries(lines: Sequence[dict[str, Any]], earlier: dict[str, Any]) -> str:
    """Return the golden file of the lines of runs, with what was there of other methods."""
    made, versions, commits = [], dict(earlier["versions"]), set(earlier["commits"])
    truths = {(each["population"], each["epsilon"]): each for each in lines if "truth" in each}
    for (population, epsilon), head in truths.items():
        own = [each for each in lines if "method" in each
               and (each["population"], each["epsilon"]) == (population, epsilon)]  # fmt: skip
        by_method = {
            name: {each["sample"]: each for each in own if each["method"] == name}
            for name in ("sample", *METHODS)
        }
        for name in METHODS:
            found, base = by_method[name], by_method["sample"]
            kept = sorted(k for k, each in found.items() if "refused" not in each and k in base)
            if not kept:
                continue
            for each in found.values():
                versions |= each["versions"]
                commits.add(each["commit"])
            truth, statistic = np.array(head["truth"]), np.array(head["statistic"])
            for kind in dict.fromkeys(head["statistic"]):
                part = statistic == kind
                arrays = [_arrays([from_[k] for k in kept], part) for from_ in (found, base)]
                made.append({
                    "population": population, "epsilon": epsilon, "method": name,
                    "statistic": kind, "samples": len(kept), "refused": len(found) - len(kept),
                    **_measures(truth[part], *arrays),
                    "seconds": _seconds(found[k]["seconds"] for k in kept),
                })  # fmt: skip
    results = _found(earlier) | _found({"results": made})
    places = list(truths) + [key[:2] for key in results]
    order = [(*place, name) for place in dict.fromkeys(places) for name in METHODS]
    text = json.dumps({
        "commits": sorted(commits), "versions": versions,
        "designs": earlier["designs"] | {
            name: {key: head[key] for key in ("units", "records", "design")}
            for (name, _), head in truths.items()
        },
        "results": sorted(results.values(), key=lambda each: order.index(
            (each["population"], each["epsilon"], each["method"]))),
    })  # fmt: skip
    return text.replace('{"population"', '\n{"population"').replace("]}", "\n]}\n")


def _seconds(found: Iterable[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return round(float(np.median(known)), 2) if known else None


def _arrays(lines: Sequence[dict[str, Any]], part: BoolArray) -> tuple[FloatArray, ...]:
    """Return estimates and ends of intervals (samples, rows)."""
    return tuple(np.array([each[name] for each in lines], dtype=np.float64)[:, part]
                 for name in ("estimate", "ci_lower", "ci_upper"))  # fmt: skip


def _measures(
    truth: FloatArray, made: tuple[FloatArray, ...], own: tuple[FloatArray, ...]
) -> dict[str, float]:
    """Return measures with Monte Carlo errors; rows that the sample knows exactly are left out."""
    errors = [each[0] - truth for each in (made, own)]
    wrong = np.sqrt(np.nanmean(errors[1] ** 2, axis=0)) > ROUNDING * np.abs(truth)
    squares = [each[:, wrong] ** 2 for each in errors]
    lengths = [(each[2] - each[1])[:, wrong] for each in (made, own)]
    covered = [_covered(each, truth)[:, wrong] for each in (made, own)]

    def ratios(chosen: Any) -> tuple[float, float]:
        with np.errstate(invalid="ignore"):
            rmse = np.sqrt(np.nanmean(squares[0][chosen], 0) / np.nanmean(squares[1][chosen], 0))
            length = np.nanmean(lengths[0][chosen], 0) / np.nanmean(lengths[1][chosen], 0)
        return float(np.nanmedian(rmse)), float(np.nanmedian(length))

    rng, count = np.random.default_rng(0), len(made[0])
    again = np.array([ratios(rng.integers(0, count, count)) for _ in range(RESAMPLES)])
    rmse, length = ratios(slice(None))
    by_sample = np.nanmean(covered[0], axis=1)
    named = {
        "rows": int(wrong.sum()), "coverage": float(np.nanmean(covered[0])),
        "coverage_error": float(by_sample.std(ddof=1) / np.sqrt(count)),
        "own_coverage": float(np.nanmean(covered[1])), "rmse": rmse,
        "rmse_error": float(again[:, 0].std(ddof=1)), "length": length,
        "length_error": float(again[:, 1].std(ddof=1)),
    }  # fmt: skip
    return {name: each if name == "rows" else float(f"{each:.4g}") for name, each in named.items()}


def _covered(made: tuple[FloatArray, ...], truth: FloatArray) -> FloatArray:
    slack = ROUNDING * np.abs(truth)
    inside = (made[1] <= truth + slack) & (truth - slack <= made[2])
    return np.where(np.isfinite(made[1]) & np.isfinite(made[2]), inside, np.nan)


#: Not ranked among the others: its guarantee is another.
APART = "pseudo_posterior"
#: Cells of fewer samples say so.
ENOUGH = 40
#: Shown in the README, at these epsilons.
EXTRACT = ("package", "fay_herriot", "three_pairs", "laplace")
EPSILONS = (10.8, 3.6)


def _found(golden: dict[str, Any]) -> dict[tuple[str, float, str, str], dict[str, Any]]:
    keys = ("population", "epsilon", "method", "statistic")
    return {tuple(each[key] for key in keys): each for each in golden["results"]}  # type: ignore[misc]


def page(golden: dict[str, Any]) -> list[str]:
    """Return the tables of the page: errors and coverage, then lengths and seconds."""
    found = _found(golden)
    places = list(
        dict.fromkeys((each["population"], each["epsilon"]) for each in golden["results"])
    )
    places.sort(key=lambda place: (list(POPULATIONS).index(place[0]), -place[1]))
    run = {each["method"] for each in golden["results"]}
    ranked = [name for name in METHODS if name != APART and name in run]
    lines: list[str] = []
    for statistic, title in (("mean", "Means"), ("count", "Counts")):
        lines += [f"**{title}: error and coverage**", "", *_head(places)]
        lines += [_line(METHODS[name], [_error(found.get((*place, name, statistic)))
                                        for place in places]) for name in ranked]  # fmt: skip
        lines += [""]
    lines += ["**Length of intervals: means and counts; CPU seconds**", "",
              *_head(places, "seconds")]  # fmt: skip
    for name in ranked:
        both = [[found.get((*place, name, each)) for each in ("mean", "count")] for place in places]
        seconds = [each[0]["seconds"] for each in both if each[0] and each[0]["seconds"]]
        cells = [" / ".join(_short(one["length"]) for one in each if one) for each in both]
        took = f"{np.median(seconds):.2f}" if seconds else ""
        lines.append(_line(METHODS[name], [*cells, took]))
    apart = [place for place in places if (*place, APART, "mean") in found]
    if apart:
        lines += [
            "",
            f"**The {METHODS[APART]}, not ranked: means, then counts**",
            "",
            *_head(apart),
        ]
        lines += [_line(statistic, [_error(found[(*place, APART, statistic)]) for place in apart])
                  for statistic in ("mean", "count")]  # fmt: skip
    return lines


def readme(golden: dict[str, Any]) -> list[str]:
    """Return the extract for the README: errors of means."""
    found = _found(golden)
    places = [(name, epsilon) for name in POPULATIONS for epsilon in EPSILONS]
    lines = _head(places)
    for name in EXTRACT:
        own = [found.get((*place, name, "mean")) for place in places]
        if any(own):
            lines.append(
                _line(
                    METHODS[name],
                    [f"{each['rmse']:.2f}{_few(each)}" if each else "" for each in own],
                )
            )
    return lines


def _head(places: Sequence[tuple[str, float]], *more: str) -> list[str]:
    heads = [f"{POPULATIONS[name]}, {epsilon:g}" for name, epsilon in places]
    return [_line("method", [*heads, *more]), "|---" * (1 + len(places) + len(more)) + "|"]


def _short(length: float) -> str:
    return f"{length:.2f}" if length < 100 else f"{length:,.0f}"


def _line(first: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([first, *cells])} |"


def _error(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    few = _few(found)
    return f"{found['rmse']:.2f} ± {found['rmse_error']:.2f}, {found['coverage']:.2f}{few}"


def _few(found: dict[str, Any]) -> str:
    return "" if found["samples"] >= ENOUGH else f" [{found['samples']}]"
