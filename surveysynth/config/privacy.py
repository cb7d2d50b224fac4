"""``[privacy]``: which mechanism, what it may cost, and its settings.

Each mechanism has a section of its own. The rest of the package asks a section what its mechanism
does, never which one it is.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from surveysynth.config.sections import Name, Names, Section, as_tuple, distinct
from surveysynth.errors import InputError
from surveysynth.mechanisms.base import Combining, Currency
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN, RECORD
from surveysynth.mechanisms.pseudo_posterior.settings import (
    DEFAULT_RADIUS,
    Allowed,
    MechanismSettings,
)
from surveysynth.sampling.plan import SamplingPlan


class PrivacySection(Section):
    """``[privacy]`` without the keys of a single mechanism; each mechanism has a subclass.

    epsilon is NaN where none is given. radius is None for a ball by the number of outcomes.
    """

    about = "The mechanism, the privacy cost and how it is spent. All is published in privacy.json."

    mechanism: Literal["noisy_statistics", "pseudo_posterior"]
    """"noisy_statistics" adds exact noise to sums; its guarantee is proved for every survey of any
    size. "pseudo_posterior" gives risky records less weight in the fit; its epsilon is asymptotic.
    The promises differ, so the choice has no default. Default: required. Public: The mechanism."""
    epsilon: Annotated[float, Field(gt=0)] = math.nan
    """The privacy cost of the whole release: all draws, tables and microdata together. The epsilon
    of the pseudo-posterior is asymptotic; that of noisy statistics belongs to `delta`. Default:
    required, or `rho`. Public: The number, which is the target and an upper bound. The realized
    epsilon is confidential."""
    m: Annotated[int, Field(ge=1, le=1000)] = 3
    """The number of draws of the model from which data are synthesized. With the pseudo-posterior
    each draw costs epsilon / m, so more draws lower the weights of records further. With noisy
    statistics draws are free, and at least 10 are required. Public: The number, and the synthetic
    data of m draws."""
    radius: Annotated[float, Field(gt=0)] | None = DEFAULT_RADIUS
    """For `count` and `pairwise`: the radius of the ball around a value within which another value
    is near, relative to the value. For noisy statistics: the radius of the ball that records are
    clipped to, in spreads. Default: 0.2; noisy statistics: a ball that holds 99.5% of normal
    records, or 95% to 99.5% by public numbers where all amounts are learned, and about centers of
    groups. A smaller ball has less noise, and a bias by clipping that no interval shows. Public:
    The number."""
    replicates_per_draw: Annotated[int, Field(ge=1, le=1000)] = 4
    """The number of synthetic surveys of each draw. They are free, and lower the noise of
    synthesis. Default: 4; noisy statistics: 10, or as many as make 100 million records in all.
    Public: As many microdata files of each draw."""
    protect: Name = RECORD
    """For noisy statistics: the unit of protection, a record or all records with one label, such as
    a household. Noise grows with the largest unit. Type: "record" or the name of a public column.
    Public: Which records belong together, and the size of the largest unit."""
    budget: Annotated[float, Field(gt=0)] | None = None
    """The largest total of the survey's ledger. A release that would exceed it is refused before
    outcomes are read. Public: Nothing: it is kept with the ledger."""

    #: What the mechanism promises, and what must be declared for it.
    promise: ClassVar[str]
    #: Sums have noise, and all else follows from them: no survey is refused for what its
    #: confidential columns hold, and the noise is measured by declared ranges, or centers and
    #: spreads. Else records weigh less in the fit.
    adds_noise: ClassVar[bool]
    #: Size of a fit where the file gives none.
    default_plan: ClassVar[SamplingPlan]
    #: How an error names the mechanism that keys belong to, and what this one does in their place.
    _foreign: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _without_foreign_keys(cls, given: Any) -> Any:
        """Refuse keys of the other mechanism unless they have their default.

        The rest would be ignored silently. Without a mechanism no key is foreign."""
        if not isinstance(given, Mapping):
            return given
        foreign = {
            name: field.default
            for section in PrivacySection.__subclasses__()
            for name, field in section.model_fields.items()
            if name not in cls.model_fields
        }
        wrong = [key for key in foreign if key in given and as_tuple(given[key]) != foreign[key]]
        if wrong and cls is not PrivacySection:
            raise ValueError(f"{', '.join(wrong)}: {cls._foreign}")
        return {key: value for key, value in given.items() if key not in foreign}

    @property
    def down_weights(self) -> bool:
        """True if records are weighted down in the fit, which debiasing undoes."""
        return not self.adds_noise

    @property
    def rebuildable(self) -> bool:
        """True if all can be made again from published noisy numbers and a published seed.

        Records are then in an order that public columns determine."""
        return self.adds_noise

    @property
    def currency(self) -> Currency:
        """The quantity that the ledger adds up."""
        return "rho" if self.adds_noise else "epsilon"

    @property
    def combining(self) -> Combining:
        """The rule that combines estimates from the datasets of several draws."""
        return "total_variance" if self.adds_noise else "partial_synthesis"

    def for_records(self, n: int) -> "PrivacySection":
        """Return the section for a survey of n records."""
        return self

    @property
    def missing(self) -> list[str]:
        """One problem if no key states what a release may cost, else none."""
        if self.rho_given is not None or not math.isnan(self.epsilon):
            return []
        return [
            "privacy.epsilon: missing; it is what the whole release may cost, a decision that no "
            'default takes. Write it out, or with mechanism = "noisy_statistics" rho in its place.'
        ]

    @property
    def rho_given(self) -> float | None:
        """The rho of the file, where it has one."""
        return None

    @property
    def cost(self) -> Budget | None:
        """The budget of the noise; None for a mechanism that adds none."""
        return None

    @property
    def private(self) -> bool:
        """True if anything is protected."""
        return True

    @property
    def stated_epsilon(self) -> float:
        """The number epsilon of the release, as its mechanism defines it."""
        return self.epsilon

    @property
    def pattern_columns(self) -> tuple[str, ...]:
        """Columns that the risk measure takes an intruder to know; they must be public."""
        return ()

    @property
    def risk_lines(self) -> list[str]:
        """One line on the risk measure for ``surveysynth check``, where it is not the default."""
        return []


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
#: Draws of a fit for each released one, where the plan is another section's.
_ROOM = 1000


def _scale(value: Any) -> Any:
    """Return c, or (c, g); raise ``ValueError`` for others."""
    if value is None:
        return None
    numbers = as_tuple(value) if isinstance(value, list | tuple) else (value,)
    fits = len(numbers) in (1, 2) and all(type(each) in (int, float) for each in numbers)
    if not (fits and 0 < numbers[0] < math.inf and -1 <= (*numbers, 0.0)[1] <= 1):
        raise ValueError(
            "expected the factor c, a number above 0, such as 0.8, or c and the constant g from -1 "
            f"to 1, such as [0.8, 0.1], got {value!r}."
        )
    return tuple(map(float, numbers)) if len(numbers) == 2 else float(numbers[0])


class PseudoPosteriorSection(PrivacySection):
    """The pseudo-posterior: records of high risk count less in the fit (methods 2)."""

    mechanism: Literal["noisy_statistics", "pseudo_posterior"] = "pseudo_posterior"
    risk: Literal["lipschitz", "count", "pairwise", "scalar", "none"] = "lipschitz"
    """How to measure the risk of a record: by its log-likelihood ("lipschitz"), by the number of
    records near it ("count", "pairwise"), the same for all ("scalar"), or not at all ("none": no
    protection). Public: The measure. The risks themselves are confidential."""
    weights: Literal["fixed_point", "linear", "reweighted"] = "fixed_point"
    """How risks become powers of the likelihood: iterated until every bound is below its cap, or by
    the linear map of the papers, in which one outlier can move all weights; "reweighted" then
    raises the weights of records whose bound is below the largest, once. Default: "fixed_point" for
    `lipschitz`, otherwise "linear". Public: The rule."""
    scale: Annotated[float | tuple[float, float] | None, BeforeValidator(_scale)] = None
    """For linear weights: the factor c, or c and the constant g that is added. Type: a number above
    0, or a list of it and a number from -1 to 1. Default: c is found for the target, and g is 0.
    Public: The numbers, if they are given."""
    pattern: Names = ()
    """For `count` and `pairwise`: public columns that an intruder is assumed to know. Records are
    compared with those that agree on them. Type: list of names of columns. Default: none: all
    records. Public: The columns, which are public anyway."""
    truncate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of draws to keep, those with the smallest bounds. Only kept draws may be released.
    Public: The share. Which draws are left out depends on the data, as the statement reports."""
    allow: Annotated[
        tuple[Allowed, ...], BeforeValidator(as_tuple), AfterValidator(distinct)
    ] = ()
    """What epsilon does not cover, to reproduce the papers. "small_strata": levels with too few
    records for a coefficient, so that one record could move more than is stated; without it they
    are pooled for the model, or refused where that cannot help. "shared_weights": weights that one
    record can set for all others, which are linear weights, as every risk but `lipschitz` has them,
    and all weights of `normal_mixture`, whose fit one record can lead to another mode; without it
    they are refused. Type: list of "small_strata" and "shared_weights". Public: The list, and which
    levels are pooled, a function of public cell sizes. The statement says what is not covered."""

    promise: ClassVar[str] = (
        "risky records count less in the fit; an asymptotic epsilon, found on this survey; nothing "
        "to declare"
    )
    adds_noise: ClassVar[bool] = False
    default_plan: ClassVar[SamplingPlan] = SamplingPlan()
    _foreign: ClassVar[str] = (
        "only for mechanism = 'noisy_statistics'; leave out or set mechanism."
    )
    @model_validator(mode="after")
    def _agree(self) -> "PseudoPosteriorSection":
        if self.protect != RECORD:
            raise ValueError(
                f"protect: mechanism = 'pseudo_posterior' protects single records and cannot "
                f"promise more, got {self.protect!r}; leave it out or set mechanism = "
                "'noisy_statistics'."
            )
        shared = {key: given for key, given in self if key in MechanismSettings.__annotations__}
        roomy = SamplingPlan(draws=self.m * _ROOM)
        try:
            MechanismSettings(
                **{**shared, **self.weighting, "epsilon": 1.0, "plan": roomy}
            )
        except InputError as error:
            raise ValueError(str(error)) from None
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
    def weight_map(self) -> Literal["fixed_point", "linear", "reweighted"]:
        """The given map, else the fixed point for the one risk measure that has it."""
        if "weights" in self.model_fields_set or self.risk in ("lipschitz", "none"):
            return self.weights
        return "linear"

    @property
    def weighting(self) -> dict[str, Any]:
        """The map, its constants and whether re-weighting follows, as the settings have them."""
        again = self.weight_map == "reweighted"
        scale, shift = self.scale if isinstance(self.scale, tuple) else (self.scale, 0.0)
        return {"weights": "linear" if again else self.weight_map, "reweight": again,
                "scale": scale, "shift": shift}  # fmt: skip

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
        return [] if self.weight_map == "fixed_point" else [f"Risk: {self.risk}; linear weights."]


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
    promise: ClassVar[str] = (
        "exact noise on sums; (epsilon, delta), proved for every survey of any size; declare a "
        "public range of each amount, or its center and spread"
    )
    adds_noise: ClassVar[bool] = True
    default_plan: ClassVar[SamplingPlan] = NOISY_PLAN
    _foreign: ClassVar[str] = (
        "only for mechanism = 'pseudo_posterior'; noisy statistics weight no record down. Leave "
        "them out."
    )

    @model_validator(mode="before")
    @classmethod
    def _published_defaults(cls, given: Any) -> Any:
        """Write out two defaults that are published with the specification."""
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

        The default, unless a number is given."""
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
