"""Risk measures (methods 2): small frozen objects that say how risky each record is.

A measure is public, the risks that it finds are confidential. All are mapped to weights alike,
alpha = clip(scale (1 - risk) + shift, 0, 1), and can be re-weighted; the fixed point belongs to
``Lipschitz`` alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, nearest, records
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior import ball_counts
from surveysynth.mechanisms.pseudo_posterior.weights import relative

RiskName = Literal["lipschitz", "count", "pairwise", "scalar", "none"]


@dataclass(frozen=True, eq=False, repr=False)
class RiskData(Unpickled):
    """The values that a risk measure may use.

    outcome (n, p) in original units; lipschitz f_i (n,) of the unweighted fit; frame: the n
    rows of public columns. Confidential but for the frame."""

    outcome: FloatArray
    lipschitz: FloatArray
    frame: pd.DataFrame


class RiskMeasure(Protocol):
    """A measure of how risky each record is, in [0, 1]; everything but ``risks`` is public."""

    @property
    def name(self) -> str:
        """In specifications and statements."""

    @property
    def pattern(self) -> tuple[str, ...]:
        """The public columns that an intruder is taken to know."""

    @property
    def settings(self) -> dict[str, Any]:
        """The other settings of the measure, JSON-ready."""

    @property
    def words(self) -> str:
        """The risk of a record in words, for statements: "the risk of a record is ..."."""

    def risks(self, data: RiskData) -> FloatArray:
        """Return risks (n,) in [0, 1].

        Records with an infinite f_i have left the likelihood already; their risk does not
        matter."""


@dataclass(frozen=True)
class Lipschitz:
    """The risk of the largest log-likelihood ([R] Alg. 2).

    f_i = max_s abs(log_lik[s, i]) of the unweighted fit, from 0 for the smallest to 1 for the
    largest. Its default weights are those of the fixed point, not of this map.

    Parameters
    ----------
    name, pattern
        In published settings; it looks at no public columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.Lipschitz()).weights
    'fixed_point'
    """

    name: str = "lipschitz"
    pattern: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """None."""
        return {}

    @property
    def words(self) -> str:
        """For statements."""
        return "the largest absolute value of its log-likelihood over the posterior draws"

    def risks(self, data: RiskData) -> FloatArray:
        """Return (f_i - min f)/(max f - min f), (n,)."""
        return relative(data.lipschitz)


@dataclass(frozen=True)
class CountBased:
    """The share of the records of i's pattern whose outcome lies outside its ball ([R] Alg. 3).

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
        Whether the radius is in the outcome's units; the name in published settings.

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
        return self._over_outcomes(ball_counts.count_risk, data)

    def _over_outcomes(
        self, function: Callable[..., FloatArray], data: RiskData
    ) -> FloatArray:
        if data.outcome.shape[1] == 0:
            raise InputError(
                f"risk {self.name!r} looks at outcomes, and the database was given without them."
            )
        codes = ball_counts.pattern_codes(data.frame, self.pattern, len(data.outcome))
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

    1 - mean over the other records j of i's pattern of the share of records that lie in the
    ball of i or in that of j. A record alone in its pattern has its count-based risk.

    Parameters
    ----------
    radius, pattern, absolute, name
        As of ``CountBased``.

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
        return self._over_outcomes(ball_counts.pairwise_risk, data)


@dataclass(frozen=True)
class Scalar:
    """Every record alike: alpha = Delta*/Delta, the exponential mechanism ([P] 3.2).

    Parameters
    ----------
    name, pattern
        In published settings; it looks at no public columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.Scalar()).private
    True
    """

    name: str = "scalar"
    pattern: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """None."""
        return {}

    @property
    def words(self) -> str:
        """For statements."""
        return "the same for every record, that of the record with the largest bound"

    def risks(self, data: RiskData) -> FloatArray:
        """Return 0 for every record."""
        return np.zeros(data.lipschitz.shape)


@dataclass(frozen=True)
class NoRisk(Scalar):
    """No record is weighted down: not private.

    Parameters
    ----------
    name, pattern
        In published settings; it looks at no public columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, risk=ss.NoRisk()).private
    False
    """

    name: str = "none"

    @property
    def words(self) -> str:
        """For statements."""
        return "not looked at"


@dataclass(frozen=True)
class OwnRisk:
    """A measure of the caller's own.

    Parameters
    ----------
    function
        ``function(outcome, frame)`` with the outcomes (n, p) in original units and the frame of
        public columns gives risks (n,) in [0, 1].
    name, description
        Published ("the share of ..."); so is, by assumption, the function.
    pattern
        Public columns that it looks at.

    Raises
    ------
    InputError
        For the name of a measure that is built in, or answers that are no risks.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> top = ss.OwnRisk(
    ...     lambda outcome, frame: (outcome[:, 0] > 200_000).astype(float), name="top earners"
    ... )
    >>> ss.MechanismSettings(epsilon=10.8, risk=top).weights
    'linear'
    """

    function: Callable[[FloatArray, pd.DataFrame], Any]
    name: str = "own"
    description: str = "given by a function of the data"
    pattern: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name in get_args(RiskName) or not self.name.strip():
            raise InputError(
                f"name of a risk measure of your own: {self.name!r} is taken or blank; "
                "choose another word."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Its description."""
        return {"description": self.description}

    @property
    def words(self) -> str:
        """For statements."""
        return self.description

    def risks(self, data: RiskData) -> FloatArray:
        """Return the function's answer, checked; raise ``InputError`` without showing a value."""
        outcome = data.outcome.view()
        outcome.setflags(write=False)
        return checked_risks(self.function(outcome, data.frame), len(outcome), self.name)


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


def checked_risks(answer: Any, n: int, name: str) -> FloatArray:
    """Return risks (n,) as numbers in [0, 1]; raise ``InputError`` that counts and shows none."""
    try:
        risks = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"risk {name!r}: expected an array of numbers, one a record.") from None
    if risks.shape != (n,):
        raise InputError(
            f"risk {name!r}: expected an array of shape ({n},), one risk a record, got shape "
            f"{risks.shape}."
        )
    outside = int(np.count_nonzero(~((risks >= 0) & (risks <= 1))))
    if outside:
        raise InputError(
            f"risk {name!r}: risks must be in [0, 1]; they are not for {records(outside)}. "
            "Scale them by constants that do not depend on the data."
        )
    return risks
