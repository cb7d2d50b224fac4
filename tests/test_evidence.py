"""Results have records, and pages say how old the results are that they quote. Truth: files and
records read here by other means; a module changed in one operator, a comment, and an import; older
results planted on a page that names no date."""

import json
import re
from datetime import date, timedelta
from hashlib import sha256

import pytest

from tests import evidence
from tests.evidence import GOLDEN, LAWS, ROOT, claims, state_of
from tests.long_runs.guide_page import COMPARED, FEWEST, POPULATIONS, rendered

#: Identities with other programs, inputs, and texts, which the tests recompute in full.
RECOMPUTED = re.compile(
    r"(agency|calibration|public|replication|shares|statistics|subpopulation|taylor|labelled)_"
    r"(?!study)\w+|arviz|stan_densities|workbook_cells|claims|evidence"
)
RECORDS = evidence.records()


def dated(text: str, record: dict[str, str]) -> bool:
    """Return True if a page names the date or the commit of a result."""
    return record["date"] in text or record["commit"] in text


def test_every_result_has_the_record_of_its_content() -> None:
    files = [*GOLDEN.glob("**/*.json"), *GOLDEN.glob("**/*.csv")]
    names = [path.relative_to(GOLDEN).as_posix() for path in files]
    own = [name for name in names if not RECOMPUTED.fullmatch(name.rpartition(".")[0])]
    texts = {one: text for name in own for one, text in evidence.contents(name).items()}
    assert set(texts) == set(RECORDS), "run python -m tests.evidence --record ID --commit C"
    for name, record in RECORDS.items():
        now = sha256(texts[name].encode()).hexdigest()[:12]
        assert now == record["content"], f"python -m tests.evidence --record {name} --commit C"
        assert re.fullmatch("[0-9a-f]{8}", record["commit"])
        assert date.fromisoformat(record["date"]) <= date.today() + timedelta(days=1)


def test_pages_name_the_dates_of_older_results() -> None:
    files = evidence.sources()
    now = {law: evidence.measured(law, files) for law in LAWS}
    for claim in claims():
        text = (ROOT / claim.page).read_text(encoding="utf-8")
        assert claim.words in " ".join(text.split()), f"{claim.page} does not say {claim.words}"
        assert claim.results, claim.words
        for name in claim.results:
            record = RECORDS[name]
            assert state_of(record, now[record["law"]]) != "older" or dated(text, record), name
    assert not dated("Coverage was 0.95.", RECORDS["sbc.json"])
    lines = list(evidence.listing(date.today()))
    assert sum(not line.startswith(" ") for line in lines) == len(claims())


@pytest.mark.parametrize("page", sorted({claim.page for claim in claims()}))
def test_pages_are_what_the_results_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert rendered(page) == text, "run python -m tests.long_runs.guide_page"


def test_the_table_of_real_populations_is_the_results() -> None:
    results = json.loads((GOLDEN / "real_populations.json").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {row.split(" | ")[0].strip("| "): row for row in re.findall(r"^\| .*\|$", text, re.M)}
    for name, (label, _) in POPULATIONS.items():
        if name in COMPARED:
            continue
        found = results[name]["noisy_10.8"]
        (own,) = (each for each in found["tables"]
                  if (each["statistic"], each["method"]) == ("mean", "release"))  # fmt: skip
        assert f"| {own['rmse_ratio']:.2f} | {own['coverage']:.2f} (" in rows[label]
        assert found["samples"] >= FEWEST


def test_what_changes_a_digest() -> None:
    source = b'"""Text."""\nimport a\n\n\ndef f(x):\n    """Text."""\n    return x + 1  # why\n'
    same = b"import b\nfrom c import d\n\ndef f(x):\n    'Other.'\n    return (x + 1)\n"
    kept = [each for each in evidence.statements(source) if "FunctionDef" in each]
    assert kept == [each for each in evidence.statements(same) if "FunctionDef" in each]
    for changed in (b"x - 1", b"x + 2", b"y + 1"):
        assert kept != list(evidence.statements(source.replace(b"x + 1", changed)))[1:]
    record = {"code": "a", "tables": "t"}
    assert state_of(record, {"code": "a", "tables": "u"}) == "current"
    assert state_of(record, {"code": "b", "tables": "t"}) == "unmoved"
    assert state_of(record, {"code": "b", "tables": "u"}) == "older"
