"""From a specification file to a folder with a comparison: confidential, whole or not at all.

Its report is one HTML page that needs nothing else: figures are part of it, and there is no script,
font or style from elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from surveysynth._support import progress as stages
from surveysynth._support.page import Picture, fragment
from surveysynth._support.progress import shows_stages
from surveysynth.config.build import read_survey, with_file_labels
from surveysynth.config.spec import Spec, load_spec
from surveysynth.errors import InputError
from surveysynth.estimation.linearised import Rule
from surveysynth.estimation.sample_design import clusters_of
from surveysynth.evaluation.compare import figures as plots
from surveysynth.evaluation.compare.adequacy import verdict
from surveysynth.evaluation.compare.comparison import Comparison
from surveysynth.evaluation.compare.comparison import compare as compare_methods
from surveysynth.evaluation.compare.expected_error import FAR
from surveysynth.evaluation.compare.tables import Key, by_table
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
from surveysynth.release.figure_style import MARK, draw, png_bytes
from surveysynth.release.files import write_json
from surveysynth.release.folder import plan_folder, publish_folder, staged_folder
from surveysynth.release.ledger import LEDGER_NAME, LedgerSummary, summarize
from surveysynth.release.run_record import entry_of, ledger_of, with_unit_size
from surveysynth.release.tables.labels import Labels, listed
from surveysynth.release.tables.layout import ABSENT, rounding_of_column, show_ratio

if TYPE_CHECKING:
    import pandas as pd


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
        draws=_draws(comparison),
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


def _draws(comparison: Comparison) -> str:
    """Return numbers of draws by mechanism, in words."""
    words = {True: "the pseudo-posterior", False: "noisy statistics"}
    said = {
        run.spec.privacy.down_weights: f"m = {run.spec.privacy.m} draws for data synthesized by "
        f"{words[run.spec.privacy.down_weights]}"
        for run in comparison.runs.values()
    }
    return listed(list(said.values())) if said else ""


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


def comparison_csv(frame: "pd.DataFrame") -> str:
    """Return a frame as csv: unrounded, missing numbers empty."""
    return str(frame.to_csv(index=False, lineterminator="\n"))


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
    say, rule = progress or (lambda stage: None), sensitivity_of(sensitivity)
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


def sensitivity_of(word: str) -> Rule:
    """Return the rule that a word names; raise ``InputError`` for another word."""
    if word not in get_args(Rule):
        raise InputError(f"sensitivity must be one of {', '.join(get_args(Rule))}, got {word!r}.")
    return cast("Rule", word)


def _write(comparison: Comparison, folder: Path, *, test: bool) -> None:
    pictures = make_pictures(comparison)
    (folder / FIGURES).mkdir()
    for picture in pictures:
        (folder / FIGURES / f"{picture.name}.png").write_bytes(picture.png)
    for name, frame in (
        (COMPARISON_NAME, comparison.frame()),
        (SUMMARY_NAME, comparison.summary()),
    ):
        (folder / name).write_text(comparison_csv(frame), encoding="utf-8")
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
        "are the median over cells and margins.", plots.rmse_violins,
    )]  # fmt: skip
    if any(run.found for run in comparison.runs.values()):
        made.append(picture(
            "differences", "Differences from the sample, in expected errors",
            "Each difference is divided by its expected error, the noise of the mechanism "
            "included: about 1 row in 100 lies outside the shaded part if the model is right.",
            plots.differences,
        ))  # fmt: skip
    if not comparison.runs:
        return made
    public = comparison.survey.design.public_weight is not None
    made.append(picture(
        "densities", "Distribution of the outcome",
        "Weighted by the survey weights: the confidential sample, and one synthetic dataset of "
        f"each synthesizer with {'the public' if public else 'its smoothed'} weights.",
        plots.densities,
    ))  # fmt: skip
    return made
