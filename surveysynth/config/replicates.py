"""Replicate weights of an agency in a specification: keys of ``[survey]``.

They are confidential like the weight. The standard errors of the sample in comparisons and in the
adequacy report come from them; no release depends on them.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from surveysynth._support.messages import listing
from surveysynth.errors import InputError
from surveysynth.estimation.replication import (
    Centre,
    ReplicateMethod,
    ReplicateWeights,
    agency_replicates,
    replication_scale,
)
from surveysynth.survey.declaration import Roles
from surveysynth.survey.files import open_table

if TYPE_CHECKING:
    from surveysynth.survey.survey import Survey


#: Keys that no release depends on, and that none publishes.
REPLICATE_KEYS = tuple(
    f"replicate_{key}" for key in ("weights", "method", "fay", "scale", "rscales", "centre")
)


class ReplicateKeys(Protocol):
    """The keys of ``[survey]`` on replicate weights."""

    @property
    def replicate_weights(self) -> str | tuple[str, ...] | None:
        """Pattern or names of the columns."""

    @property
    def replicate_method(self) -> ReplicateMethod | None:
        """How they were made."""

    @property
    def replicate_fay(self) -> float | None:
        """Fay's factor."""

    @property
    def replicate_scale(self) -> float | None:
        """The stated scale."""

    @property
    def replicate_rscales(self) -> tuple[float, ...] | None:
        """A factor for each replicate."""

    @property
    def replicate_centre(self) -> Centre | None:
        """The center of squares."""


def columns_of_pattern(
    given: str | tuple[str, ...] | None, columns: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that a pattern such as "repwt*" means, in the order of the file."""
    if isinstance(given, str):
        return tuple(name for name in columns if fnmatchcase(name, given))
    return tuple(given or ())


def setting_problems(section: ReplicateKeys) -> list[str]:
    """Return settings of replicate weights that contradict each other."""
    given = [key for key in REPLICATE_KEYS[1:] if getattr(section, key) is not None]
    if section.replicate_weights is None:
        return [
            f"{key}: this key needs replicate_weights, the columns; name them or leave "
            "it out."
            for key in given
        ]
    if section.replicate_method is None:
        return [
            "replicate_method: missing; name the method of the replicate weights: brr, fay, jk1, "
            "jkn, successive_difference or bootstrap. The documentation of the data states it."
        ]
    problems = []
    if (section.replicate_method == "fay") != (section.replicate_fay is not None):
        problems.append(
            "replicate_fay: Fay's factor goes with replicate_method = 'fay', such as "
            "replicate_fay = 0.5."
        )
    if section.replicate_method == "jkn" and section.replicate_rscales is None:
        problems.append(
            "replicate_rscales: missing; a stratified jackknife needs one number for each "
            "replicate, (n_h - 1)/n_h of its stratum."
        )
    return problems


def replicate_problems(
    section: ReplicateKeys, found: Sequence[str], roles: Roles, columns: Sequence[str]
) -> list[str]:
    """Return what is wrong with the columns of replicate weights, by their names alone."""
    if section.replicate_weights is None:
        return []
    absent = [name for name in found if name not in columns]
    used = [name for name in found if name in roles.needed]
    rscales = section.replicate_rscales
    checks = [
        (len(found) > 1, f"replicate_weights: {section.replicate_weights!r} names {len(found)} "
         "columns of the data; expected at least two."),
        (not absent, f"replicate_weights: the data have no column {listing(absent)}."),
        (not used, f"replicate_weights: {listing(used)} has another role; name other columns."),
        (rscales is None or len(rscales) == len(found),
         f"replicate_rscales: expected {len(found)} numbers, one for each column of replicate "
         f"weights, got {len(rscales or ())}."),
    ]  # fmt: skip
    return [text for holds, text in checks if not holds]


def replicates_of(section: ReplicateKeys, survey: "Survey") -> ReplicateWeights | None:
    """Return the replicate weights of a survey, with the scale of their method; or None.

    Raises ``InputError`` for values that are no weights, without showing them.
    """
    columns, weight = survey.confidential.replicate_weights, survey.sampling_weight
    if columns is None or weight is None or section.replicate_method is None:
        return None
    wrong = int((~(columns >= 0)).sum())
    if wrong:
        raise InputError(
            f"replicate_weights: expected numbers from 0, got {wrong:,} other or blank cells of "
            f"{columns.size:,}. Correct them, or leave replicate_weights out."
        )
    names, total = survey.confidential.replicate_names, weight.sum()
    sums = columns.sum(axis=0)
    other = [
        name for name, each in zip(names, sums, strict=True) if not 0.5 <= each / total <= 2.0
    ]
    if other:
        raise InputError(
            f"replicate_weights: {len(other):,} of {len(names):,} columns ({listing(other)}) add "
            "up to less than half or more than twice the weight. A column that is no replicate "
            "weight must not be named, and factors must be multiplied by the weight first."
        )
    scale = section.replicate_scale
    if scale is None:
        scale = replication_scale(
            section.replicate_method, columns.shape[1], section.replicate_fay or 0.0
        )
    rscales = section.replicate_rscales
    return agency_replicates(
        columns, weight, scale=scale, rscales=None if rscales is None else np.array(rscales),
        centre=section.replicate_centre or "estimate",
    )  # fmt: skip


def replicate_lines(section: ReplicateKeys, data: Path) -> list[str]:
    """Return a line for ``surveysynth check``; ``data``: the file, for the names of its columns."""
    if section.replicate_weights is None:
        return []
    found = columns_of_pattern(section.replicate_weights, open_table(data).columns)
    return [
        f"Replicate weights: {len(found):,} columns, {found[0]!r} to {found[-1]!r}, "
        f"{section.replicate_method}. Standard errors of the sample in comparisons come from them; "
        "the release does not depend on them."
    ]
