"""Records of a user's Stan program, and the data that its data block receives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import nearest
from surveysynth._support.types import INTERNAL_SUFFIX, FloatArray
from surveysynth.errors import InputError
from surveysynth.survey.columns import encode
from surveysynth.survey.survey import Confidential, PublicDesign

#: Log-likelihoods of the records among the draws: they never leave the mechanism.
LOG_LIK = "log_lik" + INTERNAL_SUFFIX
#: Sources of data that are confidential.
CONFIDENTIAL = ("outcome", "integer_outcome", "outcomes", "log_weight", "risk_weights")


@dataclass(frozen=True, repr=False)
class ProgramRecords(Unpickled):
    """Records on the program's scale: z (n, p + 1), the log weight last; and the public data."""

    z: FloatArray
    public: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class ProgramStats(Unpickled):
    """Records and their risk weights alpha (n,): a user's program sees every record."""

    records: ProgramRecords
    risk_weights: FloatArray


def with_weight(design: PublicDesign, confidential: Confidential) -> Confidential:
    """Return the confidential half with the design's public weight, if any, as its weight."""
    if design.public_weight is None:
        return confidential
    return Confidential(confidential.outcome, design.public_weight)


def confidential_data(source: str, z: FloatArray, risk_weights: FloatArray) -> Any:
    """Return the data of a confidential source from z (n, p + 1) and alpha (n,)."""
    if source == "risk_weights":
        return risk_weights
    if source == "log_weight":
        return z[:, -1]
    if source == "outcomes":
        return z[:, :-1]
    if source == "outcome":
        return z[:, 0]
    whole = np.rint(z[:, 0])
    different = int(np.count_nonzero(whole != z[:, 0]))
    if different:
        raise InputError(
            f"integer_outcome: {different:,} records have an outcome that is not a whole number; "
            "use transform = 'identity' and an outcome of whole numbers, or the source 'outcome'."
        )
    return whole.astype(np.int64)


def public_data(source: str, design: PublicDesign) -> Any:
    """Return the data of a public source from a design."""
    matrix = design.matrix
    kind, _, column = source.partition(" ")
    if column:
        return _column_data(kind, column.strip(), design)
    made: dict[str, Callable[[], Any]] = {
        "records": lambda: design.n,
        "columns": lambda: matrix.n_columns,
        "matrix": lambda: matrix.x_cells[matrix.cell],
        "n_outcomes": lambda: len(design.outcome_names),
        "population_size": lambda: design.population_size,
    }
    return made[kind]()


def _column_data(kind: str, column: str, design: PublicDesign) -> Any:
    if column not in design.frame:
        known = [str(name) for name in design.frame.columns]
        raise InputError(
            f"data: there is no public column {column!r} in the design.{nearest(column, known)} "
            "Name it in by, predictors or public_columns."
        )
    values = design.frame[column]
    if kind == "column":
        try:
            return np.asarray(values, dtype=np.float64)
        except ValueError:
            raise InputError(
                f"data: the column {column!r} does not hold numbers; use 'codes'."
            ) from None
    codes, levels = encode(values.astype("str"))
    return len(levels) if kind == "levels" else codes + 1
