"""A small language of conditions on columns, for subpopulations: ``age >= 18 and field in ("A",)``.

    condition   either ("or" either)*           either   part ("and" part)*
    part        "not" part | "(" condition ")" | relation
    relation    operand (comparison operand)+ | column ["not"] "in" "(" literal, .. ")"
    comparison  == != < <= > >=                 operand  column | literal

A literal is a number, or a text in single or double quotes. A column is a plain name, or any name
in backquotes. Each comparison has a column on one side and a literal on the other, so
``18 <= age < 65`` is two comparisons. There are no calls, no arithmetic, and no attributes, and
nothing is ever evaluated as a program.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from surveysynth.errors import InputError
from surveysynth.survey.columns import written

Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
Value: TypeAlias = str | int | float

LONGEST, DEEPEST = 2000, 50
WORDS = ("and", "or", "not", "in")
FLIPPED: dict[str, Operator] = {
    "==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
#: Functions that compare numbers; texts have the first two.
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
#: Signs of other languages, and what to write here instead.
_ELSEWHERE = {"=": "==", "&": "and", "|": "or", "!": "not or !=", "~": "not", "<>": "!="}

T = TypeVar("T")


@dataclass(frozen=True)
class Relation:
    """A comparison of one column with literals of one type.

    ``values`` has one literal, or with "in" and "not in" one or more. ``place`` is the character
    where the relation starts, from 1.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...]
    place: int

    @property
    def of_numbers(self) -> bool:
        """True if the literals are numbers."""
        return not isinstance(self.values[0], str)


@dataclass(frozen=True)
class Not:
    """The negation of a condition."""

    part: "Condition"


@dataclass(frozen=True)
class Joined:
    """Two or more conditions, of which all or any must hold."""

    word: Literal["and", "or"]
    parts: tuple["Condition", ...]


Condition: TypeAlias = Relation | Not | Joined


def parse_where(text: str) -> Condition:
    """Parse a condition.

    Raises ``InputError`` with the character (from 1), what was expected there, and what was found.

    Examples
    --------
    >>> from surveysynth.survey.where import parse_where
    >>> parse_where("age >= 18")
    Relation(column='age', operator='>=', values=(18,), place=1)
    """
    if len(text) > LONGEST:
        raise InputError(
            f"expected a condition of at most {LONGEST:,} characters, got {len(text):,}; add a "
            "column of the classes that it describes."
        )
    return _Parser(text).whole()


def relations(condition: Condition) -> Iterator[Relation]:
    """Yield every relation, in the order of the text."""
    if isinstance(condition, Relation):
        yield condition
        return
    for part in (condition.part,) if isinstance(condition, Not) else condition.parts:
        yield from relations(part)


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return every column, each once."""
    return tuple(dict.fromkeys(each.column for each in relations(condition)))


def folded(
    condition: Condition,
    relation: Callable[[Relation], T],
    negated: Callable[[T], T],
    joined: Callable[[str, list[T]], T],
) -> T:
    """Visit a condition from its relations upward, and return what the three visitors make of it.

    ``joined`` takes "and" or "or" and the results for the parts.
    """
    if isinstance(condition, Relation):
        return relation(condition)
    if isinstance(condition, Not):
        return negated(folded(condition.part, relation, negated, joined))
    parts = [folded(part, relation, negated, joined) for part in condition.parts]
    return joined(condition.word, parts)


class _Token(NamedTuple):
    """``kind``: a group of ``_TOKEN``, "word", or "end"; ``place``: from 1."""

    kind: str
    text: str
    place: int

    @property
    def is_column(self) -> bool:
        return self.kind in ("name", "quoted")

    @property
    def column(self) -> str:
        return self.text[1:-1] if self.kind == "quoted" else self.text

    @property
    def value(self) -> Value:
        """The literal; raises ``InputError`` for a number that is not finite."""
        if self.kind == "text":
            return written(self.text[1:-1])
        number = float(self.text)
        if not math.isfinite(number):
            raise InputError(f"character {self.place}: expected a finite number, got {self.text}.")
        return int(self.text) if re.fullmatch(r"-?\d{1,15}", self.text) else number


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            before = found[-1] if found else _Token("end", "", 0)
            adjacent = before.kind == "name" and text[:position].endswith(before.text)
            reason = _unknown(text[position:], before.text if adjacent else "")
            raise InputError(f"character {position + 1}: {reason}")
        kind = next(name for name, got in match.groupdict().items() if got is not None)
        if kind != "blank":
            kind = "word" if match[0] in WORDS else kind
            found.append(_Token(kind, match[0], position + 1))
        position = match.end()
    return [*found, _Token("end", "", len(text) + 1)]


def _unknown(rest: str, name: str) -> str:
    """Return why a text cannot continue with ``rest``; ``name``: a column before it, or empty."""
    if rest[0] in "\"'`":
        return (
            f"a {rest[0]} is opened and not closed; put a text that contains one kind of quote "
            "into the other."
        )
    for sign in (rest[:2], rest[0]):
        if sign in _ELSEWHERE:
            return f"{sign!r} is not part of a condition; write {_ELSEWHERE[sign]}."
    if name:
        whole = name + re.split(r"[\s=<>!()]", rest, maxsplit=1)[0]
        return (
            f"{name!r} is followed by {rest[0]!r}; put a column whose name is not a plain word in "
            f"backquotes, such as `{whole}`."
        )
    if rest[0].isdigit() or rest[0] in ".-":
        return f"expected a number such as 18, 0.5 or -1, got {rest[:12]!r}; quote a text."
    return (
        f"{rest[0]!r} is not part of a condition, which has columns, literals, comparisons, in, "
        "and, or, not, and parentheses."
    )


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

    def _next(self, *kinds: str, expected: str) -> _Token:
        """Return the next token and skip it, or raise if it is of another kind."""
        if self._now.kind not in kinds:
            raise self._expected(expected)
        self._at += 1
        return self._tokens[self._at - 1]

    def _taken(self, *texts: str) -> bool:
        """Skip the next token if it is one of these words or signs, and return whether it is."""
        found = self._now.kind in ("word", "sign") and self._now.text in texts
        self._at += found
        return found

    def _expected(self, what: str) -> InputError:
        text, lower = self._now.text, self._now.text.lower()
        shown = "the end" if self._now.kind == "end" else repr(text)
        hint = f" Write {lower} in lower case." if lower in WORDS and lower != text else ""
        return InputError(f"character {self._now.place}: expected {what}, got {shown}.{hint}")

    def _either(self) -> Condition:
        return self._joined("or", lambda: self._joined("and", self._part))

    def _joined(self, word: Literal["and", "or"], part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._taken(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _part(self) -> Condition:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InputError(
                f"character {self._now.place}: more than {DEEPEST} nested parentheses and nots; "
                "simplify the condition."
            )
        if self._taken("not"):
            made: Condition = Not(self._part())
        elif self._taken("("):
            made = self._either()
            if not self._taken(")"):
                raise self._expected("and, or, or )")
        else:
            made = self._compared()
        self._depth -= 1
        return made

    def _compared(self) -> Condition:
        """Parse ``age >= 18``, ``18 <= age < 65``, or ``field in (..)``."""
        left = self._operand()
        if left.is_column:
            negated = self._taken("not")
            if self._taken("in"):
                word: Operator = "not in" if negated else "in"
                return Relation(left.column, word, self._several(), left.place)
            if negated:
                raise self._expected("in after not")
        found: list[Condition] = []
        while self._now.kind == "sign" and self._now.text in COMPARE:
            sign = self._next("sign", expected="").text
            right = self._operand()
            found.append(_comparison(left, sign, right))
            left = right
        if not found:
            raise self._expected("a comparison (== != < <= > >=) or in")
        return found[0] if len(found) == 1 else Joined("and", tuple(found))

    def _operand(self) -> _Token:
        expected = "a column, a number or a text in quotes"
        return self._next("name", "quoted", "number", "text", expected=expected)

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
            literal = self._next("number", "text", expected="a number or a text in quotes")
            values.append(literal.value)
        if len({isinstance(value, str) for value in values}) > 1:
            raise InputError(
                f"character {place}: expected a list of numbers or of texts in quotes, not both."
            )
        return tuple(dict.fromkeys(values))


def _comparison(left: _Token, sign: str, right: _Token) -> Relation:
    columns = [token for token in (left, right) if token.is_column]
    if len(columns) != 1:
        advice = " Put a text in quotes." if columns else ""
        raise InputError(
            f"character {left.place}: expected a column on one side of {sign} and a number or text "
            f"on the other, got {left.text} {sign} {right.text}.{advice}"
        )
    flipped = columns[0] is right
    value = (left if flipped else right).value
    made: Any = FLIPPED[sign] if flipped else sign
    if isinstance(value, str) and made not in ("==", "!="):
        raise InputError(
            f"character {left.place}: {sign} compares numbers, got the text {value!r}. Compare "
            "texts with ==, != or in, and write numbers without quotes."
        )
    return Relation(columns[0].column, made, (value,), left.place)
