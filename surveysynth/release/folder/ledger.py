"""One run in the ledger of a survey, and the text of a ledger: one line a run.

The ledger is confidential: it shows when the data were used, and the hash of a small data file can
be guessed. ``ledger_file`` stores it, ``ledger_totals`` adds it up.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.settings import RECORD

LEDGER_NAME = "ledger.jsonl"
#: Of an entry of noisy statistics alone.
_OF_STRICT = ("rho", "delta", "protect", "unit_size")
#: The last field of a line: of all before it, so that no digit of an epsilon changes unseen.
_CHECK, _CHECK_DIGITS = "check", 16

Amount = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class LedgerEntry:
    """One run; epsilon is the target, None for a release without protection (risk "none").

    survey: the id that totals are for. rho: for noisy statistics, whose epsilon is that of
    (epsilon, delta); None for the asymptotic epsilon of the pseudo-posterior. These are two
    currencies and are never added to each other. protect: "record" or the public column whose units
    rho protects, of up to ``unit_size`` records.

    ``test`` marks a run with a stated seed, whose files must not be published; ``released`` is
    false for a comparison, which shows confidential estimates and releases nothing; ``date`` is
    UTC. Raises pydantic's ``ValidationError``, a ``ValueError``, for values that no run has.
    """

    survey: str
    spec: str
    spec_sha256: str
    data_sha256: str
    model: str
    epsilon: Amount | None
    m: Annotated[int, Field(ge=1)]
    test: bool
    version: str
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    released: bool = True
    mechanism: Literal["pseudo_posterior", "noisy_statistics"] = "pseudo_posterior"
    rho: Amount | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    protect: str = RECORD
    unit_size: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _agree(self) -> "LedgerEntry":
        numbers = {self.rho is not None, self.delta is not None}
        if numbers != {self.in_rho} or (self.in_rho and self.epsilon is None):
            raise ValueError("rho and delta belong to noisy statistics, which have an epsilon too")
        return self

    @property
    def in_rho(self) -> bool:
        """True if the entry counts rho."""
        return self.mechanism == "noisy_statistics"

    @property
    def counted(self) -> bool:
        """True if the entry is part of a total: neither a test nor a comparison."""
        return self.released and not self.test

    def line(self) -> str:
        """Return the entry as one line of JSON."""
        absent = () if self.in_rho else _OF_STRICT
        entry = {name: value for name, value in asdict(self).items() if name not in absent}
        return json.dumps({**entry, _CHECK: _digest(entry)}) + "\n"


def _digest(entry: dict[str, object]) -> str:
    text = json.dumps(entry, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECK_DIGITS]


def text_of(entries: Sequence[LedgerEntry]) -> str:
    """Return the ledger of these runs as text."""
    return "".join(entry.line() for entry in entries)


def parse_ledger(content: bytes, source: str) -> list[LedgerEntry]:
    """Return all entries, in their order, each run once.

    Raises ``InputError`` where a line is not an entry as it was written, or is cut off: a sum over
    a damaged ledger would be wrong. ``source`` names the ledger in messages.
    """
    if not content:
        return []
    lines = content.split(b"\n")
    found: dict[str, LedgerEntry] = {}
    for number, line in enumerate(lines[:-1], start=1):
        entry = _entry(line)
        if entry is None or found.setdefault(entry.run, entry) != entry:
            raise InputError(
                f"line {number} of the ledger {source} is not a record of a run as it was "
                "written, so what was spent so far is unknown; restore the file from a backup. "
                "Copies of it are in the confidential folders of releases."
            )
    if lines[-1]:
        raise InputError(
            f"the last line of the ledger {source} is cut off, so what was spent so far is "
            "unknown: a run was stopped while it was recorded, before it published anything, or "
            "the file is not whole. Restore it from a backup, or if you know that nothing came of "
            "that run, remove its line."
        )
    return list(found.values())


def _entry(line: bytes) -> LedgerEntry | None:
    """Return the entry of a line; None if the line is not an entry."""
    try:
        record = json.loads(line.decode("utf-8"))
        check = record.pop(_CHECK)
        return LedgerEntry(**record) if check == _digest(record) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def read_ledger(path: Path) -> list[LedgerEntry]:
    """Read all entries, oldest first; none without a file. Raises as ``parse_ledger`` does."""
    if not path.exists():
        return []
    return parse_ledger(path.read_bytes(), str(path))


def merge(*ledgers: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Merge several ledgers: each run once, in the order of time.

    Runs of the same second stay in the order in which they come.
    """
    by_run = {entry.run: entry for ledger in ledgers for entry in ledger}
    return sorted(by_run.values(), key=lambda entry: entry.date)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
