"""One page for a review board: what replacing one record moved, beside what is stated."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.page import Picture, bullets, figure_section, scrolled, whole_page
from surveysynth.evaluation.audit.lines import Line, worst
from surveysynth.release.figure_style import FAINT, INK, WARNING, draw, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = "SIMULATED DATA: no confidential record was read for this page."
WORDS = {
    "pseudo_posterior": "Pseudo-posterior: log ratio of the posteriors over epsilon / m",
    "noisy_statistics": "Noisy statistics: distance of the exact statistics over the stated one",
    "": "Not made",
}
NOTES = (
    "A line is the worst of all replacements of one record; audit.csv has every one of them.",
    "At or below 1 the mechanism holds what it states; for the pseudo-posterior this is a "
    "measurement on simulated surveys and not a proof, since its guarantee is asymptotic.",
    "Common random numbers: both fits differ by their data alone. Releases draw fresh ones, whose "
    "Monte Carlo error is in the lines that say so.",
    "Beyond epsilon: the probability that m released draws together tell more than epsilon.",
    "Noisy statistics reach their bound exactly: a ratio of 1 says that not one record moves the "
    "statistics farther than the noise was made for.",
)


def ratio_words(ratio: float | None) -> str:
    """A ratio as text, never rounded to the other side of 1."""
    if ratio is None:
        return ""
    if not np.isfinite(ratio):
        return "infinite"
    step = 1000.0 if ratio < 10 else 10.0
    shown = np.floor(ratio * step) / step if ratio <= 1.0 else np.ceil(ratio * step) / step
    return f"{shown:.3f}" if ratio < 10 else f"{shown:.1f}"


def sentence(line: Line) -> str:
    """The line for a terminal."""
    place = ", ".join(filter(None, (line.case, f"n = {line.n:,}")))
    if line.ratio is None:
        return f"{place}: {line.verdict}: {line.reason}"
    numbers = f" ({line.random_numbers} random numbers)" if line.random_numbers else ""
    what = f"{line.record}: {line.change}" if line.record else line.change
    return f"{place}: {ratio_words(line.ratio)} of what is stated, {line.verdict}; {what}{numbers}"


def render_page(lines: Sequence[Line], facts: Mapping[str, Any]) -> str:
    """The page as text, which needs nothing else; every label is escaped."""
    counts = facts["verdicts"]
    passed = counts.get("passed", 0)
    head = (
        f"{counts.get('holds', 0):,} replacements within what is stated, {passed:,} beyond it, "
        f"{counts.get('refused', 0):,} refused, {counts.get('skipped', 0):,} skipped."
    )
    source = facts["specification"] or "the package's own examples"
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    body = ["<h1>What one record can move</h1>", f"<p>{escape(head)}</p>"]
    body.append(f"<p>Of {escape(source)}; seed {facts['seed']}, {escape(facts['date'])}.</p>")
    shown = [line for line in worst(lines) if line.ratio is not None and np.isfinite(line.ratio)]
    if shown:
        picture = Picture(
            "ratios", "Ratios over what is stated", "A dot is the worst replacement of one "
            "record. Left of the line the mechanism holds what it states.",
            png_bytes(draw(_figure, shown)),
        )  # fmt: skip
        body.append(figure_section(picture, picture.heading))
    for mechanism, words in WORDS.items():
        own = [line for line in worst(lines) if line.mechanism == mechanism]
        if own:
            body.append(f"<h2>{escape(words)}</h2>")
            body.append(_table(own))
    body += [bullets(NOTES), f'<p class="note">Made by {escape(versions)}.</p>']
    return whole_page("What one record can move", MARK, body)


def _table(lines: Iterable[Line]) -> str:
    names = ("Case", "n", "epsilon", "Ratio", "Verdict", "Record", "Change", "Random numbers",
             "Beyond epsilon", "With effects of PSUs")  # fmt: skip
    head = ["<tr>", *(f"<th>{escape(name)}</th>" for name in names), "</tr>"]
    rows = []
    for line in lines:
        cells = (
            f"{line.n:,}", f"{line.epsilon:g}", ratio_words(line.ratio),
            f"{line.verdict}: {line.reason}" if line.reason else line.verdict,
            line.record, line.change, line.random_numbers,
            "" if line.beyond is None else f"{line.beyond:.3f}", ratio_words(line.jointly),
        )  # fmt: skip
        kind = ' class="strong"' if line.verdict == "passed" else ""
        rows.append(
            f"<tr{kind}><th>{escape(line.case)}</th>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    return scrolled("", head, rows, "audit")


def _figure(lines: Sequence[Line]) -> "Figure":
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.case for line in lines))
    figure = Figure(figsize=(7.5, 0.9 + 0.24 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for line in lines:
        assert line.ratio is not None
        colour = WARNING if line.verdict == "passed" else INK
        fill = "white" if line.random_numbers == "fresh" else colour
        axes.plot(max(line.ratio, 0.01), names.index(line.case), "o", ms=4.5, color=colour,
                  markerfacecolor=fill)  # fmt: skip
    axes.axvline(1.0, color=FAINT, lw=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("Ratio over what is stated (open: fresh random numbers)")
    return figure
