"""``[privacy]``: which mechanism, what it may cost, and its settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from surveysynth._support.messages import no_fixed_point, no_peak
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.mechanisms.pseudo_posterior.settings import DEFAULT_RADIUS
from surveysynth.spec.sections import Name, Names, Section

PSEUDO_POSTERIOR, NOISY_STATISTICS = "pseudo_posterior", "noisy_statistics"
DEFAULT_DELTA = 1e-6

#: Other defaults of noisy statistics: after the noise any number of datasets is free, and the ball
#: that records are clipped to has a radius that goes with the number of outcomes.
_NOISY_DEFAULTS = {"m": 20, "radius": None}
#: Datasets of each draw of noisy statistics, where the file says nothing: as many, but no more
#: records in all datasets, and one in any case. What datasets of a draw differ by is taken off the
#: variance for any number of them (strict 3); few make it, and intervals with it, less certain.
MOST_REPLICATES = 10
MOST_SIMULATED = 100_000_000
#: The variance between so few draws would have hardly any degrees of freedom.
LEAST_DRAWS = 10


class PrivacySection(Section):
    """``[privacy]``: the target epsilon and how it is reached (methods 2, strict).

    epsilon: the target; required, but where rho is given, which tells it. NaN stands for none.

    origin: None where it is not given; inference as in the papers then has theirs.

    radius: of the balls of count-based risks, relative, or of the ball that records are clipped to
    by noisy statistics, in spreads; None where it is not given. replicates_per_draw: of noisy
    statistics, where it is not given, that of a survey of few records (``for_records``).

    budget: what the ledger of the survey may add up to with this release: an epsilon, of noisy
    statistics at ``delta``, or a rho where ``rho`` is given.
    """

    mechanism: Literal["pseudo_posterior", "noisy_statistics"] = "pseudo_posterior"
    epsilon: Annotated[float, Field(gt=0)] = math.nan
    m: Annotated[int, Field(ge=1, le=1000)] = 3
    risk: Literal["lipschitz", "count", "pairwise", "scalar", "none"] = "lipschitz"
    weights: Literal["fixed_point", "linear"] = "fixed_point"
    scale: Annotated[float, Field(gt=0)] | None = None
    shift: Annotated[float, Field(ge=-1, le=1)] = 0.0
    reweight: bool = False
    radius: Annotated[float, Field(gt=0)] | None = DEFAULT_RADIUS
    pattern: Names = ()
    truncate: Annotated[float, Field(gt=0, le=1)] = 1.0
    origin: Literal["density", "peak"] | None = None
    small_strata: Literal["pool", "refuse", "allow"] = "pool"
    shared_weights: Literal["refuse", "allow"] = "refuse"
    replicates_per_draw: Annotated[int, Field(ge=1, le=1000)] = 4
    delta: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_DELTA
    rho: Annotated[float, Field(gt=0)] | None = None
    protect: Name = RECORD
    count_share: Annotated[float, Field(gt=0)] = 1.0
    budget: Annotated[float, Field(gt=0)] | None = None

    _linear_keys: ClassVar[tuple[str, ...]] = ("scale", "shift", "reweight")
    _pseudo_posterior_keys: ClassVar[tuple[str, ...]] = (
        "risk", "weights", *_linear_keys, "pattern", "truncate", "origin",
        "small_strata", "shared_weights",
    )  # fmt: skip
    _noisy_keys: ClassVar[tuple[str, ...]] = ("delta", "rho", "count_share")

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_mechanism(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {**_NOISY_DEFAULTS, **given} if given.get("mechanism") == NOISY_STATISTICS else given

    @field_validator("radius")
    @classmethod
    def _relative(cls, value: float | None, info: ValidationInfo) -> float | None:
        strict = info.data.get("mechanism") == NOISY_STATISTICS
        if not strict and (value is None or value > 1):
            raise ValueError(f"expected a number not greater than 1, got {value!r}.")
        return value

    @model_validator(mode="after")
    def _agree(self) -> "PrivacySection":
        if self.strict:
            self._check_strict()
        else:
            self._check_pseudo_posterior()
        if self.budget is not None and self.risk == "none":
            raise ValueError(
                "budget: risk = 'none' protects nothing and has no epsilon to count; leave one of "
                "them out."
            )
        return self

    def for_records(self, n: int) -> "PrivacySection":
        """The section for a survey of n records: fewer datasets of each draw where these are very
        many, unless their number is given."""
        if not self.strict or "replicates_per_draw" in self.model_fields_set:
            return self
        replicates = max(1, min(MOST_REPLICATES, MOST_SIMULATED // (self.m * n)))
        return self.model_copy(update={"replicates_per_draw": replicates})

    def _check_strict(self) -> None:
        if "replicates_per_draw" not in self.model_fields_set:
            # A frozen model has no other way to a default that depends on another key.
            object.__setattr__(self, "replicates_per_draw", MOST_REPLICATES)
        given = self._not_default(self._pseudo_posterior_keys)
        if given:
            raise ValueError(
                f"{', '.join(given)}: only for mechanism = 'pseudo_posterior'; noisy statistics "
                "weight no record down. Leave them out."
            )
        if self.m < LEAST_DRAWS:
            raise ValueError(
                f"m: noisy statistics need at least {LEAST_DRAWS} draws, got {self.m}: their "
                "spread is most of the standard errors, and after the noise draws cost nothing."
            )
        if self.rho is not None and "epsilon" in self.model_fields_set:
            raise ValueError(
                "rho and epsilon: give one of them; with delta each tells the other."
            )

    def _check_pseudo_posterior(self) -> None:
        given = self._not_default(self._noisy_keys)
        if given:
            raise ValueError(
                f"{', '.join(given)}: only for mechanism = 'noisy_statistics'; leave out or set "
                "mechanism."
            )
        if self.protect != RECORD:
            raise ValueError(
                f"protect: mechanism = 'pseudo_posterior' protects single records and cannot "
                f"promise more, got {self.protect!r}; leave it out or set mechanism = "
                "'noisy_statistics'."
            )
        if self.risk in ("count", "pairwise", "scalar") and self.weight_map == "fixed_point":
            raise ValueError(no_fixed_point(self.risk))
        if self.weight_map != "linear":
            given = [key for key in self._linear_keys if key in self.model_fields_set]
            if given:
                raise ValueError(
                    f"{', '.join(given)}: only for weights = 'linear', not for "
                    f"weights = {self.weight_map!r}; leave out or set weights = 'linear'."
                )
        if self.origin == "peak" and (self.weight_map == "linear" or self.truncate < 1):
            raise ValueError(no_peak())
        if self.risk not in ("count", "pairwise") and self._not_default(("radius", "pattern")):
            raise ValueError(
                "radius and pattern: only for risk = 'count' and 'pairwise', not for "
                f"risk = {self.risk!r}; leave them out or set risk."
            )

    def _not_default(self, keys: Sequence[str]) -> list[str]:
        """Those that differ from their defaults, which may be written out: anything else would be
        ignored silently."""
        fields = type(self).model_fields
        return [key for key in keys if getattr(self, key) != fields[key].default]

    @property
    def missing(self) -> list[str]:
        """That nothing says what a release may cost, if so."""
        if self.rho is not None or not math.isnan(self.epsilon):
            return []
        return [
            "privacy.epsilon: missing; it is what the whole release may cost, a decision that no "
            'default takes. Write it out, or with mechanism = "noisy_statistics" rho in its place.'
        ]

    @property
    def strict(self) -> bool:
        """Whether the mechanism is that of noisy statistics."""
        return self.mechanism == NOISY_STATISTICS

    @property
    def cost(self) -> Budget:
        """What a release by noisy statistics may cost: rho as given, or that of epsilon."""
        if self.rho is not None:
            return Budget.of_rho(self.rho, self.delta)
        return Budget.of_epsilon(self.epsilon, self.delta)

    @property
    def weight_map(self) -> Literal["fixed_point", "linear"]:
        """The map in force: as given, else the fixed point for the one measure that has it."""
        if "weights" in self.model_fields_set or self.risk in ("lipschitz", "none"):
            return self.weights
        return "linear"
