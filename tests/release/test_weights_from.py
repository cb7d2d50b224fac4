"""What the weights were computed from. Truth: every document searched for sentences written out in
the test, of declarations that differ in nothing else; exit codes of the contract."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import surveysynth as ss
from surveysynth import cli
from surveysynth.config.build import mechanism_of, model_of, read_survey
from surveysynth.config.spec import load_spec, spec_of_survey
from surveysynth.errors import InputError, RefusedError
from surveysynth.release.check import preview_lines
from surveysynth.release.documents.dossier import make_dossier
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.files import make_privacy_record, shared_context
from surveysynth.release.run import facts_of
from surveysynth.survey.declaration import MEASURED, RHO_FACTORS
from tests.surveys import MakeSpec, make_survey, small_survey

STRICT = 'mechanism = "noisy_statistics"\nepsilon = 3.6\nm = 10'
SALARY = "[outcomes.salary]\ncenter = 22000\nspread = 0.45"
SIZE = "population_size = 30000"
ASSUMED = "that nobody's weight depends on the answers of others: neighbors differ in the answers"
GAP = "0.29 to 0.83 of the stated sensitivity, so that rho was 1.7 to 3.4 times what is stated"


def written(make_spec: MakeSpec, survey: str, privacy: str) -> Path:
    """A specification with these lines."""
    debiased = "inference = 'debiased'"
    return make_spec(
        survey=f"{SIZE}\n{survey}", privacy=privacy, labels=SALARY, synthesizer=debiased
    )


def facts(make_spec: MakeSpec, survey: str, privacy: str = STRICT) -> ReleaseFacts:
    """What a release would say, without one."""
    spec = load_spec(written(make_spec, survey, privacy))
    mechanism, design = mechanism_of(spec), read_survey(spec).design
    design = mechanism.prepared(design)
    return facts_of(spec, design, mechanism, model_of(spec).of(design), test=False)


def documents(made: ReleaseFacts) -> dict[str, str]:
    """Statement, dossier and privacy.json, without escapes."""
    context = shared_context(made)
    texts: Mapping[str, Any] = {
        "statement": " ".join(made.statement.paragraphs),
        "dossier": make_dossier(made, context)[0],
        "privacy.json": json.dumps(make_privacy_record(made, context, "a model")),
    }
    return {name: text.replace("\\", "") for name, text in texts.items()}


@pytest.mark.parametrize("privacy", [STRICT, "epsilon = 10.8"])
def test_every_document_spells_out_what_is_assumed_where_nothing_is_declared(
    make_spec: MakeSpec, privacy: str
) -> None:
    read = documents(facts(make_spec, "", privacy))
    for name in ("statement", "dossier", "privacy.json"):
        assert ASSUMED in read[name], name
        assert "(weights_from)" in read[name], name
        assert GAP in read[name], name
    declared = documents(facts(make_spec, "weights_from = []", privacy))
    for name, text in declared.items():
        assert ASSUMED not in text, name
        assert "1.7 to 3.4" not in text, name
    assert "computed from the sample design alone, as the publisher states" in declared["statement"]
    assert '"weights_from": []' in declared["privacy.json"]
    measured = "for this mechanism it was not measured" in read["statement"]
    assert measured == (privacy != STRICT)


def test_public_columns_are_named(make_spec: MakeSpec) -> None:
    read = documents(facts(make_spec, 'weights_from = ["gender", "field"]'))
    assert "and from public columns (gender, field) alone" in read["statement"]
    assert "the public columns gender and field, as the publisher states" in read["dossier"]
    for text in read.values():
        assert "1.7 to 3.4" not in text


def test_unknown_is_named_everywhere_with_its_size(make_spec: MakeSpec) -> None:
    read = documents(facts(make_spec, 'weights_from = "unknown"'))
    for name, text in read.items():
        assert "(weights_from = unknown)" in text, name
        assert "rho was 1.7 to 3.4 times what is stated" in text, name


def test_public_weights_are_said_to_be_published_as_they_are(make_spec: MakeSpec) -> None:
    public = 'weights = "public"'
    read = documents(facts(make_spec, public))
    for name in ("statement", "dossier", "privacy.json"):
        assert "no confidential answer of anybody went into these weights, which are published" in (
            read[name]
        ), name
        assert "nothing protects what they reveal" in read[name], name
    declared = documents(facts(make_spec, f'{public}\nweights_from = ["gender"]'))
    assert "constants of the sample design and of public columns (gender)" in declared["statement"]
    assert "nothing protects what they reveal" not in declared["statement"]
    sizes = 'weights = "public"\npopulation_size = { a = 9000, b = 9000, c = 12000 }'
    path = make_spec(survey=sizes)
    path.write_text(path.read_text().replace('weight = "weight"\n', ""))
    spec = load_spec(path)
    design = read_survey(spec).design
    made = facts_of(spec, design, mechanism_of(spec), model_of(spec).of(design), test=False)
    assert "weights_from" not in " ".join(made.statement.paragraphs)


@pytest.mark.parametrize("wrong", ["salary", "weight", "employed"])
@pytest.mark.parametrize("command", ["check", "release"])
def test_weights_from_columns_that_are_not_public_are_refused(
    make_spec: MakeSpec, tmp_path: Path, wrong: str, command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """employed is in the file but has no role."""
    for privacy in (STRICT, "epsilon = 10.8"):
        path = written(make_spec, f'weights_from = ["gender", "{wrong}"]', privacy)
        out = ["--out", str(tmp_path / "out")] if command == "release" else []
        assert cli.main([command, str(path), *out]) == RefusedError.exit_code == 3
        error = " ".join(capsys.readouterr().err.split())
        for words in (f"computed from '{wrong}'", "[[calibration]]", 'weights_from = "unknown"',
                      "1.7 to 3.4 times"):  # fmt: skip
            assert words in error
        assert not (tmp_path / "out").exists()


def test_a_column_that_is_made_public_may_make_weights(make_spec: MakeSpec) -> None:
    lines = f'{SIZE}\npublic_columns = ["employed"]\nweights_from = ["employed"]'
    design = read_survey(load_spec(make_spec(survey=lines))).design
    assert design.weights_from == ("employed",)
    assert design.confidential_sources == ()


def test_sizes_of_strata_leave_nothing_to_declare(make_spec: MakeSpec) -> None:
    sizes = 'population_size = { a = 9, b = 9, c = 9 }\nweights_from = ["gender"]'
    sizes += '\nweights = "public"'
    path = make_spec(survey=sizes)
    path.write_text(path.read_text().replace('weight = "weight"\n', ""))
    with pytest.raises(InputError, match=r"by stratum gives the weights.*leave weights_from out"):
        load_spec(path)


def test_check_asks_and_states(make_spec: MakeSpec) -> None:
    def lines(survey: str) -> str:
        made = facts(make_spec, survey)
        return "\n".join(map(str, preview_lines(made.spec, made.design, model_of(made.spec))))

    question = "were they calibrated, or adjusted for nonresponse, by columns besides the sample"
    assert question in lines("")
    assert question not in lines("weights_from = []")
    assert "computed from the design and gender." in lines('weights_from = ["gender"]')
    assert "rho was 1.7 to 3.4 times" in lines('weights_from = "unknown"')


def test_surveys_in_memory_follow_the_same_rules() -> None:
    given = {"mechanism": "noisy_statistics", "epsilon": 3.6, "seed": 1,
             "outcomes": {"salary": {"center": 22_000, "spread": 0.45}}}  # fmt: skip
    frame, rest = small_survey(), {"population_size": 30_000}
    for wrong in (["salary"], "employed"):
        survey = make_survey(frame, weights_from=wrong, **rest)
        with pytest.raises(RefusedError, match=r"\[\[calibration\]\]"):
            ss.tables(survey, **given)
    for sources in (None, (), ("gender",), "unknown"):
        design = make_survey(frame, weights_from=sources, **rest).design
        spec = spec_of_survey(design, {"privacy": {"mechanism": "pseudo_posterior", "epsilon": 1}})
        assert design.weights_from == spec.survey.weights_from == sources
    with pytest.raises(InputError, match="expected names of columns"):
        make_survey(frame, weights_from=[3], **rest)


def test_stated_sizes_agree() -> None:
    """Others move the sums by a part of what the record itself may: rho grows by the square."""
    for part, factor in zip(MEASURED, RHO_FACTORS, strict=True):
        assert (1.0 + part) ** 2 == pytest.approx(factor, abs=0.06)


def test_weights_are_confidential_as_before(make_spec: MakeSpec) -> None:
    """The declaration reads no further cell: a column behind the weights is not in the survey."""
    frame = small_survey().assign(panel=pd.Series(["secret"] * 240))
    path = make_spec(frame, survey=f'{SIZE}\nweights_from = ["panel"]')
    design = read_survey(load_spec(path)).design
    assert "panel" not in design.frame
    assert "secret" not in repr(design)
