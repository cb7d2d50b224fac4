"""README.md of a release, for the person who uses the tables and the microdata.

``templates/readme.md.j2`` has its text; this module gathers the values in it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.resources import environment
from surveysynth.config.tables_section import FORMATS, folder_of, table_files
from surveysynth.estimation.statistics import COUNT, MEAN, Statistic, statistic_of
from surveysynth.estimation.total_variance import LEAST_DF, public_row_columns, saved_by_law
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.release.documents.render import render_markdown
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import (
    PROGRAMS,
    VARIANCE_SUFFIX,
    base_weight_column,
    file_name,
    fraction_name,
    labelled_columns,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.tables.layout import FOOTNOTES, where_words
from surveysynth.release.tables.table import FLAG_SEPARATOR, ReleaseTable, well_filled
from surveysynth.release.tables.table_builder import Tables, by_korn_graubard, synthetic_columns
from surveysynth.release.writers.csv import safe_text
from surveysynth.survey.survey import PublicDesign

if TYPE_CHECKING:
    pass


def make_readme(
    facts: ReleaseFacts,
    shared: dict[str, Any],
    tables: Mapping[str, Tables],
    *,
    separate_pair: bool,
) -> str:
    """Return README.md; ``shared``: by ``shared_context``; ``tables``: by name."""
    settings, spec = facts.settings, facts.spec
    replicates = spec.privacy.replicates_per_draw
    return render_markdown("readme.md.j2", {
        **shared,
        "total_variance": facts.mechanism.combining == "total_variance",
        "replicates": replicates,
        "datasets": settings.m * replicates,
        "statistics_file": STATISTICS_NAME,
        "learns": any(each.learned is not None for each in facts.design.modelled),
        "source": spec.all_tables.source,
        **_design(facts, separate_pair=separate_pair),
        **_files(facts),
        **_rows(facts),
        **_flags(tables),
        "amount_words": facts.digits.amount_words,
        "own_counts": facts.counts is None,
        "weight_words": facts.digits.weight_step and facts.digits.weight_words,
        "subpopulations": [
            (name, where_words(each.spec.table.where, facts.labels))
            for name, each in facts.each_table.items()
            if each.spec.table.where is not None
        ],
        "example": _example(facts, tables, separate_pair=separate_pair),
    })  # fmt: skip


def _design(facts: ReleaseFacts, *, separate_pair: bool) -> dict[str, Any]:
    """Return the sample design, and the columns of the microdata."""
    design, clusters = facts.design, facts.clusters
    binary = [each for each in design.outcomes if each.kind == "binary" and each.is_labelled]
    return {
        "synthetic": synthetic_column_names(design, separate_pair=False),
        "public": public_column_names(design),
        "fraction": fraction_name(design),
        "weight": weight_column(design),
        "calibration": None if facts.calibration is None else facts.calibration.words,
        "base_weight": base_weight_column(design),
        "public_weight": design.public_weight is not None,
        "population_size": design.population_size,
        "linearisation": facts.spec.linearisation if facts.calibration is None else "plain",
        "fpc": design.fpc is not None,
        "by_unit": design.psu_name is not None and design.design_effect is None,
        "stratified": bool(design.strata_name),
        "lonely": design.lonely_psu if has_lonely_stratum(design) else "",
        "separate_pair": separate_pair,
        "variance_suffix": VARIANCE_SUFFIX,
        "indicators": [(each.name, each.levels[-1]) for each in binary]
        if facts.spec.binary_statistics
        else [],
        "explanations": list(
            filter(None, (statistic_of(each).explanation for each in facts.spec.statistics))
        ),
        "clustered": clusters is not None,
        "design_effect": None if clusters is None else clusters.design_effect,
        "public_rows": public_row_columns(design),
        "df_design": facts.df_design,
        "least_df": LEAST_DF,
        "saved": [
            (each.plural, saved_by_law(each.share))
            for each in map(statistic_of, facts.spec.statistics)
            if each.share is not None
        ],
    }


def _files(facts: ReleaseFacts) -> dict[str, Any]:
    """Return names and meanings of the files, by file, or by table if there are several."""
    spec = facts.spec
    single, several, endings = [], [], []
    if not spec.named_tables:
        single = [
            (f"{folder}/{name}", made.meaning)
            for folder, name, made in table_files(spec.table.statistics, spec.table.formats)
        ]
    else:
        for name, each in facts.each_table.items():
            section = each.spec.table
            made = table_files(section.statistics, section.formats, name)
            several.append((name, section.title, [f"{f}/{file}" for f, file, _ in made]))
        used = dict.fromkeys(f for each in spec.tables for f in each.formats)
        endings = [(FORMATS[each].ending, FORMATS[each].meaning) for each in used]
    return {
        "single_files": single,
        "several": several,
        "endings": endings,
        "first_file": file_name(1, 1, facts.microdata_format),
        "last_file": file_name(
            facts.settings.m, facts.published_replicates, facts.microdata_format
        ),
        "program": PROGRAMS.get(facts.microdata_format),
    }


def _rows(facts: ReleaseFacts) -> dict[str, Any]:
    """Describe the rows of the tables: intervals, levels, flags, rows by an outcome."""
    spec = facts.spec
    pairs = [
        (each, statistic_of(name)) for each in spec.each_table for name in each.table.statistics
    ]
    auto = [kind for each, kind in pairs if not by_korn_graubard(each, kind)]
    return {
        "levels": dict.fromkeys(f"{100 * each.level:.4g}%" for each in spec.tables),
        "by_level": any(kind.by_level for _, kind in pairs),
        "exact_intervals": _plurals([kind for each, kind in pairs if by_korn_graubard(each, kind)]),
        "logit_intervals": _plurals([kind for kind in auto if kind.interval == "logit"]),
        "positive_intervals": " and ".join(filter(None, [
            _plurals([kind for kind in auto if kind.interval == "positive"]),
            "amounts that cannot be negative" if any(k.interval == "t" for k in auto) else "",
        ])),
        "synthetic_rows": dict.fromkeys(
            name for each in spec.each_table for name in synthetic_columns(each)
        ),
    }


def _flags(tables: Mapping[str, Tables]) -> dict[str, Any]:
    """Return the meanings of the flags that some table has."""
    every = [each for table in tables.values() for several in table.values() for each in several]
    found = {
        code for each in every for row in each.frame["flag"] for code in row.split(FLAG_SEPARATOR)
    }
    return {
        "marks": [(code, meaning) for code, meaning in FOOTNOTES.items() if code in found],
        "legends": dict.fromkeys(text for each in every for text in each.flags.legend(found)),
        "withholding": any(not each.flags.withholding.isdisjoint(found) for each in every),
    }


def _plurals(kinds: list[Statistic]) -> str:
    return " and ".join(dict.fromkeys(kind.plural for kind in kinds))


def _example(
    facts: ReleaseFacts, tables: Mapping[str, Tables], *, separate_pair: bool
) -> dict[str, Any]:
    """Return the worked example: the number that it recomputes, and the programs by language.

    ``templates/recompute.py.j2`` (pandas and NumPy) and ``templates/recompute.r.j2`` (R alone) are
    the programs. They have the sample design of the release and its rule of combining; CELL and
    OUTCOME choose the number, at first a published mean of an interior cell where there is one, or
    else a count. A withheld number is chosen only if all are. Tests compare what they print with
    the tables.
    """
    found = [
        (name, table)
        for statistic in (MEAN.name, COUNT.name)
        for name, of_table in facts.each_table.items()
        if of_table.spec.table.where is None
        for table in tables[name].get(statistic, ())
    ]
    shown = (each for each in found if each[1].frame["se"].notna().any())
    chosen = next(shown, found[0] if found else None)
    made = facts.microdata_format
    typed = made != "csv"

    def written(text: str) -> str:
        return text if typed else safe_text(text)

    of_csv, row, published, outcome = "", -1, False, None
    cell: dict[str, Any] = {}  # codes of the by-columns, as the files have them
    if chosen is not None:
        name, table = chosen
        row = _row(table, facts.design)
        record, outcome = table.frame.iloc[row], table.outcome and written(table.outcome)
        of_csv = f"{folder_of(FORMATS['csv'], name)}/{MEAN.stem if table.outcome else COUNT.stem}"
        published = bool(table.frame["se"].notna().iloc[row])
        # In csv files, which are read as text, no column holds whole numbers.
        numbers = [o.name for o in facts.design.outcomes if typed and not o.is_labelled]
        cell = {
            written(each): int(record[each]) if each in numbers else written(str(record[each]))
            for each in table.by
            if record[each] != facts.labels.of(each).margin
        }
    context = _context(facts, cell, outcome, written, separate_pair=separate_pair)
    templates = environment(__package__).overlay()
    templates.filters = {**templates.filters, "py": python_literal, "r": r_literal}
    additive = outcome is None and facts.spec.linearisation == "ratio"
    return {
        "table": of_csv,
        "row": row + 1,
        "published": published,
        "every_dataset": facts.spec.privacy.replicates_per_draw <= facts.published_replicates,
        "close": (additive or facts.calibration is not None)
        and facts.mechanism.combining == "total_variance",
        "libraries": [
            "pandas", "NumPy", *{"parquet": ["pyarrow"], "sav": ["pyreadstat"]}.get(made, []),
        ],
        "package": {"parquet": "arrow", "dta": "haven", "sav": "haven"}.get(made, ""),
        **{
            language: templates.get_template(f"templates/recompute.{ending}.j2")
            .render(context).removesuffix("\n")
            for language, ending in (("python", "py"), ("r", "r"))
        },
    }  # fmt: skip


def _row(table: ReleaseTable, design: PublicDesign) -> int:
    """Return the row to recompute, from 0: a cell with enough records where there is one."""
    frame = table.frame
    shown = frame["se"].notna()
    # The average rule counts strata by the row's own records: show it where it is simplest.
    if not (has_lonely_stratum(design) and design.lonely_psu == "average"):
        for wanted in (~frame["is_margin"] & shown, shown):
            rows = np.flatnonzero(wanted & well_filled(frame))
            if rows.size:
                return int(rows[0])
    return 0


def has_lonely_stratum(design: PublicDesign) -> bool:
    """Return True if some stratum has a single record (or primary sampling unit)."""
    strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
    if design.psu is not None and design.design_effect is None:
        strata = np.unique(np.stack([strata, design.psu]), axis=1)[0]
    return bool(np.any(np.bincount(strata) == 1))


def _context(
    facts: ReleaseFacts, cell: Mapping[str, Any], outcome: str | None,
    written: Callable[[str], str], *, separate_pair: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the values of a template: the number, the design, the rule of combining."""
    design, exact = facts.design, facts.mechanism.combining == "total_variance"
    weight, suffix = weight_column(design), VARIANCE_SUFFIX * separate_pair

    def column(name: str | None) -> str | None:
        return None if name is None else written(name)

    strata = column(design.strata_name)
    psu = column(design.psu_name) if design.design_effect is None else None
    public = [written(name) for name in public_row_columns(design)] if exact else []
    calibration = _calibration(facts, written, suffix)
    classes = (name for by, _ in calibration["margins"] for name in by)
    by = (*cell, *map(written, facts.spec.by))
    others = (None, written(weight))
    codes = dict.fromkeys(
        name for name in (*by, strata, psu, *public, *classes) if name not in others
    )
    variance_outcome = outcome and written(f"{outcome}{suffix}")
    return {
        "cell": dict(cell),
        "outcome": outcome,
        "weight": written(weight),
        "pair": (variance_outcome, written(weight + suffix)) if separate_pair else None,
        "ratio": facts.spec.linearisation == "ratio" and facts.calibration is None,
        "strata": strata,
        "psu": psu,
        "fraction": column(fraction_name(design)),
        "population": design.population_size,
        "lonely": design.lonely_psu if has_lonely_stratum(design) else "none",
        "file_format": facts.microdata_format,
        "design_effect": design.design_effect,
        "exact": exact,
        "public": public,
        "codes": list(codes),
        "df_design": float(facts.df_design),
        "least_df": f"{LEAST_DF:g}",
        **calibration,
        **_numbered(facts, list(filter(None, codes)), separate_pair=separate_pair),
    }


def _calibration(
    facts: ReleaseFacts, written: Callable[[str], str], suffix: str
) -> dict[str, Any]:
    """Return the calibration variables; the pair for variances has amounts of its own."""
    design, margins = facts.design, []
    for each in () if facts.calibration is None else facts.calibration.margins:
        own = suffix if each.amount in design.outcome_names else ""
        amount = None if each.amount is None else written(f"{each.amount}{own}")
        margins.append((tuple(map(written, each.by)), amount))
    return {
        "calibrated": facts.calibration is not None,
        "base_weight": written(
            base_weight_column(design) + suffix * (design.public_weight is None)
        ),
        "margins": margins,
        "of_size": design.population_size is not None,
    }


def _numbered(
    facts: ReleaseFacts, codes: Sequence[str], *, separate_pair: bool
) -> dict[str, Any]:
    """Return the columns of codes that Stata and SPSS hold as numbers.

    whole: numbers are the codes; places: the codes in the order of their numbers, from 1.
    """
    whole: list[str] = []
    places: dict[str, list[str]] = {}
    if facts.microdata_format in PROGRAMS:
        columns = labelled_columns(facts.design, facts.labels, separate_pair=separate_pair)
        for name in codes:
            values = columns[name].values if name in columns else {}
            if values and all(code == str(number) for code, number in values.items()):
                whole.append(name)
            elif values:
                places[name] = list(values)
    numbered = {name: dict(enumerate(of_name, start=1)) for name, of_name in places.items()}
    return {"whole": whole, "places": places, "numbered_places": numbered}


def python_literal(value: Any) -> str:
    """Return a Python literal that cannot end the surrounding Markdown block."""
    return repr(value).replace("`", "\\x60")


def r_literal(value: Any) -> str:
    """Return a text, number, vector or named vector in R that cannot end the Markdown block.

    JSON escapes texts as R does.
    """
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("`", "\\x60")
    if isinstance(value, Mapping):
        values = r_literal([str(each) for each in value.values()])
        return f"setNames({values}, {r_literal(list(value))})"
    if isinstance(value, list | tuple):
        return f"c({', '.join(map(r_literal, value))})" if value else "character(0)"
    return repr(value)
