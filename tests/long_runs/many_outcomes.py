"""Twelve outcomes of four kinds in one release: ``python -m tests.long_runs.many_outcomes``.

6,000 simulated records by region and sex, three outcomes of each kind, by the pseudo-posterior at
one epsilon: processor time of the mechanism and of debiasing, memory, whether the fit converges and
meets its target, and its mean risk weight. ``--out`` keeps the result.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.errors import RefusedError  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.release.documents.context import library_versions  # noqa: E402

SEED, N = 47, 6000
LEVELS = ("a", "b", "c")


def survey(n: int = N, each: int = 3, seed: int = SEED) -> ss.Survey:
    """``each`` outcomes of every kind that hang together by a common cause."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "region": rng.choice(["east", "north", "south", "west"], n),
        "sex": rng.choice(["f", "m"], n),
    })  # fmt: skip
    cause = rng.standard_normal(n) + 0.3 * (frame["sex"] == "f")
    outcomes = []
    power = ss.Transform("yeo_johnson", scale=1000.0, power=0.4)
    for k in range(each):
        z = 3.0 + 0.5 * cause + rng.standard_normal(n)
        frame[f"amount_{k}"] = power.inverse(z)
        some = rng.random(n) < 1 / (1 + np.exp(-0.5 - 0.5 * cause))
        frame[f"spiked_{k}"] = np.where(some, power.inverse(z + rng.standard_normal(n)), 0.0)
        frame[f"yes_{k}"] = (rng.random(n) < 1 / (1 + np.exp(0.4 * cause - k / 2))).astype(int)
        utility = rng.gumbel(size=(n, 3)) + np.outer(cause, [0.0, 0.3, -0.3])
        frame[f"level_{k}"] = np.array(LEVELS)[np.argmax(utility, axis=1)]
        outcomes += [
            ss.Outcome(f"amount_{k}", transform=power),
            ss.Outcome(f"spiked_{k}", "semicontinuous", power, spikes=(0.0,)),
            ss.Outcome(f"yes_{k}", "binary"),
            ss.Outcome(f"level_{k}", "categorical", levels=LEVELS),
        ]
    frame["weight"] = np.exp(5.0 + 0.1 * cause + 0.4 * rng.standard_normal(n))
    return ss.Survey.from_frame(
        frame, outcomes=outcomes, weight="weight", by=["region", "sex"], population_size=200 * n
    )  # fmt: skip


def measured(epsilon: float, each: int, debias: bool) -> dict[str, Any]:
    """One run of the mechanism, and of debiasing where it is asked for."""
    whole, given = survey(each=each), ss.Declared(8_000.0, 1.5)
    declared = {outcome.name: given for outcome in whole.design.outcomes if outcome.is_amount}
    settings = ss.MechanismSettings(epsilon=epsilon, m=3, declared=declared)
    design = settings.prepared(whole.design)
    model = get_model("fbs").of(design)
    rng, start = np.random.default_rng(SEED), time.process_time()
    found: dict[str, Any] = {"outcomes": 4 * each, "n": N, "epsilon": epsilon}
    try:
        draws, fit = run(model, design, whole.confidential, settings, rng)
    except RefusedError as refusal:
        return {
            **found, "seconds": time.process_time() - start, "refused": str(refusal),
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }  # fmt: skip
    found |= {
        "seconds": time.process_time() - start, "refused": "",
        "mean_risk_weight": float(fit.risk_weights.mean()),
        "oscillation": float(fit.oscillation_by_record.max()),
    }  # fmt: skip
    if debias:
        start = time.process_time()
        made = ss.debias_draws(model, design, draws, rng)
        found |= {"debiasing": made.record.status,
                  "seconds_of_debiasing": time.process_time() - start}  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "peak_memory_mb": peak}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epsilon", type=float, default=30.0)
    parser.add_argument("--each", type=int, default=3, help="outcomes of every kind")
    parser.add_argument("--no-debiasing", action="store_true")
    given = parser.parse_args(arguments)
    found = measured(given.epsilon, given.each, not given.no_debiasing)
    found = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}
    print(json.dumps(found, indent=1))
    if given.out is not None:
        text = json.dumps({**found, "seed": SEED, "versions": library_versions()}, indent=1)
        given.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
