"""The record of every run on confidential data: epsilons of reruns add up.

The ledger is confidential: it tells when the data were used, and a hash of a small data file can
be guessed. It lives in the confidential folder and outlasts ``--overwrite``.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surveysynth.errors import InputError

LEDGER_NAME = "ledger.jsonl"


@dataclass(frozen=True)
class LedgerEntry:
    """One run: epsilon is the target, None for a release without protection (risk "none").

    ``test`` marks a run with a stated seed, whose files must not be published; ``released`` is
    false for a comparison, which shows confidential estimates and releases nothing; ``date`` is
    UTC.
    """

    spec: str
    spec_sha256: str
    data_sha256: str
    model: str
    epsilon: float | None
    m: int
    test: bool
    version: str
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    released: bool = True

    def line(self) -> str:
        """The entry as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class LedgerSummary:
    """What the runs on one data file add up to; ``epsilon`` counts those that may be published."""

    epsilon: float
    runs: int
    unprotected: int
    tests: int
    other_data: int
    comparisons: int = 0

    def sentences(self) -> list[str]:
        """For the person who ran the command: public settings only, nothing realised."""
        if self.unprotected:
            total = (
                f"{_runs(self.unprotected)} on this data had no protection at all; no total "
                "epsilon holds for it"
            )
        else:
            total = (
                f"total epsilon spent on this data so far: {self.epsilon:g} in {_runs(self.runs)}"
            )
        lines = [f"Ledger: {total}."]
        if self.tests:
            lines.append(
                f"Ledger: {_runs(self.tests)} with a stated seed not counted; their files are "
                "tests and must not be published."
            )
        if self.comparisons:
            lines.append(
                f"Ledger: {_runs(self.comparisons)} for comparisons not counted; they release "
                "nothing, and nothing of them may be published."
            )
        if self.other_data:
            lines.append(
                f"Ledger: {_runs(self.other_data)} on other data files recorded too; if they hold "
                "the same people, those epsilons add up as well."
            )
        return lines


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_ledger(path: Path) -> list[LedgerEntry]:
    """All entries, oldest first; none when there is no file.

    Raises ``InputError`` when a line is not an entry: a sum over a damaged ledger would be wrong.
    """
    if not path.exists():
        return []
    entries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entries.append(_entry(json.loads(line)))
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"line {number} of the ledger {path} is not a record of a run, so the epsilon "
                "spent so far is unknown; restore the file from a backup or move it away."
            ) from None
    return entries


def _entry(record: Any) -> LedgerEntry:
    entry = LedgerEntry(**record)
    if entry.epsilon is not None:
        float(entry.epsilon)
    return entry


def merge(*ledgers: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Entries of several ledgers, each run once, in the order in which they were made."""
    by_run = {entry.run: entry for ledger in ledgers for entry in ledger}
    return sorted(by_run.values(), key=lambda entry: entry.date)


def summarise(entries: Sequence[LedgerEntry], data_sha256: str) -> LedgerSummary:
    """Add up the runs on the data file with this hash (basic composition)."""
    here = [entry for entry in entries if entry.data_sha256 == data_sha256]
    released = [entry for entry in here if entry.released]
    counted = [entry for entry in released if not entry.test]
    return LedgerSummary(
        epsilon=sum(entry.epsilon for entry in counted if entry.epsilon is not None),
        runs=len(counted),
        unprotected=sum(entry.epsilon is None for entry in counted),
        tests=len(released) - len(counted),
        other_data=len(entries) - len(here),
        comparisons=len(here) - len(released),
    )
