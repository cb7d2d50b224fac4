"""Write what the pages of the guide say of results: ``python -m tests.long_runs.guide_page``.

The table of real populations (README, limits), and the sentence on each page that names the dates
of the results behind its claims (``tests.evidence``).
"""

import json
import re
from collections.abc import Callable

from tests.evidence import GOLDEN, ROOT, claims, records

#: Fewer samples than these are no result for the guide.
FEWEST = 40
POPULATIONS = {
    "fares": ("air fares", "1,000 of 4,596 routes"),
    "earnings": ("hourly earnings", "2,000 of 61,395 workers"),
    "communes": ("farmed land of communes", "800 of 2,896"),
    "counties": ("acres of farms in counties", "900 of 3,044"),
    "villages": ("spending in villages, clustered", "1,000 of 5,999 households"),
}
BLOCK = re.compile(r"(<!-- (\w+): guide_page\.py -->\n).*?(<!-- end -->)", re.DOTALL)


#: Populations that the README shows beside other methods.
COMPARED = ("fares", "earnings")


def accuracy(page: str) -> str:
    """Return the table of means on real populations; a dash where no study has enough samples."""
    results = json.loads((GOLDEN / "real_populations.json").read_text(encoding="utf-8"))
    heads = ["error, epsilon 10.8", "coverage", "error, epsilon 3.6", "coverage", "samples"]
    lines = [f"| {' | '.join(['population', *heads])} |", "|---|---|---|---|---|---|"]
    for name, words in POPULATIONS.items():
        if page == "README.md" and name in COMPARED:
            continue
        cells: list[str] = []
        samples: list[int] = []
        for setting in ("noisy_10.8", "noisy_3.6"):
            found = results[name].get(setting)
            if found is None or found["samples"] < FEWEST:
                cells += ["–", "–"]
                continue
            mean = {each["method"]: each for each in found["tables"] if each["statistic"] == "mean"}
            own, release = mean["sample"]["coverage"], mean["release"]
            cells += [f"{release['rmse_ratio']:.2f}", f"{release['coverage']:.2f} ({own:.2f})"]
            samples.append(found["samples"])
        label = words[0] if page == "README.md" else ", ".join(words)
        counts = " and ".join(str(each) for each in dict.fromkeys(samples))
        lines.append(f"| {' | '.join([label, *cells, counts])} |")
    return "\n".join(["", *lines, "", ""]) + (made(page) if page == "README.md" else "")


def made(page: str) -> str:
    """Return the sentence on the dates of a page's results."""
    known = records()
    own = {name for claim in claims() if claim.page == page for name in claim.results}
    dates = sorted({known[name]["date"] for name in own})
    days = ", ".join(dates[:-1]) + " and " * (len(dates) > 1) + dates[-1]
    return (
        f"These results are from {days}; `python -m tests.evidence` lists their commits and what "
        "has changed since.\n"
    )


PARTS: dict[str, Callable[[str], str]] = {"accuracy": accuracy, "made": made}


def rendered(page: str) -> str:
    """Return a page with its blocks as the results have them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return BLOCK.sub(lambda found: found[1] + PARTS[found[2]](page) + found[3], text)


def main() -> None:
    """Write the blocks of all pages with claims."""
    for page in sorted({claim.page for claim in claims()}):
        (ROOT / page).write_text(rendered(page), encoding="utf-8")


if __name__ == "__main__":
    main()
