"""When FBS and FBP take the general form, its groups, and its sufficient statistics: sums over
records, and the same from moments of blocks."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.models.general_location.groups import covariance_groups
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.records import GeneralRecords
from surveysynth.models.general_location.stats import BlockMoments, regression_from_moments
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    BY,
    GAIN,
    INCOME,
    TAX,
    WORK,
    confidential_of,
    draw,
    general_design,
    model_for,
    random_theta,
)


def records_and_weights(by: tuple[str, ...] = BY) -> tuple[GeneralRecords, np.ndarray]:
    design, model = general_design(400, (*ALL, TAX, GAIN)), model_for(by)
    theta = draw(random_theta(model, design, 1), 0)
    rng = np.random.default_rng(2)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    return model.records(design, survey), rng.random(400)


def test_continuous_outcomes_without_groups_keep_the_papers_models() -> None:
    design = general_design(300, (INCOME,))
    for name in ("fbs", "fbp", "normal"):
        model = get_model(name)
        assert model.of(design) is model


def test_the_general_form_is_taken_where_it_is_needed() -> None:
    design = general_design(600, (INCOME,))
    bounded = Outcome("income", upper=4.0)
    for name in ("fbs", "fbp"):
        for model, of in (
            (get_model(name), replace(design, outcomes=(BENEFIT,))),
            (get_model(name), replace(design, outcomes=(bounded,))),
            (get_model(name, covariance_by=["region"]), design),
        ):
            general = model.of(of)
            assert general is not model
            assert (general.name, general.tilted) == (name, name == "fbp")
            assert "general location" in general.title
            assert general.of(of) is general
    # Unasked, groups come with what needs the general form anyway.
    unasked = get_model("fbs", covariance_by=None)
    assert unasked.of(design) is unasked
    assert unasked.of(replace(design, outcomes=(BENEFIT,))).covariance_by == BY
    # One group is none; and PSUs with effects have none unless asked for.
    one = general_design(60, (INCOME,), regions=2)
    assert get_model("fbs", covariance_by=["region"]).of(one).name == "fbs"
    clustered = replace(design, psu=np.arange(600) // 10, psu_name="psu")
    assert unasked.of(clustered) is unasked
    grouped = get_model("fbs", covariance_by=["region"])
    assert grouped.of(replace(clustered, design_effect=2.0)) is not grouped
    with pytest.raises(InputError, match=r"no effects of primary sampling units.*design_effect"):
        get_model("fbs", covariance_by=["region"]).of(clustered)


def test_a_layout_without_a_split_is_what_it_was() -> None:
    """A column of z for each amount, there in category 0, after all before it: with the same
    columns in the same order the same random numbers give the same draws, to the bit."""
    layout = Layout.of(general_design(60, ALL), True)
    assert [part.name for part in layout.regressions] == ["1", "3", "5", "weight"]
    category = np.random.default_rng(1).integers(0, 2, (50, 5))
    category[:, 2] = 0
    there = layout.present(category)
    np.testing.assert_array_equal(there[:, 3], True)
    for part, j in zip(layout.regressions, (0, 2, 4), strict=False):
        np.testing.assert_array_equal(part.earlier, np.arange(part.position))
        np.testing.assert_array_equal(there[:, part.position], category[:, j] == 0)
    # With one, above and below are columns of their own, neither of which explains the other.
    split = Layout.of(general_design(60, (INCOME, TAX, BENEFIT)), True)
    assert [part.name for part in split.regressions] == ["1", "2", "2_below", "3", "weight"]
    assert [part.earlier.tolist() for part in split.regressions] == [
        [], [0], [0], [0, 1, 2], [0, 1, 2, 3],
    ]  # fmt: skip
    category = np.array([[0, 0, 0], [0, 1, 0], [0, 2, 1]])
    np.testing.assert_array_equal(
        split.present(category), [[1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1, 0, 0, 0, 1]]
    )
    x, ones = np.ones((3, split.columns)), np.eye(split.width)[0]
    tilde = split.tilde(x, category)
    told = np.column_stack([tilde @ split.presence(position, ones) for position in range(5)])
    np.testing.assert_array_equal(told, split.present(category))


def test_at_full_weight_both_parts_are_those_of_the_records() -> None:
    """Coefficients of a side are its own records' least squares, by hand; of both sides pooled
    they are not."""
    design, model = general_design(1_500, (TAX,)), model_for(residual_scale=1.0)
    theta = draw(random_theta(model, design, 1), 0)
    for name, centre in (("1", 2.0), ("1_below", 0.5)):
        theta[f"coefficients_{name}"][0] = centre
        theta[f"variance_{name}"][:] = 0.2
    rng = np.random.default_rng(5)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    statistics = model.compress(model.records(design, survey), np.ones(1_500))
    drawn = model.sample(statistics, SamplingPlan(4, 50, 150), rng)
    x, tax = design.matrix.x_cells[design.matrix.cell], survey.outcome[:, 0]
    pooled = np.linalg.lstsq(x[tax != 0], np.abs(tax[tax != 0]), rcond=None)[0]
    for name, sign in (("1", 1.0), ("1_below", -1.0)):
        own, z = x[sign * tax > 0], sign * tax[sign * tax > 0]
        fit = np.linalg.lstsq(own, z, rcond=None)[0]
        spread = np.sqrt(((z - own @ fit) ** 2).mean())
        error = spread * np.sqrt(np.diag(np.linalg.inv(own.T @ own)))
        found = drawn[f"coefficients_{name}"][0].reshape(600, -1)
        assert (np.abs(found.mean(0) - fit) < 0.3 * error).all()
        np.testing.assert_allclose(found.std(0), error, rtol=0.2)
        assert np.abs(pooled - fit).max() > 5.0 * error.max()


def test_other_models_refuse_discrete_outcomes_by_name() -> None:
    design = general_design(100, (WORK,))
    survey = confidential_of(design, model_for().simulate(
        draw(random_theta(model_for(), design, 1), 0), design, np.random.default_rng(1)
    ))  # fmt: skip
    with pytest.raises(InputError, match="'work' is categorical: use the model 'fbs' or 'fbp'"):
        get_model("normal").records(design, survey)
    with pytest.raises(InputError, match="takes one outcome"):
        get_model("fbp").of(general_design(100, (WORK, INCOME)))


def test_small_groups_are_pooled_by_their_margins() -> None:
    design = general_design(1_000, (INCOME,), regions=5)
    names = list(zip(design.frame["region"], design.frame["sex"], strict=True))
    sizes = {pair: names.count(pair) for pair in set(names)}
    for least in (1, 40, 120, 5_000):
        groups = covariance_groups(design, BY, least)
        of_record = groups.cell[design.matrix.cell]
        counts = np.bincount(of_record)
        assert counts.size == groups.count
        assert counts.min() >= min(least, 1_000)
        for pair, size in sizes.items():
            rows = [each == pair for each in names]
            assert len(set(of_record[rows])) == 1
            if size >= least:
                assert groups.labels[of_record[rows][0]] == pair
        pooled = [label for label in groups.labels if len(label) == 1]
        small = {pair[0] for pair, size in sizes.items() if size < least}
        assert {label[0] for label in pooled} <= small
    assert covariance_groups(design, ()).count == 1
    with pytest.raises(InputError, match=r"'regoin' is not among.*Did you mean 'region'"):
        covariance_groups(design, ["regoin"])
    frame = design.frame.assign(other=np.arange(1_000) % 2)
    with pytest.raises(InputError, match="records with equal predictors"):
        covariance_groups(replace(design, frame=frame), ["other"])


def test_statistics_are_sums_over_records() -> None:
    records, alpha = records_and_weights()
    model = model_for(BY)
    statistics = model.compress(records, alpha)
    x_rows, group = records.x_rows[records.row], records.row_group[records.row]
    present = records.present[records.row]
    for part, sums in zip(records.layout.regressions, statistics.regressions, strict=True):
        u = np.column_stack([x_rows[:, part.columns], records.z[:, part.earlier]])
        own = present[:, part.position]
        rest = records.z[:, part.position] - u @ sums.fit[0]
        for g in range(records.groups):
            weight = alpha * own * (group == g)
            np.testing.assert_allclose(sums.total[0, g], weight.sum())
            np.testing.assert_allclose(sums.gram[0, g], (u.T * weight) @ u, atol=1e-9)
            np.testing.assert_allclose(sums.cross[0, g], u.T @ (weight * rest), atol=1e-9)
            np.testing.assert_allclose(sums.residual[0, g], weight @ rest**2)
        # The fit is that of least squares over all groups.
        np.testing.assert_allclose(sums.cross[0].sum(0), 0.0, atol=1e-8)
    for part, table, counts in zip(
        records.layout.logits, records.tables, statistics.logits, strict=True
    ):
        rows, code = x_rows[:, part.columns], records.category[:, part.outcome]
        assert np.unique(table.rows, axis=0).shape == table.rows.shape
        for row, found in zip(table.rows, counts.counts[0], strict=True):
            here = (rows == row).all(1)
            expected = [alpha[here & (code == c)].sum() for c in range(part.categories)]
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_record_of_weight_two_is_a_record_twice() -> None:
    records, alpha = records_and_weights()
    twice = np.repeat(np.arange(400), 2)
    doubled = GeneralRecords(
        records.layout, records.x_cells, records.cell[twice], records.category[twice],
        records.z[twice], records.group_of_cell, records.groups,
    )  # fmt: skip
    model = model_for(BY)
    one, two = model.compress(records, alpha), model.compress(doubled, alpha[twice] / 2)
    for first, second in zip(one.regressions, two.regressions, strict=True):
        np.testing.assert_allclose(first.gram, second.gram, atol=1e-9)
        np.testing.assert_allclose(first.residual, second.residual)


@pytest.mark.parametrize("centre", [0.0, 1.7])
def test_moments_of_blocks_give_the_same_regressions(centre: float) -> None:
    """Of Z about a declared centre, absent columns zero: what noisy statistics have."""
    records, alpha = records_and_weights()
    statistics = model_for(BY).compress(records, alpha)
    layout, q = records.layout, records.z.shape[1]
    shift = centre * np.arange(1.0, q + 1.0)
    blocks = records.blocks
    size = (1, len(blocks), layout.width)
    total, gram = np.zeros(size[:2]), np.zeros((*size, layout.width))
    cross, scatter = np.zeros((*size, q)), np.zeros((1, len(blocks), q, q))
    present = np.zeros((len(blocks), q), dtype=bool)
    for b, block in enumerate(blocks):
        x, weight = records.x_rows[records.row[block.index]], alpha[block.index, None]
        present[b, block.columns] = True
        z = np.where(present[b], records.z[block.index] - shift, 0.0)
        total[0, b], gram[0, b] = weight.sum(), (x * weight).T @ x
        cross[0, b], scatter[0, b] = (x * weight).T @ z, (z * weight).T @ z
    group = np.array([block.group for block in blocks])
    ones = np.eye(layout.width)[0]  # the intercept
    moments = BlockMoments(group, present, total, gram, cross, scatter).recentred(shift, ones)
    for part, sums in zip(layout.regressions, statistics.regressions, strict=True):
        found = regression_from_moments(part, moments, records.groups)
        slopes = np.zeros((1, records.groups, 0))
        core = sums.fit + np.linspace(-1.0, 1.0, part.width)
        np.testing.assert_allclose(found.gram, sums.gram, atol=1e-9)
        np.testing.assert_allclose(
            found.squares(core, slopes), sums.squares(core, slopes), rtol=1e-8
        )
