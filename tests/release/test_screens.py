"""What check and release show: the verdict, every warning, and no number of the confidential data.

Truth: two surveys that differ in outcomes and weights alone have one screen; warnings by kind.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.cli import main
from surveysynth.release.check import BEFORE, LAST, Kind, Warned, last_messages
from tests.release.fuzzing import CANARIES, CANARY_OUTCOME, CANARY_WEIGHT
from tests.surveys import MakeSpec, small_survey

NOISY = 'epsilon = 10.8\nmechanism = "noisy_statistics"'
SALARY = '[outcomes.salary]\ncenter = 60000\nspread = 0.5'


def test_check_shows_every_warning_without_being_asked_for_details() -> None:
    warned = [Warned(kind, f"of {kind.name}") for kind in Kind]
    found = ss.CheckResult(("a detail", *warned))
    assert found.summary.splitlines()[0] == "Valid."
    for each in warned:
        assert str(each) in found.summary.splitlines()
    assert "a detail" not in found.summary
    assert "a detail" in str(found)
    assert "WARNING: of ACCURACY" in found.summary


def test_a_release_repeats_only_what_decides_about_publication() -> None:
    shown = last_messages(Warned(kind, "") for kind in Kind)
    assert [each.kind for each in shown] == [
        Kind.UNPUBLISHABLE, Kind.GUARANTEE, Kind.RARE_LEVELS, Kind.LEFT_OUT,
    ]  # fmt: skip
    # Whatever costs accuracy is said while nothing is spent, or by check.
    assert LAST.isdisjoint({Kind.ACCURACY, Kind.FORMULA, Kind.FEW_RECORDS})
    assert {Kind.FORMULA, Kind.FEW_RECORDS} < set(BEFORE)


def screen_of(spec: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["release", str(spec), "--out", str(out), *options]) == 0
    said = capsys.readouterr()
    return (said.out + said.err).replace(str(spec.parent), "IN").replace(str(out), "OUT")


def other_values(frame: pd.DataFrame) -> pd.DataFrame:
    """The same public columns, with other outcomes and weights of the same sum."""
    rng = np.random.default_rng(8)
    weight = rng.gamma(4.0, size=len(frame))
    weight[0] = CANARY_WEIGHT * weight[1:].sum() / 20_000.0
    return frame.assign(
        salary=np.append(CANARY_OUTCOME, 2.0 * rng.permutation(frame["salary"])[1:]),
        weight=weight * (frame["weight"].sum() / weight.sum()),
    )


@pytest.mark.usefixtures("stand_in_mechanism")
@pytest.mark.parametrize("privacy", [NOISY, "epsilon = 10.8\nallow = ['small_strata']"])
def test_outcomes_and_weights_do_not_change_the_screen(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str], privacy: str
) -> None:
    frame, screens, files = small_survey(60), [], []
    for name, each in (("one", frame), ("two", other_values(frame))):
        size = f"population_size = {frame['weight'].sum()}\nid = 'survey {name}'"
        spec = make_spec(each, survey=size, privacy=privacy, labels=SALARY)
        out = tmp_path / name
        screens.append(screen_of(spec, out, capsys).replace(f"survey {name}", "survey"))
        files.append((out / "confidential" / "draws.json").read_bytes())
    assert screens[0] == screens[1]
    assert not any(canary in screens[1] for canary in CANARIES)
    if privacy == NOISY:
        assert files[0] != files[1]  # the two had other data


@pytest.mark.usefixtures("stand_in_mechanism")
def test_a_test_run_spends_nothing_and_is_not_to_be_published(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survey = "population_size = 30000"
    spec = make_spec(small_survey(60), survey=survey, privacy=NOISY, labels=SALARY)
    told = screen_of(spec, tmp_path / "out", capsys, "--seed", "1")
    assert "This is a test run: not private, and not counted." in told
    assert "OUT/release (do not publish). Start with index.html." in told
    assert "will spend" not in told
    release = tmp_path / "out" / "release"
    page = (release / "index.html").read_text()
    linked = set(re.findall('href="(.*?)"', page))
    files = {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()}
    files = {path for path in files if not path.startswith("microdata/")} - {"index.html"}
    assert linked == files | {"microdata"}
    assert page.index("tables/means.html") < page.index("README.md")
    assert "TEST RUN, NOT PRIVATE" in page
    lines = screen_of(spec, tmp_path / "again", capsys).splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("Released: "))
    assert "This release will spend rho 1.75 (epsilon 10.8 at delta 1e-06)." in lines
    assert lines[start] == "Released: OUT/release (publish this folder). Start with index.html."
    assert lines[start + 1] == "Private:  OUT/confidential (never publish)."
    assert lines[start + 2].startswith("Budget:   rho 1.75, 1 run (epsilon 10.8 at delta 1e-06).")
