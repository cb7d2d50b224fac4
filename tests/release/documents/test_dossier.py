"""The dossier of a release. Truth: Bayes' rule by hand, pandas on the public columns, the schema of
the public registry copied out field by field, another survey with the same public columns."""

import html as markup
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from surveysynth.config.build import mechanism_of, model_of, read_survey
from surveysynth.config.spec import load_spec
from surveysynth.inference.debias import DebiasRecord
from surveysynth.release import files
from surveysynth.release.documents.dossier import make_dossier
from surveysynth.release.documents.render import percent
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.files import shared_context
from surveysynth.release.run import facts_of
from tests.surveys import MakeSpec, clustered_survey, small_survey

SIZE = "population_size = 30000"
STRICT = 'mechanism = "noisy_statistics"\nepsilon = 3.6\nm = 10'
SALARY = "[outcomes.salary]\ncenter = 22000\nspread = 0.45"
HOSTILE = "<b>f|ield</b> & [x](y) *z*"


def facts(spec_path: Path, *, test: bool = False) -> ReleaseFacts:
    """What a release would say, without one."""
    spec = load_spec(spec_path)
    mechanism, survey = mechanism_of(spec), read_survey(spec)
    design = mechanism.prepared(survey.design)
    return facts_of(spec, design, mechanism, model_of(spec).of(design), test=test)


def dossier(made: ReleaseFacts) -> tuple[str, str]:
    """As text and as a page."""
    return make_dossier(made, shared_context(made))


@pytest.fixture
def strict(make_spec: MakeSpec) -> Callable[..., ReleaseFacts]:
    def make(frame: pd.DataFrame | None = None, **lines: str) -> ReleaseFacts:
        given = {"survey": SIZE, "privacy": STRICT, "labels": SALARY, **lines}
        given["synthesizer"] = f"{given.get('synthesizer', '')}\ninference = 'debiased'"
        return facts(make_spec(frame, **given))

    return make


class Page(HTMLParser):
    """Texts of a page by element, and the attributes of its table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.cells: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.open.append(tag)
        if tag in ("th", "td"):
            self.cells.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and "style" not in self.open and "title" not in self.open:
            self.texts.append(data.strip())


def rows_of(text: str, caption: str) -> list[list[str]]:
    """Rows of the table below its caption in Markdown."""
    below = text.split(f"*{caption}", 1)[1].split("\n\n")[1]
    lines = [line.strip("| ").split(" | ") for line in below.splitlines()]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def number(text: str) -> float:
    return float(text.rstrip("%")) / 100.0


def test_examples_of_noisy_statistics_are_bayes_rule(strict: Callable[..., ReleaseFacts]) -> None:
    made = strict()
    text = dossier(made)[0]
    rho = json.loads(json.dumps(made.mechanism.guarantee()))["rho"]
    average, most = 2.718281828**rho, 2.718281828 ** (rho + 2.0 * (rho * 13.815510558) ** 0.5)
    for prior, row in zip((0.01, 0.1, 0.5), rows_of(text, "What an adversary"), strict=True):
        assert number(row[0]) == prior
        for factor, cell in ((average, row[1]), (most, row[2])):
            after = prior * factor / (prior * factor + 1.0 - prior)
            assert after <= number(cell) + 1e-9
            assert number(cell) == pytest.approx(after, rel=0.06)
    assert "87% (except with a chance of 1e-06)" in text
    more = (rho + 2.0 * (rho * 13.815510558) ** 0.5) / 3.6 - 1.0
    assert f"That rise is {more:.0%} more than epsilon = 3.6" in text
    several = rows_of(text, "Several records of one person")
    assert [float(row[1]) for row in several] == pytest.approx(
        [rho, 4 * rho, 9 * rho, 25 * rho], rel=1e-3
    )


def test_examples_of_the_pseudo_posterior_are_bayes_rule(make_spec: MakeSpec) -> None:
    text = dossier(facts(make_spec(privacy="epsilon = 2.0\nm = 1")))[0]
    for prior, row in zip((0.01, 0.1, 0.5), rows_of(text, "What an adversary"), strict=True):
        after = prior * 7.389056099 / (prior * 7.389056099 + 1.0 - prior)
        assert after <= number(row[1]) + 1e-9
        assert number(row[1]) == pytest.approx(after, rel=0.06)
    assert "As far as the guarantee holds, which is asymptotic, the table shows how" in text
    assert "if the guarantee held at this number of records, which is not proved" in text
    assert "all surveys" not in text
    for caption in ("come to believe", "can be tested", "records of one person"):
        assert f"{caption} (asymptotic)*" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0512, "5.2%"), (0.05, "5.0%"), (0.123, "13%"), (0.9812, "98.2%"), (0.999985, "99.9985%"),
     (1.0 - 1e-9, "nearly 100%")],
)  # fmt: skip
def test_limits_are_rounded_up(value: float, shown: str) -> None:
    assert percent(value) == shown


def test_nobody_is_told_that_an_asymptotic_guarantee_is_proved(
    make_spec: MakeSpec, strict: Callable[..., ReleaseFacts]
) -> None:
    weak = dossier(facts(make_spec(survey=SIZE)))[0]
    strong = dossier(strict())[0]
    for audience in ("lawyer", "statistician", "respondent"):
        assert f"### For a {audience}" in weak
        assert f"### For a {audience}" in strong
    lawyer = weak.split("### For a lawyer")[1].split("### For a statistician")[0]
    assert "This is asymptotic" in lawyer
    assert "it is not proved" in lawyer
    assert "must not call it differential privacy without the word asymptotic" in lawyer
    respondent = weak.split("### For a respondent")[1].split("## ")[0]
    assert "which is not proved for a survey of this size" in respondent
    assert "prod_i p(y_i, w_i | x_i, theta)^alpha_i" in weak.replace("\\", "")
    assert "2 m max_i max(L_i, osc_i) is at most epsilon = " in weak.replace("\\", "")
    frame = small_survey().assign(weight=100.0)
    survey = 'weights = "public"'
    public = dossier(facts(make_spec(frame, survey=survey)))[0]
    assert "prod_i p(y_i | x_i, theta)^alpha_i" in public.replace("\\", "")
    assert "accepts an asymptotic guarantee" in weak
    assert "This is proved" not in weak.replace("it is not proved", "")
    assert "This is proved, for every valid survey file" in strong
    assert "accepts an asymptotic guarantee" not in strong
    assert "is not proved" not in strong


def test_every_column_is_public_or_confidential(strict: Callable[..., ReleaseFacts]) -> None:
    frame = clustered_survey().assign(fraction=5_000)
    made = strict(frame, survey=f'{SIZE}\npsu = "school"\nfpc = "fraction"', data="survey.csv")
    text = dossier(made)[0]
    rows = {row[0].split(" ")[0]: row for row in rows_of(text, "Columns, and what")}
    assert {name: row[2] for name, row in rows.items()} == {
        "field": "public", "gender": "public", "school": "public", "fraction": "public",
        "salary": "confidential", "weight": "confidential",
    }  # fmt: skip
    assert rows["fraction"][3] == "one value a stratum, published as its sampling fraction"
    assert "population sizes of a finite population correction as sampling fractions" in text
    for level, size in frame["field"].value_counts().items():
        assert f"{level} ({size:,})" in rows["field"][3]
    assert f"{frame['school'].nunique()} different ones" in rows["school"][3]
    assert "center 9.9988 and spread 0.45" in rows["salary"][3]
    assert "log(salary)" in rows["salary"][3]
    assert "30,000" in rows["weight"][3]
    assert "; that of the weight is 0.485437 to 4854.37, 0.01 to 100 times N/n by default." in text
    declared = strict(labels=f"{SALARY}\n[outcomes.weight]\ncenter = 4.8\nspread = 0.5")
    assert "The log weight is an exception" not in dossier(declared)[0]
    cells = rows_of(text, "Sample records by field and gender")
    sizes = {tuple(row[0].split(", ")): int(row[1]) for row in cells}
    assert sizes == frame.groupby(["field", "gender"]).size().to_dict()
    assert [int(row[1]) for row in cells] == sorted(sizes.values())


def test_kinds_levels_and_bounds_are_listed(strict: Callable[..., ReleaseFacts]) -> None:
    """What is declared of outcomes that are not plain amounts."""
    declared = (
        f"{SALARY}\nbounds = [10, 2000000]\n"
        '[outcomes.employed]\nkind = "binary"\nlevels = ["0", "1"]'
    )
    made = strict(synthesizer='outcome = ["salary", "employed"]', labels=declared)
    rows = {row[0]: row[3] for row in rows_of(dossier(made)[0], "Columns, and what")}
    assert "from 10 to 2,000,000" in rows["salary"]
    assert "binary: 0, 1" in rows["employed"]


def test_it_knows_nothing_confidential(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Other confidential values, and another order of the records, give the same bytes."""
    frame = small_survey()
    other = frame.assign(salary=frame["salary"] ** 1.1, weight=frame["weight"].to_numpy()[::-1])
    other = other.sample(frac=1.0, random_state=1)  # a file sorted by income tells of it
    written = []
    for name, each in (("one", frame), ("other", other)):
        folder = tmp_path / name
        folder.mkdir()
        made = facts(make_spec(each, survey=SIZE))
        files.write_dossier(made, shared_context(made), folder)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {"dossier.html", "dossier.md"}
    third = facts(make_spec(frame.iloc[:200], survey=SIZE))
    assert dossier(third)[0].encode() != written[0]["dossier.md"]


def test_what_it_says_of_debiasing_is_said_to_be_of_the_draws(make_spec: MakeSpec) -> None:
    """Factors of debiasing, and whether it worked, cannot be known from the settings."""
    made = facts(make_spec(survey=SIZE))
    alone = "from the specification and the public columns alone"
    assert alone in dossier(made)[0]
    worked = DebiasRecord("debiased", 20, 3, 300, ("scale",), (0.0363,), (0.001,))
    for record in (worked, DebiasRecord("not converged", reason="the shift did not settle")):
        text = dossier(made.with_inference(record))[0]
        assert alone not in text
        assert "where it speaks of debiasing, the released draws" in text
    assert "multiplied by 1.037" in dossier(made.with_inference(worked))[0]


@pytest.mark.parametrize(
    ("privacy", "records", "key", "point"),
    [
        ('risk = "count"\nallow = ["shared_weights"]', 300, "shared_weights", "Weights that one"),
        ('allow = ["small_strata"]\nepsilon = 2.0', 60, "small_strata", "Rows with few records"),
    ],
)
def test_no_headline_claims_what_settings_gave_up(
    make_spec: MakeSpec, privacy: str, records: int, key: str, point: str
) -> None:
    """Wherever epsilon is named it is said that this release is not held to it."""
    usual = facts(make_spec())
    assert "outside the statement" not in dossier(usual)[0]
    unused = facts(make_spec(privacy='allow = ["shared_weights", "small_strata"]'))
    assert "outside the statement" not in dossier(unused)[0]
    made = facts(make_spec(small_survey().iloc[:records], privacy=privacy))
    outside = f"outside the statement (allow = [{key}])"
    text = dossier(made)[0].replace("\\", "")
    for part in ("## In short", "### For a lawyer", "Which definition of privacy",
                 "## What epsilon means", "## Residual risks"):  # fmt: skip
        assert outside in text.split(part, 1)[1][:4000], part
    respondent = text.split("### For a respondent")[1]
    assert "which this release was not made to keep" in respondent
    assert point in text.split("## Checklist")[1]
    assert any(f"THIS RELEASE {word}" in " ".join(made.statement.guarantee)
               for word in ("DOES NOT KEEP", "FALLS SHORT"))  # fmt: skip
    assert outside in made.privacy_note
    assert outside in shared_context(made)["budget"]  # which the README states


def test_both_files_say_the_same_and_nothing_opens_a_tag(
    strict: Callable[..., ReleaseFacts],
) -> None:
    labels = (
        f"{SALARY}\n[labels.field]\ntitle = '{HOSTILE}'\n"
        "levels = { a = '<script>', b = 'B', c = 'C' }"
    )
    text, html = dossier(strict(labels=labels, tables=f"title = '{HOSTILE}'"))
    page = Page(html)
    read = re.sub(r"\\(.)", r"\1", text)
    shown = {markup.unescape(each) for each in page.texts}
    for each in shown:
        assert " ".join(each.split()) in read, each
    assert "script" not in page.counts
    assert "b" not in page.counts
    assert "<script>" in "".join(page.texts)
    assert "<script>" not in text.replace("\\<script\\>", "")
    # Tables are tables for those who hear them: every heading has its scope, every table a caption.
    assert page.counts["table"] == page.counts["caption"] == 6
    assert all("scope" in attributes for tag, attributes in page.cells if tag == "th")


def test_units_of_protection_are_named(strict: Callable[..., ReleaseFacts]) -> None:
    frame = clustered_survey()
    made = strict(frame, survey=f'{SIZE}\npsu = "school"', privacy=f'{STRICT}\nprotect = "school"')
    text = dossier(made)[0]
    assert "all records of one unit of 'school'" in text
    assert "*Several units of one person*" in text
    assert "its units are protected as a whole" in text


def test_without_a_guarantee_there_is_nothing_to_sign(make_spec: MakeSpec) -> None:
    made = facts(make_spec(privacy='risk = "none"'))
    text = dossier(made)[0]
    assert "**NOT PRIVATE" in text
    assert "Checklist" not in text
    assert "worked examples" not in text


def test_nothing_is_said_of_answers_that_are_published(make_spec: MakeSpec) -> None:
    """Public columns may be answers too; a row of one record has no standard error."""
    text = dossier(facts(make_spec()))[0]
    assert "None of these answers is published, neither yours nor anyone's" in text
    assert "No answer is published" not in text
    assert "Every published number has a standard error" not in text
