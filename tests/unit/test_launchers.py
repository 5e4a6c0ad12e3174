"""How many processes a command starts on a machine, and the devices that runs of it have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.records.launchers import started_processes
from autotune.records.study import StudySpec


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("train.py --nproc-per-node 8", 1),
        ("/env/bin/torchrun train.py", 1),
        ("/env/bin/torchrun --standalone --nproc-per-node 2 train.py", 2),
        ("/env/bin/torchrun --nproc_per_node=4 -m package.train", 4),
        ("/env/bin/torchrun --nproc-per-node=2 --nproc-per-node 3 train.py", 3),
        ("/env/bin/torchrun train.py --nproc-per-node 8", 1),
        ("/env/bin/torchrun -m package.train --nproc-per-node 8", 1),
        ("/env/bin/torchrun --nproc-per-node gpu train.py", None),
        ("/env/bin/torchrun --nproc-per-node", None),
        ("/env/bin/accelerate launch --num_processes 2 train.py", 2),
        ("/env/bin/accelerate launch train.py --num_processes 2", None),
        ("/env/bin/deepspeed --num_gpus=2 train.py", 2),
        ("/env/bin/torchrun --nproc-per 3 train.py", 3),
        ("/env/bin/torchrun --nproc_per_node 0 train.py", None),
        ("/env/bin/torchrun --nnodes 2 train.py", 1),
        ("/env/bin/accelerate-launch --num_proc=4 --num_machines 2 train.py", 2),
        ("/env/bin/accelerate launch --num_machines 1 --num_processes 4 train.py", 4),
        ("/env/bin/accelerate launch --num_machines 2 train.py", None),
    ],
)
def test_the_launchers_own_options_say_how_many_processes_it_starts(command: str, processes: int | None) -> None:
    script, *arguments = command.split()
    assert started_processes(script, "", arguments) == processes


def test_a_launcher_may_be_run_as_a_module() -> None:
    arguments = ("--nproc-per-node", "2", "train.py")
    assert started_processes("/lib/torch/distributed/run.py", "torch.distributed.run", arguments) == 2
    assert started_processes("/lib/train.py", "package.train", arguments) == 1


TORCHRUN = StudySpec(script="/env/bin/torchrun", arguments=("--nproc-per-node", "2", "train.py"))
ALL = replace(TORCHRUN, arguments=("--nproc-per-node", "gpu", "train.py"))


@pytest.mark.parametrize(
    ("spec", "devices", "runs"),
    [
        (StudySpec("train.py"), (), ((),)),
        (StudySpec("train.py"), (1, 0), ((1,), (0,))),
        (StudySpec("train.py", gpus_per_run=2), (3, 1, 0, 2), ((3, 1), (0, 2))),
        (StudySpec("train.py", gpus_per_run=0), (0, 1), ((0,), (1,))),
        (TORCHRUN, (), ((),)),
        (TORCHRUN, (0, 1), ((0, 1),)),
        (TORCHRUN, (0, 1, 2, 3), ((0, 1), (2, 3))),
        (TORCHRUN, (0,), ((0,),)),
        (replace(TORCHRUN, gpus_per_run=1), (0, 1), ((0,), (1,))),
        (ALL, (0, 1, 2), ((0, 1, 2),)),
    ],
)
def test_a_run_has_a_device_for_each_process(
    spec: StudySpec, devices: tuple[int, ...], runs: tuple[tuple[int, ...], ...]
) -> None:
    assert replace(spec, devices=devices).devices_of_runs == runs
