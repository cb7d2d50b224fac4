"""What a release tells whoever ran it: how far it lies from the sample, and where everything is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surveysynth._support.fragment import fragment
from surveysynth.release.folder.bundle import RELEASE


@dataclass(frozen=True, repr=False)
class Adequacy:
    """How far the tables lie from the sample: confidential, its counts included.

    page: the file that shows it; rows: rows that are compared; beyond: those more than three
    standard errors of the sample from it; problem: why there is no page, for the one who ran it.
    """

    page: Path | None
    rows: int = 0
    beyond: int = 0
    problem: str = ""

    def sentence(self) -> str:
        """One line for the terminal of whoever ran the release, and for no other place."""
        if self.page is None:
            return f"CONFIDENTIAL: no adequacy report could be made ({self.problem})."
        return (
            f"CONFIDENTIAL: {self.beyond:,} of {self.rows:,} rows lie more than 3 standard errors "
            f"from the sample: see {self.page}. Whether to publish after looking is a decision "
            "that depends on the data; epsilon does not cover it."
        )


def result_fragment(
    out: Path,
    confidential: Path,
    adequacy: Adequacy | None,
    *,
    warnings: Sequence[str],
    ledger: Sequence[str],
) -> str:
    """Where everything is, for notebooks; without a number that is confidential."""
    page = []
    if adequacy is not None:
        failed = adequacy.page is None
        page = [adequacy.sentence() if failed else f"Look at {adequacy.page} (confidential)."]
    return fragment(
        "Release",
        mark=warnings,
        lines=[
            f"Published: {out / RELEASE}.",
            f"Confidential: {confidential}; keep it from what is published.",
            *page,
            *ledger,
        ],
    )
