"""One page for a review board: how far replacing one record moves a release."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from surveysynth._support.page import Picture
from surveysynth.evaluation.audit.lines import Line, Verdict, worst
from surveysynth.evaluation.style import PageTable, Row, cells, columns, page
from surveysynth.release.figure_style import FAINT, INK, WARNING, draw, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = "SIMULATED DATA: no confidential record was read for this page."
WORDS = {
    "pseudo_posterior": "Pseudo-posterior: log ratio of the posteriors over epsilon / m",
    "noisy_statistics": "Noisy statistics: distance of the exact statistics over the stated one",
    "": "Not made",
}
def ratio_words(ratio: float | None) -> str:
    """Return a ratio as text, never rounded to the other side of 1."""
    if ratio is None:
        return ""
    if not np.isfinite(ratio):
        return "infinite"
    step = 1000.0 if ratio < 10 else 10.0
    shown = np.floor(ratio * step) / step if ratio <= 1.0 else np.ceil(ratio * step) / step
    return f"{shown:.3f}" if ratio < 10 else f"{shown:.1f}"


def sentence(line: Line) -> str:
    """Return the line for a terminal."""
    place = ", ".join(filter(None, (line.case, f"n = {line.n:,}")))
    if line.ratio is None:
        return f"{place}: {line.verdict}: {line.reason}"
    numbers = f" ({line.random_numbers} random numbers)" if line.random_numbers else ""
    what = f"{line.record}: {line.change}" if line.record else line.change
    ratio = ratio_words(line.ratio)
    reason = f"; {line.reason}" if line.verdict == "fires" else ""
    return f"{place}: {ratio} of the stated bound, {line.verdict}; {what}{numbers}{reason}"


def render_page(lines: Sequence[Line], facts: Mapping[str, Any]) -> str:
    """Return the page of an audit."""
    counts = facts["verdicts"]
    shown = [line for line in worst(lines) if line.ratio is not None and np.isfinite(line.ratio)]
    picture = None
    if shown:
        picture = Picture(
            "ratios", "Ratios to the stated bound", "Each dot is the worst replacement of one "
            "record. Left of the line the mechanism keeps its stated bound.",
            png_bytes(draw(_figure, shown)),
        )  # fmt: skip
    of_mechanisms = [
        (words, [line for line in worst(lines) if line.mechanism == mechanism])
        for mechanism, words in WORDS.items()
    ]
    return page(
        "What one record can move",
        MARK,
        "audit.html.j2",
        counts={each: counts.get(each, 0) for each in get_args(Verdict)},
        source=facts["specification"] or "the package's own examples",
        seed=facts["seed"],
        date=facts["date"],
        picture=picture,
        tables=[(words, _table(own)) for words, own in of_mechanisms if own],
        versions=", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
    )


def _table(lines: Iterable[Line]) -> PageTable:
    heads = columns("Case", "n", "epsilon", "Ratio", "Verdict", "Record", "Change",
                    "Random numbers", "Beyond epsilon", "With effects of PSUs")  # fmt: skip
    rows = [
        Row(
            [line.case],
            cells(
                f"{line.n:,}", f"{line.epsilon:g}", ratio_words(line.ratio),
                f"{line.verdict}: {line.reason}" if line.reason else line.verdict,
                line.record, line.change, line.random_numbers,
                "" if line.beyond is None else f"{line.beyond:.3f}", ratio_words(line.jointly),
            ),
            strong=line.verdict in ("passed", "missed"),
        )
        for line in lines
    ]
    return PageTable("", heads, rows, "audit")


def _figure(lines: Sequence[Line]) -> "Figure":
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.case for line in lines))
    figure = Figure(figsize=(7.5, 0.9 + 0.24 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for line in lines:
        assert line.ratio is not None
        color = {"passed": WARNING, "fires": FAINT}.get(line.verdict, INK)
        fill = "white" if line.random_numbers == "fresh" else color
        axes.plot(max(line.ratio, 0.01), names.index(line.case), "o", ms=4.5, color=color,
                  markerfacecolor=fill)  # fmt: skip
    axes.axvline(1.0, color=FAINT, lw=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("Ratio to the stated bound (open: fresh random numbers)")
    return figure
