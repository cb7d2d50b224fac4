"""Files and folders that are written whole or not at all, for one user alone.

Everything goes to a temporary folder beside its target first. Such a folder is deleted however the
run ends. A process that is killed cannot do that: the next run with the same target deletes what it
left. Locks show which folders are in use; the system releases them with their process.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from surveysynth.errors import InputError

#: Modes of confidential folders, and of the files in them.
PRIVATE_MODE, PRIVATE_FILE_MODE = 0o700, 0o600
#: The end of the name of a folder that is being replaced, until the new one is in its place.
REPLACED = "-replaced"
_LOCK = "lock"
#: The size of a trial file: a full disk has no room for it.
_TRIAL_BYTES = 1 << 16


def lock_file(path: Path, *, seconds: float = -1) -> FileLock:
    """Return the lock on a file of this path; for negative ``seconds`` it waits forever."""
    return FileLock(path, timeout=seconds, mode=PRIVATE_FILE_MODE, thread_local=False)


@contextmanager
def locked(target: Path, *, seconds: float = -1) -> Iterator[None]:
    """Keep two runs with the same target from losing what the other left there.

    The lock file stands beside the target, whose folder must exist, and is deleted at the end.
    Raises ``Timeout`` where another run holds it for more than ``seconds`` from 0.
    """
    path = target.with_name(f".{target.name}.lock")
    with lock_file(path, seconds=seconds):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows deletes no open file
                path.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Replace a file with one of mode 0600, flushed to disk; a folder of mode 0700 is made for it.

    A file that a killed run left half written, ``partial_name``, is replaced too.
    """
    path.parent.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    partial = path.with_name(partial_name(path.name))
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
    with open(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, path)


def partial_name(name: str) -> str:
    """Return the name of a file while it is being written."""
    return f".{name}.partial"


def make_private(folder: Path) -> None:
    """Let only this user enter a folder and read its files, those of earlier versions included."""
    for root, _, names in os.walk(folder):
        os.chmod(root, PRIVATE_MODE)
        for name in names:
            os.chmod(Path(root) / name, PRIVATE_FILE_MODE)


def flush(folder: Path) -> None:
    """Flush the files and directory entries of a folder to disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            flush_path(Path(root) / name)
        flush_path(Path(root))


def flush_path(path: Path) -> None:
    """Flush a file or the entries of a folder to disk."""
    if path.is_dir() and os.name != "posix":  # elsewhere folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def signals_delayed(*, forgotten: bool = False) -> Iterator[None]:
    """Delay Ctrl-C and termination while folders are half renamed or a ledger half written.

    With ``forgotten`` they have no effect: the work that they would stop is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    delayed = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, delayed)
    try:
        yield
        while forgotten and signal.sigpending() & delayed:
            signal.sigwait(delayed)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prefix_of(target: Path) -> str:
    """Return the prefix of the names of a target's temporary folders."""
    return f".{target.name}.partial-"


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Make a folder (mode 0700) beside a target and lock it; it is deleted at the end."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix_of(target), dir=target.parent))
        lock = lock_file(folder / _LOCK, seconds=0)
        with suppress(Timeout, FileNotFoundError):  # another start deletes it before it is locked
            lock.acquire()
            break
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(target: Path) -> None:
    """Delete what killed runs left beside a target, and put back what they had moved aside."""
    for folder in sorted(target.parent.glob(f"{prefix_of(target)}*")):
        if folder.name.endswith(REPLACED) or folder.is_symlink():
            continue
        with suppress(Timeout, OSError), lock_file(folder / _LOCK, seconds=0):
            aside = folder.with_name(f"{folder.name}{REPLACED}")
            if aside.exists() and not target.exists():
                os.rename(aside, target)
            for left in (aside, folder):
                shutil.rmtree(left, ignore_errors=True)


def try_writing(target: Path, file: str) -> None:
    """Write and delete a file of a folder as it will be written, with all its longest names.

    Permissions are not enough: a name may be too long, a file system full, read-only or of another
    kind. Raises ``InputError`` where it fails.
    """
    with refused_by_the_system(target), inside_parents(target), temporary_folder(target) as root:
        aside = root.with_name(f"{root.name}{REPLACED}")
        path = root / "out" / file
        try:
            aside.mkdir()
            path.parent.mkdir(parents=True)
            path.write_bytes(bytes(_TRIAL_BYTES))
            flush_path(path)
        finally:
            for made in (aside, root):
                shutil.rmtree(made, ignore_errors=True)


@contextmanager
def refused_by_the_system(target: Path) -> Iterator[None]:
    """Raise ``InputError`` where another run or the system refuses to write a target."""
    try:
        yield
    except Timeout:
        raise InputError(
            f"another run is writing to {target}; wait for its end, or name another folder."
        ) from None
    except OSError as error:
        raise InputError(
            f"{target} cannot be written: {error.strerror or 'no reason given'}. Name another "
            "folder."
        ) from None


@contextmanager
def inside_parents(target: Path) -> Iterator[None]:
    """Make the parents of a target; those that are still empty at the end are deleted."""
    created: list[Path] = []
    try:
        for parent in reversed(target.parents):
            if not parent.exists():
                parent.mkdir(exist_ok=True)
                created.append(parent)
        yield
    finally:
        for parent in reversed(created):
            with suppress(OSError):  # not empty: it holds what was published
                parent.rmdir()
