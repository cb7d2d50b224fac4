"""What a release keeps in its confidential folder for ``adequacy``: nothing of the sample.

The draws that its datasets come from, its printed estimates, and where its specification is.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.release.folder.bundle import COMPARED_NAME

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.release.tables.table import ReleaseTable

Published = Mapping[tuple[str, str, str | None], tuple[FloatArray, FloatArray]]
"""By name of a table, statistic and outcome: estimates and standard errors (D,), NaN withheld."""


@dataclass(frozen=True)
class Compared:
    """The file read back: the specification, the draws, and what was published."""

    spec: Path
    theta: Theta
    published: Published


def published_of(tables: "Mapping[str, Mapping[str, Sequence[ReleaseTable]]]") -> Published:
    """Return the estimates and standard errors of the tables of a release."""
    return {
        (name, each.statistic, each.outcome): (
            each.frame["estimate"].to_numpy(float), each.frame["se"].to_numpy(float)
        )
        for name, of_statistic in tables.items()
        for several in of_statistic.values() for each in several
    }  # fmt: skip


def write_compared(
    folder: Path,
    spec: "Spec",
    draws: "PrivateDraws",
    tables: "Mapping[str, Mapping[str, Sequence[ReleaseTable]]]",
) -> None:
    """Write the file to the confidential folder of a release."""
    content = {
        "specification": str(spec.path.resolve()),
        "draws": {name: np.asarray(values).tolist() for name, values in draws.theta.items()},
        "tables": [[*key, *map(_listed, both)] for key, both in published_of(tables).items()],
    }
    (folder / COMPARED_NAME).write_text(json.dumps(content, allow_nan=False), encoding="utf-8")


def read_compared(folder: Path) -> Compared:
    """Read the file; raise ``InputError`` for a folder without it, or another content."""
    path = folder / COMPARED_NAME
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        theta = {name: np.array(values) for name, values in content["draws"].items()}
        published = {
            (name, statistic, outcome): (np.array(estimate, float), np.array(se, float))
            for name, statistic, outcome, estimate, se in content["tables"]
        }
        return Compared(Path(content["specification"]), theta, published)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path} is missing or not as a release writes it: expected the confidential folder "
            "of a release. Name the folder that release wrote, or its --confidential folder."
        ) from None


def _listed(values: FloatArray) -> list[float | None]:
    return [each if math.isfinite(each) else None for each in values.tolist()]
