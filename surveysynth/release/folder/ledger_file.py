"""The ledger of a survey: one file of the user, appended whole under a lock.

A run is recorded before anything of it is published. If the computer stops between the two, the
run counts as spent: nobody can know any more what was seen of it.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from surveysynth.errors import InputError, RefusedError
from surveysynth.release.folder.atomic import (
    PRIVATE_FILE_MODE,
    PRIVATE_MODE,
    flush_path,
    lock_file,
)
from surveysynth.release.folder.ledger import (
    LedgerEntry,
    LedgerSummary,
    Limit,
    merge,
    parse_ledger,
    summarise,
    text_of,
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
            return self._read()

    def summary(self) -> LedgerSummary:
        """Add up the runs on the survey."""
        return summarise(self.entries(), self.survey)

    def require_room(self, asked: LedgerEntry, copies: Sequence[LedgerEntry] = ()) -> None:
        """Raise ``RefusedError`` where a run would take the total above the limit.

        ``copies``: runs that are recorded elsewhere; those on this survey count.
        """
        self._require_room(asked, merge(self._own(copies), self.entries()))

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
            entries = self._read()
            known = {entry.run for entry in entries}
            new = [entry for entry in self._own(copies) if entry.run not in known]
            known |= {entry.run for entry in new}
            for run in runs:
                if run.run not in known:
                    self._require_room(run, [*entries, *new])
                    new.append(run)
            self._append(text_of(new).encode())
        return [*entries, *new]

    def same_data_elsewhere(self, data_sha256: str) -> int:
        """Count the user's ledgers of other ids that have runs on the very same data file."""
        others = (path for path in ledgers_folder().glob("*.jsonl") if path != self.path)
        found = 0
        for path in others:
            try:
                found += data_sha256.encode() in path.read_bytes()
            except OSError:
                continue
        return found

    def _read(self) -> list[LedgerEntry]:
        content = self.path.read_bytes() if self.path.exists() else b""
        return parse_ledger(content, str(self.path))

    def _own(self, copies: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        return [entry for entry in copies if entry.survey == self.survey]

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
            raise self._unusable(error) from None

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

    def _unusable(self, error: OSError) -> InputError:
        reason = error.strerror or str(error) or "no reason given"
        return InputError(
            f"the run could not be recorded in the ledger {self.path}: {reason}; nothing was "
            "released. Name a file that can be written with --ledger."
        )
