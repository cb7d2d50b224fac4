"""Known totals of classes of the population, and the records that are in each class.

A class is a combination of levels of public columns and of outcomes with levels; its total is its
number of units, or the sum of an amount. Whether totals can hold at all is decided before anything
is spent, from the classes that public columns and levels make possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import (
    UNBOUNDED,
    Bounds,
    CalibratedWeights,
    Method,
    calibrated_weights,
    check_method,
)
from surveysynth.survey.columns import text_of
from surveysynth.survey.outcome import Outcome

_METHODS = {"raking": "raking", "linear": "the regression estimator"}
#: Totals of the same units may differ by this share.
_EQUAL = 1e-9
#: Combinations of classes that are searched for weights; of more, only sums are compared.
_MOST_PATTERNS = 50_000


@dataclass(frozen=True)
class Margin:
    """Totals (c,) of c classes; ``amount``: what they sum, None for numbers of units.

    by: columns; classes: a level of each column; place: its name in messages.
    """

    by: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...]
    totals: tuple[float, ...]
    amount: str | None
    place: str

    @classmethod
    def of(
        cls, by: Sequence[str], totals: Any, amount: str | None = None, place: str = "calibration"
    ) -> "Margin":
        """Read totals nested by level, ``{"North": {"F": 3, "M": 4}, ..}``, or one number.

        Raises ``InputError`` for totals nested otherwise than ``by``, or that are no numbers.
        """
        if len(set(by)) < len(by):
            raise InputError(f"{place}.by: a column may be named only once, got {listing(by)}.")
        if not by and amount is None:
            raise InputError(
                f"{place}: expected by, amount, or both: totals of classes, or of an amount."
            )
        found = dict(_leaves(totals, len(by), f"{place}.totals"))
        if not found:
            raise InputError(f"{place}.totals: expected a total for each level of {listing(by)}.")
        return cls(tuple(by), tuple(found), tuple(found.values()), amount, place)

    def label(self, number: int) -> str:
        """Name a class for messages: calibration[1] (region = North)."""
        levels = zip(self.by, self.classes[number], strict=True)
        parts = [f"{column} = {level}" for column, level in levels]
        parts += [f"total of {self.amount}"] * (self.amount is not None)
        return f"{self.place} ({', '.join(parts)})"

    @property
    def words(self) -> str:
        """The margin in words."""
        return margin_words(self.by, self.amount)

    def as_dict(self) -> dict[str, Any]:
        """Return the margin as in a specification, totals nested by level."""
        totals: Any = {}
        for levels, total in zip(self.classes, self.totals, strict=True):
            inner = totals
            for level in levels[:-1]:
                inner = inner.setdefault(level, {})
            if levels:
                inner[levels[-1]] = total
            else:
                totals = total
        named = {} if self.amount is None else {"amount": self.amount}
        return {"by": list(self.by), **named, "totals": totals}


def margin_words(by: Sequence[str], amount: str | None) -> str:
    """Return a margin in words: "region by sex", "income by region"."""
    return " by ".join([*([] if amount is None else [amount]), *by])


def _leaves(totals: Any, depth: int, place: str) -> list[tuple[tuple[str, ...], float]]:
    """Return the levels and the total of each class."""
    if depth == 0:
        wrong = isinstance(totals, bool) or not isinstance(totals, int | float | np.number)
        if wrong or not np.isfinite(totals):
            raise InputError(f"{place}: expected a number, got {totals!r}.")
        return [((), float(totals))]
    if not isinstance(totals, Mapping):
        raise InputError(
            f"{place}: expected a table of levels, such as {{ North = 41000, South = 59000 }}, "
            f"got {totals!r}."
        )
    return [
        ((text_of(level), *rest), total)
        for level, inner in totals.items()
        for rest, total in _leaves(inner, depth - 1, f"{place}.{level}")
    ]


class Calibration:
    """Margins with the records that are in their classes, whatever the outcomes of a dataset.

    frame: public columns, n rows; outcomes: declarations of the columns of outcomes (n, p) that
    datasets bring; population_size: N, to which weights then add up too, or None.

    Raises ``InputError`` for totals below zero, classes without a total or without records, and
    totals that contradict each other. It names the margin.
    """

    def __init__(
        self,
        margins: Sequence[Margin],
        frame: pd.DataFrame,
        outcomes: Sequence[Outcome] = (),
        *,
        population_size: float | None = None,
        method: Method = "raking",
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        check_method(method, bounds)
        self.margins, self.method, self.bounds = tuple(margins), method, bounds
        self._frame, self._n = frame, len(frame)
        self._outcomes = {outcome.name: (j, outcome) for j, outcome in enumerate(outcomes)}
        self._size = population_size
        self._codes: dict[str, tuple[IntArray, tuple[str, ...]]] = {}
        for margin in self.margins:
            self._check(margin)
        self._check_sums()
        self._check_together()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all margins."""
        named = [*(c for m in self.margins for c in m.by), *(m.amount for m in self.margins)]
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def words(self) -> str:
        """Method and margins in words."""
        low, high = self.bounds
        within = "" if self.bounds == UNBOUNDED else f" with ratios from {low:g} to {high:g}"
        size = "" if self._size is None else f", and to the population size {self._size:,.10g}"
        margins = "; ".join(margin.words for margin in self.margins)
        return f"{_METHODS[self.method]}{within}, to published totals of {margins}{size}"

    def as_dict(self) -> dict[str, Any]:
        """Return method, bounds and margins, JSON-ready."""
        bounds = None if self.bounds == UNBOUNDED else list(self.bounds)
        margins = [margin.as_dict() for margin in self.margins]
        return {"method": self.method, "bounds": bounds, "margins": margins}

    @cached_property
    def totals(self) -> FloatArray:
        """The total of each column of x, (p,)."""
        known = [] if self._size is None else [self._size]
        return np.array([*known, *(total for m in self.margins for total in m.totals)])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each column of x is."""
        known = [] if self._size is None else ["the population size"]
        return (*known, *(m.label(i) for m in self.margins for i in range(len(m.classes))))

    @property
    def public(self) -> bool:
        """True if x is the same in every dataset."""
        return not any(name in self._outcomes for name in self.columns)

    def matrix(self, outcomes: FloatArray) -> FloatArray:
        """Return x (n, p) of a dataset with these outcomes (n, number of outcomes)."""
        columns = [] if self._size is None else [np.ones((self._n, 1))]
        for margin in self.margins:
            levels = [self._levels(name, outcomes) for name in margin.by]
            inside = _indicators(margin, levels, self._n)
            amount = np.ones(self._n)
            if margin.amount is not None:
                amount = self._amount(margin.amount, outcomes)
            columns.append(inside * amount[:, None])
        return np.hstack(columns)

    def calibrate(self, base: FloatArray, outcomes: FloatArray) -> CalibratedWeights:
        """Calibrate the weights (n,) of a dataset.

        Raises ``InputError``, naming a margin, where no weights within the bounds have the totals.
        """
        x = self.matrix(outcomes)
        empty = np.flatnonzero(~x.any(axis=0) & (self.totals != 0))
        if empty.size:
            raise InputError(
                f"{self.labels[empty[0]]}: no record is in this class, so that no weights have its "
                "total. Merge it with another class, or leave the margin out."
            )
        weight = calibrated_weights(
            x, base, self.totals, method=self.method, bounds=self.bounds, labels=self.labels
        )
        return CalibratedWeights(weight, base, x)

    def again(self, weight: FloatArray, base: FloatArray, outcomes: FloatArray) -> (
        CalibratedWeights
    ):
        """Return weights (n,) that were calibrated before, with x."""
        return CalibratedWeights(weight, base, self.matrix(outcomes))

    def _levels(self, name: str, outcomes: FloatArray) -> tuple[IntArray, tuple[str, ...]]:
        """Return the levels of a column, as codes (n,) and names."""
        if name in self._outcomes:
            j, outcome = self._outcomes[name]
            return outcome.category(outcomes[:, j]), outcome.category_names
        if name not in self._codes:
            codes, found = pd.factorize(self._frame[name].map(_text))
            self._codes[name] = codes.astype(np.int64), tuple(map(str, found))
        return self._codes[name]

    def _amount(self, name: str, outcomes: FloatArray) -> FloatArray:
        if name in self._outcomes:
            return outcomes[:, self._outcomes[name][0]]
        return np.asarray(self._frame[name].astype(float), dtype=np.float64)

    def _check(self, margin: Margin) -> None:
        """Raise ``InputError`` for a margin that no sample of these records can have."""
        known = (*map(str, self._frame.columns), *self._outcomes)
        for key, name in [*(("by", n) for n in margin.by), ("amount", margin.amount)]:
            if name is not None and name not in known:
                raise InputError(
                    f"{margin.place}.{key}: {name!r} is not among the public columns and outcomes "
                    f"of the survey ({listing(known)}).{nearest(name, known)} Name it in "
                    "public_columns if it is public."
                )
            if name in self._outcomes and (key == "by") == self._outcomes[name][1].is_amount:
                expected = "an outcome with levels" if key == "by" else "an amount"
                raise InputError(f"{margin.place}.{key}: {name!r} is not {expected}.")
        for number, total in enumerate(margin.totals):
            if total <= 0 and margin.amount is None:
                raise InputError(
                    f"{margin.label(number)}: expected a total above zero, got {total:g}. Leave a "
                    "class without units out, or merge it with another."
                )
        possible = self._possible(margin.by)
        given = set(margin.classes)
        for levels, there in (*((c, True) for c in possible), *((c, False) for c in given)):
            if there and levels not in given:
                raise InputError(
                    f"{margin.place}.totals: {_words(margin.by, levels)} has no total; records of "
                    "the survey are or may be in it. Add its total."
                )
            if not there and levels not in possible:
                raise InputError(
                    f"{margin.place}.totals: no record of the survey is in "
                    f"{_words(margin.by, levels)}, so that no weights have its total. Merge it "
                    "with another class, or leave the margin out."
                )

    def _possible(self, by: Sequence[str]) -> set[tuple[str, ...]]:
        """Return the classes that records may be in, by their public columns and any levels."""
        public = [name for name in by if name not in self._outcomes]
        none = np.zeros((self._n, 0))
        texts = [np.array(names)[codes] for codes, names in (
            self._levels(name, none) for name in public)]  # fmt: skip
        found = set(zip(*texts, strict=True)) if public else {()}
        ways = [self._outcomes[name][1].category_names for name in by if name in self._outcomes]
        classes = set()
        for own in found:
            for way in product(*ways):
                named = dict(zip(public, own, strict=True))
                others = iter(way)
                classes.add(tuple(
                    str(named[name]) if name in named else next(others) for name in by
                ))  # fmt: skip
        return classes

    def _check_sums(self) -> None:
        """Raise ``InputError`` where the classes of two margins hold different numbers of units."""
        first = None if self._size is None else ("the population size", self._size)
        for margin in self.margins:
            if margin.amount is not None:
                continue
            size = sum(margin.totals)
            if first is not None and abs(size - first[1]) > _EQUAL * first[1]:
                is_, verb = first[0], "is" if first[0].startswith("the") else "add up to"
                raise InputError(
                    f"{margin.place}.totals: they add up to {size:,.10g}, but {is_} {verb} "
                    f"{first[1]:,.10g}: these contradict each other. Correct one of them."
                )
            first = first or (f"those of {margin.place}", size)

    def _check_together(self) -> None:
        """Raise ``InputError`` where no weights above zero have the totals of all margins."""
        counts = [margin for margin in self.margins if margin.amount is None]
        for number in range(1, len(counts)):
            some = counts[: number + 1]
            possible = self._patterns(tuple(dict.fromkeys(c for m in some for c in m.by)))
            if possible is None:
                return
            totals = np.array([total for margin in some for total in margin.totals])
            rows = np.hstack([_indicators(m, [possible[c] for c in m.by], -1) for m in some])
            if not _reachable(rows, totals):
                others = " and ".join(margin.place for margin in some[:-1])
                raise InputError(
                    f"{some[-1].place}.totals: they contradict {others}: no weights above zero of "
                    "the records there are have both. Correct the totals, or leave a margin out."
                )

    def _patterns(
        self, columns: tuple[str, ...]
    ) -> dict[str, tuple[IntArray, tuple[str, ...]]] | None:
        """Return codes of all combinations of levels that are possible; None if they are many."""
        classes = sorted(self._possible(columns))
        if len(classes) > _MOST_PATTERNS:
            return None
        table = pd.DataFrame(classes, columns=list(columns), dtype=str)
        coded = {name: pd.factorize(table[name]) for name in columns}
        return {
            name: (codes.astype(np.int64), tuple(map(str, found)))
            for name, (codes, found) in coded.items()
        }


def _indicators(
    margin: Margin, levels: Sequence[tuple[IntArray, tuple[str, ...]]], n: int
) -> FloatArray:
    """Return indicators (n, c) of the classes of a margin, from codes and names by column."""
    n = len(levels[0][0]) if levels else n
    columns = np.empty((n, len(margin.classes)))
    for number, wanted in enumerate(margin.classes):
        inside: BoolArray = np.ones(n, dtype=bool)
        for level, (codes, names) in zip(wanted, levels, strict=True):
            inside &= codes == (names.index(level) if level in names else -1)
        columns[:, number] = inside
    return columns


def _reachable(rows: FloatArray, totals: FloatArray) -> bool:
    """Return whether numbers above or at zero (k,) have these totals (p,) of rows (k, p)."""
    from scipy.optimize import linprog

    scale = totals.max()
    found = linprog(
        np.zeros(len(rows)), A_eq=rows.T, b_eq=totals / scale, bounds=(0.0, None), method="highs"
    )
    return bool(found.status != 2)


def _text(value: Any) -> str:
    """Return a value as a level is written: 3.0 as 3."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _words(by: Sequence[str], levels: Sequence[str]) -> str:
    return ", ".join(f"{column} = {level}" for column, level in zip(by, levels, strict=True))
