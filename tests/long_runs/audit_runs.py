"""What replacing one record does, in every model and mechanism: ``python -m
tests.long_runs.audit_runs``.

Layer A, ``replacements``: databases that differ in one record, each through the whole mechanism;
the log ratio of the two posteriors, or the distance of the exact statistics, over what is stated.
All changes at 1,000 records of FBS, the worst few in all else and at 300 and 10,355 records
(``--all``: all of them everywhere, some hours). Layer B, ``attacks``: hundreds of releases of
either database of a pair, and how much of epsilon an attacker can prove who knows everything but
which of both it was; with controls that must be found out. About a quarter of an hour of processor
time. The results are ``golden/audit_replacements.csv`` and ``golden/audit.json``, which
``tests/audit/test_audit_golden.py`` holds to what is claimed and ``python -m
tests.long_runs.audit_page`` writes into the vignette. ``--part`` runs single parts, ``--size``
single sizes, ``--case`` single cases and ``--missing`` what the table lacks; other results are
kept.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Collection, Iterator, Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from fractions import Fraction  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from surveysynth._support.types import FloatArray  # noqa: E402
from surveysynth.errors import InputError, RefusedError  # noqa: E402
from surveysynth.mechanisms.learned.histogram import LEARNED  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.accounting import Budget  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.release.noise import SystemNoise  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (  # noqa: E402
    release_statistics,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from tests.audit.cases import EXAMPLES  # noqa: E402
from tests.audit.lines import Line, frame_of  # noqa: E402
from tests.audit.neighbours import FEW, Change, changed, places  # noqa: E402
from tests.audit.noise import (  # noqa: E402
    flatten,
    noise_of,
    published,
    same_centres,
    with_curves,
)
from tests.audit.posterior import (  # noqa: E402
    Alike,
    Side,
    databases,
    posterior_lines,
    prepared,
    side,
    weighted_log_lik,
)
from tests.audit.runs import examples, lines_of  # noqa: E402
from tests.long_runs import attack_learned as learned  # noqa: E402
from tests.long_runs.attack import Proven, holm, most_provable, proven  # noqa: E402

FOLDER = Path(__file__).parents[1] / "golden"
REPLACEMENTS, ATTACKS = FOLDER / "audit_replacements.csv", FOLDER / "audit.json"
SEED = 31
SIZES = (1000, 10_355, 300)
#: At 1,000 records every change is tried, and fresh random numbers beside common ones.
THOROUGH = ("fbs",)
#: Fits of these take minutes: the change that moves most, alone.
SLOW = ("normal_mixture",)


def replacements(
    n: int, names: Sequence[str], there: Collection[str], *, thorough: bool
) -> Iterator[list[Line]]:
    """The lines of each case but those that are ``there``."""
    for name, case in examples(n, SEED, names):
        if name in there:
            continue
        start = time.process_time()
        if isinstance(case, InputError):
            lines = [Line(name, "", "", n, 0.0, "", "", verdict="refused", reason=str(case))]
        else:
            full = thorough or (n == 1000 and name in THOROUGH)
            slow = name in SLOW and not thorough
            lines = list(
                posterior_lines(case, FEW[-1:], SEED) if slow else lines_of(case, SEED, full=full)
            )
        if all(each.verdict == "refused" and each.reason == lines[0].reason for each in lines):
            # Refused as it is, whatever is replaced: one line.
            lines = [replace(lines[0], record="", change="", random_numbers="")]
        ratios = [each.ratio for each in lines if each.ratio is not None]
        largest = f"{max(ratios):.3f}" if ratios else "none"
        seconds = time.process_time() - start
        print(f"{n} {name}: {len(lines)} lines, largest {largest}, {seconds:.0f} s", flush=True)
        yield lines


def write_replacements(
    out: Path, sizes: Sequence[int], names: Sequence[str], *, thorough: bool, missing: bool
) -> None:
    """Adds to or replaces what is there of these sizes and cases, a case at a time."""
    for n in sizes:
        kept = pd.read_csv(out) if missing and out.exists() else pd.DataFrame({"n": [], "case": []})
        there = set(kept.loc[kept["n"] == n, "case"])
        for lines in replacements(n, names, there, thorough=thorough):
            new = frame_of(lines)
            if out.exists():
                old = pd.read_csv(out)
                old = old[~((old["n"] == n) & (old["case"] == lines[0].case))]
                new = pd.concat([old, new], ignore_index=True)
            new.to_csv(out, index=False, float_format="%.6g", lineterminator="\n")


# --- layer B ----------------------------------------------------------------------------------

#: Of the attacks: records, epsilon and delta as stated, runs on either database.
N, STATED, DELTA = 150, 2.0, 1e-6
RUNS = {"pseudo_posterior": 120, "noisy_statistics": 600}
#: Of the fits, which are small.
SHORT = SamplingPlan(8, 60, 60)
#: Databases of a batch.
BATCH = 100
FAR = Change(8.0, 50.0)


def attack_posterior(protected: bool, runs: int, rng: np.random.Generator) -> Proven:
    """One draw a run, of which the log ratio of both posteriors is looked at; without protection
    every record keeps its whole weight, and epsilon is claimed all the same."""
    case = next(each for each in EXAMPLES if each.name == "fbs, by gender alone").case(N, SEED)
    settings = MechanismSettings(
        epsilon=STATED, m=1, plan=SHORT, risk="lipschitz" if protected else "none"
    )
    case = prepared(replace(case, mechanism=PseudoPosterior(settings)))
    model, survey = case.model, case.survey
    record = places(survey)["typical"]
    pair = databases(
        model, survey.design, [survey.confidential, changed(survey, record, FAR)]
    )
    known = [side(*each) for each in zip(pair, run_batch(model, pair, settings, Alike(SEED)),
                                         strict=True)]  # fmt: skip
    seen: list[list[float]] = [[], []]
    for which, database in enumerate(pair):
        while len(seen[which]) < runs:
            size = min(BATCH, runs - len(seen[which]))
            results = run_batch(model, [database] * size, settings, rng)
            seen[which] += [
                np.nan if isinstance(each, RefusedError) else log_ratio_of(model, known, each[0])
                for each in results
            ]
    return proven(*with_refusals(*map(np.array, seen)))


def log_ratio_of(model: Any, known: Sequence[Side], private: Any) -> float:
    """Of the released draws, up to a constant."""
    one, other = (
        weighted_log_lik(model, private.theta, each.records, each.risk_weights) for each in known
    )
    return float((one - other).sum())


def with_refusals(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Runs that were refused (NaN) have the log ratio of the numbers of refusals in the runs that
    thresholds are chosen on."""
    half = first.size // 2
    refused = [np.isnan(each[:half]).sum() + 0.5 for each in (first, second)]
    value = float(np.log(refused[0] / refused[1]))
    return np.nan_to_num(first, nan=value), np.nan_to_num(second, nan=value)


class DividedNoise:
    """Noise of the operating system whose SDs are divided."""

    kind = SystemNoise.kind

    def __init__(self, divisor: float) -> None:
        self._share = Fraction(divisor) ** -2

    def draw(self, variance: int | Fraction, size: int) -> list[int]:
        """Return the noise; see ``NoiseSource``."""
        return SystemNoise().draw(max(Fraction(variance) * self._share, Fraction(1, 2**20)), size)


def attack_noise(divisor: float, runs: int) -> Proven:
    """All released numbers of a run, with SDs of the noise divided by ``divisor``."""
    case = next(each for each in EXAMPLES if each.name == "fbs, noisy statistics").case(N, SEED)
    survey, usual = case.survey, case.mechanism.settings
    assert isinstance(usual, NoisySettings)
    settings = NoisySettings(Budget.of_epsilon(STATED, DELTA), usual.declared)
    record = places(survey)["highest leverage"]
    halves = [changed(survey, record, each) for each in (FAR, Change(-8.0, 0.02))]
    design = with_curves(replace(case, survey=replace(survey, confidential=halves[0])), settings,
                         np.random.default_rng(SEED))  # fmt: skip
    given = (case.model.of(design), design)
    centres = same_centres(*given, settings)
    noise = noise_of(*given, halves[0], settings, np.random.default_rng(SEED))
    exact = [published(*given, each, settings).exact for each in halves]
    own = (noise.sd > 0) & (noise.copy == np.arange(noise.sd.size))
    seen = []
    for half in halves:
        made = [
            release_statistics(*given, half, settings, DividedNoise(divisor), centres).to_dict()
            for _ in range(runs)
        ]
        numbers = np.array([flat({LEARNED: [], **each}) for each in made])[:, own]
        one, other = (((numbers - each[own]) / noise.sd[own]) ** 2 for each in exact)
        seen.append(0.5 * (other - one).sum(axis=1))
    return proven(*seen, delta=DELTA)


#: The mechanism of the attack on learned transforms, in the table.
LEARNED_NOISE = "noisy_statistics, learned"


def attack_learned(divisor: float, runs: int) -> Proven:
    """All that releases with learned transforms publish, with SDs of the noise of their histograms
    divided by ``divisor``."""
    return proven(*learned.log_ratios(divisor, runs), delta=learned.DELTA, zcdp=True)


def flat(given: dict[str, Any]) -> list[float]:
    """The numbers of a release, in the order of ``published``."""
    numbers: list[float] = []
    flatten(given, numbers, [])
    return numbers


def attacks(there: Sequence[dict[str, Any]] = ()) -> Iterator[list[dict[str, Any]]]:
    """Every attack that is not ``there`` with its bound, with all before it; controls must be found
    out, a fixed output tells nothing."""
    rng = np.random.default_rng(SEED)
    posterior, noise = RUNS["pseudo_posterior"], RUNS["noisy_statistics"]
    made: dict[tuple[str, str], Callable[[], Proven]] = {
        ("noisy_statistics", ""): lambda: attack_noise(1.0, noise),
        ("noisy_statistics", "noise / 5"): lambda: attack_noise(5.0, noise),
        ("pseudo_posterior", "no protection"): lambda: attack_posterior(False, posterior, rng),
        ("pseudo_posterior", ""): lambda: attack_posterior(True, posterior, rng),
        ("", "a fixed output"): lambda: proven(np.zeros(noise), np.zeros(noise)),
        (LEARNED_NOISE, ""): lambda: attack_learned(1.0, noise),
        (LEARNED_NOISE, "histogram noise / 2"): lambda: attack_learned(2.0, noise),
    }
    rows = list(there)
    done = [(row["mechanism"], row["control"]) for row in rows]
    for mechanism, control in (each for each in made if each not in done):
        attack = made[mechanism, control]
        start = time.process_time()
        found = attack()
        seconds = round(time.process_time() - start)
        most = most_provable(2 * found.runs, delta=found.delta, zcdp=found.zcdp)
        stated = learned.STATED if mechanism == LEARNED_NOISE else STATED
        rows.append({
            "mechanism": mechanism, "control": control, "stated": stated, "delta": found.delta,
            "runs": 2 * found.runs, "proven": round(found.epsilon, 4), "hits": found.hits,
            "alarms": found.alarms, "most_provable": round(most, 4),
            "p_value": found.p_value(stated), "seconds": seconds,
        })  # fmt: skip
        print(rows[-1], flush=True)
        adjusted = holm([row["p_value"] for row in rows])
        yield [
            {**row, "adjusted_p_value": p} for row, p in zip(rows, adjusted, strict=True)
        ]


def write_facts(path: Path, **parts: Any) -> None:
    """Adds parts to the facts of the runs, with the libraries that made them."""
    kept: dict[str, Any] = {}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
    kept = {**kept, "seed": SEED, "versions": library_versions(), **parts}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def today() -> str:
    """The date."""
    return datetime.now(UTC).date().isoformat()


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=["replacements", "attacks"])
    parser.add_argument("--size", action="append", type=int, choices=list(SIZES))
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--all", action="store_true", help="all changes, for every case and size")
    parser.add_argument("--missing", action="store_true", help="only what is not there")
    given = parser.parse_args(arguments)
    parts = given.part or ["replacements", "attacks"]
    if "replacements" in parts:
        out, sizes = given.folder / REPLACEMENTS.name, given.size or SIZES
        write_replacements(out, sizes, given.case, thorough=given.all, missing=given.missing)
        write_facts(given.folder / ATTACKS.name, replacements_made_on=today())
    if "attacks" in parts:
        path, there = given.folder / ATTACKS.name, []
        if given.missing and path.exists():
            there = json.loads(path.read_text(encoding="utf-8")).get("attacks", [])
        for rows in attacks(there):
            write_facts(given.folder / ATTACKS.name, n=N, attacks=rows, attacks_made_on=today())


if __name__ == "__main__":
    main()
