"""What the releases of a survey have spent, for whoever publishes it."""

from pathlib import Path

from surveysynth.release.folder.ledger_file import Ledger
from surveysynth.release.folder.ledger_totals import LedgerSummary


def ledger(survey_id: str, path: str | Path | None = None) -> LedgerSummary:
    """What all releases of a survey add up to, by mechanism: confidential.

    Parameters
    ----------
    survey_id
        The id in [survey] of specifications; without one, releases are recorded under "file:" and
        the place of the data file.
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
        Where the ledger cannot be read, or is damaged.

    Examples
    --------
    >>> import surveysynth as ss
    >>> print(ss.ledger("next year's survey"))
    Ledger: total epsilon spent on survey "next year's survey" so far: 0 in 0 runs.
    """
    return Ledger.of(survey_id, path).summary()
