"""End a command with an exit code and a message, never with a confidential value.

0 done; 2 bad input; 3 refused; 4 failed batches; 130 interrupted; 1 a defect. Messages go to
stderr, without a traceback, which could contain confidential values. The code depends on the work
alone, even if nobody could read the output.
"""

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from surveysynth.errors import ConfidentialWarning, PublicWarning, SurveySynthError

DEFECT, USAGE, INTERRUPTED = 1, 2, 130
DEBUG_VARIABLE = "SURVEYSYNTH_DEBUG"


class _Unfailing:
    """A stream that survives failed writes: its reader may be gone, or the disk full.

    Characters that its encoding lacks are escaped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        with suppress(AttributeError, ValueError):  # not every stream is Python's own
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, or let it go."""
        with self._or_nowhere():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the text, or discard it."""
        with self._or_nowhere():
            self._stream.flush()

    @contextmanager
    def _or_nowhere(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            # What is still in the buffer would fail again when Python ends.
            with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def _unfailing_output() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    made = [None if each is None else _Unfailing(each) for each in before]
    sys.stdout, sys.stderr = made
    try:
        yield
    finally:
        for each in made:
            if each is not None:
                each.flush()
        sys.stdout, sys.stderr = before


@_unfailing_output()
def code_of(command: Callable[[], Any]) -> int:
    """Run a command and return its exit code."""
    debug = bool(os.environ.get(DEBUG_VARIABLE))
    if debug:
        say(f"warning: {DEBUG_VARIABLE} is set; a traceback may show confidential values.")
    elif not sys.warnoptions:
        warnings.simplefilter("ignore")
        # What should be known before the budget is spent is a line on stderr.
        warnings.simplefilter("always", PublicWarning)
        warnings.simplefilter("always", ConfidentialWarning)
        warnings.showwarning = _show
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        code: Any = command()
        # Recent versions of the parser turn Ctrl-C into this code themselves.
        return _interrupted() if code == INTERRUPTED else code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return _interrupted()
    except SurveySynthError as error:
        say(str(error))
        return error.exit_code
    except Exception as error:
        return _other(error, debug=debug)


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    """Print a warning on one line."""
    say(f"{'' if issubclass(category, ConfidentialWarning) else 'WARNING: '}{message}")


def _other(error: Exception, *, debug: bool) -> int:
    """Handle usage errors of the parser, its own form of Ctrl-C, and defects."""
    # The parser's exceptions live in click or in typer, depending on its version.
    if type(error).__name__ == "Abort":
        return _interrupted()
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        if message := error.format_message():
            say(f"{message} (surveysynth --help shows the commands)")
        return USAGE
    if debug:
        traceback.print_exception(error)
    say(
        f"this is a defect in surveysynth: {type(error).__name__} at {place_of(error)}. The "
        f"message is not shown because it may contain confidential values; {DEBUG_VARIABLE}=1 "
        "shows it. Before another release, see in the output folder and by surveysynth ledger "
        "what this one did."
    )
    return DEFECT


def place_of(error: Exception) -> str:
    """Return file and line of the innermost frame of the package, relative to it."""
    package = Path(__file__).resolve().parents[1]
    frames = [
        f"{path.relative_to(package.parent)}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if (path := Path(frame.f_code.co_filename).resolve()).is_relative_to(package)
    ]
    return frames[-1] if frames else "an unknown place"


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle termination like Ctrl-C, so that it cleans up."""
    raise KeyboardInterrupt


def _interrupted() -> int:
    say("interrupted.")
    return INTERRUPTED


def say(message: str) -> None:
    """Print a message for the user on stderr."""
    print(f"surveysynth: {message}", file=sys.stderr)
