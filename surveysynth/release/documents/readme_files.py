"""What a release's README says of its files: their names, the columns of tables, their flags."""

from collections.abc import Sequence

from surveysynth.estimation.statistics import Statistic, statistic_of
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.release.documents.contents import CONTENTS_NAME
from surveysynth.release.documents.readme_words import file_words
from surveysynth.release.documents.subsets import pair_columns, subset_of
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.folder.microdata import file_name
from surveysynth.release.tables.flags import policy_of
from surveysynth.release.tables.labels import where_words
from surveysynth.release.tables.table import (
    EMPTY_DATASET_FLAG,
    NO_SAMPLE_FLAG,
    POOLED_FLAG,
    SMALL_DATASET_FLAG,
    SMALL_SAMPLE_FLAG,
)
from surveysynth.release.tables.table_builder import by_korn_graubard, synthetic_columns
from surveysynth.spec.formats import FORMATS, table_files


def plain(text: str) -> str:
    """Text in Markdown that is shown as it stands, on one line."""
    special = "\\`*_[]<>#|&"
    escaped = "".join(f"\\{char}" if char in special else char for char in text)
    return " ".join(escaped.split())


def without_tags(markdown: str) -> str:
    """Markdown in which column names cannot open an HTML tag."""
    return markdown.replace("<", "\\<")


def named(names: Sequence[str]) -> str:
    """Columns in a sentence."""
    return ", ".join(f"**{plain(name)}**" for name in names)


def files_section(facts: ReleaseFacts) -> list[str]:
    """The files of the folder, and the columns of those with tables."""
    last = file_name(facts.settings.m, facts.published_replicates, facts.microdata_format)
    first = file_name(1, 1, facts.microdata_format)
    rows = [
        *_tables(facts),
        f"- `microdata/{first}` to `{last}`: one synthetic dataset each",
        "- `codebook.json`: every column of the microdata; `codebook.xml`: the same as "
        "DDI-Codebook 2.5, for catalogues of data archives",
        "- `privacy.json`: the privacy guarantee and its settings, for programs",
        "- `dossier.html`, `dossier.md`: the guarantee for a review board, with what is public by "
        "assumption, worked examples, residual risks and a checklist",
        "- `registry.json`: a draft entry for the registry of deployments of differential privacy",
    ]
    if facts.spec.privacy.rebuildable:
        rows.append(
            f"- `{STATISTICS_NAME}`: the noisy sums that everything else was computed from, with "
            "all public constants; `surveysynth rebuild` makes every table again from this folder"
        )
    levels = dict.fromkeys(f"{100 * each.level:.4g}%" for each in facts.spec.tables)
    return [
        "## Files",
        "\n".join(rows),
        "Columns of the csv tables: the classifying columns (a margin has its own code), "
        "`is_margin`, `estimate`, `se` (standard error), `df` (degrees of freedom of the "
        "interval), `df_design` (those of the design), `ci_lower` and `ci_upper` "
        f"({' or '.join(levels)} interval), `n` (sample records), `flag`. {_lines(facts)}"
        f"The flag `{SMALL_SAMPLE_FLAG}` marks few sample records, `{NO_SAMPLE_FLAG}` a cell "
        "without any, which has no estimate. The mean of one record has no standard error."
        f"{_rules(facts)}",
        *file_words(facts),
    ]


def _tables(facts: ReleaseFacts) -> list[str]:
    """Every file of the one table, or a line a table and one a format."""
    spec = facts.spec
    if not spec.named_tables:
        formats = (*spec.table.formats, *spec.table.figures)
        return [
            f"- `{folder}/{name}`: {made.meaning}"
            for folder, name, made in table_files(spec.table.statistics, formats)
        ]
    rows = [f"- `{CONTENTS_NAME}`: all {len(spec.tables)} tables, with links to their files"]
    for name, each in facts.each_table.items():
        section = each.spec.table
        formats = (*section.formats, *section.figures)
        made = [f"`{f}/{file}`" for f, file, _ in table_files(section.statistics, formats, name)]
        title = f" ({plain(section.title)})" if section.title else ""
        rows.append(f"- table **{plain(name)}**{title}: {', '.join(made)}")
    used = dict.fromkeys(f for each in spec.tables for f in (*each.formats, *each.figures))
    return [*rows, *(f"- of these, `.{FORMATS[f].ending}`: {FORMATS[f].meaning}" for f in used)]


def _lines(facts: ReleaseFacts) -> str:
    """What else there is to say of rows: levels, intervals of shares, rows by an outcome."""
    sentences = [*_intervals(facts)]
    if (pooling := facts.design.pooling) is not None and pooling.record.any():
        sentences.append(
            f"The flag `{POOLED_FLAG}` marks rows of which at least half of the sample records are "
            "of levels or cells that the model pools, because few records tell of them (see the "
            "privacy guarantee): they are modelled as the average of other levels, or by what the "
            "terms within an interaction say, and show little of their own."
        )
    synthetic = dict.fromkeys(
        name for each in facts.spec.each_table for name in synthetic_columns(each)
    )
    if synthetic:
        sentences.append(
            f"Rows by {named(tuple(synthetic))} hold other synthetic records in every dataset. "
            "Their `n` is empty: the true one is confidential, and nothing here depends on it. "
            f"Flags go by the dataset with the fewest records there: `{SMALL_DATASET_FLAG}`, and "
            f"`{EMPTY_DATASET_FLAG}` where it has none, so that a count of it is zero and a mean "
            "of the row cannot be told."
        )
    return "".join(f"{sentence} " for sentence in sentences)


def _intervals(facts: ReleaseFacts) -> list[str]:
    sentences = []
    pairs = [
        (each, statistic_of(name))
        for each in facts.spec.each_table
        for name in each.table.statistics
    ]
    if any(kind.by_level for _, kind in pairs):
        sentences.append("Tables of shares have a line for each `level` of an outcome in each row.")
    exact = _plurals([kind for each, kind in pairs if by_korn_graubard(each, kind)])
    auto = [
        kind for each, kind in pairs
        if each.table.interval == "auto" and not by_korn_graubard(each, kind)
    ]  # fmt: skip
    if exact:
        sentences.append(
            f"Intervals of {exact} are Korn and Graubard's: Clopper and Pearson's "
            "for as many records as n_e = q (1 - q) / se^2 · (t_(n-1) / t_df)^2, at most n, and "
            "n_e = n at 0 and 1."
        )
    if logit := _plurals([kind for kind in auto if kind.interval == "logit"]):
        sentences.append(
            f"Intervals of {logit} are made on the logit scale, expit(logit q ± t · "
            "se / (q (1 - q))), and stay between 0 and 1; at 0 and 1 there is none."
        )
    if positive := _plurals([kind for kind in auto if kind.interval == "positive"]):
        sentences.append(
            f"Where the interval of {positive} would reach below 0 it is "
            "exp(log q ± t · se / q), with at most 4 for t · se / q."
        )
    return sentences


def _plurals(kinds: Sequence[Statistic]) -> str:
    return " and ".join(dict.fromkeys(kind.plural for kind in kinds))


def _rules(facts: ReleaseFacts) -> str:
    """What the reliability flags do, where there are any."""
    policies = [policy_of(each.flags, each.flag_action) for each in facts.spec.tables]
    sentences = dict.fromkeys(sentence for each in policies for sentence in each.legend())
    legend = "".join(f" {plain(sentence)}" for sentence in sentences)
    if not any(policy.withholding for policy in policies):
        return legend
    return (
        f"{legend} Withheld numbers are empty in the csv files. Withholding spares readers numbers "
        "that say little; it protects nobody, and the microdata allow to recompute them. For the "
        "same reason no further cell is withheld so that none can be found by subtraction from a "
        "margin: the numbers are private already."
    )


def subpopulations(facts: ReleaseFacts, *, separate_pair: bool) -> list[str]:
    """Which tables are of a subpopulation, and how the programs are made to be of it; nothing where
    none is."""
    lines, own_pair = [], False
    for name, each in facts.each_table.items():
        where = each.spec.table.where
        subset = subset_of(each, where, pair_columns(facts) if separate_pair else {}, ())
        if where is None or subset is None:
            continue
        table = f"Table **{plain(name)}**: " if name else ""
        lines.append(
            f"- {table}{plain(where_words(where, facts.labels))}. In Python "
            f"`inside = {subset.inside['python']}`, in R `inside <- {subset.inside['r']}`. "
            f"Columns: {named(subset.codes)}."
        )
        if subset.of_pair is not None:
            own_pair = True
            lines.append(
                f"  - In the pair for variances: `inside = {subset.of_pair['python']}`, in R "
                f"`inside <- {subset.of_pair['r']}`."
            )
    if not lines:
        return []
    of_pair = (
        " Where a second line is given, other records are inside in the pair for variances: repeat "
        "the lines that make `inside`, beginning with the second, after `published = value` "
        "(in R `published <- value`)."
    )
    return [
        "## Subpopulations",
        "These tables are of a part of the population. All records stay in the computation: those "
        "outside the subpopulation have d = 0 and u as any record outside a cell, as R's `subset` "
        "of a survey design has it. Leaving them out of the data would give other standard errors. "
        "The lines of code are what `inside` begins with in the programs below; columns that a "
        f"program does not read yet are added to its `CODES`.{of_pair if own_pair else ''}",
        "\n".join(lines),
    ]
