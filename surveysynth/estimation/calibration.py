"""Weights calibrated to known totals of classes (methods 5.12; Deville and Sarndal 1992).

A calibrated weight is w = d F(x'lambda): the base weight d times a ratio that depends on the
record's calibration variables x alone, with sum of w x = totals. F is exp (raking) or 1 + u
(linear), both cut at bounds where there are some. lambda is the minimum of a convex function, found
by Newton's method with steps that never raise it. Agrees with ``calibrate`` of R's survey package.

x are indicators of classes of the population (combinations of levels of public columns and of
outcomes with levels), or amounts in them; totals are numbers of units, or sums of the amount.
Whether totals can hold at all is decided before anything is spent, from the classes that public
columns and levels make possible. Calibration of synthetic datasets is post-processing, free of
privacy cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.columns import text_of
from surveysynth.survey.outcome import Outcome

_Levels: TypeAlias = tuple[IntArray, tuple[str, ...]]
"""Codes (n,) of the levels of a column, and their names."""
Method: TypeAlias = Literal["raking", "linear"]
Bounds: TypeAlias = tuple[float, float]
_Curve: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
"""F (n,), its derivative, and its integral from zero."""

UNBOUNDED: Bounds = (-np.inf, np.inf)
#: Largest distance of a calibrated sum from its total, as a share of 1 + |total|.
TOLERANCE = 1e-10
_MOST_STEPS = 200
#: Singular values below this share of the largest are those of redundant variables.
_RANK = 1e-9
#: Totals may miss what redundant variables imply by this share.
_CONSISTENT = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedWeights:
    """Calibrated weights of n records, with what their variance estimates need.

    Attributes
    ----------
    weight
        Calibrated weights, (n,).
    base
        The weights before calibration, (n,).
    x
        Calibration variables, (n, p): indicators of classes, amounts.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame({"sex": ["F", "M", "F", "M"], "w": [1.0, 2.0, 3.0, 2.0]})
    >>> made = ss.calibrate(frame, "w", [{"by": "sex", "totals": {"F": 6, "M": 6}}])
    >>> made.weight, made.ratio
    (array([1.5, 3. , 4.5, 3. ]), array([1.5, 1.5, 1.5, 1.5]))
    """

    weight: FloatArray
    base: FloatArray
    x: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """The calibrated over the base weight, (n,)."""
        return self.weight / self.base

    @cached_property
    def projection(self) -> FloatArray:
        """T (p, r), with which the columns of x T are orthonormal under the base weights."""
        return orthonormal(self.x, self.base)


def calibrated_weights(
    x: FloatArray,
    base: FloatArray,
    totals: FloatArray,
    *,
    method: Method = "raking",
    bounds: Bounds = UNBOUNDED,
    labels: Sequence[str] = (),
) -> FloatArray:
    """Calibrate base weights (n,) so that the weighted sums of x (n, p) are the totals (p,).

    method: "raking" (ratios above zero) or "linear"; bounds: the smallest and largest ratio, 1 lies
    between them; labels: what each column of x is, for messages.

    Raises ``InputError``, which names a margin, for totals that contradict each other, and where no
    ratios within the bounds reach them.
    """
    check_method(method, bounds)
    labels = labels or [f"calibration variable {j + 1}" for j in range(totals.size)]
    basis = orthonormal(x, base)
    implied = (x * base[:, None]).T @ (x @ (basis @ (basis.T @ totals)))
    off = np.abs(implied - totals) / (1.0 + np.abs(totals))
    if off.max(initial=0.0) > _CONSISTENT:
        raise InputError(
            f"{labels[int(np.argmax(off))]}: the total contradicts the others: whatever the "
            "weights of these records, the totals cannot all hold. Correct the totals, or leave a "
            "margin out."
        )
    curve = partial(_raking if method == "raking" else _linear, low=bounds[0], high=bounds[1])
    ratio, misfit = _solve(x @ basis, base, basis.T @ totals, curve,
                           lambda w: (x.T @ w - totals) / (1.0 + np.abs(totals)))  # fmt: skip
    worst = int(np.argmax(np.abs(misfit)))
    if not abs(misfit[worst]) <= TOLERANCE:
        within = "" if bounds == UNBOUNDED else f" with ratios from {bounds[0]:g} to {bounds[1]:g}"
        remedy = "" if bounds == UNBOUNDED else " Widen the bounds, or leave a margin out."
        raise InputError(
            f"{labels[worst]}: no weights{within} have these totals; this one is missed most."
            f"{remedy or ' Leave a margin out, or merge small classes.'}"
        )
    return base * ratio


def check_method(method: str, bounds: Bounds) -> None:
    """Raise ``InputError`` for an unknown method, and bounds that it cannot have."""
    if method not in get_args(Method):
        raise InputError(
            f"method: expected one of {', '.join(get_args(Method))}, got {method!r}."
        )
    low, high = bounds
    if not low < 1.0 < high:
        raise InputError(
            f"bounds: expected a number below 1 and one above 1, such as [0.3, 3], got "
            f"[{low:g}, {high:g}]."
        )


def _linear(u: FloatArray, low: float, high: float) -> _Curve:
    """F(u) = 1 + u, cut at the bounds."""
    inside = np.clip(u, low - 1.0, high - 1.0)
    ratio = 1.0 + inside
    return ratio, (inside == u) * 1.0, inside + inside**2 / 2 + ratio * (u - inside)


def _raking(u: FloatArray, low: float, high: float) -> _Curve:
    """F(u) = exp(u), cut at the bounds."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = np.clip(u, np.log(max(low, 0.0)), np.log(high))
        ratio = np.exp(inside)
        return ratio, ratio * (inside == u), ratio - 1.0 + ratio * (u - inside)


def _solve(
    x: FloatArray,
    base: FloatArray,
    totals: FloatArray,
    curve: Callable[[FloatArray], _Curve],
    misfit_of: Callable[[FloatArray], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return ratios (n,) and what they miss the totals by, for an orthonormal x (n, r)."""
    multiplier = np.zeros(totals.size)
    made, slope, integral = curve(x @ multiplier)
    value = base @ integral
    for _ in range(_MOST_STEPS):
        largest = np.abs(misfit_of(base * made)).max(initial=0.0)
        if largest <= TOLERANCE / 10:
            break
        missing = totals - x.T @ (base * made)
        curvature = (x * (base * slope)[:, None]).T @ x
        # Where all records of a class are at a bound nothing is curved: a short step down.
        curvature[np.diag_indices_from(curvature)] += 1e-12 * max(1.0, np.trace(curvature))
        step = np.linalg.solve(curvature, missing)
        descent, length = float(missing @ step), 1.0
        while length > 1e-12:
            tried = multiplier + length * step
            made_there, slope_there, integral = curve(x @ tried)
            reached = base @ integral - totals @ tried
            fall = 1e-4 * length * descent - 1e-14 * abs(value)
            if np.isfinite(reached) and reached <= value - fall:
                break
            # Close to the minimum rounding hides what the function still falls by.
            hidden = descent <= 1e-9 * (1.0 + abs(value))
            if hidden and np.abs(misfit_of(base * made_there)).max(initial=0.0) <= 0.5 * largest:
                break
            length /= 2
        else:
            break
        multiplier, made, slope, value = tried, made_there, slope_there, reached
    return made, misfit_of(base * made)


def orthonormal(x: FloatArray, base: FloatArray) -> FloatArray:
    """Return T (p, r) such that (x T)' diag(base) (x T) is the identity, r the rank of x (n, p)."""
    root = np.sqrt(base)[:, None] * x
    size = np.sqrt((root**2).sum(axis=0))
    size = np.where(size > 0, size, 1.0)
    triangle = np.linalg.qr(root / size, mode="r")
    _, values, right = np.linalg.svd(triangle)
    kept = values > _RANK * values.max(initial=0.0)
    return np.asarray(right[: values.size][kept].T / values[kept] / size[:, None])


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
    datasets bring; population_size: N, to which weights then also add up, or None.

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
        self._codes: dict[str, _Levels] = {}
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
        """The meaning of each column of x."""
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
            amount = np.ones(self._n)
            if margin.amount in self._outcomes:
                amount = outcomes[:, self._outcomes[margin.amount][0]]
            elif margin.amount is not None:
                amount = np.asarray(self._frame[margin.amount].astype(float), dtype=np.float64)
            columns.append(_indicators(margin, levels, self._n) * amount[:, None])
        return np.hstack(columns)

    def calibrate(self, base: FloatArray, outcomes: FloatArray) -> CalibratedWeights:
        """Calibrate the weights (n,) of a dataset.

        Raises ``InputError``, naming a margin, where no weights within the bounds have the totals.
        """
        x = self.matrix(outcomes)
        empty = np.flatnonzero(~x.any(axis=0) & (self.totals != 0))
        if empty.size:
            raise InputError(
                f"{self.labels[empty[0]]}: no record is in this class, so no weights can reach its "
                "total. Merge it with another class, or leave the margin out."
            )
        weight = calibrated_weights(
            x, base, self.totals, method=self.method, bounds=self.bounds, labels=self.labels
        )
        return CalibratedWeights(weight, base, x)

    def _levels(self, name: str, outcomes: FloatArray) -> _Levels:
        """Return the levels of a column, as codes (n,) and names."""
        if name in self._outcomes:
            j, outcome = self._outcomes[name]
            return outcome.category(outcomes[:, j]), outcome.category_names
        if name not in self._codes:
            # A level is written as in totals: 3.0 as 3.
            texts = self._frame[name].map(
                lambda value: f"{value:g}" if isinstance(value, float) else str(value)
            )
            self._codes[name] = _coded(texts)
        return self._codes[name]

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
        for levels in possible - given:
            raise InputError(
                f"{margin.place}.totals: {_words(margin.by, levels)} has no total; records of the "
                "survey are or may be in it. Add its total."
            )
        for levels in given - possible:
            raise InputError(
                f"{margin.place}.totals: no record of the survey is in "
                f"{_words(margin.by, levels)}, so no weights can reach its total. Merge it with "
                "another class, or leave the margin out."
            )

    def _possible(self, by: Sequence[str]) -> set[tuple[str, ...]]:
        """Return the classes that records may be in, given their public columns and any levels."""
        public = [name for name in by if name not in self._outcomes]
        modelled = [name for name in by if name in self._outcomes]
        none = np.zeros((self._n, 0))
        texts = [np.array(names)[codes] for codes, names in (
            self._levels(name, none) for name in public)]  # fmt: skip
        found = set(zip(*texts, strict=True)) if public else {()}
        ways = [self._outcomes[name][1].category_names for name in modelled]
        place = [(*public, *modelled).index(name) for name in by]
        return {
            tuple(str((*own, *way)[each]) for each in place)
            for own in found for way in product(*ways)
        }  # fmt: skip

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
                    f"{first[1]:,.10g}, a contradiction. Correct one of them."
                )
            first = first or (f"those of {margin.place}", size)

    def _check_together(self) -> None:
        """Raise ``InputError`` where no weights above zero have the totals of all margins."""
        counts = [margin for margin in self.margins if margin.amount is None]
        for number in range(1, len(counts)):
            some = counts[: number + 1]
            columns = list(dict.fromkeys(c for m in some for c in m.by))
            classes = sorted(self._possible(columns))
            if len(classes) > _MOST_PATTERNS:
                return
            table = pd.DataFrame(classes, columns=columns, dtype=str)
            coded = {name: _coded(table[name]) for name in columns}
            totals = np.array([total for margin in some for total in margin.totals])
            rows = np.hstack([_indicators(m, [coded[c] for c in m.by], -1) for m in some])
            if not _reachable(rows, totals):
                others = " and ".join(margin.place for margin in some[:-1])
                raise InputError(
                    f"{some[-1].place}.totals: they contradict {others}: no weights above zero of "
                    "the records there are have both. Correct the totals, or leave a margin out."
                )


def _coded(texts: "pd.Series[str]") -> _Levels:
    codes, found = pd.factorize(texts)
    return codes.astype(np.int64), tuple(map(str, found))


def _indicators(
    margin: Margin, levels: Sequence[_Levels], n: int
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


def _words(by: Sequence[str], levels: Sequence[str]) -> str:
    return ", ".join(f"{column} = {level}" for column, level in zip(by, levels, strict=True))


def calibrated_dataset(
    calibration: Calibration, dataset: SyntheticDataset
) -> SyntheticDataset:
    """Return a synthetic dataset with calibrated weights; its own become base weights.

    Raises ``InputError``, with the number of the dataset, where they cannot be calibrated.
    """
    try:
        weight = pair = twelve_digits(
            calibration.calibrate(dataset.weight, dataset.outcome).weight
        )
        if dataset.separate_pair:
            pair = twelve_digits(
                calibration.calibrate(dataset.variance_weight, dataset.variance_outcome).weight
            )
    except InputError as error:
        raise InputError(
            f"synthetic dataset {dataset.replicate} of draw {dataset.draw}: {error}"
        ) from None
    return replace(
        dataset, weight=weight, variance_weight=pair,
        base_weight=dataset.weight, variance_base_weight=dataset.variance_weight,
    )  # fmt: skip


def twelve_digits(weight: FloatArray) -> FloatArray:
    """Round weights (n,): sums of the last digits differ between processors."""
    return np.array([float(f"{each:.11e}") for each in weight])


def calibrations_of(
    calibration: Calibration | None, dataset: SyntheticDataset
) -> tuple[CalibratedWeights | None, CalibratedWeights | None]:
    """Return the calibrated weights of a dataset, and those of its pair for variances."""
    if calibration is None or dataset.base_weight is None or dataset.variance_base_weight is None:
        return None, None
    x = calibration.matrix(dataset.outcome)
    own = CalibratedWeights(dataset.weight, dataset.base_weight, x)
    if not dataset.separate_pair:
        return own, own
    x = calibration.matrix(dataset.variance_outcome)
    return own, CalibratedWeights(dataset.variance_weight, dataset.variance_base_weight, x)
