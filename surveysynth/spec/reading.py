"""A specification file as text."""

from pathlib import Path

from surveysynth._support.messages import nearest_file
from surveysynth.errors import InputError
from surveysynth.survey.files import SUFFIXES


def read_text(path: Path) -> str:
    """The text of a specification file; raises ``InputError`` for a file that is none."""
    if path.suffix.lower() in SUFFIXES:
        # What the parser says of other text may quote it.
        raise InputError(
            f"{path} is a data file; expected a specification (TOML), which surveysynth init "
            "writes for it."
        )
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8."
        ) from None
    except FileNotFoundError:
        near = nearest_file(path, (".toml",))
        raise InputError(
            f"there is no specification file {path}.{near} surveysynth init DATA writes one for a "
            "data file."
        ) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; expected a specification file (TOML).") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"the specification file {path} cannot be read: {reason}.") from None
