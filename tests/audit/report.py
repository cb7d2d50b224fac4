"""Words and a page of an audit: how far replacing one record moves a release."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from surveysynth.release.files import library_versions
from tests.audit.lines import Line, worst

MARK = "Simulated data: no confidential record was read for this page."
_WORDS = {
    "pseudo_posterior": "Pseudo-posterior: log ratio of the posteriors over epsilon / m",
    "noisy_statistics": "Noisy statistics: distance of the exact statistics over the stated one",
    "": "Not made",
}
_HEADS = ("Case", "n", "epsilon", "Ratio", "Verdict", "Record", "Change", "Random numbers",
          "Beyond epsilon")  # fmt: skip
_NOTES = """\
- Each line is the worst of all replacements of one record; audit.csv has all of them.
- At or below 1 the mechanism keeps its stated bound. For the pseudo-posterior this is a measurement
  on simulated surveys, not a proof, because its guarantee is asymptotic. Noisy statistics reach
  their bound exactly.
- "fires": a planted violation that the test has to find, and did; "missed": one that it did not.
- Common random numbers: the two fits differ only in their data. Releases draw fresh ones.
- Beyond epsilon: the probability that m released draws together reveal more than epsilon.
"""


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


def page_of(lines: Iterable[Line], source: str, seed: int) -> str:
    """Return the page, in Markdown."""
    lines = list(lines)
    counts = Counter(line.verdict for line in lines)
    parts = ["# What one record can move", MARK,
             ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()) + ".",
             f"Source: {source}; seed {seed}."]  # fmt: skip
    for mechanism, words in _WORDS.items():
        own = [_row(line) for line in worst(lines) if line.mechanism == mechanism]
        if own:
            rows = [_HEADS, ["---"] * len(_HEADS), *own]
            table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
            parts += [f"## {words}", table]
    versions = ", ".join(f"{name} {number}" for name, number in library_versions().items())
    return "\n\n".join([*parts, _NOTES + f"- Made by {versions}."]) + "\n"


def _row(line: Line) -> list[str]:
    verdict = f"{line.verdict}: {line.reason}" if line.reason else line.verdict
    cells = [
        line.case, f"{line.n:,}", f"{line.epsilon:g}", ratio_words(line.ratio), verdict,
        line.record, line.change, line.random_numbers,
        "" if line.beyond is None else f"{line.beyond:.3f}",
    ]  # fmt: skip
    strong = line.verdict in ("passed", "missed")
    return [f"**{each}**" if strong and each else each for each in cells]
