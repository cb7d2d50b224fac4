"""The specification of a survey in memory, without a file."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.config.outcome_section import WEIGHT
from surveysynth.config.spec import NO_FILE, Spec, validate_spec
from surveysynth.config.tables_section import ALL_TABLES, TABLES
from surveysynth.errors import InputError
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import LearnedTransform

if TYPE_CHECKING:
    from surveysynth.survey.survey import PublicDesign

Sections = Mapping[str, Mapping[str, Any]]
"""Keys by section, as in a file."""

#: Replaces the name of a data file; nothing reads it.
NO_DATA = "survey.csv"
SOURCE = "the tables of this survey"
#: Keys of [synthesizer] that the survey itself sets.
_SETTLED = ("outcome", "predictors")


def spec_of_survey(
    design: "PublicDesign",
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
    """Return [outcomes.NAME] without centre and spread."""
    keys: dict[str, Any] = {"kind": outcome.kind, "levels": list(outcome.levels)}
    if outcome.learned is not None:
        keys = {
            "kind": outcome.kind, **_learned(outcome.learned), "spikes": list(outcome.spikes)
        }  # fmt: skip
    elif outcome.is_amount:
        transform = outcome.transform
        keys = {
            "kind": outcome.kind,
            "transform": transform.kind,
            "scale": float(transform.scale),
            "shift": float(transform.shift),
            "power": float(transform.power),
            "spikes": list(outcome.spikes),
        }
    points = {"lower": outcome.lower, "upper": outcome.upper, "split": outcome.split}
    return {**keys, **{key: float(point) for key, point in points.items() if point is not None}}


def _learned(given: LearnedTransform) -> dict[str, Any]:
    return {
        "transform": given.kind,
        "range": [float(given.low), float(given.high)],
        "learned_share": float(given.share),
        **({} if given.by is None else {"learned_by": given.by}),
    }


def _survey(design: "PublicDesign") -> dict[str, Any]:
    sources = design.weights_from
    keys = {
        "data": NO_DATA,
        **_weights(design),
        "strata": design.strata_name,
        "psu": design.psu_name,
        "fpc": None if design.stratum_sizes else design.fpc_name,
        "lonely_psu": design.lonely_psu,
        "design_effect": design.design_effect,
        "population_size": design.population_size,
        "weights_from": list(sources) if isinstance(sources, tuple) else sources,
        "missing": design.missing,
        "public_columns": list(design.public_columns),
    }
    return {key: value for key, value in keys.items() if value is not None}


def _weights(design: "PublicDesign") -> dict[str, Any]:
    if design.public_weight is None:
        return {"weight": design.weight_name}
    if design.stratum_sizes is None:
        return {"weights": "public", "weight": design.public_weight_name}
    return {"weights": "public", "stratum_sizes": dict(design.stratum_sizes)}


def _refuse_settled(given: Mapping[str, Mapping[str, Any]]) -> None:
    settled = [f"survey.{key}" for key in given.get("survey", {})]
    settled += [f"synthesizer.{key}" for key in _SETTLED if key in given.get("synthesizer", {})]
    settled += [
        f"outcomes.{name}.{key}"
        for name, keys in given.get("outcomes", {}).items()
        for key in keys
        if key not in ("centre", "spread")
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
