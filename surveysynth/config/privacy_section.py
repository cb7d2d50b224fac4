"""Keys of ``[privacy]`` that every mechanism has, and what the rest of the package asks of it."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from surveysynth.config.sections import Name, Section
from surveysynth.mechanisms.base import Combining, Currency
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.mechanisms.pseudo_posterior.settings import DEFAULT_RADIUS
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
    required, or `rho`. Public: The number, which is the target and an upper bound. The realised
    epsilon is confidential."""
    m: Annotated[int, Field(ge=1, le=1000)] = 3
    """The number of draws of the model from which data are synthesised. With the pseudo-posterior
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
    #: What the ledger adds up.
    currency: ClassVar[Currency]
    #: How estimates from the datasets of several draws combine.
    combining: ClassVar[Combining]
    #: Records are weighted down in the fit, which debiasing undoes.
    down_weights: ClassVar[bool]
    #: All that is released follows from published noisy numbers and a published seed: it can be
    #: made again from them, in an order of records that public columns give.
    rebuildable: ClassVar[bool]
    #: No survey is refused for what its confidential columns hold.
    answers_every_survey: ClassVar[bool]
    #: Centres and spreads of outcomes are declared: the noise is measured by them.
    needs_declared_scales: ClassVar[bool]
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
        wrong = [key for key in foreign if key in given and _plain(given[key]) != foreign[key]]
        if wrong and cls is not PrivacySection:
            raise ValueError(f"{', '.join(wrong)}: {cls._foreign}")
        return {key: value for key, value in given.items() if key not in foreign}

    def for_records(self, n: int) -> "PrivacySection":
        """Return the section for a survey of n records."""
        return self

    @property
    def missing(self) -> list[str]:
        """One problem where nothing states what a release may cost, else none."""
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


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
