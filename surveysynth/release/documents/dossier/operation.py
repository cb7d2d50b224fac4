"""The ground of the pyramid: trust, computing, access, collection, sampling."""

from surveysynth.release.documents.dossier.blocks import Answer
from surveysynth.release.documents.dossier.terms import Terms


def operation(terms: Terms) -> tuple[Answer, ...]:
    """What no parameter tells, and what parameters rest on."""
    design = terms.facts.design
    return (
        Answer(
            "Whom does one have to trust: central or local model?",
            (
                "The central model: the publisher holds the confidential survey and runs the "
                "mechanism; whoever sees the release only does not have to be trusted. Respondents "
                "trust the publisher and its machine. There are no queries: one release is made "
                "and published, and everybody sees the same.",
            ),
        ),
        Answer("How is floating-point arithmetic dealt with?", (_floating_point(terms),)),
        Answer("Where does randomness come from?", (_randomness(terms),)),
        Answer("Which side channels are there?", _side_channels(terms)),
        Answer(
            "Who has access to the confidential data and results?",
            (
                "The survey file is the publisher's to guard. The run writes two folders: this one "
                "and one for the publisher alone, readable by its owner only (mode 0700), with "
                "realised bounds, diagnostics and a comparison with the sample. Messages and logs "
                "of the software count confidential records and never show a value.",
            ),
        ),
        Answer(
            "What is exposed when data are collected?",
            (
                "Everything that respondents answer is known to those who collect it. Differential "
                "privacy limits what is published and does nothing for collection, transport, "
                "storage or deletion; nor does it make up for data that need not have been asked.",
            ),
        ),
        Answer(
            "Is secrecy of the sample, or amplification by sampling, relied on?",
            (
                "No. Who is in the sample is taken as known, and no parameter is reduced because "
                f"the {design.n:,} records are a sample. What sampling adds in uncertainty about "
                "people is on top, and is not claimed.",
            ),
        ),
    )


def _floating_point(terms: Terms) -> str:
    if terms.strict:
        return (
            "It is kept out of the guarantee. Values are rounded to a grid of whole numbers, sums "
            "are exact, the distance that a unit can move them is bounded in whole numbers, and "
            "noise is drawn with whole numbers and fractions (Canonne, Kamath and Steinke 2020), "
            "not with floating-point normals, whose last digits can give values away (Mironov "
            "2012). What follows the noise is post-processing in floating point."
        )
    return (
        "What is said of draws is said of real numbers; floating-point draws were not analysed. "
        "Their last digits are not published: synthetic values are rounded to a public number of "
        "digits before anything is computed from them."
    )


def _randomness(terms: Terms) -> str:
    if terms.facts.test:
        return "THIS IS A TEST: from a seed, with which the protection can be undone."
    if terms.strict:
        return (
            "Noise: the operating system's generator, number by number; no seed exists. What "
            "follows the noise has a published seed, so that it can be made again."
        )
    return (
        "A stream cipher under a key of 256 bits of the operating system's generator, which no "
        "file keeps. Programs of Stan, where they are used, have shorter seeds, as the statement "
        "says."
    )


def _side_channels(terms: Terms) -> tuple[str, ...]:
    design = terms.facts.design
    stopped = (
        "The mechanism answers on every valid database: that a release exists tells no more than "
        "the noisy numbers do."
        if terms.strict
        else "That a release exists tells that its diagnostics passed, which depends on the "
        "confidential values and is not covered."
    )
    missing = (
        " Which records were dropped for missing values is taken as public."
        if design.dropped
        else ""
    )
    return (
        f"Time, memory and load of the computation are not covered; nobody outside can ask for a "
        f"run or watch one, as long as it runs on a machine of the publisher's. {stopped}{missing}",
        "Rows of the microdata are sorted by public columns, so that the order of the survey file "
        "shows nothing.",
    )
