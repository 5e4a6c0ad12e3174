"""What should fit, told from discovery alone, against landscapes that know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.records.outcome import Measured
from autotune.records.study import Fit, StudySpec
from autotune.report.sentences import fit_sentence
from autotune.report.tables import fit_table
from autotune.search.fit import fits_of
from autotune.search.space import build_space
from tests.fakes.landscape import MIB, Landscape, random_landscape


def fits(landscape: Landscape, *, batch_sizes: tuple[int, int] | None = None) -> tuple[Fit, ...]:
    outcome = landscape.measure(landscape.baseline)
    assert isinstance(outcome, Measured)
    space = build_space(landscape.facts, StudySpec(script="train.py", batch_sizes=batch_sizes))
    return fits_of(space, landscape.facts, outcome, landscape.limit_bytes)


@pytest.mark.parametrize("seed", range(12))
def test_what_should_fit_does(seed: int) -> None:
    landscape = replace(random_landscape(seed), noise_cv=0.0, ceiling_bytes=None)
    # A limit that the script itself meets, with something to spare.
    limited = replace(landscape, ceiling_bytes=int(1.4 * landscape.peak_bytes(landscape.baseline)))
    found = fits(limited)
    assert found
    assert sum(limited.fits(one.configuration) for one in found) >= 0.8 * len(found)
    for one in found:
        assert one.peak_bytes <= limited.limit_bytes
        true = limited.peak_bytes(one.configuration)
        assert abs(one.peak_bytes - true) <= 2.5 * one.peak_sd * one.peak_bytes + 0.02 * true, one


def test_deeper_plans_are_there_for_larger_batches() -> None:
    landscape = Landscape(noise_cv=0.0)
    found = fits(landscape)
    sizes = [one.configuration.batch_size for one in found]
    assert sizes == sorted(set(sizes))
    plans = [one.configuration.plans for one in found]
    assert plans[0] == ()
    assert len(set(plans)) == len(plans) > 2
    # What fits without plans is the largest size that does, as far as it is known to.
    assert found[0].peak_bytes > 0.8 * landscape.limit_bytes


def test_the_script_as_it_is_has_the_figures_of_discovery() -> None:
    landscape = Landscape(noise_cv=0.0)
    (only,) = (one for one in fits(landscape, batch_sizes=(16, 16)) if not one.configuration.plans)
    assert only.is_measured
    assert (only.samples_per_s, only.peak_bytes) == (
        pytest.approx(landscape.samples_per_s(landscape.baseline)),
        landscape.peak_bytes(landscape.baseline),
    )
    assert "measured" in fit_table([only]).rows[0]


def test_where_nothing_is_likely_to_fit_what_needs_least_is_told_with_its_chance() -> None:
    landscape = Landscape(noise_cv=0.0, ceiling_bytes=None)
    outcome = landscape.measure(landscape.baseline)
    assert isinstance(outcome, Measured)
    limit = 100 * MIB
    space = build_space(landscape.facts, StudySpec(script="train.py"), baseline_fits=False)
    found = fits_of(space, landscape.facts, outcome, limit)
    assert [one.configuration.batch_size for one in found] == [1, 2, 3], "down to 1 where the script does not fit"
    assert all(one.chance < 0.8 for one in found)
    sentence = fit_sentence(found, limit_bytes=limit)
    assert sentence.startswith("Nothing is likely to fit 100 MiB, but that is predicted, not measured.")
    low, high = found[0].peak_interval
    assert low < landscape.peak_bytes(found[0].configuration) < high
    assert fit_table(found).rows[0][5] == "1%", "what was not measured is never certain"


@pytest.mark.parametrize("seed", range(12))
def test_what_fits_is_among_what_is_told_or_has_a_chance(seed: int) -> None:
    landscape = replace(random_landscape(seed), noise_cv=0.0, ceiling_bytes=None)
    outcome = landscape.measure(landscape.baseline)
    assert isinstance(outcome, Measured)
    # All that is needed but for a sample or two.
    limit = landscape.fixed_bytes + 2 * landscape.activations_bytes
    space = build_space(landscape.facts, StudySpec(script="train.py"), baseline_fits=False)
    found = fits_of(space, landscape.facts, outcome, limit)
    fitting = [one for one in space.configurations() if landscape.peak_bytes(one) <= limit]
    assert fitting
    assert found
    assert found[0].configuration.batch_size <= max(one.batch_size for one in fitting)


def test_the_sentence_names_the_largest_batch_with_plans_and_without() -> None:
    found = fits(Landscape(noise_cv=0.0))
    sentence = fit_sentence(found, limit_bytes=2400 * MIB)
    assert sentence.startswith(f"Batch {found[-1].configuration.batch_size} should fit 2.34 GiB recomputing all Blocks")
    assert sentence.endswith(f"batch {found[0].configuration.batch_size} without.")
    assert (
        fit_sentence(found[:1], limit_bytes=2400 * MIB)
        == f"Batch {found[0].configuration.batch_size} should fit 2.34 GiB without plans."
    )


def test_a_script_whose_batch_size_stays_is_told_at_its_own() -> None:
    limit_bytes = 2400 * MIB
    found = [
        replace(one, configuration=replace(one.configuration, batch_size=None)) for one in fits(Landscape(noise_cv=0.0))
    ]
    plain = [one for one in found if not one.configuration.recomputed]
    assert fit_sentence(plain[:1], limit_bytes=limit_bytes) == (
        "The script should fit 2.34 GiB as it is, at its own batch size."
    )
    assert "should fit 2.34 GiB recomputing" in fit_sentence(found, limit_bytes=limit_bytes)


def test_where_there_is_nothing_to_try_it_is_said() -> None:
    assert fit_sentence((), limit_bytes=MIB).endswith("and that does not fit 1 MiB.")
