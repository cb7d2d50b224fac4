"""``surveysynth audit``: tests of a mechanism's guarantee, written to a folder.

All surveys are simulated: the package's own examples, or surveys from the public inputs of a
specification. Nothing confidential is read, and everything written may be published.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth._support.fragment import fragment
from surveysynth._support.progress import shows_parts
from surveysynth.errors import InputError
from surveysynth.evaluation.audit.calibrated import calibration_lines
from surveysynth.evaluation.audit.cases import CALIBRATED, EXAMPLES, specified_case
from surveysynth.evaluation.audit.lines import Case, Line, frame_of, head_of, worst
from surveysynth.evaluation.audit.neighbours import changes_for
from surveysynth.evaluation.audit.noise import noise_lines
from surveysynth.evaluation.audit.posterior import posterior_lines
from surveysynth.evaluation.audit.report import render_page
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.pseudo_posterior.settings import own_settings
from surveysynth.release.documents.privacy_file import library_versions
from surveysynth.release.folder.bundle import plan_folder, staged_folder, swap_in
from surveysynth.spec.spec import load_spec

if TYPE_CHECKING:
    import pandas as pd

def lines_of(case: Case, seed: int, *, full: bool = False) -> Iterator[Line]:
    """Test a case and yield its lines.

    ``full``: every change, and fresh random numbers beside common ones; noisy statistics, which
    need no fit, are always tested so.
    """
    settings, design = case.mechanism.settings, case.survey.design
    if case.calibrated:
        yield from calibration_lines(case, changes_for(design), seed)
        return
    if isinstance(settings, NoisySettings):
        yield from noise_lines(case, changes_for(design), seed)
        return
    own = own_settings(settings)
    if not own.private:
        yield replace(head_of(case), reason="risk = 'none' claims nothing: there is no test of it")
        return
    yield from posterior_lines(case, changes_for(design, few=not full), seed, fresh=full)


def examples(
    n: int, seed: int, names: Sequence[str] = ()
) -> Iterator[tuple[str, Case | InputError]]:
    """Yield the package's own cases with n records by name, or the error for that size."""
    every = (*EXAMPLES, *CALIBRATED)
    unknown = sorted(set(names) - {each.name for each in every})
    if unknown:
        known = "; ".join(each.name for each in every)
        raise InputError(f"There is no audit case {unknown[0]!r}; the cases are: {known}.")
    for example in every:
        if names and example.name not in names:
            continue
        try:
            yield example.name, example.case(n, seed)
        except InputError as error:
            yield example.name, error


TABLE_NAME, REPORT_NAME, FACTS_NAME = "audit.csv", "audit.html", "audit.json"
_FILES = (TABLE_NAME, REPORT_NAME, FACTS_NAME)
DEFAULT_N = 1000

Progress = Callable[[str, int, int], None]
"""Called with a line, and how many of how many cases are done."""


@dataclass(frozen=True)
class AuditResult:
    """Results of an audit.

    Attributes
    ----------
    out
        The folder: audit.csv, audit.html, audit.json.
    table
        A row a replacement: ``case``, ``mechanism``, ``model``, ``n``, ``epsilon``, ``record``,
        ``change``, ``random_numbers``, ``ratio``, ``jointly``, ``beyond``, ``verdict``, ``reason``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = ss.audit(out=Path(folder) / "audit", cases=["fbs, noisy statistics"], n=200)
    >>> found.passed, found.table["ratio"].max() <= 1
    (0, True)
    """

    out: Path
    table: "pd.DataFrame"

    def _repr_html_(self) -> str:
        """Show the largest ratio of each case in notebooks."""
        largest = self.table.groupby("case", sort=False, as_index=False).agg(
            n=("n", "first"), epsilon=("epsilon", "first"), ratio=("ratio", "max"),
            replacements=("ratio", "size"),
        )  # fmt: skip
        return fragment(
            "Audit of simulated surveys",
            lines=[
                f"Replacements that moved more than stated: {self.passed:,}.",
                f"Report: {self.out / REPORT_NAME}.",
            ],
            frames=[("What a replaced record moves, relative to the stated bound", largest)],
        )

    @property
    def passed(self) -> int:
        """Replacements that moved more than stated, in settings that were not refused."""
        return int((self.table["verdict"] == "passed").sum())

    @property
    def missed(self) -> int:
        """Planted violations that the test did not find: it then says nothing."""
        return int((self.table["verdict"] == "missed").sum())


@shows_parts
def audit(
    spec: str | Path | None = None,
    *,
    out: str | Path,
    cases: Sequence[str] = (),
    n: int | None = None,
    full: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
    tell: Callable[[Line], None] | None = None,
) -> AuditResult:
    """Replace one record of a simulated survey, run the mechanism on both, and compare.

    The ratio is what the replacement moves over the stated bound: at most 1 if the mechanism keeps
    it. Of a specification only public inputs are read: its public columns and its declarations;
    outcomes and weights are simulated.

    Parameters
    ----------
    spec
        The specification file; None for the package's own examples of every model and mechanism.
    out
        The folder to write: audit.csv, audit.html and audit.json, all public.
    cases
        Names of examples to test; all unless given.
    n
        Records of the examples; 1,000 unless given.
    full
        Test every replacement, and fresh random numbers beside common ones, not the worst few.
    seed
        Makes another survey and other random numbers.
    overwrite
        Replaces ``out`` if an audit wrote it.
    progress
        Called with the name of a case, and how many of how many are done; otherwise a notebook
        shows a bar.
    tell
        Called with the worst line of each kind of record of a case that is done.

    Returns
    -------
    AuditResult
        The table, the folder, and how many replacements ``passed`` the stated bound.

    Raises
    ------
    InputError
        For unusable input, an existing folder, and unknown examples.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = ss.audit(out=Path(folder) / "audit", cases=["normal, noisy statistics"], n=200)
    >>> found.passed
    0
    """
    target = plan_folder(
        Path(out), overwrite=overwrite, own=_FILES, marker=FACTS_NAME, what="an audit"
    )
    say = progress or (lambda line, done, total: None)
    chosen = tuple(cases)
    given = _specified(spec, seed, chosen, n) if spec is not None else _own(chosen, n, seed)
    lines: list[Line] = []
    for done, (name, case) in enumerate(given):
        say(name, done, len(given))
        own = list(_lines(name, case, seed, full=full, n=n or DEFAULT_N))
        for line in worst(own) if tell is not None else ():
            assert tell is not None
            tell(line)
        lines += own
    say("writing", len(given), len(given))
    table = frame_of(lines)
    with staged_folder(target, "an audit") as folder:
        table.to_csv(folder / TABLE_NAME, index=False, lineterminator="\n")
        facts = {
            "seed": seed, "date": datetime.now(UTC).date().isoformat(), "full": full,
            "specification": None if spec is None else Path(spec).name,
            "versions": library_versions(),
            "verdicts": {k: int(v) for k, v in table["verdict"].value_counts().items()},
            "lines": json.loads(table.to_json(orient="records")),
        }  # fmt: skip
        (folder / FACTS_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (folder / REPORT_NAME).write_text(render_page(lines, facts), encoding="utf-8")
        swap_in(folder, target)
    return AuditResult(target, table)


Given = list[tuple[str, Case | InputError]]


def _specified(
    spec: str | Path, seed: int, cases: tuple[str, ...], n: int | None
) -> Given:
    """Return the case of a specification, and the same with weights that are calibrated again."""
    if cases or n is not None:
        raise InputError(
            "--case and --n select among the package's own examples; a specification has its own "
            "records and model. Leave them out, or the specification."
        )
    case = specified_case(load_spec(spec), seed)
    found: Given = [(case.name, case)]
    noisy = isinstance(case.mechanism.settings, NoisySettings)
    if noisy and case.survey.design.weight_name is not None:
        again = replace(case, name=f"{case.name}, calibrated again", calibrated=True)
        found.append((again.name, again))
    return found


def _own(cases: tuple[str, ...], n: int | None, seed: int) -> Given:
    return list(examples(DEFAULT_N if n is None else n, seed, cases))


def _lines(
    name: str, case: Case | InputError, seed: int, *, full: bool, n: int
) -> Iterator[Line]:
    if isinstance(case, InputError):
        yield Line(name, "", "", n, 0.0, "", "", verdict="refused", reason=str(case))
    else:
        yield from lines_of(case, seed, full=full)
