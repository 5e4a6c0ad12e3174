"""What the command line says of a failure, checked."""

from __future__ import annotations

import re
from pathlib import Path

import autotune

from .processes import Finished

PACKAGE = Path(autotune.__file__).parent


def check_told(done: Finished, *, status: int, cause: str, next_step: str) -> None:
    """The last two lines say what failed and what to do; no frame of ours is shown."""
    assert done.status == status, done.errors
    *_, first, second = done.errors.rstrip("\n").split("\n")
    assert first.startswith("autotune: "), done.errors
    assert re.search(cause, first), done.errors
    assert second.startswith("  next: "), done.errors
    assert re.search(next_step, second), done.errors
    assert f'File "{PACKAGE}' not in done.errors, done.errors
