"""Locks on folders, which end with the process that holds them however that ends."""

import os
from pathlib import Path


def lock_of(folder: Path) -> int | None:
    """The lock on a folder; None where another process has it, where it is gone or another's, and
    on Windows, which has no such lock: nothing is known to be abandoned there."""
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
