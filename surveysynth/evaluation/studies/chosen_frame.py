"""The study on a frame that a caller asks for: specifications, design, frame."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth.config.in_memory import NO_DATA
from surveysynth.config.spec import NO_FILE, Spec, load_spec, validate_spec
from surveysynth.errors import InputError
from surveysynth.evaluation.methods import MODEL_FREE
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.frame_population import (
    allocation_of,
    check_design,
    columns_of,
    default_design,
    read_frame,
    refuse_survey_file,
)
from surveysynth.evaluation.studies.frame_study import FrameStudy
from surveysynth.evaluation.studies.published import (
    DESIGN,
    SOURCE,
    published_frame,
    published_specs,
)

if TYPE_CHECKING:
    import pandas as pd


def chosen_frame_study(
    frame: "pd.DataFrame | Path | None",
    specs: "Sequence[str | Path | Spec | Mapping[str, Any]]",
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
    those that are not given. Raises ``InputError`` for what cannot be a study.
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
    total = n if n is not None else int(population.drawn_by_stratum.sum())
    kind: Any = design or default_design(first, size)
    rules: Any = {"allocation": rule, "clusters": clusters, "within": within}
    sampling = SamplingDesign(kind, total, per_cluster=per_cluster, **rules)
    check_design(sampling, population, first)
    return FrameStudy(population, sampling, named, samples, seed, laplace, source)


def _spec_of(given: "str | Path | Spec | Mapping[str, Any]") -> Spec:
    """Return a specification from a file, or from sections of keys."""
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
