"""Writes the files of a release and of its confidential folder, once every number is there.

For ``adequacy`` the confidential folder keeps the draws, the printed estimates, and where the
specification is: nothing of the sample.
"""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth._support.resources import render, version_of
from surveysynth._support.types import FloatArray, Theta
from surveysynth.config.build import model_of
from surveysynth.config.calibration_section import inlined
from surveysynth.config.privacy import as_noisy_statistics
from surveysynth.config.sections import REPLICATE_KEYS
from surveysynth.config.spec import Spec
from surveysynth.config.tables_section import FORMATS, TablesSection, folder_of, unfolded
from surveysynth.errors import InputError
from surveysynth.inference.debias import DebiasRecord
from surveysynth.mechanisms.base import PrivateDraws, Released, gap_of_weights
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.documents.codebook import DDI_NAME, make_codebook, make_ddi
from surveysynth.release.documents.dossier import make_dossier
from surveysynth.release.documents.readme import make_readme
from surveysynth.release.facts import ReleaseFacts, files_of, rounding_of
from surveysynth.release.folder import (
    COMPARED_NAME,
    DOSSIER_NAMES,
    INDEX_NAME,
    PRIVACY_NAME,
    REALISED_NAME,
    RECORDS_STEM,
)
from surveysynth.release.tables.layout import Presentation, TableSet, listed, where_words
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.tables.table_builder import Tables
from surveysynth.release.writers import csv


def write_tables(facts: ReleaseFacts, tables: Mapping[str, Tables], release: Path) -> None:
    """Write every table in every format asked for, in its folder; ``tables``: by name."""
    for table, of_table in facts.each_table.items():
        section, shown = of_table.spec.table, TableSet(tables[table], presentation_of(of_table))
        for name in section.formats:
            made = FORMATS[name]
            folder = release / folder_of(made, table)
            folder.mkdir(parents=True, exist_ok=True)
            made.load_writer()(shown, folder, made)


def presentation_of(facts: ReleaseFacts) -> Presentation:
    """Return the texts, labels and rounding that the statistics of one table share."""
    section = facts.spec.all_tables
    return Presentation(
        title=section.title,
        source=section.source,
        privacy_note=facts.privacy_note,
        banner=" ".join(facts.warnings),
        labels=facts.labels,
        rounding=rounding_of(facts.spec, facts.labels),
        kind=section.layout,
        name=section.name or "",
        csv="csv" in section.formats,
        universe=section.universe,
        place=section.place,
        numbers={} if section.number is None else {
            name: section.number + place for place, name in enumerate(section.statistics)
        },
        notes=section.notes,
        subpopulation="" if section.where is None else where_words(section.where, facts.labels),
    )


def write_documents(
    facts: ReleaseFacts,
    tables: Mapping[str, Tables],
    model_title: str,
    folder: Path,
    *,
    separate_pair: bool,
) -> None:
    """Write both codebooks, privacy.json, README.md and the dossier."""
    codebook = make_codebook(facts, separate_pair=separate_pair)
    context = shared_context(facts)
    readme = make_readme(facts, context, tables, separate_pair=separate_pair)
    write_json(codebook, folder / "codebook.json")
    (folder / DDI_NAME).write_text(make_ddi(facts, codebook), encoding="utf-8")
    write_json(make_privacy_record(facts, context, model_title), folder / PRIVACY_NAME)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    write_dossier(facts, context, folder)


def write_index(facts: ReleaseFacts, folder: Path) -> None:
    """Write the page that opens on the tables and links to every other file."""
    by_name: dict[str, list[str]] = {}
    for path in files_of(facts.spec):
        by_name.setdefault(Path(path).stem, []).append(path)
    tables = []
    for stem, paths in by_name.items():
        pages = [each for each in paths if each.endswith(".html")]
        others = [each for each in paths if each not in pages]
        tables.append((stem.replace("_", " ").capitalize(), pages, others))
    files = [each for each in sorted(folder.iterdir()) if each.name not in {"tables", "figures"}]
    text = render(
        "surveysynth.release.documents", "templates/index.html.j2",
        title=facts.spec.all_tables.title or "Survey tables", warnings=facts.warnings,
        tables=tables, files=files,
    )  # fmt: skip
    (folder / INDEX_NAME).write_text(text, encoding="utf-8")


def write_dossier(facts: ReleaseFacts, context: dict[str, Any], folder: Path) -> None:
    """Write the dossier for a review board as page and text; ``context``: ``shared_context``."""
    markdown, page = make_dossier(facts, context)
    for name, text in zip(DOSSIER_NAMES, (page, markdown), strict=True):
        (folder / name).write_text(text, encoding="utf-8")


def write_published(
    facts: ReleaseFacts, published: Mapping[str, Any], entropy: int | None, folder: Path
) -> None:
    """Write what a mechanism publishes besides its draws.

    Each file also has what it takes to repeat the steps that follow: the specification and the
    seed.
    """
    for name, content in published.items():
        whole = {
            **content,
            "records_dropped": facts.design.dropped,
            **({"shift": facts.design.shift} if facts.design.shift else {}),
            **({} if entropy is None else {"seed": str(entropy)}),
            "specification": public_specification(facts),
        }
        write_json(whole, folder / name)


def public_specification(facts: ReleaseFacts) -> dict[str, Any]:
    """Return the specification as it was written, JSON-ready.

    The data are named by their format alone, and what is for the ledger is left out.
    """
    content = facts.spec.model_dump(
        mode="json",
        exclude={
            "path": True, "survey": {"id", *REPLICATE_KEYS}, "privacy": {"budget"}
        },
        exclude_unset=True,
    )
    content = unfolded(content)
    if facts.counts is not None:  # the counts are published, not where they come from
        del content["survey"]["weights"]
    content["survey"]["data"] = f"survey{facts.spec.data_path.suffix.lower()}"
    content["synthesizer"]["predictors"] = facts.design.matrix.formula
    if facts.calibration is not None:
        made = facts.calibration
        content["calibration"] = inlined(made.margins, made.method, made.bounds)
    return content


def write_confidential(
    released: Released, folder: Path, file_format: csv.MicrodataFormat
) -> None:
    """Write realized values, diagnostics, and the mechanism's results by record, in file order."""
    import pandas as pd

    write_json(finite_or_text(released.realised), folder / REALISED_NAME)
    if released.by_record:
        records = pd.DataFrame(dict(released.by_record))
        records.insert(0, "record", range(1, len(records) + 1))
        kept: csv.RecordsFormat = "parquet" if file_format == "parquet" else "csv"
        csv.write_records(records, folder / f"{RECORDS_STEM}.{kept}", kept)


def finite_or_text(value: Any) -> Any:
    """Return the same structure with infinities and NaN as text, since JSON has no such numbers."""
    if isinstance(value, Mapping):
        return {key: finite_or_text(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_text(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_json(value: Any, path: Path) -> None:
    """Write indented UTF-8 JSON; raise ``ValueError`` for NaN and infinities."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


Published = Mapping[tuple[str, str, str | None], tuple[FloatArray, FloatArray]]
"""By name of a table, statistic and outcome: estimates and standard errors (D,), NaN withheld."""


@dataclass(frozen=True)
class Compared:
    """The file read back: the specification, the draws, and what was published."""

    spec: Path
    theta: Theta
    published: Published


def published_of(tables: Mapping[str, Mapping[str, Sequence[ReleaseTable]]]) -> Published:
    """Return the estimates and standard errors of the tables of a release."""
    return {
        (name, each.statistic, each.outcome): (
            each.frame["estimate"].to_numpy(float), each.frame["se"].to_numpy(float)
        )
        for name, of_statistic in tables.items()
        for several in of_statistic.values() for each in several
    }  # fmt: skip


def write_compared(
    folder: Path,
    spec: Spec,
    draws: PrivateDraws,
    tables: Mapping[str, Mapping[str, Sequence[ReleaseTable]]],
) -> None:
    """Write the file to the confidential folder of a release."""
    content = {
        "specification": str(spec.path.resolve()),
        "draws": {name: np.asarray(values).tolist() for name, values in draws.theta.items()},
        "tables": [
            [*key, *([each if math.isfinite(each) else None for each in of] for of in both)]
            for key, both in published_of(tables).items()
        ],
    }
    (folder / COMPARED_NAME).write_text(json.dumps(content, allow_nan=False), encoding="utf-8")


def read_compared(folder: Path) -> Compared:
    """Read the file; raise ``InputError`` for a folder without it, or another content."""
    path = folder / COMPARED_NAME
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        theta = {name: np.array(values) for name, values in content["draws"].items()}
        published = {
            (name, statistic, outcome): (np.array(estimate, float), np.array(se, float))
            for name, statistic, outcome, estimate, se in content["tables"]
        }
        return Compared(Path(content["specification"]), theta, published)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path} is missing or not as a release writes it: expected the confidential folder "
            "of a release. Name the folder that release wrote, or its --confidential folder."
        ) from None


_LIBRARIES = ("surveysynth", "numpy", "scipy", "pandas")


def shared_context(facts: ReleaseFacts) -> dict[str, Any]:
    """Return size and unit of the guarantee, and the public facts about the survey.

    ``rho`` and ``delta`` are None under an asymptotic guarantee. ``protected`` is the public column
    whose units are protected as a whole, None for single records. ``outside`` is a clause, empty
    unless settings take the release out of what the statement covers; ``budget`` is the guarantee
    as a clause.
    """
    design, settings, privacy = facts.design, facts.settings, facts.spec.privacy
    outside, epsilon = facts.statement.outside, settings.epsilon
    given = design.weights_from
    noisy = as_noisy_statistics(privacy) if privacy.currency == "rho" else None
    if noisy is None:
        budget = f"asymptotic differential privacy with epsilon at most {epsilon:.4g}"
        budget += f", {outside}" if outside else ""
    else:
        budget = (
            f"zero-concentrated differential privacy with rho = {noisy.cost.rho:.4g}, and hence "
            f"differential privacy with epsilon = {epsilon:.4g} at delta = {noisy.delta:.3g}"
        )
    protected = None if privacy.protect == RECORD else privacy.protect
    values = list(design.outcome_names)
    if design.weight_name is not None:
        values.append(f"the sampling weight ({design.weight_name})")
    return {
        "title": facts.title,
        "warnings": facts.warnings,
        "test": facts.test,
        "private": settings.private,
        "proved": noisy is not None,
        "budget": budget,
        "epsilon": epsilon,
        "rho": None if noisy is None else noisy.cost.rho,
        "delta": None if noisy is None else noisy.delta,
        "factor": factor_words(epsilon),
        "m": settings.m,
        "outside": outside,
        "outside_sentence": outside
        and f"This release is {outside}; the limit does not hold for it.",
        "statement": facts.statement,
        "described": facts.mechanism.described(design),
        "protected": protected,
        "unit": "one record" if protected is None else f"all records of one unit of {protected!r}",
        "values": listed(values),
        "n": design.n,
        "dropped": design.dropped,
        "shift": design.shift,
        "modelled": design.missing == "model",
        "psu": design.psu_name,
        "weight_name": design.weight_name,
        "weighted": design.weight_name is not None or design.public_weight is not None,
        "weight_sources": list(given) if isinstance(given, tuple) else [],
        "weights_gap": gap_of_weights(design),
        "frame_columns": list(map(str, design.frame.columns)),
        "by": list(design.by),
        "debiased": facts.debias is not None and facts.debias.debiased,
    }


def factor_words(epsilon: float) -> str:
    """Return exp(epsilon) with two significant digits, from epsilon = 100 on as a power of e."""
    if epsilon >= 100:
        return f"exp(epsilon) = e to the power {epsilon:g}"
    value = math.exp(epsilon)
    if value >= 1e15:
        return f"exp(epsilon) = about {value:.1e}"
    places = 1 - math.floor(math.log10(value))
    return f"exp(epsilon) = about {round(value, places):,.{max(places, 0)}f}"


def library_versions() -> dict[str, str]:
    """Return versions of Python and of the libraries that compute the published numbers."""
    versions = {"python": platform.python_version()}
    return {**versions, **{name: version_of(name) for name in _LIBRARIES}}


def make_privacy_record(
    facts: ReleaseFacts, context: dict[str, Any], model_title: str
) -> dict[str, Any]:
    """Return privacy.json: the guarantee and what it depends on, nothing realized.

    epsilon and lipschitz_bound are targets, hence upper bounds.
    """
    settings = facts.settings
    return {
        "warnings": list(facts.warnings),
        "private": settings.private and not facts.test,
        "test": facts.test,
        **facts.mechanism.guarantee(),
        "m": settings.m,
        # A fit of noisy statistics has as many as it needs: statistics.json says how many.
        **(
            {"draws": settings.plan.kept, "chains": settings.plan.chains}
            if facts.mechanism.down_weights
            else {}
        ),
        "model": Path(facts.spec.synthesizer.model).stem,
        "model_title": model_title,
        **({} if facts.mechanism.risk is None else {"risk": facts.mechanism.risk}),
        "settings": _settings(facts, context),
        "debiasing": None if facts.debias is None else _debiasing(facts.debias),
        **facts.statement.as_dict(),
        "versions": {**library_versions(), **facts.engine},
    }


def _debiasing(record: DebiasRecord) -> dict[str, Any]:
    """Return the record of debiasing, from public inputs alone.

    Numbers have six significant digits, so that the last digits of the draws are not shown.
    """
    return {
        name: [float(f"{each:.6g}") if isinstance(each, float) else each for each in value]
        if isinstance(value, tuple)
        else value
        for name, value in asdict(record).items()
    }


def _settings(facts: ReleaseFacts, context: dict[str, Any]) -> dict[str, Any]:
    """Return the settings; covariance_by: cells with residual spreads of their own.

    interaction_scale: the prior SD of interactions in residual SDs, None where none is shrunken.
    """
    spec, settings, matrix = facts.spec, facts.settings, facts.design.matrix
    synthesizer = spec.synthesizer
    model = None if synthesizer.is_program else model_of(spec).of(facts.design)
    shrunken = matrix.shrunken and math.isfinite(matrix.interaction_scale)
    return {
        **context["described"],
        "draws_per_chain": settings.plan.draws,
        "warmup_per_chain": settings.plan.warmup,
        "replicates_per_draw": spec.privacy.replicates_per_draw,
        "outcomes": list(synthesizer.outcome),
        "transforms": [each.formulas for each in facts.design.outcomes],
        "declared_outcomes": {each.name: each.as_dict() for each in facts.design.outcomes},
        "covariance_by": list(getattr(model, "covariance_by", None) or ()),
        "formula": matrix.formula,
        "interaction_scale": matrix.interaction_scale if shrunken else None,
        "engine": synthesizer.engine,
        "smoothing": getattr(model, "smoothing", "default"),
        "inference": synthesizer.inference,
        "priors": dict(synthesizer.priors),
        "by": list(spec.by),
        "statistics": list(spec.statistics),
        "linearisation": spec.linearisation,
        **({"tables": [
            {"name": each.name, "by": list(each.by), "statistics": list(each.statistics),
             **_of_table(each)} for each in spec.tables
        ]} if spec.named_tables else _of_table(spec.table)),
        "microdata": facts.microdata_format,
        "microdata_digits": spec.all_tables.microdata_digits,
        "lonely_psu": spec.survey.lonely_psu,
        "clusters": None if facts.clusters is None else facts.clusters.as_dict(),
        "population_size": facts.design.population_size,
        "calibration": None if facts.calibration is None else facts.calibration.as_dict(),
        "sampling_weights": spec.survey.kind_of_weights,
        **({} if facts.counts is None else {"counts_by": list(facts.counts.columns)}),
        "weights_from": spec.survey.weights_from,
        "stratum_sizes": facts.design.stratum_sizes,
        "records": facts.design.n,
        "records_dropped": facts.design.dropped,
    }  # fmt: skip


def _of_table(section: TablesSection) -> dict[str, Any]:
    return {
        **({} if section.where is None else {"where": section.where}),
        "flags": section.flags,
        "round_counts": section.round_counts,
    }
