"""Simulated surveys to try things on: ``ss.datasets``.

Everything in them is made up, so that frames may be printed, plotted and published. One argument,
the seed, makes another survey of the same kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from surveysynth._support.page import fragment
from surveysynth.api.start import DEFAULT_N, DEFAULT_SEED, simulate_survey, survey_of
from surveysynth.errors import InputError
from surveysynth.evaluation.studies.population import (
    HEATING,
    N_HOUSEHOLDS,
    Population,
    SamplingDesign,
    simulate_households,
    superpopulation,
)
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

__all__ = ["Dataset", "clustered", "example", "several_outcomes"]

_REGIONS, _TEACHERS_OF_A_REGION, _OF_A_SCHOOL = 5, 4_000, 20
#: Two schools of each region.
_LEAST_CLUSTERED = 2 * _REGIONS * _OF_A_SCHOOL


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A simulated survey: its records, and the same as a ``Survey`` that is ready for a release.

    Its text describes it.

    Parameters
    ----------
    name
        In a word.
    description
        In a sentence.
    columns
        What each column of ``frame`` holds.
    frame
        One row per record.
    survey
        Made of ``frame``, with its design and what is publicly known about its outcomes.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.datasets.example(n=200)
    example: 200 doctorate holders, drawn by field with probabilities that rise with salary.
      field    of doctorate: stratum, public
      gender   public
      salary   a year, in dollars: confidential
      weight   of sampling: confidential
    """

    name: str
    description: str
    columns: Mapping[str, str]
    frame: pd.DataFrame
    survey: Survey

    def _repr_html_(self) -> str:
        """Return columns and the first records, which are simulated, for notebooks."""
        columns = pd.DataFrame(self.columns.items(), columns=["column", "what it is"])
        return fragment(
            self.name,
            lines=[self.description],
            frames=[("Columns", columns), ("First records", self.frame.head())],
        )

    def __repr__(self) -> str:
        width = max(map(len, self.columns))
        lines = [f"  {name:<{width}}   {words}" for name, words in self.columns.items()]
        return "\n".join([f"{self.name}: {self.description}", *lines])


def example(n: int = DEFAULT_N, seed: int = DEFAULT_SEED) -> Dataset:
    """Simulate the survey of ``surveysynth example``: salaries by field (strata) and gender.

    Parameters
    ----------
    n
        Number of records.
    seed
        Makes another survey of the same kind.

    Returns
    -------
    Dataset
        One continuous outcome and informative weights.

    Raises
    ------
    InputError
        For fewer than 16 records.

    References
    ----------
    Methods 7.

    Examples
    --------
    >>> import surveysynth as ss
    >>> data = ss.datasets.example(n=200)
    >>> list(data.frame)
    ['field', 'gender', 'salary', 'weight']
    >>> data.survey.design.population_size
    100000.0
    """
    frame = simulate_survey(n, np.random.default_rng(seed))
    return Dataset(
        "example",
        f"{n:,} doctorate holders, drawn by field with probabilities that rise with salary.",
        MappingProxyType({
            "field": "of doctorate: stratum, public",
            "gender": "public",
            "salary": "a year, in dollars: confidential",
            "weight": "of sampling: confidential",
        }),
        frame,
        survey_of(frame),
    )  # fmt: skip


def clustered(n: int = DEFAULT_N, seed: int = DEFAULT_SEED) -> Dataset:
    """Simulate a two-stage sample: teachers of schools, 20 of each, within five regions.

    Parameters
    ----------
    n
        Number of records: 20 per school, with the same number of schools in each region.
    seed
        Makes another survey of the same kind.

    Returns
    -------
    Dataset
        One continuous outcome, regions as strata, schools as primary sampling units.

    Raises
    ------
    InputError
        For fewer than two schools per region (200 records), or a number of records that does not
        give a whole number of schools in each region.

    Examples
    --------
    >>> import surveysynth as ss
    >>> data = ss.datasets.clustered(n=400)
    >>> data.frame["school"].nunique(), data.survey.design.psu_name
    (20, 'school')
    """
    if n < _LEAST_CLUSTERED or n % (_REGIONS * _OF_A_SCHOOL):
        raise InputError(
            f"n: expected a multiple of {_REGIONS * _OF_A_SCHOOL} (a school a region) from "
            f"{_LEAST_CLUSTERED} on, got {n}."
        )
    rng = np.random.default_rng(seed)
    population = superpopulation(
        rng, sizes=(_TEACHERS_OF_A_REGION,) * _REGIONS, clusters=60, informativeness=0.5,
        psu_variance=(0.02, 0.015),
    )  # fmt: skip
    design = SamplingDesign(
        "two_stage", n=n, allocation="equal", per_cluster=_OF_A_SCHOOL, clusters="size",
        within="pps",
    )  # fmt: skip
    sample = design.draw(population, rng)
    # Draws are numbered within a region.
    school = sample["stratum"].str.removeprefix("s") + "-" + sample["psu"].str.zfill(3)
    frame = pd.DataFrame({
        "region": "region " + sample["stratum"].str.removeprefix("s"),
        "school": school,
        "stage": sample["group"].map({"a": "primary", "b": "secondary"}),
        "salary": sample["outcome"].round(2),
        "weight": sample["weight"].round(6),
    })  # fmt: skip
    survey = Survey.from_frame(
        frame,
        outcome="salary",
        weight="weight",
        strata="region",
        psu="school",
        by=("region", "stage"),
        population_size=population.n_units,
        predictors="region + stage",
        transforms=Transform("log"),
    )
    return Dataset(
        "clustered",
        f"{n:,} teachers, 20 of each of {n // _OF_A_SCHOOL:,} schools drawn within five regions.",
        MappingProxyType({
            "region": "stratum, public",
            "school": "primary sampling unit, public",
            "stage": "primary or secondary: public",
            "salary": "a year, in dollars: confidential",
            "weight": "of sampling: confidential",
        }),
        frame,
        survey,
    )  # fmt: skip


def several_outcomes(n: int = DEFAULT_N, seed: int = DEFAULT_SEED) -> Dataset:
    """Simulate households with three kinds of outcomes: income or zero, yes or no, a category.

    Parameters
    ----------
    n
        Number of records.
    seed
        Makes another survey of the same kind.

    Returns
    -------
    Dataset
        A semicontinuous, a binary and a categorical outcome, regions as strata.

    Raises
    ------
    InputError
        For fewer than two records a region.

    Examples
    --------
    >>> import surveysynth as ss
    >>> data = ss.datasets.several_outcomes(n=200)
    >>> [(each.name, each.kind) for each in data.survey.design.outcomes]
    [('income', 'semicontinuous'), ('insured', 'binary'), ('heating', 'categorical')]
    """
    rng = np.random.default_rng(seed)
    households = Population(simulate_households(rng), ("income",), (), "region", "size")
    sample = SamplingDesign(n=n).draw(households, rng)
    frame = sample.assign(weight=sample["weight"].round(6)).drop(columns="size")
    survey = Survey.from_frame(
        frame,
        outcomes=(
            Outcome("income", "semicontinuous", Transform("yeo_johnson", scale=10_000.0),
                    spikes=(0.0,), lower=0.0),
            Outcome("insured", "binary", levels=("no", "yes")),
            Outcome("heating", "categorical", levels=HEATING),
        ),
        weight="weight",
        strata="region",
        by=("region", "tenure"),
        population_size=N_HOUSEHOLDS,
    )  # fmt: skip
    return Dataset(
        "several_outcomes",
        f"{n:,} households, drawn by region with probabilities that rise with income.",
        MappingProxyType({
            "region": "stratum, public",
            "tenure": "owner or tenant: public",
            "income": "a year, zero for some: confidential",
            "insured": "yes or no: confidential",
            "heating": f"{', '.join(HEATING)}: confidential",
            "weight": "of sampling: confidential",
        }),
        frame,
        survey,
    )  # fmt: skip
