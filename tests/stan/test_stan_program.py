"""A synthesizer of the caller's own. Truth: the closed posterior of ``programs/means.stan``, drawn
by a stand-in for Stan that can be told to break the contract in each way; planted values searched
in messages; marked tests run the program itself, from its toml file to the tables."""

import contextlib
import json
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError, RefusedError
from surveysynth.inference import synthesis
from surveysynth.mechanisms.pseudo_posterior import weighted_fits as mechanism
from surveysynth.mechanisms.pseudo_posterior.search import NOISY_LEAST_SHARE
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models.own_stan import LOG_LIK, StanProgram
from surveysynth.models.own_stan_file import SOURCES, parse_program_file
from surveysynth.release.pipeline import release
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import (
    BACKEND_VARIABLE,
    CmdStanBackend,
    PyStanBackend,
    StanRun,
)
from surveysynth.sampling.stan.source import StanSource
from surveysynth.survey.survey import Survey
from tests.surveys import write_survey

PROGRAMS = Path(__file__).parent / "programs"
MEANS = PROGRAMS / "means.toml"
CANARY = 61538.2947163
PLAN = SamplingPlan(chains=4, warmup=100, draws=150)


class Conjugate:
    """Draws from the closed posterior of ``means.stan``; ``fault`` breaks the contract."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.calls = fault, 0

    def prepare(self, source: StanSource) -> None:
        """Nothing to compile."""

    def versions(self, source: StanSource) -> dict[str, str]:
        return {"cmdstan": "2.99.1"}

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        plan: SamplingPlan,
        *,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        self.calls += 1
        rng, shape = np.random.default_rng(seed), (plan.chains, plan.draws)
        z = np.stack([data["y"], data["log_w"]])
        used = np.ones(data["n"]) if self.fault == "unweighted" else np.asarray(data["alpha"])
        used = (used > 0).astype(float) if self.fault == "switch" else used
        location = z.mean(1) if self.fault == "prior" else np.zeros(2)
        precision = data["prior_sd"] ** -2.0 + used.sum()
        mean = (z @ used + location * data["prior_sd"] ** -2.0) / precision
        mu = mean + rng.standard_normal((*shape, 2)) / np.sqrt(precision)
        mu[..., 1] += 0.3 * z[1].mean() if self.fault == "half" else 0.0
        log_lik = -np.log(2 * np.pi) - 0.5 * ((z - mu[..., None]) ** 2).sum(-2)
        noise = rng.standard_normal((*shape, 2, data["n"])) + mu[..., None]
        result = {"mu": mu, "log_lik": log_lik, "y_rep": noise[..., 0, :]}
        result["log_w_rep"] = (
            z[1] + 0 * noise[..., 1, :] if self.fault == "copy" else noise[..., 1, :]
        )
        faults: dict[str, Callable[[], Any]] = {
            "no log_lik": lambda: result.pop("log_lik"),
            "short": lambda: result.update(log_lik=log_lik[..., :-1]),
            "weighted": lambda: result.update(log_lik=log_lik * data["alpha"]),
            "constant": lambda: result.update(log_lik=0 * log_lik - 1),
            "nan": lambda: result.update(log_lik=np.where(z[0] > 10, np.nan, log_lik)),
            "nan draw": lambda: result.update(y_rep=result["y_rep"] * np.nan),
            "wide": lambda: result.update(y_rep=noise),
        }
        faults.get(self.fault, lambda: None)()
        return StanRun(result, np.zeros(shape, dtype=bool))


def survey(n: int = 300, **more: Any) -> Survey:
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(
        {
            "field": np.array(list("abc"))[np.arange(n) % 3],
            "age": rng.integers(20, 60, n),
            "y": np.exp(rng.normal(10.0, 1.0, n)),
            "w": np.exp(rng.normal(3.0, 1.0, n)),
        }
    )
    frame.loc[5, ["y", "w"]] = CANARY
    return Survey.from_frame(
        frame, outcome="y", weight="w", by=["field"], public_columns=["age"], population_size=9000,
        **more,
    )  # fmt: skip


def program(fault: str = "", path: Path = MEANS, **more: Any) -> StanProgram:
    return StanProgram.load(path, backend=Conjugate(fault), **more)


def test_public_weights_are_data_of_a_program_and_nothing_else() -> None:
    """A program sees them where it sees confidential ones; whatever it simulates of them, datasets
    have the weights themselves."""
    model, data = program(), survey(weights="public")
    weight = data.design.public_weight
    assert weight is not None
    records = model.records(data.design, data.confidential)
    np.testing.assert_array_equal(records.z[:, 1], np.log(weight))
    chosen = MechanismSettings(epsilon=20.0, m=2, plan=PLAN, allow=("small_strata",))
    private, _ = mechanism.run(
        model, data.design, data.confidential, chosen, np.random.default_rng(3)
    )
    simulated = model.simulate(private.draw(0), data.design, np.random.default_rng(1))
    np.testing.assert_array_equal(simulated.z[:, 1], np.log(weight))
    for dataset in synthesis.synthesize(
        model, data.design, private, replicates_per_draw=1, rng=np.random.default_rng(2),
        scale_to=9000,
    ):  # fmt: skip
        np.testing.assert_array_equal(dataset.weight, weight)
        assert not dataset.separate_pair


def run(model: StanProgram, **settings: Any) -> Any:
    data = survey()
    given = {"epsilon": 20.0, "m": 2, "plan": PLAN, "origin": "density"}
    chosen = MechanismSettings(**{"epsilon": 10.8, **given, **settings})
    return mechanism.run(model, data.design, data.confidential, chosen, np.random.default_rng(3))


def edited(folder: Path, *changes: tuple[str, str], stan: tuple[str, str] = ("", "")) -> Path:
    """The declaration with texts replaced, and its program, in another folder."""
    text = MEANS.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "means.toml").write_text(text)
    (folder / "means.stan").write_text((PROGRAMS / "means.stan").read_text().replace(*stan))
    return folder / "means.toml"


def test_the_mechanism_runs_around_a_program() -> None:
    model = program()
    private, fit = run(model)
    target = private.settings.target_bound
    assert NOISY_LEAST_SHARE * target <= fit.realised_bound <= target
    data = survey()
    z = np.stack(
        [np.log(data.confidential.outcome[:, 0]), np.log(data.confidential.sampling_weight)]
    )
    expected = z @ fit.risk_weights / (20.0**-2 + fit.risk_weights.sum())
    error = 4 / np.sqrt(fit.risk_weights.sum() * PLAN.kept)
    np.testing.assert_allclose(fit.theta["mu"].mean((0, 1)), expected, atol=error)
    log_lik = -np.log(2 * np.pi) - 0.5 * ((z - fit.theta["mu"][..., None]) ** 2).sum(-2)
    np.testing.assert_allclose(fit.lipschitz_by_record, fit.risk_weights * abs(log_lik).max((0, 1)))


def test_what_leaves_the_mechanism_is_of_the_released_draws_alone() -> None:
    private, fit = run(program())
    assert set(private.theta) == {"mu", "y_rep", "log_w_rep"}
    positions = mechanism.release_positions(2, PLAN, np.ones(PLAN.kept, dtype=bool))
    flat = fit.theta["y_rep"].reshape(PLAN.kept, -1)
    np.testing.assert_array_equal(private.theta["y_rep"][..., 0], flat[positions])
    datasets = list(
        synthesis.synthesize(
            program(), survey().design, private, replicates_per_draw=1,
            rng=np.random.default_rng(1), scale_to=9000.0,
        )
    )  # fmt: skip
    for dataset, theta in zip(datasets, private.theta["y_rep"], strict=True):
        np.testing.assert_allclose(np.log(dataset.outcome), theta)
        assert dataset.weight.sum() == pytest.approx(9000.0)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("unweighted", r"risk weights are not used.*target \+= alpha\[i\]"),
        ("switch", "risk weights are not used"),
        ("half", "draws of 'mu', 'log_w_rep' still depend on outcomes or sampling weights"),
        ("prior", "draws of 'mu', 'y_rep', 'log_w_rep' still depend"),
        ("copy", "draws of 'log_w_rep' still depend"),
        ("no log_lik", "the fit has no variable 'log_lik'"),
        ("short", r"'log_lik' must have the shape \(300,\) \(records first\), got \(299,\)"),
        ("wide", r"'y_rep' must have the shape \(300, 1\)"),
        ("weighted", "'log_lik' is zero for every record when the risk weights are"),
        ("constant", "'log_lik' does not depend on outcomes"),
        ("nan", "'log_lik' holds values that are not finite"),
        ("nan draw", "'y_rep' holds values that are not finite"),
    ],
)
def test_each_breach_of_the_contract_is_found(fault: str, words: str) -> None:
    model = program(fault)
    with pytest.raises(InputError, match=words) as caught:
        run(model)
    assert "6153" not in str(caught.value)
    assert isinstance(model.backend, Conjugate)
    assert model.backend.calls <= 4


def test_a_record_whose_likelihood_is_zero_leaves_instead() -> None:
    model = program()
    data = survey()
    records = model.records(data.design, data.confidential)
    stats = model.compress(records, np.ones(300))
    theta = model.sample(stats, PLAN, np.random.default_rng(1))
    theta[LOG_LIK][..., 7] = -np.inf
    flat = {name: v.reshape(PLAN.kept, *v.shape[3:]) for name, v in theta.items()}
    rows, blocks = zip(*model.log_lik_blocks(flat, records), strict=True)
    assert np.concatenate(rows).tolist() == list(range(300))
    assert np.isinf(np.concatenate(blocks, axis=1)[:, 7]).all()


def test_elements_that_never_move_are_not_watched() -> None:
    model = program()
    lead = (1, 2, 50)
    rng = np.random.default_rng(1)
    mu = np.stack([rng.standard_normal(lead), np.ones(lead)], axis=-1)
    assert model.monitored({"mu": mu, LOG_LIK: np.zeros((*lead, 3))})["mu"].shape == (*lead, 1)


FUNCTIONS = """
import numpy as np
def simulate(theta, design, rng):
    assert set(theta) == {"mu"}
    return theta["mu"] + rng.standard_normal((design.n, 2))
def smooth(theta, design, z):
    return np.exp(np.full(design.n, theta["mu"][1]) + 0.5)
def bad(theta, design, rng):
    return np.zeros(3)
def broken(theta, design, rng):
    raise KeyError("sigma")
"""
BY_FUNCTION = ('outcome = "y_rep"\nlog_weight = "log_w_rep"', 'simulate = "f.py:simulate"')


def test_a_python_function_makes_any_number_of_datasets(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    smooth = (BY_FUNCTION[0], BY_FUNCTION[1] + '\nsmooth_weight = "f.py:smooth"')
    model = program(path=edited(tmp_path, smooth))
    private, _ = run(model)
    assert set(private.theta) == {"mu"}
    datasets = list(
        synthesis.synthesize(
            model, survey().design, private, replicates_per_draw=3,
            rng=np.random.default_rng(1), scale_to=None,
        )
    )  # fmt: skip
    assert len({dataset.outcome.tobytes() for dataset in datasets}) == 6
    np.testing.assert_allclose(datasets[0].weight, np.exp(private.theta["mu"][0, 1] + 0.5))


def with_scales(folder: Path, names: str) -> StanProgram:
    (folder / "f.py").write_text(FUNCTIONS)
    lines = BY_FUNCTION[1] + f"\nscales = {names}"
    more = ('parameters = ["mu"]', 'parameters = ["mu", "tau"]')
    stan = ("vector[2] mu;", "vector[2] mu; real<lower=0> tau;")
    return program(path=edited(folder, (BY_FUNCTION[0], lines), more, stan=stan))


def test_declared_scales_are_what_debiasing_shifts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    theta = {"mu": np.exp(rng.standard_normal((5, 2))), "tau": np.exp(rng.standard_normal(5))}
    model = with_scales(tmp_path, '["tau", "mu"]')
    expected = np.log(np.column_stack([theta["tau"], theta["mu"]]))
    np.testing.assert_allclose(model.log_scales(theta), expected)
    moved = model.with_log_scales(theta, expected + np.log([2.0, 3.0, 5.0]))
    np.testing.assert_allclose(moved["tau"], 2.0 * theta["tau"])
    np.testing.assert_allclose(moved["mu"], theta["mu"] * [3.0, 5.0])
    one = with_scales(tmp_path, '["tau"]')
    kept = one.with_log_scales(theta, one.log_scales(theta))["mu"]
    np.testing.assert_array_equal(kept, theta["mu"])
    assert program().log_scales(theta).shape == (5, 0)
    with pytest.raises(InputError, match="means: scales: 'mu' is not always positive"):
        model.log_scales({**theta, "mu": theta["mu"] - 3.0})


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("f.py:bad", r"the simulated data must have the shape \(300, 2\)"),
        ("f.py:broken", "the function simulate raised KeyError: 'sigma'"),
        ("f.py:missing", "has no function 'missing'"),
        ("f.py:np", "'np' in .* is not a function"),
        ("gone.py:simulate", "there is no file"),
        ("g.py:simulate", r"cannot be run: ZeroDivisionError"),
    ],
)
def test_a_function_that_does_not_fit_is_named(tmp_path: Path, reference: str, words: str) -> None:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    (tmp_path / "g.py").write_text("1 / 0")
    path = edited(tmp_path, (BY_FUNCTION[0], f'simulate = "{reference}"'))

    def use() -> None:
        theta = {"mu": np.zeros(2)}
        program(path=path).simulate(theta, survey().design, np.random.default_rng(1))

    with pytest.raises(InputError, match=words):
        use()


def test_generated_quantities_are_one_dataset_a_draw() -> None:
    with pytest.raises(InputError, match=r"replicates_per_draw = 1 in \[privacy\].*simulate"):
        synthesis.check_replicates(program(), 4)
    synthesis.check_replicates(program(), 1)


def test_priors_can_be_overridden_by_name() -> None:
    assert program(priors={"prior_sd": 3.0}).declared.priors == {"prior_sd": 3.0}
    with pytest.raises(InputError, match=r"unknown name 'prior_sg'.*Did you mean 'prior_sd'"):
        program(priors={"prior_sg": 3.0})


@pytest.mark.parametrize(
    ("changes", "stan", "words"),
    [
        (('y = "outcome"', 'y = "outcom"'), ("", ""), "data.y: unknown source 'outcom'. Did you"),
        (('y = "outcome"', 'yy = "outcome"'), ("", ""), "declares 'y', which neither"),
        (('y = "outcome"', ""), ("", ""), "one variable must be one of 'outcome'"),
        (('alpha = "risk_weights"', ""), ("", ""), "one variable must be 'risk_weights'"),
        (("prior_sd = 20.0", "prior_sd = nan"), ("", ""), "priors.prior_sd: expected a finite"),
        (("prior_sd = 20.0", "y = 2.0"), ("", ""), "'y' is both in data and in priors"),
        (('title = "', 'titel = "'), ("", ""), "program.titel: unknown key. Did you mean 'title'"),
        (("[output]", "[outputs]"), ("", ""), "outputs: unknown key. Did you mean 'output'"),
        (('parameters = ["mu"]', ""), ("", ""), "output.parameters: missing; this key is required"),
        (('["mu"]', "[]"), ("", ""), "output.parameters: expected at least one entry"),
        (('["mu"]', '["nu"]'), ("", ""), "the program has no variable 'nu'"),
        (('["mu"]', '["lp__"]'), ("", ""), "expected the name of a Stan variable, got 'lp__'"),
        (('outcome = "y_rep"', ""), ("", ""), "give outcome and log_weight"),
        (('"y_rep"', '"y_repp"'), ("", ""), "no generated quantity 'y_repp'. Did you mean 'y_rep'"),
        (("[output]", '[output]\nsimulate = "a.py:f"'), ("", ""), "and log_weight, not both"),
        (("[output]", '[output]\nscales = ["mu"]'), ("", ""), "scales needs simulate = 'file.py"),
        (("[output]", '[output]\nscales = ["nu"]'), ("", ""), "'nu' must be one of the parameters"),
        (("[output]", '[output]\nscales = ["mu__"]'), ("", ""), "output.scales.*Stan variable"),
        (("[output]", '[output]\nscales = "mu"'), ("", ""), "output.scales: expected a list"),
        (("[output]", "[output]"), ("log_lik", "ll"), "has no generated quantity 'log_lik'.*each"),
        (("[output]", "[output]"), ("real<lower=0> prior_sd;", ""), "no such variable"),
        (("[output]", "[output"), ("", ""), "is not valid TOML"),
        (('file = "means.stan"', 'file = "gone.stan"'), ("", ""), "There is no Stan program"),
    ],
)
def test_each_mistake_of_a_declaration_has_its_sentence(
    tmp_path: Path, changes: tuple[str, str], stan: tuple[str, str], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        program(path=edited(tmp_path, changes, stan=stan))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.toml cannot be read: No such file"):
        StanProgram.load(tmp_path / "gone.toml")


keys = st.text(string.ascii_letters + "_. []=\"'", max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([*SOURCES, "column age", "f.py:g"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.text(max_size=300))
def test_any_text_is_a_declaration_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_program_file(text, Path("x.toml"))


@given(
    section=st.sampled_from(["program", "data", "priors", "output", "more"]),
    key=st.sampled_from(["file", "title", "y", "alpha", "parameters", "simulate", "scales", "x__"]),
    value=values,
)
def test_any_value_is_a_declaration_or_an_input_error(section: str, key: str, value: Any) -> None:
    def toml(given_value: Any) -> str:
        if isinstance(given_value, dict):
            inner = ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in given_value.items())
            return "{" + inner + "}"
        if isinstance(given_value, list):
            return "[" + ", ".join(map(toml, given_value)) + "]"
        return json.dumps("" if given_value is None else given_value)

    text = MEANS.read_text() + f'\n[{section}.{key}_]\na = 1\n[[{section}."{key}"]]\n'
    for candidate in (text, f"[{section}]\n{key} = {toml(value)}\n"):
        with contextlib.suppress(InputError):
            parse_program_file(candidate, Path("x.toml"))


def test_every_source_of_data_has_its_shape(tmp_path: Path) -> None:
    lines = (
        'n = "records"',
        'n = "records"\nK = "columns"\nX = "matrix"\nN = "population_size"\n'
        'age = "column age"\nfield = "codes field"\nH = "levels field"\np = "n_outcomes"',
    )
    declared = "int K; matrix[n, K] X; real N; vector[n] age; array[n] int field; int H; int p;"
    stan = ("real<lower=0> prior_sd;", f"real<lower=0> prior_sd; {declared}")
    model = program(path=edited(tmp_path, lines, stan=stan))
    data = survey()
    assert model.requires == {"weight", "one_outcome", "population_size"}
    records = model.records(data.design, data.confidential)
    passed = model.data(model.compress(records, np.full(300, 0.5)))
    assert passed["X"].shape == (300, passed["K"])
    assert (passed["N"], passed["H"], passed["p"], passed["prior_sd"]) == (9000, 3, 1, 20.0)
    assert passed["field"][:4].tolist() == [1, 2, 3, 1]
    np.testing.assert_array_equal(passed["age"], data.design.frame["age"].astype(float))
    np.testing.assert_allclose(np.exp(passed["y"]), data.confidential.outcome[:, 0])
    whole = program(path=edited(tmp_path, ('y = "outcome"', 'y = "integer_outcome"')))
    with pytest.raises(InputError, match="300 records have an outcome that is not a whole number"):
        whole.records(data.design, data.confidential)
    for wrong, words in (("column gone", "no public column 'gone'"), ("column field", "'codes'")):
        path = edited(tmp_path, ('n = "records"', f'n = "records"\nv = "{wrong}"'),
                      stan=("real<lower=0> prior_sd;", "real prior_sd; vector[n] v;"))  # fmt: skip
        with pytest.raises(InputError, match=words):
            program(path=path).records(data.design, data.confidential)


SPEC = """
[survey]
data = "survey.csv"
weight = "w"
population_size = 9000
public_columns = ["age"]
[synthesizer]
model = "{model}"
outcome = "y"
{more}
[privacy]
mechanism = "pseudo_posterior"
epsilon = 20.0
m = 2
replicates_per_draw = {replicates}
[tables]
by = ["field"]
"""


def write_spec(folder: Path, model: str = str(MEANS), replicates: int = 1, more: str = "") -> Path:
    data = survey()
    frame = data.design.frame.assign(
        y=data.confidential.outcome[:, 0], w=data.confidential.sampling_weight
    )
    return write_survey(folder, frame, SPEC.format(model=model, replicates=replicates, more=more))


def assert_no_canary(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"61538.29" not in path.read_bytes(), path


def test_a_specification_goes_from_a_program_to_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("surveysynth.sampling.stan.backends.CmdStanBackend", Conjugate)
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    stages: list[str] = []
    result = release(write_spec(tmp_path), tmp_path / "out", progress=stages.append)
    assert "compiling the Stan program" in stages
    public = result.out / "release"
    assert len(list((public / "microdata").glob("*.csv"))) == 2
    record = json.loads((public / "privacy.json").read_text())
    assert (record["model"], record["epsilon"]) == ("means", 20.0)
    assert "means of a log outcome" in record["model_title"]
    assert "divergent_draws" not in (public / "privacy.json").read_text()
    realised = json.loads((result.confidential / "realised.json").read_text())
    assert realised["divergent_draws"] == 0
    assert realised["realised_epsilon"] <= 20.0
    assert_no_canary(public)
    assert "61538" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"replicates": 4}, "set replicates_per_draw = 1"),
        ({"more": 'engine = "embedded"'}, "has no embedded sampler"),
        ({"model": "gone.toml"}, "cannot be read"),
        ({"model": "meanss"}, "or the path of a .toml file"),
    ],
)
def test_a_specification_that_does_not_fit_is_told(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        release(write_spec(tmp_path, **settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_cmdstan_nothing_is_read_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMDSTAN", str(tmp_path / "nowhere"))
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    with pytest.raises(InputError, match=r"python -m cmdstanpy\.install_cmdstan"):
        release(write_spec(tmp_path), tmp_path / "out")


class Unweighted(PyStanBackend):
    """The compiled program as it would be without its risk weights: no other compilation."""

    def run(
        self, source: StanSource, data: Mapping[str, Any], plan: SamplingPlan, **options: Any
    ) -> StanRun:
        return super().run(source, {**data, "alpha": np.ones(data["n"])}, plan, **options)


@pytest.mark.pystan
@pytest.mark.xdist_group("stan means")
def test_pystan_keeps_the_contract_and_finds_its_breach() -> None:
    data = survey()
    model = StanProgram.load(MEANS, backend=PyStanBackend())
    model.prepare()
    model.records(data.design, data.confidential)
    with pytest.raises(InputError, match="risk weights are not used"):
        StanProgram.load(MEANS, backend=Unweighted()).records(data.design, data.confidential)


@pytest.mark.cmdstan
def test_cmdstan_goes_from_a_program_to_tables(tmp_path: Path) -> None:
    model = StanProgram.load(MEANS, backend=CmdStanBackend(cache=tmp_path / "cache"))
    model.prepare()
    private, fit = run(model)
    assert fit.realised_bound <= private.settings.target_bound
    executable = next(p for p in (tmp_path / "cache").glob("means-*/means*") if not p.suffix)
    alone = edited(
        tmp_path, ('file = "means.stan"', f'file = "means.stan"\nexecutable = "{executable}"')
    )
    result = release(write_spec(tmp_path, model=str(alone)), tmp_path / "out")
    assert_no_canary(result.out / "release")


def test_too_many_divergences_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    model = program()
    drawn = model.backend.run

    def diverging(*given: Any, **named: Any) -> StanRun:
        result = drawn(*given, **named)
        result.divergent[0, :7] = True
        return result

    monkeypatch.setattr(model.backend, "run", diverging)
    with pytest.raises(RefusedError, match="of the draws diverged"):
        run(model)
