"""Checks of a specification across its sections: outcomes, the weight, and what mechanisms take."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surveysynth._support.messages import (
    DESIGN_EFFECT_INSTEAD,
    listing,
    nearest,
    noisy_statistics_alone,
)
from surveysynth.config.outcome_section import (
    LARGE_LOG,
    LEARNED,
    WEIGHT,
    Outcomes,
    OutcomeSection,
    TransformSection,
    is_learned,
    learned_transform,
    learns_weight,
    of_counts,
    weight_problems,
)
from surveysynth.config.privacy import PrivacySection
from surveysynth.config.sections import OF_RELEASE, LabelSection, SurveySection
from surveysynth.config.synthesizer_section import SynthesizerSection
from surveysynth.config.tables_section import TablesSection
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import (
    LEVEL,
    REPORT_COLUMNS,
    TABLE,
    TABLE_COLUMNS,
    statistic_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.models import get_model, registered
from surveysynth.survey.outcome import Outcome, OutcomeKind
from surveysynth.survey.transforms import Transform

#: Keys of amounts that are not plain.
_OF_KINDS = ("spikes", "bounds", "split")


def pseudo_posterior_problems(
    survey: SurveySection, synthesizer: SynthesizerSection, sections: Outcomes
) -> list[str]:
    """Return the settings that only noisy statistics accept."""
    problems = []
    if survey.missing == "model":
        problems.append(noisy_statistics_alone("survey.missing: 'model' makes a category"))
    if survey.psu is not None and survey.design_effect is None:
        what = noisy_statistics_alone("survey.psu: the survey has primary sampling units")
        problems.append(f"{what} {DESIGN_EFFECT_INSTEAD}")
    if survey.weights.startswith(OF_RELEASE):
        problems.append(
            "survey.weights: only a release by noisy statistics takes the counts of an earlier "
            "one; set mechanism = 'noisy_statistics', or weights = 'confidential'."
        )
    if synthesizer.grouping:
        problems.append(
            noisy_statistics_alone("synthesizer.covariance_by: each cell has a spread of its own")
        )
    for name in synthesizer.outcome:
        section, where = sections.get(name, OutcomeSection()), f"outcomes.{name}"
        special = [key for key in _OF_KINDS if getattr(section, key) not in (None, ())]
        counted = section.kind == "count" and of_counts(synthesizer)
        if section.kind != "continuous" and not counted:
            problems.append(noisy_statistics_alone(f"{where}.kind: it is {section.kind!r}"))
        elif special:
            problems.append(noisy_statistics_alone(f"{where}.{special[0]}: it is declared"))
        elif is_learned(name, synthesizer, section) and not of_counts(synthesizer):
            problems.append(noisy_statistics_alone(f"{where}.range: the transform is learned"))
    if learns_weight(synthesizer, sections):
        where = f"outcomes.{WEIGHT}"
        problems.append(noisy_statistics_alone(f"{where}.range: the transform is learned"))
    return problems


def pattern_problems(
    pattern: Sequence[str], confidential: Sequence[str], public: Sequence[str]
) -> list[str]:
    """Return the columns of the pattern that are not declared public."""
    known = tuple(dict.fromkeys(public))
    return [
        f"privacy.pattern: {name!r} is confidential; name public columns only."
        if name in confidential
        else f"privacy.pattern: {name!r} is not among the public columns of this file "
        f"({listing(known) or 'none'}).{nearest(name, known)} Name it in "
        "survey.public_columns too."
        for name in pattern
        if name not in known
    ]


def group_problems(grouping: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return the columns that cannot define groups of spreads."""
    allowed = tuple(dict.fromkeys(known))
    return [
        f"synthesizer.covariance_by: {name!r} is not among the columns of the tables and the "
        f"predictors ({listing(allowed) or 'none'}).{nearest(name, allowed)}"
        for name in grouping or ()
        if name not in allowed
    ]


def public_weight_problems(
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    outcomes: Outcomes,
) -> list[str]:
    """Return settings that public weights exclude: those of modeled or scaled weights."""
    if not survey.public_weights:
        return []
    problems = []
    if "confidential_weight" in synthesizer.requires:
        problems.append(
            f"synthesizer.model: {synthesizer.model!r} models selection by confidential weights, "
            "which weights = 'public' excludes; use 'fbs'."
        )
    if WEIGHT in outcomes and WEIGHT not in synthesizer.outcome:
        problems.append(
            "outcomes.weight: weights = 'public' are not modeled and need neither center, "
            "spread nor range; leave it out."
        )
    return problems


def scale_problems(synthesizer: SynthesizerSection, outcomes: Outcomes) -> list[str]:
    """Return amounts that lack a public center and spread, or a range to learn them from."""
    problems = []
    for name in synthesizer.outcome:
        section = outcomes.get(name, OutcomeSection())
        learned = is_learned(name, synthesizer, section)
        if learned or section.kind in ("binary", "categorical"):
            continue
        missing = [key for key in ("center", "spread") if getattr(section, key) is None]
        if missing:
            problems.append(
                f"outcomes.{name}: {' and '.join(missing)} missing. Declare the public range of "
                "the outcome, range = [low, high], and no transform: a transform is then learned "
                "within the budget. Or declare both with a transform: center, a typical value in "
                "the outcome's own units (with a split one above it and one below), and spread, a "
                "typical standard deviation on the scale of the transform. Take them from public "
                "sources (a codebook, last year's publication, a register), never from these "
                "data; values far off cost accuracy, never privacy."
            )
    return problems


_OF_MOMENTS = ("center", "spread")


def declared_outcome(
    name: str, synthesizer: SynthesizerSection, sections: Outcomes, *, missing: bool = False
) -> Outcome:
    """Return the outcome that both sections declare; raises ``InputError`` with section and key.

    ``missing``: whether missing answers are a category.
    """
    section = sections.get(name, OutcomeSection())
    if section.kind in ("binary", "categorical"):
        of_amounts = ("transform", *_OF_MOMENTS, "range")
        given = [key for key in of_amounts if key in section.model_fields_set]
        if given:
            raise InputError(
                f"outcomes.{name}.{given[0]}: this key is for amounts, got kind {section.kind!r}; "
                "leave it out."
            )
        transform = Transform("identity")
    else:
        learned = learned_transform(name, synthesizer, sections)
        transform = learned or _transform(name, synthesizer, section)
    of_count = section.kind == "count" and of_counts(synthesizer)
    kind: OutcomeKind = "continuous" if of_count else section.kind
    return Outcome(
        name,
        kind,
        transform,
        section.spikes,
        section.lower,
        section.upper,
        section.levels,
        section.split,
        missing,
    )


def _transform(
    name: str, synthesizer: SynthesizerSection, section: OutcomeSection
) -> Transform:
    """Return the transform of an amount; if it is not named, the one with these constants."""
    declared, where = section.transform or TransformSection(), f"outcomes.{name}.transform"
    kind, given = declared.kind, declared.constants
    if of_counts(synthesizer):
        if given or kind not in (None, "identity"):
            raise InputError(
                f"{'.'.join([where, *list(given)[:1]])}: model {synthesizer.model!r} does not "
                "transform counts; leave it out."
            )
        return Transform("identity")
    if kind is None:
        kind = "yeo_johnson" if {"scale", "power"} & given.keys() else "log"
    try:
        return Transform(kind, **given)
    except InputError as error:
        raise InputError(f"{where}.{error}".replace("transform.transform", "transform")) from None


def outcome_problems(
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    sections: Outcomes,
    *,
    known_model: bool = True,
) -> list[str]:
    """Return the problems of sections of outcomes by themselves, with the model and the sample.

    ``known_model``: the name determines what the model takes.
    """
    problems = _section_problems(synthesizer, sections)
    declared = []
    for name in synthesizer.outcome:
        try:
            declared.append(
                declared_outcome(name, synthesizer, sections, missing=survey.missing == "model")
            )
        except InputError as error:
            problems.append(str(error))
    if problems:
        return problems
    problems += weight_problems(survey, synthesizer, sections)
    for outcome in declared:
        problems += _moment_problems(outcome, sections.get(outcome.name, OutcomeSection()))
    if known_model:
        problems += kind_problems(synthesizer, declared)
    return problems


def _moment_problems(outcome: Outcome, section: OutcomeSection) -> list[str]:
    where = f"outcomes.{outcome.name}"
    if outcome.split is None:
        pairs = [key for key in _OF_MOMENTS if isinstance(getattr(section, key), tuple)]
        if pairs:
            return [f"{where}.{pairs[0]}: expected one number; only a split requires two."]
    elif section.center is not None and not (
        isinstance(section.center, tuple)
        and section.center[1] < outcome.split < section.center[0]
    ):
        return [
            f"{where}.center: expected two typical values, one above the split at "
            f"{outcome.split:.15g} and one below it, in this order, got {section.center!r}."
        ]
    problems = []
    for side in outcome.sides:
        center, _ = section.of_side(side)
        if center is not None and outcome.violations(np.array([center]), side):
            problems.append(
                f"{where}.center: expected a typical value in the outcome's own units, at which "
                f"{outcome.formula(side)} is defined, got {center!r}."
            )
    return problems


def _section_problems(synthesizer: SynthesizerSection, sections: Outcomes) -> list[str]:
    problems = []
    known = (*synthesizer.outcome, WEIGHT)
    for name in sections:
        if name not in known:
            problems.append(
                f"outcomes.{name}: synthesizer.outcome does not name it.{nearest(name, known)} "
                f"Known: {listing(known)}."
            )
    weight = sections.get(WEIGHT)
    if weight is not None:
        own = {*_OF_MOMENTS, "range"}
        own |= {"transform"} if weight.transform_kind == LEARNED else set()
        own |= {"kind"} if weight.kind == "continuous" else set()
        other = sorted(weight.model_fields_set - own)
        if WEIGHT in synthesizer.outcome or other:
            key = f".{other[0]}" if other else ""
            problems.append(
                f"outcomes.{WEIGHT}{key}: this section is for the sampling weight and has center "
                "and spread of its logarithm, or its range and transform = 'learned'; rename an "
                "outcome of that name."
            )
        elif isinstance(weight.center, tuple) or isinstance(weight.spread, tuple):
            problems.append(
                f"outcomes.{WEIGHT}: expected one center and one spread of the log weight."
            )
        elif weight.center is not None and abs(weight.center) > LARGE_LOG:
            problems.append(
                f"outcomes.weight.center: expected a typical log weight, got {weight.center!r}; if "
                "that is a weight, give its logarithm."
            )
    return problems


def kind_problems(synthesizer: SynthesizerSection, declared: Sequence[Outcome]) -> list[str]:
    """Return the kinds of outcomes and bounds that the model does not support."""
    kinds: tuple[str, ...] = ("continuous",)
    if not synthesizer.is_program:
        kinds = get_model(synthesizer.model).kinds
    problems = []
    for outcome in declared:
        where = f"outcomes.{outcome.name}"
        if outcome.kind not in kinds:
            problems.append(
                f"{where}.kind: model {synthesizer.model!r} takes {' and '.join(kinds)} outcomes, "
                f"got {outcome.kind!r}; {_able(lambda able, kind=outcome.kind: kind in able)}."
            )
        elif outcome.missing and len(kinds) == 1:
            problems.append(
                f"survey.missing: model {synthesizer.model!r} has no category of missing answers; "
                f"{_able(lambda able: len(able) > 1)}, or missing = 'drop'."
            )
        elif not outcome.is_plain and len(kinds) == 1:
            problems.append(
                f"{where}.bounds: model {synthesizer.model!r} supports no bounds; "
                f"{_able(lambda able: len(able) > 1)}."
            )
    return problems


def _able(holds: Any) -> str:
    """Return a remedy: the models whose kinds of outcomes satisfy a condition."""
    return "use model = " + " or ".join(repr(m.name) for m in registered() if holds(m.kinds))


def label_problems(outcomes: Sequence[Outcome], labelled: Mapping[str, Sequence[str]]) -> list[str]:
    """Return problems of labels for levels that an outcome does not have."""
    return [
        f"labels.{outcome.name}.levels: {code!r} is not among the levels of the outcome, "
        f"{listing(outcome.levels)}.{nearest(code, outcome.levels)}"
        for outcome in outcomes
        if outcome.levels
        for code in labelled.get(outcome.name, ())
        if code not in outcome.levels
    ]


def statistic_problems(tables: TablesSection, declared: Sequence[Outcome]) -> list[str]:
    """Return the statistics that no outcome has."""
    kinds = [statistic_of(name) for name in tables.statistics]
    misfits = [each.misfit(declared, tables.by) for each in kinds
               if not each.columns(declared, tables.by)]  # fmt: skip
    strangers = [
        f"{each.name!r} compares rows by {each.contrast.column!r}, which is not among tables.by: "
        f"{listing(tables.by) if tables.by else 'there are none'}."
        f"{nearest(each.contrast.column, tables.by)}"
        for each in kinds
        if each.contrast is not None and each.contrast.column not in tables.by
    ]
    return [f"tables.statistics: {problem}" for problem in (*misfits, *strangers)]


def by_problems(
    tables: TablesSection,
    declared: Sequence[Outcome],
    labels: Mapping[str, LabelSection],
    statistics: Sequence[str],
) -> list[str]:
    """Return the columns that cannot define rows; ``statistics``: of all tables."""
    problems = []
    for outcome in declared:
        name, margin = outcome.name, labels.get(outcome.name, LabelSection()).margin
        if name not in tables.by:
            continue
        if outcome.is_amount:
            problems.append(
                f"tables.by: {name!r} is an amount; rows are defined by public columns, and by "
                "binary or categorical outcomes. Declare its classes as a separate outcome."
            )
        elif margin in outcome.levels:
            problems.append(
                f"tables.by: {name!r} has a level {margin!r}, the name of its margin; rename the "
                f'margin: [labels.{name}] margin = "Total".'
            )
    of_shares = any(statistic_of(name).by_level for name in statistics)
    own = {
        "tables": TABLE_COLUMNS,
        "comparisons with the confidential sample": REPORT_COLUMNS,
        "several tables": (TABLE,) if tables.name is not None else (),
        "tables of shares": (LEVEL,) if of_shares else (),
    }
    problems += [
        f"tables.by: {whose} already have a column {name!r}; rename the one in the data."
        for whose, names in own.items()
        for name in tables.by
        if name in names
    ]
    return problems


def strict_problems(
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    privacy: PrivacySection,
    outcomes: Outcomes,
    public: Sequence[str],
) -> list[str]:
    """Return settings that noisy statistics lack or do not support.

    ``public``: names of public columns.
    """
    problems: list[str] = []
    for key in ("engine", "inference"):
        if (given := getattr(synthesizer, key)) in ("cmdstan", "paper"):
            problems.append(
                f"synthesizer.{key}: {given!r} is for mechanism = 'pseudo_posterior'; leave it out."
            )
    problems += scale_problems(synthesizer, outcomes)
    of_weight = outcomes.get(WEIGHT, OutcomeSection())
    modelled = not (survey.public_weights or learns_weight(synthesizer, outcomes))
    if survey.population_size is None and of_weight.center is None and modelled:
        problems.append(
            "outcomes.weight.center: missing; without survey.population_size noisy statistics need "
            "a typical log weight from public sources (log of population over sample size). Or "
            "declare the public range of the weight, range = [low, high]."
        )
    if privacy.protect != RECORD and privacy.protect not in public:
        problems.append(
            f"privacy.protect: expected 'record' or a public column, got {privacy.protect!r}."
            f"{nearest(privacy.protect, public)} Name it in survey.public_columns too."
        )
    return problems
