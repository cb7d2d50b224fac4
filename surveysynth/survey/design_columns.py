"""Sampling weights that are public: a column of the file, or population counts by stratum.

Such a weight is a design variable. It is published as it is, it has no part in the confidential
half, and no mechanism touches it. Where records with the same row of X have different weights its
logarithm becomes a predictor: a mean weighted by w of an outcome that is drawn without a look at w
would be biased.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._support.messages import listing, raise_problems
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.columns import TextColumn
from surveysynth.survey.declaration import Roles
from surveysynth.survey.formula import quote
from surveysynth.survey.records import Records, check_weight, undeclared_levels

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


def sample_codes(
    records: Records, roles: Roles, lonely_psu: str, source: str
) -> tuple[IntArray | None, IntArray | None, FloatArray | None]:
    """Codes of strata (n,) and of nested PSUs (n,), and sampling fractions (H,)."""
    strata = records.text[roles.strata].codes if roles.strata is not None else None
    psu = _nested_codes(records.text[roles.psu].codes, strata) if roles.psu is not None else None
    sizes = check_strata(strata, psu, records.n, lonely_psu, source)
    if roles.fpc is None:
        return strata, psu, None
    fpc = sampling_fractions(records.numbers[roles.fpc], strata, sizes, roles.fpc, source)
    return strata, psu, fpc


def _nested_codes(psu: IntArray, strata: IntArray | None) -> IntArray:
    """PSU codes unique across strata: a label in two strata names two PSUs."""
    pairs = psu if strata is None else strata * (int(psu.max(initial=0)) + 1) + psu
    return np.asarray(np.unique(pairs, return_inverse=True)[1], dtype=np.int64)


def check_strata(
    strata: IntArray | None, psu: IntArray | None, n: int, lonely_psu: str, source: str
) -> IntArray:
    """Number of PSUs (records where there are none) per stratum, (H,).

    Raises ``InputError`` for strata of one PSU under ``lonely_psu = "fail"``.
    """
    stratum = np.zeros(n, dtype=np.int64) if strata is None else strata
    if psu is not None:
        _, first = np.unique(psu, return_index=True)
        stratum = stratum[first]
    sizes = np.bincount(stratum).astype(np.int64)
    lonely = int(np.count_nonzero(sizes == 1))
    if lonely and lonely_psu == "fail":
        unit = "record" if psu is None else "PSU"
        having = "has" if lonely == 1 else "have"
        where = (
            f"the sample has one {unit}"
            if strata is None
            else f"{lonely:,} of {sizes.size:,} strata {having} one {unit}"
        )
        raise InputError(
            f"{source}: {where}, which gives no variance within the stratum; merge strata, or set "
            "lonely_psu to 'adjust', 'average', 'remove' or 'certainty'."
        )
    return sizes


def sampling_fractions(
    fpc: FloatArray, strata: IntArray | None, sizes: IntArray, name: str, source: str
) -> FloatArray:
    """Sampling fraction n_h/N_h of each stratum, (H,), from a column of fractions or sizes.

    Fractions when no value is above 1, else population sizes counted in sampling units (PSUs, or
    records). Raises ``InputError`` for values that vary in a stratum, are out of range, or give a
    population smaller than its sample.
    """
    stratum = np.zeros(fpc.size, dtype=np.int64) if strata is None else strata
    what = f"{source}: fpc {name!r}"
    if not np.isfinite(fpc).all() or (fpc < 0).any():
        raise InputError(f"{what}: expected finite numbers, none negative.")
    by_stratum = np.zeros(sizes.size)
    by_stratum[stratum] = fpc
    varying = np.unique(stratum[by_stratum[stratum] != fpc]).size
    if varying:
        raise InputError(
            f"{what}: expected one value per stratum; it varies within {varying:,} of "
            f"{sizes.size:,} strata."
        )
    if (by_stratum <= 1).all():
        return by_stratum
    too_small = int(np.count_nonzero(by_stratum < sizes))
    if too_small:
        raise InputError(
            f"{what}: {too_small:,} of {sizes.size:,} strata have a population size below the "
            "number of sampling units in the sample. Give population sizes, or sampling fractions "
            "of at most 1, for all strata alike."
        )
    return np.asarray(sizes / by_stratum, dtype=np.float64)
