"""The price of a release: epsilon = 2 m max(Delta, max osc) (methods 2)."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from surveysynth._support.messages import no_fixed_point, no_peak
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.base import Settings
from surveysynth.mechanisms.pseudo_posterior.risk import RiskMeasure, RiskName, risk_measure
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.design_matrix import records_per_coefficient
from surveysynth.survey.pooling import ROUNDING
from surveysynth.survey.survey import PublicDesign

WeightMap = Literal["fixed_point", "linear"]
Origin = Literal["density", "peak"]
Allowed = Literal["small_strata", "shared_weights"]

#: Where log-likelihoods are measured from unless a setting says so.
DEFAULT_ORIGIN: Origin = "peak"
#: The share of its target that linear weights must use at least, and fixed-point weights try to:
#: theirs may end lower where the cap has to fall. None ever uses more than all of it.
LEAST_SHARE = 0.97
#: Records per coefficient of every row of X at a bound of 1.8: with half of it one record moves the
#: posterior by more than is stated. Larger bounds take fewer in proportion; smaller ones take more
#: by the power 3/2, since they take weight from all records (methods 2.10).
RECORDS, AT_BOUND = 20.0, 1.8
#: What the prior of a count is worth at the same bound.
PSEUDO_RECORDS = 10.0
#: Relative: the ball of 50,000 is 40,000 to 60,000 ([S]).
DEFAULT_RADIUS = 0.2


def epsilon_of(bound: float, m: int) -> float:
    """Return epsilon = 2 m times the bound on max(Delta, max osc) of one draw."""
    return 2.0 * m * bound


def own_settings(settings: Settings) -> "MechanismSettings":
    """Return the settings if they are this mechanism's; raise ``InputError`` for another's."""
    if not isinstance(settings, MechanismSettings):
        raise InputError(
            "these draws are from another mechanism, which weights no record down: use draws of "
            "the pseudo-posterior."
        )
    return settings


@dataclass(frozen=True)
class MechanismSettings:
    """All settings of the mechanism, fixed before the data are seen and hence public.

    Parameters
    ----------
    epsilon
        The target of the whole release of m draws. There is no default.
    m
        Number of released draws.
    risk
        The name of a measure, or a measure itself (``CountBased`` ...).
    weights
        None stands for the fixed point if risk is "lipschitz", the only measure that has it, and
        otherwise for the linear map.
    scale, shift, reweight
        Scale of the linear map; None finds the scale that meets the target.
    radius, absolute_radius, pattern
        Settings of the measures "count" and "pairwise".
    truncate
        Quantile of the draws' largest bounds above which draws are dropped (1: none).
    origin
        Where log-likelihoods are measured from: "density", from the unit of the density as in the
        papers, or "peak", from near the mode of the records' densities, which fixed-point weights
        alone have. None stands for "peak" if weights are the fixed point and no draw is
        truncated, otherwise for "density".
    allow
        What is accepted outside the statement, as the papers do. "small_strata": levels and rows of
        X that rest on fewer than ``least_records``, whose coefficients ``prepared`` removes
        otherwise. "shared_weights": weights that one record sets for all, which are linear weights,
        by its risk or bound, and those of a mixture, whose fit it can move to another mode;
        otherwise ``prepared`` raises for the first, and ``run`` for such a model.
    plan
        Size of a fit.

    Raises
    ------
    InputError
        For values out of range and settings without effect.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.MechanismSettings(epsilon=10.8, m=3).target_bound
    1.8
    """

    epsilon: float
    m: int = 3
    risk: RiskName | RiskMeasure = "lipschitz"
    weights: WeightMap | None = None
    scale: float | None = None
    shift: float = 0.0
    reweight: bool = False
    radius: float = DEFAULT_RADIUS
    absolute_radius: bool = False
    pattern: tuple[str, ...] = ()
    truncate: float = 1.0
    origin: Origin | None = None
    allow: tuple[Allowed, ...] = ()
    plan: SamplingPlan = field(default_factory=SamplingPlan)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", tuple(self.pattern))
        given = self.radius != DEFAULT_RADIUS or self.absolute_radius or bool(self.pattern)
        if given and self.risk not in ("count", "pairwise"):
            raise InputError(
                "radius, absolute_radius and pattern belong to risk = 'count' and 'pairwise', got "
                f"{self.risk!r}; leave them out or set risk. A measure that is an object has its "
                "own."
            )
        self._resolve_weights(self.measure.name)
        if not (np.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon must be a positive number, got {self.epsilon!r}.")
        if not isinstance(self.m, int) or self.m < 1:
            raise InputError(
                "m, the number of released draws, must be a whole number of at least 1, "
                f"got {self.m!r}."
            )
        if not 0 < self.truncate <= 1:
            raise InputError(f"truncate must be above 0 and at most 1, got {self.truncate!r}.")
        of_papers = self.weights == "linear" or self.truncate < 1
        if self.origin is None:
            object.__setattr__(self, "origin", "density" if of_papers else DEFAULT_ORIGIN)
        self._check_word("origin", Origin)
        if self.origin == "peak" and of_papers:
            raise InputError(no_peak())
        if unknown := set(self.allow) - set(get_args(Allowed)):
            known = " and ".join(map(repr, get_args(Allowed)))
            raise InputError(f"allow may name {known}, got {min(unknown)!r}.")
        if self.m > self.kept_draws:
            raise InputError(
                f"m = {self.m} draws cannot be released from {self.kept_draws} kept draws"
                f"{' after truncation' if self.truncate < 1 else ''}: raise draws or lower m."
            )

    def _check_word(self, name: str, words: Any) -> None:
        known, value = get_args(words), getattr(self, name)
        if value not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}.")

    def _resolve_weights(self, risk: str) -> None:
        """Choose the map that is not given, and check it and what belongs to the linear one."""
        has_fixed_point = risk in ("lipschitz", "none")
        if self.weights is None:
            chosen = "fixed_point" if has_fixed_point else "linear"
            object.__setattr__(self, "weights", chosen)
        self._check_word("weights", WeightMap)
        if self.weights == "fixed_point" and not has_fixed_point:
            raise InputError(no_fixed_point(risk))
        if self.scale is not None and not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale of linear weights must be positive, got {self.scale!r}.")
        if not -1 <= self.shift <= 1:
            raise InputError(f"shift of linear weights must be in [-1, 1], got {self.shift!r}.")
        given = self.scale is not None or self.shift != 0 or self.reweight
        if self.weights == "fixed_point" and given:
            raise InputError(
                "scale, shift and reweight belong to weights = 'linear'; fixed-point weights are "
                "set by epsilon and m alone."
            )

    @property
    def measure(self) -> RiskMeasure:
        """The risk measure; raises ``InputError`` for an unknown name or a bad radius."""
        risk = self.risk
        if not isinstance(risk, str) and hasattr(risk, "risks"):
            return risk
        return risk_measure(
            str(risk), radius=self.radius, pattern=self.pattern, absolute=self.absolute_radius
        )

    @property
    def kept_draws(self) -> int:
        """Draws that may generate data: all S, or under truncation the share that is kept."""
        return int(self.truncate * self.plan.kept)

    @property
    def target_bound(self) -> float:
        """Delta* = epsilon / (2 m), the target of max(Delta, max osc) of one draw."""
        return self.epsilon / (2.0 * self.m)

    @property
    def private(self) -> bool:
        """False under risk "none": alpha = 1 and no epsilon is claimed."""
        return self.measure.name != "none"

    @property
    def shares_weights(self) -> bool:
        """True if one record can set the weights of all others (methods 2.5)."""
        return self.private and self.weights == "linear"

    def shares_weights_of(self, model: WeightedModel) -> bool:
        """Return whether one record can set the weights of all others for this model.

        A model whose posterior has many modes shares them, whatever the map (methods 2.6)."""
        return self.shares_weights or (self.private and not model.identified)

    @property
    def least_records(self) -> float:
        """The records that every row of X must rest on (methods 2.10).

        20 at a bound of 1.8, 89 at one of 2/3, by public settings alone."""
        ratio = AT_BOUND / self.target_bound
        return float(RECORDS * max(ratio, ratio**1.5))

    def least_records_of(self, design: PublicDesign) -> float:
        """Return the same for the model of a design, in proportion to its dispersion."""
        return self.least_records * design.dispersion

    @property
    def pseudo_records(self) -> float:
        """The records that the prior of a count is worth (methods 2.11).

        10 at a bound of 1.8, 30 at one of 0.6, by public settings alone."""
        return float(PSEUDO_RECORDS * max(AT_BOUND / self.target_bound, 1.0))

    def prepared(self, design: PublicDesign) -> PublicDesign:
        """Return the design that the mechanism takes: small strata pooled, with pseudo-records.

        Parameters
        ----------
        design
            The public half of a survey, the only part that is read.

        Returns
        -------
        PublicDesign
            With pseudo-records; the same where small strata are allowed or nothing is protected
            (``risk`` is "none").

        Raises
        ------
        RefusedError
            Where pooling cannot give enough; for weights that one record sets for all, unless they
            are allowed.

        Examples
        --------
        >>> import surveysynth as ss
        >>> design = ss.example_survey(n=200).design
        >>> ss.MechanismSettings(epsilon=10.8).prepared(design).pooling.levels
        {'field': {'2': 6, '3': 8, '5': 22, '8': 10}}
        """
        self._require_own_weights()
        if self._as_they_are:
            return design
        least = self.least_records_of(design)
        try:
            made = design.pooled(least)
        except RefusedError as refusal:
            raise RefusedError(
                f"{refusal} A larger epsilon or a smaller m asks for fewer: "
                f"{least:.3g} records are those of a bound of "
                f"{self.target_bound:.3g} a draw."
            ) from None
        pseudo = self.pseudo_records
        return made if made.pseudo == pseudo else replace(made, pseudo=pseudo)

    @property
    def _as_they_are(self) -> bool:
        """True if small strata are kept: they are allowed, or nothing is claimed."""
        return "small_strata" in self.allow or not self.private

    def require_identified(self, model: WeightedModel) -> None:
        """Raise ``RefusedError`` for weights that one record sets in an unidentified model.

        Raised unless it is allowed. ``prepared`` refuses linear weights."""
        if self.private and not model.identified and "shared_weights" not in self.allow:
            raise RefusedError(
                f"one record can move the fit of {model.name!r} to another mode, and with it the "
                "weights of all others: that was measured to move the result by more than ten "
                "times what is stated, at 300 to 3,000 records. Use another model, such as 'fbs', "
                "or set allow = ['shared_weights'], which is outside of what is stated."
            )

    def _require_own_weights(self) -> None:
        if self.shares_weights and "shared_weights" not in self.allow:
            raise RefusedError(
                "with weights = 'linear' one record can set the weights of all others, and was "
                "measured to move the result by more than ten times what is stated: take weights = "
                "'fixed_point' with risk = 'lipschitz', the default, or set allow = "
                "['shared_weights'], which is outside the statement."
            )

    def require_prepared(self, design: PublicDesign) -> None:
        """Raise ``RefusedError`` for a row that too few records support, and for shared weights.

        Raised unless each is allowed. Shared weights are those that one record sets for all."""
        self._require_own_weights()
        least = self.least_records_of(design)
        smallest = float(records_per_coefficient(design.matrix).min())
        if not self._as_they_are and smallest < least * (1.0 - ROUNDING):
            raise RefusedError(
                f"{smallest:.1f} records support some row of the model matrix, and {least:g} are "
                "required: use the design that settings.prepared(design) returns, or set "
                "allow = ['small_strata'], which is outside the statement."
            )
