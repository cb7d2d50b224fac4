"""Questions for what nothing has been said of, asked until an answer will do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from surveysynth.errors import InputError
from surveysynth.spec.draft.choices import (
    MECHANISMS,
    Choices,
    OutcomeChoice,
    check_choices,
    check_column,
    check_word,
    possible_kinds,
    read_constant,
    read_number,
    settled_amount,
)
from surveysynth.spec.draft.columns import DataFile
from surveysynth.spec.draft.flags import split_columns

T = TypeVar("T")


class Terminal(Protocol):
    """Where questions go; ``Ctrl-C`` and the end of input leave by an exception of its own."""

    def tell(self, text: str) -> None:
        """Shows lines."""

    def ask(self, question: str) -> str:
        """The answer to a question, without its outer blanks; empty for none."""


_OUTCOMES = """
Outcomes: the confidential columns that are synthesised, with commas between."""
_KINDS = {
    "continuous": "an amount, without points where values pile up",
    "semicontinuous": "an amount that is often exactly 0, or at a top code",
    "binary": "0 and 1, true and false, or two levels",
    "categorical": "one of several levels",
    "count": "a whole number",
}
_TYPICAL = """
A typical {what}, from a public source: last year's publication, a register. Not from these data.
The scale of the model follows from it. Enter leaves it open."""
_RANGE = """
Between which two values do about two thirds of the population lie (low, high)? From a public
source; the declared spread follows from it. Enter leaves it open."""
_WEIGHT = """
The sampling weight of each record."""
_PUBLIC = """
Are the weights constants of the sample design, which anyone can compute? Then they are published
as they are; else they are confidential, and synthesised."""
_STRATA = """
Strata that the sample was drawn within: a public column, Enter for none."""
_PSU = """
Primary sampling units, where the sample was drawn in clusters: a public column, Enter for none."""
_EFFECT = """
By which public factor do the units raise variances? Models of these outcomes have no effects of
units. Enter leaves it open."""
_BY = """
Tables by which public columns, with commas between? Enter for the whole survey alone."""
_SIZE = """
Size of the population, from a frame or a published source, not the sum of the weights. Enter if it
is not known."""
_MECHANISM = """
  pseudo_posterior  records with much influence are weighted down; its epsilon is asymptotic
  noisy_statistics  exact noise; strict differential privacy for any number of records
Which mechanism?"""
_EPSILON = """
Epsilon: what the whole release may cost in privacy. A decision of yours, for which there is no
default. With noisy_statistics one record changes the probability of any result by a factor of
exp(epsilon) at most (2.7 at an epsilon of 1, 37 at 3.6), give or take a probability delta; with
pseudo_posterior this is asymptotic."""


@dataclass(frozen=True)
class _Asker:
    terminal: Terminal
    data: DataFile

    def ask(self, words: str, question: str, read: Callable[[str], T]) -> T:
        """What ``read`` makes of an answer, asked again where it raises ``InputError``."""
        self.terminal.tell(words)
        while True:
            try:
                return read(self.terminal.ask(question))
            except InputError as error:
                self.terminal.tell(f"  {error}")

    def columns(self, part: str, text: str) -> tuple[str, ...]:
        return split_columns(part, [text], self.data.names)

    def column(self, part: str, text: str) -> str:
        check_column(part, text, self.data.names)
        return text

    def outcomes(self, text: str) -> tuple[OutcomeChoice, ...]:
        names = self.columns("outcomes", text)
        if not names:
            raise InputError("outcomes: expected at least one column.")
        return tuple(map(OutcomeChoice, names))


def ask_rest(choices: Choices, data: DataFile, terminal: Terminal) -> Choices:
    """``choices`` with answers for what is not said in them.

    The names of the columns are shown, and types where the file has them; no cell.
    """
    asker = _Asker(terminal, data)
    types = [f"{name} ({data.types[name]})" if data.types else name for name in data.names]
    terminal.tell(f"{data.path.name} has {len(data.names)} columns: {', '.join(types)}.")
    terminal.tell("Only the names were looked at so far. Ctrl-C stops, and writes nothing.")
    if choices.mechanism is None:
        choices = _settle(asker, choices, _MECHANISM, "mechanism", _mechanism)
    if choices.epsilon is None:
        choices = _settle(asker, choices, _EPSILON, "epsilon", _number("epsilon"))
    if not choices.outcomes:
        choices = _settle(asker, choices, _OUTCOMES, "outcomes", asker.outcomes)
    kinds = possible_kinds(choices)
    outcomes = tuple(
        _ask_outcome(asker, each, kinds, strict=choices.strict) for each in choices.outcomes
    )
    return _ask_design(asker, replace(choices, outcomes=outcomes))


def _settle(
    asker: _Asker,
    choices: Choices,
    words: str,
    part: str,
    read: Callable[[str], object],
    question: str = "",
) -> Choices:
    """``choices`` with one more part, checked beside the others."""

    def settled(text: str) -> Choices:
        made = replace(choices, **{part: read(text)})  # type: ignore[arg-type]
        check_choices(made, asker.data.names)
        return made

    return asker.ask(words, question or part.replace("_", " "), settled)


def _ask_outcome(
    asker: _Asker, outcome: OutcomeChoice, kinds: Sequence[str], *, strict: bool
) -> OutcomeChoice:
    """The outcome with its kind, among those possible here, and the constants of that kind."""
    name = outcome.name
    if outcome.kind is None:
        outcome = asker.ask(
            _menu(name, kinds), f"kind of {name}", lambda text: replace(
                outcome, kind=_word(f"kind of {name}", text, kinds))
        )  # fmt: skip
    if outcome.is_amount and not {"centre", "scale", "transform"} & set(outcome.constants):
        what = f"{name}, where it is not 0" if outcome.kind == "semicontinuous" else name
        words, question = _TYPICAL.format(what=what), f"typical value of {name}"
        outcome = _constant(asker, outcome, words, question, "centre")
    if outcome.is_amount and strict and not {"spread", "range"} & set(outcome.constants):
        outcome = _constant(asker, outcome, _RANGE, f"low, high of {name}", "range")
    if outcome.levelled and "levels" not in outcome.constants:
        rest = "0 and 1" if outcome.kind == "binary" else "leaving it open"
        words = (
            f"\nLevels of {name}, in order, with commas between: all that may occur, from the "
            f"questionnaire.\nThe data are not looked at. Enter for {rest}."
        )
        outcome = _constant(asker, outcome, words, f"levels of {name}", "levels")
    return outcome


def _menu(name: str, kinds: Sequence[str]) -> str:
    lines = [f"  {kind:<16}{_KINDS[kind]}" for kind in kinds]
    return "\n".join(["", f"What is {name}?", *lines, "Enter leaves it open."])


def _constant(
    asker: _Asker, outcome: OutcomeChoice, words: str, question: str, key: str
) -> OutcomeChoice:
    """The outcome with one more constant, or as it is after an empty answer."""

    def read(text: str) -> OutcomeChoice:
        if not text:
            return outcome
        constants = {**outcome.constants, key: read_constant(key, text)}
        made = replace(outcome, constants=constants)
        if made.is_amount:
            settled_amount(made, strict=False)  # raises for what does not belong together
        return made

    return asker.ask(words, question, read)


def _ask_design(asker: _Asker, choices: Choices) -> Choices:
    """Weight, strata, units, by columns and the size of the population."""

    def column(part: str) -> Callable[[str], str]:
        return lambda text: asker.column(part, text)

    def by(text: str) -> tuple[str, ...]:
        names = asker.columns("by", text)
        for name in names:
            asker.data.levels(name)  # raises where they cannot make a table
        return names

    if choices.weight is None:
        choices = _settle(asker, choices, _WEIGHT, "weight", column("weight"))
        if choices.public_weights is None:
            choices = _settle(asker, choices, _PUBLIC, "public_weights", _yes, "public (y/n)")
    if choices.strata is None:
        choices = _settle(asker, choices, _STRATA, "strata", _or_none(column("strata")))
    if choices.psu is None:
        choices = _settle(asker, choices, _PSU, "psu", _or_none(column("psu")))
    for part, words in (("design_effect", _EFFECT), ("population_size", _SIZE)):
        wanted = part != "design_effect" or choices.needs_design_effect
        if getattr(choices, part) is None and wanted:
            choices = _settle(asker, choices, words, part, _or_none(_number(part)))
    if choices.by is None:
        choices = _settle(asker, choices, _BY, "by", by)
    return choices


def _number(what: str) -> Callable[[str], float]:
    return lambda text: read_number(what.replace("_", " "), text)


def _or_none(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """``read``, and None of an empty answer."""
    return lambda text: read(text) if text else None


def _mechanism(text: str) -> str:
    check_word("mechanism", text, MECHANISMS)
    return text


def _word(what: str, text: str, known: Sequence[str]) -> str | None:
    if text:
        check_word(what, text, known)
    return text or None


def _yes(text: str) -> bool:
    if text.casefold() not in ("y", "yes", "n", "no"):
        raise InputError(f"expected y or n, got {text!r}.")
    return text.casefold().startswith("y")
