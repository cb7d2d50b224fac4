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
from surveysynth.release.tables.layout import Presentation, lay_out
from surveysynth.release.tables.table import FILE_STEMS, ReleaseTable, Statistic
from surveysynth.release.writers import csv, html, latex, markdown, xlsx
from surveysynth.release.writers.formats import DOCUMENT_NAME, FIGURES_FOLDER, WORKBOOK_NAME

if TYPE_CHECKING:
    from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
    from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings

Tables = Mapping[Statistic, Sequence[ReleaseTable]]


def write_tables(facts: ReleaseFacts, tables: Tables, folder: Path) -> None:
    """One file a statistic and format; one workbook and one LaTeX document for all; figures."""
    folder.mkdir()
    presentation = Presentation(
        title=facts.spec.tables.title,
        source=facts.spec.tables.source,
        privacy_note=facts.privacy_note,
        banner=" ".join(facts.warnings),
        labels=facts.labels,
        rounding=rounding_of(facts.spec, facts.labels),
        kind=facts.spec.tables.layout,
    )
    formats = facts.spec.tables.formats
    for statistic, of_outcomes in tables.items():
        stem = FILE_STEMS[statistic]
        if "csv" in formats:
            csv.write_table(of_outcomes, folder / f"{stem}.csv")
        layout = lay_out(of_outcomes, presentation)
        if "html" in formats:
            html.write_page(layout, folder / f"{stem}.html")
        if "latex" in formats:
            latex.write_fragment(layout, folder / f"{stem}.tex")
        if "markdown" in formats:
            markdown.write_page(layout, folder / f"{stem}.md")
    if "latex" in formats:
        latex.write_document([FILE_STEMS[each] for each in tables], folder / DOCUMENT_NAME)
    if "xlsx" in formats:
        xlsx.write_workbook(tables, presentation, folder / WORKBOOK_NAME)
    if facts.spec.tables.figures:
        from surveysynth.release.writers.figures import write_figures

        figures = folder.with_name(FIGURES_FOLDER)
        write_figures(tables, presentation, facts.spec.tables.figures, figures)


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
