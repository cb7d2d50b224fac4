"""Truth: exit codes of the contract, and the files of the same study written by the interface."""

import pandas as pd
import pytest

from surveysynth import cli
from surveysynth.evaluation.studies import coverage, scheduling
from surveysynth.evaluation.studies.batches import run_task
from surveysynth.evaluation.studies.folder import write_study
from tests.evaluation.studies.study_cases import small_study


@pytest.fixture
def asked(monkeypatch):
    """The command with a small study in the place of the published one."""
    given = []

    def make(**options):
        given.append(options)
        return small_study(replicates=options["replicates"], seed=options["seed"])

    monkeypatch.setattr(coverage, "paper_study", make)
    in_this_process = scheduling.run_tasks
    monkeypatch.setattr(
        "surveysynth.evaluation.studies.folder.run_tasks",
        lambda *parts, scheduler, workers: in_this_process(*parts, workers=1),
    )
    return given


def test_a_study_is_written_and_goes_on(asked, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["study", "--out", str(out), "--replicates", "4", "--seed", "7"]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    assert "coverage_mcse" in printed.out
    assert "2/2 noise, batch 2 of 2" in printed.err
    assert (asked[0]["replicates"], asked[0]["seed"]) == (4, 7)
    assert set(asked[0]["methods"]) == {
        "sample", "laplace", "fbs", "fbs_paper", "fbp", "fbp_paper"
    }  # fmt: skip
    same = write_study(small_study(replicates=4, seed=7), tmp_path / "same", workers=1)
    assert (out / "cells.csv").read_bytes() == (same.out / "cells.csv").read_bytes()
    assert cli.main(arguments) == 2
    assert "--resume" in capsys.readouterr().err
    assert cli.main([*arguments, "--resume"]) == 0
    assert cli.main([*arguments[:-1], "8", "--resume"]) == 2


def test_an_interrupted_study_says_what_is_kept(asked, tmp_path, capsys, monkeypatch):
    def interrupted(*parts, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("surveysynth.evaluation.studies.folder.run_tasks", interrupted)
    assert cli.main(["study", "--out", str(tmp_path / "out")]) == 130
    assert "nothing was written" not in (message := capsys.readouterr().err)
    assert "--resume continues" in message


def test_failed_batches_have_an_exit_code(asked, tmp_path, capsys, monkeypatch):
    def one_fails(study, tasks, finished, **options):
        for task in tasks:
            finished(task, "it broke" if task.batch == 1 else run_task(study, task))

    monkeypatch.setattr("surveysynth.evaluation.studies.folder.run_tasks", one_fails)
    out = tmp_path / "out"
    assert cli.main(["study", "--out", str(out), "--replicates", "6"]) == 4
    message = capsys.readouterr().err
    assert "1 of 3 batches failed twice" in message
    assert "00001_noise: it broke" in message
    assert sorted(set(pd.read_parquet(out / "replicates.parquet")["sample"])) == [0, 1, 4, 5]


def test_two_stages_are_a_study_of_their_own(asked, tmp_path, capsys, monkeypatch):
    seen = []

    def make(**options):
        seen.append(options)
        return small_study(replicates=2)

    monkeypatch.setattr(coverage, "two_stage_study", make)
    assert cli.main(["study", "--two-stage", "--out", str(tmp_path / "out"), "--seed", "3"]) == 0
    assert seen == [{"seed": 3, "replicates": 100}]
    assert cli.main(["study", "spec.toml", "--two-stage", "--out", str(tmp_path / "no")]) == 2
    assert "--two-stage and a specification exclude each other" in capsys.readouterr().err
