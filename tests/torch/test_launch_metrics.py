"""The metrics of a launched training process: what its mode counts and reads for them."""

from __future__ import annotations

import multiprocessing.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from autotune.records.metrics import RunMetrics
from autotune.worker.measuring.peaks import MemoryWatch
from tests.fakes.cuda import FakeCuda, FakeDevice
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.training_process import TrainingProcess, train

Ends = list[Callable[[], None]]


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """What is to be called at the end of the process, which this one is not."""
    called: Ends = []
    monkeypatch.setattr(multiprocessing.util, "Finalize", lambda _, act, **__: called.append(act))
    monkeypatch.setattr(MemoryWatch, "latest", None)
    return called


def launched(folder: Path, **options: object) -> TrainingProcess:
    metrics = RunMetrics(str(folder / "run.prom"), {}, None, 1000)
    return TrainingProcess(folder, mode="launch", metrics=metrics, **options)  # type: ignore[arg-type]


def written(folder: Path) -> dict[str, float]:
    families = text_string_to_metric_families((folder / "run.prom").read_text())
    samples = [sample for family in families for sample in family.samples]
    return {one.labels.get("kind", one.name.removeprefix("autotune_launch_")): one.value for one in samples}


def test_steps_and_samples_are_those_of_the_script(tmp_path: Path, ends: Ends) -> None:
    launched(tmp_path)
    train(steps=5)
    (end,) = ends
    end()
    found = written(tmp_path)
    assert (found["steps_total"], found["samples_total"], found["processes"]) == (5, 40, 1)
    assert "device" not in found


def test_only_the_first_rank_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Ends) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    launched(tmp_path)
    train(steps=5)
    assert not ends
    assert not (tmp_path / "run.prom").exists()


def test_the_device_s_peak_is_the_highest_seen_of_what_the_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Ends
) -> None:
    others, context = 100, 40
    cuda = FakeCuda(monkeypatch, FakeDevice(total=1000, used=others + context, uuid="first"))
    monkeypatch.setattr("autotune.worker.process.cuda_device", lambda _: 0)
    launched(tmp_path, free_bytes={"first": 1000 - others})
    cuda[0].hold(500, outside=others + context)
    train(steps=1)
    cuda[0].hold(700, outside=others + context)  # between two looks
    cuda[0].hold(300, outside=others + context)
    torch.cuda.reset_peak_memory_stats(0)  # by the script
    (end,) = ends
    end()
    found = written(tmp_path)
    assert found["device"] == 500 + context
    assert found["allocated"] == found["reserved"] == 700


def test_without_the_option_nothing_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Ends) -> None:
    FakeCuda(monkeypatch, FakeDevice())
    TrainingProcess(tmp_path, mode="launch")
    train(steps=2)
    assert not ends
    assert MemoryWatch.latest is None
