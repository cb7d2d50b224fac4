"""Protect confidential values: objects that cannot be pickled, folders that are deleted.

A process holds a lock on its temporary folder while it uses it. The system releases the lock when
the process ends. A folder with a free lock was therefore left by a killed process, and ``sweep``
deletes it.
"""

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, SupportsIndex

from surveysynth.errors import RefusedError

PREFIX = "surveysynth-private-"
#: Processes that were just killed may hold a file for a moment more.
DELETE_TRIES, BETWEEN_TRIES = 20, 0.1


class Unpickled:
    """Base of objects with confidential values: neither pickled nor copied.

    Notebooks, caches and schedulers pickle their arguments. Only ``to_json_dict`` and the
    confidential folder keep parts of a fit; everything else can be computed again from the data.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds confidential values and cannot be pickled or copied; "
            "make it again from the survey where you need it."
        )


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a temporary folder that only this user can enter, and delete it at the end.

    Folders left by killed processes are deleted first, with a warning that names them. Raises
    ``RefusedError`` if the folder cannot be deleted.
    """
    for message in sweep():
        warnings.warn(message, UserWarning, stacklevel=3)
    folder, lock = _made()
    try:
        yield folder
    finally:
        _delete(folder)
        if lock is not None:
            os.close(lock)
        if folder.exists():
            raise RefusedError(
                f"The temporary folder {folder} holds confidential data and could not be deleted: "
                "delete it by hand. Nothing is released."
            )


def _made() -> tuple[Path, int | None]:
    """Make a new folder of mode 0700, locked if the system has locks."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = lock_of(folder)
        if folder.is_dir():
            return folder, lock
        # Another start swept it in the instant before it was locked.
        if lock is not None:
            os.close(lock)


def sweep(place: Path | None = None) -> list[str]:
    """Delete the folders in ``place`` that killed processes of this user left behind.

    ``place`` is by default the folder for temporary files. Returns a sentence for each folder: it
    was deleted, or must be deleted by hand.
    """
    messages = []
    for folder in sorted((place or Path(tempfile.gettempdir())).glob(f"{PREFIX}*")):
        if folder.is_symlink() or not folder.is_dir():
            continue
        lock = lock_of(folder)
        if lock is None:  # in use
            continue
        _delete(folder)
        os.close(lock)
        done = "could not be deleted: delete it by hand" if folder.exists() else "was deleted"
        messages.append(
            f"The temporary folder {folder} of a killed fit held confidential data; "
            f"it {done}."
        )
    return messages


def lock_of(folder: Path) -> int | None:
    """Return the lock on a folder, or None if it cannot be locked.

    None means that another process has the lock, that the folder is gone or another user's, or
    that this is Windows, which has no such lock: no folder there is known to be abandoned.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (OSError, ImportError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _delete(folder: Path) -> None:
    for _ in range(DELETE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(BETWEEN_TRIES)
