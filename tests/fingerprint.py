"""Hash everything that the package writes: ``python -m tests.fingerprint OUT.json``.

A change that should move no number runs this before and after, and compares the two files with
``--against BEFORE.json``. The cases cover every command that writes files (release, rebuild,
compare, study, check, init) and ``ss.tables``, with a fixed seed. Each file gets two hashes:
one of its bytes, and one of the numbers in it, in order, so that a change of wording shows in the
first alone. Draws of the mechanism are hashed bit by bit.

``--only NAME`` runs some cases; ``--package DIR`` runs the package in another checkout.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
#: Times and versions, which differ between any two runs.
VOLATILE = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+\d\d:?\d\d)?"
    rb"|\d{4}-\d\d-\d\d|/tmp/[\w./-]+|[0-9a-f]{32,64}|\d+(\.\d+)? (s|seconds|MB)\b"
)
ZIPPED = (".xlsx", ".ods", ".zip")
SKIPPED = (".png", ".parquet-meta")

Case = Callable[[Path, Callable[..., str]], None]


def survey(n: int = 300, seed: int = 8) -> pd.DataFrame:
    """A survey in 36 schools with outcomes of every kind and informative weights."""
    rng = np.random.default_rng(seed)
    school = np.arange(n) % 36
    effect = rng.normal(0, 0.2, (2, 36))[:, school]
    log_salary = 10 + 0.1 * (school // 12) + effect[0] + 0.3 * rng.standard_normal(n)
    benefit = np.where(rng.random(n) < 0.4, 0.0, np.exp(rng.normal(8, 0.5, n)))
    return pd.DataFrame({
        "field": np.array(["a", "b", "c"])[school // 12],
        "gender": rng.choice(["f", "m"], n),
        "school": [f"s{number:02d}" for number in school],
        "salary": np.exp(log_salary),
        "benefit": benefit,
        "tax": benefit * 0.2 - 300,
        "employed": rng.integers(0, 2, n),
        "sector": rng.choice(["public", "private", "none"], n, p=[0.3, 0.5, 0.2]),
        "visits": rng.poisson(3.0, n),
        "weight": np.exp(4 - 0.4 * (log_salary - 10) + effect[1] + 0.3 * rng.standard_normal(n)),
    })  # fmt: skip


FORMATS = 'formats = ["csv", "html", "xlsx", "latex", "markdown", "ods", "svg"]'
BY = 'by = ["field", "gender"]'
PLAN = "chains = 2\ndraws = 300\nwarmup = 100"
PSEUDO = 'mechanism = "pseudo_posterior"\nepsilon = 20.0\nm = 2\nreplicates_per_draw = 2'
STRICT = 'mechanism = "noisy_statistics"\nepsilon = 20.0\nm = 10\nreplicates_per_draw = 1'
AMOUNTS = "[outcomes.salary]\ncenter = 22000\nspread = 0.5\n"
KINDS = """[outcomes.benefit]
kind = "semicontinuous"
spikes = [0]
center = 3000
spread = 0.6
[outcomes.employed]
kind = "binary"
[outcomes.sector]
kind = "categorical"
levels = ["public", "private", "none"]
"""
PLAIN_KINDS = AMOUNTS + KINDS.replace("spread = 0.6\n", 'spread = 1.0\ntransform = "yeo_johnson"\n'
                                      "scale = 1000\npower = 0.4\n")  # fmt: skip
SEVERAL = """[all_tables]
title = "Salaries"
statistics = ["count", "mean", "quantile(0.25)", "share"]
[[tables]]
name = "by_field"
by = ["field"]
statistics = ["mean", "median", "count", "total", "difference(mean, field: a - b)"]
formats = ["csv", "html", "markdown"]
[[tables]]
name = "women"
by = ["field"]
where = "gender == 'f' and field in ('a', 'b')"
statistics = ["mean"]
flags = "nchs"
[[tables]]
name = "cross"
by = ["gender", "field"]
statistics = ["count", "mean"]
layout = "crosstab"
"""


def text(
    *, synthesizer: str = 'outcome = "salary"', privacy: str = PSEUDO,
    of_survey: str = 'strata = "field"\npopulation_size = 30000', tables: str = "",
    outcomes: str = "", plan: str = PLAN,
) -> str:  # fmt: skip
    """A specification of ``survey.csv``."""
    tables = tables or f'[tables]\n{BY}\nstatistics = ["count", "mean"]\n{FORMATS}'
    return (
        f'spec_version = 1\n[survey]\ndata = "survey.csv"\nweight = "weight"\n{of_survey}\n'
        f"[synthesizer]\n{synthesizer}\n{plan}\n{outcomes}\n[privacy]\n{privacy}\n{tables}\n"
    )


KINDS_SYNTHESIZER = (
    'model = "fbs"\noutcome = ["benefit", "employed", "sector"]\npredictors = "field + gender"'
)
MANY_SHORT = "chains = 16\ndraws = 20\nwarmup = 60"
NO_SEVERAL_KINDS = f'[tables]\nby = ["gender"]\nstatistics = ["count", "mean", "share"]\n{FORMATS}'
SPECS = {
    "fbs": text(),
    "paper": text(synthesizer='outcome = "salary"\ninference = "paper"'),
    "fbp": text(synthesizer='model = "fbp"\noutcome = "salary"'),
    "fbs_clusters": text(of_survey='strata = "field"\npsu = "school"\npopulation_size = 30000'),
    "fbp_clusters": text(
        synthesizer='model = "fbp"\noutcome = "salary"',
        of_survey='strata = "field"\npsu = "school"\npopulation_size = 30000',
    ),
    "counts": text(synthesizer='model = "poisson"\noutcome = "visits"'),
    "negative_binomial": text(synthesizer='model = "negative_binomial"\noutcome = "visits"'),
    "mixture": text(
        synthesizer='model = "normal_mixture"\noutcome = "salary"',
        privacy=f"{PSEUDO}\nallow = ['shared_weights']",
    ),
    "count_risk": text(privacy=f"{PSEUDO}\nrisk = 'count'\nallow = ['shared_weights']"),
    "kinds": text(synthesizer=KINDS_SYNTHESIZER, outcomes=PLAIN_KINDS, tables=NO_SEVERAL_KINDS,
                  privacy="epsilon = 30\nm = 2\nreplicates_per_draw = 2"),
    "several": text(tables=SEVERAL),
    "noisy": text(outcomes=AMOUNTS, privacy=STRICT),
    "noisy_fbp": text(
        synthesizer='model = "fbp"\noutcome = "salary"',
        outcomes=AMOUNTS, privacy=STRICT,
    ),
    "noisy_clusters": text(
        outcomes=AMOUNTS, privacy=STRICT,
        of_survey='strata = "field"\npsu = "school"\npopulation_size = 30000',
    ),
    "noisy_design_effect": text(
        outcomes=AMOUNTS, privacy=STRICT,
        of_survey='strata = "field"\npsu = "school"\ndesign_effect = 2.0\npopulation_size = 30000',
    ),
    "noisy_kinds": text(synthesizer=KINDS_SYNTHESIZER, outcomes=KINDS, privacy=STRICT,
                        plan=MANY_SHORT, tables=NO_SEVERAL_KINDS),
    "noisy_several": text(outcomes=AMOUNTS, privacy=STRICT, tables=SEVERAL),
}  # fmt: skip


def release(name: str) -> Case:
    """Release, rebuild where the mechanism allows, and print what check says."""

    def case(folder: Path, run: Callable[..., str]) -> None:
        survey().to_csv(folder / "survey.csv", index=False)
        (folder / "spec.toml").write_text(SPECS[name], encoding="utf-8")
        run("release", "spec.toml", "--out", "out", "--ledger", "ledger.jsonl", "--seed", "1")
        if name.startswith("noisy"):
            run("rebuild", "out/release", "--out", "again")
        run("check", "spec.toml", "--ledger", "ledger.jsonl")

    return case


def command(*arguments: str, spec: str = "fbs", frame: int = 300) -> Case:
    """One command on the survey and a specification."""

    def case(folder: Path, run: Callable[..., str]) -> None:
        survey(frame).to_csv(folder / "survey.csv", index=False)
        (folder / "spec.toml").write_text(SPECS[spec], encoding="utf-8")
        run(*arguments)

    return case


DRAWS = """
import hashlib, numpy as np, pandas as pd, surveysynth as ss
frame = pd.read_csv("survey.csv")
def told(name, values):
    print(name, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16])
for model, column in [("fbs", "salary"), ("fbp", "salary"), ("normal", "salary"),
                      ("poisson", "visits")]:
    transform = ss.Transform("identity" if column == "visits" else "log")
    weight = {} if model in ("normal", "poisson") else {"weight": "weight"}
    survey = ss.Survey.from_frame(frame, outcome=column, strata="field", by=["field", "gender"],
                                  population_size=30000, transforms=transform, **weight)
    settings = ss.MechanismSettings(epsilon=20.0, m=2)
    # Before the mechanism's result had a name of its own it was a pair.
    draws = ss.run_mechanism(ss.get_model(model).of(survey.design), survey.design,
                             survey.confidential, settings, np.random.default_rng(1))
    draws = draws[0] if isinstance(draws, tuple) else getattr(draws, "draws", draws)
    for name in sorted(draws.theta):
        told(f"{model} {name}", draws.theta[name])
survey = ss.Survey.from_frame(frame, outcome="salary", weight="weight", strata="field",
    by=["field", "gender"], population_size=30000, transforms=ss.Transform("log"))
private = ss.tables(
    survey, mechanism="pseudo_posterior", epsilon=20.0, statistics=["count", "mean", "median"],
    seed=3,
)
for name in ("count", "mean", "median"):
    frame = private[name].frame
    for column in frame.select_dtypes("number"):
        told(f"tables {name} {column}", frame[column].to_numpy(dtype=float))
"""


def draws(folder: Path, run: Callable[..., str]) -> None:
    """Draws of the mechanism and the tables of ``ss.tables``, bit by bit."""
    survey().to_csv(folder / "survey.csv", index=False)
    (folder / "draws.py").write_text(DRAWS, encoding="utf-8")
    run("draws.py", program=True)


CASES: dict[str, Case] = {
    "draws": draws,
    **{f"release {name}": release(name) for name in SPECS},
    "compare": command("compare", "spec.toml", "--out", "out", "--seed", "1"),
    "compare noisy": command("compare", "spec.toml", "--out", "out", "--seed", "1", spec="noisy"),
    "compare kinds": command("compare", "spec.toml", "--out", "out", "--seed", "1", spec="kinds"),
    "study published": command("study", "--out", "out", "--samples", "1"),
    "expected": command("check", "spec.toml", "--out", "out", spec="noisy"),
    "init": command("init", "survey.csv", "--out", "new.toml", "--outcome", "salary:continuous",
                    "--weight", "weight", "--mechanism", "noisy_statistics", "--epsilon", "3.6"),
}  # fmt: skip


def numbers_of(content: bytes) -> bytes:
    """The numbers in a text, in order, without times."""
    return b" ".join(NUMBER.findall(VOLATILE.sub(b"", content)))


def content_of(path: Path) -> bytes:
    """The bytes of a file; those of its parts where it is an archive, in which times differ."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path).to_csv().encode()
    if path.suffix not in ZIPPED:
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return b"".join(archive.read(name) for name in sorted(archive.namelist()))


def short(content: bytes) -> str:
    """A hash of 16 digits."""
    return hashlib.sha256(content).hexdigest()[:16]


def fingerprint(name: str, package: Path, python: str) -> dict[str, list[str]]:
    """Run one case; return hashes of bytes and of numbers by file, and those of what it printed."""
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="fingerprint-") as place:
        folder = Path(place)
        state = folder / "state"

        def run(*arguments: str, program: bool = False) -> str:
            prefix = [python] if program else [python, "-m", "surveysynth"]
            done = subprocess.run(
                [*prefix, *arguments], cwd=folder, capture_output=True, check=False,
                env={**os.environ, "PYTHONPATH": str(package), "XDG_STATE_HOME": str(state),
                     "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "100"},
            )  # fmt: skip
            said = done.stdout + (done.stderr if done.returncode else b"")
            code = str(done.returncode)
            found[f"$ {' '.join(arguments)}"] = [code, short(VOLATILE.sub(b"", said)),
                                                 short(numbers_of(said))]  # fmt: skip
            if done.returncode:
                print(f"{name}: {' '.join(arguments)} ended with {code}: {said.decode()[-600:]}")
            if program:
                found.update({line.split(b" ")[-1].decode(): [line.decode()]
                              for line in said.splitlines()})  # fmt: skip
            return said.decode()

        CASES[name](folder, run)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and state not in path.parents and path.suffix not in SKIPPED:
                content = content_of(path)
                hashes = [short(VOLATILE.sub(b"", content)), short(numbers_of(content))]
                found[str(path.relative_to(folder))] = hashes
    return found


def differences(before: dict[str, dict[str, list[str]]], after: dict[str, dict[str, list[str]]]) \
        -> tuple[list[str], list[str]]:  # fmt: skip
    """Files whose words alone differ, and files whose numbers do or that one side lacks."""
    words, numbers = [], []
    for case in sorted({*before} & {*after}):
        for file in sorted({*before[case], *after[case]}):
            old, new = before[case].get(file), after[case].get(file)
            if old == new:
                continue
            same = old is not None and new is not None and old[-1] == new[-1]
            (words if same else numbers).append(f"{case}: {file}")
    return words, numbers


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier result to compare with")
    parser.add_argument("--only", action="append", help="some cases alone")
    parser.add_argument("--package", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    names = arguments.only or list(CASES)
    with ThreadPoolExecutor(arguments.workers) as pool:
        made = pool.map(lambda name: fingerprint(name, arguments.package, arguments.python), names)
        found = dict(zip(names, made, strict=True))
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.against:
        before = json.loads(arguments.against.read_text(encoding="utf-8"))
        words, numbers = differences(before, found)
        print(f"{len(words)} files differ in words alone, {len(numbers)} in numbers or existence")
        print("\n".join([*(f"words    {each}" for each in words),
                         *(f"NUMBERS  {each}" for each in numbers)]))  # fmt: skip


if __name__ == "__main__":
    main()
