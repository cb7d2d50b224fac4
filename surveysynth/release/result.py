"""The result of a release for the person who ran it: where the files are, and how good it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from surveysynth._support.fragment import fragment
from surveysynth.release.folder.bundle import INDEX_NAME, RELEASE
from surveysynth.release.folder.ledger import LedgerSummary
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.warned import Kind, Warned


@dataclass(frozen=True)
class ReleaseResult:
    """The location of the files, their tables, and the totals of the ledger (confidential).

    ``tables``: by statistic, and where there are several tables by "NAME/statistic";
    ``ledger_path``: the file of the ledger; ``ledger_hints``: spending that its totals may miss.
    Only the person who ran the release may read ``confidential_warning``, which is empty where
    there is none.
    """

    out: Path
    confidential: Path
    tables: Mapping[str, Sequence[ReleaseTable]]
    warnings: tuple[Warned, ...]
    ledger: LedgerSummary
    ledger_path: Path
    ledger_hints: tuple[str, ...] = ()
    confidential_warning: str = field(default="", repr=False)

    def closing(self, details: str) -> list[str]:
        """Return where everything is and what has been spent; ``details``: where to read more."""
        hints = len(self.ledger_hints)
        notes = f" {hints} note{'s' * (hints > 1)}." if hints else ""
        barred = any(each.kind is Kind.UNPUBLISHABLE for each in self.warnings)
        told = "do not publish" if barred else "publish this folder"
        return [
            f"Released: {self.out / RELEASE} ({told}). Start with {INDEX_NAME}.",
            f"Private:  {self.confidential} (never publish).",
            f"Budget:   {self.ledger.short()}.{notes} Details: {details}",
        ]

    def _repr_html_(self) -> str:
        """Return where everything is, for notebooks; without a confidential number."""
        return fragment(
            "Release",
            mark=[each.text for each in self.warnings],
            lines=self.closing("ledger and ledger_hints of this result."),
        )
