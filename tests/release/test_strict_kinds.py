"""Releases by noisy statistics of outcomes of several kinds.

Truth: published files alone, from which everything is made again; planted values and numbers of
records; without noise, the posterior of the records themselves (mechanism tests)."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.cli import main
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.posterior import draws as posterior
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.release.pipeline import rebuild, release
from tests.surveys import MakeSpec, small_survey

pytestmark = pytest.mark.xdist_group("strict kinds")  # what its tests share is made once

CANARY = 54321.98765
STRICT = 'mechanism = "noisy_statistics"\nepsilon = 20.0\nm = 10\nreplicates_per_draw = 1'
# Every chain is one of a batch: many short ones.
PLAN = "chains = 16\ndraws = 20\nwarmup = 60\npredictors = 'gender'\ninference = 'debiased'"
AMOUNT = '[outcomes.benefit]\nkind = "semicontinuous"\nspikes = [0]\ncenter = 3000\nspread = 0.6\n'
KINDS = (
    AMOUNT
    + '[outcomes.employed]\nkind = "binary"\n'
    + '[outcomes.sector]\nkind = "categorical"\nlevels = ["public", "private", "none"]\n'
)
SURVEY = "population_size = 30000\nstrata = 'gender'"
ALL = 'outcome = ["benefit", "employed", "sector"]'


def frame_of(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    benefit = np.where(rng.random(n) < 0.4, 0.0, np.exp(rng.normal(8.0, 0.5, n)))
    benefit[5] = CANARY
    return small_survey(n).assign(
        benefit=benefit, sector=rng.choice(["public", "private", "none"], n, p=[0.3, 0.5, 0.2])
    )


def spec_of(make_spec: MakeSpec, frame: pd.DataFrame | None = None, **lines: str) -> Path:
    given = {
        "survey": SURVEY,
        "synthesizer": f"{ALL}\n{PLAN}",
        "privacy": STRICT,
        "tables": "by = ['gender']\nstatistics = ['count', 'mean', 'share']",
        "labels": KINDS,
        **lines,
    }
    return make_spec(frame_of() if frame is None else frame, **given)


def shared(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@contextmanager
def first_chains_kept() -> Iterator[None]:
    """Chains do not go on until they converge: near enough to the data for tests of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posterior, "check_convergence", lambda *_: ({}, {}))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The published folder of one release, with nothing else of it, and its confidential one."""
    from tests.surveys import spec_text, write_survey

    folder = tmp_path_factory.mktemp("kinds")
    text = spec_text(
        survey=SURVEY,
        synthesizer=f"{ALL}\n{PLAN}",
        privacy=STRICT,
        tables="by = ['gender']\nstatistics = ['count', 'mean', 'share']",
        labels=KINDS,
    )
    spec = write_survey(folder / "in", frame_of(), text)
    with first_chains_kept():
        out = release(spec, folder / "out", seed=2).out
    shutil.move(out / "release", folder / "alone")
    shutil.move(out / "confidential", folder / "kept")
    shutil.rmtree(folder / "in")
    return folder / "alone", folder / "kept"


def test_everything_is_made_again_from_what_is_published(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    alone, _ = made
    again = rebuild(alone, tmp_path / "again")
    assert again.different == ()
    assert len(again.same) >= 3
    for name in again.same:
        assert (again.out / name).read_bytes() == (alone / name).read_bytes()


def test_statistics_are_of_the_declared_table(made: tuple[Path, Path]) -> None:
    given = shared(made[0] / "statistics.json")["statistics"]
    statistics = LocationStatistics.from_dict(given)
    assert statistics.to_dict() == given
    # Two genders; a spike or an amount, two and three levels; the weight is always there.
    assert np.asarray(given["counts"]).shape == (2 * 2 * 2 * 3,)
    assert given["present"] == [[False, True], [True, True]]
    counts = np.array(given["counts"])
    assert np.array_equal(counts, np.rint(counts))
    frame = frame_of().assign(spike=lambda each: each["benefit"] == 0.0)
    exact = frame.groupby(["gender", "spike", "employed", "sector"]).size()
    assert sorted(counts) != sorted(exact)
    assert abs(counts.sum() - 300) < 6 * given["count_sd"] * counts.size**0.5


def test_the_record_of_privacy_says_what_it_is(made: tuple[Path, Path]) -> None:
    record = shared(made[0] / "privacy.json")
    assert record["private"] is False  # a seed
    assert record["guarantee"] == "zero-concentrated differential privacy"
    settings = record["settings"]
    assert settings["spreads"] == {"benefit": 0.6, "learned weight": 1.0}
    assert settings["count_share"] == 1.0
    text = (made[0] / "dossier.md").read_text(encoding="utf-8")
    assert "numbers of records by row of the model matrix and category of every outcome" in text
    assert "not private" in text


def test_nothing_confidential_is_published(made: tuple[Path, Path]) -> None:
    alone, kept = made
    text = "".join(
        path.read_bytes().decode() for path in sorted(alone.rglob("*"))
        if path.is_file() and path.suffix != ".png"
    )  # fmt: skip
    frame = frame_of()
    amounts = frame.loc[frame["benefit"] > 0, "benefit"]
    constants = [
        column.agg(name) for column in (amounts, frame["benefit"], frame["weight"])
        for name in ("mean", "sum", "std")
    ]  # fmt: skip
    for value in (CANARY, *frame["weight"].iloc[:40], *constants):
        assert f"{value:.6f}"[:8] not in text
    assert shared(alone / "statistics.json")["specification"]["survey"]["data"] == "survey.csv"
    realised = shared(kept / "realised.json")
    assert realised["records"] == 300
    assert realised["clipped_records"] >= 1  # the canary


def test_levels_and_spikes_come_out_as_declared(made: tuple[Path, Path]) -> None:
    paths = sorted((made[0] / "microdata").glob("*.csv"))
    data = pd.concat([pd.read_csv(path) for path in paths])
    assert set(data["employed"]) == {0, 1}
    assert set(data["sector"].fillna("none")) == {"public", "private", "none"}
    assert (data["benefit"] >= 0).all()
    frame = frame_of()
    for name in ("public", "private"):
        share = (data["sector"] == name).mean()
        assert abs(share - (frame["sector"] == name).mean()) < 0.15
    assert abs((data["benefit"] == 0).mean() - (frame["benefit"] == 0).mean()) < 0.15


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"labels": KINDS.replace("center = 3000\n", "")}, "outcomes.benefit: center missing"),
        ({"labels": KINDS.replace("spread = 0.6", "")}, "outcomes.benefit: spread missing"),
        ({"privacy": "delta = 1e-7"}, "only for mechanism = 'noisy_statistics'"),
        ({"survey": f"{SURVEY}\npsu = 'field'"}, "design_effect"),
        ({"survey": f"weights = 'public'\n{SURVEY}", "synthesizer": f"outcome = 'employed'\n{PLAN}",
          "labels": '[outcomes.employed]\nkind = "binary"',
          "tables": "by = ['gender']\nstatistics = ['share']"}, "need an amount"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_and_nothing_written(
    make_spec: MakeSpec, tmp_path: Path, lines: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        release(spec_of(make_spec, **lines), tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_values_outside_the_levels_are_counted_and_not_quoted(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    frame = frame_of()
    frame.loc[[3, 9], "sector"] = "secret-level"
    with pytest.raises(InputError) as caught:
        release(spec_of(make_spec, frame), tmp_path / "out")
    assert "2 records" in str(caught.value)
    assert "secret-level" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_too_large_a_table_is_refused_before_anything_is_spent(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    names = [f"kind_{j}" for j in range(6)]
    rng = np.random.default_rng(1)
    levels = [f"level_{k}" for k in range(7)]
    frame = frame_of().assign(**{name: rng.choice(levels, 300) for name in names})
    sections = "".join(
        f'[outcomes.{name}]\nkind = "categorical"\nlevels = {json.dumps(levels)}\n'
        for name in names
    )
    with pytest.raises(InputError, match="235,298 counts here, more than 65,536"):
        release(
            spec_of(
                make_spec, frame, synthesizer=f"outcome = {json.dumps(names)}\n{PLAN}",
                labels=sections, tables="by = ['gender']\nstatistics = ['count', 'share']",
            ),
            tmp_path / "out",
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_check_tells_the_noise(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(make_spec)
    assert main(["check", str(spec), "--quick", "--verbose"]) == 0
    assert "on 2 x 12 numbers of records" in capsys.readouterr().out
    assert main(["check", str(spec), "--quick", "--out", str(tmp_path / "errors")]) == 2
    assert "--out is for the simulated release" in capsys.readouterr().err


SHARES = "by = ['gender']\nstatistics = ['count', 'share']"
BINARY = '[outcomes.employed]\nkind = "binary"\n'
SALARY = "[outcomes.salary]\ncenter = 22000\nspread = 0.45\n"
PUBLIC = f"weights = 'public'\n{SURVEY}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        {"synthesizer": f"outcome = 'employed'\nmodel = 'fbp'\n{PLAN}", "labels": BINARY,
         "tables": SHARES},
        {"synthesizer": f"outcome = 'salary'\ncovariance_by = ['gender']\n{PLAN}",
         "labels": SALARY, "tables": "by = ['gender']\nstatistics = ['mean']"},
        {"survey": PUBLIC},
        {"privacy": f"{STRICT.replace('20.0', '200.0')}\nprotect = 'school'"},
    ],
    ids=["fbp", "groups", "public weights", "units"],
)  # fmt: skip
def test_other_designs_are_released_and_made_again(
    make_spec: MakeSpec, tmp_path: Path, lines: dict[str, str]
) -> None:
    frame = frame_of().assign(school=lambda f: [str(i // 2) for i in range(len(f))])
    if "public" in lines.get("survey", ""):
        frame["weight"] = np.where(frame["gender"] == "f", 90.0, 110.0)
    if "protect" in lines.get("privacy", ""):
        lines = {**lines, "survey": f"{SURVEY}\npublic_columns = ['school']"}
    out = release(spec_of(make_spec, frame, **lines), tmp_path / "out", seed=2).out
    record = shared(out / "release" / "privacy.json")
    assert record["settings"]["unit_size"] == (2 if "privacy" in lines else 1)
    again = rebuild(out, tmp_path / "again")
    assert again.different == ()
