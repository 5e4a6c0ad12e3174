"""The command that runs a bundle, as every file and screen states it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

__all__ = ["launch_command"]


def launch_command(
    bundle: str, script: str, arguments: Sequence[str], *, module: str = "", options: Sequence[str] = ()
) -> str:
    """``autotune launch BUNDLE SCRIPT -- ARGUMENTS``, quoted for a shell; with ``-m MODULE`` where it is a module."""
    ran = ["-m", module] if module else [script]
    return shlex.join(["autotune", "launch", bundle, *ran, *options, *(["--", *arguments] if arguments else [])])
