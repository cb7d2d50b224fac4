"""codebook.json: every column of the microdata, for people and programs."""

from typing import TYPE_CHECKING, Any

from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.folder.microdata import (
    VARIANCE_SUFFIX,
    base_weight_column,
    file_name,
    fraction_name,
    labelled_columns,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.writers.stata_spss import PROGRAMS, LabelledColumn
from surveysynth.survey.outcome import Outcome

if TYPE_CHECKING:
    from surveysynth.survey.survey import PublicDesign


def make_codebook(facts: ReleaseFacts, *, replicates: int, separate_pair: bool) -> dict[str, Any]:
    """Return the codebook, JSON-ready; ``replicates`` is the number of datasets of each draw."""
    design = facts.design
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
        "variance_pair": _variance_pair(facts, separate_pair=separate_pair),
        "files": [
            {
                "file": f"microdata/{file_name(draw, replicate, facts.microdata_format)}",
                "draw": draw,
                "replicate": replicate,
            }
            for draw in range(1, facts.settings.m + 1)
            for replicate in range(1, replicates + 1)
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


def public_roles(design: "PublicDesign", name: str) -> dict[str, str]:
    """Return the roles of a public column: a word for programs, and its meaning."""
    roles = {
        "table": name in design.by,
        "stratum": name == design.strata_name,
        "psu": name == design.psu_name,
        "weight": name == design.public_weight_name and design.calibrated_by is None,
        "base weight": name == design.public_weight_name and design.calibrated_by is not None,
        "calibration": name in (design.calibrated_by or ()),
        "fpc": name == fraction_name(design),
        "predictor": name in design.predictors,
        "public": name in design.public_columns,
    }
    meanings = {
        "table": "classifies the tables",
        "stratum": "stratum of the sample design",
        "psu": "primary sampling unit",
        "weight": "sampling weight, unchanged: population units that the record represents",
        "base weight": "sampling weight, unchanged, before calibration",
        "calibration": "weights are calibrated to published totals by it",
        "fpc": "sampling fraction of the stratum (finite population correction)",
        "predictor": "predictor of the synthesizer",
        "public": "public column",
    }
    return {role: meanings[role] for role, applies in roles.items() if applies}


def _public_column(facts: ReleaseFacts, name: str) -> dict[str, Any]:
    design, labels = facts.design, facts.labels
    roles = public_roles(design, name)
    column: dict[str, Any] = {
        "name": name,
        "title": labels.title(name),
        "meaning": "; ".join(roles.values()),
        "source": "public",
        "roles": list(roles),
        "type": _type_of(design, name),
        "unit": labels.of(name).unit,
    }
    if name in design.levels:
        column["levels"] = [
            {"code": code, "label": labels.level(name, code)} for code in design.levels[name]
        ]
        column = {**column, "margin_in_tables": facts.labels.of(name).margin}
    return column


def _type_of(design: "PublicDesign", name: str) -> str:
    if name == fraction_name(design):
        return "number"
    kinds = {"i": "integer", "u": "integer", "f": "number", "b": "true or false"}
    return kinds.get(design.frame[name].dtype.kind, "text")


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
    column: dict[str, Any] = {
        "name": name,
        "title": labels.title(base),
        "meaning": meaning,
        "source": "synthetic",
        "roles": [_weight_role(design, base) if is_weight else "outcome"],
        "type": "number",
        "unit": labels.of(base).unit,
    }
    if is_weight:
        more = calibrated or facts.counts is not None
        words = "12 significant digits" if more else facts.digits.weight_words
        return {**column, "rounded_to": words}
    column = {**column, **_of_kind(facts, base)}
    return _classifying(facts, column) if name in facts.spec.by else column


def _weight_role(design: "PublicDesign", name: str) -> str:
    """Return the role of a weight: that for estimates, or the one that was calibrated."""
    return "weight" if name == weight_column(design) else "base weight"


def _classifying(facts: ReleaseFacts, column: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of an outcome that classifies the tables."""
    return {
        **column,
        "meaning": f"{column['meaning']}; classifies the tables, whose rows by it hold different "
        "synthetic records in every dataset; the number of sample records in such a row is "
        "confidential and not published",
        "roles": [*column["roles"], "table"],
        "margin_in_tables": facts.labels.of(column["name"]).margin,
    }


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


def _of_kind(facts: ReleaseFacts, name: str) -> dict[str, Any]:
    """Return type and levels of a synthetic outcome, and all that is declared about it."""
    outcome = facts.design.outcomes[facts.design.outcome_names.index(name)]
    found: dict[str, Any] = {"declared": outcome.as_dict()}
    if outcome.is_amount and outcome.kind != "count":
        found["rounded_to"] = facts.digits.amount_words
    elif not (outcome.is_amount and outcome.missing):
        found["type"] = "text" if outcome.is_labelled else "integer"
    if outcome.is_labelled:
        found["levels"] = [
            {"code": code, "label": facts.labels.level(name, code)} for code in outcome.levels
        ]
    return found


def _variance_pair(facts: ReleaseFacts, *, separate_pair: bool) -> dict[str, Any]:
    design = facts.design
    suffix = VARIANCE_SUFFIX if separate_pair else ""
    return {
        "outcomes": [f"{name}{suffix}" for name in design.outcome_names],
        "weight": f"{weight_column(design)}{suffix}",
        "note": (
            "estimate variances from these columns, estimates from the columns without the suffix"
            if separate_pair
            else "the same columns serve for estimates and for their variances"
        ),
    }
