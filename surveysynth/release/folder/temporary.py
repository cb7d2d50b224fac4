"""Temporary folders beside a target, and what killed runs left of them.

A folder is deleted on every way out. A process that is killed has none: what it left is deleted by
the next run with the same target. Locks tell which folders are in use; the system lets go of them
with their process.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surveysynth._support.confidential import lock_of

#: A folder that is being replaced, until the new one is in its place.
REPLACED = "-replaced"


def prefix_of(target: Path) -> str:
    """What the names of temporary folders of a target begin with."""
    return f".{target.name}.partial-"


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A new folder (mode 0700) beside a target, known to be in use; the caller deletes it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix_of(target), dir=target.parent))
        lock = lock_of(folder)
        if folder.is_dir():
            break
        if lock is not None:  # deleted by another start in the instant before it was locked
            os.close(lock)
    try:
        yield folder
    finally:
        if lock is not None:
            os.close(lock)


def remove_abandoned(target: Path) -> None:
    """Delete what killed runs left beside a target, and put back what they had moved aside."""
    for folder in sorted(target.parent.glob(f"{prefix_of(target)}*")):
        if folder.name.endswith(REPLACED) or folder.is_symlink():
            continue
        lock = lock_of(folder)
        if lock is None:
            continue
        aside = folder.with_name(f"{folder.name}{REPLACED}")
        if aside.exists() and not target.exists():
            os.rename(aside, target)
        for left in (aside, folder):
            shutil.rmtree(left, ignore_errors=True)
        os.close(lock)
