"""Call pyreadstat safely: its C library ends the whole program on some damaged files.

The same call runs in a separate process first. If that process dies, the file is damaged, and the
caller gets an error as for other damaged files.
"""

import io
import json
import subprocess
import sys
from typing import Any

#: The program of that process: it reads the bytes from a pipe and writes no core dump.
_TRIAL = """
import contextlib, io, json, sys
with contextlib.suppress(ImportError, OSError, ValueError):
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
function, sys.path[:], options = json.loads(sys.argv[1])
import pyreadstat
content = io.BytesIO(sys.stdin.buffer.read())
with contextlib.suppress(Exception):
    getattr(pyreadstat, function)(content, output_format="dict", **options)
print("alive")
"""


class DamagedFileError(Exception):
    """The process that tried to read a file died."""


def read_with(function: str, content: bytes, **options: Any) -> Any:
    """Return frame and description by a function of pyreadstat.

    Raises ``DamagedFileError`` if reading would end this process, and what pyreadstat raises.
    """
    import pyreadstat

    if not _survives(function, content, options):
        raise DamagedFileError
    return getattr(pyreadstat, function)(io.BytesIO(content), **options)


def _survives(function: str, content: bytes, options: dict[str, Any]) -> bool:
    """Return True if the call ends, with or without an error."""
    if not sys.executable:  # Python embedded in another program: no process can be started
        return True
    done = subprocess.run(
        [sys.executable, "-I", "-c", _TRIAL, json.dumps([function, sys.path, options])],
        input=content, capture_output=True, check=False,
    )  # fmt: skip
    # A process that could not start or import ends with status 1; the file may be fine.
    return done.stdout.strip() == b"alive" or done.returncode == 1
