"""What long work says as it goes: every stage said is in the list that the bar counts by, in its
order. Truth: the lists; the source, in which no stage is said but by its constant."""

import ast
from pathlib import Path

import pytest

import surveysynth
from surveysynth._support.progress import (
    COMPARISON_STAGES,
    COMPILING,
    DEBIASING,
    NOISE,
    POSTERIOR,
    RELEASE_STAGES,
    RISK_WEIGHTS,
    StageReporter,
)
from surveysynth.evaluation.compare.folder import compare as write_comparison
from surveysynth.release.pipeline import release
from tests.surveys import MakeSpec


def short(make_spec: MakeSpec, inference: str) -> Path:
    """A specification that the real mechanism fits in a second."""
    return make_spec(
        survey="population_size = 30000",
        synthesizer=f'inference = "{inference}"\npredictors = "field + gender"\n'
        "chains = 2\ndraws = 150\nwarmup = 60",
        privacy="epsilon = 60\nm = 2\nreplicates_per_draw = 1",
    )


def test_a_release_says_every_stage_of_the_list_in_order(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    said: list[str] = []
    release(short(make_spec, "debiased"), tmp_path / "out", seed=4, progress=said.append)
    # An embedded sampler compiles nothing, and this mechanism adds no noise to statistics.
    others = {COMPILING, NOISE, POSTERIOR}
    assert said == [stage for stage in RELEASE_STAGES if stage not in others]
    assert said.index(RISK_WEIGHTS) < said.index(DEBIASING)


def test_a_comparison_says_every_stage_of_the_list_in_order(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    said: list[str] = []
    write_comparison(short(make_spec, "paper"), tmp_path / "out", seed=4, progress=said.append)
    assert tuple(said) == COMPARISON_STAGES


def test_the_bar_moves_at_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with StageReporter(RELEASE_STAGES) as progress:
        bar, task = progress._bar, progress._task
        assert bar is not None
        assert task is not None
        done = []
        for stage in RELEASE_STAGES:
            progress(stage)
            done.append(bar.tasks[task].completed)
    assert done == list(range(len(RELEASE_STAGES)))


def test_no_stage_is_said_but_by_its_constant() -> None:
    # A sentence in quotes would not be found in the list, and the bar would stand still at it.
    package = Path(surveysynth.__file__).parent
    long_work = [
        path for folder in ("release", "evaluate", "inference", "mechanisms")
        for path in (package / folder).rglob("*.py")
    ]  # fmt: skip
    said = [
        (path.name, node.lineno)
        for path in long_work
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id in ("say", "progress")
        and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
    ]  # fmt: skip
    assert said == []
