"""The file of a ledger: two publishers at once, full disks, other places. Truth: entries counted by
hand, processes that append at the same time, listings of the file system."""

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from surveysynth.errors import InputError, RefusedError
from surveysynth.release import ledger as ledger_file
from surveysynth.release.ledger import Ledger, Limit, ledgers_folder, survey_id, text_of
from tests.release.folder.ledger_entries import entry


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_ledgers_are_in_the_users_state_folder_for_the_user_alone(state: Path) -> None:
    first, second = Ledger.of("sdr-2026"), Ledger.of("sdr 2026")
    for ledger in (first, second):
        assert ledger.path.parent == ledgers_folder() == state / "surveysynth" / "ledgers"
        ledger.record([entry(ledger.survey)])
        assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
        assert ledger.summary().runs == 1
    assert stat.S_IMODE(ledgers_folder().stat().st_mode) == 0o700
    assert first.path != second.path
    assert first.path.name.startswith("sdr-2026-")
    assert Ledger.of("../../etc/passwd").path.parent == ledgers_folder()


def test_a_survey_without_an_id_is_known_by_the_place_of_its_file(tmp_path: Path) -> None:
    data = tmp_path / "survey.csv"
    data.write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to(data)
    place = survey_id(None, data)
    assert place == f"file:{data}"
    data.write_text("x\n1\n\n")
    assert survey_id(None, data) == survey_id(None, tmp_path / "link.csv") == place
    assert survey_id(None, tmp_path / "copy.csv") != place
    assert survey_id("sdr", data) == survey_id("sdr", tmp_path / "copy.csv") == "sdr"


def test_a_run_is_recorded_once_and_copies_count(tmp_path: Path) -> None:
    ledger = Ledger.of("s", tmp_path / "mine.jsonl", Limit(6.0))
    run, elsewhere, foreign = entry(), entry(), entry("other")
    assert ledger.record([run]) == ledger.record([run]) == [run]
    assert ledger.record([entry()], [elsewhere, foreign])[:2] == [run, elsewhere]
    assert ledger.summary().epsilon == 6.0
    with pytest.raises(RefusedError, match=r"so far 6 in 3 runs, asked 2, together 8, budget 6"):
        ledger.record([entry()])
    assert len(ledger.entries()) == 3
    fresh = Ledger.of("s", tmp_path / "new.jsonl", Limit(6.0))
    for refused in (fresh.require_room, lambda *given: fresh.record([given[0]], given[1])):
        with pytest.raises(RefusedError, match="Nothing was released"):
            refused(entry(), [run, elsewhere, *ledger.entries()])
    assert fresh.entries() == []


def test_tests_and_comparisons_ask_for_no_room(tmp_path: Path) -> None:
    ledger = Ledger.of("s", tmp_path / "mine.jsonl", Limit(1.0))
    ledger.record([entry(test=True)])
    with pytest.raises(RefusedError):
        ledger.record([entry()])


PUBLISH = """
import sys, time
from pathlib import Path
from surveysynth.errors import RefusedError
from surveysynth.release.ledger import Ledger, LedgerEntry, Limit

free, limited, ready, go = map(Path, sys.argv[1:])
ready.touch()
while not go.exists():
    time.sleep(0.001)
made = 0
for ledger in [Ledger.of("s", free)] * 10 + [Ledger.of("s", limited, Limit(30.0))] * 10:
    try:
        ledger.record([LedgerEntry("s", "x", "a", "d", "fbs", 2.0, 3, False, "0.1.0")])
        made += 1
    except RefusedError:
        pass
print(made)
"""


def test_publishers_at_once_are_all_counted_and_within_the_budget(tmp_path: Path) -> None:
    go, ready = tmp_path / "go", [tmp_path / f"ready{each}" for each in range(2)]
    free, limited = tmp_path / "free.jsonl", tmp_path / "limited.jsonl"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISH, free, limited, path, go],
            stdout=subprocess.PIPE, text=True,
        )
        for path in ready
    ]  # fmt: skip
    while not all(path.exists() for path in ready):
        assert all(each.poll() is None for each in running)
        time.sleep(0.01)
    go.touch()
    made = [int(each.communicate(timeout=120)[0]) for each in running]
    assert sum(made) == 2 * 10 + 15
    assert Ledger.of("s", free).summary().runs == 20
    assert Ledger.of("s", limited).summary().epsilon == 30.0


def test_without_a_lock_budgets_are_overrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lock is for: a publisher that reads between another's look and its entry."""
    ledger = Ledger.of("s", tmp_path / "ledger.jsonl", Limit(2.0))
    append = Ledger._append

    def later(self: Ledger, content: bytes) -> None:
        monkeypatch.setattr(Ledger, "_append", append)
        monkeypatch.setattr(ledger_file, "LOCK_SECONDS", 0.2)
        with pytest.raises(InputError, match="another run has held the ledger"):
            ledger.record([entry()])
        append(self, content)

    monkeypatch.setattr(Ledger, "_append", later)
    ledger.record([entry()])
    with pytest.raises(RefusedError):
        ledger.record([entry()])


def test_a_lock_of_another_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "LOCK_SECONDS", 0.1)
    ledger = Ledger.of("s", tmp_path / "ledger.jsonl")
    with (
        FileLock(f"{ledger.path}.lock"),
        pytest.raises(InputError, match="another run has held the ledger"),
    ):
        ledger.record([entry()])


def fsync_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger_file.os, "fsync", full)


def write_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(
        ledger_file.os, "write",
        # The lock writes nothing of this length.
        lambda handle, content: write(handle, content[:20] if len(content) > 99 else content),
    )  # fmt: skip


@pytest.mark.parametrize("broken", [fsync_fails, write_stops])
def test_a_run_is_recorded_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any], None]
) -> None:
    ledger = Ledger.of("s", tmp_path / "ledger.jsonl")
    ledger.record([entry()])
    before = ledger.path.read_bytes()
    broken(monkeypatch)
    with pytest.raises(InputError, match=r"could not be recorded.*nothing was released"):
        ledger.record([entry()])
    assert ledger.path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "ledger.jsonl", tmp_path):
        with pytest.raises(InputError, match=r"could not be recorded.*with --ledger"):
            Ledger.of("s", path).record([entry()])


def test_a_damaged_ledger_stops_whoever_would_add_to_it(tmp_path: Path) -> None:
    ledger = Ledger.of("s", tmp_path / "ledger.jsonl")
    ledger.path.write_text(text_of([entry(), entry()])[:-30])
    before = ledger.path.read_bytes()
    for use in (ledger.summary, lambda: ledger.require_room(entry()),
                lambda: ledger.record([entry()])):  # fmt: skip
        with pytest.raises(InputError, match=r"last line of the ledger .* is cut off"):
            use()
    assert ledger.path.read_bytes() == before


def test_the_same_data_under_another_id_are_seen() -> None:
    first, second = Ledger.of("first"), Ledger.of("second")
    assert first.same_data_elsewhere("d") == 0
    second.record([entry("second")])
    assert first.same_data_elsewhere("d") == 1
    assert second.same_data_elsewhere("d") == 0
    assert first.same_data_elsewhere("e" * 64) == 0
