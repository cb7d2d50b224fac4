"""The specification file: TOML in, frozen and typed settings out.

Every mistake is an ``InputError``: it names ``section.key``, the expected and the given value (a
specification is public, so values may be shown), and the nearest valid name. All mistakes of a file
are listed together. ``spec_of_survey`` makes one for a survey in memory, without a file.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from surveysynth._support.messages import listing, nearest
from surveysynth.config.calibration_section import (
    CalibrationSection,
    calibration_problems,
    read_totals,
)
from surveysynth.config.mistakes import raise_mistakes, read_text, why_not_toml
from surveysynth.config.outcome_section import (
    WEIGHT,
    OutcomeSection,
    TransformSection,
    american,
    weight_transform,
    with_learned_weight,
    without_learned_weight,
)
from surveysynth.config.outcomes import (
    by_problems,
    declared_outcome,
    group_problems,
    label_problems,
    outcome_problems,
    pattern_problems,
    pseudo_posterior_problems,
    public_weight_problems,
    statistic_problems,
    strict_problems,
)
from surveysynth.config.privacy import PRIVACY_KEYS, Privacy
from surveysynth.config.sections import OF_RELEASE, LabelSection, SurveySection
from surveysynth.config.synthesizer_section import SynthesizerSection
from surveysynth.config.tables_section import (
    ALL_TABLES,
    TABLES,
    TablesSection,
    folded,
    section_of,
    where_problems,
)
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import statistic_of
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.formula import parse_formula
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import LearnedTransform

#: Replaces the path of a file if the survey is in memory and the model may be an object.
NO_FILE = "specification.toml"

#: What to use instead of sections and keys of earlier files.
RETIRED = {
    "study": "Studies have no section: run 'surveysynth study SPEC --population FRAME' with the "
    "specification of a release and a public file of the whole population; options describe the "
    "design of the samples.",
    "survey.replicate_centre": "Squares are taken around the estimate; leave it out.",
    **{f"synthesizer.transform{name}": "Set transform in [outcomes.NAME]."
       for name in ("", "_scale", "_shift", "_power")},
    "synthesizer.components": 'Write it after the model: model = "normal_mixture(3)".',
    "synthesizer.smoothing": "Weights of fbp are smoothed within cells of the predictors; the rule "
    'of the paper is get_model("fbp", smoothing="outcome") in Python. Leave it out.',
    **{f"outcomes.{name}": f"Write it into the transform: transform = {{ {name} = .. }}."
       for name in ("scale", "power", "shift")},
    **{f"outcomes.learned_{name}": f"Write it into the transform: transform = {{ {name} = .. }}."
       for name in ("share", "by")},
    **{f"outcomes.{name}": "Set bounds = [lower, upper], of which one may be infinite: [0, inf]."
       for name in ("lower", "upper")},
    "survey.stratum_sizes": "Give the sizes by stratum as population_size.",
    **{f"privacy.{name}": f'Set allow = ["{name}"] to allow it; leave it out otherwise.'
       for name in ("small_strata", "shared_weights")},
    "privacy.count_share": "Counts and sums share the budget evenly; leave it out.",
    "privacy.psu_share": "The share of the budget that says how much primary sampling units "
    "differ follows from their sizes; leave it out.",
    "privacy.modules": "Outcomes that are apart are in releases of their own, in one ledger. Make "
    "a release of each list, with its share of the budget, and name the first in the others: "
    'weights = "release:PATH" in [survey], so that no cell has two counts.',
    "tables.interval": "Intervals keep within the possible range; estimate ± t · standard error "
    "follows from the columns of the csv files. Leave it out.",
    "tables.linearisation": "Variances account for scaled weights wherever survey.population_size "
    "is given; leave it out.",
    "tables.digits_mean": "Set digits in [labels.COLUMN] of the outcome.",
    "tables.figures": "Name them in formats, beside the formats of tables.",
    "tables.flag_action": 'Set flags = "nchs_marked" or "statcan_marked", which withhold nothing.',
    "tables.period": 'Write it after the place, as in place = "United States, 2026".',
    "survey.replicate_fay": 'Write it into replicate_method = "fay(0.5)".',
    "survey.replicate_rscales": "Give the list of numbers as replicate_scale.",
    "privacy.origin": "Log-likelihoods are measured from their peak, and as in the papers with "
    'inference = "paper" in [synthesizer]; leave it out.',
    "privacy.shift": "Write it after the factor: scale = [c, g].",
    "privacy.reweight": 'Set weights = "reweighted".',
    "labels.currency": "Set unit.",
}  # fmt: skip

#: Keys of each section.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "survey": tuple(SurveySection.model_fields),
    "synthesizer": tuple(SynthesizerSection.model_fields),
    "privacy": PRIVACY_KEYS,
    "calibration": tuple(CalibrationSection.model_fields),
    "tables": tuple(TablesSection.model_fields),
    ALL_TABLES: tuple(TablesSection.model_fields),
}

#: Sections with a section for each name in them.
_BY_NAME: dict[str, type[BaseModel]] = {"labels": LabelSection, "outcomes": OutcomeSection}


class Spec(BaseModel):
    """A whole specification; ``path`` is the file it came from and roots the relative paths.

    tables: one section for each table. shared: the section [all_tables] of a file with [[tables]];
    None for a file with one [tables], whose section holds for the whole release.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False
    )

    spec_version: Literal[1] = 1
    """The version of the file format. A later version of the package with another format reports
    this instead of misreading the file. Public: Nothing else."""
    survey: SurveySection
    synthesizer: SynthesizerSection
    privacy: Privacy
    tables: tuple[TablesSection, ...] = (TablesSection(),)
    shared: TablesSection | None = None
    labels: dict[str, LabelSection] = {}
    outcomes: dict[str, OutcomeSection] = {}
    calibration: tuple[CalibrationSection, ...] = ()
    path: Path

    @model_validator(mode="before")
    @classmethod
    def _as_sections(cls, given: Any) -> Any:
        """List the tables, and name the outcomes.

        If the synthesizer names no outcome, the sections of outcomes do, in their order. A file
        without [privacy] lacks the keys that this section requires.
        """
        if not isinstance(given, Mapping):
            return given
        given = {"privacy": {}, **folded(given)}
        survey = given.get("survey")
        if isinstance(survey, Mapping) and isinstance(survey.get("population_size"), str):
            given["survey"] = {**survey, "population_size": _sizes_of_file(given)}
        margins = given.get("calibration")
        if isinstance(margins, list | Mapping):
            given["calibration"] = (margins,) if isinstance(margins, Mapping) else tuple(margins)
        sections, synthesizer = given.get("outcomes"), given.get("synthesizer", {})
        if not (isinstance(sections, Mapping) and isinstance(synthesizer, Mapping)):
            return given
        names = [name for name in sections if name != WEIGHT]
        if not names or "outcome" in synthesizer:
            return given
        return {**given, "synthesizer": {**synthesizer, "outcome": names}}

    @property
    def plan(self) -> SamplingPlan:
        """The size of a fit under the mechanism."""
        return self.synthesizer.plan(self.privacy.default_plan)

    def for_records(self, n: int) -> "Spec":
        """Return the specification with the settings that depend on the number of records."""
        return self.model_copy(update={"privacy": self.privacy.for_records(n)})

    @model_validator(mode="after")
    def _agree(self) -> "Spec":
        synthesizer = self.synthesizer
        problems = self._survey_problems()
        problems += self.privacy.missing
        kept = self.plan.kept
        if self.privacy.m > kept:
            problems.append(
                f"privacy.m: {self.privacy.m} draws cannot be released out of chains x draws = "
                f"{kept}; lower m or raise synthesizer.draws."
            )
        weight = () if self.survey.public_weights else (self.survey.weight,)
        confidential = (*synthesizer.outcome, *filter(None, weight))
        problems += pattern_problems(self.privacy.pattern_columns, confidential, self.public_names)
        problems += group_problems(synthesizer.grouping, (*self.public_by, *self.formula_columns))
        wrong = outcome_problems(
            self.survey, synthesizer, self.outcomes,
            known_model=not (synthesizer.is_program and self.path == Path(NO_FILE)),
        )  # fmt: skip
        if self.privacy.down_weights:
            problems += pseudo_posterior_problems(self.survey, synthesizer, self.outcomes)
        if not wrong:
            for number in range(len(self.tables)):
                problems += self._table_problems(number)
        problems += wrong
        if not wrong:
            levels = {name: tuple(label.levels) for name, label in self.labels.items()}
            problems += label_problems(self.declared, levels)
            problems += calibration_problems(
                self.calibration, self.declared, self.public_names, weight
            )
        if not wrong and self.privacy.adds_noise:
            problems += strict_problems(
                self.survey, synthesizer, self.privacy, self.outcomes, self.public_names
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _table_problems(self, number: int) -> list[str]:
        tables, declared = self.tables[number], self.declared
        place = f"tables[{number + 1}]" if self.named_tables else "tables"
        known = tuple(dict.fromkeys((*self.public_by, *self.formula_columns)))
        weight = None if self.survey.public_weights else self.survey.weight
        problems = by_problems(tables, declared, self.labels, self.statistics)
        problems = problems or statistic_problems(tables, declared)
        problems += where_problems(tables.where, declared, known, weight)
        if tables.name is not None and not self.named_tables:
            problems.append("tables.name: only one of several [[tables]] has a name; leave it out.")
        if tables.layout == "crosstab" and not tables.by:
            problems.append(
                "tables.layout: 'crosstab' needs a column in by, whose levels go side by side."
            )
        return [f"{place}{each.removeprefix('tables')}" for each in problems]

    def _survey_problems(self) -> list[str]:
        survey, problems = self.survey, []
        if survey.weight is None and not survey.public_weights:
            problems.append("survey.weight: missing; tables need a column of sampling weights.")
        if self.weights_release is not None and self.calibration:
            problems.append(
                "survey.weights: counts are those of the earlier release, calibrated if it was, "
                "and no calibration changes them here; leave [[calibration]] out."
            )
        synthesizer = self.synthesizer
        problems += public_weight_problems(survey, synthesizer, self.outcomes)
        problems += [
            f"outcomes.{name}.missing_codes: survey.missing must say what becomes of records with "
            "such a code; set missing = 'drop', or 'model' under noisy statistics."
            for name, each in self.outcomes.items()
            if each.missing_codes and survey.missing == "fail"
        ]
        if survey.population_size is None and "population_size" in synthesizer.requires:
            problems.append(
                f"survey.population_size: missing; model {synthesizer.model!r} needs the public "
                "size of the population (from a frame or a published source, not the sum of the "
                "weights)."
            )
        return problems

    @property
    def declared(self) -> tuple[Outcome, ...]:
        """The public facts about each outcome."""
        given, missing = (self.synthesizer, self.outcomes), self.survey.missing == "model"
        names = self.synthesizer.outcome
        return tuple(declared_outcome(name, *given, missing=missing) for name in names)

    @property
    def learned(self) -> tuple[Outcome, ...]:
        """The columns whose transforms are learned: outcomes, then the weight."""
        survey, columns = self.survey, list(self.declared)
        if survey.weight is not None and not survey.public_weights:
            transform = weight_transform(self.synthesizer, self.outcomes)
            columns.append(Outcome(survey.weight, transform=transform))
        return tuple(each for each in columns if each.learned is not None)

    @property
    def formula_columns(self) -> tuple[str, ...]:
        """Raw columns of the formula, without by columns; the strata if there is no formula."""
        formula, strata = self.synthesizer.predictors, self.survey.strata
        if formula is None:
            return () if strata is None else (strata,)
        with suppress(InputError):  # reported where the formula is read
            return parse_formula(formula).variables
        return ()

    @property
    def public_names(self) -> tuple[str, ...]:
        """Columns with a public role: by, strata, psu, predictors, public_columns."""
        design = [name for name in (self.survey.strata, self.survey.psu) if name is not None]
        weight = (self.survey.weight,) if self.survey.public_weights else ()
        named = (*design, *self.formula_columns, *filter(None, weight), *self.survey.public_columns)
        return (*self.public_by, *named)

    @property
    def public_by(self) -> tuple[str, ...]:
        """The by columns of all tables that are public; the others are outcomes."""
        return tuple(name for name in self.by if name not in self.synthesizer.outcome)

    @property
    def all_tables(self) -> TablesSection:
        """The section that holds for the whole release."""
        return self.tables[0] if self.shared is None else self.shared

    @property
    def table(self) -> TablesSection:
        """The section of the one table."""
        (section,) = self.tables
        return section

    @property
    def named_tables(self) -> bool:
        """True for a file with [[tables]], in which each table has a name and a folder."""
        return self.shared is not None

    @property
    def each_table(self) -> "tuple[Spec, ...]":
        """One specification for each table, as if the release had no other."""
        if not self.named_tables:
            return (self,)
        return tuple(
            self.model_copy(update={"tables": (each,), "shared": None}) for each in self.tables
        )

    @property
    def by(self) -> tuple[str, ...]:
        """The by columns of all tables."""
        return tuple(dict.fromkeys(name for each in self.tables for name in each.by))

    @property
    def statistics(self) -> tuple[str, ...]:
        """The statistics of all tables."""
        return tuple(dict.fromkeys(n for each in self.tables for n in each.statistics))

    @property
    def data_path(self) -> Path:
        """The data file; a relative path is relative to the folder of the specification."""
        return self.path.parent / self.survey.data

    @property
    def weights_release(self) -> Path | None:
        """The folder of the release whose counts this one uses, or None."""
        _, named, folder = self.survey.weights.partition(OF_RELEASE)
        return self.path.parent / folder.strip() if named else None

    @property
    def binary_statistics(self) -> tuple[str, ...]:
        """The chosen statistics that need an outcome of 0 and 1."""
        return tuple(name for name in self.statistics if statistic_of(name).binary)

    @property
    def linearisation(self) -> Literal["ratio", "plain"]:
        """Ratio if weights are scaled to a population size."""
        scaled = self.survey.population_size is not None and not self.survey.public_weights
        return "ratio" if scaled else "plain"

    def margin_label(self, column: str) -> str:
        """Return the name of the margin over ``column`` (``All`` unless labeled otherwise)."""
        return self.labels[column].margin if column in self.labels else "All"


def load_spec(path: str | Path) -> Spec:
    """Read and validate a specification file.

    Parameters
    ----------
    path
        The specification file (TOML).

    Returns
    -------
    Spec
        Frozen and typed settings, by section.

    Raises
    ------
    InputError
        If the file cannot be read, is not TOML, or has unknown keys, wrong types, or values out of
        range.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ss.load_spec(ss.example(folder, n=100)[1]).privacy.epsilon
    3.6
    """
    path = Path(path)
    return parse_spec(read_text(path), path)


def parse_spec(text: str, path: str | Path = "spec.toml") -> Spec:
    """Validate the text of a specification; ``path`` is used in messages and for relative paths.

    Raises ``InputError`` as ``load_spec`` does.
    """
    path = Path(path)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {why_not_toml(error, text)}.") from None
    if "path" in content:
        raise InputError(f"{path}: path: unknown key. Name the data file in survey.data.")
    return validate_spec({**content, "path": path}, str(path))


def validate_spec(content: Mapping[str, Any], source: str) -> Spec:
    """Return the specification of sections of keys; messages call them ``source``.

    Raises ``InputError`` as ``load_spec`` does.
    """
    try:
        return with_defaults(Spec.model_validate(content))
    except ValidationError as error:
        raise_mistakes(source, error.errors(include_url=False), content, _known_keys)
    raise InputError(f"{source} is not valid.")


def with_defaults(spec: Spec) -> Spec:
    """Return the specification with the defaults of its mechanism that depend on other sections."""
    given = spec.outcomes
    if spec.privacy.adds_noise:
        outcomes = with_learned_weight(spec.survey, spec.synthesizer, given)
    else:
        outcomes = without_learned_weight(given)
    return spec if outcomes is given else spec.model_copy(update={"outcomes": outcomes})


def _known_keys(location: tuple[int | str, ...]) -> str:
    name = str(location[-1])
    section = {ALL_TABLES: "tables"}.get(str(location[0]), str(location[0]))
    where = section if len(location) == 1 else f"{section}.{name}"
    if where in RETIRED:
        return f" {RETIRED[where]}"
    if len(location) == 1:
        names = {"shared": ALL_TABLES}
        sections = [names.get(key, key) for key in Spec.model_fields if key != "path"]
        owners = [section for section, keys in _SECTIONS.items() if name in keys]
        hint = f" It belongs in [{owners[0]}]." if owners else nearest(name, sections)
        return f"{hint} Known: {listing(sections)}."
    section = str(location[0])
    by_name = _BY_NAME.get(section)
    known = _SECTIONS[section] if by_name is None else tuple(by_name.model_fields)
    if location[-2] == "transform":
        known = tuple(TransformSection.model_fields)
    written, keys = section_of(location, known)
    for owner, found in _SECTIONS.items():
        if owner != section and name in found:
            return f" It belongs in [{owner}]."
    return f"{nearest(name, keys)} Known in [{written}]: {listing(keys, limit=40)}."


def _sizes_of_file(given: Mapping[str, Any]) -> Any:
    """Return the sizes by stratum from a csv file; return any other text unchanged."""
    survey, path = given["survey"], Path(given["path"]).parent
    size, strata = survey["population_size"], survey.get("strata")
    if not size.lower().endswith(".csv"):
        return size
    if not isinstance(strata, str):
        raise ValueError("survey.population_size: sizes by stratum need survey.strata, the column.")
    try:
        return read_totals(path / size, (strata,), "survey.population_size")
    except InputError as error:
        raise ValueError(str(error)) from None


Sections = Mapping[str, Mapping[str, Any]]
"""Keys by section, as in a file."""

#: Replaces the name of a data file; nothing reads it.
NO_DATA = "survey.csv"
SOURCE = "the tables of this survey"
#: Keys of [synthesizer] that the survey itself sets.
_SETTLED = ("outcome", "predictors")


def spec_of_survey(
    design: PublicDesign,
    sections: Sections,
    several: Sequence[Mapping[str, Any]] | None = None,
    *,
    calibration: Sequence[Mapping[str, Any]] = (),
) -> Spec:
    """Return the specification of ``design`` with further sections.

    ``several``: the sections [[tables]], which share the section all_tables; ``calibration``: the
    sections [[calibration]].

    Raises ``InputError`` as for a file, and for keys that the survey itself sets.
    """
    given = {name: _plain(dict(keys)) for name, keys in sections.items()}
    _refuse_settled(given)
    own: dict[str, dict[str, Any]] = {
        "survey": _survey(design),
        "synthesizer": {
            "outcome": list(design.outcome_names),
            "predictors": design.matrix.formula,
        },
        "privacy": {},
    }
    # Each section has more keys than the given one of the same name.
    moments = given.get("outcomes", {})
    sections = {
        each.name: {**moments.get(each.name, {}), **_section(each)} for each in design.outcomes
    }
    given = {**given, "outcomes": {**moments, **sections}}
    weight = design.weight_transform
    if isinstance(weight, LearnedTransform) and design.weight_name is not None:
        given["outcomes"][WEIGHT] = _learned(weight)
    content = {**given, **{name: {**keys, **given.get(name, {})} for name, keys in own.items()}}
    tables: dict[str, Any] = {}
    if several is not None:
        tables[TABLES] = [_plain(dict(each)) for each in several]
    if calibration:
        tables["calibration"] = [_plain(dict(each)) for each in calibration]
    try:
        return validate_spec({**content, **tables, "path": Path(NO_FILE)}, SOURCE)
    except InputError as error:
        # Sections are arguments here.
        message = str(error).replace(f"[[{TABLES}]]", "several")
        message = re.sub(r"\btables(?=\[\d)", "several", message).replace(ALL_TABLES, TABLES)
        raise InputError(message) from None


def _section(outcome: Outcome) -> dict[str, Any]:
    """Return [outcomes.NAME] without center and spread."""
    keys: dict[str, Any] = {"kind": outcome.kind, "levels": list(outcome.levels)}
    if outcome.learned is not None:
        keys = {
            "kind": outcome.kind, **_learned(outcome.learned), "spikes": list(outcome.spikes)
        }  # fmt: skip
    elif outcome.is_amount:
        transform = outcome.transform
        keys = {
            "kind": outcome.kind,
            "transform": {
                "kind": transform.kind, "scale": float(transform.scale),
                "shift": float(transform.shift), "power": float(transform.power),
            },
            "spikes": list(outcome.spikes),
        }  # fmt: skip
    if outcome.split is not None:
        keys["split"] = float(outcome.split)
    if (outcome.lower, outcome.upper) != (None, None):
        ends = (outcome.lower, -np.inf), (outcome.upper, np.inf)
        keys["bounds"] = [other if end is None else float(end) for end, other in ends]
    return keys


def _learned(given: LearnedTransform) -> dict[str, Any]:
    return {
        "transform": {"kind": given.kind, "share": float(given.share), "by": given.by},
        "range": [float(given.low), float(given.high)],
    }


def _survey(design: PublicDesign) -> dict[str, Any]:
    sources = design.weights_from
    keys = {
        "data": NO_DATA,
        **_weights(design),
        "strata": design.strata_name,
        "psu": design.psu_name,
        "fpc": None if design.stratum_sizes else design.fpc_name,
        "lonely_psu": design.lonely_psu,
        "design_effect": design.design_effect,
        "population_size": design.population_size or design.stratum_sizes,
        "weights_from": list(sources) if isinstance(sources, tuple) else sources,
        "missing": design.missing,
        "public_columns": list(design.public_columns),
    }
    return {key: value for key, value in keys.items() if value is not None}


def _weights(design: PublicDesign) -> dict[str, Any]:
    if design.public_weight is None:
        return {"weight": design.weight_name}
    named = {} if design.stratum_sizes else {"weight": design.public_weight_name}
    return {"weights": "public", **named}


def _refuse_settled(given: Mapping[str, Mapping[str, Any]]) -> None:
    settled = [f"survey.{key}" for key in given.get("survey", {})]
    settled += [f"synthesizer.{key}" for key in _SETTLED if key in given.get("synthesizer", {})]
    settled += [
        f"outcomes.{name}.{key}"
        for name, keys in given.get("outcomes", {}).items()
        for key in american(keys)
        if key not in ("center", "spread")
    ]
    if settled:
        raise InputError(f"{settled[0]}: the survey sets this; pass it to Survey.from_frame.")


def _plain(value: Any) -> Any:
    """Convert NumPy's numbers and arrays to Python's, which a file can hold."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
