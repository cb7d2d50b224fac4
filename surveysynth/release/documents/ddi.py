"""codebook.xml: the microdata as DDI-Codebook 2.5, which data archives add to their catalogues.

It is made from ``codebook.json``: study, files, and every variable with its label, its categories
and its roles. Elements follow the field-level documentation,
https://ddialliance.org/Specification/DDI-Codebook/2.5.
"""

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from surveysynth._support.messages import xml_text
from surveysynth._support.resources import version_of
from surveysynth.release.facts import ReleaseFacts

DDI_NAME = "codebook.xml"
NAMESPACE = "ddi:codebook:2_5"
_SCHEMA = "http://www.ddialliance.org/Specification/DDI-Codebook/2.5/XMLSchema/codebook.xsd"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_XML = "http://www.w3.org/XML/1998/namespace"
_FILE_TYPES = {
    "csv": "comma-separated values, UTF-8",
    "parquet": "Apache Parquet",
    "dta": "Stata",
    "sav": "SPSS",
}


def make_ddi(facts: ReleaseFacts, codebook: Mapping[str, Any]) -> bytes:
    """Return the file; ``codebook``: the result of ``make_codebook``."""
    root = ET.Element(
        "codeBook",
        {
            "version": "2.5",
            "xmlns": NAMESPACE,
            "xmlns:xsi": _INSTANCE,
            "xsi:schemaLocation": f"{NAMESPACE} {_SCHEMA}",
            "xml:lang": "en",
        },
    )
    _document(_add(root, "docDscr"), codebook)
    _study(_add(root, "stdyDscr"), facts, codebook)
    for number, each in enumerate(codebook["files"], start=1):
        _file(_add(root, "fileDscr", ID=f"F{number}"), facts, codebook, each)
    data = _add(root, "dataDscr")
    ids = {column["name"]: f"V{place}" for place, column in enumerate(codebook["columns"], start=1)}
    for column in codebook["columns"]:
        _variable(data, codebook, column, ids)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, {k.replace("_", "-"): v for k, v in attributes.items()})
    if text:
        element.text = xml_text(text)
    return element


def _citation(parent: ET.Element, title: str) -> ET.Element:
    citation = _add(parent, "citation")
    _add(_add(citation, "titlStmt"), "titl", title)
    made = _add(citation, "prodStmt")
    _add(made, "software", "surveysynth", version=version_of("surveysynth"))
    return citation


def _document(parent: ET.Element, codebook: Mapping[str, Any]) -> None:
    _citation(parent, f"Codebook of the synthetic microdata: {codebook['title']}")
    for warning in codebook["warnings"]:
        _add(parent, "notes", warning, type="warning")


def _study(parent: ET.Element, facts: ReleaseFacts, codebook: Mapping[str, Any]) -> None:
    _citation(parent, f"{codebook['title']}: synthetic microdata")
    information = _add(parent, "stdyInfo")
    datasets = len(codebook["files"])
    synthetic = ", ".join(codebook["synthetic_columns"])
    _add(
        information, "abstract",
        f"{datasets:,} synthetic datasets of {codebook['records_per_file']:,} records each. "
        f"Synthetic are {synthetic}: drawn from a model that was fitted under a privacy mechanism. "
        "The other variables are public and as in the survey. README.md explains how to combine "
        "estimates from the datasets, and how to compute their standard errors.",
    )  # fmt: skip
    summary = _add(information, "sumDscr")
    size = codebook["population_size"]
    if size is not None:
        _add(summary, "universe", f"A population of {size:,.10g} units.")
    _add(summary, "dataKind", "synthetic survey microdata")
    collection = _add(_add(parent, "method"), "dataColl")
    _add(collection, "sampProc", _sampling(facts))
    if facts.spec.all_tables.source:
        _add(_add(collection, "sources"), "dataSrc", facts.spec.all_tables.source)
    pair = codebook["variance_pair"]
    _add(
        collection, "weight",
        f"Estimates are weighted by {_weight_name(codebook)}, variances by {pair['weight']}: "
        f"{pair['note']}.",
    )  # fmt: skip
    for warning in codebook["warnings"]:
        _add(parent, "notes", warning, type="warning")
    for paragraph in facts.statement.guarantee:
        _add(parent, "notes", paragraph, type="privacy", subject="privacy guarantee")


def _sampling(facts: ReleaseFacts) -> str:
    """Return a sentence on strata and units of the sample, which are public."""
    design = facts.design
    parts = [f"A sample of {design.n:,} records"]
    if design.strata_name is not None:
        parts.append(f"drawn within strata ({design.strata_name})")
    if design.psu_name is not None:
        parts.append(f"in primary sampling units ({design.psu_name})")
    return f"{', '.join(parts)}."


def _weight_name(codebook: Mapping[str, Any]) -> str:
    """Return the weight for estimates: the first; the one for variances comes later."""
    return next(str(each["name"]) for each in codebook["columns"] if "weight" in each["roles"])


def _file(
    parent: ET.Element, facts: ReleaseFacts, codebook: Mapping[str, Any], file: Mapping[str, Any]
) -> None:
    described = _add(parent, "fileTxt")
    _add(described, "fileName", file["file"])
    _add(
        described, "fileCont",
        f"Synthetic dataset {file['replicate']} of draw {file['draw']}; {codebook['row_order']}.",
    )  # fmt: skip
    size = _add(described, "dimensns")
    _add(size, "caseQnty", str(codebook["records_per_file"]))
    _add(size, "varQnty", str(len(codebook["columns"])))
    _add(described, "fileType", _FILE_TYPES[facts.microdata_format])


def _variable(
    parent: ET.Element,
    codebook: Mapping[str, Any],
    column: Mapping[str, Any],
    ids: Mapping[str, str],
) -> None:
    levels = column.get("levels", ())
    is_weight = "weight" in column["roles"]
    numeric = column.get("type_in_files", column["type"]) in ("number", "integer")
    whole = column["type"] == "integer" and column["source"] == "synthetic"  # 0 and 1
    discrete = bool(levels) or whole or not numeric
    weighted = {} if is_weight or "outcome" not in column["roles"] else {
        "wgt_var": ids[_weight_of(codebook, column["name"])]
    }  # fmt: skip
    variable = _add(
        parent, "var", ID=ids[column["name"]], name=xml_text(column["name"]),
        files=" ".join(f"F{number}" for number in range(1, len(codebook["files"]) + 1)),
        intrvl="discrete" if discrete else "contin",
        **({"wgt": "wgt"} if is_weight else {}), **weighted,
    )  # fmt: skip
    unit = f" ({column['unit']})" if column["unit"] else ""
    _add(variable, "labl", f"{column['title']}{unit}")
    _add(variable, "txt", f"{column['meaning']}.")
    for level in levels:
        category = _add(variable, "catgry")
        _add(category, "catValu", str(level.get("value", level["code"])))
        _add(category, "labl", level["label"])
        if str(level.get("value", level["code"])) != level["code"]:
            _add(category, "txt", f"{level['code']} in the tables")
    _add(variable, "varFormat", type="numeric" if numeric else "character")
    _add(variable, "notes", f"{column['source']}; {', '.join(column['roles'])}", type="part")


def _weight_of(codebook: Mapping[str, Any], name: str) -> str:
    """Return the weight of an outcome, which for a column for variances is that for variances."""
    pair = codebook["variance_pair"]
    return str(pair["weight"]) if name in pair["outcomes"] else _weight_name(codebook)
