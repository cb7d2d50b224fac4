"""What risk remains, and what whoever signs has seen to."""

from surveysynth.release.documents.dossier.blocks import Block, Grid, Items, Section, Text
from surveysynth.release.documents.dossier.terms import Terms
from surveysynth.release.tables.labels import listed

#: Lines for signatures.
SIGNATURES = 3


def residual_risks(terms: Terms) -> Section:
    """What the guarantee leaves out, and what no guarantee of this kind can give."""
    design = terms.facts.design
    public = list(map(str, design.frame.columns))
    named = f" ({listed(public)})" if public else ""
    blocks: list[Block] = [
        Text("Not covered by the guarantee, as the statement has it:"),
        Items(terms.facts.statement.not_covered),
        Text("And beyond it:"),
        Items((
            "Inference about groups: where members of a group are alike, what is published of the "
            "group tells of each of them. Small cells are where this matters; see their sizes "
            "above.",
            f"Recognition by public columns{named}: who knows these of a person can tell which "
            "rows of the microdata may stand for them, and that they are in the sample. What "
            "stands there beside these columns is synthetic.",
            "Other information about the same people: the limit is on what this release adds. "
            "Earlier publications from the survey that were not made under a guarantee have no "
            "limit that could be added to this one.",
            "People take a made-up value for a true one: whoever finds a row that fits a person "
            "may believe it. Say with the data that they are synthetic.",
            "Operation: the survey file, the confidential folder (realised bounds, diagnostics, "
            "the comparison with the sample), logs and backups of the machine are protected by "
            "access control alone.",
            "Decisions after looking: to publish, or to run again with other settings, because of "
            "how close tables lie to the sample is a decision that depends on confidential values.",
            *_of_mechanism(terms),
        )),
    ]  # fmt: skip
    return Section("Residual risks", tuple(blocks))


def _of_mechanism(terms: Terms) -> tuple[str, ...]:
    if terms.strict:
        return (
            "A mistake in the software: the proof is of the method. What was done to find mistakes "
            "is on the software's validation page; the part that the proof rests on (clipping, "
            "whole-number sums, the sampler of the noise) is small and can be read.",
        )
    return (
        "The guarantee is asymptotic: attacks that use this may exist and are not excluded by any "
        "proof. What replacing one record moves on simulated surveys was measured (the software's "
        "page on audits): within the stated bound wherever it was measured with settings that are "
        "not refused, far beyond it with some that are; and with some replacements the one record "
        f"decided whether a fit converged and a release was made.{terms.outside}",
        "A mistake in the software: what was done to find mistakes is on its validation page.",
    )


def checklist(terms: Terms) -> Section:
    """What a person has to have seen to: nothing of it can be read from the settings."""
    blocks: list[Block] = [
        Text("What follows cannot be told from the settings. Whoever signs has seen to it."),
        Items(tuple(_points(terms)), boxes=True),
        Grid(
            "Signed by",
            ("Name", "Function", "Date", "Signature"),
            (("", "", "", ""),) * SIGNATURES,
            words=True,
        ),
    ]
    return Section("Checklist to sign", tuple(blocks))


def _points(terms: Terms) -> list[str]:
    facts = terms.facts
    design = facts.design
    currency = f"rho = {terms.rho:.4g}" if terms.strict else f"epsilon = {terms.epsilon:.4g}"
    columns = list(map(str, design.frame.columns))
    points = [
        f"A limit of this size ({currency}) is acceptable for these data; the worked examples were "
        "read. Decided by: ____________________",
        "The ledger of this survey was read: with this release it adds up to ____________, and "
        "that is within what was decided beforehand.",
        "Every release from the same survey is in that ledger, those of other machines and "
        "colleagues included; publications made without a guarantee were considered.",
    ]
    if columns:
        points.append(
            f"The columns {listed(columns)} may be public for every record, and so may it be known "
            "who is in the sample."
        )
    if design.by:
        points.append("The smallest cells listed above may be published with their sizes.")
    if terms.strict:
        points.append(
            "Centres, spreads and bounds come from other sources than these data: "
            "____________________"
        )
    points.append(
        "Model, formula, transforms, levels, tables and all other settings were chosen without "
        "looking at the confidential values, or it is written down what was looked at."
    )
    if terms.protected is None:
        points.append(
            "No person or household has several records, or the wider limit for several was "
            "accepted."
        )
    else:
        points.append(f"Units of {terms.protected!r} hold all records of a person or household.")
    if not terms.strict:
        points.append(
            "The publisher accepts an asymptotic guarantee, and says so wherever it is mentioned."
        )
    return [
        *points,
        *_allowed(terms),
        "The release was made without --seed on a machine that only the publisher controls, and "
        "nothing but the folder release/ leaves it.",
        "Survey file, confidential folder, logs and backups are under access control, and it is "
        "decided when they are deleted.",
        "Whether to publish was not decided by the comparison with the sample, or it is written "
        "down that it was.",
        "registry.json was completed (curator, intended use, region, date) and checked, if the "
        "release is to be registered.",
    ]


def _allowed(terms: Terms) -> list[str]:
    """What would have been refused or pooled and was let pass, where that had an effect."""
    points = {
        "small_strata": "Rows with few records per coefficient were left as they are",
        "shared_weights": "Weights that one record can set for all others were taken",
    }
    return [
        f"{point} ({key} = allow), outside of what is stated, and the reason is written down."
        for key, point in points.items()
        if key in terms.facts.statement.outside
    ]
