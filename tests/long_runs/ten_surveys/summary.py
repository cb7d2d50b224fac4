"""The golden summaries of releases of the ten files, and the table of the guide that shows them.

``python -m tests.long_runs.real_files SPEC --out FILE.json`` measures; then
``python -m tests.long_runs.ten_surveys.summary FILE.json ..`` writes the golden, of each file and
epsilon a line for each statistic, and the table of the page. Lines of rows are not kept.
"""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.long_runs.real_files import RARE, lines_of
from tests.long_runs.ten_surveys.files import FILES

GOLDEN = Path(__file__).parents[2] / "golden" / "ten_surveys.json"
PAGE = Path(__file__).parents[3] / "vignettes" / "will_it_work.md"
START, END = "<!-- table -->", "<!-- end -->"
EPSILONS = ("10.8", "3.6")
#: What the table shows, in this order; where there are medians, quantiles of amounts.
SHOWN = {"count": "counts", "mean": "means", "median": "medians", "share": "shares"}


def measured(path: Path) -> dict[str, Any]:
    """Return the summary of a file of ``real_files``, with one specification."""
    content = json.loads(path.read_text(encoding="utf-8"))
    releases = content["releases"]
    lines = lines_of(releases)
    statistics = {
        str(line["statistic"]): {
            name: None if isinstance(each, float) and math.isnan(each) else round(float(each), 3)
            for name, each in line.items() if name not in ("file", "statistic")
        }
        for line in lines.to_dict("records") if line["statistic"] in (*SHOWN, RARE)
    }  # fmt: skip
    seconds = sorted(float(each["seconds"]) for each in releases)
    return {
        "commit": content["commit"], "releases": len(releases),
        "refused": [each["refused"] for each in releases if "refused" in each],
        "CPU seconds": seconds[len(seconds) // 2], "peak MB": max(e["peak_mb"] for e in releases),
        "statistics": statistics,
    }  # fmt: skip


def _shown(found: Mapping[str, Any] | None, key: str) -> str:
    """Return a number of every statistic, in the order of ``SHOWN``."""
    if found is None:
        return "not measured"
    if not found["statistics"]:
        return "refused"
    return " / ".join(
        f"{found['statistics'][name][key]:.2f}" if name in found["statistics"] else "–"
        for name in SHOWN
    )


def table(golden: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of the guide, as lines of Markdown."""
    head = ["survey", "records", "CPU s"]
    head += [f"{words}, {epsilon}" for epsilon in EPSILONS for words in ("distance", "SE")]
    lines = [head, ["---"] * len(head)]
    for each in FILES:
        runs = golden.get(each.name, {})
        cells = [f"**{each.shape}**: {each.title}", f"{each.records:,}"]
        first = runs.get(EPSILONS[0])
        cells.append("" if first is None else f"{first['CPU seconds']:.0f}")
        cells += [
            _shown(runs.get(epsilon), key)
            for epsilon in EPSILONS for key in ("median distance", "ratio of SEs")
        ]  # fmt: skip
        lines.append(cells)
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    """Write what the files hold into the golden, and the table into the page."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    for path in map(Path, sys.argv[1:]):
        name = path.stem.removesuffix("_3.6")
        epsilon = EPSILONS[path.stem.endswith("_3.6")]
        golden.setdefault(name, {})[epsilon] = measured(path)
    text = json.dumps(golden, indent=1, ensure_ascii=False, sort_keys=True)
    GOLDEN.write_text(text + "\n", encoding="utf-8")
    before, _, after = PAGE.read_text(encoding="utf-8").partition(START)
    made = "\n".join([before + START, *table(golden), END + after.partition(END)[2]])
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
