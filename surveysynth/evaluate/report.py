"""The report of a comparison: one HTML page that needs nothing else, marked confidential.

The figures are part of the page; there is no script, font or style from elsewhere.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from surveysynth.baselines.laplace import REPLICATES
from surveysynth.estimation.clusters import clusters_of
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluate.comparison import IMPOSSIBLE_FLAG, LAPLACE, SAMPLE, Comparison
from surveysynth.release.facts import labels_of, rounding_of
from surveysynth.release.tables.labels import listed
from surveysynth.release.tables.rounding import ABSENT
from surveysynth.release.tables.stub import stub_heading, stub_rows
from surveysynth.report.page import PAGE_CSS, Picture, figure_section
from surveysynth.report.style import MARK, colour_of, label_of

if TYPE_CHECKING:
    import pandas as pd

_SUMMARY = (
    ("rmse_ratio", "RMSE"),
    ("difference", "Distance"),
    ("se_ratio", "SE"),
)


def render_report(comparison: Comparison, pictures: Sequence[Picture], *, test: bool) -> str:
    """The page as text; every label is escaped."""
    title = comparison.spec.tables.title or "Tables of a survey"
    body = "\n".join(
        [
            f'<p class="banner">{escape(MARK)}</p>',
            "<main>",
            f"<h1>What privacy costs: {escape(title)}</h1>",
            _facts(comparison, test=test),
            _summary(comparison),
            *(_table(comparison, *key) for key in comparison.tables),
            *(figure_section(each, f"{each.heading}. {MARK}") for each in pictures),
            _notes(comparison),
            "</main>",
            f'<p class="banner end">{escape(MARK)}</p>',
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>CONFIDENTIAL: what privacy costs, {escape(title)}</title>\n"
        f"<style>{PAGE_CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _facts(comparison: Comparison, *, test: bool) -> str:
    privacy, design = comparison.spec.privacy, comparison.survey.design
    methods = listed([label_of(name) for name in comparison.methods if name != SAMPLE])
    lines = [
        f"{design.n:,} records. The confidential sample beside {methods}, each with a whole "
        f"epsilon of {privacy.epsilon:g} of its own (m = {privacy.m} draws where data are "
        "synthesised).",
        *(f"{label_of(name)} was left out: {why}" for name, why in comparison.left_out.items()),
    ]
    if privacy.risk == "none":
        lines.append('With risk = "none" the synthesizers have no protection at all.')
    if test:
        lines.append("A test run with a stated seed.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _summary(comparison: Comparison) -> str:
    """Medians over the rows of each table: what a reader wants first."""
    frame = comparison.summary()
    parts = [
        "<h2>In short</h2><p>Medians over cells and margins, in standard errors of the sample: "
        "root mean squared error, distance from the sample's estimate, standard error. Impossible "
        "are negative counts and the like, which noise can make.</p>"
    ]
    for (statistic, outcome), of_key in frame.groupby(
        ["statistic", "outcome"], dropna=False, sort=False
    ):
        name = outcome if isinstance(outcome, str) else None
        head = "".join(f"<th>{escape(words)}</th>" for _, words in _SUMMARY)
        lines = [f"<tr><th>Method</th>{head}<th>Impossible</th></tr>"]
        for record in of_key.to_dict("records"):
            cells = "".join(f"<td>{_ratio(record[column])}</td>" for column, _ in _SUMMARY)
            lines.append(
                f"<tr>{_method_head(comparison, record['method'])}{cells}"
                f"<td>{record['impossible'] or 'none'}</td></tr>"
            )
        caption = _heading(comparison, str(statistic), name)
        parts.append(_scrolled(caption, lines[:1], lines[1:], "summary"))
    return "\n".join(parts)


def _table(comparison: Comparison, statistic: str, outcome: str | None) -> str:
    """Estimates with standard errors of every method, side by side."""
    by_method = comparison.tables[statistic, outcome]
    labels = labels_of(comparison.spec)
    rounding = rounding_of(comparison.spec, labels)[statistic, outcome]
    sample = by_method[SAMPLE]
    head = "".join(_method_head(comparison, name) for name in by_method)
    heading = escape(stub_heading(comparison.survey.design.by, labels))
    top = f"<tr><th>{heading}</th><th>Records</th>{head}</tr>"
    lines, group = [], ""
    columns = {
        name: list(zip(table["estimate"], table["se"], table["flag"], strict=True))
        for name, table in by_method.items()
    }
    for index, row in enumerate(stub_rows(sample, comparison.survey.design.by, labels)):
        if row.group != group:
            group = row.group
            span = 2 + len(by_method)
            lines.append(f'<tr class="group"><th colspan="{span}">{escape(group)}</th></tr>')
        cells = []
        for of_method in columns.values():
            estimate, se, flag = of_method[index]
            mark = '<sup title="impossible value">!</sup>' if flag == IMPOSSIBLE_FLAG else ""
            shown_se = rounding.show(se, size=estimate)
            cells.append(
                f"<td>{rounding.show(estimate)}{mark}<span>({shown_se})</span></td>"
                if shown_se != ABSENT
                else f"<td>{rounding.show(estimate)}{mark}</td>"
            )
        kind = ' class="strong"' if row.strong else ""
        indent = ' class="indent"' if row.indent else ""
        n = f"{int(sample['n'].iloc[index]):,}"
        lines.append(
            f"<tr{kind}><th{indent}>{escape(row.label)}</th><td>{n}</td>{''.join(cells)}</tr>"
        )
    title = _heading(comparison, statistic, outcome)
    caption = f"{title}: estimates, standard errors in brackets"
    note = ""
    if any((table["flag"] == IMPOSSIBLE_FLAG).any() for table in by_method.values()):
        note = '<p class="note">! Noise made a value that cannot be; it is shown as it came.</p>'
    return f"<h2>{escape(title)}</h2>{_scrolled(caption, [top], lines, 'side')}{note}"


def _notes(comparison: Comparison) -> str:
    """How every number came about, and what must not be done with it."""
    bound = {
        "paper": "as published, which is not a bound on what a replaced record does to a mean",
        "honest": "the bound that covers the change of a mean's denominator too",
    }[comparison.sensitivity]
    k = len(comparison.survey.design.by)
    tables = sum(LAPLACE in by_method for by_method in comparison.tables.values())
    notes = [
        "Nothing here is a release. The mechanism ran on the confidential data, but nothing of it "
        "was published; the run stands in the ledger of this folder, not counted. Publishing any "
        "number of this page would give up the protection.",
        "Sample: estimates of the confidential sample with Taylor-linearised standard errors.",
        f"Laplace: noise on every estimate and on {REPLICATES} half-sample replicates, of which "
        f"the variance is made. Each of {tables} tables and each of {2**k} margin sets has an "
        "equal part of epsilon, half of it for the variance. The sensitivities are read from the "
        f"confidential data ({bound}), so this noise protects nobody.",
        "Most of the error of noisy tables lies in their standard errors: every replicate has but "
        "a small part of epsilon. The distance tells how far the estimates themselves are off.",
        "Consistent Laplace: the same noisy numbers, made to add up by generalised least squares.",
        *_clusters(comparison),
        "Synthesizers: what a release with this specification would publish; those that the "
        "specification does not name ran with default options.",
        "RMSE: the root of the squared difference from the sample plus the squared standard error. "
        "The sample has errors of its own, so a synthesizer that is nearer to the population than "
        "the sample is not rewarded here.",
    ]
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<h2>How to read this</h2><ul>{items}</ul>"


def _clusters(comparison: Comparison) -> list[str]:
    """Of a sample with PSUs: which variances are by PSU."""
    clusters = clusters_of(comparison.survey.design)
    if clusters is None:
        return []
    of_synthetic = (
        "synthesizers have an effect of each unit, and their standard errors are by unit too"
        if clusters.design_effect is None
        else "synthesizers have no effects of them: their standard errors are those of a one-stage "
        f"sample times the square root of the declared design effect of {clusters.design_effect:g}"
    )
    return [
        f"Clusters: the sample has {clusters.units:,} primary sampling units ({clusters.column}) "
        f"in {clusters.strata:,} strata, which leaves {clusters.df_design:,} degrees of freedom "
        "for its intervals. The sample's standard errors and the half-samples of the noisy tables "
        f"are by unit; {of_synthetic}."
    ]


def _heading(comparison: Comparison, statistic: str, outcome: str | None) -> str:
    kind = statistic_of(statistic)
    words = f"{kind.title} (%)" if kind.percent else kind.title
    if outcome is None:
        return words
    return f"{words}: {labels_of(comparison.spec).titled_with_unit(outcome)}"


def _method_head(comparison: Comparison, method: str) -> str:
    colour = colour_of(method, comparison.methods)
    return f'<th><i style="background:{colour}"></i>{escape(label_of(method))}</th>'


def _ratio(value: float) -> str:
    if not math.isfinite(value):
        return ABSENT
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _scrolled(caption: str, head: Iterable[str], body: Iterable[str], kind: str) -> str:
    """A table that scrolls sideways under its first column where the screen is narrow."""
    return (
        f'<div class="scroll"><table class="{kind}"><caption>{escape(caption)}</caption>'
        f"<thead>{''.join(head)}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def comparison_csv(frame: "pd.DataFrame") -> str:
    """comparison.csv: unrounded, missing numbers empty."""
    return str(frame.to_csv(index=False, lineterminator="\n"))


def facts_record(comparison: Comparison, *, test: bool) -> Mapping[str, object]:
    """comparison.json: what was compared, with which settings."""
    privacy, clusters = comparison.spec.privacy, clusters_of(comparison.survey.design)
    return {
        "confidential": MARK,
        "epsilon_of_each_method": privacy.epsilon,
        "m": privacy.m,
        "methods": list(comparison.methods),
        "left_out": dict(comparison.left_out),
        "laplace_sensitivity": comparison.sensitivity,
        "linearisation": comparison.spec.linearisation,
        "primary_sampling_units": None if clusters is None else clusters.units,
        "degrees_of_freedom_by_unit": None if clusters is None else clusters.df_design,
        "design_effect": None if clusters is None else clusters.design_effect,
        "test": test,
    }
