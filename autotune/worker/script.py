"""Run a script as ``python train.py arguments`` or ``python -m package.train arguments`` would.

Model: coverage.py's ``execfile``. Differences to plain Python that remain: ``sys.flags.safe_path`` is set, and
``sys.orig_argv`` shows the worker.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import itertools
import os
import sys
import traceback
from types import ModuleType, TracebackType


def run_script(path: str, arguments: tuple[str, ...]) -> None:
    """Run the script at an absolute path as ``__main__``; raises what it raises, ``SystemExit`` included."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    main = _fresh_main()
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    with io.open_code(path) as file:
        source = file.read()
    # dont_inherit: the script has its own `from __future__` imports, not this module's.
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def run_module(name: str, path: str, arguments: tuple[str, ...]) -> None:
    """Run a module, or the ``__main__`` of a package, as ``__main__``; the controller found it at ``path``."""
    # What `python -m` shows to the packages around the module, which are imported while it is looked for.
    sys.argv = ["-m", *arguments]
    sys.path.insert(0, _module_folder(name, path))
    main = _fresh_main()
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or not isinstance(spec.loader, importlib.abc.InspectLoader):
        raise ImportError(f"No module named {name}")
    code = spec.loader.get_code(spec.name)
    if code is None or spec.origin is None:
        raise ImportError(f"{name} has no source to run")
    sys.argv[0] = spec.origin
    main.__dict__.update(
        __file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader, __package__=spec.parent, __spec__=spec
    )
    exec(code, main.__dict__)  # noqa: S102


def _module_folder(name: str, path: str) -> str:
    """Return the folder that ``python -m`` would put first on ``sys.path``; a run may be started in another one."""
    inner = name.removesuffix(".__main__").split(".")
    inner += ["__main__"] if os.path.basename(path) == "__main__.py" else []  # noqa: PTH119
    folder = os.path.abspath(os.path.join(path, *[".."] * len(inner)))  # noqa: PTH100, PTH118
    return os.getcwd() if folder in sys.path else folder  # noqa: PTH109


def _fresh_main() -> ModuleType:
    """A new ``__main__``; the worker's own module stays alive under another name, as its frames still run."""
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["_autotune_main"] = sys.modules["__main__"]
    sys.modules["__main__"] = main
    return main


def own_traceback(error: BaseException) -> str:
    """The traceback that plain Python would have shown: without the worker's frames."""
    return "".join(traceback.format_exception(hide_worker(error)))


def hide_worker(error: BaseException) -> BaseException:
    """Take autotune's frames out of the tracebacks of an exception and of those behind it."""
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
    """Leave out autotune's frames, around the script or in hooks, but for one that raised."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    kept = []
    frame = frames
    while frame is not None:
        if (keep_last and frame.tb_next is None) or not frame.tb_frame.f_code.co_filename.startswith(here + os.sep):
            kept.append(frame)
        frame = frame.tb_next
    for earlier, later in itertools.pairwise(kept):
        earlier.tb_next = later
    return kept[0] if kept else None
