"""README.md of a release, for the person who uses the tables and the microdata.

``templates/readme.md.j2`` has its text; this module gathers the values in it.
"""

from collections.abc import Mapping
from typing import Any

from surveysynth.config.tables_section import FORMATS, table_files
from surveysynth.estimation.statistics import Statistic, statistic_of
from surveysynth.estimation.total_variance import LEAST_DF, public_row_columns, saved_by_law
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.release.documents.programs import has_lonely_stratum, make_example
from surveysynth.release.documents.render import render_markdown
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import (
    PROGRAMS,
    VARIANCE_SUFFIX,
    base_weight_column,
    file_name,
    fraction_name,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.tables.labels import where_words
from surveysynth.release.tables.layout import FOOTNOTES
from surveysynth.release.tables.table import FLAG_SEPARATOR
from surveysynth.release.tables.table_builder import Tables, by_korn_graubard, synthetic_columns


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
    """Return names and meanings of the files: of one table each file, of several a line a table."""
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
    """Return what rows of the tables are: intervals, levels, flags, rows by an outcome."""
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
    """Return the worked example: which number it recomputes, and both programs."""
    example, programs = make_example(facts, tables, separate_pair=separate_pair)
    additive = example.outcome is None and facts.spec.linearisation == "ratio"
    made = facts.microdata_format
    return {
        "table": example.table,
        "row": example.row,
        "published": example.published,
        "every_dataset": facts.spec.privacy.replicates_per_draw <= facts.published_replicates,
        "close": (additive or facts.calibration is not None)
        and facts.mechanism.combining == "total_variance",
        "libraries": [
            "pandas", "NumPy", *{"parquet": ["pyarrow"], "sav": ["pyreadstat"]}.get(made, []),
        ],
        "package": {"parquet": "arrow", "dta": "haven", "sav": "haven"}.get(made, ""),
        **programs,
    }  # fmt: skip
