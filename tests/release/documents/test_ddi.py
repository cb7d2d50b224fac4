"""codebook.xml. Truth: the order of elements in the field-level documentation of DDI-Codebook 2.5,
copied out below; codebook.json of the same release; the schema itself where it is at hand."""

import json
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from surveysynth._support.messages import xml_text
from surveysynth.config.build import mechanism_of, model_of, read_survey
from surveysynth.config.spec import load_spec
from surveysynth.release.documents.codebook import make_codebook, make_ddi
from surveysynth.release.pipeline import release
from surveysynth.release.run import facts_of
from tests.release.conftest import stand_ins
from tests.surveys import MakeSpec, small_survey, spec_text, write_survey

pytestmark = pytest.mark.xdist_group("ddi")  # what its tests share is made once

DDI = "{ddi:codebook:2_5}"
#: Children in their order, of the elements that have any; what has none here holds text.
CHILDREN = {
    "codeBook": "docDscr stdyDscr fileDscr dataDscr otherMat",
    "docDscr": "citation guide docStatus docSrc controlledVocabUsed notes",
    "stdyDscr": "citation studyAuthorization stdyInfo studyDevelopment method dataAccs "
    "othrStdyMat notes",
    "citation": "titlStmt rspStmt prodStmt distStmt serStmt verStmt biblCit holdings notes",
    "titlStmt": "titl subTitl altTitl parTitl IDNo",
    "prodStmt": "producer copyright prodDate prodPlac software fundAg grantNo",
    "stdyInfo": "studyBudget subject abstract sumDscr qualityStatement notes exPostEvaluation",
    "sumDscr": "timePrd collDate nation geogCover geogUnit geoBndBox boundPoly anlyUnit universe "
    "dataKind",
    "method": "dataColl notes anlyInfo stdyClas dataProcessing codingInstructions",
    "dataColl": "timeMeth dataCollector collectorTraining frequenc sampProc sampleFrame "
    "targetSampleSize deviat collMode resInstru instrumentDevelopment sources collSitu actMin "
    "ConOps weight cleanOps",
    "sources": "dataSrc sourceCitation srcOrig srcChar srcDocu sources",
    "fileDscr": "fileTxt locMap notes",
    "fileTxt": "fileName fileCitation fileCont fileStrc dimensns fileType format filePlac dataChck "
    "ProcStat dataMsng software verStmt",
    "dimensns": "caseQnty varQnty logRecL recPrCas recNumTot",
    "dataDscr": "varGrp nCubeGrp var nCube notes",
    "var": "location labl imputation security embargo respUnit anlysUnit qstn valrng invalrng "
    "undocCod universe TotlResp sumStat txt stdCatgry catgryGrp catgry codInstr verStmt concept "
    "derivation varFormat geoMap catLevel notes",
    "catgry": "catValu labl txt catStat mrow",
}
#: Attributes and, where the documentation lists them, their values.
ATTRIBUTES: dict[str, dict[str, set[str] | None]] = {
    "codeBook": {"version": {"2.5"}, "lang": None, "schemaLocation": None},
    "fileDscr": {"ID": None},
    "software": {"version": None},
    "notes": {"type": None, "subject": None},
    "var": {"ID": None, "name": None, "files": None, "intrvl": {"contin", "discrete"},
            "wgt": {"wgt", "not-wgt"}, "wgt-var": None},
    "varFormat": {"type": {"numeric", "character"}},
}  # fmt: skip
REFERENCES = ("files", "wgt-var")


def tag(element: ElementTree.Element) -> str:
    assert element.tag.startswith(DDI)
    return element.tag.removeprefix(DDI)


def problems(root: ElementTree.Element) -> list[str]:
    """What the documentation does not allow."""
    found = [] if tag(root) == "codeBook" else [f"the root is {tag(root)}"]
    ids = [each.get("ID") for each in root.iter() if each.get("ID")]
    found += ["an ID twice"] * (len(ids) != len(set(ids)))
    for element in root.iter():
        name, children = tag(element), [tag(child) for child in element]
        order = CHILDREN.get(name, "").split()
        places = [order.index(child) if child in order else -1 for child in children]
        if -1 in places or places != sorted(places):
            found.append(f"{name}: {children}")
        if order and (element.text or "").strip():
            found.append(f"{name}: text")
        for key, value in element.attrib.items():
            known = ATTRIBUTES.get(name, {})
            plain = key.split("}")[-1]
            if plain not in known or value not in (known[plain] or {value}):
                found.append(f"{name}: {key}={value}")
            if plain in REFERENCES and not set(value.split()) <= set(ids):
                found.append(f"{name}: {key} leads nowhere")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    levels = '{ a = "A & B", b = "b", c = "c" }'
    labels = f'[labels.field]\ntitle = "Field <&> \\t of  all"\nlevels = {levels}'
    text = spec_text(
        survey='population_size = 30000\nfpc = "fraction"', labels=labels,
        synthesizer='inference = "paper"',
        tables='microdata = "dta"\nsource = "A frame"\ntitle = "Salaries"',
    )  # fmt: skip
    out = tmp_path_factory.mktemp("ddi")
    with stand_ins():
        made = release(write_survey(out / "in", small_survey(), text), out / "out", seed=1)
    return made.out / "release"


def test_elements_are_those_of_the_standard(folder: Path) -> None:
    root = ElementTree.parse(folder / "codebook.xml").getroot()
    assert problems(root) == []
    # The check finds what is wrong.
    for change in ("<catgry><labl>", "<fileTxt><fileCont>", "<dataDscr><fileDscr>"):
        parent, child = (part.strip("<>") for part in change.split("><"))
        broken = ElementTree.parse(folder / "codebook.xml").getroot()
        where = next(broken.iter(f"{DDI}{parent}"))
        where.insert(0, ElementTree.Element(f"{DDI}{child}"))
        assert problems(broken) != []


def test_variables_and_files_are_those_of_the_codebook(folder: Path) -> None:
    root = ElementTree.parse(folder / "codebook.xml").getroot()
    codebook = json.loads((folder / "codebook.json").read_text())
    variables = list(root.iter(f"{DDI}var"))
    assert [each.get("name") for each in variables] == [c["name"] for c in codebook["columns"]]
    for variable, column in zip(variables, codebook["columns"], strict=True):
        label = variable.findtext(f"{DDI}labl")
        assert label == xml_text(column["title"])
        categories = {
            each.findtext(f"{DDI}catValu"): each.findtext(f"{DDI}labl")
            for each in variable.iter(f"{DDI}catgry")
        }
        assert categories == {
            str(each["value"]): each["label"] for each in column.get("levels", ())
        }
    weights = {each.get("name"): each.get("wgt") for each in variables}
    assert [name for name, weight in weights.items() if weight == "wgt"] == ["weight"]
    by_id = {each.get("ID"): each.get("name") for each in variables}
    salary = next(each for each in variables if each.get("name") == "salary")
    assert by_id[salary.get("wgt-var")] == "weight"
    files = [each.text for each in root.iter(f"{DDI}fileName")]
    assert files == [each["file"] for each in codebook["files"]]
    assert all((folder / str(name)).is_file() for name in files)
    assert {each.text for each in root.iter(f"{DDI}caseQnty")} == {"240"}
    text = "".join(root.itertext())
    for part in ("Salaries", "30,000 units", "A frame", "drawn within strata (field)",
                 *codebook["warnings"]):  # fmt: skip
        assert part in text


def test_every_format_of_microdata_is_described(make_spec: MakeSpec) -> None:
    frame = small_survey().assign(school=lambda f: f["field"] + f["gender"])
    spec = load_spec(make_spec(frame, survey='psu = "school"\ndesign_effect = 1.5'))
    survey = read_survey(spec)
    facts = facts_of(spec, survey.design, mechanism_of(spec), model_of(spec), test=False)
    kinds = {}
    for name in ("csv", "parquet", "dta", "sav"):
        chosen = spec.table.model_copy(update={"microdata": name})
        own = replace(facts, spec=spec.model_copy(update={"tables": (chosen,)}))
        codebook = make_codebook(own, separate_pair=True)
        root = ElementTree.fromstring(make_ddi(own, codebook))
        assert problems(root) == []
        kinds[name] = {each.text for each in root.iter(f"{DDI}fileType")}
        weights = {each.get("name"): each.get("wgt-var") for each in root.iter(f"{DDI}var")}
        assert weights["salary"] != weights["salary_for_variance"]
    assert len(set(map(frozenset, kinds.values()))) == 4


@pytest.mark.skipif(
    "SURVEYSYNTH_DDI_SCHEMA" not in os.environ,
    reason="the schema is at ddialliance.org: SURVEYSYNTH_DDI_SCHEMA=.../codebook.xsd",
)
def test_the_schema_takes_it(folder: Path) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    schema = xmlschema.XMLSchema(os.environ["SURVEYSYNTH_DDI_SCHEMA"], validation="lax")
    assert [str(error) for error in schema.iter_errors(str(folder / "codebook.xml"))] == []
