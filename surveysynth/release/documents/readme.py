"""README.md of a release: for the person who uses the tables and the microdata."""

from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.total_variance import LEAST_DF, public_row_columns
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.release.documents.example import Example, has_lonely_stratum
from surveysynth.release.documents.programs import python_program, r_program
from surveysynth.release.documents.readme_files import (
    files_section,
    named,
    plain,
    subpopulations,
    without_tags,
)
from surveysynth.release.documents.readme_words import digits_section, in_short
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.folder.microdata import (
    VARIANCE_SUFFIX,
    fraction_name,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.tables.labels import listed
from surveysynth.spec.formats import FORMATS, folder_of
from surveysynth.survey.survey import PublicDesign


def make_readme(
    facts: ReleaseFacts, example: Example, *, replicates: int, separate_pair: bool
) -> str:
    """The whole file as Markdown."""
    sections = [
        [f"# {plain(facts.title)}", *(f"**{warning}**" for warning in facts.warnings)],
        _what_this_is(facts, replicates),
        files_section(facts),
        _columns(facts, separate_pair=separate_pair),
        _weighting(facts, separate_pair=separate_pair),
        _combining(facts, replicates),
        subpopulations(facts, separate_pair=separate_pair),
        _example(facts, example, replicates),
        digits_section(facts),
        [
            "## The privacy guarantee",
            *in_short(facts),
            *map(without_tags, facts.statement.paragraphs),
        ],
    ]
    return "\n\n".join(paragraph for section in sections for paragraph in section) + "\n"


def _what_this_is(facts: ReleaseFacts, replicates: int) -> list[str]:
    design, m = facts.design, facts.settings.m
    count = m * replicates
    if facts.mechanism.combining == "total_variance":
        made = (
            "sums of the confidential values were released with noise, a statistical model that "
            f"knows of the noise was fitted to the noisy sums, and from m = {m} draws of its "
            f"parameters {count} synthetic datasets were simulated, {replicates} each. Tables come "
            f"from all of them; the microdata are the first of each draw, and `{STATISTICS_NAME}` "
            "holds what the others can be made from again."
        )
        return [_opening(design, made), *_particulars(facts)]
    debiased = facts.debias is not None and facts.debias.debiased
    draws = "draws after debiasing them (see the privacy guarantee)" if debiased else "draws"
    made = (
        "a statistical model of the "
        f"confidential values was fitted under a privacy mechanism, m = {m} parameter draws were "
        f"released from it, and {count} synthetic datasets were simulated from the {draws}, "
        f"{replicates} each. Tables and microdata come from the synthetic datasets alone."
    )
    return [_opening(design, made), *_particulars(facts)]


def _opening(design: PublicDesign, made: str) -> str:
    return (
        f"These tables describe a population through a sample of {design.n:,} records. The "
        f"published values are not those of the people in the sample: {made}"
    )


def _particulars(facts: ReleaseFacts) -> list[str]:
    design = facts.design
    synthetic = synthetic_column_names(design, separate_pair=False)
    paragraphs = [
        f"Synthetic {'are' if len(synthetic) > 1 else 'is'} {named(synthetic)}. Classifying "
        f"and design columns ({named(public_column_names(design)) or 'none'}) and the numbers of "
        f"sample records are public and published as they are{_but_fractions(design)}.",
    ]
    if facts.spec.all_tables.source:
        paragraphs.append(f"Source: {plain(facts.spec.all_tables.source)}.".replace("..", "."))
    if design.dropped:
        paragraphs.append(
            f"{design.dropped:,} survey records with missing values were left out beforehand."
        )
    return paragraphs


def _but_fractions(design: PublicDesign) -> str:
    """The one column that need not be what the survey file has under its name."""
    name = fraction_name(design)
    if name is None:
        return ""
    return (
        f", but **{plain(name)}** as the sampling fraction of the stratum, also where the survey "
        "has population sizes"
    )


def _columns(facts: ReleaseFacts, *, separate_pair: bool) -> list[str]:
    synthetic = synthetic_column_names(facts.design, separate_pair=separate_pair)
    rows = [
        *(
            f"- **{plain(name)}** ({plain(facts.labels.titled_with_unit(name))}): public"
            for name in public_column_names(facts.design)
        ),
        *(
            f"- **{plain(name)}** ({plain(facts.labels.titled_with_unit(name))}): synthetic"
            f"{_declared(facts.design, name)}"
            for name in synthetic
        ),
    ]
    return ["## Columns of the microdata", "\n".join(rows)]


def _declared(design: PublicDesign, name: str) -> str:
    """Kind, levels, spikes and bounds of an outcome, where it is more than an amount."""
    words = {each.name: each.public_words for each in design.outcomes}
    found = words.get(name.removesuffix(VARIANCE_SUFFIX), "")
    return f"; {plain(found)}" if found else ""


def _indicators(facts: ReleaseFacts) -> list[str]:
    """What y stands for, where a proportion is of a level that has a name."""
    binary = [each for each in facts.design.outcomes if each.kind == "binary" and each.is_labelled]
    if not binary or not facts.spec.binary_statistics:
        return []
    where = "; ".join(f"of **{plain(o.name)}** where it is {plain(o.levels[-1])}" for o in binary)
    return [f"For a proportion y is 1 for the last level and 0 for the other: {where}."]


def _weighting(facts: ReleaseFacts, *, separate_pair: bool) -> list[str]:
    """Estimates and variances of one dataset, as the tables were made."""
    design = facts.design
    weight = plain(weight_column(design))
    scaled = ""
    if design.public_weight is not None:
        scaled = (
            " It is the weight of the survey's sample design, the same in every dataset, so that "
            "counts by public columns are those of the sample itself."
        )
    elif design.population_size is not None:
        scaled = (
            " The weights of a dataset add up to the population size, "
            f"{design.population_size:,.10g}."
        )
    linearised = (
        "u = w (d - N_d/N) for a count, u = w (y d - t_d/N) for a total"
        if facts.spec.linearisation == "ratio"
        else "u = w d for a count, u = w y d for a total"
    )
    fpc = "(1 - f_h) " if design.fpc is not None else ""
    by_unit = design.psu_name is not None and design.design_effect is None
    units = "primary sampling units" if by_unit else "records"
    strata = f"{units} of stratum h" if design.strata_name else f"{units} (one stratum)"
    clusters = (
        f" u is summed within each primary sampling unit (**{plain(design.psu_name)}**) first."
        if by_unit and design.psu_name
        else ""
    )
    lonely = f' A stratum with one of them follows the rule "{design.lonely_psu}" of R\'s survey.'
    pair = f" Variances are taken from the columns whose names end in `{VARIANCE_SUFFIX}`."
    return [
        "## How to weight and combine",
        f"Use the column **{weight}** as the weight w of every record.{scaled} With d = 1 for the "
        "records of a cell and 0 for others, one dataset gives the count N_d = sum(w d), the total "
        "t_d = sum(w y d) and the mean (or proportion) t_d / N_d.",
        f"Its variance is V = sum over strata {fpc}n_h / (n_h - 1) · sum((u - mean_h(u))^2) over "
        f"all n_h {strata}, inside the cell or not, where {linearised}, "
        f"u = w d (y - mean) / N_d for a mean.{clusters}{pair if separate_pair else ''}"
        f"{lonely if has_lonely_stratum(design) else ''}",
        *_indicators(facts),
        *filter(None, (statistic_of(each).explanation for each in facts.spec.statistics)),
        *_clusters(facts),
    ]


def _clusters(facts: ReleaseFacts) -> list[str]:
    """How the data and the variances take account of PSUs."""
    clusters = facts.clusters
    if clusters is None:
        return []
    units = f"primary sampling units (**{plain(clusters.column)}**)"
    if clusters.design_effect is None:
        return [
            f"The sample was drawn in {units}. Synthetic records of a unit resemble each other as "
            "those of the survey do, through an effect that each dataset draws afresh: who belongs "
            "to a unit is real, what its records have in common is not. A variance that ignores "
            "the units is too small."
        ]
    effect = f"{clusters.design_effect:g}"
    raised = (
        "What sampling adds to V, which is V itself or u where that is smaller, is therefore "
        f"multiplied by {effect}: V + {clusters.design_effect - 1:g} min(V, u), {effect} being"
        if facts.mechanism.combining == "total_variance"
        else f"V is therefore multiplied by {effect},"
    )
    return [
        f"The sample was drawn in {units}, but synthetic records of one unit are independent. "
        f"{raised} the design effect that the publisher declared: the factor by which clustering "
        "raises variances, the same for every number. Variances by unit would be too small, and so "
        "would any that leave the factor out."
    ]


def _combining(facts: ReleaseFacts, replicates: int) -> list[str]:
    """From the datasets to one estimate, its standard error and interval."""
    if facts.mechanism.combining == "total_variance":
        return _total_variance(facts, replicates)
    m = facts.settings.m
    counted = " (primary sampling units less strata)" if facts.clusters is not None else ""
    averaged = (
        f"Average estimates and variances over the {replicates} replicates of a draw to q_l and v_l"
        if replicates > 1
        else "Call the estimate and the variance from draw l q_l and v_l"
    )
    single = [
        "Only one draw was released (m = 1): the variance of the synthesis cannot be estimated, "
        "and the standard errors leave it out."
    ]
    return [
        f"{averaged} (l = 1..{m}). Then:",
        "- estimate: q = mean of the q_l\n"
        "- between draws: b = variance of the q_l, divisor m - 1\n"
        "- variance: T = mean of the v_l + b/m (partial synthesis; not Rubin's rule for missing "
        "data)\n"
        "- degrees of freedom: (m - 1) (1 + mean(v_l) / (b/m))^2, at most the design's "
        f"{facts.df_design:g}{counted}; interval: q ± t · sqrt(T)",
        "Do not pool the datasets into one file, and do not take the spread of a synthetic dataset "
        "alone for the uncertainty: both give standard errors that are too small.",
        *(single if m == 1 else []),
    ]


def _total_variance(facts: ReleaseFacts, replicates: int) -> list[str]:
    """The same by the law of total variance."""
    m, r = facts.settings.m, replicates
    clusters = facts.clusters
    by_unit = ", within each primary sampling unit" if clusters is not None else ""
    columns = named(public_row_columns(facts.design)) or "none"
    averaged = f"Average estimates over the {r} datasets of a draw to q_l" if r > 1 else "q_l is"
    limited = (
        " All variances are without finite population corrections; what these would take off u is "
        "then taken off V."
        if facts.design.fpc is not None
        else ""
    )
    return [
        f"{averaged} (l = 1..{m}){'' if r > 1 else ' the estimate from draw l'}. Then:",
        "- estimate: q = mean of the q_l\n"
        "- between draws: b = variance of the q_l, divisor m - 1\n"
        "- u: mean variance of a dataset\n"
        "- V_X: the variance formula applied to the linearised variable averaged over all datasets "
        f"and over the records that agree in all public columns ({columns}){by_unit}: what the "
        "composition of the sample varies, which synthetic data do not show\n"
        f"- variance: V = V_X + the larger of (1 + 1/m) b - max(u - V_X, 0)/{r} and b/5\n"
        f"- degrees of freedom: V^2 / [((1 + 1/m) b)^2/(m - 1) + (max(u - V_X, 0)/{r})^2/d + "
        f"V_X^2/d], d = {facts.df_design:g}; interval: q ± t · sqrt(V)\n"
        f"- where these are below {LEAST_DF:g}, the datasets are too few to tell what to take off: "
        "V = V_X + (1 + 1/m) b, with the same degrees of freedom but for the middle term",
        "This is the law of total variance: the draws vary by all that the noisy sums leave open, "
        f"the noise itself included.{limited} The rule of partial synthesis (u + b/m) would leave "
        "that out and is wrong here, as is Rubin's rule, and as are datasets pooled into one file "
        "or the spread of one dataset alone.",
    ]


def _example(facts: ReleaseFacts, example: Example, replicates: int) -> list[str]:
    folder = folder_of(FORMATS["csv"], example.table)
    table = f"{folder}/{statistic_of(example.statistic).stem}"
    withheld = "" if example.published else " (there they are withheld as unreliable)"
    place = f"`{table}` (data row {example.row + 1})"
    if replicates > facts.published_replicates:
        what = (
            f"its standard error for the row in {place}{withheld}, from the published datasets "
            f"alone: one of each draw (r = 1 in place of {replicates}). Those in the table come "
            f"from all {facts.settings.m * replicates} and vary less; `surveysynth rebuild` makes "
            "them again from this folder, to the last digit."
        )
    else:
        strict = facts.mechanism.combining == "total_variance"
        scaled = facts.spec.linearisation == "ratio"
        calibrated = statistic_of(example.statistic).additive and scaled
        close = " (to a few hundredths of V_X, where the table averages centres by themselves)"
        what = (
            f"its standard error as they stand in {place}{withheld}"
            f"{close if strict and calibrated else ''}."
        )
    libraries = ["pandas", "NumPy", *["SciPy"] * example.setting.of_share]
    file_format = example.setting.file_format
    libraries += {"parquet": ["pyarrow"], "sav": ["pyreadstat"]}.get(file_format, [])
    package = {"parquet": "arrow", "dta": "haven", "sav": "haven"}.get(file_format)
    return [
        "## A worked example",
        f"Run in the folder of this file, either program prints an estimate and {what} The first "
        f"needs {listed(libraries)}:",
        f"```python\n{python_program(example.setting)}\n```",
        "The second needs R" + (f" and its package {package}" if package else "") + ":",
        f"```r\n{r_program(example.setting)}\n```",
    ]
