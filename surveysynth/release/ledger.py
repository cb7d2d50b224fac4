"""The ledger of a survey: one file of the user, a line per run, appended whole under a lock.

The ledger is confidential: it shows when the data were used, and the hash of a small data file can
be guessed. A run is recorded before anything of it is published. If the computer stops between the
two, the run counts as spent: nobody can know what was seen of it.
"""

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from filelock import Timeout
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from surveysynth._support.page import fragment
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of, rho_of
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.atomic import PRIVATE_FILE_MODE, PRIVATE_MODE, flush_path, lock_file

LEDGER_NAME = "ledger.jsonl"
#: Of an entry of noisy statistics alone.
_OF_STRICT = ("rho", "delta", "protect", "unit_size")
#: The last field of a line: of all before it, so that no digit of an epsilon changes unseen.
_CHECK, _CHECK_DIGITS = "check", 16

Amount = Annotated[float, Field(gt=0)]


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
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
        entry: LedgerEntry | None = None
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            record = json.loads(line.decode("utf-8"))
            if record.pop(_CHECK) == _digest(record):
                entry = LedgerEntry(**record)
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


@dataclass(frozen=True)
class LedgerSummary:
    """Totals of the runs on one survey; ``epsilon`` and ``rho`` count runs that may be published.

    Each is of its own mechanism. rho is for single records: a run that protects a unit protects
    each of its records, at no larger rho, and counts in full. ``unit_rho`` is for the units of a
    column, by column. It is a total for them only if it has all ``strict_runs`` (``whole_units``):
    a run that protects records protects a unit of k of them at k^2 times its rho, and only its own
    data show k.
    """

    survey: str
    epsilon: float
    runs: int
    unprotected: int
    tests: int
    other_surveys: int
    comparisons: int = 0
    rho: float = 0.0
    strict_runs: int = 0
    strict_epsilon: float = 0.0
    delta: float = 0.0
    unit_rho: Mapping[str, float] = field(default_factory=dict)
    whole_units: str | None = None

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        """Return the sentences, for notebooks."""
        return fragment(f"Ledger of {self.survey}", lines=self.sentences())

    def short(self) -> str:
        """Return what has been spent, in one phrase."""
        counted = self.runs - self.unprotected
        parts = [f"no total, {_runs(self.unprotected)} without protection"] * bool(self.unprotected)
        if counted or not (self.strict_runs or self.unprotected):
            parts.append(f"epsilon {self.epsilon:g}, {_runs(counted)}")
        if self.strict_runs:
            parts.append(
                f"rho {self.rho:.3g}, {_runs(self.strict_runs)} (epsilon "
                f"{self.strict_epsilon:.4g} at delta {self.delta:.3g})"
            )
        return "; ".join(parts)

    def sentences(self) -> list[str]:
        """Return sentences for the person who ran the command, without realized values."""
        lines = []
        if self.unprotected:
            lines.append(
                f"{_runs(self.unprotected)} on survey {self.survey!r} had no protection at all; no "
                "total epsilon holds for it."
            )
        elif self.runs or not self.strict_runs:
            lines.append(
                f"total epsilon spent on survey {self.survey!r} so far: {self.epsilon:g} in "
                f"{_runs(self.runs)}."
            )
        if self.strict_runs:
            whom = f" for units of {self.whole_units!r}" if self.whole_units else ""
            lines.append(
                f"total rho of noisy statistics spent on survey {self.survey!r} so far{whom}: "
                f"{self.rho:.6g} in {_runs(self.strict_runs)} (epsilon {self.strict_epsilon:.4g} "
                f"at delta {self.delta:.3g})."
            )
        if self.unit_rho and not self.whole_units:
            some = ", ".join(f"{name!r} {rho:.6g}" for name, rho in self.unit_rho.items())
            lines.append(
                "that total is for single records. Some of these runs protect units as a "
                f"whole (rho by column: {some}); the others protect a unit of k records at k^2 "
                "times their rho only, so that there is no total for units."
            )
        if self.strict_runs and self.runs:
            lines.append("an asymptotic epsilon and rho are two currencies, which cannot be added.")
        if self.tests:
            lines.append(
                f"{_runs(self.tests)} with a stated seed not counted; their files are "
                "tests and must not be published."
            )
        if self.comparisons:
            lines.append(
                f"{_runs(self.comparisons)} for comparisons not counted; they release "
                "nothing, and nothing of them may be published."
            )
        if self.other_surveys:
            lines.append(
                f"{_runs(self.other_surveys)} on surveys of other ids recorded too; if they hold "
                "the same people, what they spent adds up as well."
            )
        return [f"Ledger: {line}" for line in lines]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def summarize(entries: Sequence[LedgerEntry], survey: str) -> LedgerSummary:
    """Add up the runs on the survey with this id (basic composition, strict 1.7)."""
    here = [entry for entry in entries if entry.survey == survey]
    released = [entry for entry in here if entry.released]
    public = [entry for entry in released if not entry.test]
    counted = [entry for entry in public if not entry.in_rho]
    strict = [entry for entry in public if entry.in_rho]
    rho = float(_sum(entry.rho for entry in strict))
    units = sorted({entry.protect for entry in strict})
    by_unit = {
        unit: float(_sum(entry.rho for entry in strict if entry.protect == unit))
        for unit in units
        if unit != RECORD
    }
    delta = min((entry.delta for entry in strict if entry.delta is not None), default=0.0)
    return LedgerSummary(
        survey=survey,
        epsilon=float(_sum(entry.epsilon for entry in counted)),
        runs=len(counted),
        unprotected=sum(entry.epsilon is None for entry in counted),
        tests=len(released) - len(public),
        other_surveys=len(entries) - len(here),
        comparisons=len(here) - len(released),
        rho=rho,
        strict_runs=len(strict),
        strict_epsilon=epsilon_of(rho, delta) if strict else 0.0,
        delta=delta,
        unit_rho=by_unit,
        whole_units=units[0] if by_unit and len(units) == 1 else None,
    )


def _sum(amounts: Iterable[float | None]) -> Fraction:
    """Add decimal numbers exactly, in any order: 3 times 10.8 is 32.4."""
    return sum((Fraction(repr(amount)) for amount in amounts if amount is not None), Fraction(0))


@dataclass(frozen=True)
class Limit:
    """The limit on the total cost of all releases of a survey by one mechanism.

    ``amount`` is an epsilon. For noisy statistics it is the epsilon of all rhos at the delta of the
    release, or rho itself (``in_rho``).
    """

    amount: float
    in_rho: bool = False

    def why_not(self, entries: Sequence[LedgerEntry], asked: LedgerEntry) -> str | None:
        """Return why ``asked`` may not follow the runs on its survey; None where it may.

        Runs by another mechanism are in another currency and do not count.
        """
        before = [
            entry for entry in entries
            if entry.survey == asked.survey and entry.counted
            and entry.mechanism == asked.mechanism
        ]  # fmt: skip
        if asked.rho is not None:
            return self._strict(before, asked, asked.rho)
        if asked.epsilon is None or any(entry.epsilon is None for entry in before):
            return (
                "a release without protection (risk = 'none') is among them, and no total epsilon "
                "holds for the survey"
            )
        spent = _sum(entry.epsilon for entry in before)
        total = spent + _sum([asked.epsilon])
        if total <= _sum([self.amount]):
            return None
        return (
            f"total epsilon so far {float(spent):g} in {_runs(len(before))}, asked "
            f"{asked.epsilon:g}, together {float(total):g}, budget {self.amount:g}"
        )

    def _strict(
        self, before: Sequence[LedgerEntry], asked: LedgerEntry, rho: float
    ) -> str | None:
        assert asked.delta is not None  # of noisy statistics
        others = sum(entry.protect != asked.protect for entry in before)
        if asked.protect != RECORD and others:
            return (
                f"{_runs(others)} protected other units than those of {asked.protect!r}, so that "
                "there is no total for these"
            )
        spent = _sum(entry.rho for entry in before)
        total = spent + _sum([rho])
        most = self.amount if self.in_rho else rho_of(self.amount, asked.delta)
        if total <= _sum([most]):
            return None
        so_far = f"total rho so far {float(spent):.6g} in {_runs(len(before))}"
        if self.in_rho:
            return (
                f"{so_far}, asked {rho:.6g}, together {float(total):.6g}, budget {self.amount:.6g}"
            )
        epsilon = epsilon_of(float(spent), asked.delta) if before else 0.0
        together = epsilon_of(math.nextafter(float(total), math.inf), asked.delta)
        return (
            f"{so_far} (epsilon {epsilon:.6g} at delta {asked.delta:.3g}), asked rho {rho:.6g}, "
            f"together rho {float(total):.6g} (epsilon {together:.6g}), budget epsilon "
            f"{self.amount:g}"
        )


#: Where ledgers are, in the user's state folder.
FOLDER = "ledgers"
#: A lock is held while a few lines are read and one is written.
LOCK_SECONDS = 60.0
#: Before the id of a survey that has none of its own: that of its file.
OF_FILE = "file:"


def ledgers_folder() -> Path:
    """Return the folder of the user's ledgers, by the custom of the platform.

    On Linux it is in XDG_STATE_HOME or ~/.local/state.
    """
    from platformdirs import user_state_path

    return user_state_path("surveysynth", appauthor=False) / FOLDER


def survey_id(declared: str | None, data: Path) -> str:
    """Return the declared id, or else the place of the data file, links followed.

    The content of the file may change; the survey stays the same.
    """
    return declared or f"{OF_FILE}{os.path.normcase(data.expanduser().resolve())}"


@dataclass(frozen=True)
class Ledger:
    """The ledger of the survey with this id; ``limit``: what its releases may cost together.

    The file may hold other surveys too, if the caller named it.
    """

    path: Path
    survey: str
    limit: Limit | None = None

    @classmethod
    def of(
        cls, survey: str, path: str | Path | None = None, limit: Limit | None = None
    ) -> "Ledger":
        """Find the ledger in the given file, or in the user's own file for this survey."""
        if path is not None:
            return cls(Path(path).expanduser().resolve(), survey, limit)
        words = re.sub(r"[^A-Za-z0-9]+", "-", survey.removeprefix(OF_FILE)).strip("-")[-40:]
        digest = hashlib.sha256(survey.encode()).hexdigest()[:12]
        return cls(ledgers_folder() / f"{words}-{digest}.jsonl", survey, limit)

    def entries(self) -> list[LedgerEntry]:
        """Return all runs in the file, of other surveys too.

        Raises ``InputError`` where the file cannot be read, or is damaged.
        """
        if not self.path.exists():
            return []
        with self._locked():  # not while a line is being written
            return read_ledger(self.path)

    def summary(self) -> LedgerSummary:
        """Add up the runs on the survey."""
        return summarize(self.entries(), self.survey)

    def require_room(self, asked: LedgerEntry, copies: Sequence[LedgerEntry] = ()) -> None:
        """Raise ``RefusedError`` where a run would take the total above the limit.

        ``copies``: runs that are recorded elsewhere; those on this survey count.
        """
        own = [entry for entry in copies if entry.survey == self.survey]
        self._require_room(asked, merge(own, self.entries()))

    def require_writable(self) -> None:
        """Raise ``InputError`` where a run could not be recorded later."""
        with self._locked():  # whose file is beside the ledger
            if self.path.exists():
                self.path.open("ab").close()

    def record(
        self, runs: Sequence[LedgerEntry], copies: Sequence[LedgerEntry] = ()
    ) -> list[LedgerEntry]:
        """Append the runs that are missing, flushed to disk; return all runs in the file.

        Runs on this survey in ``copies`` that the file lacks, of another machine or user, are
        appended first. Raises ``RefusedError`` where a run would take the total above the limit,
        ``InputError`` where the file cannot be used; nothing is recorded then.
        """
        with self._locked():
            entries = read_ledger(self.path)
            known = {entry.run for entry in entries}
            own = (entry for entry in copies if entry.survey == self.survey)
            new = [entry for entry in own if entry.run not in known]
            known |= {entry.run for entry in new}
            for run in runs:
                if run.run not in known:
                    self._require_room(run, [*entries, *new])
                    new.append(run)
            self._append(text_of(new).encode())
        return [*entries, *new]

    def same_data_elsewhere(self, data_sha256: str) -> int:
        """Count the user's ledgers of other ids that have runs on the very same data file."""
        found = 0
        for path in ledgers_folder().glob("*.jsonl"):
            with suppress(OSError):
                found += path != self.path and data_sha256.encode() in path.read_bytes()
        return found

    def _require_room(self, asked: LedgerEntry, entries: Sequence[LedgerEntry]) -> None:
        if self.limit is None or not asked.counted:
            return
        if why := self.limit.why_not(entries, asked):
            raise RefusedError(
                f"The budget of survey {self.survey!r} does not allow this release: {why}. "
                f"Nothing was released. The runs are in {self.path}; ask for less, or decide on "
                "another budget in [privacy]."
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file: of two publishers, the second sees what the first has spent."""
        try:
            self.path.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
            with lock_file(Path(f"{self.path}.lock"), seconds=LOCK_SECONDS):
                yield
        except Timeout:
            raise InputError(
                f"another run has held the ledger {self.path} for {LOCK_SECONDS:g} seconds; "
                "nothing was released. Try again when it is done."
            ) from None
        except OSError as error:
            reason = error.strerror or str(error) or "no reason given"
            raise InputError(
                f"the run could not be recorded in the ledger {self.path}: {reason}; nothing was "
                "released. Name a file that can be written with --ledger."
            ) from None

    def _append(self, content: bytes) -> None:
        """Append content whole or not at all, and flush it to disk before anything else happens."""
        if not content:
            return
        fresh = not self.path.exists()
        handle = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0),
            PRIVATE_FILE_MODE,
        )  # fmt: skip
        try:
            before = os.fstat(handle).st_size
            try:
                if os.write(handle, content) != len(content):
                    raise OSError("only a part was written")
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
        if fresh:
            flush_path(self.path.parent)
