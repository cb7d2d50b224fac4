"""Studies on a frame: releases of samples that are drawn again and again from a whole population.

Each task is one sample by one method: the sample's own tables, or the release of a specification,
made by the same steps as a release and kept in memory. A task's numbers depend only on the seed,
the sample's number and the specification, so tasks may run anywhere, in any order, and again. All
methods see the same samples, and all releases start from the same random numbers.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth.config import build
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.estimates import Estimates
from surveysynth.evaluation.baselines.laplace import has_sensitivity
from surveysynth.evaluation.compare.noise import Noise
from surveysynth.evaluation.compare.tables import sample_weight
from surveysynth.evaluation.methods import LAPLACE, SAMPLE
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.frame_release import (
    NUMBERS,
    as_text,
    long_rows,
    released,
    row_keys,
)
from surveysynth.evaluation.studies.frame_specs import (
    drawn_spec,
    free_name,
    plain_estimates,
    require_same_tables,
)
from surveysynth.evaluation.studies.population import Population
from surveysynth.evaluation.studies.scheduling import Task, TaskResult
from surveysynth.release.tables.table_builder import Tables, estimates_of_each, tables_of_each
from surveysynth.survey.survey import Survey, survey_of
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    from surveysynth.survey.declaration import Declaration

#: Streams of random numbers.
_DRAWN, _RELEASE, _NOISE = 1, 2, 3
#: A task: the sample's own tables and noise.
OWN = "own"
#: So many samples may fail to be a survey before a study is refused.
_TRIED = 3


@dataclass(frozen=True, eq=False)
class FrameStudy:
    """Repeated samples of a frame, each released by every specification.

    specs: by name of the method; all make the same tables of the same columns. laplace: also noise
    on the tables of the sample, at the epsilon of the first specification. source: the name of the
    frame. Raises ``InputError`` for specifications that differ in more than model and privacy, and
    if no sample can be a survey.
    """

    population: Population
    design: SamplingDesign
    specs: Mapping[str, Spec]
    replicates: int = 100
    seed: int = 0
    laplace: bool = False
    source: str = "the frame"

    def __post_init__(self) -> None:
        if self.replicates < 1:
            raise InputError(f"samples: expected at least 1, got {self.replicates}.")
        if self.seed < 0:
            raise InputError(f"the seed must be 0 or a positive whole number, got {self.seed}.")
        made = {name: drawn_spec(spec, self.population) for name, spec in self.specs.items()}
        object.__setattr__(self, "specs", made)
        for name, spec in made.items():
            require_same_tables(name, spec, self.spec)
        self._try_surveys()
        _ = self.truth  # computed once, and sent to the workers with the study

    @property
    def spec(self) -> Spec:
        """The first specification, whose tables all share."""
        return next(iter(self.specs.values()))

    @property
    def methods(self) -> tuple[str, ...]:
        """The sample, noise, and the specifications by name."""
        return (SAMPLE, *((LAPLACE,) if self.laplace else ()), *self.specs)

    @property
    def records(self) -> int:
        """Number of records that a sample is designed to have."""
        return self.design.n

    @property
    def design_words(self) -> str:
        """The sampling design in words."""
        design, population = self.design, self.population
        names = {"pps_wr": "in proportion to size, with replacement",
                 "pps": "in proportion to size, systematic", "srs": "simple random",
                 "two_stage": f"clusters, then {design.per_cluster} units of each"}  # fmt: skip
        allocation = f"sizes of column {population.drawn!r}" if population.drawn else (
            f"{design.allocation} allocation"
        )
        strata = "no strata" if population.strata is None else (
            f"strata by {population.strata}, {allocation}"
        )
        size = "" if population.size is None else f"; size: {population.size}"
        return f"{names[design.kind]}; {strata}{size}"

    def tasks(self) -> list[Task]:
        """Return all tasks, sample by sample."""
        groups = (OWN, *(f"release{k + 1}" for k in range(len(self.specs))))
        return [Task(sample, group) for sample in range(self.replicates) for group in groups]

    def run(self, task: Task) -> TaskResult:
        """Return the tables of one sample by one method, or why there are none."""
        stream = np.random.SeedSequence(self.seed, spawn_key=(_RELEASE, task.sample))
        if task.group == OWN:
            names, spec = self.methods[: -len(self.specs)], self.spec
        else:
            number = int(task.group.removeprefix("release")) - 1
            names, spec = (tuple(self.specs)[number],), tuple(self.specs.values())[number]
        try:
            survey = self.survey(task.sample, spec)
            if task.group == OWN:
                made = dict(self._own(survey, task.sample))
            else:
                result = released(spec, survey, stream)
                numbered = self.numbered(result.spec, result.tables, result.estimates)
                made = {names[0]: numbered}
        except (RefusedError, InputError) as error:
            reason = f"{type(error).__name__}: {error}"
            rows = [{"sample": task.sample, "method": name, "reason": reason} for name in names]
            return TaskResult(self._empty(), pd.DataFrame(rows))
        parts = [
            frame.assign(method=name, sample=task.sample)[list(self._empty().columns)]
            for name, frame in made.items()
        ]
        refusals = pd.DataFrame(columns=["sample", "method", "reason"], dtype=object)
        return TaskResult(pd.concat(parts, ignore_index=True), refusals)

    def survey(self, sample: int, spec: Spec) -> Survey:
        """Draw sample number ``sample`` and read it as a release reads its survey.

        Raises ``InputError`` for a sample that a release would not accept.
        """
        declaration = build.declaration_of(spec)
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_DRAWN, sample)))
        rows, weight, draws = self.design.select(self.population, rng)
        frame = self.population.frame.take(rows).reset_index(drop=True)
        survey = spec.survey
        if survey.psu is not None:
            frame[survey.psu] = draws.astype(str)
        if survey.weight is not None:
            frame[survey.weight] = weight
        if survey.fpc is not None:
            frame[survey.fpc] = self._fractions(rows, draws)
        return survey_of(frame, replace(declaration, source=f"a sample of {self.source}"))

    def _fractions(self, rows: Any, draws: Any) -> Any:
        """Return the sampling fraction (n,) of units, or of clusters, in each record's stratum."""
        population = self.population
        stratum = np.empty(population.n_units, dtype=np.int64)
        for number, members in enumerate(population.stratum_rows):
            stratum[members] = number
        own = stratum[rows]
        if self.design.two_stage:
            there = np.array([codes.max() + 1 for codes in population.stratum_clusters])
            taken = np.array([draws[own == h].max() + 1 for h in range(there.size)])
        else:
            there = np.array([members.size for members in population.stratum_rows])
            taken = np.bincount(own, minlength=there.size)
        return (taken / there)[own]

    def _own(self, survey: Survey, sample: int) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield the tables of the sample itself, then noisy ones."""
        # Real values have variances by PSU, even if a design effect is declared.
        by_psu = replace(survey.design, design_effect=None)
        spec = self.spec.for_records(survey.design.n)
        estimates = estimates_of_each(spec, by_psu)
        for of_table in estimates.values():
            of_table.add_alone(survey.confidential.outcome, sample_weight(survey))
        yield SAMPLE, self.numbered(spec, tables_of_each(spec, by_psu, estimates), estimates)
        noise = Noise(spec, survey) if self.laplace and not spec.calibration else None
        if noise is None or not noise.possible or not any(map(has_sensitivity, spec.statistics)):
            return
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_NOISE, sample)))
        parts = [
            frame.assign(statistic=statistic, outcome=outcome or "")
            for (statistic, outcome), frame in noise.laplace("paper", rng).items()
        ]
        if parts:
            yield LAPLACE, self._with_rows(pd.concat(parts, ignore_index=True).assign(df=np.nan))

    def numbered(
        self, spec: Spec, tables: Mapping[str, Tables], estimates: Mapping[str, Estimates]
    ) -> pd.DataFrame:
        """Return the numbers of all tables with the number of their row among the truths.

        n: records of the row in this sample, or in the synthetic dataset that has the fewest.
        """
        return self._with_rows(long_rows(spec, tables, estimates))

    def _with_rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        keys = row_keys(self.spec)
        known = pd.MultiIndex.from_frame(self.truth[keys])
        frame = frame.reindex(columns=[*keys, *NUMBERS, "n"])
        frame[keys] = as_text(frame[keys])
        found = known.get_indexer(pd.MultiIndex.from_frame(frame[keys]))
        return frame.assign(row=found)[found >= 0]

    @cached_property
    def truth(self) -> pd.DataFrame:
        """Every row of the tables of the frame itself: its labels, truth and number of units.

        The same code as for a sample estimates them, from all units with weight 1. Rows without
        units, and rows that have no value, are left out.
        """
        spec = self.spec
        drop = {"strata": None, "psu": None, "fpc": None, "weight": "", "weights": "confidential",
                "stratum_sizes": None, "population_size": None, "design_effect": None}  # fmt: skip
        weight = free_name("weight", self.population.frame.columns)
        kept = (*spec.survey.public_columns, *spec.formula_columns, *spec.public_by)
        whole = spec.model_copy(update={
            "survey": spec.survey.model_copy(
                update={**drop, "weight": weight, "public_columns": tuple(dict.fromkeys(kept))}
            ),
        })  # fmt: skip
        whole = plain_estimates(whole)
        declaration: Declaration = replace(
            build.declaration_of(whole), source=self.source, refuse_degenerate=False,
            weight_transform=Transform(),
        )  # fmt: skip
        frame = self.population.frame.assign(**{weight: 1.0})
        survey = survey_of(frame, declaration)
        estimates = estimates_of_each(whole, survey.design)
        for of_table in estimates.values():
            of_table.add_alone(survey.confidential.outcome, sample_weight(survey))
        rows = long_rows(whole, tables_of_each(whole, survey.design, estimates), estimates)
        keys = row_keys(spec)
        rows[keys] = as_text(rows[keys])
        rows = rows[rows["estimate"].notna()].rename(columns={"estimate": "truth", "n": "units"})
        rows = rows[[*keys, "is_margin", "units", "truth"]].reset_index(drop=True)
        return rows.assign(row=np.arange(len(rows)))

    def _empty(self) -> pd.DataFrame:
        kinds = {"method": object, "row": np.int64, "sample": np.int64,
                 **dict.fromkeys(NUMBERS, np.float64), "n": np.float64}  # fmt: skip
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})

    def _try_surveys(self) -> None:
        """Raise the error of the first samples if none of them can be a survey."""
        for sample in range(min(_TRIED, self.replicates)):
            try:
                for spec in self.specs.values():
                    self.survey(sample, spec)
            except InputError as error:
                failure = error
            else:
                return
        raise failure

    def identity(self) -> dict[str, Any]:
        """Return what identifies a study: the frame by its hash, design, specifications, seed."""
        frame = self.population.frame
        hashed = hashlib.sha256(pd.util.hash_pandas_object(frame).to_numpy().tobytes())
        hashed.update("\0".join(map(str, frame.columns)).encode())
        return {
            "frame": {"sha256": hashed.hexdigest(), "units": self.population.n_units,
                      "size": self.population.size, "drawn": self.population.drawn},
            "design": asdict(self.design),
            "specifications": {
                name: spec.model_dump(mode="json", exclude={"path"})
                for name, spec in self.specs.items()
            },
            "replicates": self.replicates,
            "seed": self.seed,
            "laplace": self.laplace,
        }  # fmt: skip
