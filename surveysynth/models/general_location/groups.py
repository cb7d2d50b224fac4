"""Groups of records that share their residual spread, by public columns alone.

The rule is public: it uses levels and numbers of records, which are part of the design.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import IntArray
from surveysynth.errors import InputError
from surveysynth.survey.survey import PublicDesign


@dataclass(frozen=True)
class CovarianceGroups:
    """Groups of the cells of X.

    ``cell`` (G,): the group of each cell, from 0 on; ``labels``: the levels of each group.
    """

    names: tuple[str, ...]
    cell: IntArray
    labels: tuple[tuple[str, ...], ...]

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.labels)

    @property
    def levels(self) -> IntArray:
        """The level (F, groups) of each in the columns that have fewer levels than groups."""
        columns = zip(*self.labels, strict=False)
        codes = [np.unique(own, return_inverse=True)[1] for own in columns]
        kept = [own for own in codes if 0 < own.max() < self.count - 1]
        return np.array(kept, dtype=np.int64).reshape(-1, self.count)


def default_columns(design: PublicDesign) -> tuple[str, ...]:
    """Return the columns whose cells have spreads of their own by default: strata and by.

    In an order that tables do not choose. Strata that are no predictors have no cells."""
    left_out = design.strata_name not in design.predictors and (
        design.psu is not None or not design.strata_in_cells
    )
    strata = () if design.strata_name is None or left_out else (design.strata_name,)
    return tuple(dict.fromkeys((*strata, *sorted(design.by))))


@lru_cache(maxsize=4)  # every synthetic dataset asks again
def covariance_groups(design: PublicDesign, names: tuple[str, ...]) -> CovarianceGroups:
    """Group the cells of X by the levels of public columns.

    Every combination of levels that occurs is a group, however few its records are: priors shrink
    its spread towards that of all.

    names: columns of the frame; one group for none. Raises ``InputError`` for a column that is not
    public, or in which records with equal rows of X differ.

    >>> import surveysynth as ss
    >>> from surveysynth.models.general_location.groups import covariance_groups
    >>> groups = covariance_groups(ss.example_survey(n=400).design, ("field", "gender"))
    >>> groups.labels[0], groups.count
    (('1', 'Female'), 16)
    """
    levels = pd.DataFrame({name: _of_cells(design, name) for name in names})
    group = np.zeros(design.matrix.x_cells.shape[0], dtype=np.int64)
    labels: list[tuple[str, ...]] = []
    if not names:
        return CovarianceGroups(names, group, ((),))
    for label, cells in levels.groupby(list(names), sort=True).indices.items():
        group[cells] = len(labels)
        labels.append(label if isinstance(label, tuple) else (str(label),))
    return CovarianceGroups(names, group, tuple(labels))


def _of_cells(design: PublicDesign, name: str) -> "pd.Series[str]":
    """Return the level of a column in each cell of X."""
    if name not in design.frame:
        known = tuple(map(str, design.frame))
        raise InputError(
            f"covariance_by: {name!r} is not among the public columns of the survey "
            f"({listing(known) or 'none'}).{nearest(name, known)}"
        )
    of_cell = design.matrix.by_cell(design.frame[name].astype("str").to_numpy(dtype=object))
    if of_cell is None:
        raise InputError(
            f"covariance_by: records with equal predictors ({design.matrix.formula}) differ in "
            f"{name!r}; name columns that the predictors determine, such as those of by."
        )
    return pd.Series(of_cell, dtype="str")
