"""What Tables 4 and 5 of the tabular-products paper ([T]) hold, and how they were estimated.

Their interval lengths show conventions that [T] 2.3 states in part: intervals are 1.96 standard
errors on either side; tables of data synthesised from a population model (FBP) have equal weights
within a cell of X for means, and variances that leave the strata out. With these, a study at the
settings of [T] 4.1 meets the lengths of all 24 cells of each table within a few percent.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.resources import literature_table
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import COUNT, MEAN

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign

#: Of the statistics that the paper shows.
TABLES = {
    COUNT.name: "simulation_counts_table4.csv",
    MEAN.name: "simulation_mean_salary_table5.csv",
}
MODELS = ("fbs", "fbp")
_PLACE = ("field", "gender")


@dataclass(frozen=True)
class Conventions:
    """How tables are estimated from the synthetic data of one model, as everywhere else."""

    model: "Model"
    design: "PublicDesign"

    def sample_design(self) -> SampleDesign:
        """The design that Taylor variances know."""
        return SampleDesign.from_public(self.design)

    def weight(self, weight: FloatArray, statistic: str) -> FloatArray:
        """Weights (n,) for a statistic."""
        return weight

    def combined(self, combined: Combined) -> Combined:
        """What intervals are made from."""
        return combined


class PublishedConventions(Conventions):
    """How the published tables were estimated."""

    def sample_design(self) -> SampleDesign:
        """Without strata for a model of the population."""
        if self.model.tilted:
            return SampleDesign(np.zeros(self.design.n, dtype=np.int64))
        return super().sample_design()

    def weight(self, weight: FloatArray, statistic: str) -> FloatArray:
        """For means of a model of the population the same within a cell of X, those of the cell
        adding up as before, so that margins combine cells by their sizes."""
        if not self.model.tilted or statistic != MEAN.name:  # a convention of Table 5 alone
            return weight
        cell = self.design.matrix.cell
        return np.asarray((np.bincount(cell, weight) / np.bincount(cell))[cell])

    def combined(self, combined: Combined) -> Combined:
        """With the quantiles of a normal distribution."""
        return replace(combined, df=np.full_like(combined.df, np.inf))


def published_tables() -> "pd.DataFrame":
    """Tables 4 and 5 in one frame: statistic, field, gender, model, coverage, ci_length."""
    import pandas as pd

    parts = []
    for statistic, name in TABLES.items():
        table = pd.read_csv(literature_table(name), dtype={"field": str})
        for model in MODELS:
            part = table[list(_PLACE)].assign(statistic=statistic, model=model)
            for column in ("coverage", "ci_length"):
                part[column] = table[f"{model}_{column}"]
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def beside_published(settings: "dict[str, tuple[pd.DataFrame, str]]") -> "pd.DataFrame":
    """The published cells with the same cells of studies beside them.

    settings: by name the cells of a study (``cells.csv``, with field and gender) and the suffix of
    its methods, as "_published" or "". Adds to each row, by name of the setting, coverage,
    coverage_mcse, ci_length, ci_length_mcse. Raises ``InputError`` for cells that lack one.
    """
    result = published_tables()
    keys = ["statistic", *_PLACE, "model"]
    columns = ["coverage", "coverage_mcse", "ci_length", "ci_length_mcse"]
    for name, (cells, suffix) in settings.items():
        methods = {f"{model}{suffix}": model for model in MODELS}
        ours = cells[cells["method"].isin(methods)]
        ours = ours.assign(model=ours["method"].map(methods))[[*keys, *columns]]
        ours = ours.rename(columns={each: f"{name}_{each}" for each in columns})
        result = result.merge(ours, on=keys, how="left", validate="one_to_one")
        missing = int(result[f"{name}_coverage"].isna().sum())
        if missing:
            raise InputError(
                f"the study {name!r} lacks {missing} of the {len(result)} published cells; "
                f"expected the methods {' and '.join(methods)} on the published population."
            )
    return result
