"""Files and folders for one user alone, and through to the disk."""

import os
from pathlib import Path

#: Of confidential folders, and of the files in them.
PRIVATE_MODE, PRIVATE_FILE_MODE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Only this user may enter a folder and read what is in it, that of earlier versions too: a
    copy of it elsewhere keeps the modes."""
    for root, _, names in os.walk(folder):
        os.chmod(root, PRIVATE_MODE)
        for name in names:
            os.chmod(Path(root) / name, PRIVATE_FILE_MODE)


def flush(folder: Path) -> None:
    """Write files and directory entries through to the disk."""
    for root, _, names in os.walk(folder):
        folders = [Path(root)] if os.name == "posix" else []  # elsewhere folders cannot be opened
        for path in [*(Path(root) / name for name in names), *folders]:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
