"""Groups of records that share their residual spread, by public columns alone.

The rule is public: it uses levels and numbers of records, which are part of the design.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import IntArray
from surveysynth.errors import InputError
from surveysynth.survey.pooling import NEAR
from surveysynth.survey.survey import PublicDesign

#: The records that a spread of its own takes under risk weights, over the square of pseudo-records
#: (methods 3.6). One of 60, at a bound of 1.8, moves the draws by up to 0.8 times what is stated;
#: one of 24 by up to twice. At a third of the bound it is 0.7 for one of 540, 4 for one of 180.
RECORDS = 0.6


@dataclass(frozen=True)
class CovarianceGroups:
    """Groups of the cells of X.

    ``cell`` (G,): the group of each cell, from 0 on; ``labels``: the levels of each group, fewer
    than ``names`` where groups were pooled, none for the remainder.
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

    In an order that tables do not choose. Strata that units stand for are no predictors, and have
    no cells."""
    left_out = design.psu is not None and design.strata_name not in design.predictors
    strata = () if design.strata_name is None or left_out else (design.strata_name,)
    return tuple(dict.fromkeys((*strata, *sorted(design.by))))


def covariance_groups(design: PublicDesign, names: Sequence[str]) -> CovarianceGroups:
    """Group the cells of X by the levels of public columns.

    Every combination of levels that occurs is a group, however few its records are: priors shrink
    its spread towards that of all. Under risk weights, which one record of few could move, it takes
    ``RECORDS`` times the square of the number of pseudo-records; and combinations with a pooled
    level or cell have no spread of their own, unless their records are more than those of any
    pooled level. Others are pooled by the names but the last, by those but the last two, and so on.
    The remainder is one group; if it is small too, it joins the smallest of the others.

    Parameters
    ----------
    design
        The public half of a survey.
    names
        Columns of its frame, in order; the last is given up first.

    Returns
    -------
    CovarianceGroups
        One group for ``names = ()``.

    Raises
    ------
    InputError
        For a column that is not public, or in which records with equal rows of X differ.

    Examples
    --------
    >>> import surveysynth as ss
    >>> from surveysynth.models.general_location.groups import covariance_groups
    >>> groups = covariance_groups(ss.example_survey(n=400).design, ["field", "gender"])
    >>> groups.labels[0], groups.count
    (('Biology', 'F'), 16)
    """
    return _groups(design, tuple(names))


@lru_cache(maxsize=4)
def _groups(design: PublicDesign, names: tuple[str, ...]) -> CovarianceGroups:
    """Group the cells; every synthetic dataset asks again."""
    cell, pooling = design.matrix.cell, design.pooling
    fewest = 1 if design.pseudo is None else math.ceil(RECORDS * design.pseudo.records**2)
    least = fewest if pooling is None else max(fewest, math.ceil(NEAR * pooling.least))
    levels = pd.DataFrame({name: _of_cells(design, name) for name in names})
    size = np.bincount(cell, minlength=design.matrix.x_cells.shape[0])
    pooled_cell = np.zeros(size.size, dtype=bool)
    if pooling is not None:
        pooled_cell[cell[pooling.record]] = True
    group = np.full(size.size, -1)
    labels: list[tuple[str, ...]] = []
    for kept in range(len(names), 0, -1):
        waiting = np.flatnonzero(group < 0)
        pooled = levels.iloc[waiting].groupby(list(names[:kept]), sort=True)
        for label, index in pooled.indices.items():
            cells = waiting[index]
            if size[cells].sum() >= (least if pooled_cell[cells].any() else fewest):
                group[cells] = len(labels)
                labels.append(label if isinstance(label, tuple) else (str(label),))
    rest = group < 0
    if rest.any():
        if labels and size[rest].sum() < least:
            records = np.bincount(group[~rest], weights=size[~rest])
            group[rest] = int(np.argmin(records))
        else:
            group[rest] = len(labels)
            labels.append(())
    return CovarianceGroups(names, group.astype(np.int64), tuple(labels))


def _of_cells(design: PublicDesign, name: str) -> "pd.Series[str]":
    """Return the level of a column in each cell of X."""
    if name not in design.frame:
        known = tuple(map(str, design.frame))
        raise InputError(
            f"covariance_by: {name!r} is not among the public columns of the survey "
            f"({listing(known) or 'none'}).{nearest(name, known)}"
        )
    column = design.frame[name].astype("str").to_numpy()
    cell = design.matrix.cell
    of_cell = np.empty(design.matrix.x_cells.shape[0], dtype=object)
    of_cell[cell] = column
    if design.pooling is not None:  # pooled levels share their rows
        for shared in np.unique(cell[of_cell[cell] != column]):
            of_cell[shared] = " and ".join(sorted(set(column[cell == shared])))
    elif not np.array_equal(of_cell[cell], column):
        raise InputError(
            f"covariance_by: records with equal predictors ({design.matrix.formula}) differ in "
            f"{name!r}; name columns that the predictors determine, such as those of by."
        )
    return pd.Series(of_cell, dtype="str")
