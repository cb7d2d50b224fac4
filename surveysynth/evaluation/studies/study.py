"""Studies on a frame: releases of samples that are drawn again and again from a whole population.

Each task is one sample by one method: the sample's own tables, or the release of a specification,
made by the same steps as a release and kept in memory. A task's numbers depend only on the seed,
the sample's number and the specification, so tasks may run anywhere, in any order, and again. All
methods see the same samples, and all releases start from the same random numbers.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.config import build
from surveysynth.config.spec import NO_DATA, NO_FILE, Spec, load_spec, validate_spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.statistics import LEVEL, TABLE, statistic_of
from surveysynth.evaluation.compare.tables import answered, sample_weight
from surveysynth.evaluation.laplace import Noise
from surveysynth.evaluation.methods import LAPLACE, MODEL_FREE, SAMPLE
from surveysynth.evaluation.studies.frame import (
    allocation_of,
    check_design,
    columns_of,
    read_frame,
    refuse_survey_file,
    require_same_tables,
    sample_spec,
)
from surveysynth.evaluation.studies.population import (
    DESIGN,
    SOURCE,
    Population,
    SamplingDesign,
    published_frame,
    published_specs,
)
from surveysynth.evaluation.studies.tasks import Task, TaskResult
from surveysynth.release.run import Generators, run
from surveysynth.release.tables.table_builder import estimates_by_table, tables_by_name
from surveysynth.survey.declaration import Declaration
from surveysynth.survey.survey import PublicDesign, Survey, survey_of
from surveysynth.survey.transforms import Transform

NUMBERS = ("estimate", "se", "df", "ci_lower", "ci_upper")


def released(
    spec: Spec, survey: Survey, stream: np.random.SeedSequence
) -> tuple[pd.DataFrame, Mapping[str, Any]]:
    """Return the rows of the tables that a release of this survey would publish.

    It takes the steps of a release. Confidential facts about the records come second. Nothing is
    written. Raises ``RefusedError`` where a release would.
    """
    with warnings.catch_warnings():
        # What a release says to its user once would be said for every sample.
        warnings.simplefilter("ignore", UserWarning)
        made = run(spec, survey, Generators.of(stream), test=True)
    facts = made.facts
    return _long_rows(facts.spec, facts.design, made.estimates), made.released.realised


def row_keys(spec: Spec) -> list[str]:
    """Return the columns that name a row: table, statistic, outcome, level, by columns."""
    return [TABLE, "statistic", "outcome", LEVEL, *spec.by]


def sample_rows(spec: Spec, survey: Survey) -> pd.DataFrame:
    """Return the rows of the sample's own tables.

    Real values have variances by PSU, even if a design effect is declared. A missing answer is
    taken from a record of the same cell, as in a comparison of a release with its sample.
    """
    survey = answered(survey)
    design = replace(survey.design, design_effect=None)
    estimates = estimates_by_table(spec, design)
    for of_table in estimates.values():
        of_table.add_alone(survey.confidential.outcome, sample_weight(survey))
    return _long_rows(spec, design, estimates)


def _long_rows(
    spec: Spec, design: PublicDesign, estimates: Mapping[str, Estimates]
) -> pd.DataFrame:
    """Return the rows of all tables below each other, with their number of records.

    n is that of the one dataset, or of the synthetic dataset with the fewest records.
    """
    parts = []
    names = [outcome.name for outcome in spec.declared]
    for name, of_statistic in tables_by_name(spec, design, estimates).items():
        for each in (table for several in of_statistic.values() for table in several):
            column = None if each.outcome is None else names.index(each.outcome)
            n = estimates[name].lines((each.statistic, column)).n
            part = each.frame.assign(statistic=each.statistic, outcome=each.outcome or "")
            part[TABLE] = name
            part["n"] = np.repeat(n, max(len(each.categories), 1)).astype(np.float64)
            parts.append(part)
    rows = pd.concat(parts, ignore_index=True)
    return _labelled(rows, row_keys(spec), ["is_margin", *NUMBERS, "n"])


def _labelled(rows: pd.DataFrame, keys: list[str], others: list[str]) -> pd.DataFrame:
    """Return these columns, the keys as text: empty where a table has no such column."""
    rows = rows.reindex(columns=[*keys, *others])
    labels = rows[keys].astype(object)
    rows[keys] = labels.where(labels.notna(), "").astype(str)
    return rows


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
        made = {name: sample_spec(spec, self.population) for name, spec in self.specs.items()}
        object.__setattr__(self, "specs", made)
        for name, spec in made.items():
            require_same_tables(name, spec, self.spec)
        for sample in range(min(_TRIED, self.replicates)):  # the first may fail to be a survey
            try:
                for spec in made.values():
                    self.survey(sample, spec)
            except InputError as error:
                failure = error
            else:
                break
        else:
            raise failure
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
                made = {names[0]: self._numbered(released(spec, survey, stream)[0])}
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
        spec = self.spec.for_records(survey.design.n)
        yield SAMPLE, self._numbered(sample_rows(spec, survey))
        if not self.laplace or spec.calibration:
            return
        noise = Noise(spec, survey)
        known = (statistic_of(name).sensitivity is not None for name in spec.statistics)
        if not (noise.possible and any(known)):
            return
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_NOISE, sample)))
        parts = [
            frame.assign(statistic=statistic, outcome=outcome or "")
            for (statistic, outcome), frame in noise.laplace("paper", rng).items()
        ]
        if parts:
            yield LAPLACE, self._numbered(pd.concat(parts, ignore_index=True).assign(df=np.nan))

    def _numbered(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the numbers of all tables with the number of their row among the truths."""
        keys = row_keys(self.spec)
        known = pd.MultiIndex.from_frame(self.truth[keys])
        rows = _labelled(rows, keys, [*NUMBERS, "n"])
        found = known.get_indexer(pd.MultiIndex.from_frame(rows[keys]))
        return rows.assign(row=found)[found >= 0]

    @cached_property
    def truth(self) -> pd.DataFrame:
        """Every row of the tables of the frame itself: its labels, truth and number of units.

        The same code as for a sample estimates them, from all units with weight 1. Rows without
        units, and rows that have no value, are left out.
        """
        spec = self.spec
        drop = {"strata": None, "psu": None, "fpc": None, "weight": "", "weights": "confidential",
                "population_size": None, "design_effect": None}  # fmt: skip
        weight = "weight"
        while weight in self.population.frame:
            weight += "_"
        kept = (*spec.survey.public_columns, *spec.formula_columns, *spec.public_by)
        whole = spec.model_copy(update={
            "survey": spec.survey.model_copy(
                update={**drop, "weight": weight, "public_columns": tuple(dict.fromkeys(kept))}
            ),
            "calibration": (),
        })  # fmt: skip
        declaration: Declaration = replace(
            build.declaration_of(whole), source=self.source, refuse_degenerate=False,
            weight_transform=Transform(),
        )  # fmt: skip
        frame = self.population.frame.assign(**{weight: 1.0})
        rows, keys = sample_rows(whole, survey_of(frame, declaration)), row_keys(spec)
        rows = rows[rows["estimate"].notna()].rename(columns={"estimate": "truth", "n": "units"})
        rows = rows[[*keys, "is_margin", "units", "truth"]].reset_index(drop=True)
        return rows.assign(row=np.arange(len(rows)))

    def _empty(self) -> pd.DataFrame:
        kinds = {"method": object, "row": np.int64, "sample": np.int64,
                 **dict.fromkeys(NUMBERS, np.float64), "n": np.float64}  # fmt: skip
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})

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


def chosen_frame_study(
    frame: "pd.DataFrame | Path | None",
    specs: Sequence[str | Path | Spec | Mapping[str, Any]],
    *,
    samples: int,
    seed: int,
    n: int | None,
    design: str | None,
    size: str | None,
    allocation: str,
    per_cluster: int,
    clusters: str,
    within: str,
    laplace: bool,
) -> FrameStudy:
    """Return the study that the arguments of ``surveysynth.coverage`` describe.

    Without a frame it is on that of the published simulation, whose design and releases replace
    those that are not given. Raises ``InputError`` for an invalid study.
    """
    source = "the frame" if not isinstance(frame, Path) else frame.name
    named = _named([_spec_of(each) for each in specs])
    if frame is None:
        frame, source = published_frame(seed), SOURCE
        n = DESIGN["n"] if n is None else n
        design, size = design or DESIGN["design"], size or DESIGN["size"]
        named = named or {name: _spec_of(each) for name, each in published_specs().items()}
    if not named:
        raise InputError("spec: missing; name the specification of a release for this frame.")
    first, *_ = given = list(named.values())
    if isinstance(frame, Path):
        for each in given:
            refuse_survey_file(frame, each)
    rule, drawn = allocation_of(allocation, columns_of(frame))
    if n is None and drawn is None:
        raise InputError(
            "n: missing; a study needs the number of records of a sample, as your survey has."
        )
    if n is not None and drawn is not None:
        raise InputError(
            f"n: the column {drawn!r} gives the sample size of each stratum; leave n out."
        )
    population = read_frame(frame, first, size=size, drawn=drawn, source=source)
    total = n if n is not None else int(population.sampled_by_stratum.sum())
    implied = "srs" if size is None else "pps"
    kind: Any = design or (implied if first.survey.psu is None else "two_stage")
    rules: Any = {"allocation": rule, "clusters": clusters, "within": within}
    sampling = SamplingDesign(kind, total, per_cluster=per_cluster, **rules)
    check_design(sampling, population, first)
    return FrameStudy(population, sampling, named, samples, seed, laplace, source)


def _spec_of(given: str | Path | Spec | Mapping[str, Any]) -> Spec:
    if isinstance(given, Spec):
        return given
    if isinstance(given, Mapping):
        survey = {"data": NO_DATA, **given.get("survey", {})}
        content = {**given, "survey": survey, "path": Path(NO_FILE)}
        return validate_spec(content, "the specification of this study")
    return load_spec(given)


def _named(specs: Sequence[Spec]) -> dict[str, Spec]:
    """Name specifications by their files; those that share a name are numbered."""
    named: dict[str, Spec] = {}
    for spec in specs:
        stem = "release" if spec.path == Path(NO_FILE) else spec.path.stem
        name, number = stem, 1
        while name in named or name in MODEL_FREE:
            number += 1
            name = f"{stem} {number}"
        named[name] = spec
    return named
