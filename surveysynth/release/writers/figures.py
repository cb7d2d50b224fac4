"""Figures that may be published: estimates with their intervals, from published numbers alone."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from surveysynth._support.messages import xml_text
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.config.tables_section import Format
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release import figure_style as style
from surveysynth.release.tables.layout import (
    Presentation,
    StubRow,
    TableSet,
    describe,
    rounding_of_table,
    stubs_of,
)
from surveysynth.release.tables.table import FLAG_SEPARATOR, ReleaseTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOR = "#0072B2"
#: A taller figure would not be looked at, and image formats end somewhere.
MOST_ROWS = 150
_WIDTH, _ROW, _EXTRA = 7.6, 0.21, 1.0

_RC: dict[str, Any] = {
    **style.RC,
    "axes.spines.left": False,
    "ytick.left": False,
    # A dollar sign in a label is a dollar sign.
    "text.parse_math": False,
    # Text stays text, which screen readers and searches find; the same numbers, the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "surveysynth",
    "pdf.fonttype": 42,
}
_NO_DATE: dict[str, dict[str, None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
}
#: Where image formats keep a description for readers who do not see the image.
_ALT = {"svg": "Description", "pdf": "Subject", "png": "Description"}


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write one figure per statistic, with a panel for each outcome."""
    for statistic, of_outcomes in shown.tables.items():
        with writing_style():
            figure = estimates_with_intervals(of_outcomes, shown.presentation)
            save(figure, folder / made.file_of(statistic), made)


def save(figure: Figure, path: Path, made: Format) -> None:
    """Write a figure without the date, so that the same numbers give the same bytes.

    Its label is the text for readers who do not see it.
    """
    alt = {_ALT[made.ending]: str(figure.get_label())} if figure.get_label() else {}
    figure.savefig(path, format=made.ending, metadata={**_NO_DATE[made.ending], **alt})


def display_figure(tables: Sequence[ReleaseTable], presentation: Presentation) -> Figure:
    """Return the figure of one statistic, which notebooks show without pyplot."""
    with writing_style():
        return estimates_with_intervals(tables, presentation, NotebookFigure)


@contextmanager
def writing_style() -> Iterator[None]:
    """Set the style of figures in files, without warnings of missing glyphs."""
    import matplotlib as mpl

    settings: Any = _RC
    with mpl.rc_context(settings), warnings.catch_warnings():
        # Labels in scripts that the font lacks; in svg the reader's own fonts show them.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        yield


def estimates_with_intervals(
    tables: Sequence[ReleaseTable],
    presentation: Presentation,
    kind: type[Figure] | None = None,
) -> Figure:
    """Draw the tables of one statistic, domains from top to bottom as in the table.

    ``kind``: the class of the figure, None for Matplotlib's own.
    """
    shown = [min(len(table.frame), MOST_ROWS) for table in tables]
    source = f"Source: {presentation.source}" if presentation.source else ""
    left_out = any(len(table.frame) > MOST_ROWS for table in tables)
    cut = f"The first {MOST_ROWS} rows; the tables have all." if left_out else ""
    flags = "Flags are in the tables." if any(table.flag_codes for table in tables) else ""
    lines = [presentation.banner, source, cut, flags, presentation.privacy_note]
    notes = "\n".join(wrapped(line, 128) for line in lines if line)
    height = _EXTRA * (1 + len(tables)) + _ROW * (sum(shown) + 1.2 * len(notes.splitlines()))
    figure = (kind or Figure)(figsize=(_WIDTH, height), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=shown)[:, 0]
    for panel, table in zip(panels, tables, strict=True):
        _panel(panel, table, presentation)
    title = describe(tables, presentation, "Figure")
    figure.suptitle(
        wrapped("\n".join(filter(None, [title, presentation.title])), 88),
        x=0.01,
        ha="left",
        fontsize=10.5,
        fontweight="bold",
        color=style.INK,
    )
    figure.set_label(
        f"{xml_text(title)}. Each of {sum(shown)} rows has a mark with its "
        f"{interval_words(tables[0])}. The table of the same name has all numbers."
    )
    color = style.WARNING if presentation.banner else style.INK
    figure.supxlabel(notes, x=0.01, ha="left", fontsize=7.5, color=color)
    return figure


def _panel(panel: "Axes", table: ReleaseTable, presentation: Presentation) -> None:
    labels = presentation.labels
    factor = 100.0 if statistic_of(table.statistic).percent else 1.0
    frame = table.frame.iloc[:MOST_ROWS]
    rows = stubs_of(table, labels)[:MOST_ROWS]
    estimate, lower, upper = (
        frame[name].to_numpy(dtype=np.float64) * factor
        for name in ("estimate", "ci_lower", "ci_upper")
    )
    places = np.arange(len(rows), dtype=np.float64)
    strong = frame["is_margin"].to_numpy(dtype=bool)
    outside = _out_of_scale(table, estimate, upper)
    for chosen, color, marker, words in (
        (strong & ~outside, style.INK, "D", "total or subtotal"),
        (~strong & ~outside, COLOR, "o", "cell"),
    ):  # fmt: skip
        panel.hlines(places[chosen], lower[chosen], upper[chosen], color=color, linewidth=1.4)
        if chosen.any():
            panel.plot(
                estimate[chosen], places[chosen], marker, color=color, markersize=4, label=words
            )
    panel.plot([], [], "-", color=style.INK, linewidth=1.4, label=interval_words(table))
    panel.legend(
        ncols=3, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8, borderpad=0
    )
    _axes(panel, rows, table, presentation)
    show = rounding_of_table(table, presentation).show
    withheld = [
        "no estimate" if set(table.flag_codes).isdisjoint(codes) else "withheld"
        for codes in frame["flag"].str.split(FLAG_SEPARATOR)
    ]
    _say(panel, {place: withheld[place] for place in np.flatnonzero(np.isnan(estimate)).tolist()})
    beyond = {place: f"{show(estimate[place])} ▸" for place in np.flatnonzero(outside).tolist()}
    _say(panel, beyond, right=True)


def interval_words(table: ReleaseTable) -> str:
    """Name the interval, and what is in it."""
    return f"{table.interval_words}, with privacy noise"


def _out_of_scale(
    table: ReleaseTable, estimate: FloatArray, upper: FloatArray
) -> BoolArray:
    """Return rows (D,) of sums that are known, or margins beyond every cell."""
    none = np.zeros(estimate.size, dtype=bool)
    margin = table.frame["is_margin"].to_numpy(dtype=bool)[: estimate.size]
    if not statistic_of(table.statistic).additive or margin.all():
        return none
    known = margin & (table.frame["se"].to_numpy(dtype=np.float64)[: estimate.size] == 0)
    most = np.nanmax(upper[~margin], initial=0.0)
    return known | (margin & (estimate > 1.3 * most)) if most > 0 else none


def _axes(
    panel: "Axes", rows: Sequence[StubRow], table: ReleaseTable, presentation: Presentation
) -> None:
    texts = [xml_text(f"{row.group} · {row.label}" if row.group else row.label) for row in rows]
    # Long ones are cut, since the table has them whole.
    panel.set_yticks(
        range(len(rows)), [text if len(text) <= 46 else text[:45] + "…" for text in texts]
    )
    for text, row in zip(panel.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if row.strong else "normal")
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.xaxis.set_major_formatter(lambda value, position: f"{value:,.6g}".replace("-", "−"))
    heading = statistic_of(table.statistic).heading
    if table.outcome is not None:
        heading = f"{heading}: {xml_text(presentation.labels.titled_with_unit(table.outcome))}"
    panel.set_xlabel(heading)


def _say(panel: "Axes", words: Mapping[int, str], *, right: bool = False) -> None:
    """Write words by place instead of a mark, at an end of the axis."""
    for place, text in words.items():
        panel.text(
            0.995 if right else 0.005, place, text, transform=panel.get_yaxis_transform(),
            va="center", ha="right" if right else "left", fontsize=8, color=style.FAINT,
        )  # fmt: skip


def wrapped(text: str, width: int) -> str:
    """Return text in lines of at most this width, without signs that no XML has."""
    import textwrap

    return "\n".join(textwrap.fill(xml_text(line), width) for line in text.splitlines())


class NotebookFigure(Figure):
    """A figure that IPython shows as a picture, without pyplot and its windows."""

    def _repr_png_(self) -> bytes:
        """Return the figure as PNG."""
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
