"""Tables of a subpopulation, by domain estimation.

Every record stays in the sample; those outside have a linearized variable of zero. Whether a record
is inside is one more by variable of the rows, with the levels "inside" and "outside". A table shows
the first. Contrasts, quantiles, both combining rules and calibration need to know nothing about
subpopulations, and a variance has the design of the whole sample, as with R's ``subset`` of a
design. Leaving records out of the file would give another variance.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pandas as pd

from surveysynth._support.messages import records
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import (
    ByOutcome,
    Classes,
    Domains,
    RowsByOutcome,
    TableRows,
    build_domains,
    build_rows,
)
from surveysynth.estimation.linearised import Contrast, Pairs
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.where import COMPARE, Condition, Relation, columns_of, folded, relations

#: The by variable of a subpopulation; no column of a file is called so.
WHERE = "\0where"
INSIDE, OUTSIDE = "inside", "outside"
#: Of levels and public columns together, that a condition is tried on beforehand.
MOST_CASES = 1_000_000


@dataclass(frozen=True, eq=False)
class Subpopulation(Classes):
    """The records of a dataset that satisfy a condition.

    condition: on columns of ``frame`` (n rows, public) and on outcomes with levels. Raises
    ``InputError`` for a comparison that a column does not allow, and where no record is inside
    whatever the levels of the outcomes.
    """

    condition: Condition
    frame: pd.DataFrame
    outcomes: Sequence[Outcome]
    names: tuple[str, ...] = (INSIDE, OUTSIDE)
    _public: Mapping[Relation, BoolArray] = field(init=False)
    _kind: IntArray = field(init=False)
    _cases: BoolArray | None = field(init=False)

    def __post_init__(self) -> None:
        names = [outcome.name for outcome in self.outcomes]
        public = {
            each: _of_column(each, self.frame[each.column])
            for each in relations(self.condition)
            if each.column not in names
        }
        # Records with the same values of all relations are of one kind: columns of (relations, K).
        kinds: BoolArray = np.ones((0, 1), dtype=bool)
        kind: IntArray = np.zeros(len(self.frame), dtype=np.int64)
        if public:
            kinds, found = np.unique(np.stack(list(public.values())), axis=1, return_inverse=True)
            kind = found.reshape(-1).astype(np.int64)
        object.__setattr__(self, "_public", public)
        object.__setattr__(self, "_kind", kind)
        for each in relations(self.condition):
            if each.column in names:
                self._of_levels(each)
        object.__setattr__(self, "_cases", self._tried(kinds))
        if self._cases is not None and not self._cases.any():
            ever = "is" if self.is_public else "can be"
            raise InputError(
                f"no record of the survey {ever} in the subpopulation; mend the condition."
            )

    @property
    def is_public(self) -> bool:
        """True if public columns alone determine who is inside."""
        return not self._named

    @property
    def _named(self) -> tuple[Outcome, ...]:
        """The outcomes that the condition is of."""
        return tuple(each for each in self.outcomes if each.name in columns_of(self.condition))

    def inside(self, outcomes: FloatArray | None = None) -> BoolArray:
        """Return the records (n,) for which the condition holds.

        outcomes: (n, p) of a dataset; not needed for a condition on public columns.
        """

        def holds(relation: Relation) -> BoolArray:
            if relation in self._public:
                return self._public[relation]
            assert outcomes is not None  # it is not of public columns alone
            column = [outcome.name for outcome in self.outcomes].index(relation.column)
            category = self.outcomes[column].category(outcomes[:, column])
            return np.asarray(self._of_levels(relation)[category], dtype=bool)

        return _whole(self.condition, holds)

    @property
    def may_be_inside(self) -> BoolArray:
        """Return the records (n,) that would be inside for some levels of their outcomes.

        All records, if there are too many levels to try.
        """
        if self._cases is None:
            return np.ones(self._kind.size, dtype=bool)
        held = np.asarray(self._cases.any(axis=tuple(range(len(self._named)))), dtype=bool)
        return held[self._kind]

    def may_have(self, name: str, levels: Sequence[str]) -> BoolArray:
        """Return the levels (L,) of a by variable that public columns allow inside.

        A level of a public column without any record is independent of the condition.
        """
        named = [outcome.name for outcome in self._named]
        if name in named and self._cases is not None:
            axis = named.index(name)
            rest = tuple(each for each in range(self._cases.ndim) if each != axis)
            return np.asarray(self._cases.any(axis=rest), dtype=bool)
        if name not in self.frame or name in (outcome.name for outcome in self.outcomes):
            return np.ones(len(levels), dtype=bool)
        of_record = self.frame[name].astype(str)
        found, everywhere = set(of_record[self.may_be_inside]), set(of_record)
        return np.array([each in found or each not in everywhere for each in levels], dtype=bool)

    def _tried(self, kinds: BoolArray) -> BoolArray | None:
        """Return whether the condition holds for each case; None for more cases than can be tried.

        There is an axis for the levels of each outcome in the condition, and a last one for the
        kinds of public columns (relations, kinds).
        """
        named = self._named
        shape = (*(len(each.category_names) for each in named), kinds.shape[1])
        if math.prod(shape) > MOST_CASES:
            return None

        def holds(relation: Relation) -> BoolArray:
            if relation in self._public:
                return np.asarray(kinds[list(self._public).index(relation)], dtype=bool)
            axis = [each.name for each in named].index(relation.column)
            return self._of_levels(relation).reshape(-1, *(1,) * (len(named) - axis))

        return np.broadcast_to(_whole(self.condition, holds), shape)

    def of(self, outcomes: FloatArray) -> IntArray:
        """0 for the records (n,) of a dataset inside, 1 for those outside."""
        return (~self.inside(outcomes)).astype(np.int64)

    def _of_levels(self, relation: Relation) -> BoolArray:
        """Return flags (L,) of the levels of an outcome that satisfy a relation."""
        outcome = next(each for each in self.outcomes if each.name == relation.column)
        return levels_present(relation, outcome.category_names)


def _whole(condition: Condition, holds: Callable[[Relation], BoolArray]) -> BoolArray:
    """Evaluate a condition from the values of its relations, arrays whose shapes broadcast."""

    def joined(word: str, parts: list[BoolArray]) -> BoolArray:
        together = np.logical_and if word == "and" else np.logical_or
        return np.asarray(reduce(together, parts), dtype=bool)

    return folded(condition, holds, np.logical_not, joined)


def levels_present(relation: Relation, levels: Sequence[str]) -> BoolArray:
    """Return flags (L,) of levels that satisfy a relation; levels are numbers if its literals are.

    Raises ``InputError`` for a level that is not a number and one that is not there.
    """
    if not relation.of_numbers:
        unknown = [value for value in relation.values if value not in levels]
        if unknown:
            one = len(relation.values) == 1
            what = "the value" if one else f"{len(unknown):,} of the values"
            raise InputError(
                f"character {relation.place}: no record has {what} that {relation.column!r} is "
                "compared with; write it as in the file (codes, not labels, and with its capital "
                "letters)."
            )
        found = np.array([level in relation.values for level in levels], dtype=bool)
        return found if relation.operator in ("==", "in") else ~found
    numbers = pd.to_numeric(pd.Series(levels, dtype=object), errors="coerce")
    wrong = int(numbers.isna().sum())
    if wrong:
        raise InputError(
            f"character {relation.place}: {relation.column!r} is compared with a number, but "
            f"{wrong:,} of its {len(levels):,} levels are not numbers; put the literal in quotes."
        )
    return _numbers_present(relation, numbers.to_numpy(dtype=np.float64))


def _of_column(relation: Relation, column: pd.Series) -> BoolArray:
    """Return the records (n,) of a public column for which a relation holds."""
    if not pd.api.types.is_numeric_dtype(column):
        codes, levels = column.astype("str").factorize()
        present = levels_present(relation, [str(each) for each in levels])
        return np.asarray(present[codes], dtype=bool)
    if not relation.of_numbers:
        raise InputError(
            f"character {relation.place}: {relation.column!r} is a column of numbers; write its "
            "values without quotes."
        )
    values = column.to_numpy(dtype=np.float64)
    missing = int(np.isnan(values).sum())
    if missing:
        raise InputError(
            f"character {relation.place}: {records(missing)} without a value of "
            f"{relation.column!r}; complete them, or leave them out (survey.missing = 'drop')."
        )
    return _numbers_present(relation, values)


def _numbers_present(relation: Relation, values: FloatArray) -> BoolArray:
    if relation.operator in COMPARE:
        return np.asarray(COMPARE[relation.operator](values, relation.values[0]), dtype=bool)
    found = np.isin(values, np.array(relation.values, dtype=np.float64))
    return found if relation.operator == "in" else ~found


def build_subpopulation(
    subpopulation: Subpopulation,
    by: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, ByOutcome],
    margin_labels: Mapping[str, str] | None = None,
) -> TableRows:
    """Build the rows of ``build_rows`` inside a subpopulation, and hidden rows outside.

    Raises ``InputError`` as it does.
    """
    own, frame = dict(levels), subpopulation.frame
    classes: dict[str, Classes] = dict(outcomes)
    if subpopulation.is_public:
        inside = np.where(subpopulation.inside(), INSIDE, OUTSIDE)
        frame = frame.assign(**{WHERE: inside})
        own[WHERE] = subpopulation.names
    else:
        classes[WHERE] = subpopulation
    return build_rows(frame, (WHERE, *by), own, classes, margin_labels)


def build_public_rows(
    subpopulation: Subpopulation,
    by: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    margin_labels: Mapping[str, str] | None = None,
) -> Domains:
    """Build the rows of ``build_domains`` with the records that may be inside by public columns.

    All other records are in hidden rows.
    """
    inside = np.where(subpopulation.may_be_inside, INSIDE, OUTSIDE)
    own = {**levels, WHERE: subpopulation.names}
    frame = subpopulation.frame.assign(**{WHERE: inside})
    return build_domains(frame, (WHERE, *by), own, margin_labels)


def displayed_rows(rows: TableRows) -> BoolArray:
    """Return which rows (D,) a table shows: those inside that may have records.

    A condition may leave a level no record whatever the outcomes, as ``field == "A"`` does in a
    table by field.
    """
    if WHERE not in rows.by:
        return np.ones(len(rows.table), dtype=bool)
    shown = inside = np.asarray(rows.table[WHERE] == INSIDE, dtype=bool)
    outside = np.asarray(rows.table[WHERE] == OUTSIDE, dtype=bool)
    by_outcome = rows.outcomes if isinstance(rows, RowsByOutcome) else {}
    condition = by_outcome[WHERE][0] if WHERE in by_outcome else None
    for name, labels in zip(rows.by, rows.labels, strict=True):
        if name == WHERE:
            continue
        column = rows.table[name]
        if isinstance(condition, Subpopulation):
            may = labels.member @ condition.may_have(name, labels.levels)
            empty = [label for label, each in zip(labels.names, may, strict=True) if not each]
        else:
            empty = [
                label
                for label in labels.names
                if not rows.n_public[inside & (column == label)].any()
                and rows.n_public[outside & (column == label)].any()
            ]
        shown = shown & ~column.isin(empty).to_numpy(dtype=bool)
    return shown


def displayed_pairs(contrast: Contrast, rows: TableRows) -> Pairs:
    """Return the rows of a table that a contrast compares.

    Raises ``InputError`` for a by variable or a level that the table does not have, or that its
    subpopulation leaves out: every number would be missing.
    """
    pairs = Pairs.of(contrast, rows)
    shown = set(rows.table[contrast.column][displayed_rows(rows)])
    levels = [level for level in pairs.labels.levels if level in shown]
    for wanted in (contrast.first, contrast.second):
        if wanted is not None and wanted not in levels:
            raise InputError(
                f"A contrast needs levels of {contrast.column!r} that the subpopulation (where) "
                f"has, which are {', '.join(map(repr, levels))}, but names {wanted!r}."
            )
    return pairs
