"""The result of a release for the person who ran it: where the files are, and how good it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from surveysynth._support.fragment import fragment
from surveysynth.release.folder.bundle import INDEX_NAME, RELEASE
from surveysynth.release.folder.ledger import LedgerSummary
from surveysynth.release.tables.table import ReleaseTable


@dataclass(frozen=True, repr=False)
class Adequacy:
    """Distances of the tables from the sample: confidential, its counts included.

    page: the file that shows it, None without one; rows: number of rows compared; beyond: number
    of rows that lie more than three standard errors of the sample from it; problem: why there is
    no page.
    """

    page: Path | None
    rows: int = 0
    beyond: int = 0
    problem: str = ""

    def sentence(self) -> str:
        """Return one line for the terminal of the person who ran the release, and nowhere else."""
        if self.page is None:
            return f"CONFIDENTIAL: no adequacy report could be made ({self.problem})."
        return (
            f"CONFIDENTIAL: {self.beyond:,} of {self.rows:,} rows lie more than 3 standard errors "
            f"from the sample: see {self.page}. Whether to publish after looking is a decision "
            "that depends on the data; epsilon does not cover it."
        )


@dataclass(frozen=True)
class ReleaseResult:
    """The location of the files, their tables, and the totals of the ledger (confidential).

    ``tables``: by statistic, and where there are several tables by "NAME/statistic";
    ``ledger_path``: the file of the ledger; ``ledger_hints``: spending that its totals may miss.
    ``adequacy``: the comparison with the sample, None where none was made. Only the person who ran
    the release may read it, and ``confidential_warning``, which is empty where there is none.
    """

    out: Path
    confidential: Path
    tables: Mapping[str, Sequence[ReleaseTable]]
    warnings: tuple[str, ...]
    ledger: LedgerSummary
    ledger_path: Path
    ledger_hints: tuple[str, ...] = ()
    adequacy: Adequacy | None = field(default=None, repr=False)
    confidential_warning: str = field(default="", repr=False)

    def closing(self, details: str) -> list[str]:
        """Return where everything is and what has been spent; ``details``: where to read more."""
        hints = len(self.ledger_hints)
        notes = f" {hints} note{'s' * (hints > 1)}." if hints else ""
        return [
            f"Released: {self.out / RELEASE} (publish this folder). Start with {INDEX_NAME}.",
            f"Private:  {self.confidential} (never publish).",
            f"Budget:   {self.ledger.short()}.{notes} Details: {details}",
        ]

    def _repr_html_(self) -> str:
        """Return where everything is, for notebooks; without a confidential number."""
        page = []
        if self.adequacy is not None:
            found = self.adequacy.page
            page = [
                f"Look at {found} (confidential)." if found else self.adequacy.sentence()
            ]
        return fragment(
            "Release",
            mark=self.warnings,
            lines=[*self.closing("ledger and ledger_hints of this result."), *page],
        )
