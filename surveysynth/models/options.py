"""Declarations of a model for the specification: its own options and its priors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surveysynth._support.messages import listing, nearest
from surveysynth.errors import InputError


@dataclass(frozen=True)
class Choice:
    """An option that takes one of some words."""

    default: str
    choices: tuple[str, ...]

    @property
    def words(self) -> str:
        """Allowed values, for messages."""
        return " or ".join(repr(choice) for choice in self.choices)

    def allows(self, value: Any) -> bool:
        """Return True for one of the words."""
        return isinstance(value, str) and value in self.choices


@dataclass(frozen=True)
class WholeNumber:
    """An option that takes a whole number from ``least`` to ``most``."""

    default: int
    least: int
    most: int

    @property
    def words(self) -> str:
        """Allowed values, for messages."""
        return f"a whole number from {self.least} to {self.most}"

    def allows(self, value: Any) -> bool:
        """Return True for a whole number in the range."""
        return type(value) is int and self.least <= value <= self.most


@dataclass(frozen=True)
class ColumnNames:
    """An option that takes a list of names of columns, or None for the model's choice."""

    default: tuple[str, ...] | None

    @property
    def words(self) -> str:
        """Allowed values, for messages."""
        return "a list of names of public columns"

    def allows(self, value: Any) -> bool:
        """Return True for None and for a list that has each name once."""
        if value is None:
            return True
        names = isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)
        return names and len(set(value)) == len(value)


Option = Choice | WholeNumber | ColumnNames


def check_option(name: str, option: Option, value: Any) -> None:
    """Raise ``InputError`` for a value that the option cannot have."""
    if not option.allows(value):
        raise InputError(f"{name} must be {option.words}, got {value!r}.")


def check_priors(model: str, known: Mapping[str, float], given: Mapping[str, float]) -> None:
    """Raise ``InputError`` for names that are not those of the model's priors.

    Also for constants that no prior can have.
    """
    for name, value in given.items():
        if name not in known:
            raise InputError(
                f"priors: unknown name {name!r} for model {model!r}."
                f"{nearest(name, known)} Known: {listing(tuple(known))}."
            )
        if not value > 0:
            raise InputError(f"priors.{name}: expected a positive number, got {value!r}.")
        if name == "lkj" and (value < 1 or not float(2 * value).is_integer()):
            raise InputError(
                f"priors.lkj: expected a multiple of 0.5, at least 1, got {value!r}."
            )
