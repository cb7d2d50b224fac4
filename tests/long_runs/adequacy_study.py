"""False alarms and power of ``adequacy``: ``python -m tests.long_runs.adequacy_study``.

Surveys of a right model are drawn, released, and compared with the release, in memory by the steps
of both commands. ``golden/adequacy_study.json`` has for each setting the share of rows beyond 2.6
expected errors (.01 if expected errors are right), the level of the test for all rows (.05), and
how often that test finds a bias of two standard errors of the sample planted in a margin: in what
is published for one gender, in its cells as well, and in the margins over it by its share. Monte
Carlo errors are those of releases, since rows of one are dependent. A release takes 1 to 3
processor seconds; a run continues with the releases that the file lacks.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from surveysynth.config.build import read_survey  # noqa: E402
from surveysynth.config.spec import load_spec  # noqa: E402
from surveysynth.evaluation.compare.adequacy import (  # noqa: E402
    FAR,
    Findings,
    compare_with_sample,
)
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME  # noqa: E402
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (  # noqa: E402
    LocationStatistics,
)
from surveysynth.release.files import library_versions, published_of  # noqa: E402
from surveysynth.release.run import Generators, run  # noqa: E402
from tests.surveys import small_survey  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "adequacy_study.json"
LEVEL, PLANTED = 0.05, 2.0
#: Margin with a planted bias: rows of this gender.
GENDER = "f"


@dataclass(frozen=True)
class Setting:
    """Records, epsilon, lines of [synthesizer] and of [privacy], and the number of releases."""

    n: int
    synthesizer: str
    privacy: str
    releases: int


_NOISY = "chains = 16\ndraws = 40\nwarmup = 40"
SETTINGS = {
    "noisy 10.8, 600": Setting(600, _NOISY, 'mechanism = "noisy_statistics"\nepsilon = 10.8', 200),
    "noisy 3.6, 400": Setting(400, _NOISY, 'mechanism = "noisy_statistics"\nepsilon = 3.6', 50),
    "noisy 10.8, 2000": Setting(2000, _NOISY, 'mechanism = "noisy_statistics"\nepsilon = 10.8', 50),
    "pseudo-posterior, 400": Setting(
        400, 'inference = "debiased"', 'mechanism = "pseudo_posterior"\nepsilon = 10.8\nm = 5', 50
    ),
}  # fmt: skip
SPECIFICATION = """
[survey]
data = "survey.csv"
weight = "weight"
strata = "field"
population_size = 30000
[synthesizer]
outcome = "salary"
predictors = "field + gender"
{synthesizer}
[outcomes.salary]
center = 22000
spread = 0.45
[privacy]
{privacy}
replicates_per_draw = 4
[tables]
by = ["field", "gender"]
"""


def released(setting: Setting, seed: int) -> Findings:
    """Release a survey of the right model, and compare it with its sample."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_survey(setting.n, seed=seed).to_csv(folder / "survey.csv", index=False)
        text = SPECIFICATION.format(synthesizer=setting.synthesizer, privacy=setting.privacy)
        (folder / "spec.toml").write_text(text, encoding="utf-8")
        spec = load_spec(folder / "spec.toml")
        survey = read_survey(spec)
    made = run(spec, survey, Generators(*[np.random.default_rng(seed)] * 2), test=True)
    statistics = made.released.published.get(STATISTICS_NAME)
    return compare_with_sample(
        made.facts, made.model, made.survey, made.draws, published_of(made.tables),
        statistics=None if statistics is None
        else LocationStatistics.from_dict(statistics["statistics"]),
        risk_weights=made.released.by_record.get("risk_weight"), seed=seed,
    )  # fmt: skip


def with_bias(frame: pd.DataFrame, statistic: str) -> np.ndarray:
    """Differences (D,) of rows with a bias in the margin of one gender."""
    counts = frame[frame["statistic"] == "count"].set_index(["field", "gender"])["published"]
    rows = frame[frame["statistic"] == statistic].set_index(["field", "gender"])
    bias = PLANTED * rows.loc[("All", GENDER), "sample_se"]
    moved = np.zeros(len(frame))
    for place, (field, gender) in zip(np.flatnonzero(frame["statistic"] == statistic), rows.index,
                                      strict=True):  # fmt: skip
        if gender not in (GENDER, "All"):
            continue
        share = 1.0 if gender == GENDER else counts[field, GENDER] / counts[field, "All"]
        if statistic == "count":  # more of one gender, in proportion to its cells
            share = counts[field, GENDER] / counts["All", GENDER]
        moved[place] = share * bias
    return np.asarray(frame["difference"] + moved / frame["expected_error"])


def measured(setting: Setting, seed: int) -> dict[str, Any]:
    """What one release shows, and what the test shows of it with planted biases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = released(setting, seed)
    frame = found.frame
    own = frame[(frame["field"] == "All") & (frame["gender"] == GENDER)]
    ratio = (own["expected_error"] / own["sample_se"]).round(3)
    return {
        "seed": seed,
        "rows": found.compared,
        "beyond": found.beyond,
        "mean_square": round(float((frame["difference"] ** 2).mean()), 4),
        "p": found.p_value,
        "error_over_sample_se": dict(zip(own["statistic"], ratio, strict=True)),
        "p_biased": {
            each: found.expected.p_value(with_bias(frame, each)) for each in ("count", "mean")
        },
    }


def summary(releases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rates over releases, each with its Monte Carlo error."""
    table = pd.DataFrame(releases)

    def rate(values: Any) -> dict[str, float]:
        values = np.asarray(values, dtype=float)
        error = values.std(ddof=1) / np.sqrt(values.size)
        return {"rate": round(float(values.mean()), 4), "error": round(float(error), 4)}

    biased = pd.DataFrame(list(table["p_biased"]))
    ratio = pd.DataFrame(list(table["error_over_sample_se"]))
    return {
        "releases": len(table),
        "beyond": rate(table["beyond"] / table["rows"]),
        "mean_square": rate(table["mean_square"]),
        "level": rate(table["p"] < LEVEL),
        "power": {each: rate(biased[each] < LEVEL) for each in biased},
        "error_over_sample_se": ratio.median().round(2).to_dict(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), default=[])
    parser.add_argument("--releases", type=int, help="number for each setting")
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args(arguments)
    content: dict[str, Any] = {"settings": {}}
    if given.out.exists():
        content = json.loads(given.out.read_text(encoding="utf-8"))
    for name in given.setting or SETTINGS:
        kept = content["settings"].get(name, {"each": []})["each"]
        done = {each["seed"] for each in kept}
        for seed in range(given.releases or SETTINGS[name].releases):
            if seed in done:
                continue
            kept.append(measured(SETTINGS[name], seed))
            commit = subprocess.run(
                ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
            ).stdout.strip()
            content |= {"commit": commit, "versions": library_versions(), "far": FAR}
            if len(kept) > 1:
                content["settings"][name] = {**summary(kept), "each": kept}
                given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(name, summary(kept), flush=True)


if __name__ == "__main__":
    main()
