"""Adequacy of the model: published tables compared with the confidential sample after a release.

All results are confidential, including the number of rows that lie far from the sample. They go to
the confidential folder, and one line to whoever ran the release. No decision rests on them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import LEVEL, TABLE
from surveysynth.evaluation.compare.distributions import (
    Part,
    PartShare,
    parts_of,
    parts_of_amount,
    share_of,
)
from surveysynth.evaluation.compare.tables import (
    FAR,
    Key,
    by_table,
    distances,
    sample_tables,
    sample_weight,
    stacked,
    without_flags,
)
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.tables.table_builder import Tables

if TYPE_CHECKING:
    from surveysynth.mechanisms.base import Released
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.survey.survey import Survey

#: Most records of a dataset in figures; of more, so many are taken at random.
MOST_RECORDS = 1_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """Results of comparing a release with its sample.

    rows: by statistic and outcome, stacked if there are several tables, frames (D) with the
    by-columns (for shares the level before them), is_margin, n (missing for rows by an outcome,
    which hold other records in every dataset and in the sample), published and published_se, sample
    and sample_se, difference in standard errors of the sample (NaN if there is none) and beyond,
    whether it is larger than ``FAR``; shares: by variable, of levels, spikes and tails; dataset:
    the first synthetic one, of ``chosen`` records; clipped: how many records lie outside the ball
    of noisy statistics, None for another mechanism.
    """

    facts: "ReleaseFacts"
    survey: "Survey"
    rows: Mapping[Key, pd.DataFrame]
    shares: Mapping[str, Sequence[PartShare]]
    dataset: SyntheticDataset
    clipped: int | None

    @property
    def compared(self) -> int:
        """The number of rows with a difference."""
        return sum(int(table["difference"].count()) for table in self.rows.values())

    @property
    def beyond(self) -> int:
        """The number of rows whose difference is larger than ``FAR``."""
        return sum(int(table["beyond"].sum()) for table in self.rows.values())

    def rows_frame(self) -> pd.DataFrame:
        """Return all rows below each other, as in adequacy.csv."""
        parts = []
        for (statistic, outcome), table in self.rows.items():
            part = table.copy()
            part.insert(0, "statistic", statistic)
            part.insert(1, "outcome", outcome)
            parts.append(part)
        frame = pd.concat(parts, ignore_index=True)
        # Levels are in the same column as in tables, whichever statistic comes first.
        first = [name for name in ("statistic", "outcome", TABLE, LEVEL) if name in frame]
        return frame[[*first, *(name for name in frame if name not in first)]]

    def shares_frame(self) -> pd.DataFrame:
        """Return all shares below each other, as in adequacy_shares.csv."""
        lines = [
            (variable, share.name, share.sample, share.se, share.synthetic)
            for variable, shares in self.shares.items()
            for share in shares
        ]
        columns = ["variable", "part", "sample", "sample_se", "synthetic"]
        frame = pd.DataFrame(lines, columns=columns)
        apart = distances(frame["synthetic"], frame["sample"], frame["sample_se"])
        return frame.assign(difference=apart)


def compare_with_sample(
    facts: "ReleaseFacts",
    survey: "Survey",
    tables: Mapping[str, Tables],
    dataset: SyntheticDataset,
    released: "Released",
) -> Findings:
    """Compare published tables, by name, and one dataset of a release with their sample.

    The tables of the sample are estimated once; nothing is synthesized. ``dataset``: of ``chosen``
    records at least.
    """
    sample = sample_tables(without_flags(facts.spec), survey)
    compared: dict[str, dict[Key, pd.DataFrame]] = {name: {} for name in tables}
    for key, whole in sample.items():
        for each, own in by_table(facts.spec, whole):
            name = each.table.name or ""
            made = {(t.statistic, t.outcome): t for ts in tables[name].values() for t in ts}[key]
            by = (LEVEL, *made.by) if made.categories else made.by
            compared[name][key] = rows_with_sample(made.frame, own, by)
    rows = stacked(facts.spec, compared)
    shares = shares_of(survey, dataset)
    clipped = released.realised.get("clipped_records")
    return Findings(facts, survey, rows, shares, dataset, clipped)


def rows_with_sample(
    published: pd.DataFrame, sample: pd.DataFrame, by: Iterable[str]
) -> pd.DataFrame:
    """Put a published table and the sample's own side by side; both have the same rows (D)."""
    difference = distances(published["estimate"], sample["estimate"], sample["se"])
    return published[[*by, "is_margin", "n"]].assign(
        published=published["estimate"],
        published_se=published["se"],
        sample=sample["estimate"].to_numpy(),
        sample_se=sample["se"].to_numpy(),
        difference=difference,
        beyond=np.abs(difference) > FAR,
    )


def shares_of(survey: "Survey", dataset: SyntheticDataset) -> dict[str, list[PartShare]]:
    """Return levels, spikes and tails of every outcome, then tails of the weight, by variable.

    Outcomes are weighted. For the weight over its mean, records are counted, and the synthetic
    weight is that of a dataset in the form of the sample, if there is one.
    """
    weight, outcomes = sample_weight(survey), survey.design.outcomes
    result = {}
    for column, outcome in enumerate(outcomes):
        values = survey.confidential.outcome[:, column]
        own, theirs = (values, weight), (dataset.outcome[:, column], dataset.weight)
        result[outcome.name] = _shares(parts_of(outcome, values, weight), survey, own, theirs)
    if survey.design.public_weight is not None:
        return result  # the same in both
    own, theirs = (
        (each / each.mean(), np.ones(each.size)) for each in (weight, dataset.variance_weight)
    )
    name = survey.design.weight_name or "weight"
    result[name] = _shares(parts_of_amount(*own), survey, own, theirs)
    return result


def _shares(
    parts: Iterable[Part],
    survey: "Survey",
    sample: tuple[FloatArray, FloatArray],
    synthetic: tuple[FloatArray, FloatArray],
) -> list[PartShare]:
    whole = build_domains(survey.design.frame, (), {})
    design = SampleDesign.from_public(survey.design).by_psu
    return [share_of(part, whole, design, sample, synthetic) for part in parts]


def chosen(n: int) -> Any:
    """Return which of n records are drawn one by one, as an index of arrays (n,)."""
    if n <= MOST_RECORDS:
        return slice(None)
    # The same records in every call: this is for pictures and protects nothing.
    return np.random.default_rng(0).choice(n, MOST_RECORDS, replace=False, shuffle=False)


def with_fewer_records(dataset: SyntheticDataset) -> SyntheticDataset:
    """Return the same dataset with the ``chosen`` records alone."""
    records = chosen(dataset.weight.size)
    outcome, weight = dataset.outcome[records], dataset.weight[records]
    if not dataset.separate_pair:
        return SyntheticDataset(dataset.draw, dataset.replicate, outcome, weight, outcome, weight)
    return SyntheticDataset(
        dataset.draw, dataset.replicate, outcome, weight, dataset.variance_outcome[records],
        dataset.variance_weight[records],
    )  # fmt: skip
