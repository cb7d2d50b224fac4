"""The section ``[study]`` of a specification file, as a frozen pydantic model."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from surveysynth.spec.sections import Name, Names, Section, _as_tuple, _distinct

Count = Annotated[int, Field(ge=1)]
Counts = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1000)], ...],
    BeforeValidator(_as_tuple),
    AfterValidator(_distinct),
]
Positives = Annotated[
    tuple[Annotated[float, Field(gt=0)], ...],
    BeforeValidator(_as_tuple),
    AfterValidator(_distinct),
]


class StudySection(Section):
    """``[study]``: repeated samples of a population, which the data of ``[survey]`` then are.

    size: the column with the measure of size, for PPS designs. methods: empty stands for the
    sample, Laplace noise, and the model of the specification. draws: numbers of draws m that
    tables are made from; empty stands for privacy.m. bounds of one draw, or epsilons for
    privacy.m draws; without either, privacy.epsilon. per_cluster, clusters and within are of the
    design two_stage. Words of design, allocation, clusters, within and methods are checked where
    studies know them. Methods of noisy statistics ("fbs_noisy", ..) and "gaussian" take centres and
    spreads from ``[outcomes]``.
    """

    n: Annotated[int, Field(ge=2)] = 1000
    design: Name = "pps_wr"
    size: Name | None = None
    allocation: Name = "proportional"
    per_cluster: Count = 5
    clusters: Name = "units"
    within: Name = "srs"
    methods: Names = ()
    replicates: Count = 100
    draws: Counts = ()
    bounds: Positives = ()
    epsilons: Positives = ()
    batch: Count = 25

    @model_validator(mode="after")
    def _agree(self) -> "StudySection":
        if self.bounds and self.epsilons:
            raise ValueError(
                "bounds and epsilons: give one of them; a bound of one draw is epsilon / (2 m)."
            )
        return self
