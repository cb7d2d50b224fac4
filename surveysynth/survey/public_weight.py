"""Sampling weights that are public: a column of the file, or population counts by stratum.

Such a weight is a design variable. It is published as it is, it has no part in the confidential
half, and no mechanism touches it. Where records with the same row of X have different weights its
logarithm becomes a predictor: a mean weighted by w of an outcome that is drawn without a look at w
would be biased.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from surveysynth._support.messages import listing, raise_problems
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.checks import Roles, check_weight, undeclared_levels
from surveysynth.survey.columns import TextColumn
from surveysynth.survey.formula import quote
from surveysynth.survey.records import Records

Weights = Literal["confidential", "public"]

#: What the columns made of stratum sizes are called, where no column has that name.
WEIGHT_NAMES = ("weight", "sampling_weight", "design_weight", "stratum_weight")
FRACTION_NAMES = ("sampling_fraction", "stratum_fraction", "design_fraction", "fraction_sampled")
#: SD of log weights about the mean of their cells of X at or below which X tells the weight.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class PublicWeight:
    """name: of its column; values (n,); fractions (H,): n_h/N_h of the strata where it comes from
    stratum sizes, and then the name of their column."""

    name: str
    values: FloatArray
    fractions: FloatArray | None = None
    fraction_name: str | None = None


def weight_problems(
    weights: str,
    weight: str | None,
    stratum_sizes: Mapping[str, float] | None,
    strata: str | None,
    psu: str | None,
    fpc: str | None,
) -> list[str]:
    """What of these settings does not belong together, whatever the data."""
    if weights not in get_args(Weights):
        return [f"weights: expected 'confidential' or 'public', got {weights!r}."]
    if weights == "confidential":
        if stratum_sizes is None:
            return []
        return [
            "stratum_sizes: population counts by stratum make weights that are public; set "
            "weights = 'public', or leave stratum_sizes out."
        ]
    if stratum_sizes is None:
        if weight is None:
            return [
                "weights: 'public' needs the column of the weights as weight, or population "
                "counts by stratum as stratum_sizes."
            ]
        return []
    problems = []
    if weight is not None:
        problems.append(
            "stratum_sizes: these make the weights, and weight names a column of them; give one of "
            "the two."
        )
    if strata is None:
        problems.append(
            "stratum_sizes: these are of strata; name the column of the strata as strata."
        )
    if fpc is not None:
        problems.append(
            "fpc: stratum_sizes tell the sampling fractions already; leave fpc out."
        )
    if psu is not None:
        problems.append(
            "stratum_sizes: these are for simple random samples of records within strata; for a "
            "sample of primary sampling units give the column of the weights as weight."
        )
    wrong = [name for name, size in stratum_sizes.items() if not (math.isfinite(size) and size > 0)]
    if wrong:
        problems.append(
            f"stratum_sizes: expected finite numbers above zero, got another for {listing(wrong)}."
        )
    return problems


def public_weight(
    records: Records, roles: Roles, stratum_sizes: Mapping[str, float] | None, source: str
) -> PublicWeight | None:
    """The public weight of the records, if they have one.

    Raises ``InputError`` for weights that are not finite and above zero, and for stratum sizes that
    do not fit the strata of the records.
    """
    if stratum_sizes is not None and roles.strata is not None:
        strata = records.text[roles.strata]
        sizes, counts = _sizes(strata, stratum_sizes, source)
        return PublicWeight(
            _free(WEIGHT_NAMES, roles),
            (sizes / counts)[strata.codes],
            counts / sizes,
            _free(FRACTION_NAMES, roles),
        )
    if roles.public_weight is None:
        return None
    values = records.numbers[roles.public_weight].copy()  # may be a view of the caller's frame
    check_weight(values, roles.public_weight, source)
    return PublicWeight(roles.public_weight, values)


def _sizes(
    strata: TextColumn, stratum_sizes: Mapping[str, float], source: str
) -> tuple[FloatArray, FloatArray]:
    """N_h and n_h (H,) of the strata."""
    given = {str(name): float(size) for name, size in stratum_sizes.items()}
    counts = np.bincount(strata.codes, minlength=len(strata.levels)).astype(np.float64)
    undeclared = undeclared_levels(strata, tuple(given))
    unknown = [name for name in given if name not in strata.levels]
    small = [
        level
        for level, count in zip(strata.levels, counts, strict=True)
        if level in given and given[level] < count
    ]
    problems = []
    if undeclared:
        problems.append(f"stratum_sizes: {undeclared}")
    if unknown:
        problems.append(
            f"stratum_sizes: no record lies in {listing(unknown)}. A stratum without records is "
            "not represented by any weight: merge it with another, or leave it out of the "
            "population."
        )
    if small:
        problems.append(
            f"stratum_sizes: below the number of sample records in {listing(small)}; expected the "
            "number of units in the population."
        )
    raise_problems(source, problems)
    return np.array([given[level] for level in strata.levels]), counts


def _free(names: tuple[str, ...], roles: Roles) -> str:
    """The first of the names that no column of the survey has."""
    return next(name for name in (*names, f"{names[0]}_") if name not in roles.needed)


def with_log_weight(formula: str, weight: PublicWeight, cell: IntArray) -> str | None:
    """The formula with the log weight as a further predictor, or None where the cells of X (n,)
    tell the weight. It is that of the weight over a typical one: far from zero its coefficient
    would hang on the intercept, and samplers that take coefficients one by one would crawl."""
    log_weight = np.log(weight.values)
    count = np.bincount(cell)
    mean = np.bincount(cell, log_weight) / count
    if np.sqrt(np.mean((log_weight - mean[cell]) ** 2)) <= TOLERANCE:
        return None
    typical = float(f"{np.exp(log_weight.mean()):.2g}")
    return f"{formula} + log({quote(weight.name)} / {typical:.10g})"
