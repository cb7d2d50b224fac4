"""codebook.json and codebook.xml: every column of the microdata, for people and programs.

codebook.xml has the same in DDI-Codebook 2.5, which data archives add to their catalogs. Its
elements follow https://ddialliance.org/Specification/DDI-Codebook/2.5.
"""

from collections.abc import Mapping
from typing import Any

from surveysynth._support.messages import xml_text
from surveysynth._support.resources import environment, version_of
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import (
    PROGRAMS,
    VARIANCE_SUFFIX,
    LabelledColumn,
    base_weight_column,
    file_name,
    fraction_name,
    labelled_columns,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign


def make_codebook(facts: ReleaseFacts, *, separate_pair: bool) -> dict[str, Any]:
    """Return the codebook, JSON-ready; ``separate_pair``: whether variances have columns."""
    design, suffix = facts.design, VARIANCE_SUFFIX if separate_pair else ""
    synthetic = synthetic_column_names(design, separate_pair=separate_pair)
    columns = [
        *(_public_column(facts, name) for name in public_column_names(design)),
        *(_synthetic_column(facts, name) for name in synthetic),
    ]
    if facts.microdata_format in PROGRAMS:
        written = labelled_columns(design, facts.labels, separate_pair=separate_pair)
        columns = [_numbered(column, written[column["name"]]) for column in columns]
    return {
        "warnings": list(facts.warnings),
        "title": facts.title,
        "records_per_file": design.n,
        "population_size": design.population_size,
        "row_order": "sorted by the public columns; the order carries no information",
        "columns": columns,
        "synthetic_columns": list(synthetic),
        "variance_pair": {
            "outcomes": [f"{name}{suffix}" for name in design.outcome_names],
            "weight": f"{weight_column(design)}{suffix}",
            "note": (
                "estimate variances from these columns, estimates from the columns without the "
                "suffix"
                if separate_pair
                else "the same columns serve for estimates and for their variances"
            ),
        },
        "files": [
            {
                "file": f"microdata/{file_name(draw, replicate, facts.microdata_format)}",
                "draw": draw,
                "replicate": replicate,
            }
            for draw in range(1, facts.settings.m + 1)
            for replicate in range(1, facts.published_replicates + 1)
        ],
    }


def _numbered(column: dict[str, Any], written: LabelledColumn) -> dict[str, Any]:
    """Return the entry of a column of codes with the number of each level in the files."""
    if not written.values:
        return column
    column = {**column, "type_in_files": "number"}
    if "levels" in column:
        levels = [{**each, "value": written.values[each["code"]]} for each in column["levels"]]
        column["levels"] = levels
    return column


def public_roles(design: PublicDesign, name: str) -> dict[str, str]:
    """Return the roles of a public column: a word for programs, and its meaning."""
    is_weight, calibrated = name == design.public_weight_name, design.calibrated_by is not None
    roles = (
        ("table", name in design.by, "classifies the tables"),
        ("stratum", name == design.strata_name, "stratum of the sample design"),
        ("psu", name == design.psu_name, "primary sampling unit"),
        ("weight", is_weight and not calibrated,
         "sampling weight, unchanged: population units that the record represents"),
        ("base weight", is_weight and calibrated, "sampling weight, unchanged, before calibration"),
        ("calibration", name in (design.calibrated_by or ()),
         "weights are calibrated to published totals by it"),
        ("fpc", name == fraction_name(design),
         "sampling fraction of the stratum (finite population correction)"),
        ("predictor", name in design.predictors, "predictor of the synthesizer"),
        ("public", name in design.public_columns, "public column"),
    )  # fmt: skip
    return {role: meaning for role, applies, meaning in roles if applies}


def _public_column(facts: ReleaseFacts, name: str) -> dict[str, Any]:
    design, labels = facts.design, facts.labels
    roles, kind = public_roles(design, name), "number"
    if name != fraction_name(design):
        kinds = {"i": "integer", "u": "integer", "f": "number", "b": "true or false"}
        kind = kinds.get(design.frame[name].dtype.kind, "text")
    column: dict[str, Any] = {
        "name": name,
        "title": labels.title(name),
        "meaning": "; ".join(roles.values()),
        "source": "public",
        "roles": list(roles),
        "type": kind,
        "unit": labels.of(name).unit,
    }
    if name in design.levels:
        column["levels"] = [
            {"code": code, "label": labels.level(name, code)} for code in design.levels[name]
        ]
        column["margin_in_tables"] = labels.of(name).margin
    return column


def _synthetic_column(facts: ReleaseFacts, name: str) -> dict[str, Any]:
    design, labels = facts.design, facts.labels
    base = name.removesuffix(VARIANCE_SUFFIX)
    is_weight = base in (weight_column(design), base_weight_column(design))
    calibrated = design.calibrated_by is not None and base == weight_column(design)
    if name != base:
        meaning = f"replaces {base} when variances are estimated"
    elif calibrated:
        meaning = (
            f"{base_weight_column(design)}, calibrated to the published totals in privacy.json: "
            "the weight for estimates"
        )
    elif is_weight:
        meaning = "smoothed synthetic weight: population units that the record represents"
        if design.population_size is not None:
            meaning += "; sums to the public population size"
    else:
        meaning = _meaning(design.outcomes[design.outcome_names.index(base)])
    role = "outcome"
    if is_weight:
        role = "weight" if base == weight_column(design) else "base weight"
    column: dict[str, Any] = {
        "name": name,
        "title": labels.title(base),
        "meaning": meaning,
        "source": "synthetic",
        "roles": [role],
        "type": "number",
        "unit": labels.of(base).unit,
    }
    if is_weight:
        more = calibrated or facts.counts is not None
        words = "12 significant digits" if more else facts.digits.weight_words
        return {**column, "rounded_to": words}
    outcome = design.outcomes[design.outcome_names.index(base)]
    column["declared"] = outcome.as_dict()
    if outcome.is_amount and outcome.kind != "count":
        column["rounded_to"] = facts.digits.amount_words
    elif not (outcome.is_amount and outcome.missing):
        column["type"] = "text" if outcome.is_labelled else "integer"
    if outcome.is_labelled:
        column["levels"] = [
            {"code": code, "label": labels.level(base, code)} for code in outcome.levels
        ]
    if name in facts.spec.by:
        column["meaning"] += (
            "; classifies the tables, whose rows by it hold different synthetic records in every "
            "dataset; the number of sample records in such a row is confidential and not published"
        )
        column["roles"].append("table")
        column["margin_in_tables"] = labels.of(name).margin
    return column


def _meaning(outcome: Outcome) -> str:
    if not outcome.is_amount:
        return "synthetic value, drawn from a model of its levels"
    if outcome.kind == "count":
        return f"synthetic count, drawn from a model of {outcome.formulas}"
    amount = f"drawn from a model of {outcome.formulas}"
    if not outcome.spikes:
        return f"synthetic value, {amount}"
    spikes = " or ".join(f"{spike:.10g}" for spike in outcome.spikes)
    return f"synthetic value: exactly {spikes}, or an amount {amount}"


DDI_NAME = "codebook.xml"
_FILE_TYPES = {
    "csv": "comma-separated values, UTF-8",
    "parquet": "Apache Parquet",
    "dta": "Stata",
    "sav": "SPSS",
}


def make_ddi(facts: ReleaseFacts, codebook: Mapping[str, Any]) -> str:
    """Return the file, ``templates/codebook.xml.j2``; ``codebook``: by ``make_codebook``."""
    columns = codebook["columns"]
    files = range(1, len(codebook["files"]) + 1)
    made = environment(__package__).overlay(
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else xml_text(str(value)),
    )
    return made.get_template("templates/codebook.xml.j2").render(
        book=codebook, design=facts.design, guarantee=facts.statement.guarantee,
        source=facts.spec.all_tables.source, version=version_of("surveysynth"),
        file_type=_FILE_TYPES[facts.microdata_format],
        files=" ".join(f"F{number}" for number in files),
        ids={each["name"]: f"V{place}" for place, each in enumerate(columns, start=1)},
        # The first is for estimates; the one for variances comes later.
        weight=next(each["name"] for each in columns if "weight" in each["roles"]),
    )  # fmt: skip
