"""Which blocks a run that follows a script without its GPU checkpoints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from autotune.records.configuration import Configuration
from autotune.records.run import ALL_BLOCKS, Request
from autotune.worker.modes.trace import TraceMode


class Block(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 4), nn.GELU())


def process_asked(**asked: Any) -> Any:
    """Return a process with a request to trace."""
    request = Request("trace", "/train.py", (), (Configuration(),), **asked)
    return SimpleNamespace(request=request)


@pytest.mark.parametrize("engine", [None, "aot"])
def test_graphs_are_compiled_only_under_an_engine(engine: str | None) -> None:
    """Guards scripts that call Dynamo themselves: what it would generate cannot run without the GPU."""
    unused: Any = None
    applied: Any = SimpleNamespace(engine=engine)
    mode = TraceMode(process_asked(), unused, applied)
    assert mode._recorder.ignore_compile_internals() == (engine is not None)


@pytest.mark.parametrize(
    ("wanted", "checkpointed"),
    [(0, "000 00"), (2, "110 00"), (4, "111 10"), (9, "111 11"), (ALL_BLOCKS, "111 11")],
)
def test_the_first_blocks_of_all_models_are_checkpointed(wanted: int, checkpointed: str) -> None:
    unused: Any = None
    applied: Any = SimpleNamespace(engine=None)
    mode = TraceMode(process_asked(checkpointed_blocks=wanted), unused, applied)
    models = [nn.Sequential(*(Block() for _ in range(number))) for number in (3, 2)]
    for model in (*models, models[0]):
        call: Any = SimpleNamespace(root=model, batch_number=None)
        mode.inputs(call)
    found = ["".join(str(int("forward" in vars(block))) for block in model) for model in models]
    assert " ".join(found) == checkpointed
