"""Data of a Stan program as a file. Truth: sums over the records by hand from the csv file; modes
of files; the refusal to write where a release is."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.api.stan_data import export_stan
from surveysynth.cli import main
from surveysynth.errors import InputError
from surveysynth.sampling.stan.source import StanSource, declared_names
from tests.surveys import pseudo_example

N = 200


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """With one covariance of all cells, whose sums are simplest."""
    path = pseudo_example(tmp_path / "ex", n=N)
    text = path.read_text().replace("[synthesizer]\n", "[synthesizer]\ncovariance_by = []\n")
    path.write_text(text)
    return path


def test_the_data_are_sums_over_the_records_and_all_that_the_program_declares(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data.json"
    assert main(["export-stan", str(spec), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"CONFIDENTIAL: {out} holds the records" in told
    program = Path(told.partition("Program: ")[2].strip())
    source = StanSource.read(program, [program.parent])
    data = json.loads(out.read_text())
    assert set(data) == set(declared_names(source)["data"])
    assert out.stat().st_mode & 0o777 == 0o600

    # The intercept comes first, so the first row of X'AZ = gram fit adds z over all records.
    frame = pd.read_csv(spec.parent / "survey.csv")
    z = np.log(frame[["salary", "weight"]].to_numpy())
    gram, fit = np.array(data["gram"]), np.array(data["fit"])
    assert gram[0, 0] == N
    assert data["total"] == N + data["K_shrunken"]  # a ridge is one more record
    np.testing.assert_allclose((gram @ fit)[0], z.sum(axis=0), rtol=1e-9)
    squares = np.array(data["residual"]) + fit.T @ gram @ fit
    np.testing.assert_allclose(squares, z.T @ z, rtol=1e-9)


def test_it_writes_into_no_release_and_over_no_file(spec: Path, tmp_path: Path) -> None:
    published = tmp_path / "out" / "release"
    published.mkdir(parents=True)
    (published / "privacy.json").write_text("{}")
    (published / "tables").mkdir()
    for folder in (published, published / "tables", tmp_path / "out"):
        with pytest.raises(InputError, match="would be in the folder of a release"):
            export_stan(spec, folder / "data.json")
        assert not (folder / "data.json").exists()
    (tmp_path / "data.json").write_text("kept")
    with pytest.raises(InputError, match="exists; name another"):
        export_stan(spec, tmp_path / "data.json")
    assert (tmp_path / "data.json").read_text() == "kept"
    with pytest.raises(InputError, match="does not exist; make it"):
        export_stan(spec, tmp_path / "nowhere" / "data.json")


def test_a_model_without_a_program_is_told(spec: Path, tmp_path: Path) -> None:
    from surveysynth.api import stan_data
    from surveysynth.models.gaussian.fbs import FBS

    class NoProgram(FBS):
        stan = None

    with pytest.raises(InputError, match="has no Stan program"):
        stan_data._program_and_data(NoProgram(), None)


@pytest.mark.cmdstan
def test_a_program_of_one_s_own_gets_its_records(tmp_path: Path) -> None:
    """Those of ``means.stan``, whose data are the records themselves."""
    from tests.stan.test_stan_program import write_spec

    spec = write_spec(tmp_path)
    program = export_stan(spec, tmp_path / "data.json")
    data = json.loads((tmp_path / "data.json").read_text())
    frame = pd.read_csv(tmp_path / "survey.csv")
    assert program.name == "means.stan"
    np.testing.assert_allclose(data["log_w"], np.log(frame["weight"]), rtol=1e-12)
    np.testing.assert_array_equal(data["alpha"], np.ones(len(frame)))
