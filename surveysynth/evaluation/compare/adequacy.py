"""Adequacy of the model: published tables compared with the confidential sample, on demand.

All results are confidential, including the number of rows that lie far from the sample. No decision
of a release rests on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.estimates import Kept
from surveysynth.estimation.statistics import LEVEL, TABLE
from surveysynth.evaluation.compare.answered import answered
from surveysynth.evaluation.compare.expected_error import (
    FAR,
    Addends,
    ExpectedError,
    expected_error,
)
from surveysynth.evaluation.compare.tables import (
    ROUNDING,
    Key,
    by_table,
    sample_tables,
    stacked,
    without_flags,
)
from surveysynth.inference.synthesis import SyntheticDataset, synthesise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    noisy_sums,
    record_scores,
    record_sums,
)
from surveysynth.models.base import psu_codes
from surveysynth.release.compared import Published
from surveysynth.release.tables.table_builder import estimates_for

if TYPE_CHECKING:
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
        LocationStatistics,
    )
    from surveysynth.models.base import Model
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.survey.survey import Survey

#: Datasets of each draw from which expected errors are computed.
REPLICATES = 4


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """Results of comparing a release with its sample.

    rows: of all tables, frames (D) by statistic and outcome, with the by-columns (for shares the
    level before them), is_margin, n (missing for rows by an outcome), published and published_se,
    sample and sample_se, predicted, expected_error, and difference, predicted less sample in
    expected errors (NaN for known totals and withheld rows); p_value: the chance of a row as far as
    the farthest under the model; expected: of rows in the order of tables and their keys.
    """

    facts: "ReleaseFacts"
    rows: Mapping[Key, pd.DataFrame]
    p_value: float
    expected: ExpectedError

    @property
    def frame(self) -> pd.DataFrame:
        """All rows below each other, as in adequacy.csv."""
        parts = [
            table.assign(statistic=statistic, outcome=outcome)
            for (statistic, outcome), table in self.rows.items()
        ]
        frame = pd.concat(parts, ignore_index=True)
        first = [name for name in ("statistic", "outcome", TABLE, LEVEL) if name in frame]
        return frame[[*first, *(name for name in frame if name not in first)]]

    @property
    def compared(self) -> int:
        """The number of rows with a difference."""
        return int(self.frame["difference"].count())

    @property
    def beyond(self) -> int:
        """The number of rows farther from the sample than ``FAR`` expected errors."""
        return int((self.frame["difference"].abs() > FAR).sum())


def compare_with_sample(
    facts: "ReleaseFacts",
    model: "Model",
    survey: "Survey",
    draws: "PrivateDraws",
    published: Published,
    *,
    statistics: "LocationStatistics | None" = None,
    risk_weights: FloatArray | None = None,
    seed: int = 0,
) -> Findings:
    """Compare the tables of a release with its sample.

    Parameters
    ----------
    facts, model, draws, published
        Of the release; the draws that datasets are made from.
    survey
        The confidential sample, as the mechanism had it.
    statistics
        What noisy statistics published.
    risk_weights
        (n,) of the pseudo-posterior.
    seed
        Of the datasets that expected errors come from.

    Raises
    ------
    InputError
        If the tables are not of the survey and the specification.
    """
    spec, design, rng = without_flags(facts.spec), facts.design, np.random.default_rng(seed)
    datasets = [
        SyntheticDataset(
            each.draw, each.replicate, each.variance_outcome, each.variance_weight,
            each.variance_outcome, each.variance_weight,
        )
        for each in synthesise(
            model, design, draws, replicates_per_draw=REPLICATES, rng=rng, scale_to=None
        )
    ]  # fmt: skip
    kept = [Kept() for _ in spec.each_table]
    collectors = [
        estimates_for(each, design, rule=rule)
        for each, rule in zip(spec.each_table, kept, strict=True)
    ]
    addends, noisy = _sums(facts, model, statistics)
    expected = expected_error(
        list(zip(collectors, kept, strict=True)), datasets, addends, noisy,
        unit=psu_codes(model, design), weights=risk_weights,
    )  # fmt: skip
    sample = {
        (each.table.name or "", key): own
        for key, whole in sample_tables(spec, answered(survey)).items()
        for each, own in by_table(spec, whole)
    }
    places = [
        (each.table.name or "", (statistic, None if j is None else design.outcome_names[j]))
        for each, of_table in zip(spec.each_table, collectors, strict=True)
        for statistic, j in of_table.keys
    ]
    ends = np.cumsum([len(sample[place]) for place in places])
    frames: dict[str, dict[Key, pd.DataFrame]] = {name: {} for name, _ in places}
    both = (np.split(each, ends[:-1]) for each in (expected.pull, expected.error))
    for (name, key), pull, error in zip(places, *both, strict=True):
        estimate, se = published.get((name, *key), (np.zeros(0), np.zeros(0)))
        if len(estimate) != len(error):
            raise InputError(
                f"expected the {len(error)} rows of the specification in {key[0]}s, and the "
                f"release has {len(estimate)}: the specification or the public columns are not "
                "those of the release any more."
            )
        frames[name][key] = rows_with_sample(
            sample[name, key], estimate, se, estimate + pull, error
        )
    every = [frames[name][key]["difference"] for name, key in places]
    p_value = expected.p_value(np.concatenate(every))
    return Findings(facts, stacked(spec, frames), p_value, expected)


def rows_with_sample(
    sample: pd.DataFrame,
    published: FloatArray,
    published_se: FloatArray,
    predicted: FloatArray,
    error: FloatArray,
) -> pd.DataFrame:
    """Put a published table and the sample's own side by side; all have the same rows (D).

    There is no difference where the sample's own error is rounding: the number is public.
    """
    rows = sample.drop(columns=["ci_lower", "ci_upper", "flag"])
    rows = rows.rename(columns={"estimate": "sample", "se": "sample_se"})
    rows = rows.assign(
        published=published, published_se=published_se, predicted=predicted, expected_error=error
    )
    varies = rows["sample_se"] > ROUNDING * rows["sample"].abs()
    apart = (rows["predicted"] - rows["sample"]) / rows["expected_error"].where(varies)
    return rows.assign(difference=apart.replace([np.inf, -np.inf], np.nan))


def _sums(
    facts: "ReleaseFacts", model: "Model", statistics: "LocationStatistics | None"
) -> tuple[Addends, tuple[FloatArray, FloatArray] | None]:
    """Return what records add to noisy statistics, and these; or to the scores of the model."""
    design = facts.design
    if statistics is None:
        return lambda dataset: record_scores(design, dataset), None
    addends = partial(record_sums, model, design, statistics)
    return addends, noisy_sums(model, design, statistics)
