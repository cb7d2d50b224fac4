"""Releases of the same samples by competing methods: ``python -m tests.long_runs.comparison``.

``run`` draws samples of a population, releases each by the methods named, and appends one line a
sample and method to a file; a run that was broken off continues where it was. ``keep FILE..``
summarizes such files in ``tests/golden/comparison.json``, in place of earlier results of the same
method; ``page`` prints the tables of
``vignettes/comparison.md`` and of the README. Marginals need ``opendp[mbi]`` beside the package.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from dataclasses import replace  # noqa: E402
from functools import cached_property  # noqa: E402
from importlib.metadata import PackageNotFoundError, version  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from surveysynth.errors import InputError, RefusedError  # noqa: E402
from surveysynth.evaluation.compare.tables import sample_weight  # noqa: E402
from surveysynth.evaluation.laplace import Noise  # noqa: E402
from surveysynth.evaluation.studies.population import published_specs  # noqa: E402
from surveysynth.evaluation.studies.study import (  # noqa: E402
    FrameStudy,
    _long_rows,
    chosen_frame_study,
    released,
    sample_rows,
)
from surveysynth.inference.synthesis import SyntheticDataset, scaled  # noqa: E402
from surveysynth.mechanisms.learned.histogram import first_stage, spread_counts  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (  # noqa: E402
    release_statistics,
)
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.release.run import facts_of, prepared  # noqa: E402
from surveysynth.release.tables.table_builder import estimates_by_table  # noqa: E402
from surveysynth.survey.survey import Survey  # noqa: E402
from tests.long_runs.comparison.marginals import fitted, three_pairs  # noqa: E402
from tests.long_runs.comparison.noise_ignored import datasets  # noqa: E402
from tests.long_runs.comparison.noisy_totals import Ball, NoisyTotals, Rows  # noqa: E402
from tests.long_runs.comparison.summary import (  # noqa: E402
    GOLDEN,
    METHODS,
    page,
    readme,
    summaries,
)
from tests.long_runs.real_populations.__main__ import SETTINGS  # noqa: E402
from tests.long_runs.real_populations.frames import FRAMES  # noqa: E402

#: That of ``real_populations``, whose samples and releases are the same.
SEED = 25
STATISTICS = ["count", "mean"]
#: Stream of random numbers of methods.
_METHOD = 7
#: Totals and marginals clip to the ball that holds this share of normal records. Of 0.5, 0.65, 0.8,
#: 0.9 and 0.995 it was the best compromise on these populations: an advantage that no agency has.
INSIDE = 0.8
NORMAL = 1.959964
#: Releases of the first samples are made here even if they were kept, for the seconds.
TIMED = 2
#: Least epsilon, and bins of outcome and of weight for marginals. Of 5, 8 and 12 bins, 5 had the
#: smallest errors in a pilot at epsilon 3.6.
BINS = ((5.0, 8), (0.0, 5))


def study_of(population: str, epsilon: float, samples: int, frames: Path | None,
             mechanism: str = "noisy_statistics") -> FrameStudy:  # fmt: skip
    """Return the study of a population with its release at this epsilon."""
    other = {"seed": SEED, "samples": samples, "laplace": False}
    rules = {"allocation": "proportional", "per_cluster": 5, "clusters": "units", "within": "srs"}
    if population == "published":
        name = "fbs_noisy" if mechanism == "noisy_statistics" else "fbs"
        sections = published_specs()[name]
        sections["privacy"] = {**sections["privacy"], "epsilon": epsilon}
        rules |= {"n": None, "design": None, "size": None}
        return chosen_frame_study(None, [sections], **other, **rules)  # type: ignore[arg-type]
    if frames is None:
        raise SystemExit("--frames: name the folder that real_populations fetch has written.")
    frame = FRAMES[population]
    setting = replace(SETTINGS["noisy_10.8"], epsilon=epsilon, mechanism=mechanism)
    sections = setting.specification(frame)
    sections["tables"]["statistics"] = STATISTICS
    rules |= {**frame.design, "size": "size"}
    return chosen_frame_study(frames / f"{population}.csv", [sections], **other, **rules)  # type: ignore[arg-type]


class Sample:
    """One sample of a study, and its release by each method: frames of rows of the tables."""

    def __init__(self, study: FrameStudy, number: int, bins: int | None = None) -> None:
        self.study, self.number = study, number
        stated = study.spec.privacy.stated_epsilon
        self.bins = bins or next(own for least, own in BINS if stated >= least)
        self.survey: Survey = study.survey(number, study.spec)
        self.spec = study.spec.for_records(self.survey.design.n)
        self.own = study._numbered(sample_rows(self.spec, self.survey)).set_index("row")

    def rng(self, method: str) -> np.random.Generator:
        key = (_METHOD, self.number, list(METHODS).index(method))
        return np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=key))

    @cached_property
    def settings(self) -> Any:
        return prepared(self.spec, self.survey)[2].settings  # type: ignore[attr-defined]

    @property
    def rho(self) -> float:
        return float(self.settings.budget.rho)

    @cached_property
    def ball(self) -> Ball:
        """The public ball of the declared outcome and the default log weight.

        surveysynth learns the weight from a far wider range: the narrow ball favors the others.
        """
        design = self.survey.design
        declared, weight = self.settings.clipping(design), self.settings.log_weight(design)
        centers, spreads = (
            np.array([of_outcome[0], of_weight])
            for of_outcome, of_weight in zip(
                (declared.centre, declared.spread), weight, strict=True
            )
        )
        return Ball(Clipping(centers, spreads))

    @cached_property
    def labels(self) -> pd.DataFrame:
        """By columns of the rows of one statistic."""
        truth = self.study.truth
        return truth.loc[truth["statistic"] == "mean", list(self.spec.by)].reset_index(drop=True)

    @cached_property
    def rows(self) -> Rows:
        design = self.survey.design
        assert design.strata is not None  # every population here has strata
        return Rows.of(self.labels, design.frame, design.strata)

    @cached_property
    def values(self) -> tuple[Any, Any]:
        return self.survey.confidential.outcome[:, 0], sample_weight(self.survey)

    def released_by(self, method: str) -> pd.DataFrame:
        """Return estimates and intervals by row; raise ``RefusedError`` where there is none."""
        if method in ("package", "pseudo_posterior"):
            stream = np.random.SeedSequence(SEED, spawn_key=(2, self.number))
            rows, _ = released(self.study.spec, self.survey, stream)
        elif method == "exact":
            rows = self._noise_ignored()
        elif method.startswith("laplace"):
            rows = self._laplace(method)
        elif method in ("totals", "fay_herriot", "fay_herriot_wide"):
            return self._totals(method)
        else:
            rows = self._marginals(method)
        return self.study._numbered(rows).set_index("row")

    def _noise_ignored(self) -> pd.DataFrame:
        rng, spec = self.rng("exact"), self.study.spec
        survey, model, mechanism = prepared(spec, self.survey)
        source = SeededNoise(rng.spawn(1)[0])
        first = first_stage(
            survey.design, survey.confidential, budget=self.rho, source=source,
            records=1,
        )  # fmt: skip
        spread = spread_counts(first.design, survey.confidential, rng)
        noisy = release_statistics(model, first.design, spread, self.settings, source)
        facts = facts_of(spec, survey.design, mechanism, model, test=True)
        estimates = estimates_by_table(facts.spec, first.design, mechanism)
        m, replicates = facts.spec.privacy.m, facts.spec.privacy.replicates_per_draw
        for dataset in datasets(model, first.design, noisy, m, replicates, rng):
            for each in estimates.values():
                each.add(dataset)
        return _long_rows(facts.spec, first.design, estimates)

    def _laplace(self, method: str) -> pd.DataFrame:
        # rho-zCDP follows from sqrt(2 rho), which is the epsilon compared here.
        pure = (2.0 * self.rho) ** 0.5
        epsilon = self.spec.privacy.stated_epsilon if method == "laplace_papers" else pure
        privacy = self.spec.privacy.model_copy(update={"epsilon": epsilon})
        spec = self.spec.model_copy(update={"privacy": privacy})
        made = Noise(spec, self.survey).laplace("paper", self.rng(method))
        parts = [
            frame.assign(statistic=statistic, outcome=outcome or "")
            for (statistic, outcome), frame in made.items()
        ]
        return pd.concat(parts, ignore_index=True).assign(df=np.nan)

    def _totals(self, method: str) -> pd.DataFrame:
        # Both balls get the same draws of noise, in units of its SD.
        ball = self.ball if method == "fay_herriot_wide" else self.ball.holding(INSIDE)
        made = NoisyTotals.of(
            self.rows, ball, *self.values, rho=self.rho, rng=self.rng("totals"),
            population=float(self.study.population.n_units),
        ).estimates(borrowing=method != "totals")  # fmt: skip
        truth, parts = self.study.truth, []
        for name, (estimate, variance) in made.items():
            half = NORMAL * np.sqrt(variance)
            parts.append(pd.DataFrame({
                "estimate": estimate, "ci_lower": estimate - half, "ci_upper": estimate + half,
            }, index=truth.loc[truth["statistic"] == name, "row"]))  # fmt: skip
        return pd.concat(parts)

    def _marginals(self, method: str) -> pd.DataFrame:
        rng, design, spec = self.rng(method), self.survey.design, self.spec
        rows, ball, (y, w) = self.rows, self.ball.holding(INSIDE), self.values
        if method == "three_pairs":
            model = three_pairs(rows.cell, rows.members.shape[1], ball, y, w, rho=self.rho,
                                bins=self.bins, rng=rng)  # fmt: skip
        else:
            cells = self.labels[(self.labels != "All").all(axis=1)]
            by = design.frame[list(spec.by)].astype(str)
            one, known = (each.agg(" ".join, axis=1).to_frame("cell") for each in (by, cells))
            model = fitted(method, one, known, ball, y, w, rho=self.rho, bins=self.bins)
        # One fitted model has no posterior, so datasets are combined by the papers' rule.
        estimates = estimates_by_table(spec, design, SimpleNamespace(combining="partial_synthesis"))  # type: ignore[arg-type]
        for draw in range(spec.privacy.m):
            for replicate in range(spec.privacy.replicates_per_draw):
                y, w = model.draw(rows.cell, rng)
                pair = y[:, None], scaled(w, float(self.study.population.n_units))
                for each in estimates.values():
                    each.add(SyntheticDataset(draw + 1, replicate + 1, *pair, *pair))
        return _long_rows(spec, design, estimates)


def run(
    study: FrameStudy,
    population: str,
    epsilon: float,
    methods: list[str],
    samples: int,
    out: Path,
    releases: Path | None = None,
) -> None:
    """Append what is missing to a file."""
    lines = read(out)
    done = {(line["method"], line["sample"]) for line in lines if "method" in line}
    place = {"population": population, "epsilon": epsilon}
    with out.open("a", encoding="utf-8") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(place | line) + "\n")
            file.flush()

        if not lines:
            truth = study.truth
            write({"truth": truth["truth"].tolist(), "statistic": truth["statistic"].tolist(),
                   "units": study.population.n_units, "records": study.design.n,
                   "design": study.design_words})  # fmt: skip
        for number in range(samples):
            missing = [each for each in ("sample", *methods) if (each, number) not in done]
            if not missing:
                continue
            sample = Sample(study, number)
            for method in missing:
                started = time.process_time()
                line: dict[str, Any] = {"method": method, "sample": number}
                seconds = None
                try:
                    if method == "package" and releases is not None and number >= TIMED:
                        made = release_in(releases, sample)
                    else:
                        made = sample.own if method == "sample" else sample.released_by(method)
                        seconds = round(time.process_time() - started, 2)
                except (RefusedError, InputError) as error:
                    line["refused"] = str(error)
                else:
                    made = made.reindex(study.truth["row"])
                    for name in ("estimate", "ci_lower", "ci_upper"):
                        line[name] = [float(f"{each:.8g}") for each in made[name]]
                write(line | {"seconds": seconds, "commit": commit(), "versions": versions()})


def release_in(folder: Path, sample: Sample) -> pd.DataFrame:
    """Return the release of a sample that ``real_populations run`` has made and kept.

    Its tables have more statistics. Raises ``RefusedError`` where it was refused, and
    ``LookupError`` if its sample is another or not there yet.
    """
    made = {}
    for group in ("own", "release1"):
        path = folder / "tasks" / f"{sample.number:05d}_{group}"
        if not Path(f"{path}.replicates.parquet").exists():
            raise LookupError(f"{path} is missing")
        made[group] = pd.read_parquet(f"{path}.replicates.parquet").set_index("row")
        refusals = pd.read_parquet(f"{path}.refusals.parquet")
        if len(refusals):
            raise RefusedError(str(refusals["reason"].iloc[0]))
    # Counts and means come first among the rows of both studies.
    own, same = sample.own["estimate"], made["own"]["estimate"].reindex(sample.own.index)
    if not np.allclose(own, same, rtol=1e-9, equal_nan=True):
        raise LookupError(f"{folder} has other samples")
    return made["release1"]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, without one that was cut off."""
    if not path.exists():
        return []
    made = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            made.append(json.loads(line))
        except ValueError:
            continue
    return made


def commit() -> str:
    called = ["git", "rev-parse", "--short=10", "HEAD"]
    found = subprocess.run(called, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def versions() -> dict[str, str]:
    found = dict(library_versions())
    for name in ("opendp", "mbi", "jax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.long_runs.comparison")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="release samples, and append to a file")
    running.add_argument("--population", choices=["published", "fares", "earnings"], required=True)
    running.add_argument("--epsilon", type=float, required=True)
    running.add_argument("--method", required=True, help=", ".join(METHODS))
    running.add_argument("--samples", type=int, required=True)
    running.add_argument("--frames", type=Path, help="of real_populations fetch")
    running.add_argument("--releases", type=Path, help="a folder of real_populations run")
    running.add_argument("--out", type=Path, required=True)
    keeping = commands.add_parser("keep", help="summarize files in the golden file")
    keeping.add_argument("files", type=Path, nargs="+")
    commands.add_parser("page", help="print the tables")
    given = parser.parse_args()
    if given.command == "run":
        methods = given.method.split(",")
        kind = "pseudo_posterior" if methods == ["pseudo_posterior"] else "noisy_statistics"
        study = study_of(given.population, given.epsilon, given.samples, given.frames, kind)
        run(study, given.population, given.epsilon, methods, given.samples, given.out,
            given.releases)  # fmt: skip
    elif given.command == "keep":
        lines = [line for file in given.files for line in read(file)]
        GOLDEN.write_text(summaries(lines, json.loads(GOLDEN.read_text("utf-8"))), "utf-8")
    else:
        found = json.loads(GOLDEN.read_text(encoding="utf-8"))
        print("\n".join([*page(found), "", *readme(found)]))


if __name__ == "__main__":
    main()
