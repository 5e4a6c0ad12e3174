"""Launchers, such as torchrun, that start a script in several processes: how many they start on a machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class _Launcher:
    """The options that say how many processes a launcher starts, and the number without them, None for all GPUs."""

    options: tuple[str, ...]
    default: int | None


_TORCHRUN = _Launcher(("--nproc-per-node", "--nproc_per_node"), 1)
_ACCELERATE = _Launcher(("--num-processes", "--num_processes"), None)
_DEEPSPEED = _Launcher(("--num-gpus", "--num_gpus"), None)

# By the program's name, and by the module's where `python -m` runs it.
_LAUNCHERS = {
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate": _ACCELERATE,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
}


def started_processes(script: str, module: str, arguments: Sequence[str]) -> int | None:
    """Return how many processes a command starts on this machine: 1 of a script, None for one on each GPU it sees."""
    launcher = _LAUNCHERS.get(module or Path(script).name)
    if launcher is None:
        return 1
    own = list(_before_script(arguments))
    number = str(launcher.default)
    for word, after in itertools.pairwise([*own, ""]):
        option, has_value, value = word.partition("=")
        if option in launcher.options:
            number = value if has_value else after
    return int(number) if number.isdecimal() and int(number) else None


def _before_script(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        if argument.endswith(".py") or argument in ("-m", "--module"):
            return
        yield argument
