"""The record of every run on confidential data: epsilons of reruns add up.

The ledger is confidential: it tells when the data were used, and a hash of a small data file can
be guessed. It lives in the confidential folder and outlasts ``--overwrite``.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of
from surveysynth.mechanisms.noisy_statistics.settings import RECORD

LEDGER_NAME = "ledger.jsonl"
#: Of an entry of noisy statistics alone.
_OF_STRICT = ("rho", "delta", "protect", "unit_size")


@dataclass(frozen=True)
class LedgerEntry:
    """One run: epsilon is the target, None for a release without protection (risk "none").

    rho: of noisy statistics, whose epsilon is that of (epsilon, delta); None for the asymptotic
    epsilon of the pseudo-posterior. These are two currencies, and never added to each other.
    protect: "record" or the public column whose units rho protects, of up to ``unit_size`` records;
    entries of before this was written protect records.

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
    rho: float | None = None
    delta: float | None = None
    protect: str = RECORD
    unit_size: int = 1

    def line(self) -> str:
        """The entry as one line of JSON."""
        entry = {name: value for name, value in asdict(self).items() if name not in _OF_STRICT}
        if self.rho is not None:
            entry |= {name: getattr(self, name) for name in _OF_STRICT}
        return json.dumps(entry, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class LedgerSummary:
    """What the runs on one data file add up to; ``epsilon`` and ``rho`` count those that may be
    published, each of its own mechanism.

    rho is of single records: a run that protects a unit protects each of its records, at no larger
    rho, and counts in full. ``unit_rho`` is of the units of a column, by column. It is a total for
    them only if it has all ``strict_runs`` (``whole_units``): a run that protects records protects
    a unit of k of them at k^2 times its rho, with a k that only its own data tell.
    """

    epsilon: float
    runs: int
    unprotected: int
    tests: int
    other_data: int
    comparisons: int = 0
    rho: float = 0.0
    strict_runs: int = 0
    strict_epsilon: float = 0.0
    delta: float = 0.0
    unit_rho: Mapping[str, float] = field(default_factory=dict)
    whole_units: str | None = None

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
        lines = [f"Ledger: {total}."] if self.runs or not self.strict_runs else []
        if self.strict_runs:
            whom = f" for units of {self.whole_units!r}" if self.whole_units else ""
            lines.append(
                f"Ledger: total rho of noisy statistics spent on this data so far{whom}: "
                f"{self.rho:.6g} in {_runs(self.strict_runs)} (epsilon {self.strict_epsilon:.4g} "
                f"at delta {self.delta:.3g})."
            )
        if self.unit_rho and not self.whole_units:
            some = ", ".join(f"{name!r} {rho:.6g}" for name, rho in self.unit_rho.items())
            lines.append(
                "Ledger: that total is for single records. Some of these runs protect units as a "
                f"whole (rho by column: {some}); the others protect a unit of k records at k^2 "
                "times their rho only, so that there is no total for units."
            )
        if self.strict_runs and self.runs:
            lines.append(
                "Ledger: an asymptotic epsilon and rho are two currencies; there is no sum of them."
            )
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
    for value in (entry.epsilon, entry.rho, entry.delta, entry.unit_size):
        if value is not None:
            float(value)
    return entry


def merge(*ledgers: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Entries of several ledgers, each run once, in the order in which they were made."""
    by_run = {entry.run: entry for ledger in ledgers for entry in ledger}
    return sorted(by_run.values(), key=lambda entry: entry.date)


def summarise(entries: Sequence[LedgerEntry], data_sha256: str) -> LedgerSummary:
    """Add up the runs on the data file with this hash (basic composition)."""
    here = [entry for entry in entries if entry.data_sha256 == data_sha256]
    released = [entry for entry in here if entry.released]
    public = [entry for entry in released if not entry.test]
    counted = [entry for entry in public if entry.rho is None]
    strict = [entry for entry in public if entry.rho is not None]
    rho = _total_rho(strict)
    units = sorted({entry.protect for entry in strict})
    by_unit = {
        unit: _total_rho([entry for entry in strict if entry.protect == unit])
        for unit in units
        if unit != RECORD
    }
    delta = min((entry.delta for entry in strict if entry.delta is not None), default=0.0)
    return LedgerSummary(
        epsilon=sum(entry.epsilon for entry in counted if entry.epsilon is not None),
        runs=len(counted),
        unprotected=sum(entry.epsilon is None for entry in counted),
        tests=len(released) - len(public),
        other_data=len(entries) - len(here),
        comparisons=len(here) - len(released),
        rho=rho,
        strict_runs=len(strict),
        strict_epsilon=epsilon_of(rho, delta) if strict else 0.0,
        delta=delta,
        unit_rho=by_unit,
        whole_units=units[0] if by_unit and len(units) == 1 else None,
    )


def _total_rho(entries: Sequence[LedgerEntry]) -> float:
    """Rhos of one unit of protection add up, whatever one saw of the other releases."""
    return math.fsum(entry.rho for entry in entries if entry.rho is not None)
