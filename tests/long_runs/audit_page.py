"""The tables of ``vignettes/technical/audit.md``, made of the golden results:
``python -m tests.long_runs.audit_page``."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tests.audit.cases import EXAMPLES
from tests.audit.report import ratio_words
from tests.long_runs.audit_runs import ATTACKS, REPLACEMENTS

PAGE = Path(__file__).parents[2] / "vignettes" / "technical" / "audit.md"
SIZES = (300, 1000, 10_355)
NOT_RUN = "not run"
#: Changes of lines that replace no record.
NO_CHANGE = "none, fitted twice"


def replacements_table(table: pd.DataFrame) -> str:
    """The largest ratio of every case and size; bold above 1."""
    head = ["Case", *(f"n = {n:,}" for n in SIZES), "Fresh random numbers", "Beyond"]
    rows = [head, ["---"] * len(head)]
    for case in (example.name for example in EXAMPLES):
        own = table[table["case"] == case]
        sizes = {n: own[own["n"] == n] for n in SIZES}
        common = (part[part["random_numbers"] != "fresh"] for part in sizes.values())
        fresh = own[own["random_numbers"] == "fresh"]["ratio"]
        beyond = own["beyond"].max()
        rows.append([
            case, *(_largest(part) for part in common),
            _words(fresh.max()) if len(fresh) else "",
            "" if pd.isna(beyond) else f"{beyond:.3f}",
        ])  # fmt: skip
    return _markdown(rows)


def replaced(table: pd.DataFrame) -> pd.DataFrame:
    """The lines of one record that was replaced, measured or refused: not those of a setting that
    is refused as a whole, nor of surveys of extreme values."""
    return table[table["change"].notna() & (table["change"] != NO_CHANGE)]


def decided(table: pd.DataFrame) -> pd.DataFrame:
    """Those of them where the one record decided whether there is a release."""
    own = replaced(table)
    return own[own["verdict"] == "refused"]


def attacks_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What each attack proves."""
    head = ["Mechanism", "Control", "Runs a side", "Stated", "Proven", "Provable at most",
            "Holm's p"]  # fmt: skip
    shown = [head, ["---"] * len(head)]
    for row in rows:
        shown.append([
            row["mechanism"].replace("_", " "), row["control"], f"{row['runs']:,}",
            f"{row['stated']:g}", f"{row['proven']:.2f}", f"{row['most_provable']:.2f}",
            f"{row['adjusted_p_value']:.2g}",
        ])  # fmt: skip
    return _markdown(shown)


def with_tables(page: str, table: pd.DataFrame, facts: Mapping[str, Any]) -> str:
    """The page with its tables between their marks."""
    versions = facts["versions"]
    made = f"Made on {facts['replacements_made_on']} by surveysynth {versions['surveysynth']}."
    parts = {"replacements": f"{replacements_table(table)}\n\n{made}"}
    if "attacks" in facts:
        parts["attacks"] = attacks_table(facts["attacks"])
    for name, text in parts.items():
        mark = rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)"
        page, found = re.subn(mark, lambda m, t=text: f"{m[1]}\n{t}\n\n{m[2]}", page, flags=re.S)
        assert found == 1, f"the page has no place for {name}"
    return page


def _largest(part: pd.DataFrame) -> str:
    if part.empty:
        return NOT_RUN
    if part["ratio"].notna().any():
        refused = len(decided(part))
        beside = f" ({refused} refused)" if refused else ""
        return _words(float(part["ratio"].max())) + beside
    return str(part["verdict"].iloc[0])


def _words(ratio: float) -> str:
    words = ratio_words(ratio)
    return f"**{words}**" if ratio > 1.0 else words


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Writes the tables into the page."""
    table, facts = pd.read_csv(REPLACEMENTS), json.loads(ATTACKS.read_text(encoding="utf-8"))
    page = with_tables(PAGE.read_text(encoding="utf-8"), table, facts)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
