"""The files of a release and of its confidential folder, once every number is there."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth.release.documents.codebook import make_codebook
from surveysynth.release.documents.privacy_file import make_privacy_record
from surveysynth.release.documents.readme import make_readme
from surveysynth.release.documents.recompute_python import make_example
from surveysynth.release.facts import ReleaseFacts, rounding_of
from surveysynth.release.folder.bundle import PRIVACY_NAME, REALISED_NAME, RECORDS_STEM
from surveysynth.release.tables.layout import Presentation, Shown
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.writers import csv
from surveysynth.report.formats import FORMATS

if TYPE_CHECKING:
    from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
    from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings

Tables = Mapping[str, Sequence[ReleaseTable]]


def write_tables(facts: ReleaseFacts, tables: Tables, release: Path) -> None:
    """Every format that was asked for, each in the folder of a release where it belongs."""
    section = facts.spec.tables
    presentation = Presentation(
        title=section.title,
        source=section.source,
        privacy_note=facts.privacy_note,
        banner=" ".join(facts.warnings),
        labels=facts.labels,
        rounding=rounding_of(facts.spec, facts.labels),
        kind=section.layout,
    )
    shown = Shown(tables, presentation)
    for name in (*section.formats, *section.figures):
        made = FORMATS[name]
        folder = release / made.folder
        folder.mkdir(exist_ok=True)
        made.load_writer()(shown, folder, made)


def write_documents(
    facts: ReleaseFacts, tables: Tables, model_title: str, folder: Path, *, separate_pair: bool
) -> None:
    """codebook.json, privacy.json and README.md."""
    replicates = facts.spec.privacy.replicates_per_draw
    every = [table for of_outcomes in tables.values() for table in of_outcomes]
    example = make_example(facts, every, separate_pair=separate_pair)
    codebook = make_codebook(facts, replicates=replicates, separate_pair=separate_pair)
    readme = make_readme(facts, example, replicates=replicates, separate_pair=separate_pair)
    write_json(codebook, folder / "codebook.json")
    write_json(make_privacy_record(facts, model_title), folder / PRIVACY_NAME)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def write_confidential(
    fit: "ConfidentialFit",
    settings: "MechanismSettings",
    folder: Path,
    file_format: csv.MicrodataFormat,
) -> None:
    """Realised values and diagnostics; risk weights and bounds of every record in file order."""
    import numpy as np
    import pandas as pd

    target = {"target_epsilon": settings.epsilon, "target_bound": settings.target_bound}
    realised = {**(target if settings.private else {}), **fit.to_json_dict()}
    write_json(finite_or_text(realised), folder / REALISED_NAME)
    records = pd.DataFrame(
        {
            "record": np.arange(1, fit.risk_weights.size + 1),
            "risk_weight": fit.risk_weights,
            "lipschitz": fit.lipschitz_by_record,
            "oscillation": fit.oscillation_by_record,
            "unweighted_lipschitz": fit.unweighted_lipschitz_by_record,
        }
    )
    csv.write_records(records, folder / f"{RECORDS_STEM}.{file_format}", file_format)


def finite_or_text(value: Any) -> Any:
    """The same structure with infinities and NaN as text, which JSON has no numbers for."""
    if isinstance(value, Mapping):
        return {key: finite_or_text(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_text(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_json(value: Any, path: Path) -> None:
    """Indented UTF-8 JSON; raises ``ValueError`` for NaN and infinities."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
