"""Several ranks, one outcome."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.launch.result_log import ResultLog, merge
from autotune.records.measurement import Measurement, Peaks
from autotune.records.outcome import Died, Measured, OutOfMemory, ScriptError
from autotune.records.run import STARTER_RANK, Ended, Result
from tests.fakes.worker_side import ENVIRONMENT, measured


def _merged(*ranks: Measured) -> Measurement:
    outcome = merge(dict(enumerate(ranks)))
    assert isinstance(outcome, Measured)
    return outcome.measurement


def test_one_rank_stays_as_it_is() -> None:
    only = measured(0.1, 0.2)

    assert merge({0: only}) == only


def test_a_step_lasts_as_long_as_on_its_slowest_rank_and_takes_the_samples_of_all() -> None:
    merged = _merged(measured(0.1, 0.4, 0.1), measured(0.2, 0.3))

    assert merged.step_times_s == (0.2, 0.4)
    assert merged.samples_per_step == (16, 16)
    assert merged.num_processes == 2


def test_the_allocators_peaks_are_the_fullest_devices_and_the_resident_set_is_the_sum() -> None:
    low = Peaks(allocated=9, reserved=3, resident=5)
    high = Peaks(allocated=2, reserved=8, resident=6)

    merged = _merged(measured(peaks=low), measured(peaks=high))

    assert merged.peaks == Peaks(allocated=9, reserved=8, resident=11)
    assert merged.rank_peaks == (low, high)
    assert merged.notes == ()


def test_the_allocators_peaks_of_ranks_that_share_a_device_are_added_up() -> None:
    ranks = {rank: measured(peaks=Peaks(allocated=size, reserved=2 * size)) for rank, size in enumerate((3, 4, 5))}

    outcome = merge(ranks, {0: "aa", 1: "aa", 2: "bb"})

    assert isinstance(outcome, Measured)
    assert outcome.measurement.peaks == Peaks(allocated=7, reserved=14)
    assert outcome.measurement.notes == ("2 ranks share a GPU: torch's peaks there are added up, an upper bound",)


def test_ranks_on_the_cpu_share_no_device() -> None:
    ranks = {rank: measured(peaks=Peaks(resident=3)) for rank in range(2)}

    assert merge(ranks, {0: "", 1: ""}) == merge(ranks)


def test_a_figure_that_no_rank_has_stays_unknown() -> None:
    assert _merged(measured(peaks=Peaks()), measured(peaks=Peaks())).peaks == Peaks()


def test_what_is_doubtful_on_one_rank_is_doubtful() -> None:
    merged = _merged(
        measured(notes=("a",), allocator_retries=1, nonfinite_loss=True),
        measured(notes=("b", "a"), allocator_retries=2, contended=True, waited_share=0.5, samples_are_guessed=True),
    )

    assert (merged.nonfinite_loss, merged.contended, merged.samples_are_guessed) == (True, True, True)
    assert merged.allocator_retries == 3
    assert merged.waited_share == 0.5
    assert merged.notes == ("a", "b")


def test_any_failure_is_the_trials_failure_and_the_first_that_was_written_is_its_cause() -> None:
    cause, consequence = OutOfMemory("no room"), ScriptError("connection closed by peer")

    assert merge({2: cause, 1: consequence, 0: measured()}) is cause


def test_what_started_the_ranks_is_none_of_them() -> None:
    result_log = ResultLog()
    result_log.num_processes = 2
    result_log.add(Result(0, ScriptError("process 1 ended"), ENVIRONMENT, process=1, rank=STARTER_RANK))
    result_log.add(Ended(1, STARTER_RANK, "the script raised an exception"))
    result_log.add(Ended(2, 0, "done"))

    assert not result_log.has(0)
    assert not result_log.ended
    assert result_log.environment is None
    assert result_log.starter_failure == ScriptError("process 1 ended")


def test_an_outcome_is_complete_when_every_rank_has_written_its_own() -> None:
    result_log = ResultLog()
    result_log.num_processes = 2

    result_log.add(Result(0, measured(0.1), None, process=1, rank=0))
    assert result_log.outcome(0) is None

    result_log.add(Result(0, measured(0.3), None, process=2, rank=1))
    assert result_log.outcome(0) == merge({0: measured(0.1), 1: measured(0.3)})


def test_of_two_results_of_a_rank_the_first_counts() -> None:
    result_log = ResultLog()

    result_log.add(Result(0, measured(0.1), None, process=1))
    result_log.add(Result(0, Died("later"), None, process=1))

    assert result_log.outcome(0) == measured(0.1)


def test_the_environment_is_the_lowest_ranks() -> None:
    result_log = ResultLog()
    for rank in (2, 0, 1):
        result_log.add(Result(0, measured(), dataclasses.replace(ENVIRONMENT, hostname=f"host{rank}"), rank, rank))

    assert result_log.environment is not None
    assert result_log.environment.hostname == "host0"


@pytest.mark.parametrize(("ranks", "ended"), [((0,), False), ((0, 0), False), ((0, 1), True)])
def test_a_run_has_ended_when_every_rank_says_so(ranks: tuple[int, ...], ended: bool) -> None:
    result_log = ResultLog()
    result_log.num_processes = 2
    for rank in ranks:
        result_log.add(Ended(rank, rank, "done"))

    assert result_log.ended is ended
