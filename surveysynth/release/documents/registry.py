"""registry.json: an entry for the registry of deployments of differential privacy.

``templates/registry.json.j2`` has its text, by the schema of the registry.
"""

import re
from typing import Any

from surveysynth._support.doctor import version_of
from surveysynth.release.documents.context import outside_sentence, shared_context
from surveysynth.release.documents.render import render_json
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.tables.labels import listed

TO_COMPLETE = "TO BE COMPLETED"


def registry_entry(facts: ReleaseFacts) -> dict[str, Any]:
    """Return the entry, JSON-ready, as a draft of the third tier.

    It is of the first tier, which registers nothing, without a guarantee or where settings take
    the release out of what is stated.
    """
    shared, titles = shared_context(facts), facts.labels.title
    claimed = shared["private"] and not facts.test
    context = {
        **shared,
        "slug": re.sub(r"[^a-z0-9]+", "-", facts.title.lower()).strip("-") or "release",
        "claimed": claimed,
        "tier": 3 if claimed and not shared["outside"] else 1,
        "to_complete": TO_COMPLETE,
        "outcomes": listed([titles(name) for name in facts.design.outcome_names]),
        "classifiers": listed([titles(name) for name in facts.spec.by]),
        "outside_sentence": outside_sentence(facts),
        "source": facts.spec.all_tables.source,
        "version": version_of("surveysynth"),
        "mechanism": facts.mechanism.name,
    }
    entry: dict[str, Any] = render_json("registry.json.j2", context)
    return entry
