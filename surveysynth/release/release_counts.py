"""Counts that a release takes from an earlier one, so that no cell has two: post-processing.

Datasets are matched by number. In every cell of the tables' public columns the weights of dataset l
are multiplied by one factor, so that they add up to those of dataset l of the earlier release. Both
sets of weights are functions of what was published under noise (strict 7), so this costs nothing.
A factor for a cell leaves how outcomes go with weights inside it as this release found it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import calibrated_dataset, twelve_digits
from surveysynth.inference.synthesis import Inference, SyntheticDataset, datasets_of
from surveysynth.release.microdata import Digits

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.estimation.calibration import Calibration
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign

#: Key of the counts in ``statistics.json``.
COUNTS_NAME = "counts"
Cell = tuple[str, ...]


@dataclass(frozen=True)
class ReleaseCounts:
    """Sums of weights of every dataset of an earlier release, by cell: published numbers.

    columns: that define the cells; cells (C,): labels of each; keys (datasets,): draw and
    replicate; totals (datasets, C).
    """

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    keys: tuple[tuple[int, int], ...]
    totals: FloatArray

    @classmethod
    def of(
        cls, design: "PublicDesign", columns: Sequence[str], datasets: Iterable[SyntheticDataset]
    ) -> "ReleaseCounts":
        """Add up the weights of datasets on the records of a design."""
        labels = _cells_of(design, columns)
        cells = tuple(sorted(set(labels)))
        code = _codes(labels, cells)
        keys, totals = [], []
        for each in datasets:
            keys.append((each.draw, each.replicate))
            totals.append(np.bincount(code, weights=each.weight, minlength=len(cells)))
        return cls(tuple(columns), cells, tuple(keys), np.array(totals))

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, words and nested lists."""
        return {
            "columns": list(self.columns), "cells": [list(each) for each in self.cells],
            "datasets": [list(each) for each in self.keys], "totals": self.totals.tolist(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "ReleaseCounts":
        """Return the inverse of ``to_dict``; raise ``InputError`` where entries do not fit."""
        try:
            made = cls(
                tuple(given["columns"]), tuple(map(tuple, given["cells"])),
                tuple((int(draw), int(replicate)) for draw, replicate in given["datasets"]),
                np.array(given["totals"], dtype=np.float64),
            )  # fmt: skip
            fits = made.totals.shape == (len(made.keys), len(made.cells))
        except (KeyError, TypeError, ValueError):
            fits = False
        if not fits:
            raise InputError("the counts of an earlier release do not fit together.")
        return made

    @property
    def words(self) -> str:
        """What is taken, in words."""
        by = f"each cell of {listing(self.columns)}" if self.columns else "the whole sample"
        return f"the weights of every synthetic dataset add up in {by} to those of an earlier one"

    def matched(
        self, design: "PublicDesign", datasets: Iterable[SyntheticDataset]
    ) -> Iterator[SyntheticDataset]:
        """Yield datasets with weights that add up, by cell, to those of the earlier release."""
        code, place = _codes(_cells_of(design, self.columns), self.cells), dict(
            zip(self.keys, self.totals, strict=True)
        )
        for each in datasets:
            sums = np.bincount(code, weights=each.weight, minlength=len(self.cells))
            factor = place[each.draw, each.replicate] / np.where(sums > 0, sums, 1.0)
            weight = twelve_digits(each.weight * factor[code])
            yield replace(each, weight=weight, variance_weight=weight)


def published_datasets(
    spec: "Spec",
    design: "PublicDesign",
    model: "Model",
    draws: "PrivateDraws",
    rng: np.random.Generator,
    *,
    inference: Inference,
    counts: ReleaseCounts | None,
    calibration: "Calibration | None",
) -> Iterator[SyntheticDataset]:
    """Yield the datasets of a release as they are published: rounded, with the tables' weights.

    Raises as ``datasets_of``, and ``InputError`` where weights cannot be calibrated.
    """
    digits = Digits(design, spec.all_tables.microdata_digits)
    made = datasets_of(
        model, design, draws, rng, inference=inference,
        replicates_per_draw=spec.privacy.replicates_per_draw,
    )  # fmt: skip
    rounded = map(digits.rounded, made)
    for each in rounded if counts is None else counts.matched(design, rounded):
        yield each if calibration is None else calibrated_dataset(calibration, each)


def cell_sizes(design: "PublicDesign", columns: Sequence[str]) -> Counter[Cell]:
    """Return the numbers of records by cell."""
    return Counter(_cells_of(design, columns))


def _cells_of(design: "PublicDesign", columns: Sequence[str]) -> list[Cell]:
    """Return the cell of every record; a number has one text, whatever the format of the file."""
    if not columns:
        return [()] * design.n
    texts = [
        design.frame[name].astype(float).map(repr)
        if design.frame[name].dtype.kind in "iufb"
        else design.frame[name].astype(str)
        for name in columns
    ]
    return list(zip(*texts, strict=True))


def _codes(labels: Sequence[Cell], cells: Sequence[Cell]) -> IntArray:
    """Return the position (n,) of each label among the cells."""
    place = {cell: number for number, cell in enumerate(cells)}
    return np.array([place[each] for each in labels], dtype=np.int64)
