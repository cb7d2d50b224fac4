"""From a specification file to a release folder: the one path that writes published files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surveysynth.errors import InputError
from surveysynth.estimation.clusters import clusters_of, refuse_clusters
from surveysynth.release.folder.bundle import Staging, plan_bundle, publish, staged
from surveysynth.release.folder.ledger import LedgerEntry, LedgerSummary, file_sha256, summarise
from surveysynth.release.tables.table import ReleaseTable, Statistic

if TYPE_CHECKING:
    from surveysynth.mechanisms.pseudo_posterior.run import ConfidentialFit, PrivateDraws
    from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
    from surveysynth.models.base import Model
    from surveysynth.release.facts import ReleaseFacts
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins; never with anything computed from the data."""


@dataclass(frozen=True)
class ReleaseResult:
    """Where the files are, the tables in them, and what the ledger adds up to (confidential)."""

    out: Path
    confidential: Path
    tables: Mapping[Statistic, list[ReleaseTable]]
    warnings: tuple[str, ...]
    ledger: LedgerSummary


def release(
    spec_path: str | Path,
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleaseResult:
    """Run the mechanism on a survey and write its private tables and microdata.

    Parameters
    ----------
    spec_path
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    confidential
        Where realised bounds, risk weights and the ledger go: ``out``/confidential by default.
        One folder for all runs on the same data keeps their epsilons in one ledger.
    seed
        Makes the run repeatable, which undoes its protection: every file then says that it is a
        test and not private. Without it, random numbers come from the operating system.
    progress
        Called with the name of each stage.

    Raises ``InputError`` for unusable input and existing targets, ``RefusedError`` when a release
    would not hold what it states. In either case, and on any other exception, nothing is written.
    """
    from surveysynth.mechanisms.pseudo_posterior import run
    from surveysynth.spec.build import engine_of, method_name, model_of, read_survey, settings_of
    from surveysynth.spec.spec import load_spec

    say = progress or (lambda stage: None)
    plan = plan_bundle(
        Path(out), None if confidential is None else Path(confidential), overwrite=overwrite
    )
    mechanism_rng, synthesis_rng = _streams(seed)
    spec = load_spec(spec_path)
    model, settings = engine_of(spec, model_of(spec)), settings_of(spec)
    if model.compiled:
        say("compiling the Stan program")
        model.prepare()
    say("reading the survey")
    survey = read_survey(spec)
    refuse_clusters(survey.design, model)
    facts = _facts(spec, survey.design, settings, model, test=seed is not None)
    entry = ledger_entry(spec, model=method_name(spec.synthesizer.model), test=facts.test)
    private, fit = run.run(
        model, survey.design, survey.confidential, settings, mechanism_rng, say
    )
    with staged(plan) as staging:
        tables = _write(facts, model, private, fit, staging, synthesis_rng, say)
        say("writing")
        entries = publish(plan, staging, entry)
    summary = summarise(entries, entry.data_sha256)
    return ReleaseResult(plan.out, plan.confidential, tables, facts.warnings, summary)


def _write(
    facts: "ReleaseFacts",
    model: "Model",
    private: "PrivateDraws",
    fit: "ConfidentialFit",
    staging: Staging,
    rng: np.random.Generator,
    say: Progress,
) -> Mapping[Statistic, list[ReleaseTable]]:
    """Synthesise, estimate each dataset as it streams by, and fill the temporary folders."""
    from surveysynth.estimation.estimates import Estimates
    from surveysynth.inference.published import datasets_of, published_draws
    from surveysynth.release import files
    from surveysynth.release.folder.microdata import MicrodataWriter

    debiased = published_draws(facts.spec, facts.design, model, private, rng, say)
    facts = facts.with_inference(debiased.record)
    say("synthetic data")
    estimates = Estimates(facts.spec, facts.design)
    writer = MicrodataWriter(facts.design, staging.release / "microdata", facts.microdata_format)
    for dataset in datasets_of(facts.spec, facts.design, model, debiased.draws, rng):
        estimates.add(dataset)
        writer.write(dataset)
    say("tables and documents")
    tables = estimates.tables()
    files.write_tables(facts, tables, staging.release / "tables")
    files.write_documents(
        facts, tables, model.title, staging.release, separate_pair=estimates.separate_pair
    )
    files.write_confidential(fit, facts.settings, staging.confidential, facts.microdata_format)
    return tables


def _facts(
    spec: "Spec",
    design: "PublicDesign",
    settings: "MechanismSettings",
    model: "Model",
    *,
    test: bool,
) -> "ReleaseFacts":
    from surveysynth.estimation.taylor import SampleDesign
    from surveysynth.mechanisms.pseudo_posterior.statement import privacy_statement
    from surveysynth.release.facts import ReleaseFacts, labels_of

    return ReleaseFacts(
        spec=spec,
        design=design,
        settings=settings,
        statement=privacy_statement(design, settings, model, test=test),
        labels=labels_of(spec),
        df_design=float(SampleDesign.from_public(design).degrees_of_freedom),
        test=test,
        clusters=clusters_of(design, model),
    )


def ledger_entry(spec: "Spec", *, model: str, test: bool, released: bool = True) -> LedgerEntry:
    """The record of one run of the mechanism; ``released`` is false for comparisons."""
    from surveysynth.release.documents.privacy_file import library_versions
    from surveysynth.spec.build import settings_of

    settings = settings_of(spec)
    return LedgerEntry(
        spec=spec.path.name,
        spec_sha256=file_sha256(spec.path),
        data_sha256=file_sha256(spec.data_path),
        model=model,
        epsilon=settings.epsilon if settings.private else None,
        m=settings.m,
        test=test,
        version=library_versions()["surveysynth"],
        released=released,
    )


def _streams(seed: int | None) -> tuple[np.random.Generator, np.random.Generator]:
    """Independent generators for the mechanism and the synthesis."""
    if seed is not None and seed < 0:
        raise InputError(f"the seed must be 0 or a positive whole number, got {seed}.")
    mechanism, synthesis = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(mechanism), np.random.default_rng(synthesis)
