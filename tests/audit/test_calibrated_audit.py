"""Answers replaced and weights calibrated again. Truth: post-stratification and the distance of the
statistics written out; a calibration that leaves the others alone, which the control must miss."""

import math

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics as mechanism
from surveysynth.survey.survey import Confidential
from tests.audit import calibrated as audit
from tests.audit.__main__ import main
from tests.audit.calibrated import AFTER, BEFORE, Calibrator, calibration_lines
from tests.audit.cases import CALIBRATED, EXAMPLES
from tests.audit.neighbours import changes_for
from tests.audit.noise import noise_of, published
from tests.audit.runs import lines_of
from tests.surveys import good, spec_text, write_survey

PLAIN, KINDS = CALIBRATED
STRICT = spec_text(
    survey='population_size = 100000\nstrata = "field"',
    synthesizer='model = "fbs"\n[outcomes.salary]\ncentre = 22000\nspread = 0.5',
    privacy='mechanism = "noisy_statistics"\nepsilon = 3\ndelta = 1e-6',
)


def calibrator_of(case):
    design, settings = case.survey.design, case.mechanism.settings
    clipping = settings.clipping(design)
    return Calibrator.of(design, case.survey.confidential, clipping.centre, clipping.spread)


@pytest.mark.parametrize("example", CALIBRATED, ids=lambda each: each.name)
@pytest.mark.parametrize("n", [150, 400])
def test_calibrated_weights_going_in_break_the_bound_and_base_weights_keep_it(example, n):
    before, after = lines_of(example.case(n, 3), 3)
    assert (before.record, before.verdict) == (BEFORE, "fires")
    assert before.ratio > 1.0
    assert (after.record, after.verdict) == (AFTER, "holds")
    assert 0.99 < after.ratio <= 1.0


def test_the_control_misses_a_calibration_that_moves_nobody_else(monkeypatch, tmp_path, capsys):
    """Weights that do not follow the answer keep the bound: the test would say nothing."""
    monkeypatch.setattr(Calibrator, "again", lambda self, confidential: confidential)
    before, after = lines_of(PLAIN.case(150, 3), 3)
    assert before.verdict == "missed"
    assert before.ratio == after.ratio
    assert "the others by 0.00" in before.reason
    out = tmp_path / "audit"
    assert main(["--out", str(out), "--case", PLAIN.name, "--n", "150"]) == 3
    assert "1 planted violations were not found" in capsys.readouterr().err


def test_calibration_is_post_stratification_by_hand():
    case = KINDS.case(200, 3)
    calibrator, given = calibrator_of(case), case.survey.confidential
    column = [each.is_discrete for each in case.survey.design.outcomes].index(True)
    outcome = case.survey.design.outcomes[column]
    level = outcome.category(given.outcome[:, column])
    values = given.outcome.copy()
    values[5, column] = values[np.flatnonzero(level != level[5])[0], column]
    changed = outcome.category(values[:, column])
    totals = np.bincount(level, given.sampling_weight)
    factor = totals / np.bincount(changed, given.sampling_weight)
    made = calibrator.again(Confidential(values, given.sampling_weight))
    assert np.allclose(made.sampling_weight, given.sampling_weight * factor[changed], rtol=1e-9)
    same = calibrator.again(given)
    assert np.allclose(same.sampling_weight, given.sampling_weight, rtol=1e-9)
    with pytest.raises(InputError, match="class without records"):
        calibrator.again(Confidential(np.full_like(values, values[0]), given.sampling_weight))


def test_what_others_move_is_the_distance_of_the_formula():
    """sum a_i (v_i - u_i)' and sum (v_i v_i' - u_i u_i') over the noise, of u and v written out.

    Noise on squares has a quarter of the variance that would make them cost nothing: 6.25 R^2.
    """
    case = PLAIN.case(200, 3)
    design, settings = case.survey.design, case.mechanism.settings
    given, calibrator = case.survey.confidential, calibrator_of(case)
    record = int(np.argmax(given.sampling_weight))
    values = given.outcome.copy()
    values[record] *= 3.0
    again = calibrator.again(Confidential(values, given.sampling_weight))
    others = audit._others(given, again, np.array([record]))
    noise = noise_of(case.model, design, given, settings, np.random.default_rng(2))
    found = noise.distance(
        published(case.model, design, given, settings),
        published(case.model, design, others, settings),
    )
    clipping = settings.clipping(design)

    def clipped(confidential):
        z = np.log(np.column_stack([confidential.outcome[:, 0], confidential.sampling_weight]))
        u = (z - clipping.centre) / clipping.spread
        return u * np.minimum(1.0, clipping.radius / np.linalg.norm(u, axis=1))[:, None]

    u, v = clipped(given), clipped(others)
    (block,) = mechanism.location_design(case.model, design, settings).blocks
    rows = design.matrix.x_cells[design.matrix.cell] @ block.noise.basis
    squares = np.linalg.norm(v.T @ v - u.T @ u) ** 2 / (2 * clipping.radius**2)
    moved = math.sqrt(np.linalg.norm(rows.T @ (v - u)) ** 2 + 4 * squares)
    distance = moved / (2.5 * clipping.radius)
    assert found == pytest.approx(distance, rel=1e-3)
    assert found > 0.1


def test_public_weights_have_nothing_to_calibrate_again():
    public = next(each for each in EXAMPLES if each.name == "fbs, public weights, noisy statistics")
    case = public.case(150, 3)
    (line,) = calibration_lines(case, changes_for(case.survey.design), 1)
    assert line.verdict == "skipped"


def test_a_specification_is_tested_with_weights_that_are_calibrated_again(tmp_path, capsys):
    spec = write_survey(tmp_path / "in", good(n=400), STRICT)
    assert main(["--spec", str(spec), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "spec.toml, calibrated again, n = 400" in told
    assert "fires; calibrated weights go in" in told
    assert "one answer moves the others by" in told
    assert "1 fires" in (tmp_path / "out" / "audit.md").read_text()
