"""The same tables by several methods at one epsilon: what each costs against the sample.

All results are confidential: they include confidential estimates, and the sensitivities of the
noisy tables are read from the data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from zlib import crc32

import numpy as np
import pandas as pd

from surveysynth._support.messages import raise_problems
from surveysynth._support.progress import NOISY_TABLES, synthesizer_stage
from surveysynth.config.build import with_noisy_statistics, with_pseudo_posterior
from surveysynth.config.outcomes import kind_problems
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.linearised import Rule
from surveysynth.evaluation.compare.adequacy import FAR, Findings, compare_with_sample
from surveysynth.evaluation.compare.tables import Key, answered, frames, without_flags
from surveysynth.evaluation.laplace import IMPOSSIBLE_FLAG, Noise
from surveysynth.evaluation.methods import (
    LAPLACE,
    MODEL_FREE,
    SAMPLE,
    Method,
    by_reason,
    promises,
    synthesizers,
)
from surveysynth.inference.synthesis import SyntheticDataset, synthesize
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.release.files import published_of
from surveysynth.release.run import Generators, run
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform


@dataclass(frozen=True, eq=False, repr=False)
class ModelRun:
    """One synthesizer's run, confidential, and one dataset in the form of a release.

    spec: as it ran; found: its distance from the sample, None for a single draw.
    """

    title: str
    spec: Spec
    dataset: SyntheticDataset
    found: Findings | None = None


def run_synthesizer(
    spec: Spec, survey: Survey, stream: np.random.SeedSequence, *, seeded: bool
) -> tuple[ModelRun, dict[Key, pd.DataFrame]]:
    """Run the mechanism and make the tables that a release of ``spec`` would publish.

    Generators of the mechanism and of the later steps come from ``stream`` as those of a release
    come from its seed. ``seeded``: noise comes from it too, else from the operating system.
    """
    made = run(spec, survey, Generators.of(stream), test=seeded)
    facts, design, draws = made.facts, made.facts.design, made.draws
    (figures,) = stream.spawn(1)
    shown = next(
        synthesize(
            made.model, design, draws, replicates_per_draw=1, rng=np.random.default_rng(figures),
            scale_to=design.population_size, variance="sample",
        )
    )  # fmt: skip
    noisy = made.released.published.get(STATISTICS_NAME)
    found = None if draws.settings.m < 2 else compare_with_sample(
        facts, made.model, replace(made.survey, design=design), draws, published_of(made.tables),
        statistics=None if noisy is None else LocationStatistics.from_dict(noisy["statistics"]),
        risk_weights=made.released.by_record.get("risk_weight"),
    )  # fmt: skip
    return ModelRun(made.model.title, spec, shown, found), frames(spec, made.tables)


Progress = Callable[[str], None]

#: Why a comparison with public weights has no noise.
PUBLIC_WEIGHTS = (
    "The noise in this comparison hides a record's weight together with its outcome, also in "
    "counts; with weights = 'public' that noise would be unnecessary."
)

#: Why a comparison with calibration has no noise.
CALIBRATED = (
    "The tables of the sample are calibrated, and one record's answers move the calibrated weights "
    "of others: the noise of this comparison would not hide them."
)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Tables by method, for every statistic and outcome of a specification.

    tables: by (statistic, outcome), then by method, frames of D rows with the by-columns (before
    them the table, if there are several, whose rows are below each other), is_margin, n, estimate,
    se, ci_lower, ci_upper, flag and rmse, the root of squared difference from the sample plus
    squared SE ([T] 3.3). ``left_out``: why a method is missing. ``strict_budget``: of the methods
    that promise zero-concentrated privacy, if there are any.
    """

    spec: Spec
    survey: Survey
    sensitivity: Rule
    tables: Mapping[Key, Mapping[str, pd.DataFrame]]
    runs: Mapping[str, ModelRun]
    left_out: Mapping[str, str] = field(default_factory=dict)
    strict_budget: Budget | None = None

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """All methods, the sample first."""
        return tuple(dict.fromkeys(name for each in self.tables.values() for name in each))

    @cached_property
    def promises(self) -> dict[str, dict[str, object]]:
        """The guarantee of each method; equal numbers are not equal guarantees."""
        ran = {name: run.spec for name, run in self.runs.items()}
        return promises(self.spec, ran, self.methods)

    @property
    def mixes_currencies(self) -> bool:
        """True if both an asymptotic epsilon and an (epsilon, delta) are shown."""
        return self.strict_budget is not None and any(
            run.spec.privacy.down_weights for run in self.runs.values()
        )

    def frame(self) -> pd.DataFrame:
        """Return all tables below each other, as in comparison.csv."""
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
        """Return one row a statistic, outcome and method: medians over the rows of the table.

        rmse; rmse_ratio and se_ratio, to the sample's SE; of synthesizers as in ``Findings`` the
        number of rows compared, and beyond ``FAR`` expected errors from the sample; impossible, the
        number of rows with an impossible value.
        """
        lines = []
        for (statistic, outcome), by_method in self.tables.items():
            sample = by_method[SAMPLE]
            reference = sample["se"].where(sample["se"] > 0)  # a public total has no error
            for method, table in by_method.items():
                found = self.runs[method].found if method in self.runs else None
                apart = pd.Series(dtype=float)
                if found is not None:
                    apart = found.rows[statistic, outcome]["difference"].abs().dropna()
                lines.append(
                    {
                        "statistic": statistic,
                        "outcome": outcome,
                        "method": method,
                        "rmse": table["rmse"].median(),
                        "rmse_ratio": (table["rmse"] / reference).median(),
                        "se_ratio": (table["se"] / reference).median(),
                        "beyond": int((apart > FAR).sum()),
                        "compared": len(apart),
                        "impossible": int((table["flag"] == IMPOSSIBLE_FLAG).sum()),
                    }
                )
        return pd.DataFrame(lines)


def compare(
    spec: Spec,
    survey: Survey,
    *,
    models: Sequence[str] = (),
    methods: Sequence[str] = (),
    sensitivity: Rule = "paper",
    seed: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Make every table by every method, each method with the whole epsilon of the specification.

    ``methods`` selects; without it all noise, fbs and fbp by either mechanism, and the
    specification's own model are compared. ``models`` are added. A method that does not fit the
    survey (fbp without a population size, noisy statistics without declared centers) or is refused
    is left out, with the reason. Noise and synthesis have separate random streams.

    Raises ``InputError`` for a seed below zero or an unknown model or method, and ``RefusedError``
    if no requested synthesizer is left.
    """
    say = progress or (lambda stage: None)
    # Every row is compared, even if a release would withhold its estimate.
    spec = without_flags(spec)
    if spec.survey.missing == "model":  # methods are compared on complete answers
        complete = spec.survey.model_copy(update={"missing": "fail"})
        spec, survey = spec.model_copy(update={"survey": complete}), answered(survey)
    chosen, order = synthesizers(spec, models, methods)
    if seed is not None and seed < 0:
        raise InputError(f"the seed must be 0 or a positive whole number, got {seed}.")
    streams = _Streams(seed, order)
    say(NOISY_TABLES)
    made = _Made(spec, survey, streams)
    made.add_noise([name for name in MODEL_FREE if not methods or name in methods], sensitivity)
    for synthesizer in chosen:
        say(synthesizer_stage(synthesizer.name))
        made.add_synthesizer(synthesizer)
    if chosen and not made.runs:
        grouped = by_reason(made.left_out).items()
        reasons = " ".join(f"{', '.join(names)}: {why}" for why, names in grouped)
        raise RefusedError(f"no synthesizer could be compared. {reasons}")
    return Comparison(
        spec, survey, sensitivity, _with_rmse(made.frames), made.runs, made.left_out,
        made.strict_budget,
    )  # fmt: skip


class _Streams:
    """Random numbers of each method: by its place in the order, of noisy statistics by name."""

    def __init__(self, seed: int | None, order: Sequence[str]) -> None:
        root = np.random.SeedSequence(seed)
        self.seeded = seed is not None
        self._entropy = root.entropy
        self.noise, *rest = root.spawn(1 + len(order))
        self._models = dict(zip(order, rest, strict=True))

    def of(self, synthesizer: Method) -> np.random.SeedSequence:
        """Return the stream of a synthesizer."""
        if not synthesizer.noisy:
            return self._models[synthesizer.model]
        key = crc32(synthesizer.name.encode())
        return np.random.SeedSequence(self._entropy, spawn_key=(key,))


class _Made:
    """Tables, runs and reasons, as methods are added to a comparison."""

    def __init__(self, spec: Spec, survey: Survey, streams: _Streams) -> None:
        self.spec, self.survey, self.streams = spec, survey, streams
        self._noise = Noise(spec, survey)
        self.frames: dict[Key, dict[str, pd.DataFrame]] = {
            key: {SAMPLE: table} for key, table in self._noise.sample.items()
        }
        self.runs: dict[str, ModelRun] = {}
        self.left_out: dict[str, str] = {}
        self.strict_budget: Budget | None = None

    def add_noise(self, methods: Sequence[str], sensitivity: Rule) -> None:
        """Add the methods without a model, of those named."""
        why = ""
        if self.spec.calibration:
            why = CALIBRATED
        elif not self._noise.possible:
            why = "noise is made in rows of all records by public columns."
        elif self.survey.design.public_weight is not None:
            why = PUBLIC_WEIGHTS
        if why:
            asked = [name for name in methods if name != SAMPLE]
            self.left_out.update(dict.fromkeys(asked, why))
            return
        if LAPLACE in methods:
            rng = np.random.default_rng(self.streams.noise)
            self._add(LAPLACE, self._noise.laplace(sensitivity, rng))

    def add_synthesizer(self, synthesizer: Method) -> None:
        """Add a synthesizer, or why it is left out; the specification's own must be usable."""
        noisy, name = synthesizer.noisy, synthesizer.name
        own = (self.spec.synthesizer.model, not self.spec.privacy.down_weights)
        try:
            spec = (with_noisy_statistics if noisy else with_pseudo_posterior)(self.spec)
            spec = _with_model(spec, synthesizer.model)
            survey = self.survey if noisy else _with_log_weight(self.survey)
            run, tables = run_synthesizer(
                spec, survey, self.streams.of(synthesizer), seeded=self.streams.seeded
            )
        except (InputError, RefusedError) as error:
            if isinstance(error, InputError) and own == (synthesizer.model, noisy):
                raise
            self.left_out[name] = str(error)
            return
        self.runs[name] = run
        self._add(name, tables)
        if noisy:
            self.strict_budget = spec.privacy.cost

    def _add(self, method: str, tables: Mapping[Key, pd.DataFrame]) -> None:
        for key, table in tables.items():
            self.frames[key][method] = table


def _with_log_weight(survey: Survey) -> Survey:
    """Return the survey with the log weight, which the pseudo-posterior models."""
    return replace(survey, design=replace(survey.design, weight_transform=Transform()))


def _with_model(spec: Spec, name: str) -> Spec:
    """Return the specification with another model and default options.

    Raises ``InputError`` for kinds of outcomes that the model does not take.
    """
    synthesizer = spec.synthesizer.with_model(name)
    raise_problems(str(spec.path), kind_problems(synthesizer, spec.declared))
    return spec.model_copy(update={"synthesizer": synthesizer})


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
