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
    from surveysynth.mechanisms.base import Released

Tables = Mapping[str, Sequence[ReleaseTable]]


def write_tables(facts: ReleaseFacts, tables: Tables, release: Path) -> None:
    """Every format that was asked for, each in the folder of a release where it belongs."""
    section, shown = facts.spec.tables, Shown(tables, presentation_of(facts))
    for name in (*section.formats, *section.figures):
        made = FORMATS[name]
        folder = release / made.folder
        folder.mkdir(exist_ok=True)
        made.load_writer()(shown, folder, made)


def presentation_of(facts: ReleaseFacts) -> Presentation:
    """What the tables of a release share."""
    section = facts.spec.tables
    return Presentation(
        title=section.title,
        source=section.source,
        privacy_note=facts.privacy_note,
        banner=" ".join(facts.warnings),
        labels=facts.labels,
        rounding=rounding_of(facts.spec, facts.labels),
        kind=section.layout,
    )


def write_documents(
    facts: ReleaseFacts, tables: Tables, model_title: str, folder: Path, *, separate_pair: bool
) -> None:
    """codebook.json, privacy.json and README.md."""
    replicates = facts.spec.privacy.replicates_per_draw
    every = [table for of_outcomes in tables.values() for table in of_outcomes]
    example = make_example(facts, every, separate_pair=separate_pair)
    codebook = make_codebook(
        facts, replicates=facts.published_replicates, separate_pair=separate_pair
    )
    readme = make_readme(facts, example, replicates=replicates, separate_pair=separate_pair)
    write_json(codebook, folder / "codebook.json")
    write_json(make_privacy_record(facts, model_title), folder / PRIVACY_NAME)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def write_published(
    facts: ReleaseFacts, published: Mapping[str, Any], entropy: int | None, folder: Path
) -> None:
    """What a mechanism publishes beside its draws, with all that it takes to go on from there: the
    specification and the seed of whatever came after."""
    for name, content in published.items():
        whole = {
            **content,
            "records_dropped": facts.design.dropped,
            "seed": str(entropy),
            "specification": public_specification(facts),
        }
        write_json(whole, folder / name)


def public_specification(facts: ReleaseFacts) -> dict[str, Any]:
    """The specification as it was written, JSON-ready; the data are named by their format alone,
    and what is for the ledger stays with it."""
    content = facts.spec.model_dump(
        mode="json",
        exclude={"path": True, "survey": {"id"}, "privacy": {"budget"}},
        exclude_unset=True,
    )
    content["survey"]["data"] = f"survey.{facts.microdata_format}"
    content["synthesizer"]["predictors"] = facts.design.matrix.formula
    return content


def write_confidential(
    released: "Released", folder: Path, file_format: csv.MicrodataFormat
) -> None:
    """Realised values and diagnostics; what the mechanism says of every record in file order."""
    import pandas as pd

    write_json(finite_or_text(released.realised), folder / REALISED_NAME)
    if released.by_record:
        records = pd.DataFrame(dict(released.by_record))
        records.insert(0, "record", range(1, len(records) + 1))
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
