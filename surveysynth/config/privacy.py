"""``[privacy]``: which mechanism, what it may cost, and its settings.

Each mechanism has a section of its own. The rest of the package asks a section what its mechanism
does, never which one it is.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from surveysynth._support.messages import no_fixed_point, no_peak
from surveysynth.config.privacy_section import PrivacySection
from surveysynth.config.sections import Names
from surveysynth.mechanisms.base import Combining, Currency
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN, RECORD
from surveysynth.mechanisms.pseudo_posterior.settings import DEFAULT_RADIUS
from surveysynth.sampling.plan import SamplingPlan

PSEUDO_POSTERIOR, NOISY_STATISTICS = "pseudo_posterior", "noisy_statistics"
NO_MECHANISM = "no_mechanism"
DEFAULT_DELTA = 1e-6

#: Datasets of each draw of noisy statistics where the file gives no number: as many as this, but no
#: more than ``MOST_SIMULATED`` records in all datasets, and at least one. The variance between the
#: datasets of a draw is subtracted for any number of them (strict 3); with few of them that
#: variance, and hence the intervals, are less certain.
MOST_REPLICATES = 10
MOST_SIMULATED = 100_000_000
#: The variance between fewer draws would have hardly any degrees of freedom.
LEAST_DRAWS = 10


class PseudoPosteriorSection(PrivacySection):
    """The pseudo-posterior: records of high risk count less in the fit (methods 2).

    origin: None where it is not given; inference as in the papers then has theirs.
    """

    mechanism: Literal["noisy_statistics", "pseudo_posterior"] = "pseudo_posterior"
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
    """The treatment of levels with too few records for a coefficient, so that one record could
    move more than is stated: pool them for the model, refuse the release, or allow them outside
    the statement. Public: Which levels are pooled: a function of public cell sizes."""
    shared_weights: Literal["refuse", "allow"] = "refuse"
    """The treatment of weights that one record can set for all others: linear weights, which every
    risk but `lipschitz` has, and all weights of `normal_mixture`, whose fit one record can lead to
    another mode. The release is refused, or continues outside the statement to reproduce the
    papers. Public: The rule. With "allow", the statement reports that epsilon does
    not cover it."""

    promise: ClassVar[str] = (
        "risky records count less in the fit; an asymptotic epsilon, found on this survey; nothing "
        "to declare"
    )
    currency: ClassVar[Currency] = "epsilon"
    combining: ClassVar[Combining] = "partial_synthesis"
    down_weights: ClassVar[bool] = True
    rebuildable: ClassVar[bool] = False
    answers_every_survey: ClassVar[bool] = False
    needs_declared_scales: ClassVar[bool] = False
    default_plan: ClassVar[SamplingPlan] = SamplingPlan()
    _foreign: ClassVar[str] = (
        "only for mechanism = 'noisy_statistics'; leave out or set mechanism."
    )
    _linear_keys: ClassVar[tuple[str, ...]] = ("scale", "shift", "reweight")

    @field_validator("radius")
    @classmethod
    def _relative(cls, value: float | None) -> float | None:
        if value is None or value > 1:
            raise ValueError(f"expected a number not greater than 1, got {value!r}.")
        return value

    @model_validator(mode="after")
    def _agree(self) -> "PseudoPosteriorSection":
        given = self.model_fields_set
        if self.protect != RECORD:
            raise ValueError(
                f"protect: mechanism = 'pseudo_posterior' protects single records and cannot "
                f"promise more, got {self.protect!r}; leave it out or set mechanism = "
                "'noisy_statistics'."
            )
        if self.risk in ("count", "pairwise", "scalar") and self.weight_map == "fixed_point":
            raise ValueError(no_fixed_point(self.risk))
        if self.weight_map != "linear" and (wrong := [k for k in self._linear_keys if k in given]):
            raise ValueError(
                f"{', '.join(wrong)}: only for weights = 'linear', not for "
                f"weights = {self.weight_map!r}; leave out or set weights = 'linear'."
            )
        if self.origin == "peak" and (self.weight_map == "linear" or self.truncate < 1):
            raise ValueError(no_peak())
        of_counts = self.radius != DEFAULT_RADIUS or bool(self.pattern)
        if of_counts and self.risk not in ("count", "pairwise"):
            raise ValueError(
                "radius and pattern: only for risk = 'count' and 'pairwise', not for "
                f"risk = {self.risk!r}; leave them out or set risk."
            )
        if self.budget is not None and not self.private:
            raise ValueError(
                "budget: risk = 'none' protects nothing and has no epsilon to count; leave one of "
                "them out."
            )
        return self

    @property
    def private(self) -> bool:
        """False for risk "none"."""
        return self.risk != "none"

    @property
    def weight_map(self) -> Literal["fixed_point", "linear"]:
        """The given map, else the fixed point for the one risk measure that has it."""
        if "weights" in self.model_fields_set or self.risk in ("lipschitz", "none"):
            return self.weights
        return "linear"

    @property
    def pattern_columns(self) -> tuple[str, ...]:
        """The pattern."""
        return self.pattern

    @property
    def risk_lines(self) -> list[str]:
        """Risk measure, radius, and pattern."""
        if self.risk in ("count", "pairwise"):
            same = ", ".join(self.pattern) or "none, all records together"
            return [
                f"Risk: {self.risk}, radius {self.radius:g} of the outcome, pattern {same}; "
                "linear weights."
            ]
        return [f"Risk: {self.risk}; linear weights."] if self.weight_map == "linear" else []


class NoisyStatisticsSection(PrivacySection):
    """Noisy statistics: exact noise on sums, and draws from the noisy sums (strict)."""

    mechanism: Literal["noisy_statistics", "pseudo_posterior"] = "noisy_statistics"
    m: Annotated[int, Field(ge=1, le=1000)] = 20
    radius: Annotated[float, Field(gt=0)] | None = None
    replicates_per_draw: Annotated[int, Field(ge=1, le=1000)] = MOST_REPLICATES
    delta: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_DELTA
    """For noisy statistics: the probability that epsilon is exceeded. It should be far below one
    over the number of records. Public: The number."""
    rho: Annotated[float, Field(gt=0)] | None = None
    """For noisy statistics: the budget of zero-concentrated differential privacy, given instead of
    epsilon. Default: that of epsilon and delta. Public: The number."""
    count_share: Annotated[float, Field(gt=0)] = 1.0
    """For noisy statistics with categories or spikes: a number above 1 makes counts more precise
    and sums of amounts less precise. Public: The number."""

    promise: ClassVar[str] = (
        "exact noise on sums; (epsilon, delta), proved for every survey of any size; declare a "
        "public range of each amount, or its centre and spread"
    )
    currency: ClassVar[Currency] = "rho"
    combining: ClassVar[Combining] = "total_variance"
    down_weights: ClassVar[bool] = False
    rebuildable: ClassVar[bool] = True
    answers_every_survey: ClassVar[bool] = True
    needs_declared_scales: ClassVar[bool] = True
    default_plan: ClassVar[SamplingPlan] = NOISY_PLAN
    _foreign: ClassVar[str] = (
        "only for mechanism = 'pseudo_posterior'; noisy statistics weight no record down. Leave "
        "them out."
    )

    @model_validator(mode="before")
    @classmethod
    def _published_defaults(cls, given: Any) -> Any:
        """Write out two defaults that are published with the specification.

        Raises ``ValueError`` for a key of earlier versions."""
        if isinstance(given, Mapping) and "psu_share" in given:
            raise ValueError(
                "psu_share: the share of the budget that says how much primary sampling units "
                "differ follows from their sizes, so no key is needed. Leave it out."
            )
        if isinstance(given, Mapping) and "modules" in given:
            raise ValueError(
                "modules: outcomes that are apart are in releases of their own, in one ledger. "
                "Make a release of each list, with its share of the budget, and name the first "
                "in the others: weights = \"release:PATH\" in [survey], so that no cell has two "
                "counts."
            )
        return {"m": 20, "radius": None, **given} if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _agree(self) -> "NoisyStatisticsSection":
        if self.m < LEAST_DRAWS:
            raise ValueError(
                f"m: noisy statistics need at least {LEAST_DRAWS} draws, got {self.m}: their "
                "spread is most of the standard errors, and after the noise draws cost nothing."
            )
        if self.rho is not None and "epsilon" in self.model_fields_set:
            raise ValueError(
                "rho and epsilon: give one of them; with delta each determines the other."
            )
        return self

    def for_records(self, n: int) -> "NoisyStatisticsSection":
        """Return the section with fewer datasets of each draw where n records are very many.

        Unless their number is given."""
        if "replicates_per_draw" in self.model_fields_set:
            return self
        replicates = max(1, min(MOST_REPLICATES, MOST_SIMULATED // (self.m * n)))
        return self.model_copy(update={"replicates_per_draw": replicates})

    @property
    def rho_given(self) -> float | None:
        """The rho of the file, where it has one."""
        return self.rho

    @property
    def cost(self) -> Budget:
        """The budget of the noise: rho as given, or that of epsilon."""
        if self.rho is not None:
            return Budget.of_rho(self.rho, self.delta)
        return Budget.of_epsilon(self.epsilon, self.delta)

    @property
    def stated_epsilon(self) -> float:
        """The epsilon of the budget, at its delta."""
        return self.cost.epsilon


#: The section of each mechanism; the one that ``surveysynth init`` proposes comes first.
SECTIONS: tuple[type[PrivacySection], ...] = (NoisyStatisticsSection, PseudoPosteriorSection)
#: Keys of all mechanisms.
PRIVACY_KEYS = tuple(
    dict.fromkeys(key for each in reversed(SECTIONS) for key in each.model_fields)
)


#: What each mechanism promises and requires, by name, in a line.
PROMISES: dict[str, str] = {
    each.model_fields["mechanism"].default: each.promise for each in SECTIONS
}


def as_pseudo_posterior(privacy: PrivacySection) -> PseudoPosteriorSection:
    """Return a section with the pseudo-posterior: itself, or defaults at that epsilon.

    The promises differ.
    """
    if isinstance(privacy, PseudoPosteriorSection):
        return privacy
    return PseudoPosteriorSection(epsilon=privacy.stated_epsilon)


def as_noisy_statistics(privacy: PrivacySection) -> NoisyStatisticsSection:
    """Return a section with noisy statistics at the same epsilon: itself, or the defaults."""
    if isinstance(privacy, NoisyStatisticsSection):
        return privacy
    return NoisyStatisticsSection(epsilon=privacy.epsilon)


def _mechanism(given: Any) -> str:
    """Return the mechanism that a section names; none without a valid name."""
    if isinstance(given, Mapping):
        named = given.get("mechanism")
    else:
        named = getattr(given, "mechanism", None)
    return named if named in (NOISY_STATISTICS, PSEUDO_POSTERIOR) else NO_MECHANISM


Privacy: TypeAlias = Annotated[
    Annotated[PseudoPosteriorSection, Tag(PSEUDO_POSTERIOR)]
    | Annotated[NoisyStatisticsSection, Tag(NOISY_STATISTICS)]
    | Annotated[PrivacySection, Tag(NO_MECHANISM)],
    Discriminator(_mechanism),
]
"""``[privacy]`` of a specification: the section of its mechanism.

The common section finds the mistakes of a file that names no mechanism, and accepts none.
"""


def without_tag(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the place of a key without the mechanism that pydantic puts into it."""
    tagged = location[:1] == ("privacy",) and location[1:2] in (
        (PSEUDO_POSTERIOR,), (NOISY_STATISTICS,), (NO_MECHANISM,)
    )  # fmt: skip
    return (*location[:1], *location[2:]) if tagged else location
