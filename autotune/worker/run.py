"""A run, from ``request.json`` to the end of the script."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import FormatError
from ..files.backup import FOLDER_VARIABLE, install_backup
from ..metering.host import die_with_parent, show_stacks
from ..metering.results import append_line
from ..records.codec import dumps, loads
from ..records.outcome import NoTrainingStep
from ..records.run import PROTOCOL_VERSION, Request, Result
from ..records.stale import REFUSED_STATUS
from .exported_file import choose, patch
from .failure import EXIT_ADVICE, exit_words, failure_of, let_children_end
from .hooks import arguments, batch_size, training_libraries
from .import_state import ImportState
from .import_watch import ImportWatch
from .native_writers import watch_native_writers
from .proving.seeds import keep_casts, seed_generators, seed_numpy
from .refusal import share_refusal, was_refused
from .script import hide_worker, own_traceback, run_module, run_script
from .torch_import import LIBRARIES, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable

    from .hidden_modules import Hidden


_CACHE_FOLDERS = "torch._inductor.runtime.cache_dir_utils"
# Modules that have imported its function by name.
_USERS_OF_CACHES = ("torch._inductor.runtime.runtime_utils", "torch._inductor.codecache")


def _protect(request: Request) -> None:
    """Keep what torch would write away from the user's files and caches; called when torch is imported."""
    if request.caches:
        os.environ.update(request.caches)  # a script may have set them by now
        when_imported(_redirect_caches, _CACHE_FOLDERS)
    if request.kept_in:
        watch_native_writers()


def _redirect_caches() -> None:
    """Have Inductor use the run's cache even where the script takes the variables away.

    It also keeps precompiled headers in its default folder whatever variable is set (torch 2.13:
    ``codecache._HEADER_DIR``), where half of one would break every later compilation.
    """
    module = sys.modules[_CACHE_FOLDERS]
    folder = module.cache_dir()

    def default() -> str:
        return folder

    module.default_cache_dir = default  # type: ignore[attr-defined]
    for user in map(sys.modules.get, _USERS_OF_CACHES):
        if hasattr(user, "default_cache_dir"):
            user.default_cache_dir = default  # type: ignore[union-attr]
    codecache = sys.modules.get("torch._inductor.codecache")
    if hasattr(codecache, "_HEADER_DIR"):
        headers = os.path.join(folder, "precompiled_headers")  # noqa: PTH118
        codecache._HEADER_DIR = headers  # type: ignore[union-attr]
        codecache._HEADER_LOCK_DIR = os.path.join(headers, "locks")  # type: ignore[union-attr]  # noqa: PTH118


class _Host:
    def __init__(self, directory: Path, request: Request, hidden: Hidden | None) -> None:
        self.directory = directory
        self.request = request
        self.conductor: Any = None
        self._hidden = hidden
        discovers = request.mode == "discover"
        self._import_state = ImportState() if hidden is not None or discovers else None
        self._imports = ImportWatch() if discovers and hidden is None else None
        self._change = ""
        self._change_since: Callable[[], str] | None = None
        if hidden is not None:
            hidden.about_to_reveal = self.compare_packages

    def compare(self) -> None:
        """Compare the state of imports, when the script is about to import torch."""
        self._change = "" if self._import_state is None else self._import_state.change()
        if self._change and self._hidden is not None:
            self._refuse(self._change)
        if self._imports is not None:
            self._imports.torch_begins()

    def compare_packages(self, name: str) -> None:
        """Compare them again, when it is about to import another module that a forked process has imported already."""
        if self._change_since is None:
            self._refuse(f"the script imports {name} before torch, as it did not in discovery")
        elif change := self._change_since():
            self._refuse(f"{change} before it imports {name}")

    def install(self) -> None:
        """Install the hooks, when the script has imported torch."""
        from .conductor import Conductor
        from .process import TrainingProcess

        _protect(self.request)
        process = TrainingProcess(self.request, self.directory, fork_refusal=self._change, imports=self._imports)
        self.conductor = Conductor(process)
        self.conductor.install()
        if self._import_state is not None:
            from .preloading import TorchState

            import_state, torch_state = ImportState(), TorchState()
            self._change_since = lambda: import_state.any_change() or torch_state.change()
            if self._imports is not None:
                self._imports.torch_is_imported(self._change_since)

    def _refuse(self, reason: str) -> NoReturn:
        (self.directory / "fork-refused").write_text(reason, encoding="utf-8")
        os._exit(0)


def main(run_directory: str, *, hidden: Hidden | None = None) -> int:
    """Follow the protocol stated in ``__main__.py``; gives the exit status of a launched script, and ends any other."""
    directory = Path(run_directory)
    try:
        request: Request = loads(Request, (directory / "request.json").read_text(), where="request.json")
        if request.protocol != PROTOCOL_VERSION:
            raise FormatError(f"request.json speaks protocol {request.protocol}, this worker {PROTOCOL_VERSION}")
    except (OSError, FormatError) as error:
        sys.stderr.write(f"autotune worker: {error}\n")
        return 2
    if request.mode == "launch":
        # Everything is in memory now; a launched script leaves no folder behind.
        shutil.rmtree(directory, ignore_errors=True)
        share_refusal()
    else:
        die_with_parent()
        show_stacks()
    if request.kept_in:
        os.environ[FOLDER_VARIABLE] = request.kept_in
        install_backup(request.kept_in)
    os.environ.update(request.caches)
    _follow_children(directory, request)
    _choose_sizes(request)
    for name in LIBRARIES:
        when_imported(functools.partial(_patch, name), name)
    host = _Host(directory, request, hidden)
    if request.mode in ("verify", "trace") or request.look_ahead:
        seed_generators()
        when_imported(seed_numpy, "numpy")
    if request.mode == "verify" and not request.verifying.as_exported:
        keep_casts()
    when_imported(host.install, before=host.compare)
    return _launch(host) if request.mode == "launch" else _measure(host)


def install_in_child(run_directory: str) -> None:
    """Give the hooks to a process that the script started and that has imported torch."""
    from .conductor import Conductor
    from .process import TrainingProcess

    request: Request = loads(Request, os.environ["AUTOTUNE_REQUEST"], where="AUTOTUNE_REQUEST")
    if request.mode != "launch":
        show_stacks()
    _protect(request)
    _choose_sizes(request)
    refusal = "the script trains in processes that it starts"
    Conductor(TrainingProcess(request, Path(run_directory), fork_refusal=refusal), is_child=True).install()


def _choose_sizes(request: Request) -> None:
    if request.mode != "launch":
        for module, watch in arguments.PARSERS.items():
            when_imported(watch, module)
    batch_size.set_answer(request.batch_size)
    told_size = request.batch_size if request.mode == "launch" else None
    training_libraries.choose(request.accumulation, request.accumulation_control, told_size)
    choose(request.written)


def _patch(module: str) -> None:
    training_libraries.patch(module)
    patch(module)


def _run(request: Request) -> None:
    if request.module:
        run_module(request.module, request.script, request.arguments)
    else:
        run_script(request.script, request.arguments)


def _launch(host: _Host) -> int:
    try:
        _run(host.request)
    except SystemExit:
        if not was_refused():
            raise
    except KeyboardInterrupt:
        # Python shows it and then ends by the signal itself, so that a shell knows.
        show = sys.excepthook
        sys.excepthook = lambda kind, error, _: show(kind, hide_worker(error), error.__traceback__)
        raise
    except Exception as error:
        # That a process which it started was refused is told: the script can but say that it ended.
        if not was_refused():
            sys.excepthook(type(error), hide_worker(error), error.__traceback__)
            return 1 if host.conductor is None else int(host.conductor.launch_status(error))
    # A script that trains in a thread goes on after its training was refused.
    return REFUSED_STATUS if was_refused() else 0


def _measure(host: _Host) -> NoReturn:
    try:
        _run(host.request)
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")  # as Python does
        _script_ended(host, error.code)
    except BaseException as error:
        let_children_end()
        sys.stderr.write(own_traceback(error))
        if host.conductor is not None:
            host.conductor.script_raised(error)
        else:
            outcome = failure_of(error, phase="start", limit_bytes=host.request.memory_limit_bytes)
            append_line(host.directory, Result(0, outcome, None, process=os.getpid()))
    else:
        _script_ended(host)
    _leave()


def _leave() -> NoReturn:
    """End this process as Python does, but without tearing torch's modules down: that takes a second or two."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the script's threads
    with contextlib.suppress(BaseException):  # it was shown
        atexit._run_exitfuncs()
    # What the script holds is let go, as some of it tidies up then: temporary files, archives.
    sys.modules["__main__"].__dict__.clear()
    gc.unfreeze()  # or what was frozen between trials would be missing below
    for each in gc.get_objects():
        if issubclass(type(each), io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            with contextlib.suppress(Exception):  # closed, or nobody reads it any more
                each.flush()
    os._exit(0)


def _script_ended(host: _Host, status: object = None) -> None:
    if host.conductor is not None:
        host.conductor.script_ended(status)
        return
    if status in (None, 0):
        cause, advice = "the script ended", "autotune tunes PyTorch training scripts; is this the right file?"
    else:
        cause, advice = exit_words(status), EXIT_ADVICE
    outcome = NoTrainingStep(cause=f"{cause} without importing torch", advice=advice)
    append_line(host.directory, Result(0, outcome, None, process=os.getpid()))


def _follow_children(directory: Path, request: Request) -> None:
    """Let Python processes that the script starts find the hooks."""
    inject = str(Path(__file__).resolve().parent / "inject")
    paths = [inject, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["AUTOTUNE_RUN"] = str(directory.resolve())
    os.environ["AUTOTUNE_REQUEST"] = dumps(request)
