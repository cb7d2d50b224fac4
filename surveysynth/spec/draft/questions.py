"""Questions about open choices, each asked until the answer is valid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from surveysynth.errors import InputError
from surveysynth.spec.draft.choices import (
    DECLARED,
    KINDS,
    MECHANISMS,
    Choices,
    OutcomeChoice,
    check_choices,
    check_column,
    check_word,
    proposed_mechanism,
    read_constant,
    read_number,
    read_sources,
    settled_amount,
    split_columns,
)
from surveysynth.spec.draft.columns import DataFile
from surveysynth.spec.privacy import PROMISES

T = TypeVar("T")


class Terminal(Protocol):
    """A terminal for questions; ``Ctrl-C`` and the end of input raise its own exception."""

    def tell(self, text: str) -> None:
        """Show lines."""

    def ask(self, question: str) -> str:
        """Return the answer to a question without outer blanks; empty for no answer."""


_OUTCOMES = """
Outcomes: the confidential columns to synthesise, separated by commas."""
_KINDS = {
    "continuous": "an amount, without values that many records share",
    "semicontinuous": "an amount that is often exactly 0, or at a top code",
    "binary": "0 and 1, true and false, or two levels",
    "categorical": "one of several levels",
    "count": "a whole number, such as visits or rooms",
}
_RANGE = """
The range of {what}: the lowest and the highest possible value (low, high), from a questionnaire or
a codebook. Do not take it from these data. Values outside count as the nearer end; a generous range
costs little. The scale of the model is learned within it. Press Enter to leave it open."""
_WEIGHT = """
The sampling weight of each record."""
_PUBLIC = """
Are the weights constants of the sample design that anyone can compute? If yes, they are published
unchanged. If no, they are confidential and are synthesised."""
_SOURCES = """
What were the weights computed from, besides the sample design? Name the columns of a calibration or
of an adjustment for nonresponse, separated by commas. Answer design for design weights, or unknown.
If an answer of one person moved the weights of others, the guarantee would not cover that. Press
Enter to leave it open: the privacy statement then spells out the assumption."""
_STRATA = """
Strata of the sample: a public column. Press Enter for none."""
_PSU = """
Primary sampling units, if the sample is clustered: a public column. Press Enter for none."""
_BY = """
Which public columns define the rows of the tables? Separate them by commas. Press Enter for one row
of all records."""
_SIZE = """
The size of the population, from a frame or a published source, not the sum of the weights. Press
Enter if it is unknown."""
_MECHANISM = """
Which mechanism? The two promise different things, and a file has to name one.
  {promises}
{reason}
Press Enter for {proposed}."""
_EPSILON = """
Epsilon: the privacy cost of the whole release. It is your decision and has no default. With
noisy_statistics, one record changes the probability of any result by a factor of at most
exp(epsilon), up to a probability delta: 2.7 at epsilon 1, 37 at 3.6. With pseudo_posterior this
holds asymptotically."""


@dataclass(frozen=True)
class _Asker:
    terminal: Terminal
    data: DataFile

    def ask(self, words: str, question: str, read: Callable[[str], T]) -> T:
        """Ask until ``read`` accepts the answer, and return its result."""
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
    """Ask for the open choices and return all choices.

    The names of the columns are shown, and types where the file has them; no cell.
    """
    asker = _Asker(terminal, data)
    types = [f"{name} ({data.types[name]})" if data.types else name for name in data.names]
    terminal.tell(f"{data.path.name} has {len(data.names)} columns: {', '.join(types)}.")
    terminal.tell("So far only the names were read. Ctrl-C stops and writes nothing.")
    if not choices.outcomes:
        choices = _settle(asker, choices, _OUTCOMES, "outcomes", asker.outcomes)
    choices = replace(choices, outcomes=tuple(_ask_kind(asker, each) for each in choices.outcomes))
    if choices.mechanism is None:
        choices = _ask_mechanism(asker, choices)
    if choices.epsilon is None:
        choices = _settle(asker, choices, _EPSILON, "epsilon", _number("epsilon"))
    outcomes = tuple(_ask_constants(asker, each) for each in choices.outcomes)
    return _ask_design(asker, replace(choices, outcomes=outcomes))


def _ask_mechanism(asker: _Asker, choices: Choices) -> Choices:
    """Return the choices with a mechanism; the proposed one follows from the outcomes."""
    proposed, reason = proposed_mechanism()
    words = _MECHANISM.format(
        promises="\n  ".join(f"{name}  {promise}" for name, promise in PROMISES.items()),
        reason=reason, proposed=proposed,
    )  # fmt: skip

    def named(text: str) -> str:
        check_word("mechanism", text or proposed, MECHANISMS)
        return text or proposed

    return _settle(asker, choices, words, "mechanism", named)


def _settle(
    asker: _Asker,
    choices: Choices,
    words: str,
    part: str,
    read: Callable[[str], object],
    question: str = "",
) -> Choices:
    """Return the choices with one more, checked together with the others."""

    def settled(text: str) -> Choices:
        made = replace(choices, **{part: read(text)})  # type: ignore[arg-type]
        check_choices(made, asker.data.names)
        return made

    return asker.ask(words, question or part.replace("_", " "), settled)


def _ask_kind(asker: _Asker, outcome: OutcomeChoice) -> OutcomeChoice:
    """Return the outcome with a kind, or none."""
    name = outcome.name
    if outcome.kind is not None:
        return outcome
    return asker.ask(
        _menu(name), f"kind of {name}", lambda text: replace(
            outcome, kind=_word(f"kind of {name}", text, KINDS))
    )  # fmt: skip


def _ask_constants(asker: _Asker, outcome: OutcomeChoice) -> OutcomeChoice:
    """Return the outcome with the constants of its kind."""
    name = outcome.name
    if outcome.is_amount and not {"range", *DECLARED} & set(outcome.constants):
        words = _RANGE.format(what=name)
        outcome = _constant(asker, outcome, words, f"low, high of {name}", "range")
    if outcome.levelled and "levels" not in outcome.constants:
        rest = "0 and 1" if outcome.kind == "binary" else "an open choice"
        words = (
            f"\nLevels of {name}, in order, separated by commas: all that may occur, from the "
            f"questionnaire.\nThey are not read from the data. Press Enter for {rest}."
        )
        outcome = _constant(asker, outcome, words, f"levels of {name}", "levels")
    return outcome


def _menu(name: str) -> str:
    lines = [f"  {kind:<16}{_KINDS[kind]}" for kind in KINDS]
    question = f"What kind of outcome is {name}?"
    return "\n".join(["", question, *lines, "Press Enter to leave it open."])


def _constant(
    asker: _Asker, outcome: OutcomeChoice, words: str, question: str, key: str
) -> OutcomeChoice:
    """Return the outcome with one more constant, or unchanged after an empty answer."""

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
    """Ask for weight, strata, units, by columns and the size of the population."""

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
    if choices.weights_from is None:
        sources = partial(read_sources, columns=asker.data.names)
        choices = _settle(asker, choices, _SOURCES, "weights_from", sources)
    if choices.strata is None:
        choices = _settle(asker, choices, _STRATA, "strata", _or_none(column("strata")))
    if choices.psu is None:
        choices = _settle(asker, choices, _PSU, "psu", _or_none(column("psu")))
    if choices.population_size is None:
        read = _or_none(_number("population_size"))
        choices = _settle(asker, choices, _SIZE, "population_size", read)
    if choices.by is None:
        choices = _settle(asker, choices, _BY, "by", by)
    return choices


def _number(what: str) -> Callable[[str], float]:
    return lambda text: read_number(what.replace("_", " "), text)


def _or_none(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return ``read`` with None for an empty answer."""
    return lambda text: read(text) if text else None


def _word(what: str, text: str, known: Sequence[str]) -> str | None:
    if text:
        check_word(what, text, known)
    return text or None


def _yes(text: str) -> bool:
    if text.casefold() not in ("y", "yes", "n", "no"):
        raise InputError(f"expected y or n, got {text!r}.")
    return text.casefold().startswith("y")
