"""Be ``python train.py arguments``, faithfully.

Model: coverage.py's ``execfile``. Differences to plain Python that remain: ``sys.flags.safe_path`` is set, and
``sys.orig_argv`` shows the worker.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import itertools
import os
import sys
import traceback
from types import ModuleType, TracebackType

__all__ = ["hide_worker", "own_traceback", "run_script"]


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
    """The traceback that plain Python would have shown: without the worker's frames."""
    return "".join(traceback.format_exception(hide_worker(error)))


def hide_worker(error: BaseException) -> BaseException:
    """Take the worker's frames out of the tracebacks of an exception and of those behind it."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            # The script's own syntax error is raised where the worker compiles it.
            one.__traceback__ = _trimmed(one.__traceback__, keep_last=not isinstance(one, SyntaxError))
            pending += [one.__cause__, one.__context__]
    return error


def _trimmed(frames: TracebackType | None, *, keep_last: bool) -> TracebackType | None:
    """Leave out the worker's frames, around the script and where a hook called on, but not one that raised."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    kept = []
    frame = frames
    while frame is not None:
        if (keep_last and frame.tb_next is None) or not frame.tb_frame.f_code.co_filename.startswith(here + os.sep):
            kept.append(frame)
        frame = frame.tb_next
    for earlier, later in itertools.pairwise(kept):
        earlier.tb_next = later
    return kept[0] if kept else None
