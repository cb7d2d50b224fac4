"""Parts of the general location model of a design, and the columns that each part uses.

x~ = (x, e(d)) has width W: the K columns of X, then for each outcome with a discrete part an
indicator of each of its categories except the first. z (n, q) has the amounts, in the order listed,
and the log weight last; absent ones are zero. An outcome with a split has two columns, one above it
and one below; a record has at most one of them.

Groups of records share their residual spread, by a public rule: it uses levels and numbers of
records, which are part of the design.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import BoolArray, FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.survey.outcome import ABOVE, BELOW, Outcome
from surveysynth.survey.survey import PublicDesign

#: Name of the log weight's part, whatever the column's name.
WEIGHT = "weight"
_BELOW = "_below"
#: Parameters of draws: log variances of the weight by level (E,), less their log means (G,).
LEVEL_SPREADS, LEVEL_MEANS = "level_spreads", "level_means"
#: A logit's shrunken columns have this times ``interaction_scale`` as prior SD: a record of a share
#: of one half has information 1/4, so that the prior is worth as many records as in a regression.
LOGIT_RIDGE = 2.0


@dataclass(frozen=True)
class LogitPart:
    """The discrete part of an outcome.

    outcome: its position; columns: those of x~ that it uses; own: the indicators of its categories.
    """

    name: str
    outcome: int
    columns: IntArray
    own: IntArray

    @property
    def categories(self) -> int:
        """Number of categories."""
        return int(self.own.size) + 1


@dataclass(frozen=True)
class RegressionPart:
    """A column of z: its position there, its columns of x~, and the columns of z before it.

    name: "2" of the second outcome, "2_below" below its split, "weight";
    outcome: position of the outcome (None: the log weight); side: the side of a split.
    """

    name: str
    position: int
    columns: IntArray
    earlier: IntArray
    outcome: int | None
    side: int = ABOVE

    @property
    def width(self) -> int:
        """Number of coefficients that all groups share."""
        return int(self.columns.size + self.earlier.size)


@dataclass(frozen=True)
class Layout:
    """Parts of the model: columns K of X and categories (p,), 1 for a continuous outcome.

    sides (p,): number of amounts of an outcome, 2 with a split and 0 for levels; weighted: there is
    a log weight; grouped: variances and slopes differ by group; ridged: the columns of X that
    belong to shrunken interactions. These are the same columns of every part.
    """

    columns: int
    categories: tuple[int, ...]
    sides: tuple[int, ...]
    weighted: bool
    grouped: bool
    ridged: tuple[int, ...] = ()

    @classmethod
    def of(cls, design: PublicDesign, grouped: bool) -> "Layout":
        """Return the layout of a design."""
        x = design.matrix.x_cells
        ridged = np.flatnonzero(design.matrix.ridged)
        plain = cls.of_outcomes(
            x.shape[1], design.outcomes, weighted=design.weight_name is not None, grouped=grouped
        )
        return replace(plain, ridged=tuple(ridged.tolist()))

    @classmethod
    def of_outcomes(
        cls, columns: int, outcomes: Sequence[Outcome], *, weighted: bool, grouped: bool
    ) -> "Layout":
        """Return the layout of outcomes and K columns of X."""
        categories = tuple(outcome.categories for outcome in outcomes)
        sides = tuple(len(outcome.sides) for outcome in outcomes)
        return cls(columns, categories, sides, weighted, grouped)

    @property
    def width(self) -> int:
        """W, the columns of x~."""
        return self.columns + sum(size - 1 for size in self.categories)

    @property
    def amounts(self) -> tuple[tuple[int, int], ...]:
        """Outcome and side of each column of z except the log weight."""
        return tuple((j, side) for j, sides in enumerate(self.sides) for side in range(sides))

    @property
    def q(self) -> int:
        """Columns of z: amounts, and the log weight if there is one."""
        return sum(self.sides) + int(self.weighted)

    def indicators(self, outcome: int) -> IntArray:
        """Return the columns of x~ that indicate the categories of an outcome."""
        first = self.columns + sum(size - 1 for size in self.categories[:outcome])
        return np.arange(first, first + self.categories[outcome] - 1)

    def tilde(self, x: FloatArray, category: IntArray) -> FloatArray:
        """Return x~ (r, W) of rows x (r, K) and categories (r, p)."""
        result = np.zeros((x.shape[0], self.width))
        result[:, : self.columns] = x
        for j in range(len(self.categories)):
            own = self.indicators(j)
            result[:, own] = category[:, j, None] == 1 + np.arange(own.size)
        return result

    @cached_property
    def logits(self) -> tuple[LogitPart, ...]:
        """Logits of the outcomes with a discrete part, in the order listed."""
        parts = []
        seen = [np.arange(self.columns)]
        for j, size in enumerate(self.categories):
            if size > 1:
                own = self.indicators(j)
                parts.append(LogitPart(str(j + 1), j, np.concatenate(seen), own))
                seen.append(own)
        return tuple(parts)

    @property
    def logit_effects(self) -> tuple[slice, ...]:
        """Columns of each logit among the effects of PSUs, which those of z follow."""
        cuts = np.cumsum([0, *(part.own.size for part in self.logits)]).tolist()
        return tuple(slice(*each) for each in pairwise(cuts))

    @property
    def amount_effects(self) -> slice:
        """Columns of z among the effects of PSUs."""
        first = sum(size - 1 for size in self.categories)
        return slice(first, first + self.q)

    def logit_sds(self, priors: Mapping[str, float]) -> list[FloatArray]:
        """Return the prior SDs (P,) of the coefficients of each logit, by column."""
        sds = [np.full(part.columns.size, priors["logit_sd"]) for part in self.logits]
        for sd in sds:
            sd[list(self.ridged)] = LOGIT_RIDGE * priors["interaction_scale"]
        return sds

    @cached_property
    def regressions(self) -> tuple[RegressionPart, ...]:
        """Regressions of the columns of z, in order; earlier ones have a smaller position."""
        parts = []
        everything = np.arange(self.width)
        for position, (j, side) in enumerate(self.amounts):
            columns = np.setdiff1d(everything, self.indicators(j))
            # No record lies on both sides of a split.
            earlier = np.arange(position - side)
            name = str(j + 1) + _BELOW * (side == BELOW)
            parts.append(RegressionPart(name, position, columns, earlier, j, side))
        if self.weighted:
            last = self.q - 1
            parts.append(RegressionPart(WEIGHT, last, everything, np.arange(last), None))
        return tuple(parts)

    def present(self, category: IntArray) -> BoolArray:
        """Return the columns of z (r, q) that rows with these categories (r, p) have."""
        result = np.ones((category.shape[0], self.q), dtype=bool)
        for position, (j, side) in enumerate(self.amounts):
            result[:, position] = category[:, j] == side
        return result


def residual_covariances(
    theta: Theta, regressions: tuple[RegressionPart, ...], there: BoolArray | None = None
) -> FloatArray:
    """Return residual covariances (groups, q, q) of the columns of z that are ``there`` (q,).

    For all columns by default."""
    q = len(regressions)
    groups = theta[f"variance_{regressions[0].name}"].size if q else 1
    slopes, variance = np.zeros((groups, q, q)), np.zeros((groups, q))
    for part in regressions:
        own = theta[f"coefficients_{part.name}"][part.columns.size :]
        slopes[:, part.position, part.earlier] = own + theta.get(f"slopes_{part.name}", 0.0)
        variance[:, part.position] = theta[f"variance_{part.name}"]
    there = np.ones(q, dtype=bool) if there is None else there
    both = np.outer(there, there)
    inverse = np.linalg.inv(np.eye(q) - slopes * both)
    scaled = inverse * (variance * there)[:, None]
    return np.asarray(scaled @ inverse.swapaxes(-1, -2), dtype=np.float64)


def level_log_variances(
    theta: Theta, categories: tuple[int, ...], group: IntArray, category: IntArray
) -> FloatArray | float:
    """Return by how much levels raise the log residual variance of the weight (r,).

    group (r,), category (r, p). Zero for parameters without spreads by level.
    """
    if LEVEL_SPREADS not in theta:
        return 0.0
    spreads, first = theta[LEVEL_SPREADS], 0
    total = -theta[LEVEL_MEANS][group]
    for j, size in enumerate(categories):
        if size > 1:
            total = total + spreads[first + category[:, j]]
            first += size
    return np.asarray(total)


def log_total(eta: FloatArray) -> FloatArray:
    """Return log(1 + sum of exp eta) over the last axis without overflow."""
    if eta.shape[-1] == 1:
        return np.asarray(np.logaddexp(0.0, eta[..., 0]), dtype=np.float64)
    largest = np.maximum(eta.max(-1), 0.0)
    rest = np.exp(eta - largest[..., None]).sum(-1) + np.exp(-largest)
    return np.asarray(largest + np.log(rest), dtype=np.float64)


def shares(eta: FloatArray) -> FloatArray:
    """Return probabilities (..., C - 1) of all categories except the first."""
    return np.asarray(np.exp(eta - log_total(eta)[..., None]), dtype=np.float64)


def log_shares(eta: FloatArray) -> FloatArray:
    """Return log probabilities (..., C) of all categories."""
    total = log_total(eta)[..., None]
    return np.concatenate([-total, eta - total], axis=-1)


@dataclass(frozen=True)
class CovarianceGroups:
    """Groups of the cells of X.

    ``cell`` (G,): the group of each cell, starting at 0; ``labels``: the levels of each group.
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

    Their order does not depend on tables. Strata that are not predictors have no cells."""
    left_out = design.strata_name not in design.predictors and (
        design.psu is not None or not design.strata_in_cells
    )
    strata = () if design.strata_name is None or left_out else (design.strata_name,)
    return tuple(dict.fromkeys((*strata, *sorted(design.by))))


def covariance_groups(design: PublicDesign, names: tuple[str, ...]) -> CovarianceGroups:
    """Group the cells of X by the levels of public columns.

    Every combination of levels that occurs is a group, however few its records are: priors shrink
    its spread towards that of all.

    names: columns of the frame; one group for none. Raises ``InputError`` for a column that is not
    public, or in which records with equal rows of X differ.

    >>> import surveysynth as ss
    >>> from surveysynth.models.general_location.layout import covariance_groups
    >>> groups = covariance_groups(ss.example_survey(n=400).design, ("field", "gender"))
    >>> groups.labels[0], groups.count
    (('1', 'Female'), 16)
    """
    # Every synthetic dataset asks again, with curves of its own in the same rows.
    kept, key = design.matrix.kept, (names, id(design.frame))
    if key not in kept:
        kept[key] = _grouped(design, names), design.frame  # which is not forgotten
    return cast(CovarianceGroups, kept[key][0])


def _grouped(design: PublicDesign, names: tuple[str, ...]) -> CovarianceGroups:
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
