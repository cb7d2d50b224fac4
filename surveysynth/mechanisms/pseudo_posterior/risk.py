"""Risk measures (methods 2): small frozen objects that say how risky each record is.

A measure is public, the risks that it finds are confidential. All use the same map to weights,
alpha = clip(scale (1 - risk) + shift, 0, 1), and can be re-weighted; only ``Lipschitz`` has a fixed
point.

Count-based risks are counts within balls, by sorting. The ball of a record is closed,
[y - r|y|, y + r|y|] for a relative radius and [y - r, y + r] for an absolute one. Both ends rise
with y, also for zero and negative y: sorted by y, the records of a ball are a stretch of neighbors,
and two balls overlap in a stretch. Everything is O(n log n).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError

RiskName = Literal["lipschitz", "count", "pairwise", "scalar", "none"]
#: Share of its center (and radius) by which a ball is widened: rounding must not put a value that
#: lies on the end of a closed ball, 12 on that of 10 with radius 0.2, outside it.
SLACK = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class RiskData(Unpickled):
    """The values that a risk measure may use.

    outcome (n, p) in original units; lipschitz f_i (n,) of the unweighted fit; frame: the n rows of
    public columns. Confidential except the frame."""

    outcome: FloatArray
    lipschitz: FloatArray
    frame: pd.DataFrame


class RiskMeasure(Protocol):
    """A measure of how risky each record is, in [0, 1]; everything but ``risks`` is public."""

    @property
    def name(self) -> str:
        """The name in specifications and statements."""

    @property
    def pattern(self) -> tuple[str, ...]:
        """The public columns that an intruder is taken to know."""

    @property
    def settings(self) -> dict[str, Any]:
        """The other settings of the measure, JSON-ready; none by default."""
        return {}

    @property
    def words(self) -> str:
        """The risk of a record in words, for statements: "the risk of a record is ..."."""

    def risks(self, data: RiskData) -> FloatArray:
        """Return risks (n,) in [0, 1].

        Records with an infinite f_i have left the likelihood already; their risk does not
        matter."""


@dataclass(frozen=True)
class Lipschitz(RiskMeasure):
    """The risk of the largest log-likelihood ([R] Alg. 2).

    f_i = max_s abs(log_lik[s, i]) of the unweighted fit, from 0 for the smallest to 1 for the
    largest. Its default weights are those of the fixed point, not of this map.

    Parameters
    ----------
    name, pattern, words
        The name in published settings and statements; it uses no public columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.Lipschitz()).weights
    'fixed_point'
    """

    name: str = "lipschitz"
    pattern: tuple[str, ...] = ()
    words: str = "the largest absolute value of its log-likelihood over the posterior draws"

    def risks(self, data: RiskData) -> FloatArray:
        """Return (f_i - min f)/(max f - min f), (n,)."""
        return relative(data.lipschitz)


@dataclass(frozen=True)
class CountBased(RiskMeasure):
    """The share of the records of i's pattern whose outcome is outside its ball ([R] Alg. 3).

    IR_i; with several outcomes the largest of their risks: a record is as exposed as its most
    isolated value.

    Parameters
    ----------
    radius
        Relative, a share of the outcome in (0, 1], or in the outcome's units if ``absolute``; one
        for all outcomes.
    pattern
        Public columns; none: all records are one pattern.
    absolute, name
        True if the radius is in the outcome's units; published under this name.

    Raises
    ------
    InputError
        For another radius or a column named twice.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.CountBased(0.1, pattern=("field",))).weights
    'linear'
    """

    radius: float = 0.2
    pattern: tuple[str, ...] = ()
    absolute: bool = False
    name: str = "count"

    def __post_init__(self) -> None:
        check_radius(self.radius, absolute=self.absolute)
        if isinstance(self.pattern, str) or len(set(self.pattern)) < len(tuple(self.pattern)):
            raise InputError(
                "pattern must be a list of names of public columns, each once, "
                f"got {self.pattern!r}."
            )
        object.__setattr__(self, "pattern", tuple(self.pattern))

    @property
    def settings(self) -> dict[str, Any]:
        """Radius and pattern."""
        kind = "absolute" if self.absolute else "relative"
        return {"radius": self.radius, "radius_kind": kind, "pattern": list(self.pattern)}

    @property
    def words(self) -> str:
        """For statements."""
        return f"the share of {self._others()} whose outcome lies farther than {self._distance()}"

    def risks(self, data: RiskData) -> FloatArray:
        """Return IR_i, (n,); the largest over outcomes."""
        return self._over_outcomes(count_risk, data)

    def _over_outcomes(
        self, function: Callable[..., FloatArray], data: RiskData
    ) -> FloatArray:
        if data.outcome.shape[1] == 0:
            raise InputError(
                f"risk {self.name!r} looks at outcomes, and the database was given without them."
            )
        codes = pattern_codes(data.frame, self.pattern, len(data.outcome))
        columns = (np.ascontiguousarray(column) for column in data.outcome.T)
        risks = [function(y, self.radius, codes, absolute=self.absolute) for y in columns]
        return np.asarray(np.max(risks, axis=0))

    def _others(self) -> str:
        same = f" with the same {', '.join(self.pattern)}" if self.pattern else ""
        return f"the records{same}"

    def _distance(self) -> str:
        return f"{self.radius:g}" + ("" if self.absolute else " times its own outcome") + " from it"


@dataclass(frozen=True)
class Pairwise(CountBased):
    """The pairwise risk: the records of a pattern rise and fall together ([S] eq. 7-9).

    1 - mean over the other records j of i's pattern of the share of records that are in the ball of
    i or in that of j. A record alone in its pattern has its count-based risk.

    Parameters
    ----------
    radius, pattern, absolute, name
        As for ``CountBased``.

    Raises
    ------
    InputError
        As ``CountBased`` does.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.Pairwise(10_000, absolute=True).name
    'pairwise'
    """

    name: str = "pairwise"

    @property
    def words(self) -> str:
        """For statements."""
        return (
            f"the share of {self._others()} whose outcome lies farther than {self._distance()} "
            "and as far from another such record, on average over those other records"
        )

    def risks(self, data: RiskData) -> FloatArray:
        """Return the pairwise risks (n,); the largest over outcomes."""
        return self._over_outcomes(pairwise_risk, data)


@dataclass(frozen=True)
class Scalar(RiskMeasure):
    """The same weight for every record: alpha = Delta*/Delta, the exponential mechanism ([P] 3.2).

    Parameters
    ----------
    name, pattern, words
        The name in published settings and statements; it uses no public columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.Scalar()).private
    True
    """

    name: str = "scalar"
    pattern: tuple[str, ...] = ()
    words: str = "the same for every record, that of the record with the largest bound"

    def risks(self, data: RiskData) -> FloatArray:
        """Return 0 for every record."""
        return np.zeros(data.lipschitz.shape)


@dataclass(frozen=True)
class NoRisk(Scalar):
    """No record is down-weighted: not private.

    Parameters
    ----------
    name, pattern, words
        The name in published settings and statements; it uses no public columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.NoRisk()).private
    False
    """

    name: str = "none"
    words: str = "not looked at"

def risk_measure(
    name: str, *, radius: float, pattern: tuple[str, ...] = (), absolute: bool = False
) -> RiskMeasure:
    """Return the measure of that name; raise ``InputError`` for an unknown one."""
    if name in ("count", "pairwise"):
        kind = CountBased if name == "count" else Pairwise
        return kind(radius, pattern, absolute)
    simple: dict[str, Callable[[], RiskMeasure]] = {
        "lipschitz": Lipschitz,
        "scalar": Scalar,
        "none": NoRisk,
    }
    if name not in simple:
        known = get_args(RiskName)
        raise InputError(
            f"risk must be one of {', '.join(known)} or a risk measure, got {name!r}."
            f"{nearest(name, known) if isinstance(name, str) else ''}"
        )
    return simple[name]()


def check_radius(radius: float, *, absolute: bool) -> None:
    """Raise ``InputError`` unless the radius is positive and, if relative, at most 1."""
    if isinstance(radius, bool) or not isinstance(radius, int | float) or not radius > 0:
        raise InputError(f"radius must be a number above 0, got {radius!r}.")
    if not np.isfinite(radius):
        raise InputError(f"radius must be a finite number, got {radius!r}.")
    if not absolute and radius > 1:
        raise InputError(
            f"a relative radius is a share of the outcome, at most 1, got {radius!r}; for one in "
            "the units of the outcome ask for an absolute radius."
        )


def require_pattern(measure: RiskMeasure, frame: pd.DataFrame) -> None:
    """Raise ``InputError`` for columns of the pattern that are not public columns."""
    columns = [str(name) for name in frame.columns]
    for name in measure.pattern:
        if name not in columns:
            raise InputError(
                f"pattern of risk {measure.name!r}: {name!r} is not a public column of the survey."
                f"{nearest(name, columns)} Public are {listing(columns)}; others become public by "
                "public_columns."
            )


# --- weights from risks: pure arrays, one formula a function ----------------------------------


def capped(lipschitz_by_record: FloatArray, cap: float) -> FloatArray:
    """Return min(1, c / f_i), (n,): the weights whose record bounds are min(f_i, c).

    A record with infinite f_i gets 0; one with f_i = 0 gets 1.
    """
    return np.asarray(cap / np.maximum(lipschitz_by_record, cap))


def relative(lipschitz_by_record: FloatArray) -> FloatArray:
    """Return f~ = (f - min f)/(max f - min f) over the finite f ([R] Alg. 2), (n,), in [0, 1].

    All equal: 0. A record with infinite f keeps it.
    """
    finite = np.isfinite(lipschitz_by_record)
    values = lipschitz_by_record[finite]
    result = np.full(lipschitz_by_record.shape, np.inf)
    if values.size:
        low = values.min()
        spread = values.max() - low
        result[finite] = (values - low) / spread if spread > 0 else 0.0
    return result


def from_risks(risks: FloatArray, scale: float, shift: float) -> FloatArray:
    """Return clip(c (1 - risk) + g, 0, 1), (n,) ([R] Alg. 2 and 3); an infinite risk gets 0."""
    finite = np.isfinite(risks)
    kept = 1.0 - np.where(finite, risks, 1.0)
    return np.where(finite, np.clip(scale * kept + shift, 0.0, 1.0), 0.0)


def reweighted(
    risk_weights: FloatArray, bounds: FloatArray, target: float, factor: float
) -> FloatArray:
    """Return clip(k alpha_i Delta / L_i, 0, 1) ([R] Alg. 1, eq. 2.1), (n,); a weight of 0 stays 0.

    bounds L_i of the fit under ``risk_weights``; Delta = target; k = factor.
    """
    active = (risk_weights > 0) & (bounds > 0)
    ratio = np.divide(target, bounds, out=np.ones_like(bounds), where=active)
    return np.where(active, np.clip(factor * risk_weights * ratio, 0.0, 1.0), risk_weights)


# --- isolation of a value among others ---------------------------------------------------------


def ball_edges(
    centre: FloatArray, radius: float, *, absolute: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of the closed balls, (n,) each, non-decreasing in ``centre``.

    One product (and one sum) makes an end, so rounding cannot change the order of two ends.
    """
    negative = centre < 0
    if absolute:
        towards, away, reach = 1.0 - SLACK, 1.0 + SLACK, radius * (1.0 + SLACK)
    else:
        towards, away, reach = max(1.0 - radius - SLACK, 0.0), 1.0 + radius + SLACK, 0.0
    lower = centre * np.where(negative, away, towards) - reach
    upper = centre * np.where(negative, towards, away) + reach
    return lower, upper


def count_inside(
    values: FloatArray,
    value_pattern: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    ball_pattern: IntArray,
) -> IntArray:
    """Return the number of values of the ball's pattern within each [lower, upper], (balls,)."""
    first, last = _stretches(values, value_pattern, lower, upper, ball_pattern)
    return last - first


def count_risk(
    outcome: FloatArray, radius: float, pattern: IntArray, *, absolute: bool = False
) -> FloatArray:
    """Return IR_i, (n,): share of the records of i's pattern, i included, outside its ball.

    [R] Alg. 3.

    outcome (n,); pattern (n,): codes from 0.
    """
    lower, upper = ball_edges(outcome, radius, absolute=absolute)
    inside = count_inside(outcome, pattern, lower, upper, pattern)
    return np.asarray(1.0 - inside / np.bincount(pattern)[pattern])


def pairwise_risk(
    outcome: FloatArray, radius: float, pattern: IntArray, *, absolute: bool = False
) -> FloatArray:
    """Return 1 - mean over j != i of alpha_ij, (n,), within i's pattern ([S] eq. 7-9).

    alpha_ij is the share of the pattern's records that are in the ball of i, of j or of both. A
    record alone in its pattern has its count-based risk. Sums are whole numbers, hence exact.
    """
    order = np.lexsort((outcome, pattern))
    y, group = outcome[order], pattern[order]
    lower, upper = ball_edges(y, radius, absolute=absolute)
    first, last = _stretches(y, group, lower, upper, group)
    inside = last - first
    size = np.bincount(group)[group]
    prefix, ends = (np.concatenate([[0], np.cumsum(each)]) for each in (inside, np.bincount(group)))
    in_others = (prefix[ends[1:]] - prefix[ends[:-1]])[group] - inside
    in_either = (size - 1) * inside + in_others - _shared(first, last)
    partners = np.maximum(size - 1, 1)
    covered = np.where(size > 1, in_either / partners, inside) / size
    risk = np.empty(outcome.shape)
    risk[order] = 1.0 - covered
    return risk


def _stretches(
    values: FloatArray,
    value_pattern: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    ball_pattern: IntArray,
) -> tuple[IntArray, IntArray]:
    """Return positions [first, last) of each ball's records among values sorted by pattern.

    Ranks among the distinct values make whole-number keys, so one binary search serves all
    patterns at once.
    """
    distinct, rank = np.unique(values, return_inverse=True)
    width = distinct.size + 1
    keys = np.sort(value_pattern * width + rank)
    low = ball_pattern * width + np.searchsorted(distinct, lower, side="left")
    high = ball_pattern * width + np.searchsorted(distinct, upper, side="right")
    return np.searchsorted(keys, low), np.searchsorted(keys, high)


def _shared(first: IntArray, last: IntArray) -> IntArray:
    """Return the sum over j != i of the number of records in both balls, (n,), records sorted.

    Stretches of a later record begin and end no earlier, so i and a later j share max(0, last_i -
    first_j) records, and those j are neighbors too: two prefix sums. Stretches of different
    patterns have no records in common, as their positions show.
    """
    position = np.arange(first.size)
    firsts, lasts = (np.concatenate([[0], np.cumsum(each)]) for each in (first, last))
    end = np.searchsorted(first, last, side="left")
    later = (end - position - 1) * last - (firsts[end] - firsts[position + 1])
    begin = np.searchsorted(last, first, side="right")
    earlier = (lasts[position] - lasts[begin]) - (position - begin) * first
    return np.asarray(later + earlier)


def pattern_codes(frame: pd.DataFrame, pattern: tuple[str, ...], n: int) -> IntArray:
    """Return codes (n,) from 0 of the combinations of the columns; all 0 without columns."""
    codes = np.zeros(n, dtype=np.int64)
    for name in pattern:
        level, levels = pd.factorize(frame[name], use_na_sentinel=False)
        combined = codes * len(levels) + level
        codes = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return codes
