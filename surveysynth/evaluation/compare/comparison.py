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
from surveysynth.config.build import mechanism_of, with_noisy_statistics, with_pseudo_posterior
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

    spec: the specification that ran; found: the distance from the sample, None for a single draw.
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
        made: dict[str, dict[str, object]] = {
            SAMPLE: {"guarantee": "none: confidential estimates"},
            LAPLACE: {
                "guarantee": "none: sensitivities are read from the confidential data",
                "noise_for_pure_epsilon": self.spec.privacy.stated_epsilon,
            },
        }
        for name, each in self.runs.items():
            privacy = each.spec.privacy
            made[name] = {
                **mechanism_of(each.spec).guarantee(),
                "mechanism": privacy.mechanism,
                "m": privacy.m,
                "replicates_per_draw": privacy.replicates_per_draw,
            }
        return {name: made[name] for name in self.methods}

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
        """Return one row per statistic, outcome and method: medians over the rows of the table.

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
    root = np.random.SeedSequence(seed)
    of_noise, *rest = root.spawn(1 + len(order))
    streams = dict(zip(order, rest, strict=True))
    say(NOISY_TABLES)
    noise = Noise(spec, survey)
    tables: dict[Key, dict[str, pd.DataFrame]] = {key: {} for key in noise.sample}
    _add(tables, SAMPLE, noise.sample)
    runs: dict[str, ModelRun] = {}
    left_out: dict[str, str] = {}
    strict_budget = None
    if LAPLACE in (methods or MODEL_FREE):
        if why := _without_noise(spec, survey, noise):
            left_out[LAPLACE] = why
        else:
            made_noise = noise.laplace(sensitivity, np.random.default_rng(of_noise))
            _add(tables, LAPLACE, made_noise)
    for method in chosen:
        say(synthesizer_stage(method.name))
        # Noisy statistics by name: the order is that of the pseudo-posterior's models.
        stream = streams[method.model] if not method.noisy else np.random.SeedSequence(
            root.entropy, spawn_key=(crc32(method.name.encode()),)
        )
        try:
            made, frames_of = _run_method(method, spec, survey, stream, seeded=seed is not None)
        except (InputError, RefusedError) as error:
            # The specification's own must be usable.
            usual = (spec.synthesizer.model, not spec.privacy.down_weights)
            if isinstance(error, InputError) and usual == (method.model, method.noisy):
                raise
            left_out[method.name] = str(error)
            continue
        runs[method.name] = made
        strict_budget = made.spec.privacy.cost if method.noisy else strict_budget
        _add(tables, method.name, frames_of)
    if chosen and not runs:
        grouped = by_reason(left_out).items()
        reasons = " ".join(f"{', '.join(names)}: {why}" for why, names in grouped)
        raise RefusedError(f"no synthesizer could be compared. {reasons}")
    return Comparison(spec, survey, sensitivity, tables, runs, left_out, strict_budget)


def _add(
    tables: Mapping[Key, dict[str, pd.DataFrame]], method: str, made: Mapping[Key, pd.DataFrame]
) -> None:
    """Add the tables of a method, with their RMSE against the sample."""
    for key, table in made.items():
        truth = tables[key].get(SAMPLE, table)["estimate"]
        rmse = np.hypot(table["estimate"] - truth, table["se"])
        tables[key][method] = table.assign(rmse=rmse)


def _run_method(
    method: Method, spec: Spec, survey: Survey, stream: np.random.SeedSequence, *, seeded: bool
) -> tuple[ModelRun, dict[Key, pd.DataFrame]]:
    """Run a synthesizer by its mechanism; the pseudo-posterior models the log weight."""
    asked = (with_noisy_statistics if method.noisy else with_pseudo_posterior)(spec)
    if not method.noisy:
        survey = replace(survey, design=replace(survey.design, weight_transform=Transform()))
    return run_synthesizer(_with_model(asked, method.model), survey, stream, seeded=seeded)


def _without_noise(spec: Spec, survey: Survey, noise: Noise) -> str:
    """Return the reason why the tables of the sample have no noise version, "" if they have one."""
    if spec.calibration:
        return CALIBRATED
    if not noise.possible:
        return "noise is made in rows of all records by public columns."
    return "" if survey.design.public_weight is None else PUBLIC_WEIGHTS


def _with_model(spec: Spec, name: str) -> Spec:
    """Return the specification with another model and default options.

    Raises ``InputError`` for kinds of outcomes that the model does not take.
    """
    synthesizer = spec.synthesizer.with_model(name)
    raise_problems(str(spec.path), kind_problems(synthesizer, spec.declared))
    return spec.model_copy(update={"synthesizer": synthesizer})
