"""The command that runs a bundle, as every file and screen states it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

__all__ = ["launch_command"]


def launch_command(bundle: str, script: str, arguments: Sequence[str]) -> str:
    """``autotune launch BUNDLE SCRIPT -- ARGUMENTS``, quoted for a shell."""
    return shlex.join(["autotune", "launch", bundle, script, *(["--", *arguments] if arguments else [])])
