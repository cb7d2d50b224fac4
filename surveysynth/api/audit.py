"""Tests of what a mechanism promises, on simulated surveys."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth._support.progress import shows_parts

if TYPE_CHECKING:
    from surveysynth.evaluation.audit.folder import AuditResult
    from surveysynth.evaluation.audit.lines import Line


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
    progress: Callable[[str, int, int], None] | None = None,
    tell: "Callable[[Line], None] | None" = None,
) -> "AuditResult":
    """Replace one record of a simulated survey, run the mechanism on both, and compare.

    The ratio is what the replacement moves over what is stated: at most 1 where the mechanism
    holds what it states. Of a specification only what is public is read: its public columns and
    what it declares; outcomes and weights are simulated.

    Parameters
    ----------
    spec
        The specification file; None for the package's own examples of every model and mechanism.
    out
        The folder to write: audit.csv, audit.html and audit.json, all public.
    cases
        Names of examples, in place of all.
    n
        Records of the examples; 1,000 unless given.
    full
        Every replacement, and fresh random numbers beside common ones, in place of the worst few.
    seed
        Makes another survey and other random numbers.
    overwrite
        Replaces ``out`` if an audit wrote it.
    progress
        Called with the name of a case, and how many of how many are done; without it a notebook
        shows a bar.
    tell
        Called with the worst line of each kind of record of a case that is done.

    Returns
    -------
    AuditResult
        The table, the folder, and how many replacements ``passed`` what is stated.

    Raises
    ------
    InputError
        For unusable input, a folder that exists, and names of no example.

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
    from surveysynth.evaluation.audit.folder import write_audit

    return write_audit(
        spec,
        out,
        cases=tuple(cases),
        n=n,
        full=full,
        seed=seed,
        overwrite=overwrite,
        progress=progress,
        tell=tell,
    )
