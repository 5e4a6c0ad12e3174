"""A training process of a run, inside this one: a conductor with its hooks, and the lines that it has written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import torch
from torch import nn

from autotune.records.codec import loads
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.measuring import GpuMeasuring, Measuring
from autotune.records.outcome import Outcome
from autotune.records.run import Described, Ended, Line, Request, Result
from autotune.worker import process
from autotune.worker.conductor import Conductor

__all__ = ["TrainingProcess", "train"]

# Few steps, and as many on every machine.
_QUICK = Measuring(max_warmup_steps=2, min_steps=4, max_steps=4, min_measure_s=0.0, on_gpu=GpuMeasuring(0.0, 0.0, 0))


class TrainingProcess:
    """Installs the hooks; ``run`` runs a script in them. To be used within ``restored_torch`` and ``clean_torch``."""

    def __init__(
        self,
        directory: Path,
        *configurations: Configuration,
        mode: Literal["measure", "discover", "launch", "verify"] = "measure",
        measuring: Measuring = _QUICK,
        memory_matrix: bool = False,
        memory_limit_bytes: int | None = None,
        free_bytes: Mapping[str, int] = MappingProxyType({}),
        kernel_search: bool = True,
        batch_control: BatchControl | None = None,
    ) -> None:
        self._directory = directory
        script = directory / "train.py"
        script.touch()
        request = Request(
            mode,
            str(script),
            (),
            configurations or (Configuration(),),
            measuring,
            memory_matrix=memory_matrix,
            memory_limit_bytes=memory_limit_bytes,
            free_bytes=dict(free_bytes),
            kernel_search=kernel_search,
            batch_control=batch_control,
        )
        self.conductor = Conductor(process.TrainingProcess(request, directory))
        self.conductor.install()

    def run(self, script: Callable[[], None]) -> None:
        """Run a script to its end or to the run's."""
        with contextlib.suppress(SystemExit):
            script()
            self.conductor.script_ended()

    def lines(self) -> list[Line]:
        """What the process has written so far."""
        text = (self._directory / "results.jsonl").read_text()
        return [loads(Line, line) for line in text.splitlines()]  # type: ignore[arg-type]

    def outcomes(self) -> list[Outcome]:
        """How its trials ended."""
        return [line.outcome for line in self.lines() if isinstance(line, Result)]

    def described(self) -> list[Described]:
        """What a discovery run found, when it was done."""
        return [line for line in self.lines() if isinstance(line, Described) and line.may_take_s is None]

    def reason(self) -> str:
        """Its last word."""
        last = self.lines()[-1]
        assert isinstance(last, Ended)
        return last.reason


def train(
    *,
    steps: int = 60,
    make: Callable[[], nn.Module] = lambda: nn.Linear(3, 2),
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    inputs: Callable[[], torch.Tensor] = lambda: torch.randn(8, 3),
    backward: Callable[[torch.Tensor], None] = lambda outputs: outputs.pow(2).mean().backward(),
) -> None:
    """A script: all that it makes is gone at its end."""
    model = make()
    optimizer_ = optimizer(model.parameters(), lr=0.01)
    for _ in range(steps):
        backward(model(inputs()))
        optimizer_.step()
        optimizer_.zero_grad()
