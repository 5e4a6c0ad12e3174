"""Conditions that the import of torch depends on, and what a script has changed of them before it imports torch.

A run may be forked from a process that has imported torch if the script's own import would have come to the same.
Standard library only: it is needed before the script has imported torch.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Read by libraries beside torch, and often set at the head of a script.
_OTHERS = ("HF_", "TOKENIZERS_", "TRANSFORMERS_", "WANDB_")
# Which of several copies of these is used, or how it is set up, may depend on what has loaded it first.
_SHARED = re.compile(
    r"/lib(c10|cu(blas|da|dnn|fft|rand|solver|sparse)|gomp|iomp|jemalloc|mkl|nccl|omp|openblas|tcmalloc|torch)[^/]*$"
)
_NUMPY = re.compile(r"/numpy(\.libs)?/")


class ImportState:
    """The state of this process before it runs a script; ``change`` compares with it."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._path = list(sys.path)
        self._finders = _finders()
        self._import = builtins.__import__
        self._processors = os.sched_getaffinity(0)
        self._libraries = set(_libraries())

    def change(self) -> str:
        """Return what differs by now and may make the import of torch come to something else; empty if nothing does."""
        if changed := [name for name in self._variables_changed() if not name.startswith(_OTHERS)]:
            return f"the script sets {', '.join(changed)} before it imports torch"
        if not self._finds_alike():
            return "the script changes how modules are found before it imports torch"
        if shadowed := self._shadowed_module():
            return shadowed
        if loaded := sorted(path for path in _libraries() if path not in self._libraries):
            return f"the script loads {loaded[0]} before it imports torch"
        if os.sched_getaffinity(0) != self._processors:
            return "the script chooses its processors before it imports torch"
        return ""

    def any_change(self) -> str:
        """Return what differs by now and may make the import of any module come to something else."""
        if changed := self._variables_changed():
            return f"the script sets {', '.join(changed)}"
        if not self._finds_alike() or sys.path != self._path:
            return "the script changes how modules are found"
        if os.sched_getaffinity(0) != self._processors:
            return "the script chooses its processors"
        return ""

    def _variables_changed(self) -> list[str]:
        names = sorted(self._variables.keys() | os.environ.keys())
        return [name for name in names if self._variables.get(name) != os.environ.get(name)]

    def _finds_alike(self) -> bool:
        # The script's folder goes to the front, where it may be already.
        kept = [entry for entry in dict.fromkeys(sys.path) if entry in self._path]
        path = [*dict.fromkeys(self._path)]
        return builtins.__import__ is self._import and _finders() == self._finders and kept == path

    def _shadowed_module(self) -> str:
        """Say which module of the script hides one that torch, or what torch needs, may import; empty if none does."""
        last = max((number for number, entry in enumerate(sys.path) if entry in self._path), default=0)
        for entry in [one for one in sys.path[:last] if one not in self._path]:
            for name in _modules_in(entry):
                if name in sys.stdlib_module_names or importlib.machinery.PathFinder.find_spec(name, self._path):
                    return f"{name} in {entry} stands before an installed module"
        return ""


def _finders() -> list[object]:
    """Return the finders up to Python's own for files; those behind it find nothing that is installed."""
    mine = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_autotune.")]
    end = mine.index(importlib.machinery.PathFinder) + 1 if importlib.machinery.PathFinder in mine else len(mine)
    return [*mine[:end], *sys.path_hooks]


def _modules_in(folder: str) -> list[str]:
    """List the modules and packages that can be imported from a folder; empty where the folder cannot be read."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    try:
        with os.scandir(folder or os.curdir) as entries:
            found = [one.name for one in entries if one.name.endswith(suffixes) or _is_package(one)]
    except OSError:
        return []
    return sorted(name.partition(".")[0] for name in found)


def _is_package(entry: os.DirEntry[str]) -> bool:
    # A look at each of many files would take seconds; what kind they are is known by now.
    if entry.is_file(follow_symlinks=False):
        return False
    return os.path.isfile(f"{entry.path}/__init__.py")  # noqa: PTH113  # Path's raises where nobody may look


def _libraries() -> Iterator[str]:
    """Files mapped into this process that torch shares with others, NumPy's left out: torch imports NumPy itself."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = "/" + line.partition("/")[2]
        if _SHARED.search(path) and not _NUMPY.search(path):
            yield path
