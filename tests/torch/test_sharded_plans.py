"""Plans inside of modules that are sharded over processes: here over one, and over several where it is slow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from autotune.worker.measuring.memory_split import memory_split
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.sharded import KINDS, check, check_peaks

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning"),
]


@pytest.fixture
def _one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with clean_torch(), restored_torch():
            yield
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("_one_process")
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_share_a_graph_are_told_apart(kind: str) -> None:
    check(kind)


@pytest.mark.usefixtures("_one_process")
@pytest.mark.parametrize("kind", KINDS)
def test_the_peak_is_predicted_at_any_batch_size(kind: str) -> None:
    check_peaks(kind)


def output_of(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


def launcher(processes: int) -> list[str]:
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
    return [*torchrun, "-m", "tests.fakes.sharded"]


def peaks_in(printed: str) -> list[int]:
    return list(map(int, re.findall(r"(\d+) bytes", printed)))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("kind", ["sharded", "every second wrapped", "data parallel"])
def test_each_of_several_processes_has_the_same_plans(kind: str, processes: int) -> None:
    printed = output_of(*launcher(processes), "check", kind)
    assert sorted(map(int, re.findall(r"rank (\d+) of", printed))) == list(range(processes))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("kind", ["sharded", "kept gathered", "bf16", "every second wrapped", "data parallel"])
def test_a_process_that_is_followed_alone_has_the_peak_of_a_real_one(kind: str, processes: int) -> None:
    real = peaks_in(output_of(*launcher(processes), "peak", kind))
    (alone,) = peaks_in(output_of("-m", "tests.fakes.sharded", "peak", kind, str(processes)))
    assert real == [alone] * processes


def test_memory_of_sharded_parameters_is_that_of_this_process() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        model = nn.Linear(16, 8, bias=False)
        fully_shard(model)
        assert memory_split([model], []).parameters == 16 * 8 * 4 // 2
    finally:
        dist.destroy_process_group()
