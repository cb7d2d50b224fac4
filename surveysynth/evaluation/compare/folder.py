"""From a specification file to a folder with a comparison: confidential, whole or not at all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from surveysynth._support import progress as stages
from surveysynth._support.page import Picture, fragment
from surveysynth._support.progress import shows_stages
from surveysynth.config.build import read_survey, with_file_labels
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.estimation.linearised import Rule
from surveysynth.evaluation.compare import figures as plots
from surveysynth.evaluation.compare.comparison import compare as compare_methods
from surveysynth.evaluation.compare.report import comparison_csv, facts_record, render_report
from surveysynth.release.figure_style import draw, png_bytes
from surveysynth.release.files import write_json
from surveysynth.release.folder import plan_folder, publish_folder, staged_folder
from surveysynth.release.ledger import LEDGER_NAME, LedgerSummary, summarise
from surveysynth.release.run_record import entry_of, ledger_of, with_unit_size

if TYPE_CHECKING:
    from surveysynth.evaluation.compare.comparison import Comparison

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
    comparison: "Comparison"
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
        The methods to compare, such as "laplace" or "fbs_noisy"; all unless given.
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
    return ComparisonResult(target, comparison, summarise(entries, kept.survey))


def sensitivity_of(word: str) -> Rule:
    """Return the rule that a word names; raise ``InputError`` for another word."""
    if word not in get_args(Rule):
        raise InputError(f"sensitivity must be one of {', '.join(get_args(Rule))}, got {word!r}.")
    return cast(Rule, word)


def _write(comparison: "Comparison", folder: Path, *, test: bool) -> None:
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


def make_pictures(comparison: "Comparison") -> "list[Picture]":
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
