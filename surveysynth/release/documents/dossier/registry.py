"""registry.json: an entry for the registry of deployments of differential privacy.

The fields are those of the registry's schema (github.com/opendp/deployments-registry-data,
schemas/deployments-schema.yaml, July 2026), which allows no others. What settings cannot tell says
that it is to be completed; the date is the one that the registry's own template has in its place.
"""

import re
from typing import Any

from surveysynth._support.doctor import version_of
from surveysynth.release.documents.dossier.terms import Terms
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.tables.labels import listed

TO_COMPLETE = "TO BE COMPLETED"
#: What the template of the registry has where a date is to be filled in.
NO_DATE = "1900-01-01"


def registry_entry(facts: ReleaseFacts) -> dict[str, Any]:
    """The entry, JSON-ready: a draft of the third tier; without a guarantee one of the first, which
    says that there is nothing to register, as does one outside of what is stated."""
    terms = Terms(facts)
    claimed = terms.private and not facts.test
    return {
        "url_slug": _slug(facts.title),
        "status": "Draft",
        "tier": 3 if claimed and not terms.outside else 1,
        "deployment": {
            "basic": _basic(terms),
            **(_guarantee(terms) if claimed else {}),
            "administrative": {
                "sources": facts.spec.all_tables.source or TO_COMPLETE,
                "notes": _notes(facts),
                "registry_authors": [TO_COMPLETE],
            },
        },
    }


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "release"


def _notes(facts: ReleaseFacts) -> str:
    todo = (
        "Drafted by surveysynth from the settings of the release. To be completed: data_curators, "
        "intended_use, data_product_region, publication_date, registry_authors."
    )
    return " ".join((*facts.warnings, todo))


def _basic(terms: Terms) -> dict[str, Any]:
    facts = terms.facts
    outcomes = listed([facts.labels.title(name) for name in facts.design.outcome_names])
    by = listed([facts.labels.title(name) for name in facts.spec.by])
    return {
        "name": facts.title,
        "data_curators": [TO_COMPLETE],
        "intended_use": TO_COMPLETE,
        "data_product_type": "Synthetic data",
        "data_product_region": TO_COMPLETE,
        "description": f"Tables of {outcomes}{f' by {by}' if by else ''} with standard errors, and "
        f"the synthetic survey microdata that they come from ({facts.design.n:,} records a file).",
        "publication_date": NO_DATE,
    }


def _guarantee(terms: Terms) -> dict[str, Any]:
    return {
        "dp_variant": _variant(terms),
        "privacy_loss": _loss(terms),
        "deployment_model": {
            "model_name": "Central",
            "actors": "The publisher holds the survey, runs the mechanism and is trusted; readers "
            "of the release are not.",
            "release_type": "One release",
            "release_type_details": "Further releases from the same survey add up in a ledger that "
            "the publisher keeps.",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": _accounting(terms),
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _tuning(terms),
            "mechanisms": f"surveysynth {version_of('surveysynth')}, mechanism "
            f"{terms.facts.mechanism.name}. {_protected_against(terms)}",
            "justification": TO_COMPLETE,
        },
    }


def _tuning(terms: Terms) -> str:
    found = (
        ""
        if terms.strict
        else " Risk weights are found on the confidential data to reach the target; epsilon does "
        "not cover that search."
    )
    return (
        "Settings are in the specification; whether they were chosen without a look at the data "
        f"is for the publisher to say. See dossier.md for what is declared.{found}"
    )


def _variant(terms: Terms) -> dict[str, str]:
    design = terms.facts.design
    public = listed(list(map(str, design.frame.columns))) or "none"
    return {
        "variant_name": "Zero-concentrated DP" if terms.strict else "Custom",
        "data_domain": f"Survey files of {design.n:,} records with the same public columns and any "
        f"valid values of {terms.values}.",
        "unprotected_quantities": f"Membership in the sample, public columns ({public}) and "
        "unweighted numbers of records.",
    }


def _loss(terms: Terms) -> dict[str, Any]:
    if terms.strict:
        parameters = {"epsilon": terms.epsilon, "delta": terms.delta, "rho": terms.rho}
        details = "rho is the guarantee; epsilon is what it implies at this delta."
    else:
        parameters = {"epsilon": terms.epsilon}
        details = (
            "Asymptotic differential privacy of a risk-weighted pseudo-posterior: the bound was "
            "found on the confidential data over a limited number of draws and contracts onto a "
            "global one as records per coefficient grow. Not a guarantee at any finite "
            f"number.{terms.outside}"
        )
    return {
        "privacy_unit": "Record" if terms.protected is None else f"Unit of {terms.protected}",
        "privacy_unit_details": "Bounded neighbours: the confidential values of "
        f"{terms.unit} are replaced ({terms.values}); all else stays the same.",
        "privacy_parameters": parameters,
        "privacy_parameters_details": details,
    }


def _accounting(terms: Terms) -> dict[str, str]:
    m = terms.facts.settings.m
    if terms.strict:
        return {
            "post_processing": f"Bayesian posterior given the noisy statistics, {m} draws, "
            "synthetic data, tables with intervals.",
            "composition": "One set of noisy statistics; rhos of further releases add up.",
        }
    return {
        "post_processing": "Synthetic data and tables are computed from the released draws.",
        "composition": f"epsilon is that of {m} draws together, equal shares each; epsilons of "
        "further releases add up.",
    }


def _protected_against(terms: Terms) -> str:
    if terms.strict:
        return (
            "Discrete Gaussian noise on clipped sufficient statistics in whole numbers, by the "
            "exact sampler of Canonne, Kamath and Steinke (2020), from the operating system's "
            "generator: no floating-point noise. Not interactive; timing is not covered."
        )
    return (
        "Draws of a pseudo-posterior whose records are weighted down. Synthetic values are rounded "
        "to a public number of digits; floating-point draws were not analysed. Not interactive; "
        "timing is not covered."
    )
