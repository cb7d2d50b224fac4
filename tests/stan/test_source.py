"""Stan programs as text. Truth: small programs whose expansion and declarations are written out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth._support.resources import stan_directory
from surveysynth.errors import InputError
from surveysynth.sampling.stan.source import StanSource, declared_names, flattened_source


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.stan").write_text(text)
    return folder


def test_includes_are_replaced_wherever_the_compiler_would(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    write(tmp_path / "shared", inner="real b;", deep="#include inner.stan\nreal c;")
    write(
        tmp_path,
        a='data {\n#include "deep.stan"  // kept\n  #include <own.stan>\n#include own.stan\n}',
        own="real o;",
    )
    text = flattened_source(tmp_path / "a.stan", [tmp_path / "shared"])
    assert text == "data {\nreal b;\nreal c;\nreal o;\nreal o;\n}\n"


def test_an_include_in_a_comment_is_none(tmp_path: Path) -> None:
    code = '/* begin\n#include gone.stan\n*/ data { } // /*\n// #include gone.stan\nprint("/*");\n'
    write(tmp_path, a=code)
    assert flattened_source(tmp_path / "a.stan") == code


def test_circles_and_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, a="#include b.stan", b="#include c.stan", c="#include b.stan")
    with pytest.raises(InputError, match=r"circle: b\.stan -> c\.stan -> b\.stan"):
        flattened_source(tmp_path / "a.stan")
    write(tmp_path, d="#include gone.stan")
    with pytest.raises(InputError, match=r"d\.stan includes 'gone\.stan', which is not in"):
        flattened_source(tmp_path / "d.stan")
    with pytest.raises(InputError, match="There is no Stan program"):
        flattened_source(tmp_path / "none.stan")
    (tmp_path / "binary.stan").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        flattened_source(tmp_path / "binary.stan")


def test_names_that_a_compiler_takes(tmp_path: Path) -> None:
    for stem, name in (("my model-2", "my_model_2"), ("8schools", "program_8schools")):
        (tmp_path / f"{stem}.stan").write_text("")
        assert StanSource.read(tmp_path / f"{stem}.stan").name == name


PROGRAM = """
functions { real f(real x) { real inside = 1; return x; } }
data {
  int<lower=1> n, m; // int<lower=0> commented_out;
  array[n, m] real<lower=0, upper=n> y;  /* vector[n] also_out; */
  vector[n] x[1];
  array[n] int<lower=1, upper=max({n, 2})> cell;
}
transformed data { real half = 0.5; for (i in 1:n) { real hidden; } }
parameters { corr_matrix[m] Omega; simplex[m] p; real mu; }
model { y ~ normal(mu, 1); target += sum(x); { real local; } }
generated   quantities {
  vector[n] log_lik; tuple(real, array[2] int) pair;
  for (i in 1:n) log_lik[i] = normal_lpdf(y[i] | mu, 1);
  if (n > 1) { print("real not_a_name;"); } else { reject("x"); }
  array[n] real y_rep = normal_rng(mu, rep_vector(1, n));
  log_lik[1] += 1; return;
}
"""


def test_declarations_are_read_block_by_block() -> None:
    names = declared_names(StanSource("p", PROGRAM))
    assert names["data"] == ("n", "m", "y", "x", "cell")
    assert names["transformed data"] == ("half",)
    assert names["parameters"] == ("Omega", "p", "mu")
    assert names["model"] == ()
    assert names["generated quantities"] == ("log_lik", "pair", "y_rep")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    declared_names(StanSource("p", text))
    declared_names(StanSource("p", "data {" + text))


def test_the_package_s_programs_are_complete() -> None:
    programs = sorted(stan_directory().glob("*.stan"))
    for path in programs:
        source = StanSource.read(path, [stan_directory()])
        assert "#include" not in source.code
        assert {"data", "parameters", "model"} <= set(declared_names(source)), path
