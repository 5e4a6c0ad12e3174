"""The training process's own figures of a CUDA device, with a fake one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from autotune.metering import trial_meter
from autotune.metering.host import driver_version
from autotune.metering.trial_meter import Window
from autotune.metering.waiting import WaitingTime
from autotune.records.measurement import Measurement
from autotune.records.measuring import Measuring
from autotune.worker.device import cuda_device, device_uuid, limit_memory, outside_bytes
from autotune.worker.environment import describe_environment
from autotune.worker.garbage import uncollected
from autotune.worker.measuring.peaks import MemoryWatch
from autotune.worker.modes import measure
from autotune.worker.modes.measure import DeviceClock, make_meter
from tests.fakes.cuda import FakeCuda, FakeDevice

GIB = 2**30


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    monkeypatch.setattr(MemoryWatch, "latest", None)
    return FakeCuda(monkeypatch, FakeDevice(), FakeDevice())


def test_figures_are_those_of_the_device_that_is_trained_on(cuda: FakeCuda) -> None:
    watch = MemoryWatch(1)
    watch.begin()
    cuda[1].hold(3 * GIB, outside=GIB)
    clock = DeviceClock(1)
    clock.mark()

    peaks = watch.peaks()

    assert (peaks.allocated, peaks.reserved) == (3 * GIB, 3 * GIB)
    assert peaks.non_torch is None, "the device holds what other processes have as well"
    assert cuda.recorded_on == [1]
    assert describe_environment(1).device_name == "Fake 1"


def test_a_script_that_trains_on_the_cpu_has_its_figures_though_cuda_is_awake(cuda: FakeCuda) -> None:
    """An optimizer of torch 2.14 wakes CUDA in its first step wherever it trains."""
    cuda[0].hold(GIB)
    trial = measure.make_meter(Measuring(), fixed_length=True)
    trial.begin()

    peaks = trial.memory.peaks()

    assert (peaks.allocated, peaks.reserved) == (None, None)
    assert peaks.resident
    assert describe_environment(trains_on_cpu=True).device_kind == "cpu"


def test_threads_that_launch_the_devices_work_may_not_wait_for_a_processor(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, str]] = []
    monkeypatch.setattr(measure, "WaitingTime", lambda **options: made.append(options) or WaitingTime(**options))
    trial = measure.make_meter(Measuring(), fixed_length=True, device=1)
    trial.begin()
    while not trial.measuring_since_s:
        trial.step(Window(samples=8, calls=1), compiled=False)

    assert made == [{"launching": "pt_autograd_"}]


def test_a_device_is_known_by_the_first_tensor_on_one() -> None:
    class OnDevice:
        is_cuda, device = True, torch.device("cuda:1")

    assert cuda_device([torch.zeros(1), OnDevice(), torch.zeros(1)]) == 1  # type: ignore[list-item]
    assert cuda_device([torch.zeros(1)]) is None


def test_memory_on_a_second_device_is_said(cuda: FakeCuda) -> None:
    watch = MemoryWatch(1)
    watch.begin()
    assert watch.peaks()
    assert not any("cuda" in note for note in watch.notes)

    cuda[0].hold(GIB)
    watch.peaks()

    assert "peaks are those of cuda:1, but the process holds memory on cuda:0 as well" in watch.notes


def test_a_script_that_resets_the_peaks_does_not_lower_them(cuda: FakeCuda) -> None:
    watch = MemoryWatch(0)
    cuda[0].hold(9 * GIB)
    cuda[0].hold(GIB)
    watch.begin()
    cuda[0].hold(5 * GIB)
    cuda[0].hold(2 * GIB)
    torch.cuda.reset_peak_memory_stats()

    assert watch.peaks().allocated == watch.peaks().reserved == 5 * GIB

    second = MemoryWatch(0)
    second.begin()
    assert second.peaks().reserved == 2 * GIB


def test_an_allocation_that_failed_inside_a_library_is_a_note(cuda: FakeCuda) -> None:
    cuda[0].failures = 3
    watch = MemoryWatch(0)
    watch.begin()
    cuda[0].failures = 5

    watch.peaks()

    assert "the allocator ran out of memory 2 times, and training went on" in watch.notes


def test_what_the_allocator_freed_in_warm_up_is_told_and_not_counted(cuda: FakeCuda) -> None:
    cuda[1].retries = 5
    watch = MemoryWatch(1)
    watch.begin()
    cuda[1].retries = 8
    watch.measuring_begins()
    assert watch.allocator_retries() == 0
    cuda[1].retries = 10

    watch.peaks()

    assert watch.allocator_retries() == 2
    assert "the allocator had to free memory and try again 3 times in warm-up, which is not counted" in watch.notes


def test_step_times_are_read_without_waiting_for_the_device(cuda: FakeCuda) -> None:
    clock = DeviceClock()
    for now_s in (1.0, 1.5, 2.5, 4.5):
        cuda.now_s = now_s
        clock.mark()
    assert clock.step_times_s() == []
    cuda.done_s = 2.6
    assert clock.step_times_s() == pytest.approx([0.5, 1.0])
    assert clock.step_times_s() == pytest.approx([0.5, 1.0])
    assert not cuda.synchronized

    cuda.synchronize()
    assert clock.step_times_s() == pytest.approx([0.5, 1.0, 2.0])


def test_a_mark_in_another_stream_that_is_ahead_is_waited_for_by_none(cuda: FakeCuda) -> None:
    clock = DeviceClock()
    cuda.now_s = 9.0
    clock.mark()
    cuda.now_s = cuda.done_s = 1.0
    clock.mark()

    assert clock.step_times_s() == []


class Training:
    """A meter of a trial on the fake device, which falls behind the host by ``lag_s``, on a clock of the test's."""

    def __init__(
        self, cuda: FakeCuda, patch: pytest.MonkeyPatch, rules: Measuring, *, lag_s: float = 0.0, several: bool = False
    ) -> None:
        self.cuda, self.lag_s, self.now_s = cuda, lag_s, 100.0
        for name in ("perf_counter", "monotonic"):
            patch.setattr(trial_meter.time, name, lambda: self.now_s)
        self.meter = make_meter(rules, fixed_length=several, device=0)
        self.meter.begin()

    def step(self, seconds: float, *, compiled: bool = False) -> bool:
        self.now_s += seconds
        self.cuda.now_s, self.cuda.done_s = self.now_s, self.now_s - self.lag_s
        return self.meter.step(Window(samples=8, calls=1, batch_size=8), compiled=compiled)

    def until_done(self, seconds: float) -> int:
        steps = 1
        while not self.step(seconds):
            steps += 1
        return steps

    def measurement(self) -> Measurement:
        return self.meter.measurement(notes=[])


@pytest.fixture
def train(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Training]:
    def make(rules: Measuring | None = None, **options: Any) -> Training:
        return Training(cuda, monkeypatch, rules or Measuring(), **options)

    return make


def test_on_a_gpu_a_second_passes_before_steps_count_and_three_are_measured(train: Callable[..., Training]) -> None:
    training = train()
    training.step(30.0, compiled=True)
    training.until_done(0.01)
    found = training.measurement()
    assert sum(found.step_times_s) == pytest.approx(3.0, abs=0.02)
    assert found.warmup_s == pytest.approx(31.0, abs=0.02)
    assert found.warmup_steps + len(found.step_times_s) == training.meter.steps
    assert found.notes == ()


def test_on_a_gpu_twenty_steps_are_measured_where_there_is_time_for_them(train: Callable[..., Training]) -> None:
    training = train()
    training.until_done(0.3)
    assert len(training.measurement().step_times_s) == 20
    training = train()
    training.until_done(1.5)
    assert len(training.measurement().step_times_s) == 7, "ten seconds, and not thirty"


def test_a_graph_that_is_compiled_late_lets_the_gpu_cool_down(train: Callable[..., Training]) -> None:
    training = train()
    for _ in range(60):
        training.step(0.01)
    training.step(5.0, compiled=True)
    training.until_done(0.01)
    found = training.measurement()
    assert max(found.step_times_s) == pytest.approx(0.01)
    assert found.warmup_s == pytest.approx(0.6 + 5.0 + 1.0, abs=0.02)


def test_graphs_that_are_compiled_on_and_on_do_not_keep_a_trial_from_being_measured(
    train: Callable[..., Training],
) -> None:
    """Guards a trial that runs until its deadline, though its steps could be measured."""
    training = train()
    steps = 0
    while not training.step(0.1, compiled=steps % 9 == 0):
        steps += 1
        assert steps < 1000
    found = training.measurement()
    assert len(found.step_times_s) >= 20
    assert found.notes == ("12 steps compiled graphs after step times had settled, and later ones may",)


def test_a_trial_is_given_up_as_too_slow_only_when_the_gpu_is_warm(train: Callable[..., Training]) -> None:
    training = train(Measuring(rate_to_beat=10_000.0))
    training.until_done(0.01)
    found = training.measurement()
    assert found.warmup_s >= 1.0
    assert sum(found.step_times_s) == pytest.approx(0.25, abs=0.02)
    assert "too slow to be the answer" in found.notes[0]


def test_nothing_waits_for_the_gpu_while_steps_are_measured(train: Callable[..., Training], cuda: FakeCuda) -> None:
    training = train(Measuring(rate_to_beat=1.0), lag_s=0.05)
    while not training.meter.measured_steps:
        training.step(0.01)
    waited = cuda.synchronized
    training.until_done(0.01)
    assert cuda.synchronized == waited
    found = training.measurement()
    assert cuda.synchronized == waited + 1
    assert sum(found.step_times_s) == pytest.approx(3.0, abs=0.02), "those that were not done are not lost"


def test_a_gpu_that_has_done_no_step_yet_tells_nothing(train: Callable[..., Training]) -> None:
    training = train(Measuring(rate_to_beat=10_000.0), lag_s=1000.0)
    steps = training.until_done(0.01)
    assert training.measurement().step_times_s
    assert steps > 350, "neither too slow nor narrow enough before it has to end"


@pytest.mark.parametrize(("steps", "counted"), [(40, 38), (102, 100), (110, 10)])
def test_a_script_that_ends_before_the_gpu_is_warm_is_measured_by_the_steps_that_it_has(
    train: Callable[..., Training], steps: int, counted: int
) -> None:
    training = train()
    training.step(0.01, compiled=True)
    for _ in range(steps):
        training.step(0.01)
    training.meter.script_ended()
    found = training.measurement()
    assert len(found.step_times_s) == len(found.samples_per_step) == training.meter.measured_steps == counted
    assert found.warmup_s == pytest.approx(0.01 * (steps + 1 - counted))
    was_cold = "the script ended when the GPU had been at work for 1.0 s: its clocks may have been higher"
    assert any("at work" in note for note in found.notes) == (counted != 10), found.notes
    assert steps != 102 or was_cold in found.notes


def test_processes_that_train_together_on_gpus_measure_twenty_steps(train: Callable[..., Training]) -> None:
    training = train(several=True)
    assert training.until_done(0.001) == 4 + 20


def test_retries_of_the_allocator_count_from_the_first_measured_step(
    train: Callable[..., Training], cuda: FakeCuda
) -> None:
    training = train()
    training.step(0.01)
    cuda[0].retries = 3
    while training.meter.measuring_since_s == 0.0:
        training.step(0.01)
    cuda[0].retries = 4  # settled, and not warm
    training.until_done(0.01)
    found = training.measurement()
    assert found.allocator_retries == 0
    assert "the allocator had to free memory and try again 4 times in warm-up, which is not counted" in found.notes


def test_retries_count_in_the_steps_by_which_a_short_script_is_measured(
    train: Callable[..., Training], cuda: FakeCuda
) -> None:
    """Guards a trial at the limit that may win, as its script ended before the GPU was warm."""
    training = train()
    cuda[0].retries = 3  # before step times have settled
    while training.meter.measuring_since_s == 0.0:
        training.step(0.01)
    for _ in range(5):
        training.step(0.01)
    cuda[0].retries = 5
    for _ in range(95):
        training.step(0.01)  # by now the GPU is warm, and two steps are too few
    training.meter.script_ended()
    found = training.measurement()
    assert len(found.step_times_s) > 95
    assert found.allocator_retries == 2
    assert "the allocator had to free memory and try again 3 times in warm-up, which is not counted" in found.notes


def test_retries_before_the_gpu_was_warm_do_not_count_where_enough_steps_came_after(
    train: Callable[..., Training], cuda: FakeCuda
) -> None:
    training = train()
    while training.meter.measuring_since_s == 0.0:
        training.step(0.01)
    cuda[0].retries = 5
    for _ in range(105):
        training.step(0.01)
    training.meter.script_ended()
    found = training.measurement()
    assert 3 <= len(found.step_times_s) < 20
    assert found.allocator_retries == 0


def test_threads_that_waited_in_the_steps_of_a_short_script_contend_it(
    train: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([0.5, 0.0])  # since step times had settled, and since the GPU was warm

    class Waiting:
        def __init__(self, **_: object) -> None:
            self._share = next(waits)

        def shares(self) -> tuple[float, ...]:
            return (self._share,)

    monkeypatch.setattr(measure, "WaitingTime", Waiting)
    training = train()
    for _ in range(103):
        training.step(0.01)
    training.meter.script_ended()
    found = training.measurement()
    assert (found.contended, found.waited_share) == (True, 0.5)


def test_no_device_is_asked_for_the_name_of_the_cpu(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda[1].uuid = "ffc79498-8ff3-c2dc-3b0d-fafd804516ae"
    assert device_uuid(1) == "ffc79498-8ff3-c2dc-3b0d-fafd804516ae"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: pytest.fail("a device was touched"))
    assert device_uuid(None) == ""


OTHERS, CONTEXT = 30 * GIB, 2 * GIB
BEFORE = 80 * GIB - OTHERS


def limited(
    cuda: FakeCuda, *, free_before: int | None = BEFORE, usable_bytes: int | None = None, num_processes: int = 1
) -> float:
    """What torch's allocator may take of the second device under a limit of 40 GiB, in GiB."""
    cuda[1].hold(3 * GIB, outside=OTHERS + CONTEXT)
    outside = outside_bytes(1, free_before=free_before, usable_bytes=usable_bytes, num_processes=num_processes)
    limit_memory(40 * GIB, 1, outside_bytes=outside or 0)
    assert cuda[0].fraction is None
    return float(cuda[1].fraction * 80)


def test_what_the_run_holds_outside_the_allocator_comes_off_a_limit_and_what_others_hold_does_not(
    cuda: FakeCuda,
) -> None:
    assert limited(cuda) == pytest.approx(38)
    assert limited(cuda, num_processes=2) == pytest.approx(38)


def test_where_nvml_and_cuda_differ_in_what_there_is_it_is_no_part_of_what_the_run_holds(cuda: FakeCuda) -> None:
    for more in (-GIB, GIB):
        assert limited(cuda, free_before=BEFORE + more, usable_bytes=80 * GIB + more) == pytest.approx(38)


def test_nothing_comes_off_a_limit_where_it_could_be_anothers(cuda: FakeCuda) -> None:
    assert limited(cuda, free_before=None) == pytest.approx(40)
    assert limited(cuda, num_processes=3) == pytest.approx(40)


def test_others_that_have_gone_add_nothing_to_a_limit(cuda: FakeCuda) -> None:
    assert limited(cuda, free_before=BEFORE - 9 * GIB) == pytest.approx(40)


def test_others_that_come_before_the_first_step_do_not_take_the_limit_away(cuda: FakeCuda) -> None:
    assert limited(cuda, free_before=BEFORE + 25 * GIB) == pytest.approx(40 - 10)


@pytest.mark.parametrize("collects", [True, False], ids=["collecting", "not collecting"])
def test_garbage_is_looked_for_again_after_an_error_too_if_the_script_has_it_so(collects: bool) -> None:
    def fail() -> None:
        with uncollected():
            assert not gc.isenabled()
            raise ValueError("inside")

    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(ValueError, match="inside"):
            fail()
        assert gc.isenabled() is collects
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("first_line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root)", "580.95.05"),
        ("something else", None),
    ],
)
def test_the_driver_is_what_the_kernels_module_says(tmp_path, first_line, version):
    path = tmp_path / "version"
    path.write_text(f"{first_line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
    assert driver_version(path) == version
    assert driver_version(tmp_path / "none") is None
