"""Write a comparison from a specification file to a confidential folder, whole or not at all.

Its report is one self-contained HTML page, with its figures and without external scripts, fonts or
styles.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from surveysynth._support import progress as stages
from surveysynth._support.page import Picture, fragment
from surveysynth._support.progress import shows_stages
from surveysynth._support.types import FloatArray
from surveysynth.config.build import read_survey, with_file_labels
from surveysynth.config.spec import Spec, load_spec
from surveysynth.errors import InputError
from surveysynth.estimation.linearised import Rule, weighted_quantiles
from surveysynth.estimation.sample_design import clusters_of
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.compare.adequacy import FAR, differences_figure, verdict
from surveysynth.evaluation.compare.comparison import Comparison
from surveysynth.evaluation.compare.comparison import compare as compare_methods
from surveysynth.evaluation.compare.tables import ROUNDING, Key, by_table, sample_weight
from surveysynth.evaluation.laplace import IMPOSSIBLE_FLAG, REPLICATES
from surveysynth.evaluation.methods import (
    LAPLACE,
    SAMPLE,
    by_reason,
    color_of,
    label_of,
    two_currencies,
)
from surveysynth.evaluation.style import (
    Cell,
    Column,
    PageTable,
    Row,
    cells,
    columns,
    heading_of,
    page,
    side_table,
    table_suffix,
)
from surveysynth.mechanisms.noisy_statistics.mechanism import GUARANTEE
from surveysynth.release.facts import rounding_of
from surveysynth.release.figure_style import (
    MARK,
    draw,
    log_ticks,
    new_figure,
    outcome_axis,
    png_bytes,
    violin,
)
from surveysynth.release.files import write_json
from surveysynth.release.folder import plan_folder, publish_folder, staged_folder
from surveysynth.release.ledger import LEDGER_NAME, LedgerSummary, summarize
from surveysynth.release.run_record import entry_of, ledger_of, with_unit_size
from surveysynth.release.tables.layout import ABSENT, Labels, listed, rounding_of_column, show_ratio
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


_BOUNDS = {
    "paper": "as published, which does not bound the effect of a replaced record on a mean",
    "honest": "the bound that also covers the change of a mean's denominator",
}


def render_report(comparison: Comparison, pictures: Sequence[Picture], *, test: bool) -> str:
    """Return the page of a comparison."""
    spec, budget = comparison.spec, comparison.strict_budget
    title = spec.all_tables.title or "Tables of a survey"
    noisy = [r.spec.privacy for r in comparison.runs.values() if not r.spec.privacy.down_weights]
    return page(
        f"CONFIDENTIAL: what privacy costs, {title}",
        MARK,
        "comparison.html.j2",
        title=title,
        mark=MARK,
        n=comparison.survey.design.n,
        methods=listed([label_of(name) for name in comparison.methods if name != SAMPLE]),
        epsilon=spec.privacy.stated_epsilon,
        draws=listed(list({
            run.spec.privacy.down_weights: f"m = {run.spec.privacy.m} draws for data synthesized "
            f"by {'the pseudo-posterior' if run.spec.privacy.down_weights else 'noisy statistics'}"
            for run in comparison.runs.values()
        }.values())),
        left_out=[
            (f"{listed([label_of(name) for name in names])} "
             f"{'was' if len(names) == 1 else 'were'}", why)
            for why, names in by_reason(comparison.left_out).items()
        ],
        two_currencies=two_currencies(budget)
        if comparison.mixes_currencies and budget is not None
        else "",
        unprotected=any(not run.spec.privacy.private for run in comparison.runs.values()),
        test=test,
        verdicts=[
            (label_of(name), verdict(run.found.compared, run.found.beyond, run.found.p_value))
            for name, run in comparison.runs.items() if run.found is not None
        ],
        summary=_summary(comparison),
        tables=[each for key in comparison.tables for each in _tables(comparison, *key)],
        pictures=pictures,
        noisy_tables=sum(LAPLACE in each for each in comparison.tables.values()),
        replicates=REPLICATES,
        margin_sets="its" if spec.named_tables else 2 ** len(spec.table.by),
        bound=_BOUNDS[comparison.sensitivity],
        several=spec.named_tables,
        clusters=clusters_of(comparison.survey.design),
        noisy=noisy[0] if noisy and budget is not None else None,
        guarantee=GUARANTEE,
        budget=budget,
    )  # fmt: skip


def _summary(comparison: Comparison) -> list[PageTable]:
    """Return medians over the rows of each table, by method."""
    heads = columns("Method", "RMSE", "SE", f"Beyond {FAR:.1f}", "Impossible")
    made = []
    for (statistic, outcome), of_key in comparison.summary().groupby(
        ["statistic", "outcome"], dropna=False, sort=False
    ):
        rows = [
            Row(
                [label_of(record["method"])],
                cells(
                    show_ratio(record["rmse_ratio"]),
                    show_ratio(record["se_ratio"]),
                    ABSENT if not record["compared"]
                    else f"{record['beyond']} of {record['compared']}",
                    record["impossible"] or "none",
                ),
                color=color_of(record["method"], comparison.methods),
            )
            for record in of_key.to_dict("records")
        ]
        name = outcome if isinstance(outcome, str) else None
        caption = heading_of(Labels(comparison.spec.labels), str(statistic), name)
        made.append(PageTable(caption, heads, rows, "summary"))
    return made


def _tables(
    comparison: Comparison, statistic: str, outcome: str | None
) -> Iterator[tuple[str, PageTable, bool]]:
    """Yield heading, table, and whether it has impossible values, of each table with this key."""
    by_method = comparison.tables[statistic, outcome]
    apart = {name: list(by_table(comparison.spec, frame)) for name, frame in by_method.items()}
    for place, (spec, _) in enumerate(apart[SAMPLE]):
        yield _table(comparison, spec, (statistic, outcome), {
            name: tables[place][1]
            for name, tables in apart.items()
            if name == SAMPLE or tables[place][1]["estimate"].notna().any()
        })  # fmt: skip


def _table(
    comparison: Comparison, spec: Spec, key: Key, by_method: "Mapping[str, pd.DataFrame]"
) -> tuple[str, PageTable, bool]:
    """Put estimates with standard errors of every method side by side."""
    labels = Labels(spec.labels)
    numbers = (by_method[SAMPLE][name].to_numpy(dtype=float) for name in ("se", "estimate"))
    own = rounding_of_column(rounding_of(spec, labels)[key], *numbers)

    def cell(estimate: float, se: float, flag: str) -> Cell:
        error = own.show(se, size=estimate)
        notes = () if error == ABSENT else (f"({error})",)
        return Cell(own.show(estimate), notes, "impossible value" * (flag == IMPOSSIBLE_FLAG))

    of_methods = [
        [cell(*each) for each in zip(table["estimate"], table["se"], table["flag"], strict=True)]
        for table in by_method.values()
    ]
    sample = by_method[SAMPLE]
    by = [name for name in spec.table.by if name in sample]  # a contrast has one less
    title = heading_of(labels, *key) + table_suffix(spec)
    heads = [Column(label_of(n), color=color_of(n, comparison.methods)) for n in by_method]
    table = side_table(
        f"{title}: estimates, standard errors in brackets", key, sample, by, labels, heads,
        zip(*of_methods, strict=True),
    )  # fmt: skip
    return title, table, any(each.warning for column in of_methods for each in column)


def facts_record(comparison: Comparison, *, test: bool) -> Mapping[str, object]:
    """Return comparison.json: what was compared, with which settings."""
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


COMPARISON_NAME, FACTS_NAME, REPORT_NAME = "comparison.csv", "comparison.json", "report.html"
SUMMARY_NAME = "summary.csv"
FIGURES = "figures"
_OWN = frozenset(
    {COMPARISON_NAME, SUMMARY_NAME, FACTS_NAME, REPORT_NAME, FIGURES, LEDGER_NAME}
)

Progress = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The location of the files, the comparison, and the totals of the ledger."""

    out: Path
    comparison: Comparison
    ledger: LedgerSummary

    def _repr_html_(self) -> str:
        """Show medians over the rows of each table in notebooks, marked CONFIDENTIAL."""
        return fragment(
            "Comparison",
            mark="CONFIDENTIAL: computed from the sample. Clear this output before the notebook "
            "goes anywhere.",
            lines=[f"Report: {self.out / REPORT_NAME}.", *self.ledger.sentences()],
            frames=[("Medians over cells and margins", self.comparison.summary())],
        )


@shows_stages(stages.COMPARISON_STAGES)
def compare(
    spec: str | Path,
    out: str | Path,
    *,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    models: Sequence[str] = (),
    methods: Sequence[str] = (),
    sensitivity: str = "paper",
    progress: Progress | None = None,
) -> ComparisonResult:
    r"""Compare sample, noise and synthesis at one epsilon. Confidential: nothing is released.

    The mechanism runs on the confidential data as for a release. The folder, of mode 0700, shows
    confidential estimates; the ledger of the survey records the runs as not counted.

    Parameters
    ----------
    spec
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    ledger
        The file of the ledger, which records the run and does not count it; as in ``release``.
    overwrite
        Replaces ``out`` if a comparison wrote it.
    seed
        Makes the run repeatable.
    models
        Synthesizers besides fbs, fbp and the specification's own.
    methods
        The methods to compare, such as "laplace" or "fbs_noisy". Default: all.
    sensitivity
        Rule for the Laplace noise of means: "paper" or "honest".
    progress
        Called with the name of each stage; otherwise a notebook shows a bar.

    Returns
    -------
    ComparisonResult
        Where report and figures are, and the tables by method (``comparison.frame()``).

    Raises
    ------
    InputError
        For unusable input and existing targets.
    RefusedError
        When no synthesizer could be compared.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     compared = ss.compare(
    ...         spec, Path(folder) / "compared", seed=1, methods=["sample", "laplace", "fbs_noisy"]
    ...     )
    >>> compared.comparison.methods
    ('sample', 'laplace', 'fbs_noisy')
    """
    say = progress or (lambda stage: None)
    if sensitivity not in (known := get_args(Rule)):
        raise InputError(f"sensitivity must be one of {', '.join(known)}, got {sensitivity!r}.")
    rule = cast("Rule", sensitivity)
    target = plan_folder(
        Path(out), overwrite=overwrite, own=_OWN, marker=COMPARISON_NAME, what="a comparison"
    )
    whole = with_file_labels(load_spec(spec))
    kept = ledger_of(whole, ledger)
    kept.entries()  # an unreadable ledger is an error before hours of work
    say(stages.READING)
    survey = read_survey(whole)
    comparison = compare_methods(
        whole, survey, models=models, methods=methods, sensitivity=rule, seed=seed, progress=say,
    )  # fmt: skip
    test = seed is not None
    with staged_folder(target, "the comparison") as folder:
        say(stages.REPORT)
        _write(comparison, folder, test=test)
        say(stages.WRITING)
        runs = [
            with_unit_size(entry_of(run.spec, test=test, released=False), run.spec, survey.design)
            for run in comparison.runs.values()
        ]
        entries = publish_folder(folder, target, kept, runs)
    return ComparisonResult(target, comparison, summarize(entries, kept.survey))


def _write(comparison: Comparison, folder: Path, *, test: bool) -> None:
    pictures = make_pictures(comparison)
    (folder / FIGURES).mkdir()
    for picture in pictures:
        (folder / FIGURES / f"{picture.name}.png").write_bytes(picture.png)
    for name, frame in (
        (COMPARISON_NAME, comparison.frame()),
        (SUMMARY_NAME, comparison.summary()),
    ):
        frame.to_csv(folder / name, index=False, lineterminator="\n", encoding="utf-8")
    write_json(facts_record(comparison, test=test), folder / FACTS_NAME)
    report = render_report(comparison, pictures, test=test)
    (folder / REPORT_NAME).write_text(report, encoding="utf-8")


def make_pictures(comparison: Comparison) -> list[Picture]:
    """Draw all figures of a report."""
    def picture(name: str, heading: str, text: str, figure: Callable[..., Any]) -> Picture:
        return Picture(name, heading, text, png_bytes(draw(figure, comparison)))

    made = [picture(
        "rmse", "Root mean squared error by method",
        "Values farther left are nearer to the confidential sample. The bar and its number "
        "are the median over cells and margins.", rmse_violins,
    )]  # fmt: skip
    if any(run.found for run in comparison.runs.values()):
        made.append(picture(
            "differences", "Differences from the sample, in expected errors",
            "Each difference is divided by its expected error, the noise of the mechanism "
            "included: about 1 row in 100 lies outside the shaded part if the model is right.",
            differences,
        ))  # fmt: skip
    if not comparison.runs:
        return made
    public = comparison.survey.design.public_weight is not None
    made.append(picture(
        "densities", "Distribution of the outcome",
        "Weighted by the survey weights: the confidential sample, and one synthetic dataset of "
        f"each synthesizer with {'the public' if public else 'its smoothed'} weights.",
        densities,
    ))  # fmt: skip
    return made


#: What lies outside these shares of a dataset on both sides is not shown.
SHOWN = (0.001, 0.999)
BINS = 40
#: With more categories than this, bars have no room for labels of shares.
_MOST_BARS = 12


@dataclass(frozen=True, eq=False)
class Curve:
    """One dataset: its name and color, and the values and weights (n,)."""

    label: str
    color: str
    values: FloatArray
    weight: FloatArray
    strong: bool = False


def outcome_row(
    figure: Any, grid: Any, row: int, outcome: Outcome, curves: Sequence[Curve], label: str
) -> None:
    """Draw an outcome into a row of a grid of three columns.

    It shows bars for categories, a histogram for amounts, or both.
    """
    if not outcome.is_amount:
        bars(figure.add_subplot(grid[row, :]), outcome, curves, f"Weighted shares: {label}")
        return
    if outcome.is_discrete:
        bars(figure.add_subplot(grid[row, 0]), outcome, curves, "Weighted shares")
    panel = figure.add_subplot(grid[row, 1:] if outcome.is_discrete else grid[row, :])
    transform = outcome.transform.axis if outcome.split is None else Transform("asinh")
    ends = histogram_panel(panel, [_at_no_spike(outcome, each, transform) for each in curves])
    if ends is not None:
        outcome_axis(panel.xaxis, transform, *ends)
    plain = transform.kind == "identity"
    panel.set_xlabel(label + ("" if plain else f"; axis as {transform.describe(outcome.name)}"))
    panel.set_title("Weighted histogram" + (" at no spike" if outcome.is_discrete else ""))


def _at_no_spike(outcome: Outcome, curve: Curve, transform: Transform) -> Curve:
    """Return transformed amounts at no spike, inside the transform's domain despite rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = transform.forward(curve.values)
    used = outcome.regular(curve.values) & np.isfinite(z)
    return Curve(curve.label, curve.color, z[used], curve.weight[used], curve.strong)


def histogram_panel(panel: Any, curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Draw histograms on one axis, with a legend in their colors.

    Returns the ends of the axis, None if no curve has values.
    """
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    legend(panel, curves)
    shown = [curve for curve in curves if curve.weight.sum() > 0]
    if not shown:
        return None
    known = np.concatenate([weighted_quantiles(c.values, c.weight, np.array(SHOWN)) for c in shown])
    margin = 0.03 * float(np.ptp(known)) or 1.0
    low, high = float(known.min()) - margin, float(known.max()) + margin
    for curve in shown:
        panel.hist(
            curve.values, BINS, range=(low, high), weights=curve.weight / curve.weight.sum(),
            histtype="step", color=curve.color, linewidth=2.6 if curve.strong else 1.7,
        )  # fmt: skip
    panel.set_xlim(low, high)
    return low, high


def legend(panel: Any, curves: Sequence[Curve]) -> None:
    """Write names of the curves, in their colors, at the right."""
    for number, curve in enumerate(curves):
        panel.text(0.985, 0.94 - 0.11 * number, curve.label, color=curve.color, ha="right",
                   transform=panel.transAxes, fontweight="bold")  # fmt: skip


def bars(panel: Any, outcome: Outcome, curves: Sequence[Curve], title: str) -> None:
    """Draw weighted shares of the categories, a bar per dataset, the first category on top."""
    places = np.arange(outcome.categories)
    height, largest = 0.8 / len(curves), 0.0
    for number, curve in enumerate(curves):
        sums = np.bincount(outcome.category(curve.values), curve.weight, minlength=places.size)
        shares = sums / curve.weight.sum()
        largest = max(largest, float(shares.max()))
        at = places - 0.4 + (number + 0.5) * height
        panel.barh(at, shares, 0.9 * height, color=curve.color)
        if outcome.categories <= _MOST_BARS:
            for place, share in zip(at, shares, strict=True):
                panel.annotate(f"{100 * share:.1f}%", (share, place), xytext=(3, 0),
                               textcoords="offset points", va="center", fontsize=8)  # fmt: skip
    panel.set_yticks(places, outcome.category_names)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.25 * largest or 1.0)
    panel.set_xticks([])
    panel.spines["bottom"].set_visible(False)
    panel.set_title(title)
    if not outcome.is_amount:
        legend(panel, curves)


def rmse_violins(comparison: Comparison) -> "Figure":
    """Draw RMSE against the sample over the rows of tables, by method, one panel per statistic."""
    keys, labels = list(comparison.tables), Labels(comparison.spec.labels)
    rows = max(len(each) for each in comparison.tables.values())
    figure = new_figure(7.6, 0.7 + len(keys) * (0.9 + 0.48 * rows))
    panels = figure.subplots(len(keys), 1, squeeze=False)[:, 0]
    for panel, key in zip(panels, keys, strict=True):
        by_method = comparison.tables[key]
        for place, (method, table) in enumerate(by_method.items()):
            values = table["rmse"].to_numpy(dtype=np.float64)
            # A public total has only a rounding error, which a log scale would show.
            least = ROUNDING * np.abs(by_method["sample"]["estimate"].to_numpy(dtype=np.float64))
            values = values[np.isfinite(values) & (values > least)]
            violin(panel, place, np.log10(values), color_of(method, comparison.methods))
        panel.set_yticks(range(len(by_method)), [label_of(name) for name in by_method])
        panel.invert_yaxis()
        panel.set_title(heading_of(labels, *key))
        outcome, unit = key[1], statistic_of(key[0]).unit
        if not unit and outcome is not None:
            unit = labels.of(outcome).unit or f"units of {outcome}"
        panel.set_xlabel(f"RMSE against the sample ({unit}), log scale; a dot is a cell or margin")
        log_ticks(panel)
    return figure


def differences(comparison: Comparison) -> "Figure":
    """Draw differences from the sample in expected errors, a panel for each synthesizer."""
    found = {name: run.found for name, run in comparison.runs.items() if run.found is not None}
    return differences_figure({label_of(name): each for name, each in found.items()})


def densities(comparison: Comparison) -> "Figure":
    """Draw weighted distributions of every outcome: confidential sample and synthesizers."""
    survey, runs = comparison.survey, comparison.runs
    outcomes, labels = survey.design.outcomes, Labels(comparison.spec.labels)
    figure = new_figure(7.6, 0.8 + 2.6 * len(outcomes))
    grid = figure.add_gridspec(len(outcomes), 3)
    for column, outcome in enumerate(outcomes):
        values = survey.confidential.outcome[:, column]
        curves = [Curve(
            "Confidential sample", color_of(SAMPLE), values, sample_weight(survey), strong=True
        )]  # fmt: skip
        for method, run in runs.items():
            data, color = run.dataset, color_of(method, comparison.methods)
            curves.append(Curve(label_of(method), color, data.outcome[:, column], data.weight))
        label = labels.titled_with_unit(outcome.name)
        outcome_row(figure, grid, column, outcome, curves, label)
    return figure
