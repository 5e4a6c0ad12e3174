"""Makes the environment of engine ``ortmodule``: Python, virtual environment, packages, extension, one step on trial.

What is interrupted leaves a folder without its marker, which the next call makes anew; pip has kept what it fetched.
One process at a time: the lock is the folder's, and every program that works on the folder holds it too, so that what
outlives a killed autotune is not disturbed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError, UsageError
from ..files.change_log import open_lock, try_lock
from .environments import (
    EXTENSION,
    MARKER,
    MODULE,
    PYTHON,
    REQUIREMENTS,
    TORCH,
    TORCH_LINKS,
    environment_folder,
    environment_python,
)
from .host import find_cxx_compiler
from .interpreter import WORKER, ask_interpreter

# Of one step; installing takes longest.
_LONGEST_S = 3600.0

_TRY = """
import importlib, runpy, sys
runpy.run_path(sys.argv[1])["load_package"]()
importlib.import_module("_autotune.worker.engines.ortmodule_compat").try_one_step()
"""


@dataclass(frozen=True)
class _Site:
    """A folder under way: what works on it inherits ``lock``, and writes to ``log``."""

    folder: Path
    log: Path
    lock: int

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def packages(self) -> Path:
        major, minor = PYTHON
        return self.folder / "lib" / f"python{major}.{minor}" / "site-packages"


def install_engine(*, python: str | None, on_step: Callable[[str], None]) -> str:
    """Make the environment of engine ``ortmodule``, unless it is there; give its interpreter.

    ``python`` is the interpreter to make it with; None looks for one. ``on_step`` is told what is done next.

    Raises:
        UsageError: no Python of the right version is here, or no C++ compiler.
        RunError: a step failed or took too long; its last lines are in the error, all of them in a log file.
    """
    folder = environment_folder()
    log = folder.with_name(f"{folder.name}.log")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder) as lock:
            found = environment_python()
            if found is None:
                base = find_python(python)
                if find_cxx_compiler() is None:
                    raise UsageError(
                        "there is no C++ compiler, and the engine has a part to be compiled",
                        hint="install g++, or name a compiler in CXX",
                    )
                log.write_bytes(b"")
                found = _make(_Site(folder, log, lock), base, on_step)
    except OSError as error:
        raise RunError(
            f"cannot write to the cache folder {str(folder.parent)!r}: {error.strerror or error}",
            hint="AUTOTUNE_CACHE names another one; the environment takes about 1.5 GiB",
        ) from error
    return str(found)


def find_python(named: str | None) -> str:
    """Find a Python of the right version that can compile extensions; UsageError if there is none.

    ``named`` is the one to take; None looks at this one and at those on the PATH.
    """
    version = ".".join(map(str, PYTHON))
    problems = []
    for candidate in _candidates(version) if named is None else (named,):
        problem = _problem_of(candidate)
        if not problem:
            return candidate
        problems.append(problem)
    if named is not None:
        raise UsageError(problems[0], hint=f"--python takes the path of a Python {version}")
    raise UsageError(
        f"there is no Python {version} here: {'; '.join(problems)}",
        hint=f"install one, or name it: --python PATH (`uv python install {version}` gets one without root)",
    )


def _candidates(version: str) -> Iterator[str]:
    """Give this interpreter and those on the PATH, each once."""
    seen = {sys.executable}
    yield sys.executable
    for folder in os.get_exec_path():
        for name in (f"python{version}", "python3"):
            path = str(Path(folder, name))
            if path not in seen and os.access(path, os.X_OK):
                seen.add(path)
                yield path


def _problem_of(python: str) -> str:
    """Return why an environment cannot be made with an interpreter; empty if it can."""
    try:
        found = ask_interpreter(python)
    except UsageError as error:
        return str(error)
    major, minor, _ = found.version
    if (major, minor) != PYTHON:
        return f"{python!r} is Python {major}.{minor}"
    return "" if found.has_headers else f"{python!r} has no headers to compile with (python3-dev)"


def _make(site: _Site, base: str, on_step: Callable[[str], None]) -> Path:
    """Make the environment from nothing; the marker comes last."""
    on_step(f"making a virtual environment with {base}")
    shutil.rmtree(site.folder, ignore_errors=True)
    _do(site, "make the virtual environment", (base, "-m", "venv", str(site.folder)))
    on_step(f"installing {TORCH}, {REQUIREMENTS[0]} and what they need (some 350 MB)")
    pip = (site.python, "-m", "pip", "install", "--no-input", "--prefer-binary", "--find-links", TORCH_LINKS)
    _do(site, "install the packages", (*pip, TORCH, *REQUIREMENTS))
    on_step("compiling the extension that runs PyTorch's operators inside ONNX Runtime (about a minute)")
    _compile(site)
    shutil.copy(MODULE, site.packages)
    on_step("training one step")
    _do(site, "train one step", (site.python, "-P", "-c", _TRY, str(WORKER)))
    (site.folder / MARKER).touch()
    return Path(site.python)


def _compile(site: _Site) -> None:
    """Compile the extension beside its siblings' folders, where ONNX Runtime looks for it."""
    source = site.packages / EXTENSION
    build = site.folder / "build"
    command = (site.python, str(source / "setup.py"), "build", "--build-base", str(build))
    _do(site, "compile the extension", command, working_directory=source)
    # Two levels up is `torch_cpp_extensions`.
    for compiled in build.glob(f"lib.*/{source.name}*.so"):
        shutil.copy(compiled, source.parents[1])
    shutil.rmtree(build)


def _do(site: _Site, what: str, command: Sequence[str], *, working_directory: Path | None = None) -> None:
    """Run one step; RunError with its last lines where it failed or took too long. Its processes end with it."""
    with site.log.open("ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        begin = log.tell()
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=working_directory or site.folder.parent,
            start_new_session=True,
            pass_fds=(site.lock,),
            env={**os.environ, "PATH": f"{site.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
        ) as process:
            try:
                status = process.wait(_LONGEST_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with suppress(ProcessLookupError):  # all of them have ended
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()  # the block's end does not after Ctrl-C
    if status == 0:
        return
    said = site.log.read_bytes()[begin:].decode(errors="replace").splitlines()
    how = f"took longer than {_LONGEST_S / 60:.0f} minutes" if status is None else f"ended with status {status}"
    raise RunError(
        f"could not {what}: {command[0]} {how}",
        hint=f"the lines above say why, {site.log} has all of them; the same command again starts afresh",
        detail="\n".join(line for line in said if line.strip())[-4000:],
    )


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the lock of a folder; RunError if another process does."""
    lock = open_lock(folder.with_name(f"{folder.name}.lock"))
    try:
        if not try_lock(lock):
            raise RunError(
                f"another process is making {str(folder)!r} at this moment",
                hint="wait for it; where it was killed, its pip or compiler ends in a while",
            )
        yield lock
    finally:
        os.close(lock)
