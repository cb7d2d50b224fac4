"""The commands as functions."""

from collections.abc import Callable
from pathlib import Path

from surveysynth._support.progress import shows_stages
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run as run_mechanism
from surveysynth.release.ledger import Ledger, LedgerSummary
from surveysynth.release.pipeline import ReleaseResult
from surveysynth.release.pipeline import release as release_alone

__all__ = ["ledger", "release", "run_mechanism"]

Progress = Callable[[str], None]


@shows_stages()
def release(
    spec: str | Path,
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleaseResult:
    """Run the mechanism on a survey and write its private tables and microdata.

    Parameters
    ----------
    spec
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    confidential
        The folder for realized bounds, risk weights and a copy of the ledger; by default
        ``out``/confidential.
    ledger
        The file of the survey's ledger; by default one in the user's state folder, named by the id
        of the survey ([survey] id) or else by the location of its file.
    overwrite
        Replaces ``out`` if a release wrote it.
    seed
        Makes the run repeatable, which undoes its protection: every file is then marked as a
        test and not private. Without it, random numbers come from the operating system.
    progress
        Called with the name of each stage; otherwise notebooks show a progress bar.

    Returns
    -------
    ReleaseResult
        The location of the files, the tables, and the totals of the ledger.

    Raises
    ------
    InputError
        For unusable input and existing targets.
    RefusedError
        If a release would not satisfy its statement, or would exceed the budget ([privacy] budget).
        After any exception nothing is written, except the ledger and the noisy numbers of a run of
        noisy statistics. The same specification and data continue from them at no further cost.

    Warns
    -----
    FormulaCutWarning
        If levels, cells, or interactions have too few records for coefficients of their own.
    FewRecordsWarning
        If spikes have few records even if all kinds of values are equally common.
    RecordsLeftOutWarning
        If leaving out records with missing cells moves counts and means.
    ConfidentialWarning
        Before noise is drawn: amounts outside their declared range, and weights far from the
        population size.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     released = ss.release(spec, Path(folder) / "out", seed=1)
    ...     sorted(path.name for path in (released.out / "release").iterdir() if path.is_dir())
    ['figures', 'microdata', 'tables']
    """
    return release_alone(
        spec, out, confidential=confidential, ledger=ledger, overwrite=overwrite, seed=seed,
        progress=progress,
    )  # fmt: skip


def ledger(survey_id: str, path: str | Path | None = None) -> LedgerSummary:
    """Return the total of all releases of a survey, by mechanism: confidential.

    Parameters
    ----------
    survey_id
        The id in [survey] of specifications; without one, releases are recorded under "file:" and
        the location of the data file.
    path
        The file of the ledger; by default that of the id in the user's state folder.

    Returns
    -------
    LedgerSummary
        ``epsilon`` and ``runs`` of the pseudo-posterior, ``rho``, ``strict_epsilon`` and
        ``strict_runs`` of noisy statistics; printed, its sentences.

    Raises
    ------
    InputError
        If the ledger cannot be read, or is damaged.

    Examples
    --------
    >>> import surveysynth as ss
    >>> print(ss.ledger("next year's survey"))
    Ledger: total epsilon spent on survey "next year's survey" so far: 0 in 0 runs.
    """
    return Ledger.of(survey_id, path).summary()
