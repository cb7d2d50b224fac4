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

    epsilon is NaN where the file has none. origin is None where it is not given; inference as in
    the papers then has theirs. radius is None where it is not given. ``for_records`` gives noisy
    statistics of many records fewer replicates_per_draw.
    """

    about = (
        "The mechanism, the privacy cost of a release, and how the cost is spent. All of it is "
        "published in privacy.json."
    )

    mechanism: Literal["pseudo_posterior", "noisy_statistics"] = "pseudo_posterior"
    """"pseudo_posterior" gives risky records less weight in the fit; its epsilon is asymptotic.
    "noisy_statistics" adds exact noise to sums; its guarantee is proved for every survey of any
    size. Public: The mechanism."""
    epsilon: Annotated[float, Field(gt=0)] = math.nan
    """The privacy cost of the whole release: all draws, tables and microdata together. The epsilon
    of the pseudo-posterior is asymptotic; that of noisy statistics belongs to `delta`. Default:
    required, or `rho`. Public: The number, which is the target and an upper bound. The realised
    epsilon is confidential."""
    m: Annotated[int, Field(ge=1, le=1000)] = 3
    """The number of draws of the model from which data are synthesised. With the pseudo-posterior
    each draw costs epsilon / m, so more draws lower the weights of records further. With noisy
    statistics draws are free, and at least 10 are required. Public: The number, and the synthetic
    data of m draws."""
    risk: Literal["lipschitz", "count", "pairwise", "scalar", "none"] = "lipschitz"
    """How to measure the risk of a record: by its log-likelihood ("lipschitz"), by the number of
    records near it ("count", "pairwise"), the same for all ("scalar"), or not at all ("none": no
    protection). Public: The measure. The risks themselves are confidential."""
    weights: Literal["fixed_point", "linear"] = "fixed_point"
    """How risks become powers of the likelihood: iterated until every bound is below its cap, or by
    the linear map of the papers, in which one outlier can move all weights. Default: "fixed_point"
    for `lipschitz`, otherwise "linear". Public: The rule."""
    scale: Annotated[float, Field(gt=0)] | None = None
    """For linear weights: the factor c. Default: found for the target. Public: The number, if it is
    given."""
    shift: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """For linear weights: the constant g that is added. Public: The number."""
    reweight: bool = False
    """For linear weights: raise the weights of records whose bound is below the largest, once.
    Public: Whether it was done."""
    radius: Annotated[float, Field(gt=0)] | None = DEFAULT_RADIUS
    """For `count` and `pairwise`: the radius of the ball around a value within which another value
    is near, relative to the value. For noisy statistics: the radius of the ball that records are
    clipped to, in spreads. Default: 0.2; noisy statistics: a ball that holds 99.5% of normal
    records. Public: The number."""
    pattern: Names = ()
    """For `count` and `pairwise`: public columns that an intruder is assumed to know. Records are
    compared with those that agree on them. Type: list of names of columns. Default: none: all
    records. Public: The columns, which are public anyway."""
    truncate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of draws to keep, those with the smallest bounds. Only kept draws may be released.
    Public: The share. Which draws are left out depends on the data, as the statement reports."""
    origin: Literal["density", "peak"] | None = None
    """The zero of log-likelihoods: that of the papers, or a value near the largest of them, so that
    typical records keep their weight in any units. Default: "peak" with fixed-point weights,
    otherwise "density". Public: The rule."""
    small_strata: Literal["pool", "refuse", "allow"] = "pool"
    """What to do with levels on which too few records inform a coefficient, so that one record
    could move more than is stated: pool them for the model, refuse the release, or allow them
    outside of what the statement covers. Public: Which levels are pooled: a function of public cell
    sizes."""
    shared_weights: Literal["refuse", "allow"] = "refuse"
    """What to do with weights that one record can set for all others: linear weights, which every
    risk but `lipschitz` has, and all weights of `normal_mixture`, whose fit one record can lead to
    another mode. The release is refused, or continues outside of what the statement covers, to
    reproduce the papers. Public: The rule. With "allow", the statement reports that epsilon does
    not cover it."""
    replicates_per_draw: Annotated[int, Field(ge=1, le=1000)] = 4
    """The number of synthetic surveys of each draw. They are free, and lower the noise of
    synthesis. Default: 4; noisy statistics: 10, or as many as make 100 million records in all.
    Public: As many microdata files of each draw."""
    delta: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_DELTA
    """For noisy statistics: the probability that epsilon is exceeded. It should be far below one
    over the number of records. Public: The number."""
    rho: Annotated[float, Field(gt=0)] | None = None
    """For noisy statistics: the budget of zero-concentrated differential privacy, given instead of
    epsilon. Default: that of epsilon and delta. Public: The number."""
    protect: Name = RECORD
    """For noisy statistics: the unit of protection, a record or all records with one label, such as
    a household. Noise grows with the largest unit. Type: "record" or the name of a public column.
    Public: Which records belong together, and the size of the largest unit."""
    count_share: Annotated[float, Field(gt=0)] = 1.0
    """For noisy statistics with categories or spikes: a number above 1 makes counts more precise
    and sums of amounts less precise. Public: The number."""
    budget: Annotated[float, Field(gt=0)] | None = None
    """The largest total of the survey's ledger. A release that would exceed it is refused before
    outcomes are read. Public: Nothing: it is kept with the ledger."""

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
