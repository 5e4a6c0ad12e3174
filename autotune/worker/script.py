"""Be ``python train.py arguments``, faithfully.

Model: coverage.py's ``execfile``. Differences to plain Python that remain: ``sys.flags.safe_path`` is set, and
``sys.orig_argv`` shows the worker.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import sys
import traceback
from types import ModuleType, TracebackType

__all__ = ["own_traceback", "run_script"]


def run_script(path: str, arguments: tuple[str, ...]) -> None:
    """Run a script as ``__main__``; what it raises, ``SystemExit`` included, is raised here.

    Args:
        path: absolute path of the script.
        arguments: what ``sys.argv[1:]`` shall be.
    """
    main = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__builtins__=builtins, __cached__=None, __annotations__={})
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    # The worker's own module stays alive under another name: its frames still run.
    sys.modules["_autotune_main"] = sys.modules["__main__"]
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        source = file.read()
    # dont_inherit: the script has its own `from __future__` imports, not this module's.
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def own_traceback(error: BaseException) -> str:
    """The traceback that plain Python would have shown: without the worker's frames around the script's."""
    return "".join(traceback.format_exception(type(error), error, trimmed(error.__traceback__)))


def trimmed(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the leading frames of the worker."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    first = frames
    while first is not None and first.tb_frame.f_code.co_filename.startswith((here, "<frozen")):
        first = first.tb_next
    return first or frames
