"""A small language of conditions on columns, for subpopulations: ``age >= 18 and field in ("A",)``.

    condition   either ("or" either)*           either   part ("and" part)*
    part        "not" part | "(" condition ")" | relation
    relation    operand (comparison operand)+ | column ["not"] "in" "(" literal, .. ")"
    comparison  == != < <= > >=                 operand  column | literal

A literal is a number, or a text in single or double quotes; a column is written as it is, or in
backquotes where it is no plain word. One operand of each comparison is a column and the other a
literal, so that ``18 <= age < 65`` is two comparisons. The parser knows nothing else: no calls, no
arithmetic, no attribute, and nothing is ever evaluated as a program.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from surveysynth.errors import InputError

Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
Value: TypeAlias = str | int | float

LONGEST, DEEPEST = 2000, 50
WORDS = ("and", "or", "not", "in")
FLIPPED: dict[str, Operator] = {
    "==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
#: Of one value with another, for numbers and the first two for texts.
COMPARE = MappingProxyType({
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
})  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    | (?P<number>-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?(?![\w.]))
    | (?P<text>"[^"]*"|'[^']*')
    | (?P<quoted>`[^`]+`)
    | (?P<name>[^\W\d]\w*)
    | (?P<sign>==|!=|<=|>=|<(?!>)|>|[()\[\],])""",
    re.VERBOSE,
)
#: What other languages write, and what it is called here.
_ELSEWHERE = {"=": "==", "&": "and", "|": "or", "!": "not or !=", "~": "not", "<>": "!="}

T = TypeVar("T")


@dataclass(frozen=True)
class Relation:
    """One column beside literals of one type; ``place``: the character that it begins at, from 1.

    ``values`` has one literal, or with "in" and "not in" one or more.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...]
    place: int

    @property
    def of_numbers(self) -> bool:
        """Whether the literals are numbers."""
        return not isinstance(self.values[0], str)


@dataclass(frozen=True)
class Not:
    """What does not hold."""

    part: "Condition"


@dataclass(frozen=True)
class Joined:
    """Two or more parts, of which all hold or any."""

    word: Literal["and", "or"]
    parts: tuple["Condition", ...]


Condition: TypeAlias = Relation | Not | Joined


def parse_where(text: str) -> Condition:
    """The condition that a text writes.

    Raises ``InputError`` that tells the character (from 1), what was expected there and what was
    found.

    Examples
    --------
    >>> from surveysynth.survey.where import parse_where
    >>> parse_where("age >= 18")
    Relation(column='age', operator='>=', values=(18,), place=1)
    """
    if len(text) > LONGEST:
        raise InputError(
            f"expected a condition of at most {LONGEST:,} characters, got {len(text):,}; make "
            "a column of the classes that it describes."
        )
    return _Parser(text).whole()


def relations(condition: Condition) -> Iterator[Relation]:
    """Every relation, in the order of the text."""
    if isinstance(condition, Relation):
        yield condition
        return
    for part in (condition.part,) if isinstance(condition, Not) else condition.parts:
        yield from relations(part)


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Every column, each once."""
    return tuple(dict.fromkeys(each.column for each in relations(condition)))


def folded(
    condition: Condition,
    relation: Callable[[Relation], T],
    negated: Callable[[T], T],
    joined: Callable[[str, list[T]], T],
) -> T:
    """A condition as whatever relations are turned into, put together from there."""
    if isinstance(condition, Relation):
        return relation(condition)
    if isinstance(condition, Not):
        return negated(folded(condition.part, relation, negated, joined))
    parts = [folded(part, relation, negated, joined) for part in condition.parts]
    return joined(condition.word, parts)


def written(condition: Condition) -> str:
    """A text that ``parse_where`` takes for the same condition, places apart."""
    return folded(
        condition, _relation, lambda part: f"not ({part})",
        lambda word, parts: f" {word} ".join(f"({part})" for part in parts),
    )  # fmt: skip


def _relation(relation: Relation) -> str:
    values = [_literal(value) for value in relation.values]
    several = f"({', '.join(values)})" if "in" in relation.operator else values[0]
    return f"`{relation.column}` {relation.operator} {several}"


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return f"'{value}'" if '"' in value else f'"{value}"'
    return repr(value)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    place: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            begun = found[-1].text if found and text[:position].endswith(found[-1].text) else ""
            name = begun if begun and found[-1].kind == "name" else ""
            raise InputError(f"character {position + 1}: {_unknown(text[position:], name)}")
        if match.lastgroup is None or match.lastgroup != "blank":
            kind = next(name for name, got in match.groupdict().items() if got is not None)
            word = match[0] in WORDS
            found.append(_Token("word" if word else kind, match[0], position + 1))
        position = match.end()
    return [*found, _Token("end", "", len(text) + 1)]


def _unknown(rest: str, name: str) -> str:
    """Why a text cannot go on like this; ``name``: that of a column right before, or empty."""
    if rest[0] in "\"'`":
        return f"a {rest[0]} is opened and not closed; a text with one kind of quote takes the " \
            "other around it."
    for sign in (rest[:2], rest[0]):
        if sign in _ELSEWHERE:
            return f"{sign!r} is not known here; write {_ELSEWHERE[sign]}."
    if name:
        whole = name + re.split(r"[\s=<>!()]", rest, maxsplit=1)[0]
        return f"{name!r} is followed by {rest[0]!r}; a column whose name is no plain word is " \
            f"written in backquotes, such as `{whole}`."
    if rest[0].isdigit() or rest[0] in ".-":
        return f"expected a number such as 18, 0.5 or -1, got {rest[:12]!r}; text needs quotes."
    return f"{rest[0]!r} is not known here; a condition has columns, literals, comparisons, in, " \
        "and, or, not and parentheses."


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._tokens, self._at, self._depth = _tokens(text), 0, 0

    def whole(self) -> Condition:
        made = self._either()
        if self._now.kind != "end":
            raise self._expected("and, or, or the end")
        return made

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._now
        self._at += 1
        return token

    def _taken(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs, and then past it."""
        found = self._now.kind in ("word", "sign") and self._now.text in texts
        self._at += found
        return found

    def _expected(self, what: str) -> InputError:
        return InputError(
            f"character {self._now.place}: expected {what}, got {self._now.shown}.{self._hint()}"
        )

    def _hint(self) -> str:
        lower = self._now.text.lower()
        return f" Write {lower} in small letters." if lower != self._now.text and (
            lower in WORDS
        ) else ""  # fmt: skip

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._taken("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def _both(self) -> Condition:
        parts = [self._part()]
        while self._taken("and"):
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def _part(self) -> Condition:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InputError(
                f"character {self._now.place}: more than {DEEPEST} parentheses and not within each "
                "other; write the condition more simply."
            )
        made = self._nested()
        self._depth -= 1
        return made

    def _nested(self) -> Condition:
        if self._taken("not"):
            return Not(self._part())
        if self._taken("("):
            made = self._either()
            if not self._taken(")"):
                raise self._expected("and, or, or )")
            return made
        return self._compared()

    def _compared(self) -> Condition:
        """``age >= 18``, ``18 <= age < 65``, ``field in (..)``."""
        left = self._operand()
        if left.kind in ("name", "quoted"):
            negated = self._taken("not")
            if self._taken("in"):
                return Relation(_name(left), "not in" if negated else "in", self._several(),
                                left.place)  # fmt: skip
            if negated:
                raise self._expected("in after not")
        found: list[Condition] = []
        while self._now.kind == "sign" and self._now.text in COMPARE:
            sign = self._next().text
            right = self._operand()
            found.append(_comparison(left, sign, right))
            left = right
        if not found:
            raise self._expected("a comparison (== != < <= > >=) or in")
        return found[0] if len(found) == 1 else Joined("and", tuple(found))

    def _operand(self) -> _Token:
        if self._now.kind not in ("name", "quoted", "number", "text"):
            raise self._expected("a column, a number or a text in quotes")
        return self._next()

    def _several(self) -> tuple[Value, ...]:
        place = self._now.place
        close = ")" if self._taken("(") else "]" if self._taken("[") else ""
        if not close:
            raise self._expected("a list in parentheses, such as (\"A\", \"B\")")
        values: list[Value] = []
        while not (values and self._taken(close)):
            if values and not self._taken(","):
                raise self._expected(f"a comma or {close}")
            if values and self._taken(close):
                break
            if self._now.kind not in ("number", "text"):
                raise self._expected("a number or a text in quotes")
            values.append(_value(self._next()))
        if len({isinstance(value, str) for value in values}) > 1:
            raise InputError(
                f"character {place}: a list has numbers or texts in quotes, not both."
            )
        return tuple(dict.fromkeys(values))


def _comparison(left: _Token, sign: str, right: _Token) -> Relation:
    columns = [token for token in (left, right) if token.kind in ("name", "quoted")]
    if len(columns) != 1:
        two = len(columns) == 2
        advice = " A text needs quotes." if two else ""
        raise InputError(
            f"character {left.place}: expected a column on one side of {sign} and a number or text "
            f"on the other, got {left.text} {sign} {right.text}.{advice}"
        )
    flipped = columns[0] is right
    value = _value(left if flipped else right)
    made: Any = FLIPPED[sign] if flipped else sign
    if isinstance(value, str) and made not in ("==", "!="):
        raise InputError(
            f"character {left.place}: {sign} compares numbers, got the text {value!r}; texts are "
            "compared with ==, != and in, and a number has no quotes."
        )
    return Relation(_name(columns[0]), made, (value,), left.place)


def _name(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "quoted" else token.text


def _value(token: _Token) -> Value:
    if token.kind == "text":
        return token.text[1:-1]
    number = float(token.text)
    if not math.isfinite(number):
        raise InputError(f"character {token.place}: expected a finite number, got {token.text}.")
    return int(token.text) if re.fullmatch(r"-?\d{1,15}", token.text) else number
