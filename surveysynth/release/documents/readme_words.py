"""Explanations in a release's README: digits that mean something, files, the guarantee in short.

They depend on the settings of a release alone, never on its numbers: a README is the same whatever
the survey said.
"""

import math

from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.writers.stata_spss import PROGRAMS


def digits_section(facts: ReleaseFacts) -> list[str]:
    """How far a published number can be read."""
    noise = " and the noise" if facts.spec.privacy.rebuildable else ""
    return [
        "## How many digits mean something",
        f"Synthetic values have a public number of digits: {_microdata(facts)}. Tables come from "
        "the rounded values, and the csv files carry all digits of that computation, so that it "
        "can be repeated from the microdata; they are not all meaningful. Round a standard error "
        "to two significant digits and its estimate to the same place: an estimate of 73512.384 "
        "with a standard error of 1234.5 reads 73,500 (standard error 1,200). Differences that are "
        "small beside their standard errors mean nothing, however many digits they have.",
        f"The tables for reading show {_shown(facts)} unless a variable has its own; a standard "
        "error is rounded as its estimate is, and one that is not zero never reads as zero. "
        "Because each number is rounded by itself, rounded parts need not add up to their rounded "
        "sum.",
        f"The standard errors cover sampling and, with two or more draws, synthesis{noise}. They "
        "do not cover what the model or the privacy protection leave systematically wrong, nor "
        "errors of the survey itself.",
    ]


def _shown(facts: ReleaseFacts) -> str:
    """Digits of counts and means; of several tables those that they agree in."""
    sections = facts.spec.tables
    bases = {_base(each.round_counts) for each in sections}
    digits = {each.digits_mean for each in sections}
    if len(bases) > 1 or len(digits) > 1:
        return "counts and means with digits of their own in each table,"
    return f"counts {bases.pop()} and means with {digits.pop()} decimals"


def _base(multiple: int | None) -> str:
    if multiple is None:
        return "to two significant digits of their standard errors, as totals and ratios,"
    return f"in multiples of {multiple:,}" if multiple > 1 else "in whole units"


def _microdata(facts: ReleaseFacts) -> str:
    """How synthetic columns are rounded, the weight but where it is public."""
    digits = facts.digits
    amounts = f"amounts have {digits.amount_words}"
    if facts.design.public_weight is not None:
        return amounts
    if digits.weight_step is None:
        return f"{amounts}, and weights too"
    return f"{amounts}, weights are {digits.weight_words} that add up to the population size"


def in_short(facts: ReleaseFacts) -> list[str]:
    """What the guarantee says and what it does not, before the exact statement."""
    settings = facts.settings
    if not settings.private:
        return []
    protect = facts.spec.privacy.protect
    units = "records" if protect == RECORD else f"units of {protect!r}"
    epsilon = settings.epsilon
    factor = f"about {round_factor(epsilon)}" if epsilon < 100 else f"e to the power {epsilon:g}"
    proved = facts.spec.privacy.rebuildable
    promise = _strict_promise(facts) if proved else _asymptotic_promise(facts)
    return [
        promise.format(factor=f"exp(epsilon) = {factor}"),
        "It does not say that nothing can be learned about a person: what holds for a group is "
        "published on purpose and applies to its members, in the sample or not. It does not hide "
        "who is in the sample or the public columns. It does not make the numbers accurate; the "
        f"standard errors say how accurate they are. It does not cover several {units} of one "
        "person or household together. And it is not a promise about other publications from the "
        "same survey.",
        "Exactly:",
    ]


def _values(facts: ReleaseFacts) -> str:
    return "its outcomes" if facts.spec.survey.public_weights else "its outcomes and its weight"


def _strict_promise(facts: ReleaseFacts) -> str:
    """What is proved, of whatever anybody may compute."""
    privacy = facts.spec.privacy.as_noisy_statistics()
    whose = "one record" if privacy.protect == RECORD else "all records of one protected unit"
    return (
        f"In short, it says: had the confidential values of {whose} ({_values(facts)}) been "
        "others, any result that can be computed from this folder would have had another "
        f"probability by a factor of at most {{factor}}, give or take a probability of delta = "
        f"{privacy.delta:g}, with the qualifications below. This limits what anyone can learn "
        "about a person because that person's answers were used, whatever else they know and "
        "however they compute. The larger epsilon is, the weaker is this promise."
    )


def _asymptotic_promise(facts: ReleaseFacts) -> str:
    """What is claimed of the released draws, and where it is no proof."""
    outside = facts.statement.outside
    return (
        f"In short, it says: had the confidential values of one record ({_values(facts)}) been "
        f"others, the probability density of the {facts.settings.m} draws that this folder was "
        "made from would have been another by a factor of at most {factor}. This is a statement "
        "about surveys of more and more records, for given risk weights and under the assumptions "
        "below; it is not proved for the survey at hand, where the bound behind it was found on "
        "its own data over a limited number of draws. As far as it holds, it limits what anyone "
        "can learn about a person because that person's answers were used. The larger epsilon is, "
        "the weaker it is." + (f" This release is {outside}." if outside else "")
    )


def round_factor(epsilon: float) -> str:
    """exp(epsilon) with two significant digits."""
    value = math.exp(epsilon)
    if value >= 1e15:
        return f"{value:.1e}"
    places = 1 - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(places, 0)}f}"


def file_words(facts: ReleaseFacts) -> list[str]:
    """What is to be known of texts and codes in the files."""
    words = [
        "In csv files a text that begins with = + - or @, and is not a number, has an apostrophe "
        "before it, so that no spreadsheet takes it for a formula.",
    ]
    program = PROGRAMS.get(facts.microdata_format)
    if program is not None:
        words.append(
            f"The microdata are files of {program} with labels of columns and of values. Levels "
            "are numbers there: their codes where these are whole numbers, else positions from 1 "
            "on; `codebook.json` has the code, the number (`value`) and the label of each."
        )
    return words
