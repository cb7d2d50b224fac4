"""The page of ``adequacy`` and its rows as csv: confidential, for the owner alone to read."""

import math
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.page import Picture
from surveysynth.estimation.statistics import LEVEL, TABLE, statistic_of
from surveysynth.evaluation.compare.adequacy import Findings
from surveysynth.evaluation.compare.expected_error import FAR
from surveysynth.evaluation.style import PageTable, Row, cells, columns, heading_of, page
from surveysynth.release.figure_style import FAINT, INK, MARK, WARNING, draw, new_figure, png_bytes
from surveysynth.release.folder import ADEQUACY_PAGE, ADEQUACY_ROWS
from surveysynth.release.tables.layout import show_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OWNER_ONLY = 0o600
#: Rows of the page; adequacy.csv has all.
SHOWN = 10
#: A test for all rows together below this says that the model is wrong.
LEVEL_OF_TEST = 0.05
WARNED = (
    "CONFIDENTIAL: what follows is computed from the confidential sample. Epsilon does not cover "
    "it, nor a decision to publish that depends on it."
)


@dataclass(frozen=True, repr=False)
class Adequacy:
    """How near a release is to its sample: confidential, its counts included.

    page: the file that shows it; rows: number of rows compared; beyond: of rows more than 2.6
    expected errors from the sample; p_value: the chance of a row as far as the farthest, for all
    rows together, if the model is right.
    """

    page: Path
    rows: int
    beyond: int
    p_value: float

    def sentences(self) -> list[str]:
        """Return the warning, and the verdict in one line."""
        return [WARNED, verdict(self.rows, self.beyond, self.p_value), f"See {self.page}."]


def verdict(rows: int, beyond: int, p_value: float) -> str:
    """Return what was found in words."""
    found = "more than noise and synthesis explain"
    if p_value >= LEVEL_OF_TEST:
        found = "no more than noise and synthesis explain"
    return (
        f"The release differs from the sample by {found} (p = {p_value:.2g} for all rows "
        f"together). {beyond:,} of {rows:,} rows differ by more than {FAR:.1f} expected errors; a "
        f"right model has about {rows / 100:.1f} such rows."
    )


def write_adequacy(found: Findings, folder: Path) -> Adequacy:
    """Write adequacy.html and adequacy.csv to the confidential folder, in place of earlier ones."""
    result = Adequacy(folder / ADEQUACY_PAGE, found.compared, found.beyond, found.p_value)
    rows = str(found.frame.to_csv(index=False, lineterminator="\n"))
    for name, text in ((ADEQUACY_ROWS, rows), (ADEQUACY_PAGE, render_adequacy(found))):
        (folder / name).unlink(missing_ok=True)
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    return result


def render_adequacy(found: Findings) -> str:
    """Return the page: warning, verdict, the farthest rows, one figure."""
    facts = found.facts
    figure = Picture(
        "differences", "All rows", "Predicted by the release, less the sample, in expected errors.",
        png_bytes(draw(differences_figure, {"": found})),
    )  # fmt: skip
    return page(
        f"CONFIDENTIAL: is it near the sample? {facts.title}", MARK, "adequacy.html.j2",
        title=facts.title, mark=MARK, warned=WARNED,
        verdict=verdict(found.compared, found.beyond, found.p_value), far=f"{FAR:.1f}",
        rows_name=ADEQUACY_ROWS, noisy=not facts.mechanism.down_weights,
        farthest=farthest_rows(found), picture=figure,
    )  # fmt: skip


def farthest_rows(found: Findings) -> PageTable:
    """Return the rows farthest from the sample, in expected errors."""
    frame = found.frame.assign(apart=found.frame["difference"].abs())
    frame = frame.dropna(subset="apart").sort_values("apart", ascending=False, kind="stable")
    rows = []
    for row in frame.head(SHOWN).to_dict("records"):
        factor = 100.0 if statistic_of(row["statistic"]).percent else 1.0
        values = (row[each] for each in ("published", "sample", "expected_error"))
        numbers = [_to_error(factor * each, factor * row["expected_error"]) for each in values]
        rows.append(Row(
            [_named(found, row)], cells(*numbers, show_ratio(row["difference"])),
            strong=bool(row["apart"] > FAR),
        ))  # fmt: skip
    heads = columns("Row", "Published", "Sample", "Expected error", "Ratio")
    return PageTable(
        f"The {len(rows)} farthest rows, by the ratio of difference and expected error; all are in "
        f"{ADEQUACY_ROWS}", heads, rows, "side",
    )


def _named(found: Findings, row: "dict[Hashable, object]") -> str:
    """Return a row in words: its table, its level, and its by-columns."""
    labels, outcome = found.facts.labels, row["outcome"]
    parts = [heading_of(labels, str(row["statistic"]), None if outcome is None else str(outcome))]
    if isinstance(level := row.get(LEVEL), str) and outcome is not None:
        parts.append(labels.level(str(outcome), level))
    codes = ((name, row.get(name)) for name in found.facts.spec.by)
    parts += [labels.level(name, code) for name, code in codes if isinstance(code, str) and code]
    name = str(row.get(TABLE) or "")
    return " · ".join([*parts, *([f"table {name}"] if name else [])])


def _to_error(value: float, error: float) -> str:
    """Write a value to the second digit of its error."""
    digits = 1 - math.floor(math.log10(error))
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}".replace("-", "−")


def differences_figure(releases: Mapping[str, Findings]) -> "Figure":
    """Draw all differences: a panel for each release, a line of dots for each statistic."""
    lines = max(len(found.rows) for found in releases.values())
    figure = new_figure(7.6, 0.9 + len(releases) * (0.5 + 0.45 * lines))
    panels = figure.subplots(len(releases), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (title, found) in zip(panels, releases.items(), strict=True):
        panel.set_title(title)
        _differences(panel, found)
    reach = max(1.2 * FAR, *(abs(end) for panel in panels for end in panel.get_xlim()))
    panels[-1].set_xlim(-reach, reach)
    panels[-1].set_xlabel(f"expected errors; shaded: within {FAR:.1f}, as 99 of 100 rows are")
    return figure


def _differences(panel: Any, found: Findings) -> None:
    panel.axvspan(-FAR, FAR, color="#eef3f7", zorder=0)
    for place, table in enumerate(found.rows.values()):
        z = table["difference"].dropna().to_numpy()
        far = np.abs(z) > FAR
        heights = place + np.random.default_rng(0).uniform(-0.15, 0.15, z.size)  # for the eye
        panel.plot(z[~far], heights[~far], "o", color=INK, markersize=4, alpha=0.5)
        panel.plot(z[far], heights[far], "D", color=WARNING, markersize=5)
    panel.axvline(0.0, color=FAINT, linewidth=1)
    names = [heading_of(found.facts.labels, *key) for key in found.rows]
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
