"""Truth: listings of the file system before and after."""

import os
import stat
import threading
from pathlib import Path

import pytest

from surveysynth.errors import InputError
from surveysynth.release import folder as bundle
from surveysynth.release.atomic import locked
from surveysynth.release.folder import plan_bundle, publish, staged
from surveysynth.release.ledger import Ledger, LedgerEntry, read_ledger


@pytest.fixture(autouse=True)
def ledgers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's ledgers, empty."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def _publish(out: Path, text: str, confidential: Path | None = None, *, overwrite=False) -> int:
    """Write a minimal release whose files hold ``text``; the ledger's number of entries."""
    plan = plan_bundle(out, confidential, overwrite=overwrite)
    with staged(plan) as staging:
        (staging.release / "privacy.json").write_text(text)
        (staging.confidential / "realised.json").write_text(text)
        entry = LedgerEntry("survey", "spec.toml", "s", "d", "fbs", 1.0, 3, False, "0.1.0")
        return len(publish(plan, staging, Ledger.of("survey"), entry))


def _tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_writes_both_trees_and_nothing_else(tmp_path: Path) -> None:
    _publish(tmp_path / "a" / "out", "1")
    assert _tree(tmp_path) == [
        "a", "a/out", "a/out/confidential", "a/out/confidential/ledger.jsonl",
        "a/out/confidential/realised.json", "a/out/release", "a/out/release/privacy.json",
    ]  # fmt: skip


@pytest.mark.parametrize("apart", [False, True])
def test_confidential_folder_is_for_the_owner_alone(tmp_path: Path, apart: bool) -> None:
    out, folder = tmp_path / "out", tmp_path / "secret" if apart else None
    for overwrite in (False, True):
        _publish(out, "1", folder, overwrite=overwrite)
        assert stat.S_IMODE((folder or out / "confidential").stat().st_mode) == 0o700
        assert stat.S_IMODE((out / "release").stat().st_mode) & 0o500 == 0o500


@pytest.mark.parametrize("error", [RuntimeError("full"), KeyboardInterrupt()])
def test_an_exception_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    plan = plan_bundle(tmp_path / "a" / "out", tmp_path / "b" / "secret", overwrite=False)

    def write_and_fail() -> None:
        with staged(plan) as staging:
            (staging.release / "privacy.json").write_text("x")
            raise error

    with pytest.raises(type(error)):
        write_and_fail()
    assert _tree(tmp_path) == []


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_rename_restores_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, error: BaseException
) -> None:
    out, secret = tmp_path / "out", tmp_path / "secret"
    _publish(out, "old", secret)
    before = {name: (tmp_path / name).is_dir() for name in _tree(tmp_path)}
    calls, rename = [], os.rename

    def fail_once(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == failing + 1:
            raise error
        rename(source, target)

    monkeypatch.setattr(bundle.os, "rename", fail_once)
    with pytest.raises((InputError, KeyboardInterrupt)):
        _publish(out, "new", secret, overwrite=True)
    assert {name: (tmp_path / name).is_dir() for name in _tree(tmp_path)} == before
    assert (out / "release" / "privacy.json").read_text() == "old"
    assert len(read_ledger(secret / "ledger.jsonl")) == 1
    # Recorded before anything is published, and nobody can tell what was seen of it.
    assert Ledger.of("survey").summary().epsilon == 2.0


def test_overwrite_swaps_keeps_the_ledger_and_earlier_results(tmp_path: Path) -> None:
    out = tmp_path / "out"
    counts = [_publish(out, text, overwrite=True) for text in ("1", "2", "3")]
    assert counts == [1, 2, 3]
    assert (out / "release" / "privacy.json").read_text() == "3"
    confidential = out / "confidential"
    assert (confidential / "realised.json").read_text() == "3"
    earlier = [path.read_text() for path in sorted((confidential / "earlier_runs").rglob("*.json"))]
    assert earlier == ["1", "2"]
    assert os.listdir(tmp_path) == ["out"]


def test_runs_with_one_confidential_folder_share_a_ledger(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    assert _publish(tmp_path / "a", "1", secret) == 1
    assert _publish(tmp_path / "b", "2", secret) == 2
    assert not (tmp_path / "a" / "confidential").exists()


def test_a_ledger_inside_the_output_moves_to_the_named_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _publish(out, "1")
    assert _publish(out, "2", tmp_path / "secret", overwrite=True) == 2
    assert (tmp_path / "secret" / "earlier_runs" / "0001" / "realised.json").read_text() == "1"


def test_overwrite_never_replaces_what_no_release_wrote(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _publish(out, "1")
    (out / "thesis.doc").touch()
    with pytest.raises(InputError, match="other files than a release"):
        plan_bundle(out, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a folder"):
        plan_bundle(tmp_path / "file", overwrite=True)


@pytest.mark.parametrize(
    ("out", "secret"),
    [("out", "out"), ("out", "out/release"), ("out", "out/x/y"), ("s/out", "s"), ("out", ".")],
)
def test_nested_targets_are_refused(tmp_path: Path, out: str, secret: str) -> None:
    with pytest.raises(InputError, match="within each other"):
        plan_bundle(tmp_path / out, tmp_path / secret, overwrite=False)


def test_a_link_into_the_output_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(InputError, match="within each other"):
        plan_bundle(tmp_path / "out", tmp_path / "link" / "release", overwrite=False)


def test_confidential_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(InputError, match="holds other files \\(1\\)"):
        plan_bundle(tmp_path / "out", tmp_path / "home", overwrite=True)


def test_a_file_in_the_way_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Not a directory"):
        plan_bundle(tmp_path / "file" / "out", overwrite=False)


def test_default_confidential_folder_may_be_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert plan_bundle(out, out / "confidential", overwrite=False).confidential_inside


def test_two_publishers_take_turns(tmp_path: Path) -> None:
    folder, inside = tmp_path / "confidential", threading.Event()

    def enter() -> None:
        with locked(folder):
            inside.set()

    other = threading.Thread(target=enter)
    with locked(folder):
        other.start()
        assert not inside.wait(0.3)
    assert inside.wait(10)
    other.join()


def test_every_file_is_on_the_disk_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    rename, fsync = os.rename, os.fsync

    def noted(handle: int) -> None:
        flushed.add(os.fstat(handle).st_ino)
        fsync(handle)

    def checked(source: Path, target: Path) -> None:
        for path in Path(source).rglob("*"):
            assert path.stat().st_ino in flushed, path
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "rename", checked)
    _publish(tmp_path / "out", "1")
    assert flushed
