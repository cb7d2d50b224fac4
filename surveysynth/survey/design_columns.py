"""The columns of the sample design: strata, PSUs, sampling fractions, and public weights.

Public weights are a column of the file or follow from population counts by stratum. They are
published unchanged, are no part of the confidential half, and no mechanism touches them. Where
records with the same row of X have different weights, the log weight becomes a predictor:
otherwise weighted means of synthetic outcomes would be biased.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.columns import TextColumn
from surveysynth.survey.declaration import Declaration, Roles
from surveysynth.survey.formula import quote
from surveysynth.survey.records import Records, undeclared_levels
from surveysynth.survey.value_problems import weight_value_problem

#: Names for the columns computed from stratum sizes; the first that no other column has.
WEIGHT_NAMES = ("weight", "sampling_weight", "design_weight", "stratum_weight")
FRACTION_NAMES = ("sampling_fraction", "stratum_fraction", "design_fraction", "fraction_sampled")
#: SD of log weights within cells of X at or below which X determines the weight.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class DesignColumns:
    """Codes of strata and of nested PSUs, weight (n,), and sampling fractions n_h/N_h (H,)."""

    strata: IntArray | None
    psu: IntArray | None
    weight: FloatArray | None = None
    weight_name: str | None = None
    fractions: FloatArray | None = None
    fraction_name: str | None = None


def design_columns(
    records: Records, declaration: Declaration, problems: list[str]
) -> DesignColumns:
    """Return the columns of the sample design; what is wrong with them joins ``problems``."""
    roles, stratum_sizes = declaration.roles, declaration.stratum_sizes
    strata = records.text[roles.strata].codes if roles.strata is not None else None
    psu = _nested_codes(records.text[roles.psu].codes, strata) if roles.psu is not None else None
    units = _units_by_stratum(strata, psu, records.n)
    problems += _lonely_problems(units, strata, psu, declaration.lonely_psu)
    weight = fractions = None
    if stratum_sizes is not None and roles.strata is not None:
        of_strata = records.text[roles.strata]
        if of_sizes := _size_problems(of_strata, units, stratum_sizes):
            problems += of_sizes
            return DesignColumns(strata, psu)
        sizes = np.array([stratum_sizes[level] for level in of_strata.levels])
        counts = units.astype(np.float64)
        return DesignColumns(
            strata, psu, (sizes / counts)[of_strata.codes], _free(WEIGHT_NAMES, roles),
            counts / sizes, _free(FRACTION_NAMES, roles),
        )  # fmt: skip
    if roles.public_weight is not None:
        # A copy: the column may be a view of the caller's frame.
        weight = records.numbers[roles.public_weight].copy()
        if wrong := weight_value_problem(weight, roles.public_weight):
            problems.append(wrong)
    if roles.fpc is not None:
        fpc = records.numbers[roles.fpc]
        fractions = _sampling_fractions(fpc, strata, units, roles.fpc, problems)
    return DesignColumns(strata, psu, weight, roles.public_weight, fractions, roles.fpc)


def _nested_codes(psu: IntArray, strata: IntArray | None) -> IntArray:
    """Return PSU codes unique across strata: a label in two strata names two PSUs."""
    pairs = psu if strata is None else strata * (int(psu.max(initial=0)) + 1) + psu
    return np.asarray(np.unique(pairs, return_inverse=True)[1], dtype=np.int64)


def _units_by_stratum(strata: IntArray | None, psu: IntArray | None, n: int) -> IntArray:
    """Return the number of PSUs, or of records if there are no PSUs, by stratum (H,)."""
    stratum = np.zeros(n, dtype=np.int64) if strata is None else strata
    if psu is not None:
        stratum = stratum[np.unique(psu, return_index=True)[1]]
    return np.bincount(stratum).astype(np.int64)


def _lonely_problems(
    units: IntArray, strata: IntArray | None, psu: IntArray | None, rule: str
) -> list[str]:
    """List strata of one PSU under the rule "fail"."""
    lonely = int(np.count_nonzero(units == 1))
    if not lonely or rule != "fail":
        return []
    unit = "record" if psu is None else "PSU"
    where = (
        f"the sample has one {unit}"
        if strata is None
        else f"{lonely:,} of {units.size:,} strata {'has' if lonely == 1 else 'have'} one {unit}"
    )
    return [
        f"{where}, so the variance within the stratum cannot be estimated; merge strata, or set "
        "lonely_psu to 'adjust', 'average', 'remove', or 'certainty'."
    ]


def _sampling_fractions(
    fpc: FloatArray, strata: IntArray | None, units: IntArray, name: str, problems: list[str]
) -> FloatArray:
    """Return the sampling fraction n_h/N_h of each stratum (H,) from a column.

    The column has fractions if no value is above 1, otherwise population sizes counted in sampling
    units (PSUs, or records).
    """
    stratum = np.zeros(fpc.size, dtype=np.int64) if strata is None else strata
    if not np.isfinite(fpc).all() or (fpc < 0).any():
        problems.append(f"fpc {name!r}: expected finite numbers, none negative.")
        return fpc
    by_stratum = np.zeros(units.size)
    by_stratum[stratum] = fpc
    varying = np.unique(stratum[by_stratum[stratum] != fpc]).size
    if varying:
        problems.append(
            f"fpc {name!r}: expected one value per stratum; it varies within {varying:,} of "
            f"{units.size:,} strata."
        )
    if varying or (by_stratum <= 1).all():
        return by_stratum
    too_small = int(np.count_nonzero(by_stratum < units))
    if too_small:
        problems.append(
            f"fpc {name!r}: {too_small:,} of {units.size:,} strata have a population size below "
            "the number of sampling units in the sample. Give either population sizes or sampling "
            "fractions of at most 1 for all strata."
        )
        return by_stratum
    return np.asarray(units / by_stratum, dtype=np.float64)


def _size_problems(
    strata: TextColumn, counts: IntArray, stratum_sizes: Mapping[str, float]
) -> list[str]:
    """List stratum sizes that do not fit the strata of the records."""
    problems = []
    if undeclared := undeclared_levels(strata, tuple(stratum_sizes)):
        problems.append(f"stratum_sizes: {undeclared}")
    if unknown := [name for name in stratum_sizes if name not in strata.levels]:
        problems.append(
            f"stratum_sizes: no record lies in {listing(unknown)}. No weight represents a stratum "
            "without records: merge it with another, or remove it from the population."
        )
    small = [
        level
        for level, count in zip(strata.levels, counts, strict=True)
        if stratum_sizes.get(level, np.inf) < count
    ]
    if small:
        problems.append(
            f"stratum_sizes: below the number of sample records in {listing(small)}; give the "
            "number of units in the population."
        )
    return problems


def _free(names: tuple[str, ...], roles: Roles) -> str:
    """Return the first of the names that no column of the survey has."""
    return next(name for name in (*names, f"{names[0]}_") if name not in roles.needed)


def with_log_weight(formula: str, columns: DesignColumns, cell: IntArray) -> str | None:
    """Return the formula with the log weight added, or None where X determines the weight.

    ``cell``: (n,) cells of X. Weights are divided by a typical one: far from zero, the coefficient
    would depend on the intercept and samplers that draw one coefficient at a time would be slow.
    """
    if columns.weight is None or columns.weight_name is None:
        return None
    log_weight = np.log(columns.weight)
    count = np.bincount(cell)
    mean = np.bincount(cell, log_weight) / count
    if np.sqrt(np.mean((log_weight - mean[cell]) ** 2)) <= TOLERANCE:
        return None
    typical = float(f"{np.exp(log_weight.mean()):.2g}")
    return f"{formula} + log({quote(columns.weight_name)} / {typical:.10g})"
