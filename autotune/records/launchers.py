"""Launchers, such as torchrun, that start a script in several processes: how many they start on a machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class _Launcher:
    """The option that says how many processes a launcher starts, and the number without it, None for all GPUs.

    ``machines`` is the option for the number of machines that those processes are spread over, empty for none. Options
    may be cut short from ``shortest`` on, and have ``_`` for ``-``.
    """

    processes: str
    shortest: str
    default: int | None
    machines: str = ""


_TORCHRUN = _Launcher("--nproc-per-node", "--np", 1)
_ACCELERATE = _Launcher("--num-processes", "--num-p", None, machines="--num-machines")
_DEEPSPEED = _Launcher("--num-gpus", "--num-g", None)

# By the program's name, and by the module's where `python -m` runs it.
_LAUNCHERS = {
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate": _ACCELERATE,
    "accelerate-launch": _ACCELERATE,
    "accelerate.commands.accelerate_cli": _ACCELERATE,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "ds": _DEEPSPEED,
    "deepspeed.launcher.runner": _DEEPSPEED,
}


def started_processes(script: str, module: str, arguments: Sequence[str]) -> int | None:
    """Return how many processes a command starts on this machine: 1 of a script, None for one on each GPU it sees."""
    launcher = _LAUNCHERS.get(module or Path(script).name)
    if launcher is None:
        return 1
    given = _options(arguments)
    named = [value for option, value in given if _means(option, launcher.processes, launcher.shortest)]
    machines = [value for option, value in given if launcher.machines and _means(option, launcher.machines)]
    number = _number(named[-1]) if named else launcher.default
    return number if number is None else max(1, number // (_number(machines[-1]) or 1 if machines else 1))


def _options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the options before the script, each with its value or the word behind it."""
    own = [*_before_script(arguments), ""]
    words = ((word.partition("="), after) for word, after in itertools.pairwise(own))
    return [(option.replace("_", "-"), value if equals else after) for (option, equals, value), after in words]


def _means(option: str, name: str, shortest: str = "") -> bool:
    return name.startswith(option) and len(option) >= len(shortest or name)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) else None


def _before_script(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        if argument.endswith(".py") or argument in ("-m", "--module"):
            return
        yield argument
