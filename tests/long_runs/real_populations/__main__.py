"""Coverage of releases on real populations: ``python -m tests.long_runs.real_populations``.

``fetch DIR`` downloads the sources and writes one csv file a frame, whose units and totals are
checked. ``run DIR`` draws samples of each frame, releases them with default settings by each of
``DEFAULTS``, and keeps what it finds in ``tests/golden/real_populations.json``; ``page`` puts that
into ``vignettes/technical/coverage/real_populations.md``. A run that was broken off continues where
it was; ``--only`` and ``--setting`` run parts and keep the results of the others. ``sample DIR``
writes one sample a frame, with the specification of its release. ``law DIR`` measures how wrong the
model's law is on whole frames, for ``tests/golden/real_populations_law.json`` (``law.py``);
``curves DIR`` compares learned curves of all records and of each stratum (``curves.py``).
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import shutil  # noqa: E402
import tomllib  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, TypeAlias  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.evaluation.studies.population import Population, SamplingDesign  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from tests.long_runs.real_populations.curves import curves_study  # noqa: E402
from tests.long_runs.real_populations.frames import FRAMES, Frame  # noqa: E402
from tests.long_runs.real_populations.law import Units, bias, units_of  # noqa: E402

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden" / "real_populations.json"
LAW = GOLDEN.with_stem("real_populations_law")
CURVES = GOLDEN.with_stem("real_populations_curves")
PAGE = HERE.parents[2] / "vignettes" / "technical" / "coverage" / "real_populations.md"
BEGIN, END = "<!-- by tests/long_runs/real_populations -->", "<!-- end -->"
SEED = 25
#: By frame and setting or variant.
Results: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Setting:
    """A mechanism with its epsilon, and the number of samples."""

    mechanism: str
    epsilon: float
    samples: int
    #: Wrong on purpose: main effects alone, and one residual covariance for all cells.
    planted: bool = False
    #: The transform is learned from a range, in place of what the specification declares.
    learned: bool = False
    model: str = "fbs"

    @property
    def words(self) -> str:
        more = ", one covariance, main effects" if self.planted else ""
        more += ", learned transform" if self.learned else ""
        more += ", FBP" if self.model == "fbp" else ""
        mechanism = self.mechanism.replace("pseudo_", "pseudo-").replace("_", " ")
        return f"{mechanism}, {self.epsilon}{more}"

    def specification(self, frame: Frame) -> dict[str, Any]:
        """Sections of the specification of a frame, all else by default."""
        sections = tomllib.loads((HERE / f"{frame.name}.toml").read_text(encoding="utf-8"))
        own = {"mechanism": self.mechanism, "epsilon": self.epsilon}
        sections["privacy"] = {**sections["privacy"], **own}
        sections["synthesizer"]["model"] = self.model
        if self.planted:
            columns = dict.fromkeys([sections["survey"]["strata"], *sections["tables"]["by"]])
            sections["synthesizer"]["predictors"] = " + ".join(columns)
            sections["synthesizer"]["covariance_by"] = []
        if self.learned:
            declared = sections["outcomes"][frame.outcome]
            kept = {key: declared[key] for key in ("kind", "spikes") if key in declared}
            sections["outcomes"][frame.outcome] = {**kept, "range": list(frame.range)}
        return sections


SETTINGS = {
    "noisy_10.8": Setting("noisy_statistics", 10.8, 100),
    "noisy_3.6": Setting("noisy_statistics", 3.6, 100),
    "pseudo_10.8": Setting("pseudo_posterior", 10.8, 40),
    "planted_10.8": Setting("noisy_statistics", 10.8, 40, planted=True),
    "learned_10.8": Setting("noisy_statistics", 10.8, 40, learned=True),
    "learned_3.6": Setting("noisy_statistics", 3.6, 40, learned=True),
    "learned_pseudo_10.8": Setting("pseudo_posterior", 10.8, 40, learned=True),
    "fbp_10.8": Setting("noisy_statistics", 10.8, 40, model="fbp"),
}
#: Coverage by fewer samples is not shown.
FEWEST = 40
#: What is run if nothing is named.
DEFAULTS = ["noisy_10.8", "noisy_3.6", "pseudo_10.8"]
#: Columns of results by row: labels, then these.
MEASURES = ("records", "coverage", "rmse_ratio", "length_ratio", "bias_ratio")


def fetch(folder: Path, names: Sequence[str]) -> None:
    """Write the frames."""
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name in names:
        made = FRAMES[name].made(raw)
        made.to_csv(folder / f"{name}.csv", index=False)
        print(f"{name}: {len(made):,} units. {FRAMES[name].title}", flush=True)


def design_of(frame: Frame) -> SamplingDesign:
    """The design of its samples."""
    chosen = dict(frame.design)
    return SamplingDesign(chosen.pop("design"), **chosen)


def write_laws(folder: Path, names: Sequence[str], path: Path = LAW) -> None:
    """Measure the bias of the law on whole frames, and keep what there was of others."""
    every = kept(path)
    for name, _, measured in _measured(folder, names):
        every[name] = bias(*measured, SEED)
    _show(every, path, law_page)


def write_curves(folder: Path, names: Sequence[str], path: Path = CURVES) -> None:
    """Compare learned curves of all records and of each stratum; keep what there was of others."""
    every = kept(path)
    for name, frame, measured in _measured(folder, names):
        if not measured[0].spikes:
            every[name] = curves_study(*measured, frame.range, SEED)
    _show(every, path, curves_page)


def _measured(
    folder: Path, names: Sequence[str]
) -> Iterator[tuple[str, Frame, tuple[Units, Population, SamplingDesign]]]:
    """Read frames: the units of each, the population and the design of its samples."""
    for name in names:
        frame, found = FRAMES[name], pd.read_csv(folder / f"{name}.csv")
        design = design_of(frame)
        yield name, frame, (*units_of(found, HERE / f"{name}.toml", design), design)


def _show(every: Results, path: Path, page_of: Callable[[Results], list[str]]) -> None:
    path.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    print("\n".join(page_of(every)))


def law_page(every: Results) -> list[str]:
    """Lines of Markdown: counts / means / medians, root mean square over rows."""
    variants = list(next(iter(every.values())))[1:]
    return _by_variant(
        every, variants, lambda found: " / ".join(f"{each['rms']:.2f}" for each in found.values())
    )


def curves_page(every: Results) -> list[str]:
    """Lines of Markdown: RMSE of means / medians over the sample's own, and of the worst means."""
    return _by_variant(
        every, list(next(iter(every.values()))),
        lambda found: f"{found['mean']['median_row']:.2f} / {found['median']['median_row']:.2f} "
        f"({found['mean']['worst_row']:.1f})",
    )  # fmt: skip


def _by_variant(
    every: Results, variants: Sequence[str], words: Callable[[dict[str, Any]], str]
) -> list[str]:
    """Lines of Markdown: a row for each frame, a column for each variant."""
    made = [_row("frame", *variants), "|---" * (1 + len(variants)) + "|"]
    made += [_row(name, *(words(found[v]) for v in variants)) for name, found in every.items()]
    return made


def write_sample(folder: Path, frame: Frame) -> None:
    """Write one sample, and the specification that releases it."""
    found = pd.read_csv(folder / f"{frame.name}.csv")
    survey, sampling = SETTINGS["noisy_10.8"].specification(frame)["survey"], design_of(frame)
    population = Population(
        found, (frame.outcome,), (), survey["strata"], "size", survey.get("psu")
    )
    drawn = sampling.draw(population, np.random.default_rng(SEED)).drop(columns="size")
    drawn.to_csv(folder / survey["data"], index=False)
    shutil.copy(HERE / f"{frame.name}.toml", folder)


def run(folder: Path, frame: Frame, name: str, samples: int, workers: int) -> dict[str, Any]:
    """One frame by one setting: facts, and results by table, by size of row and by row."""
    setting = SETTINGS[name]
    result = ss.coverage(
        folder / f"{frame.name}.csv", setting.specification(frame), samples=samples, seed=SEED,
        size="size", out=folder / f"{frame.name}_{name}_{samples}", resume=True, workers=workers,
        progress=lambda line, k, total: print(f"{frame.name} {k}/{total} {line}", flush=True),
        **frame.design,
    )  # fmt: skip
    rows = result.rows[result.rows["has_error"]]
    labels = [each for each in rows.columns if each in result.truth.columns and each != "row"]
    own = rows[["row", "method", *(each for each in labels if each != "truth"), *MEASURES]]
    return {
        "mechanism": setting.mechanism, "epsilon": setting.epsilon, "samples": samples,
        "seed": SEED, "units": frame.units, "design": dict(frame.design),
        "refused": result.refusals["reason"].value_counts().to_dict(),
        "failed": len(result.failed), "tables": records(result.summary),
        "by_size": records(result.by_size), "rows": columns(own), "versions": library_versions(),
    }  # fmt: skip


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Lines of a frame, numbers to four digits."""
    found: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=4))
    return found


def columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns of a frame, numbers to four digits: shorter than its lines."""
    lines = records(frame)
    return {name: [line[name] for line in lines] for name in frame.columns}


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """Results by frame and setting."""
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
    return found


def keep(path: Path, frame: str, setting: str, result: dict[str, Any]) -> None:
    """Put one result in the place of what there was of it; one line a list."""
    every = kept(path)
    every.setdefault(frame, {})[setting] = result
    text = json.dumps(every, indent=None, separators=(",", ":"), allow_nan=False)
    path.write_text(text.replace("},{", "},\n{") + "\n", encoding="utf-8")


def page(results: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of Markdown: a row for each release of a frame, and for each further outcome."""
    head = ("frame", "release", "samples", "counts", "means", "medians")
    made = [_row(*head), "|---" * len(head) + "|"]
    for name, found in results.items():
        for setting, result in found.items():
            if result["samples"] < FEWEST:
                continue
            lines = _beside_sample(result["tables"], ("statistic", "outcome"))
            cells = {(line["statistic"], line["outcome"]): _cell(line, own) for line, own in lines}
            outcomes = [outcome for statistic, outcome in cells if statistic == "mean"]
            for place, outcome in enumerate(outcomes):
                words = SETTINGS[setting].words if place == 0 else ""
                frame = name if len(outcomes) == 1 else f"{name}: {outcome}"
                made.append(_row(
                    frame, words, str(result["samples"]) if place == 0 else "",
                    cells.get(("count", ""), "-") if place == 0 else "",
                    *(cells.get((each, outcome), "-") for each in ("mean", "median")),
                ))  # fmt: skip
    return made


def _cell(line: dict[str, Any], own: dict[str, Any]) -> str:
    """Coverage with the sample's own, of the worst row, RMSE and length."""
    numbers = (line["worst"], line["rmse_ratio"], line["length_ratio"])
    return ", ".join([_coverage(line, own), *map(_number, numbers)])


def write_page(results: dict[str, dict[str, Any]]) -> None:
    """Put the table between its marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    made = "\n".join([BEGIN, "", *page(results), "", END])
    PAGE.write_text(f"{before}{made}{after}", encoding="utf-8")


def _beside_sample(
    lines: list[dict[str, Any]], place: tuple[str, ...]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every line of a release with the sample's own line of the same place."""
    own = {tuple(each[key] for key in place): each for each in lines if each["method"] == "sample"}
    releases = [each for each in lines if each["method"] != "sample"]
    return [(each, own[tuple(each[key] for key in place)]) for each in releases]


def _coverage(line: dict[str, Any], own: dict[str, Any]) -> str:
    return f"{_number(line['coverage'])} ({_number(own['coverage'])})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["fetch", "law", "curves", "sample", "run", "page"])
    parser.add_argument("folder", type=Path, nargs="?", help="of the frames; not for page")
    parser.add_argument("--only", nargs="+", default=list(FRAMES), choices=list(FRAMES))
    parser.add_argument("--setting", nargs="+", default=DEFAULTS, choices=list(SETTINGS))
    parser.add_argument("--samples", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args(arguments)
    if given.what == "page":
        write_page(kept(given.out))
        return
    if given.folder is None:
        parser.error("name the folder of the frames")
    if given.what == "fetch":
        fetch(given.folder, given.only)
        return
    if given.what == "law":
        write_laws(given.folder, given.only)
        return
    if given.what == "curves":
        write_curves(given.folder, given.only)
        return
    for name in given.only:
        if given.what == "sample":
            write_sample(given.folder, FRAMES[name])
            continue
        for setting in given.setting:
            samples = given.samples or SETTINGS[setting].samples
            made = run(given.folder, FRAMES[name], setting, samples, given.workers)
            keep(given.out, name, setting, made)
            print("\n".join(page({name: {setting: made}})), flush=True)


if __name__ == "__main__":
    main()
