"""Write the specification file of choices, whole or not at all."""

import os
from dataclasses import dataclass
from pathlib import Path

from surveysynth._support.page import fragment
from surveysynth.config.draft.choices import Choices, check_choices
from surveysynth.config.draft.columns import DataFile
from surveysynth.config.draft.text import draft_text
from surveysynth.config.spec import parse_spec
from surveysynth.errors import InputError

SPEC_NAME = "spec.toml"


@dataclass(frozen=True)
class Drafted:
    """A written specification.

    Attributes
    ----------
    path
        The file.
    open
        Keys that are still to be filled in; ``surveysynth check`` names them too.
    read
        Public columns whose values were read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from surveysynth.config.draft.write import Drafted
    >>> Drafted(Path("spec.toml"), ("outcomes.salary.kind",), ("field",)).open
    ('outcomes.salary.kind',)
    """

    path: Path
    open: tuple[str, ...]
    read: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Return the open keys, for notebooks."""
        lines = [f"Written: {self.path}."]
        if self.open:
            lines.append(f'Still to be filled in, marked "?": {", ".join(self.open)}.')
        return fragment("Specification", lines=lines)


def check_free(out: Path, *, overwrite: bool) -> None:
    """Raise ``InputError`` for a file that exists or does not end in .toml."""
    if out.suffix.lower() != ".toml":
        raise InputError(f"{out}: expected a file name that ends in .toml; name another file.")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists; name another with --out or replace it with --overwrite.")


def write_draft(data: DataFile, choices: Choices, out: Path, *, overwrite: bool) -> Drafted:
    """Write the specification of ``choices`` and report the open keys.

    Reads the by columns and no others. Raises ``InputError`` for choices that do not belong
    together and for a file that exists or cannot be written.
    """
    check_free(out, overwrite=overwrite)
    check_choices(choices, data.names)
    by = choices.by or ()
    levels = {name: data.levels(name) for name in by}
    # The name of a link stays; folders are resolved, since a link has another folder above it.
    folder = os.path.relpath(data.path.parent.resolve(), out.parent.resolve())
    path = (Path(folder) / data.path.name).as_posix()
    draft = draft_text(choices, path, data.names, levels, out.name)
    if not draft.open:
        parse_spec(draft.text, out)
    try:
        _write(out, draft.text.encode("utf-8"), overwrite=overwrite)
    except FileExistsError:
        raise InputError(f"{out} exists; replace it with --overwrite.") from None
    except UnicodeEncodeError:
        raise InputError("a constant or level is not UTF-8 text; correct it.") from None
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}.") from None
    return Drafted(out, draft.open, by)


def _write(out: Path, content: bytes, *, overwrite: bool) -> None:
    if overwrite:
        staged = out.with_name(f".{out.name}.{os.getpid()}")
        try:
            staged.write_bytes(content)
            staged.replace(out)
        finally:
            staged.unlink(missing_ok=True)
        return
    with out.open("xb") as file:  # fails if the file exists by now
        file.write(content)
