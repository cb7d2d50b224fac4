"""The same tables by several methods at one epsilon: what each costs against the sample.

Everything here is confidential: it stands beside confidential estimates, and the noisy tables are
made with sensitivities read from the data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from surveysynth._support.progress import NOISY_TABLES, synthesizer_stage
from surveysynth._support.types import FloatArray
from surveysynth.baselines.consistent import consistent_tables
from surveysynth.baselines.laplace import NoisyTable, laplace_tables
from surveysynth.baselines.sensitivity import Rule, has_sensitivity
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.clusters import refuse_clusters
from surveysynth.estimation.combining import t_interval
from surveysynth.estimation.estimates import Estimates
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.tables.making import estimates_for, release_tables
from surveysynth.spec.build import method_name

if TYPE_CHECKING:
    from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
    from surveysynth.models.base import Model
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign, Survey

SAMPLE, LAPLACE, CONSISTENT = "sample", "laplace", "laplace_consistent"
#: Compared besides the specification's own model.
DEFAULT_MODELS = ("fbs", "fbp")
IMPOSSIBLE_FLAG = "impossible"
"""Where noise made a negative count, or another value that cannot be; it is not clipped."""

Progress = Callable[[str], None]
Key: TypeAlias = tuple[str, str | None]
"""A statistic and an outcome by their names, None for counts."""


@dataclass(frozen=True, eq=False, repr=False)
class ModelRun:
    """One synthesizer's run: its fit (confidential), and one dataset as it would be released.

    ``dataset`` holds smoothed weights, and as the pair for variances what was drawn.
    """

    title: str
    fit: "ConfidentialFit"
    dataset: SyntheticDataset


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Tables by method, for every statistic and outcome of a specification.

    tables: by (statistic, outcome), then by method, frames of D rows with the by-columns,
    is_margin, n, estimate, se, ci_lower, ci_upper, flag and rmse, the root of squared difference
    from the sample plus squared SE ([T] 3.3). ``left_out``: why a method is missing.
    """

    spec: "Spec"
    survey: "Survey"
    sensitivity: Rule
    tables: Mapping[Key, Mapping[str, pd.DataFrame]]
    runs: Mapping[str, ModelRun]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """All methods, the sample first."""
        return tuple(dict.fromkeys(name for each in self.tables.values() for name in each))

    def frame(self) -> pd.DataFrame:
        """All tables below each other, as comparison.csv has them."""
        several = len(self.spec.synthesizer.outcome) > 1
        parts = []
        for (statistic, outcome), by_method in self.tables.items():
            for method, table in by_method.items():
                part = table.copy()
                part.insert(0, "statistic", statistic)
                if several:
                    part.insert(1, "outcome", outcome)
                part.insert(part.columns.get_loc("estimate"), "method", method)  # type: ignore[arg-type]
                parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """One row a statistic, outcome and method: medians over the rows of the table.

        rmse; rmse_ratio, to the sample's SE; difference, |estimate - sample| in sample SEs;
        se_ratio; impossible, the number of rows with an impossible value.
        """
        lines = []
        for (statistic, outcome), by_method in self.tables.items():
            sample = by_method[SAMPLE]
            reference = sample["se"].where(sample["se"] > 0)  # a public total has no error
            for method, table in by_method.items():
                difference = (table["estimate"] - sample["estimate"]).abs()
                lines.append(
                    {
                        "statistic": statistic,
                        "outcome": outcome,
                        "method": method,
                        "rmse": table["rmse"].median(),
                        "rmse_ratio": (table["rmse"] / reference).median(),
                        "difference": (difference / reference).median(),
                        "se_ratio": (table["se"] / reference).median(),
                        "impossible": int((table["flag"] == IMPOSSIBLE_FLAG).sum()),
                    }
                )
        return pd.DataFrame(lines)


def compare(
    spec: "Spec",
    survey: "Survey",
    *,
    models: Sequence[str] = (),
    sensitivity: Rule = "paper",
    seed: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Make every table by every method, each method with the whole epsilon of the specification.

    ``models`` are compared besides fbs, fbp and the specification's own. One that does not fit the
    survey (fbp without a population size) or is refused is left out, with the reason. Noise and
    synthesis have streams of their own.

    Raises ``InputError`` for a seed below zero or a model that is not known, ``RefusedError`` if no
    synthesizer is left.
    """
    say = progress or (lambda stage: None)
    # Every row is compared, also where a release would withhold its estimate.
    spec = spec.model_copy(update={"tables": spec.tables.model_copy(update={"flags": "none"})})
    names = _model_names(spec, models)
    if seed is not None and seed < 0:
        raise InputError(f"the seed must be 0 or a positive whole number, got {seed}.")
    streams = np.random.SeedSequence(seed).spawn(1 + len(names))
    say(NOISY_TABLES)
    frames: dict[Key, dict[str, pd.DataFrame]] = {
        key: {SAMPLE: table} for key, table in _sample_tables(spec, survey).items()
    }
    _add_noisy(frames, spec, survey, sensitivity, np.random.default_rng(streams[0]))
    runs: dict[str, ModelRun] = {}
    left_out: dict[str, str] = {}
    for name, stream in zip(names, streams[1:], strict=True):
        say(synthesizer_stage(name))
        try:
            run, tables = _run_model(_with_model(spec, name), survey, stream)
        except (InputError, RefusedError) as error:
            if isinstance(error, InputError) and name == spec.synthesizer.model:
                raise
            left_out[method_name(name)] = str(error)
            continue
        runs[method_name(name)] = run
        for key, table in tables.items():
            frames[key][method_name(name)] = table
    if not runs:
        reasons = " ".join(f"{name}: {why}" for name, why in left_out.items())
        raise RefusedError(f"no synthesizer could be compared. {reasons}")
    return Comparison(spec, survey, sensitivity, _with_rmse(frames), runs, left_out)


def _model_names(spec: "Spec", models: Sequence[str]) -> list[str]:
    """Models in the order of the report, each once."""
    from surveysynth.models import model_names

    unknown = [name for name in models if name not in model_names()]
    if unknown:
        raise InputError(f"there is no model {unknown[0]!r}; known: {', '.join(model_names())}.")
    return list(dict.fromkeys([*DEFAULT_MODELS, spec.synthesizer.model, *models]))


def _with_model(spec: "Spec", name: str) -> "Spec":
    """The specification with another model, its options as if they had not been given."""
    return spec.model_copy(update={"synthesizer": spec.synthesizer.with_model(name)})


def _sample_tables(spec: "Spec", survey: "Survey") -> dict[Key, pd.DataFrame]:
    """The confidential sample's own tables, through the estimation of the release."""
    weight = survey.confidential.sampling_weight
    if weight is None:
        raise InputError("a comparison of survey tables needs sampling weights; give weight.")
    # Its values are real, so that its variances are by PSU also where a design effect is declared.
    by_psu = replace(survey.design, design_effect=None)
    estimates = estimates_for(spec, by_psu)
    estimates.add_alone(survey.confidential.outcome, weight)
    return _frames(spec, by_psu, estimates)


def _frames(
    spec: "Spec", design: "PublicDesign", estimates: Estimates
) -> dict[Key, pd.DataFrame]:
    made = release_tables(spec, design, estimates)
    tables = [table for of_statistic in made.values() for table in of_statistic]
    return {(table.statistic, table.outcome): _columns(table.frame) for table in tables}


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Without degrees of freedom; n before the numbers, the flag after."""
    numbers = ["estimate", "se", "ci_lower", "ci_upper"]
    apart = {*numbers, "n", "flag", "df", "df_design"}
    return frame[[*(name for name in frame if name not in apart), "n", *numbers, "flag"]].copy()


def _add_noisy(
    frames: dict[Key, dict[str, pd.DataFrame]],
    spec: "Spec",
    survey: "Survey",
    sensitivity: Rule,
    rng: np.random.Generator,
) -> None:
    """Laplace tables and the same made consistent, beside the sample's, of every statistic that
    noise can be scaled to."""
    design, confidential = survey.design, survey.confidential
    estimates = estimates_for(spec, design)  # for its rows and its design
    names = design.outcome_names
    keys = [key for key in estimates.keys if has_sensitivity(key[0])]
    if not keys:
        return
    tables = laplace_tables(
        estimates.domains,
        estimates.sample_design,
        weight=_weights(survey),
        outcomes=confidential.outcome,
        keys=keys,
        epsilon=spec.privacy.epsilon,
        rng=rng,
        sensitivity=sensitivity,
        linearisation=spec.linearisation,
        population_size=design.population_size,
    )
    level = spec.tables.level
    for method, made in (
        (LAPLACE, tables),
        (CONSISTENT, consistent_tables(estimates.domains, tables)),
    ):
        for table in made:
            key = (table.statistic, None if table.outcome is None else names[table.outcome])
            frames[key][method] = _noisy_frame(frames[key][SAMPLE], table, level)


def _noisy_frame(sample: pd.DataFrame, table: NoisyTable, level: float) -> pd.DataFrame:
    """The sample's frame with noisy numbers; impossible values are flagged before small cells."""
    lower, upper = t_interval(table.combined(), level)
    flag = np.where(table.impossible, IMPOSSIBLE_FLAG, sample["flag"])
    return sample.assign(
        estimate=table.estimate,
        se=np.sqrt(table.variance),
        ci_lower=lower,
        ci_upper=upper,
        flag=flag,
    )


def _run_model(
    spec: "Spec", survey: "Survey", stream: np.random.SeedSequence
) -> tuple[ModelRun, dict[Key, pd.DataFrame]]:
    """The mechanism and the tables that a release with this model would publish."""
    from surveysynth.inference.published import datasets_of, published_draws
    from surveysynth.inference.synthesis import synthesise
    from surveysynth.mechanisms.pseudo_posterior import run as mechanism
    from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior
    from surveysynth.models.base import require
    from surveysynth.spec import build

    design = survey.design
    mechanism_rng, synthesis_rng, figure_rng = map(np.random.default_rng, stream.spawn(3))
    model: Model = build.engine_of(spec, build.model_of(spec))
    refuse_clusters(design, model)
    require(model, design)
    model.prepare()
    settings = build.settings_of(spec)
    private, fit = mechanism.run(model, design, survey.confidential, settings, mechanism_rng)
    estimates = estimates_for(spec, design, PseudoPosterior(settings))
    inference = spec.synthesizer.inference
    private = published_draws(model, design, private, synthesis_rng, inference=inference).draws
    for dataset in datasets_of(
        model, design, private, synthesis_rng, inference=inference,
        replicates_per_draw=spec.privacy.replicates_per_draw,
    ):  # fmt: skip
        estimates.add(dataset)
    shown = next(
        synthesise(
            model, design, private, replicates_per_draw=1, rng=figure_rng,
            scale_to=design.population_size, variance="sample",
        )
    )  # fmt: skip
    return ModelRun(model.title, fit, shown), _frames(spec, design, estimates)


def _with_rmse(
    frames: Mapping[Key, Mapping[str, pd.DataFrame]],
) -> dict[Key, dict[str, pd.DataFrame]]:
    result = {}
    for key, by_method in frames.items():
        truth = by_method[SAMPLE]["estimate"]
        result[key] = {
            name: table.assign(rmse=np.hypot(table["estimate"] - truth, table["se"]))
            for name, table in by_method.items()
        }
    return result


def _weights(survey: "Survey") -> FloatArray:
    weight = survey.confidential.sampling_weight
    if weight is None:
        raise InputError("a comparison of survey tables needs sampling weights; give weight.")
    return weight
