"""The confidential files of ``adequacy``: a page that needs nothing else, and its numbers as csv.

Only the owner may read them; their whole folder is confidential.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.distributions import chi_square_tail
from surveysynth._support.page import Picture
from surveysynth.evaluation.compare.adequacy import (
    Findings,
    chosen,
    compare_with_sample,
    with_fewer_records,
)
from surveysynth.evaluation.compare.answered import answered
from surveysynth.evaluation.compare.distributions import Curve, outcome_row, weight_panel
from surveysynth.evaluation.compare.tables import FAR, Key, by_table, distances, sample_weight
from surveysynth.evaluation.methods import SAMPLE, color_of
from surveysynth.evaluation.style import (
    Cell,
    PageTable,
    Row,
    cells,
    columns,
    heading_of,
    page,
    side_table,
    table_suffix,
)
from surveysynth.release.facts import rounding_of
from surveysynth.release.figure_style import MARK, draw, new_figure, png_bytes
from surveysynth.release.folder.bundle import (
    ADEQUACY_PAGE,
    ADEQUACY_ROWS,
    ADEQUACY_SHARES,
    REALISED_NAME,
)
from surveysynth.release.result import Adequacy
from surveysynth.release.tables.rounding import ABSENT, rounding_of_column, show_ratio, to_percent
from surveysynth.release.tables.table_builder import Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from surveysynth.config.spec import Spec
    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.mechanisms.base import Released
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.survey.survey import Survey

OWNER_ONLY = 0o600
SAMPLE_LABEL, SYNTHETIC_LABEL = "Confidential sample", "Synthetic"

LEAD = (
    "Whether to publish after looking at this page is a decision that depends on the data; epsilon "
    "does not cover it. The cleanest use is for the next survey: another transform, finer groups, "
    "another list of predictors."
)

class AdequacyReport:
    """Compares a release with its sample and writes the results to the confidential folder.

    It keeps the first synthetic dataset, with a million records at most.
    """

    def __init__(self) -> None:
        self._first: SyntheticDataset | None = None
        self._problem: Exception | None = None

    def see(self, dataset: "SyntheticDataset") -> None:
        """Keep the first dataset."""
        with self._never_raising():
            if self._first is None:
                self._first = with_fewer_records(dataset)

    @contextmanager
    def _never_raising(self) -> Iterator[None]:
        """Keep an error for ``write``: none of the sample may stop a release."""
        try:
            yield
        except Exception as error:
            self._problem = self._problem or error

    def write(
        self,
        facts: "ReleaseFacts",
        survey: "Survey",
        tables: Mapping[str, Tables],
        released: "Released",
        folder: Path,
    ) -> "Adequacy":
        """Write adequacy.html and its numbers; return the counts of compared and of far rows."""
        if self._problem is not None:
            raise self._problem
        assert self._first is not None  # a release has a dataset
        found = compare_with_sample(facts, answered(survey), tables, self._first, released)
        files = {
            ADEQUACY_ROWS: _csv(found.rows_frame()),
            ADEQUACY_SHARES: _csv(found.shares_frame()),
            ADEQUACY_PAGE: render_adequacy(found, make_pictures(found)),
        }
        for name, text in files.items():
            _write_private(folder / name, text)
        return Adequacy(folder / ADEQUACY_PAGE, found.compared, found.beyond)


def _csv(frame: "pd.DataFrame") -> str:
    """Return a frame as csv: unrounded, missing numbers empty."""
    return str(frame.to_csv(index=False, lineterminator="\n"))


def _write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def make_pictures(found: Findings) -> list[Picture]:
    """Draw a figure of every outcome, and one of confidential weights."""
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
    """Draw one outcome: shares of its categories, the density of its amounts, or both."""
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
    """Draw weights over their mean: the sample's, those drawn with a dataset, and smoothed ones."""
    survey, data = found.survey, found.dataset
    weight = sample_weight(survey)[chosen(survey.design.n)]
    curves = [Curve(SAMPLE_LABEL, color_of(SAMPLE), weight, None, strong=True)]
    if data.separate_pair:
        curves.append(
            Curve("Synthetic, as drawn", color_of("fbs"), data.variance_weight, None)
        )
    curves.append(Curve("Synthetic, released", "#E69F00", data.weight,
                        None))  # fmt: skip
    figure = new_figure(7.6, 3.2)
    weight_panel(figure.subplots(), curves)
    return figure


def render_adequacy(found: Findings, pictures: Sequence[Picture]) -> str:
    """Return the page."""
    facts, design = found.facts, found.survey.design
    total = sum(len(table) for table in found.rows.values())
    expected = 0.0
    if found.clipped is not None:
        declared = facts.mechanism.described(design)
        expected = float(chi_square_tail(declared["radius"] ** 2, len(declared["centres"])))
    return page(
        f"CONFIDENTIAL: is the model adequate, {facts.title}",
        MARK,
        "adequacy.html.j2",
        title=facts.title,
        mark=MARK,
        far=FAR,
        beyond=found.beyond,
        compared=found.compared,
        not_compared=max(0, total - found.compared),
        lead=LEAD,
        n=design.n,
        clipped=found.clipped,
        expected_clipped=expected,
        realized_name=REALISED_NAME,
        warnings=facts.warnings,
        summary=_summary(found),
        tables=[
            _table(found, spec, key, part)
            for key, table in found.rows.items()
            for spec, part in by_table(facts.spec, table)
        ],
        pictures=pictures,
        shares=_shares(found),
        amounts=any(outcome.is_amount for outcome in design.outcomes),
        confidential_weights=design.public_weight is None,
        drawn_weights=found.dataset.separate_pair,
    )


def _summary(found: Findings) -> PageTable:
    """Return one line for each table."""
    rows = []
    for key, table in found.rows.items():
        apart = table["difference"].abs()
        numbers = cells(
            apart.count(), show_ratio(apart.median()), show_ratio(apart.max()),
            int(table["beyond"].sum()),
        )  # fmt: skip
        rows.append(Row([heading_of(found.facts.labels, *key)], numbers))
    heads = columns("Table", "Rows compared", "Median distance", "Largest", f"Beyond {FAR:g} SE")
    return PageTable("Distances from the sample, in its standard errors", heads, rows, "summary")


def _table(
    found: Findings, spec: "Spec", key: Key, table: "pd.DataFrame"
) -> tuple[str, PageTable]:
    """Return heading and table: published rows and the sample's, side by side."""
    labels = found.facts.labels
    numbers = (table[name].to_numpy(dtype=np.float64) for name in ("published_se", "published"))
    own = rounding_of_column(rounding_of(spec, labels)[key], *numbers)

    def number(estimate: float, se: float) -> Cell:
        error = own.show(se, size=estimate)
        return Cell(own.show(estimate), () if error == ABSENT else (f"({error})",))

    lines = [
        (
            number(row["published"], row["published_se"]),
            number(row["sample"], row["sample_se"]),
            Cell(show_ratio(row["difference"]), (), "far from the sample" * row["beyond"]),
        )
        for row in table.to_dict("records")
    ]
    by = [name for name in spec.table.by if name in table]
    title = heading_of(labels, *key) + table_suffix(spec)
    heads = columns("Published", "Sample", "Difference in SE")
    caption = f"{title}: estimates, standard errors in brackets"
    return title, side_table(caption, key, table, by, labels, heads, lines)


def _shares(found: Findings) -> PageTable:
    """Return shares of levels, at spikes and in the tails, of every variable."""
    percent = to_percent(2)
    rows = []
    for variable, parts in found.shares.items():
        rows.append(Row([found.facts.labels.title(variable)], span=4))
        for part in parts:
            numbers = np.array([[part.synthetic], [part.sample], [part.se]])
            (apart,) = distances(*numbers)
            error = f"({percent.show(part.se, size=part.sample)})"
            shown = (
                Cell(percent.show(part.synthetic)),
                Cell(percent.show(part.sample), (error,)),
                Cell(show_ratio(apart)),
            )
            rows.append(Row([part.name], shown, indent=True))
    heads = columns("Share (%)", "One synthetic dataset", "Sample", "Difference in SE")
    return PageTable("Shares in percent, standard errors in brackets", heads, rows, "side")
