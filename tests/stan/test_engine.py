"""A model sampled by its Stan program. Truth: the embedded sampler, whose draws a stand-in for Stan
returns as the program would; planted values searched in all that is written or said. Marked tests
run the program itself."""

import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import DIVERGENT
from surveysynth.config.build import engine_of, model_of
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.pseudo_posterior import weighted_fits as mechanism
from surveysynth.mechanisms.pseudo_posterior.search import NOISY_LEAST_SHARE
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models.gaussian.fbp import FBP
from surveysynth.release.pipeline import release
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan import backends as stan_module
from surveysynth.sampling.stan.backends import (
    BACKEND_VARIABLE,
    MAX_SEED,
    StanEngine,
    StanRun,
    seed_from,
)
from surveysynth.sampling.stan.source import StanSource, declared_names
from surveysynth.survey.survey import Survey
from tests.guesses import guessed_theta
from tests.surveys import write_survey

CANARY = 7319.4285174
PLAN = SamplingPlan(chains=4, warmup=150, draws=150)
N = 400


class Gibbs:
    """Returns the embedded sampler's draws of FBP under the names of ``fbp.stan``."""

    def __init__(self) -> None:
        self.prepared: list[StanSource] = []
        self.called: list[dict[str, Any]] = []
        self.stats: Any = None
        self.diverged = 0

    def prepare(self, source: StanSource) -> None:
        self.prepared.append(source)

    def versions(self, source: StanSource) -> dict[str, str]:
        return {"cmdstan": "2.99.1"}

    def run(
        self, source: StanSource, data: Mapping[str, Any], plan: SamplingPlan, **more: Any
    ) -> StanRun:
        self.called.append({"source": source, "data": data, "plan": plan, **more})
        theta = FBP().sample(self.stats, plan, np.random.default_rng(more["seed"]))
        draws = {name: theta[name][0] for name in ("beta", "selection")}
        draws["residual_sd"] = np.sqrt(theta["variance"][0])
        divergent = np.zeros((plan.chains, plan.draws), dtype=bool)
        divergent[0, : self.diverged] = True
        return StanRun(draws, divergent)


class Watched(FBP):
    """FBP that hands its statistics to the stand-in."""

    def compress(self, records: Any, risk_weights: Any) -> Any:
        stats = super().compress(records, risk_weights)
        BACKEND.stats = stats
        return stats


BACKEND = Gibbs()


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Gibbs:
    fresh = Gibbs()
    monkeypatch.setitem(globals(), "BACKEND", fresh)
    return fresh


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    log_y = rng.normal(10.0, 0.5, N)
    result = pd.DataFrame(
        {
            "field": np.array(list("abc"))[np.arange(N) % 3],
            "salary": np.exp(log_y),
            "weight": np.exp(14 - log_y + 0.3 * rng.standard_normal(N)),
        }
    )
    result.loc[0, "salary"] = CANARY
    return result


def survey() -> Survey:
    return Survey.from_frame(
        frame(), outcome="salary", weight="weight", by=["field"], population_size=60_000
    )


def test_the_program_gets_the_statistics_and_its_draws_become_the_model_s(backend: Gibbs) -> None:
    data, model = survey(), Watched()
    engine = model.with_engine(StanEngine(backend, adapt_delta=0.97))
    records = engine.records(data.design, data.confidential)
    stats = engine.compress(records, np.full(N, 0.5))
    theta = engine.posterior_draws(stats, PLAN, np.random.default_rng(3))
    (call,) = backend.called
    assert model.stan is not None
    expected = model.stan.data(stats, model.priors)
    assert set(call["data"]) == set(expected) == set(declared_names(call["source"])["data"])
    for name, value in expected.items():
        np.testing.assert_array_equal(call["data"][name], value)
    assert (call["plan"], call["adapt_delta"]) == (PLAN, 0.97)
    embedded = FBP().sample(stats, PLAN, np.random.default_rng(call["seed"]))
    assert set(theta) == {*embedded, DIVERGENT}
    for name, values in embedded.items():
        np.testing.assert_allclose(theta[name], values, rtol=1e-12)
    assert theta[DIVERGENT].shape == (1, 4, 150)


def test_the_rest_is_the_model_s_own(backend: Gibbs) -> None:
    data, model = survey(), FBP()
    engine = model.with_engine(StanEngine(backend))
    assert (engine.name, engine.title, engine.requires) == (model.name, model.title, model.requires)
    assert (engine.identified, engine.batched) == (model.identified, False)
    theta = guessed_theta(model, data.design, 0.5)
    assert guessed_theta(engine, data.design, 0.5).keys() == theta.keys()
    for kind in ("release", "sample"):
        one = engine.simulate(theta, data.design, np.random.default_rng(1), kind)
        two = model.simulate(theta, data.design, np.random.default_rng(1), kind)
        np.testing.assert_array_equal(one.z, two.z)
    np.testing.assert_array_equal(
        engine.smooth_weight(theta, data.design, one), model.smooth_weight(theta, data.design, two)
    )
    records = engine.records_from_simulated(data.design, one)
    draws = {name: np.repeat(value[None], 3, axis=0) for name, value in theta.items()}
    pairs = zip(
        engine.log_lik_blocks(draws, records), model.log_lik_blocks(draws, records), strict=True
    )
    for (rows, log_lik), (same_rows, same) in pairs:
        np.testing.assert_array_equal(rows, same_rows)
        np.testing.assert_array_equal(log_lik, same)


def test_seeds_come_from_the_generator() -> None:
    seeds = {seed_from(np.random.default_rng(i)) for i in range(200)}
    assert len(seeds) == 200
    assert min(seeds) >= 1
    assert max(seeds) <= MAX_SEED
    assert seed_from(np.random.default_rng(7)) == seed_from(np.random.default_rng(7))


def test_what_cannot_be_is_refused_at_once(backend: Gibbs) -> None:
    with pytest.raises(InputError, match=r"adapt_delta must lie between 0 and 1, got 1\.0"):
        StanEngine(backend, adapt_delta=1.0)

    class NoProgram(FBP):
        stan = None

    with pytest.raises(InputError, match="has no Stan program: use the engine 'embedded'"):
        NoProgram(engine=StanEngine(backend))


def test_the_mechanism_reaches_its_target_and_gates_divergences(backend: Gibbs) -> None:
    data, engine = survey(), Watched().with_engine(StanEngine(backend))
    settings = MechanismSettings(epsilon=20.0, plan=PLAN)

    def run() -> mechanism.ConfidentialFit:
        rng = np.random.default_rng(1)
        return mechanism.run(engine, data.design, data.confidential, settings, rng)[1]

    fit = run()
    target = settings.target_bound
    assert NOISY_LEAST_SHARE * target <= fit.realised_bound <= target
    backend.diverged = PLAN.kept // 100 + 1
    with pytest.raises(RefusedError, match="More than 1% of the draws diverged"):
        run()


SPEC = """
[survey]
data = "survey.csv"
weight = "weight"
population_size = 60000
[synthesizer]
model = "fbp"
outcome = "salary"
engine = "{engine}"
covariance_by = []
{more}
[privacy]
mechanism = "pseudo_posterior"
epsilon = 20.0
m = 2
[tables]
by = ["field"]
"""


#: Debiasing is a hundred fits more, each of them processes of their own.
PAPER = 'inference = "paper"'


def write_spec(folder: Path, engine: str = "cmdstan", more: str = "") -> Path:
    return write_survey(folder, frame(), SPEC.format(engine=engine, more=more))


def test_the_specification_chooses_the_engine(tmp_path: Path) -> None:
    for engine in ("auto", "embedded", "cmdstan"):
        spec = load_spec(write_spec(tmp_path, engine))
        model = engine_of(spec, model_of(spec))
        assert isinstance(model, FBP)
        assert isinstance(model.engine, StanEngine) == (engine == "cmdstan")


def check_release(spec: Path, out: Path, said: str) -> None:
    """What is published names the engine, and neither files nor messages hold a canary."""
    public = out / "release"
    record = json.loads((public / "privacy.json").read_text())
    assert (record["model"], record["settings"]["engine"]) == ("fbp", "cmdstan")
    assert {"cmdstan", "pystan"} & set(record["versions"])
    realised = json.loads((out / "confidential" / "realised.json").read_text())
    assert realised["realised_epsilon"] <= 20.0
    assert realised["divergent_draws"] <= 10
    assert max(realised["r_hat"].values()) < 1.05
    for path in public.rglob("*"):
        assert not path.is_file() or b"7319.42" not in path.read_bytes()
    assert "7319" not in said
    counts = pd.read_csv(public / "tables" / "counts.csv")
    assert len(counts) == 4


def test_a_release_with_the_engine(
    tmp_path: Path,
    backend: Gibbs,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("surveysynth.sampling.stan.backends.CmdStanBackend", lambda: backend)
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    monkeypatch.setattr("surveysynth.models.gaussian.fbp.FBP", Watched)
    spec = write_spec(tmp_path, more="draws = 150\nwarmup = 100")
    stages: list[str] = []
    release(spec, tmp_path / "out", progress=stages.append)
    assert stages.index("compiling the Stan program") < stages.index("reading the survey")
    assert [source.name for source in backend.prepared] == ["fbp"]
    check_release(spec, tmp_path / "out", "".join([*capfd.readouterr(), caplog.text]))


@pytest.mark.parametrize("own_covariances", ["covariance_by = []\n", ""])
def test_without_cmdstan_the_release_names_the_command_before_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_covariances: str
) -> None:
    monkeypatch.setenv("CMDSTAN", str(tmp_path / "nowhere"))
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    spec = write_spec(tmp_path)
    spec.write_text(spec.read_text().replace("covariance_by = []\n", own_covariances))
    (tmp_path / "survey.csv").unlink()
    with pytest.raises(InputError, match=r"python -m cmdstanpy\.install_cmdstan"):
        release(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_source_is_complete(backend: Gibbs) -> None:
    engine = StanEngine(backend)
    source = stan_module.program_source(FBP.stan)
    assert "#include" not in source.code
    assert source.name == "fbp"
    assert stan_module.ADAPT_DELTA == engine.adapt_delta == 0.99


@pytest.mark.pystan
@pytest.mark.slow
def test_a_release_through_pystan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, "pystan")
    spec = write_spec(tmp_path, more=PAPER)
    release(spec, tmp_path / "out")
    check_release(spec, tmp_path / "out", "".join(capfd.readouterr()))


@pytest.mark.cmdstan
def test_a_release_through_cmdstan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    import cmdstanpy  # noqa: F401  (it makes an empty folder of its own when it is imported)

    caplog.set_level(logging.DEBUG)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    spec = write_spec(tmp_path, more=PAPER)
    release(spec, tmp_path / "out")
    check_release(spec, tmp_path / "out", "".join([*capfd.readouterr(), caplog.text]))
    assert list(temporary.iterdir()) == []
