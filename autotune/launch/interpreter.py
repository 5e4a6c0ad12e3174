"""The interpreter that the user named, looked at before a study spends a run on it."""

from __future__ import annotations

import subprocess

from ..errors import UsageError

__all__ = ["OLDEST_PYTHON", "check_interpreter"]

OLDEST_PYTHON = (3, 11)

# Finding torch takes a hundredth of the time that importing it takes.
_ASK = "import sys, importlib.util as u; print(*sys.version_info[:2], u.find_spec('torch') is not None)"
_TIMEOUT_S = 60.0
_HINT = "--python takes the path of a Python 3.11 or newer that has torch; `autotune doctor --python PATH` looks closer"


def check_interpreter(python: str) -> None:
    """UsageError if this is no Python, is too old for the worker, or has no torch."""
    try:
        done = subprocess.run(
            (python, "-c", _ASK),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"the interpreter {python!r} did not answer within {_TIMEOUT_S:g} s", hint=_HINT) from None
    except OSError as error:
        raise UsageError(f"cannot start the interpreter {python!r}: {error.strerror}", hint=_HINT) from None
    words = done.stdout.split()
    if done.returncode or len(words) != 3 or not (words[0].isdecimal() and words[1].isdecimal()):
        said = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise UsageError(f"{python!r} does not answer as Python does: {said}", hint=_HINT)
    if (int(words[0]), int(words[1])) < OLDEST_PYTHON:
        raise UsageError(f"{python!r} is Python {words[0]}.{words[1]}, which is too old for the worker", hint=_HINT)
    if words[2] != "True":
        raise UsageError(f"{python!r} has no torch", hint=_HINT)
