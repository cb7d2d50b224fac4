"""Build the parts of a run from a specification: survey, model with its sampler, settings.

Titles of columns and labels of values in a file of Stata, SPSS or SAS are the survey's data
dictionary and count as public; the specification has precedence, and labels of values are used for
public columns only.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from surveysynth._support.messages import raise_problems, visible
from surveysynth.config.calibration_section import method_of, place_of
from surveysynth.config.outcome_section import WEIGHT, weight_transform
from surveysynth.config.outcomes import strict_problems
from surveysynth.config.privacy import as_noisy_statistics, as_pseudo_posterior
from surveysynth.config.sections import (
    LabelSection,
    Section,
    columns_of_pattern,
    replicate_problems,
)
from surveysynth.config.spec import Spec, with_defaults
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import Calibration, Margin
from surveysynth.inference.synthesis import check_replicates
from surveysynth.mechanisms.base import Declared, Mechanism
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN, NoisySettings
from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.models.base import Model
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.columns import missing_column, text_column
from surveysynth.survey.declaration import Declaration, Facts, declared_sizes, make_roles
from surveysynth.survey.files import LABELLED_SUFFIXES, LabelledTable, Table, open_table
from surveysynth.survey.outcome import ABOVE, BELOW
from surveysynth.survey.records import LEAST_RECORDS, MAX_LEVELS
from surveysynth.survey.survey import PublicDesign, Survey, public_design, survey_of


def read_survey(spec: Spec) -> Survey:
    """Read and validate the survey that a specification names.

    Parameters
    ----------
    spec
        The specification, from ``load_spec``.

    Returns
    -------
    Survey
        Its public and confidential halves.

    Raises
    ------
    InputError
        If the data file cannot be read or does not fit the specification.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ss.read_survey(ss.load_spec(ss.example(folder, n=100)[1])).design.n
    100
    """
    table, declaration = _open(spec)
    return survey_of(table.read(declaration.columns), declaration)


def read_design(spec: Spec) -> PublicDesign:
    """Return the public half of the survey; cells of outcomes and weights are not read.

    Records without an outcome or a weight, which ``missing = "drop"`` leaves out of a release, are
    therefore still in it. Raises ``InputError`` as ``read_survey`` does for public columns.
    """
    table, declaration = _open(spec)
    return public_design(table.read(declaration.public_part().roles.needed), declaration)


def declaration_of(spec: Spec) -> Declaration:
    """Return the declaration of the survey's columns in a specification."""
    section, synthesizer = spec.survey, spec.synthesizer
    roles = make_roles(
        synthesizer.outcome, section.weight, spec.public_by, section.strata, section.psu,
        section.fpc, synthesizer.predictors, section.public_columns,
        weights=section.kind_of_weights,
    )  # fmt: skip
    facts = _of_same_name(section, Facts) | declared_sizes(section.population_size)
    return Declaration(
        **facts,
        roles=roles,
        outcomes=spec.declared,
        source=str(spec.data_path),
        predictors=synthesizer.predictors,
        orders={name: tuple(each.levels) for name, each in spec.labels.items() if each.levels},
        margins={name: spec.margin_label(name) for name in spec.public_by},
        statistics=spec.statistics,
        binary_for=spec.binary_statistics,
        # A mechanism that answers for every valid survey may not refuse one because of its values.
        refuse_degenerate=not spec.privacy.adds_noise,
        weights=section.kind_of_weights,
        weight_transform=weight_transform(synthesizer, spec.outcomes),
        missing_codes={name: each.missing_codes for name, each in spec.outcomes.items()},
    )


def calibration_of(spec: Spec, design: PublicDesign) -> Calibration | None:
    """Return the known totals of a specification, for the records of a design; or None.

    Raises ``InputError``, naming the margin, for totals that no weights of these records can have:
    with public weights also for bounds that they cannot keep.
    """
    if not spec.calibration:
        return None
    method, bounds = method_of(spec.calibration)
    made = Calibration(
        margins_of(spec), design.frame, design.outcomes,
        population_size=design.population_size, method=method, bounds=bounds,
    )  # fmt: skip
    if made.public and design.public_weight is not None:
        made.calibrate(design.public_weight, np.zeros((design.n, 0)))
    return made


def margins_of(spec: Spec) -> list[Margin]:
    """Return the margins of a specification; raises ``InputError`` for files of totals."""
    return [
        each.margin(place_of(number), spec.path.parent)
        for number, each in enumerate(spec.calibration)
    ]


def _open(spec: Spec) -> tuple[Table, Declaration]:
    declaration = declaration_of(spec)
    table = open_table(spec.data_path)
    absent = [
        f"labels.{name}: {missing_column(name, table.columns, declaration.roles.needed)}"
        for name in spec.labels
        if name not in table.columns
    ]
    problems = [*declaration.problems(table.columns), *absent]
    replicates = columns_of_pattern(spec.survey.replicate_weights, table.columns)
    problems += replicate_problems(spec.survey, replicates, declaration.roles, table.columns)
    raise_problems(declaration.source, problems)
    return table, replace(declaration, replicates=replicates)


def model_of(spec: Spec) -> Model:
    """Return the synthesizer of a specification, with its options."""
    synthesizer = spec.synthesizer
    if synthesizer.is_program:
        from surveysynth.models.own_stan import StanProgram

        program = StanProgram.load(spec.path.parent / synthesizer.model, priors=synthesizer.priors)
        check_replicates(program, spec.privacy.replicates_per_draw)
        return program
    model = get_model(synthesizer.model, **model_options(spec))
    return model.under_noise() if spec.privacy.adds_noise else model


def model_options(spec: Spec) -> dict[str, Any]:
    """Return the options of a registered model in a specification."""
    synthesizer = spec.synthesizer
    options: dict[str, Any] = {"priors": dict(synthesizer.priors)}
    if spec.privacy.adds_noise and synthesizer.grouping != ():
        options["covariance_by"] = synthesizer.grouping  # None: by and strata
    return options


def check_engine(spec: Spec, model: Model) -> None:
    """Raise ``InputError`` if the engine of a specification is not installed.

    The engine of a user's own Stan program is checked too. A release raises the same error.
    """
    from importlib.util import find_spec

    chosen: Any = engine_of(spec, model)
    chosen = getattr(chosen, "runner", chosen.engine or chosen)
    backend = getattr(chosen, "backend", None)
    if backend is None:
        return
    from surveysynth.sampling.stan.backends import CmdStanBackend, PyStanBackend
    from surveysynth.sampling.stan.source import cmdstan_location

    if isinstance(backend, CmdStanBackend) and backend.executable is None:
        cmdstan_location()
    elif isinstance(backend, PyStanBackend) and find_spec("httpstan") is None:
        raise InputError("PyStan is not installed: install the extra 'stan' of surveysynth.")
    elif isinstance(backend, CmdStanBackend):
        chosen.prepare()  # compiled already: this looks for it


def engine_of(spec: Spec, model: Model) -> Model:
    """Return the model with the sampler of a specification.

    A Stan program of the user is its own sampler.
    """
    if spec.synthesizer.engine != "cmdstan" or spec.synthesizer.is_program:
        return model
    assert isinstance(model, WeightedModel)  # noisy statistics take no engine
    from surveysynth.sampling.stan.backends import StanEngine

    return model.with_engine(StanEngine())


def mechanism_of(spec: Spec) -> Mechanism:
    """Return the mechanism of a specification, with its settings."""
    if spec.privacy.mechanism == "noisy_statistics":
        from surveysynth.mechanisms.noisy_statistics.mechanism import NoisyStatisticsMechanism

        return NoisyStatisticsMechanism(noisy_settings_of(spec))
    return PseudoPosterior(settings_of(spec))


def noisy_settings_of(spec: Spec, **changes: Any) -> NoisySettings:
    """Return the settings of noisy statistics, all public; ``changes``: of a comparison."""
    synthesizer, privacy = spec.synthesizer, as_noisy_statistics(spec.privacy)

    above, below = declared_of(spec)
    return NoisySettings(**{
        **_of_same_name(privacy, NoisySettings),
        "budget": privacy.cost,
        "declared": {name: each for name, each in above.items() if name != WEIGHT},
        "declared_below": below,
        "weight": above.get(WEIGHT, Declared()),
        "radius": privacy.radius or 0.0,
        "plan": synthesizer.plan(NOISY_PLAN),
        **changes,
    })  # fmt: skip


def _of_same_name(section: Section, settings: type) -> dict[str, Any]:
    """Return the keys that a section shares with the settings made from it."""
    names = {each.name for each in fields(settings)}
    return {name: value for name, value in section if name in names}


def declared_of(spec: Spec) -> tuple[dict[str, Declared], dict[str, Declared]]:
    """Return the declared values by name, for amounts above a split (or all) and below it."""
    above = {name: Declared(*each.of_side(ABOVE)) for name, each in spec.outcomes.items()}
    split = [each.name for each in spec.declared if each.split is not None]
    return above, {name: Declared(*spec.outcomes[name].of_side(BELOW)) for name in split}


def settings_of(spec: Spec) -> MechanismSettings:
    """Return the settings of the pseudo-posterior, all public."""
    privacy, synthesizer = as_pseudo_posterior(spec.privacy), spec.synthesizer
    of_papers = synthesizer.inference == "paper"
    return MechanismSettings(**{
        **_of_same_name(privacy, MechanismSettings),
        **privacy.weighting,
        "origin": "density" if of_papers else None,
        "plan": SamplingPlan(synthesizer.chains, synthesizer.warmup, synthesizer.draws),
    })  # fmt: skip


def method_name(model: str) -> str:
    """Return a model's name in ledgers and reports; for a user's Stan program, that of its file."""
    return Path(model).stem


def with_noisy_statistics(spec: Spec) -> Spec:
    """Return the specification with noisy statistics at the same epsilon.

    Raises ``InputError`` for missing settings, such as centers and spreads.
    """
    privacy = as_noisy_statistics(spec.privacy)
    if privacy is spec.privacy:
        return spec
    # These keys have a meaning for the pseudo-posterior alone.
    settled = {"engine": "auto", "inference": "debiased"}
    synthesizer = spec.synthesizer.model_copy(update=settled)
    problems = strict_problems(spec.survey, synthesizer, privacy, spec.outcomes, spec.public_names)
    raise_problems(str(spec.path), problems)
    return with_defaults(
        spec.model_copy(update={"privacy": privacy, "synthesizer": synthesizer})
    )


def with_pseudo_posterior(spec: Spec) -> Spec:
    """Return the specification with the pseudo-posterior at the same, but asymptotic, epsilon.

    The guarantees of the two mechanisms differ.
    """
    return with_defaults(spec.model_copy(update={"privacy": as_pseudo_posterior(spec.privacy)}))


def with_file_labels(spec: Spec) -> Spec:
    """Return the specification with titles and labels from the data file.

    Titles of all columns with a role and labels of levels of public ones are added if the
    specification has none. Only cells of public columns with labels are read. Raises
    ``InputError`` as ``open_table`` does, and for labels that are not distinct.
    """
    if not spec.data_path.name.lower().endswith(LABELLED_SUFFIXES):
        return spec
    table = open_table(spec.data_path)
    assert isinstance(table, LabelledTable)  # by its ending
    weight = () if spec.survey.weight is None else (spec.survey.weight,)
    amounts = (*spec.synthesizer.outcome, *weight)
    public = [name for name in spec.public_names if name not in amounts]
    labels = dict(spec.labels)
    for name in dict.fromkeys((*public, *amounts)):
        if name in table.described:
            section = _section(spec, table, name, public=name in public)
            if section is not None:
                labels[name] = section
    return spec.model_copy(update={"labels": labels}) if labels != spec.labels else spec


def _section(
    spec: Spec, table: LabelledTable, name: str, *, public: bool
) -> LabelSection | None:
    """Return the section ``[labels.NAME]``, or None."""
    given = spec.labels.get(name)
    found: dict[str, object] = {} if given is None else given.model_dump(exclude_unset=True)
    title = table.described[name].title
    if title:
        found.setdefault("title", title)
    if public and not found.get("levels") and (levels := _levels(table, name)):
        found["levels"] = levels
    if not found:
        return given
    try:
        return LabelSection(**found)  # type: ignore[arg-type]
    except ValidationError as error:
        reasons = [str(each["ctx"]["error"]) for each in error.errors() if "ctx" in each]
        raise InputError(
            f"{spec.data_path}: labels of the values of {name!r}: {' '.join(reasons)} Set "
            f"this column's labels in the specification: [labels.{name}] levels."
        ) from None


def _levels(table: LabelledTable, name: str) -> dict[str, str]:
    """Return the labels of the levels that occur, in natural order; other levels keep their code.

    Empty if a level without a label is so rare that it may be an error: listing it here would
    declare it as valid and suppress the warning.
    """
    labels = table.described[name].labels
    if not labels:
        return {}
    column = text_column(table.read([name])[name], name, labels)
    counts = np.bincount(column.codes[~column.missing], minlength=len(column.levels))
    known = [
        level in labels or count >= LEAST_RECORDS
        for level, count in zip(column.levels, counts, strict=True)
    ]
    if not all(known) or len(column.levels) > MAX_LEVELS:
        return {}
    return {level: labels.get(level, visible(level)) for level in column.levels}
