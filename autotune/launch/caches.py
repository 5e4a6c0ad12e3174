"""Compile caches that are lent to runs: a study's own, never the user's.

A process that is killed while it compiles may leave half a file, which later compilations take for a whole one. So
what a run has added to a cache stays only if the run ended well. A cache that is still marked as lent, or is from
before the machine was started, is thrown away. So is one that was compiled for other instructions of the processor:
torch's own key takes no notice of ``ATEN_CPU_CAPABILITY`` (2.13), and its kernels then write where they must not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from ..files.change_log import open_lock, try_lock

_BLOCK = 512  # bytes, of `st_blocks`
# The folders in a cache, and the variable that leads torch, Triton and torch.utils.cpp_extension to each.
_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "TORCH_EXTENSIONS_DIR": "extensions"}


class CompileCaches:
    """The caches below a folder: one for the devices of each run, more where controllers share them.

    ``variables`` are the environment of the runs.
    """

    def __init__(self, root: Path, variables: Mapping[str, str] = os.environ) -> None:
        self._root = root
        self._capability = variables.get("ATEN_CPU_CAPABILITY", "")

    def lend(self, devices: tuple[int, ...]) -> Loan:
        """Lend a cache that no other run uses, for a run on devices. OSError if it can't be made."""
        folder = self._root / ("device-" + "-".join(map(str, devices)) if devices else "cpu")
        folder.mkdir(parents=True, exist_ok=True)
        made_for = f"{_boot()}\n{self._capability}"
        for cache in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
            with contextlib.suppress(FileNotFoundError):  # another controller has thrown it away
                lock = open_lock(cache / "lock")
                if try_lock(lock):
                    mark = cache / "made-for"
                    if not (cache / "lent").exists() and mark.exists() and mark.read_text() == made_for:
                        return Loan(cache, lock)
                    # By its name nobody finds it again: a compiler of a run that dies just now may still write.
                    shutil.rmtree(cache, ignore_errors=True)
                os.close(lock)
        name = uuid.uuid4().hex[:8]
        new = folder / f".{name}"  # which nobody else looks at
        new.mkdir()
        lock = open_lock(new / "lock")
        try_lock(lock)
        (new / "made-for").write_text(made_for)
        return Loan(new.rename(folder / name), lock)


def remove_caches(root: Path, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove the caches below a folder that no run uses; return the bytes of these, and of those in use.

    With ``dry_run`` nothing is removed. Links are not followed. OSError if a cache cannot be removed.
    """
    freed_bytes = used_bytes = 0
    for cache in _caches_in(root):
        lock = open_lock(cache / "lock")
        try:
            size = _size_of(cache)
            if not try_lock(lock):
                used_bytes += size
                continue
            freed_bytes += size
            if not dry_run:
                # By a name that nobody looks at, so that no run takes what is half there.
                shutil.rmtree(cache.rename(cache.with_name(f".{cache.name}")))
        finally:
            os.close(lock)
    return freed_bytes, used_bytes


def _caches_in(root: Path) -> list[Path]:
    """List the caches that runs may be lent; what is no folder of ours is none."""
    folders = [] if root.is_symlink() else [one for one in root.glob("*") if not one.is_symlink()]
    found = sorted(cache for folder in folders for cache in folder.glob("*") if not cache.name.startswith("."))
    return [cache for cache in found if not cache.is_symlink() and (cache / "made-for").is_file()]


def _size_of(folder: Path) -> int:
    files = (Path(inner) / name for inner, _, names in os.walk(folder) for name in names)
    size = 0
    for file in files:
        with contextlib.suppress(OSError):  # gone meanwhile
            size += file.lstat().st_blocks * _BLOCK
    return size


class Loan:
    """A cache that a run uses, until ``take_back``; ``variables`` lead the run to it."""

    def __init__(self, cache: Path, lock: int) -> None:
        self._lock = lock
        self._mark = cache / "lent"
        self._mark.touch()
        self.variables = {name: str(cache / folder) for name, folder in _VARIABLES.items()}
        for path in self.variables.values():
            Path(path).mkdir(exist_ok=True)

    def take_back(self, *, ended_well: bool) -> None:
        """Take the cache back once no process of the run is left; what it has added stays only if it ended well."""
        if not ended_well:
            since_ns = self._mark.stat().st_ctime_ns
            for path in self.variables.values():
                for folder, _, names in os.walk(path):
                    for file in (Path(folder) / name for name in names):
                        # When its content or its name came about, by the clock that the mark was made with too.
                        if file.lstat().st_ctime_ns >= since_ns:
                            file.unlink()
        self._mark.unlink()
        os.close(self._lock)


def _boot() -> str:
    """Return which start of the machine this is: what was written before a loss of power may be there in part."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""
