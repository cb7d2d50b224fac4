"""Choices from the flags of a command."""

from collections.abc import Sequence

from surveysynth._support.messages import nearest
from surveysynth.errors import InputError
from surveysynth.spec.draft.choices import (
    CONSTANTS,
    KINDS,
    Choices,
    OutcomeChoice,
    check_column,
    read_constant,
)

#: Choices without a default: questions on a terminal, otherwise required flags.
_REQUIRED = ("outcomes", "weight", "mechanism", "epsilon")
_FLAGS = {"outcomes": "--outcome NAME:KIND", "weight": "--weight COLUMN",
          "mechanism": "--mechanism NAME", "epsilon": "--epsilon E"}  # fmt: skip


def check_said(choices: Choices) -> None:
    """Raise ``InputError`` that names the missing flags without a default."""
    missing = [_FLAGS[part] for part in _REQUIRED if not getattr(choices, part)]
    if missing:
        raise InputError(
            "there is no terminal for questions. Give these flags, which have no default: "
            f"{', '.join(missing)}."
        )


def read_outcomes(
    outcomes: Sequence[str], constants: Sequence[str], columns: Sequence[str]
) -> tuple[OutcomeChoice, ...]:
    """Read outcomes from ``NAME`` or ``NAME:KIND``, and constants from ``NAME.KEY=VALUE``.

    Names may have any character: the name of a column is not split. Raises ``InputError`` for names
    that are not columns and for constants of other columns.
    """
    kinds = dict(_read_outcome(text, columns) for text in outcomes)
    values: dict[str, dict[str, object]] = {name: {} for name in kinds}
    for text in constants:
        name, key, value = _read_constant(text, tuple(kinds))
        values[name][key] = value
    return tuple(OutcomeChoice(name, kind, values[name]) for name, kind in kinds.items())


def _read_outcome(text: str, columns: Sequence[str]) -> tuple[str, str | None]:
    name, colon, kind = text.rpartition(":")
    if text in columns or not colon or (name not in columns and kind not in KINDS):
        check_column("--outcome", text, columns)
        return text, None
    check_column("--outcome", name, columns)
    return name, kind


def _read_constant(text: str, names: Sequence[str]) -> tuple[str, str, object]:
    # The longest name: one may begin with another and a point.
    for name in sorted(names, key=len, reverse=True):
        key, sign, value = text.removeprefix(f"{name}.").partition("=")
        if text.startswith(f"{name}.") and sign:
            if key not in CONSTANTS:
                raise InputError(
                    f"--constant {text!r}: unknown key {key!r}.{nearest(key, CONSTANTS)} Known: "
                    f"{', '.join(CONSTANTS)}."
                )
            return name, key, read_constant(key, value)
    raise InputError(
        f"--constant {text!r}: expected NAME.KEY=VALUE, such as salary.centre=45000, where NAME is "
        "an outcome."
    )


def split_columns(part: str, given: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Split names of columns at commas; a column with a comma in its name is given alone.

    Raises ``InputError`` for names that are no columns."""
    found: dict[str, None] = {}
    for text in given:
        names = (text,) if text in columns else map(str.strip, text.split(","))
        found.update(dict.fromkeys(name for name in names if name))
    for name in found:
        check_column(part, name, columns)
    return tuple(found)
