"""The report of a comparison: one HTML page that needs nothing else, marked confidential.

The figures are part of the page; there is no script, font or style from elsewhere.
"""

from collections.abc import Hashable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from surveysynth._support.page import Picture, bullets, figure_section, scrolled, whole_page
from surveysynth.estimation.clusters import clusters_of
from surveysynth.evaluation.baselines.laplace import REPLICATES
from surveysynth.evaluation.compare.comparison import Comparison
from surveysynth.evaluation.compare.noise import IMPOSSIBLE_FLAG
from surveysynth.evaluation.compare.pages import body_lines, heading_of, of_table, stub_of
from surveysynth.evaluation.compare.power_report import power_section
from surveysynth.evaluation.compare.tables import FAR, Key, by_table
from surveysynth.evaluation.methods import (
    CONSISTENT,
    GAUSSIAN,
    LAPLACE,
    SAMPLE,
    by_reason,
    color_of,
    label_of,
    two_currencies,
)
from surveysynth.mechanisms.noisy_statistics.statement import GUARANTEE
from surveysynth.release.facts import labels_of, rounding_of
from surveysynth.release.figure_style import MARK
from surveysynth.release.tables.labels import listed
from surveysynth.release.tables.rounding import ABSENT, rounding_of_line, show_ratio

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.spec.spec import Spec

_SUMMARY = (
    ("rmse_ratio", "RMSE"),
    ("se_ratio", "SE"),
    ("difference", "Distance"),
    ("largest", "Largest distance"),
)


def render_report(comparison: Comparison, pictures: Sequence[Picture], *, test: bool) -> str:
    """The page as text; every label is escaped."""
    title = comparison.spec.all_tables.title or "Tables of a survey"
    return whole_page(
        f"CONFIDENTIAL: what privacy costs, {title}",
        MARK,
        [
            f"<h1>What privacy costs: {escape(title)}</h1>",
            _facts(comparison, test=test),
            _summary(comparison),
            *(_of_key(comparison, *key) for key in comparison.tables),
            *(figure_section(each, f"{each.heading}. {MARK}") for each in pictures),
            power_section(comparison.powers, labels_of(comparison.spec)),
            _notes(comparison),
        ],
    )


def _facts(comparison: Comparison, *, test: bool) -> str:
    spec, design = comparison.spec, comparison.survey.design
    methods = listed([label_of(name) for name in comparison.methods if name != SAMPLE])
    lines = [
        f"{design.n:,} records. The confidential sample beside {methods}, each with a whole "
        f"epsilon of {spec.privacy.stated_epsilon:.4g} of its own{_draws(comparison)}.",
        *_left_out(comparison),
    ]
    if comparison.mixes_currencies and comparison.strict_budget is not None:
        lines.append(two_currencies(comparison.strict_budget))
    if any(not run.spec.privacy.private for run in comparison.runs.values()):
        lines.append('With risk = "none" the synthesizers have no protection at all.')
    if test:
        lines.append("A test run with a stated seed.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _left_out(comparison: Comparison) -> list[str]:
    """A sentence a reason."""
    return [
        f"{listed([label_of(name) for name in names])} {'was' if len(names) == 1 else 'were'} left "
        f"out: {why}"
        for why, names in by_reason(comparison.left_out).items()
    ]


def _draws(comparison: Comparison) -> str:
    """Numbers of draws by mechanism, in brackets."""
    words = {True: "by the pseudo-posterior", False: "by noisy statistics"}
    told = {
        run.spec.privacy.down_weights: f"m = {run.spec.privacy.m} draws where data are synthesised "
        f"{words[run.spec.privacy.down_weights]}"
        for run in comparison.runs.values()
    }
    return f" ({listed(list(told.values()))})" if told else ""


def _summary(comparison: Comparison) -> str:
    """Medians over the rows of each table: what a reader wants first."""
    frame = comparison.summary()
    parts = [
        "<h2>In short</h2><p>Medians over cells and margins, in standard errors of the sample: "
        "root mean squared error, standard error, distance from the sample's estimate; the largest "
        f"distance, and how many rows lie beyond {FAR:g} standard errors. Impossible are negative "
        "counts and the like, which noise can make.</p>"
    ]
    for (statistic, outcome), of_key in frame.groupby(
        ["statistic", "outcome"], dropna=False, sort=False
    ):
        name = outcome if isinstance(outcome, str) else None
        head = "".join(f"<th>{escape(words)}</th>" for _, words in _SUMMARY)
        lines = [f"<tr><th>Method</th>{head}<th>Beyond {FAR:g} SE</th>"
                 "<th>Impossible</th></tr>"]  # fmt: skip
        for record in of_key.to_dict("records"):
            cells = "".join(f"<td>{show_ratio(record[column])}</td>" for column, _ in _SUMMARY)
            lines.append(
                f"<tr>{_method_head(comparison, record['method'])}{cells}"
                f"<td>{_beyond(record)}</td><td>{record['impossible'] or 'none'}</td></tr>"
            )
        caption = heading_of(labels_of(comparison.spec), str(statistic), name)
        parts.append(scrolled(caption, lines[:1], lines[1:], "summary"))
    return "\n".join(parts)


def _of_key(comparison: Comparison, statistic: str, outcome: str | None) -> str:
    """One statistic of one outcome, in every table that has it."""
    by_method = comparison.tables[statistic, outcome]
    apart = {name: list(by_table(comparison.spec, frame)) for name, frame in by_method.items()}
    return "\n".join(
        _table(comparison, spec, (statistic, outcome), {
            name: tables[place][1]
            for name, tables in apart.items()
            if name == SAMPLE or tables[place][1]["estimate"].notna().any()
        })
        for place, (spec, _) in enumerate(apart[SAMPLE])
    )  # fmt: skip


def _table(
    comparison: Comparison, spec: "Spec", key: Key, by_method: "Mapping[str, pd.DataFrame]"
) -> str:
    """Estimates with standard errors of every method, side by side, of one table."""
    (statistic, outcome), labels = key, labels_of(spec)
    rounding = rounding_of(spec, labels)[key]
    sample = by_method[SAMPLE]
    head = "".join(_method_head(comparison, name) for name in by_method)
    by = [name for name in spec.table.by if name in sample]  # a contrast has one less
    heading, rows = stub_of(key, sample, by, labels)
    top = f"<tr><th>{escape(heading)}</th><th>Records</th>{head}</tr>"
    columns = {
        name: list(zip(table["estimate"], table["se"], table["flag"], strict=True))
        for name, table in by_method.items()
    }
    cells = []
    for index in range(len(sample)):
        shown = []
        for of_method in columns.values():
            estimate, se, flag = of_method[index]
            mark = '<sup title="impossible value">!</sup>' if flag == IMPOSSIBLE_FLAG else ""
            own = rounding_of_line(rounding, se, estimate)
            shown_se = own.show(se, size=estimate)
            error = f"<span>({shown_se})</span>" if shown_se != ABSENT else ""
            shown.append(f"<td>{own.show(estimate)}{mark}{error}</td>")
        cells.append("".join(shown))
    lines = body_lines(rows, sample["n"], cells, span=2 + len(by_method))
    title = heading_of(labels, statistic, outcome) + of_table(spec)
    caption = f"{title}: estimates, standard errors in brackets"
    note = ""
    if any((table["flag"] == IMPOSSIBLE_FLAG).any() for table in by_method.values()):
        note = '<p class="note">! Noise made a value that cannot be; it is shown as it came.</p>'
    return f"<h2>{escape(title)}</h2>{scrolled(caption, [top], lines, 'side')}{note}"


def _notes(comparison: Comparison) -> str:
    """How every number came about, and what must not be done with it."""
    bound = {
        "paper": "as published, which is not a bound on what a replaced record does to a mean",
        "honest": "the bound that covers the change of a mean's denominator too",
    }[comparison.sensitivity]
    several = comparison.spec.named_tables
    sets = "its" if several else f"{2 ** len(comparison.spec.table.by)}"
    tables = sum(
        bool({LAPLACE, CONSISTENT} & set(by_method)) for by_method in comparison.tables.values()
    )
    notes = [
        "Nothing here is a release. The mechanism ran on the confidential data, but nothing of it "
        "was published; the run stands in the ledger of the survey, not counted. Publishing any "
        "number of this page would give up the protection.",
        "Sample: estimates of the confidential sample with Taylor-linearised standard errors.",
    ]
    if tables:
        notes += [
            f"Laplace: noise on every estimate and on {REPLICATES} half-sample replicates, of "
            f"which the variance is made. Each of {tables} tables and each of {sets} margin sets "
            "has an equal part of epsilon, half of it for the variance. The sensitivities are read "
            f"from the confidential data ({bound}), so this noise protects nobody.",
            "Most of the error of noisy tables lies in their standard errors: every replicate has "
            "but a small part of epsilon. The distance tells how far the estimates themselves are "
            "off.",
            *(["Tables by an outcome, or of a subpopulation, have no noise."] if several else []),
            "Consistent Laplace: the same noisy numbers, made to add up by generalised least "
            "squares.",
        ]
    if GAUSSIAN in comparison.methods:
        notes.append(
            "Gaussian: weighted counts and totals of values clipped at the declared centres and "
            "spreads, with discrete Gaussian noise within the same rho as noisy statistics, made "
            "to add up. Standard errors are of sampling and noise. Nothing is read from the data "
            "but the noisy sums."
        )
    notes += [
        *_clusters(comparison),
        "Synthesizers: what a release with this specification would publish; those that the "
        "specification does not name ran with default options.",
        *_noisy(comparison),
        "RMSE: the root of the squared difference from the sample plus the squared standard error. "
        "The sample has errors of its own, so a synthesizer that is nearer to the population than "
        "the sample is not rewarded here.",
    ]
    return f"<h2>How to read this</h2>{bullets(notes)}"


def _noisy(comparison: Comparison) -> list[str]:
    """Of the mechanism of noisy statistics, where it ran."""
    runs = [run for run in comparison.runs.values() if not run.spec.privacy.down_weights]
    if not runs or comparison.strict_budget is None:
        return []
    budget, privacy = comparison.strict_budget, runs[0].spec.privacy
    return [
        f"Noisy statistics: {GUARANTEE}, rho = {budget.rho:.4g}, which is epsilon "
        f"{budget.epsilon:.4g} at delta = {budget.delta:.3g}: noise on sums that are clipped at "
        f"the declared centres and spreads, then m = {privacy.m} draws of a posterior that knows "
        f"the noise, {privacy.replicates_per_draw} datasets each, and the law of total variance. "
        "No record has a risk weight or a bound, so that these synthesizers are not in the figures "
        "of both."
    ]


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


def _beyond(record: Mapping[Hashable, Any]) -> str:
    """How many rows of a table lie far from the sample; of the sample itself nothing."""
    if record["method"] == SAMPLE:
        return ABSENT
    return f"{record['beyond']} of {record['compared']}"


def _method_head(comparison: Comparison, method: str) -> str:
    colour = color_of(method, comparison.methods)
    return f'<th><i style="background:{colour}"></i>{escape(label_of(method))}</th>'


def comparison_csv(frame: "pd.DataFrame") -> str:
    """A frame as csv: unrounded, missing numbers empty."""
    return str(frame.to_csv(index=False, lineterminator="\n"))


def facts_record(comparison: Comparison, *, test: bool) -> Mapping[str, object]:
    """comparison.json: what was compared, with which settings."""
    clusters = clusters_of(comparison.survey.design)
    budget, spec = comparison.strict_budget, comparison.spec
    mixed = comparison.mixes_currencies
    return {
        "confidential": MARK,
        "mechanism": spec.privacy.mechanism,
        "epsilon_of_each_method": spec.privacy.stated_epsilon,
        "m": spec.privacy.m,
        "methods": list(comparison.methods),
        "promises": comparison.promises,
        "two_currencies": two_currencies(budget) if budget is not None and mixed else None,
        "left_out": dict(comparison.left_out),
        "laplace_sensitivity": comparison.sensitivity,
        "linearisation": spec.linearisation,
        "primary_sampling_units": None if clusters is None else clusters.units,
        "degrees_of_freedom_by_unit": None if clusters is None else clusters.df_design,
        "design_effect": None if clusters is None else clusters.design_effect,
        "test": test,
    }
