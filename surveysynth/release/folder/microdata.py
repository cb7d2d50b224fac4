"""Synthetic microdata: unchanged public columns, synthetic outcomes and smoothed weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.release.tables.labels import Labels
from surveysynth.release.writers.csv import MicrodataFormat, write_records
from surveysynth.release.writers.stata_spss import (
    PROGRAMS,
    LabelledColumn,
    values_of,
    write_labelled,
)
from surveysynth.survey.columns import natural_order
from surveysynth.survey.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.config.spec import Spec
    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.survey.survey import PublicDesign

DEFAULT_WEIGHT_NAME = "weight"
VARIANCE_SUFFIX = "_for_variance"
CALIBRATED_SUFFIX = "_calibrated"


def format_of(spec: "Spec") -> MicrodataFormat:
    """Return the format of the microdata: as asked for, or parquet as the survey is, else csv."""
    if spec.all_tables.microdata is not None:
        return spec.all_tables.microdata
    return "parquet" if spec.survey.data.lower().endswith(".parquet") else "csv"


def public_column_names(design: "PublicDesign") -> tuple[str, ...]:
    """Return the columns of the survey that are published unchanged, and the sampling fraction.

    With them and the synthetic columns every published estimate and SE can be recomputed.
    """
    by_role: Sequence[str | None] = (
        *design.by,
        design.strata_name,
        design.psu_name,
        *design.predictors,
        design.public_weight_name,
        *design.public_columns,
        fraction_name(design),
    )
    return tuple(dict.fromkeys(name for name in by_role if name is not None))


def fraction_name(design: "PublicDesign") -> str | None:
    """Return the column of sampling fractions: the fpc column's name where it is free."""
    if design.fpc is None or design.fpc_name is None:
        return None
    return f"{design.fpc_name}_fraction" if design.fpc_name in design.frame else design.fpc_name


def public_frame(design: "PublicDesign") -> "pd.DataFrame":
    """Return the public columns (n rows, file order)."""
    names, fraction = public_column_names(design), fraction_name(design)
    frame = design.frame[[name for name in names if name != fraction]].copy()
    if fraction is not None and design.fpc is not None:
        strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
        frame[fraction] = design.fpc[strata]
    return frame


def synthetic_column_names(design: "PublicDesign", *, separate_pair: bool) -> tuple[str, ...]:
    """Return the outcomes, the weight unless it is public, and the pair for variances.

    The pair is there only where it differs from outcomes and weight. A calibrated weight comes
    after its base weight.
    """
    weight = () if design.public_weight is not None else (base_weight_column(design),)
    calibrated = () if design.calibrated_by is None else (weight_column(design),)
    names = (*design.outcome_names, *weight, *calibrated)
    if separate_pair:
        return (*names, *(f"{name}{VARIANCE_SUFFIX}" for name in names))
    return names


def weight_column(design: "PublicDesign") -> str:
    """Return the column of the weight for estimates: synthetic, public, or calibrated."""
    base = base_weight_column(design)
    return base if design.calibrated_by is None else f"{base}{CALIBRATED_SUFFIX}"


def base_weight_column(design: "PublicDesign") -> str:
    """Return the column of the weight before calibration, synthetic or public."""
    return design.public_weight_name or design.weight_name or DEFAULT_WEIGHT_NAME


def as_known(outcome: Outcome, values: FloatArray) -> "np.ndarray[Any, np.dtype[Any]]":
    """Return values (n,) of an outcome as people write them.

    Labels for levels, 0 and 1 and counts as whole numbers, amounts unchanged, and zero without a
    sign.
    """
    if outcome.is_labelled:
        return outcome.labels(values)
    if outcome.kind == "count" and not outcome.missing:
        return values.astype(np.int64)
    return values + 0.0 if outcome.is_amount else values.astype(np.int64)


def labelled_columns(
    design: "PublicDesign", labels: Labels, *, separate_pair: bool
) -> dict[str, LabelledColumn]:
    """Describe every column for files of Stata and SPSS, by name and in order."""
    synthetic = synthetic_column_names(design, separate_pair=separate_pair)
    return {
        **{name: _public_labelled(design, labels, name) for name in public_column_names(design)},
        **{name: _synthetic_labelled(design, labels, name) for name in synthetic},
    }


def _public_labelled(design: "PublicDesign", labels: Labels, name: str) -> LabelledColumn:
    title = labels.titled_with_unit(name)
    if name == fraction_name(design) or design.frame[name].dtype.kind in "iufb":
        return LabelledColumn(title)
    if name in design.levels:
        return _of_levels(labels, name, title, design.levels[name], positions=True)
    found = natural_order({text for text in design.frame[name].astype("str") if text})
    return _of_levels(labels, name, title, found, positions=False)


def _synthetic_labelled(design: "PublicDesign", labels: Labels, name: str) -> LabelledColumn:
    base = name.removesuffix(VARIANCE_SUFFIX)
    title = labels.titled_with_unit(base) + (", for variances" if name != base else "")
    declared = {outcome.name: outcome for outcome in design.outcomes}.get(base)
    if declared is None or declared.is_amount:
        return LabelledColumn(title)
    if not declared.is_labelled:
        return LabelledColumn(title, nominal=True)
    return _of_levels(labels, base, title, declared.levels, positions=True)


def _of_levels(
    labels: Labels, name: str, title: str, codes: Sequence[str], *, positions: bool
) -> LabelledColumn:
    """Describe a column of codes; labels equal to the number are left out."""
    values = values_of(codes, positions=positions)
    shown = {value: labels.level(name, code) for code, value in values.items()}
    shown = {value: label for value, label in shown.items() if label != str(value)}
    return LabelledColumn(title, values, shown, nominal=True)


def file_name(draw: int, replicate: int, file_format: MicrodataFormat) -> str:
    """Return a name such as ``draw_01_rep_01.csv``; both numbers count from 1."""
    return f"draw_{draw:02d}_rep_{replicate:02d}.{file_format}"


class MicrodataWriter:
    """Writes one file a dataset.

    Rows are sorted by the public columns. The order of a survey file may depend on confidential
    values (sorted by income, say), and the sequence of public values would reveal it.
    """

    def __init__(
        self,
        design: "PublicDesign",
        folder: Path,
        file_format: MicrodataFormat,
        labels: Labels,
        title: str,
    ) -> None:
        self._design, self._folder, self._format = design, folder, file_format
        self._labels, self._title = labels, title
        public = public_frame(design)
        self._order = _order_of(public)
        self._public = public.iloc[self._order].reset_index(drop=True)
        folder.mkdir(exist_ok=True)

    def write(self, dataset: "SyntheticDataset") -> Path:
        """Write a dataset and return its path."""
        separate = dataset.separate_pair
        columns = self._columns(dataset.outcome, dataset.weight, dataset.base_weight)
        if separate:
            columns += self._columns(
                dataset.variance_outcome, dataset.variance_weight, dataset.variance_base_weight
            )
        frame = self._public.copy()
        names = synthetic_column_names(self._design, separate_pair=separate)
        for name, column in zip(names, columns, strict=True):
            frame[name] = column
        path = self._folder / file_name(dataset.draw, dataset.replicate, self._format)
        if self._format in PROGRAMS:
            described = labelled_columns(self._design, self._labels, separate_pair=separate)
            write_labelled(frame, path, self._format, described, self._title)
        else:
            write_records(frame, path, "parquet" if self._format == "parquet" else "csv")
        return path

    def _columns(
        self, outcome: FloatArray, weight: FloatArray, base: FloatArray | None
    ) -> "list[np.ndarray[Any, np.dtype[Any]]]":
        """Return outcomes (n, p) and weight (n,) as they are written, column by column.

        A public weight is among the public columns and left out here. A base weight (n,) comes
        before the weight that was calibrated.
        """
        pairs = zip(self._design.outcomes, outcome[self._order].T, strict=True)
        public = self._design.public_weight is not None
        given = [weight] if base is None else [base, weight]
        weights = [each[self._order] for each in given[public:]]
        return [*(as_known(declared, values) for declared, values in pairs), *weights]


def public_order(design: "PublicDesign") -> IntArray:
    """Return the order (n,) in which the microdata show the records of a design."""
    return _order_of(public_frame(design))


def _order_of(public: "pd.DataFrame") -> IntArray:
    """Return the row order (n,) by the public columns, first column first.

    Ties cannot be distinguished.
    """
    if public.shape[1] == 0:
        return np.arange(len(public), dtype=np.int64)
    keys = [public[name].factorize(sort=True)[0] for name in reversed(public.columns)]
    return np.lexsort(keys).astype(np.int64)
