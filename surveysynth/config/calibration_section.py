"""``[[calibration]]``: known totals, to which synthetic weights are calibrated after the noise."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from surveysynth._support.messages import listing, nearest
from surveysynth.config.mistakes import shown
from surveysynth.config.sections import Name, Names, Section, as_tuple
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import (
    UNBOUNDED,
    Bounds,
    Margin,
    Method,
    check_method,
    margin_words,
)
from surveysynth.survey.files import open_table
from surveysynth.survey.outcome import Outcome

#: The column of a csv file of totals that has them.
TOTAL = "total"


def _two(value: tuple[float, ...]) -> tuple[float, ...]:
    if len(value) != 2:
        raise ValueError(
            f"expected the smallest and the largest ratio, such as [0.3, 3], got {len(value)} "
            "numbers."
        )
    return value


class CalibrationSection(Section):
    """``[[calibration]]``: one margin of known totals."""

    about = (
        "Known totals of the population, to which the weights of every synthetic dataset are "
        "calibrated before tables are made: one section for each margin. It uses published numbers "
        "only and costs no privacy. The weight of [survey] is then the base weight, which may not "
        "depend on the answers of others, as a weight calibrated by confidential columns does."
    )

    by: Names = ()
    """The columns whose combined levels have totals: public columns, and outcomes with levels.
    Type: list of columns. Public: The margin, and that the weights are calibrated to it."""
    amount: Name | None = None
    """The amount that is totaled: an outcome, or a public column of numbers. Type: name of a
    column. Default: none: numbers of units. Public: As above."""
    totals: Any
    """The totals: by level, as { North = 41000, South = 59000 }; nested for several columns; one
    number without `by`; or a csv file with the columns of `by` and a column `total`. Every level
    that a record may have needs one. Type: totals by level, a number, or a path that ends in .csv.
    Default: required. Public: The totals. They come from a census, a register, or another published
    source, never from this survey."""
    method: Literal["raking", "linear"] | None = None
    """The method for all margins together, given once: "raking" multiplies, "linear" is the
    regression estimator within `bounds`. Default: raking. Public: The method."""
    bounds: (
        Annotated[
            tuple[Annotated[float, Field(ge=0)], ...], BeforeValidator(as_tuple),
            AfterValidator(_two),
        ]
        | None
    ) = None  # fmt: skip
    """The smallest and the largest ratio of a calibrated to a base weight, given once. "linear"
    requires it. If a synthetic dataset cannot keep it, nothing is released; after other
    bounds the run continues from the same noise. Type: two numbers, such as [0.3, 3]. Public: The
    bounds."""

    @field_validator("totals", mode="plain")
    @classmethod
    def _totals(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, Mapping | int | float | str):
            raise ValueError(
                "expected totals by level, such as { North = 41000, South = 59000 }, a number, or "
                f"the path of a csv file, got {shown(value)}."
            )
        return value

    @model_validator(mode="after")
    def _agree(self) -> "CalibrationSection":
        if not isinstance(self.totals, str):
            try:
                Margin.of(self.by, self.totals, self.amount, "")
            except InputError as error:
                raise ValueError(str(error).removeprefix(".")) from None
        elif not self.totals.lower().endswith(".csv"):
            raise ValueError(
                "totals: expected totals by level, a number, or a path that ends in .csv, got "
                f"{self.totals!r}."
            )
        return self

    @property
    def words(self) -> str:
        """The margin in words: "region by sex", "income by region"."""
        return margin_words(self.by, self.amount)

    def margin(self, place: str, folder: Path) -> Margin:
        """Return the margin, of which a file is read from a path relative to the folder.

        Raises ``InputError`` for a file that has no such totals.
        """
        totals = self.totals
        if isinstance(totals, str):
            totals = read_totals(folder / totals, self.by, f"{place}.totals")
        return Margin.of(self.by, totals, self.amount, place)


def place_of(number: int) -> str:
    """Return the name of a margin in messages, from its number (starting at 0)."""
    return f"calibration[{number + 1}]"


def method_of(sections: Sequence[CalibrationSection]) -> tuple[Method, Bounds]:
    """Return the method and the bounds of all margins together."""
    methods = [each.method for each in sections if each.method is not None]
    bounds = [each.bounds for each in sections if each.bounds is not None]
    low, high = bounds[0] if bounds else UNBOUNDED
    return (methods[0] if methods else "raking"), (low, high)


def calibration_problems(
    sections: Sequence[CalibrationSection],
    declared: Sequence[Outcome],
    public: Sequence[str],
    weight: Sequence[str | None],
) -> list[str]:
    """Return the settings that are impossible; ``public``: columns with a public role."""
    problems = []
    for number, each in enumerate(sections):
        place = place_of(number)
        known = tuple(dict.fromkeys(public))
        problems += _column_problems(each, place, declared, known, weight)
        for key, of in (("method", each.method), ("bounds", each.bounds)):
            first = next((getattr(s, key) for s in sections if getattr(s, key) is not None), None)
            if of is not None and of != first:
                problems.append(
                    f"{place}.{key}: all margins are calibrated together; give it once."
                )
    if not sections:
        return []
    method, bounds = method_of(sections)
    try:
        check_method(method, bounds)
        if method == "linear" and bounds == UNBOUNDED:
            raise InputError(
                "bounds: method 'linear' needs them, such as [0.3, 3]: weights would fall below "
                "zero without."
            )
    except InputError as error:
        problems.append(f"{place_of(0)}.{error}")
    return problems


def _column_problems(
    section: CalibrationSection,
    place: str,
    declared: Sequence[Outcome],
    public: Sequence[str],
    weight: Sequence[str | None],
) -> list[str]:
    outcomes = {outcome.name: outcome for outcome in declared}
    named = [("by", name) for name in section.by]
    named += [("amount", section.amount)] if section.amount is not None else []
    problems = []
    for key, name in named:
        expected = "an outcome with levels" if key == "by" else "an amount"
        if name in outcomes and (key == "by") == outcomes[name].is_amount:
            problems.append(f"{place}.{key}: {name!r} is not {expected}, nor a public column.")
        elif name in weight:
            problems.append(f"{place}.{key}: {name!r} is the weight, which is what is calibrated.")
        elif name not in outcomes and name not in public:
            known = (*public, *outcomes)
            problems.append(
                f"{place}.{key}: {name!r} is not among the public columns and outcomes "
                f"({listing(known) or 'none'}).{nearest(name, known)} Name it in "
                "survey.public_columns if it is public, so that the microdata have it."
            )
    return problems


def read_totals(path: Path, by: Sequence[str], place: str) -> Any:
    """Return the totals of a csv file, nested by the levels of ``by``.

    Raises ``InputError`` that begins with the ``place`` in the specification.
    """
    table = open_table(path)
    absent = [name for name in (*by, TOTAL) if name not in table.columns]
    if absent:
        raise InputError(
            f"{place}: {path} has no column {absent[0]!r}; expected {listing(by)} and "
            f"{TOTAL!r}."
        )
    totals: dict[str, Any] = {}
    frame = table.read([*by, TOTAL])
    for *levels, total in frame[[*by, TOTAL]].astype(str).itertuples(index=False):
        number = _number(total, path, place)
        if not levels:
            return number
        inner: Any = totals
        for level in levels[:-1]:
            inner = inner.setdefault(level, {})
        if levels[-1] in inner:
            raise InputError(f"{place}: {path} has {', '.join(levels)} twice.")
        inner[levels[-1]] = number
    return totals


def _number(text: str, path: Path, place: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{place}: {path}: expected numbers in the column {TOTAL!r}, got {text!r}."
        ) from None


def inlined(margins: Sequence[Margin], method: Method, bounds: Bounds) -> list[Mapping[str, Any]]:
    """Return the sections with their totals, JSON-ready, for a specification without files."""
    given: list[dict[str, Any]] = [each.as_dict() for each in margins]
    if given:
        given[0]["method"] = method
        if bounds != UNBOUNDED:
            given[0]["bounds"] = list(bounds)
    return list(given)
