"""The confidential files of ``adequacy``: a page that needs nothing else, and its numbers as csv.

Only the owner may read them; the folder that they go to is confidential as a whole.
"""

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.page import Picture, bullets, figure_section, scrolled, whole_page
from surveysynth.evaluation.compare.adequacy import Findings, chosen, judge, thinned
from surveysynth.evaluation.compare.distributions import Curve, PartShare, outcome_row, weight_panel
from surveysynth.evaluation.compare.pages import body_lines, heading_of, of_table, stub_of
from surveysynth.evaluation.compare.tables import FAR, Key, by_table, distances, sample_weight
from surveysynth.evaluation.methods import CONSISTENT, SAMPLE, color_of
from surveysynth.mechanisms.noisy_statistics.expected_se import share_outside
from surveysynth.release.facts import rounding_of
from surveysynth.release.figure_style import MARK, draw, new_figure, png_bytes
from surveysynth.release.folder.bundle import (
    ADEQUACY_PAGE,
    ADEQUACY_ROWS,
    ADEQUACY_SHARES,
    REALISED_NAME,
)
from surveysynth.release.tables.rounding import ABSENT, rounding_of_line, show_ratio, to_percent
from surveysynth.release.tables.table_builder import Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.mechanisms.base import Released
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import Survey

OWNER_ONLY = 0o600
SAMPLE_LABEL, SYNTHETIC_LABEL = "Confidential sample", "Synthetic"

LEAD = (
    "Whether to publish after looking at this page is a decision that depends on the data; epsilon "
    "does not cover it. The cleanest use is for the next survey: another transform, finer groups, "
    "another list of predictors."
)
_OF_AMOUNTS = (
    "Many rows off in one direction: the transform does not suit (a power between the log and the "
    "identity may), or records were weighted down. Single cells off: give the formula the "
    "interaction."
)


class AdequacyReport:
    """Looks at a release beside its sample and writes what it finds to the confidential folder.

    Of all synthetic datasets the first is kept, with a million records at most.
    """

    def __init__(self) -> None:
        self._first: SyntheticDataset | None = None

    def see(self, dataset: "SyntheticDataset") -> None:
        """Keep the first dataset."""
        if self._first is None:
            self._first = thinned(dataset)

    def write(
        self,
        facts: "ReleaseFacts",
        survey: "Survey",
        tables: Mapping[str, Tables],
        released: "Released",
        folder: Path,
    ) -> tuple[int, int]:
        """adequacy.html and its numbers; how many rows are compared, and how many lie far."""
        assert self._first is not None  # a release has a dataset
        found = judge(facts, survey, tables, self._first, released.realised)
        files = {
            ADEQUACY_ROWS: _csv(found.rows_frame()),
            ADEQUACY_SHARES: _csv(found.shares_frame()),
            ADEQUACY_PAGE: render_adequacy(found, make_pictures(found)),
        }
        for name, text in files.items():
            _write_private(folder / name, text)
        return found.compared, found.beyond


def _csv(frame: "pd.DataFrame") -> str:
    """Unrounded, missing numbers empty."""
    return str(frame.to_csv(index=False, lineterminator="\n"))


def _write_private(path: Path, text: str) -> None:
    """A new file that only its owner can read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def make_pictures(found: Findings) -> list[Picture]:
    """A figure of every outcome, and one of confidential weights."""
    labels, design = found.facts.labels, found.survey.design
    pictures = [
        Picture(
            f"outcome_{column + 1}", labels.title(outcome.name),
            "The sample and one synthetic dataset, weighted by the survey weights.",
            png_bytes(draw(outcome_figure, found, column)),
        )
        for column, outcome in enumerate(design.outcomes)
    ]  # fmt: skip
    if design.public_weight is not None:
        return pictures  # the same in both
    text = (
        "Smoothed weights, which are released, vary less than those of the sample; the weights "
        "drawn with a dataset should not."
    )
    return [*pictures, Picture("weight", "Weights", text, png_bytes(draw(weight_figure, found)))]


def outcome_figure(found: Findings, column: int) -> "Figure":
    """One outcome: shares of its categories, the density of its amounts, or both."""
    survey, data = found.survey, found.dataset
    outcome, records = survey.design.outcomes[column], chosen(survey.design.n)
    weight = sample_weight(survey)[records]
    curves = [
        Curve(SAMPLE_LABEL, color_of(SAMPLE),
              survey.confidential.outcome[records, column], weight, strong=True),
        Curve(SYNTHETIC_LABEL, color_of("fbs"), data.outcome[:, column], data.weight),
    ]  # fmt: skip
    rows = 0 if outcome.is_amount else outcome.categories
    figure = new_figure(7.6, max(3.2, 1.4 + 0.45 * rows))
    grid = figure.add_gridspec(1, 3)
    label = found.facts.labels.titled_with_unit(outcome.name)
    outcome_row(figure, grid, 0, outcome, curves, label)
    return figure


def weight_figure(found: Findings) -> "Figure":
    """Weights over their mean: the sample's, those drawn with a dataset, and the smoothed ones."""
    survey, data = found.survey, found.dataset
    weight = sample_weight(survey)[chosen(survey.design.n)]
    curves = [Curve(SAMPLE_LABEL, color_of(SAMPLE), weight, None, strong=True)]
    if data.separate_pair:
        curves.append(
            Curve("Synthetic, as drawn", color_of("fbs"), data.variance_weight, None)
        )
    curves.append(Curve("Synthetic, released", color_of(CONSISTENT), data.weight,
                        None))  # fmt: skip
    figure = new_figure(7.6, 3.2)
    weight_panel(figure.subplots(), curves)
    return figure


def render_adequacy(found: Findings, pictures: Sequence[Picture]) -> str:
    """The page as text; every label is escaped."""
    title = found.facts.title
    return whole_page(
        f"CONFIDENTIAL: is the model adequate, {title}",
        MARK,
        [
            f"<h1>Is the model adequate? {escape(title)}</h1>",
            _lead(found),
            _summary(found),
            *(
                _table(found, spec, key, part)
                for key, table in found.rows.items()
                for spec, part in by_table(found.facts.spec, table)
            ),
            *(figure_section(each, f"{each.heading}. {MARK}") for each in pictures),
            _shares(found.shares, found),
            _notes(found),
        ],
    )


def _lead(found: Findings) -> str:
    facts = found.facts
    total = sum(len(table) for table in found.rows.values())
    lines = [
        f"{found.beyond:,} of {found.compared:,} rows lie more than {FAR:g} standard errors of the "
        "sample from the sample's own estimate.",
        LEAD,
    ]
    if total > found.compared:
        lines.append(
            f"Not compared: {total - found.compared:,} further (withheld, of too few records, or a "
            "public total without an error)."
        )
    if found.clipped is not None:
        lines.append(_clipped(found, found.clipped))
    return "".join(f"<p>{escape(line)}</p>" for line in [*lines, *facts.warnings])


def _clipped(found: Findings, clipped: int) -> str:
    """Whether the declared centres and spreads suit."""
    design = found.survey.design
    declared = found.facts.mechanism.described(design)
    expected = share_outside(declared["radius"], len(declared["centres"]))
    return (
        f"{clipped:,} of {design.n:,} records ({clipped / design.n:.1%}) lie outside the ball that "
        f"noisy statistics clip to ({REALISED_NAME}); of normal records with the declared centres "
        f"and spreads {expected:.1%} would. Many more say that a centre is off or a spread too "
        "small, which no interval shows; far fewer, that a spread is too large."
    )


def _summary(found: Findings) -> str:
    """One line a table."""
    head = (
        "<tr><th>Table</th><th>Rows compared</th><th>Median distance</th><th>Largest</th>"
        f"<th>Beyond {FAR:g} SE</th></tr>"
    )
    lines = []
    for (statistic, outcome), table in found.rows.items():
        apart = table["difference"].abs()
        lines.append(
            f"<tr><th>{escape(heading_of(found.facts.labels, statistic, outcome))}</th>"
            f"<td>{apart.count()}</td><td>{show_ratio(apart.median())}</td>"
            f"<td>{show_ratio(apart.max())}</td><td>{int(table['beyond'].sum())}</td></tr>"
        )
    caption = "Distances from the sample, in its standard errors"
    return f"<h2>In short</h2>{scrolled(caption, [head], lines, 'summary')}"


def _table(found: Findings, spec: "Spec", key: Key, table: "pd.DataFrame") -> str:
    """Published rows beside the sample's, of one table."""
    facts = found.facts
    rounding = rounding_of(spec, facts.labels)[key]

    def number(estimate: float, se: float) -> str:
        own = rounding_of_line(rounding, se, estimate)
        error = own.show(se, size=estimate)
        in_brackets = "" if error == ABSENT else f"<span>({error})</span>"
        return f"<td>{own.show(estimate)}{in_brackets}</td>"

    cells = []
    for row in table.to_dict("records"):
        mark = '<sup title="far from the sample">!</sup>' if row["beyond"] else ""
        published = number(row["published"], row["published_se"])
        sample = number(row["sample"], row["sample_se"])
        cells.append(f"{published}{sample}<td>{show_ratio(row['difference'])}{mark}</td>")
    by = [name for name in spec.table.by if name in table]
    heading, rows = stub_of(key, table, by, facts.labels)
    head = (
        f"<tr><th>{escape(heading)}</th><th>Records</th><th>Published</th>"
        "<th>Sample</th><th>Difference in SE</th></tr>"
    )
    title = heading_of(facts.labels, *key) + of_table(spec)
    caption = f"{title}: estimates, standard errors in brackets"
    lines = body_lines(rows, table["n"], cells, span=5)
    return f"<h2>{escape(title)}</h2>{scrolled(caption, [head], lines, 'side')}"


def _shares(shares: Mapping[str, Sequence[PartShare]], found: Findings) -> str:
    """Shares of levels, at spikes and in the tails, of every variable."""
    percent = to_percent(2)
    lines = []
    for variable, parts in shares.items():
        title = found.facts.labels.title(variable)
        lines.append(f'<tr class="group"><th colspan="4">{escape(title)}</th></tr>')
        for part in parts:
            numbers = np.array([[part.synthetic], [part.sample], [part.se]])
            (apart,) = distances(*numbers)
            error = f"<span>({percent.show(part.se, size=part.sample)})</span>"
            lines.append(
                f'<tr><th class="indent">{escape(part.name)}</th>'
                f"<td>{percent.show(part.synthetic)}</td>"
                f"<td>{percent.show(part.sample)}{error}</td><td>{show_ratio(apart)}</td></tr>"
            )
    head = (
        "<tr><th>Share (%)</th><th>One synthetic dataset</th><th>Sample</th>"
        "<th>Difference in SE</th></tr>"
    )
    caption = "Shares in percent, standard errors in brackets"
    return f"<h2>Levels, spikes and tails</h2>{scrolled(caption, [head], lines, 'side')}"


def _notes(found: Findings) -> str:
    """How to read the page."""
    design = found.survey.design
    drawn = "those drawn with the dataset" if found.dataset.separate_pair else "smoothed ones"
    weights = ""
    if design.public_weight is None:
        weights = (
            " Weights: over their mean, each record counted once; the synthetic ones are "
            f"{drawn}."
        )
    amounts = any(outcome.is_amount for outcome in design.outcomes)
    notes = [
        "Sample: estimates of the confidential sample with the design, statistics and weights of "
        "the release, and Taylor-linearised standard errors.",
        "The sample has errors of its own, but a model that fits and little noise lie within about "
        f"one of its standard errors. A row beyond {FAR:g} says that the model, or the noise that "
        "epsilon asks for, has moved it; the published standard error tells the noise, not the "
        "model's misfit.",
        *([_OF_AMOUNTS] if amounts else []),
        "Shares and figures are of one synthetic dataset, which has errors of its own, about as "
        "large as those of the sample: differences of up to 4 standard errors mean little there. "
        f"Tails are outside the sample's weighted quantiles, which are taken as given.{weights}",
        "A lump of values at one point inside a density is a spike: declare it "
        "(kind = 'semicontinuous', spikes = [..]), if it is public that there is one.",
        "Nothing of this page is in the release, and nothing of it may be published.",
    ]  # fmt: skip
    return f"<h2>How to read this</h2>{bullets(notes)}"
