"""Keeps a script's files aside, at the moment before it changes them.

Python tells an audit hook of every file that is about to be opened, renamed or removed (the library reference's "audit
events table"); ``worker/native_writers.py`` sees to native code. A file that is about to be emptied, replaced or
removed is moved or linked, since a checkpoint may be large. Only a file that is changed in place is copied: the script
gets the copy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .change_log import ChangeLog, Entry, open_lock, try_lock

FOLDER_VARIABLE = "AUTOTUNE_FILES"
"""The environment variable that names the folder of the change log to a run's processes."""

# Variables that name caches, and the folders inside that are the cache's own where a user works in it.
_CACHES: dict[str, tuple[str, ...]] = {
    "CUDA_CACHE_PATH": (),
    "HF_DATASETS_CACHE": (),
    "HF_HOME": ("assets", "datasets", "hub", "modules", "xet"),
    "HF_HUB_CACHE": (),
    "MPLCONFIGDIR": (),
    "NUMBA_CACHE_DIR": (),
    "TORCHINDUCTOR_CACHE_DIR": (),
    "TORCH_EXTENSIONS_DIR": (),
    "TORCH_HOME": ("hub",),
    "TRITON_CACHE_DIR": (),
    "XDG_CACHE_HOME": ("huggingface", "matplotlib", "torch", "torch_extensions"),
}
_BYTECODE = f"{os.sep}__pycache__"
# Copying more than this before a change in place would take longer than many a trial.
_LARGEST_COPY_BYTES = 2**30
_OF_PTXAS = re.compile(r"tmp[a-z0-9_]{8}\.ptx\.o$")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLONE = 0x40049409  # FICLONE, ioctl_ficlone(2)

# Keeps the file of a path at another: ``_move``, ``_link`` or ``_copy``.
_Way = Callable[[str, str], None]

_current: Backup | None = None


def install_backup(folder: str) -> None:
    """Watch this process and those that it forks from now on; once."""
    global _current  # noqa: PLW0603  # an audit hook stays for as long as the process does
    if _current is None:
        _current = Backup(Path(folder), os.environ)
        _current.install()


def note_training() -> None:
    """Note that from now on what the script writes comes of its training."""
    if _current is not None:
        _current.trains = True


def replaced(path: Any) -> None:
    """Hear that native code is about to make, or to empty, a file."""
    if _current is not None:
        _current.heard("open", (path, "wb", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


class Backup:
    """Notes a process's changes on disk in ``folder``, and keeps what they would destroy; ``variables`` name caches."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.trains = False
        self._folder = folder
        self._journal = ChangeLog(folder)
        self._own = threading.local()
        self._settled: set[str] = set()
        # `tempfile` itself must not be asked: it may be at work, under a lock, on the file that we hear of.
        self._temporary = os.path.realpath(variables.get("TMPDIR") or "/tmp")  # noqa: S108
        home = os.path.expanduser("~/.cache")
        caches = [(home, _CACHES["XDG_CACHE_HOME"])]
        caches += [(variables[name], own) for name, own in _CACHES.items() if variables.get(name)]
        worked_in = (str(folder.parent.parent), os.getcwd())
        left_out = [str(folder.parent), "/proc", "/sys"]
        left_out += [path for cache, own in caches for path in _outside(cache, own, worked_in)]
        self._left_out = tuple(f"{os.path.realpath(one)}{os.sep}" for one in left_out)
        self._actions: dict[str, Callable[..., None]] = {
            "open": self._opened,
            "os.chmod": lambda *about: self._described(about[0], about[2]),
            "os.link": lambda *about: self._made(about[1], about[3]),
            "os.mkdir": lambda *about: self._made(about[0], about[2]),
            "os.remove": self._removed,
            "os.rename": self._renamed,
            "os.rmdir": self._removed,
            "os.symlink": lambda *about: self._made(about[1], about[2]),
            "socket.bind": self._bound,
            "os.truncate": lambda *about: self._changed(about[0]),
            "os.utime": lambda *about: self._described(about[0], about[3]),
            "sqlite3.connect": self._connected,
        }

    def install(self) -> None:
        """Begin to watch; the change log is not cleared while this process lives."""
        try_lock(open_lock(self._folder / "lock"), shared=True, wait=True)
        sys.addaudithook(self.heard)

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Act on an audit event.

        Raises:
            OSError: what the script is about to change cannot be kept: only this run fails, and the file is whole.
        """
        action = self._actions.get(event)
        if action is None or getattr(self._own, "works", False):
            return
        self._own.works = True
        try:
            action(*arguments)
        except Exception as error:
            if event == "open" and _only_reads(arguments[2]):
                with contextlib.suppress(Exception):
                    sys.stderr.write(f"autotune: it was not noted what the script reads: {error}\n")
                return
            number = getattr(error, "errno", None) or errno.EIO
            raise OSError(number, f"autotune could not keep this file aside: {error}") from error
        finally:
            self._own.works = False

    def _opened(self, path: Any, mode: Any, flags: int) -> None:
        del mode
        if isinstance(path, int) or flags & os.O_TMPFILE == os.O_TMPFILE:
            return
        if _only_reads(flags):
            self._read(path)
        elif flags & os.O_EXCL and flags & os.O_CREAT:
            self._made(path, None)
        elif flags & os.O_TRUNC:
            # Without O_CREAT the script could not make it anew.
            self._keep(os.path.realpath(_text(path)), _move if flags & os.O_CREAT else _copy)
        else:
            self._changed(path)

    def _connected(self, database: Any) -> None:
        # SQLite changes its file in place, and keeps others beside it meanwhile.
        name = _text(database).removeprefix("file:").partition("?")[0]
        if name and name != ":memory:":
            for suffix in ("", "-journal", "-wal", "-shm"):
                self._changed(name + suffix)

    def _bound(self, bound: Any, address: Any) -> None:
        # A socket with a path is a file; one without, or of the abstract names, is none.
        del bound
        if isinstance(address, str | bytes) and _text(address).strip("\0") == _text(address) != "":
            self._made(address, None)

    def _changed(self, path: Any) -> None:
        if not isinstance(path, int):
            self._keep(os.path.realpath(_text(path)), _copy)

    def _made(self, path: Any, folder: Any) -> None:
        whole = _located(path, folder)
        if not os.path.lexists(whole):
            self._keep(whole, _move)

    def _removed(self, path: Any, folder: Any) -> None:
        self._keep(_located(path, folder), _link)

    def _renamed(self, source: Any, target: Any, source_folder: Any, target_folder: Any) -> None:
        source, target = _located(source, source_folder), _located(target, target_folder)
        if not os.path.lexists(source):
            return
        for path in list(_tree(source)):
            self._keep(path, _link)
            self._keep(target + path[len(source) :], _link)

    def _described(self, path: Any, folder: Any) -> None:
        """Note the permissions and the time of a path, of which nothing else is about to change."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
            if not os.path.isabs(path):
                return  # a pipe, say
        path = os.path.realpath(_located(path, folder))
        if self._is_left_out(path) or (path in self._journal.about and self._kept_as(path) is None):
            return
        with self._journal.turn():
            try:
                found = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            kept = self._kept_as(path)
            if kept is not None:  # it was renamed, and comes back with its name
                path = kept.path
            else:
                entry = self._journal.first.get(path)
                if self._is_known(path) if entry is None else entry.was in ("absent", "file"):
                    return  # what stands there now is a run's own
            if path not in self._journal.about:
                self._journal.append(Entry(path, "about", mode=stat.S_IMODE(found.st_mode), mtime_ns=found.st_mtime_ns))

    def _read(self, path: Any) -> None:
        """Note data: what this run has made before its training and reads now."""
        if self.trains or not self._journal.first:
            return
        above, name = os.path.split(os.path.abspath(_text(path)))
        whole = os.path.join(_folder(above), name)
        made = self._journal.first.get(whole) or self._new_folder(whole)
        if made is not None and made.was == "absent" and made.is_early and whole not in self._journal.was_read:
            with self._journal.turn():
                self._journal.append(Entry(whole, "read"))

    def _keep(self, path: str, way: _Way) -> None:
        """Keep what stands at a path, unless that was done, or it belongs to nobody's files."""
        if self._is_left_out(path):
            return
        may_part = way != _link and self._journal.linked and self._kept_as(path) is not None
        if self._is_known(path) and not may_part:
            return
        with self._journal.turn():
            self._settle(path)
            if self._is_known(path):
                self._part(path, way)
                return
            try:
                found = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                self._journal.append(Entry(path, "absent", is_early=not self.trains))
                return
            if stat.S_ISLNK(found.st_mode):
                self._journal.append(Entry(path, "link", os.readlink(path)))
            elif stat.S_ISDIR(found.st_mode):
                self._journal.append(Entry(path, "folder", mode=stat.S_IMODE(found.st_mode)))
            elif way == _link or (stat.S_ISREG(found.st_mode) and os.access(path, os.W_OK)):
                self._keep_file(path, way)

    def _is_left_out(self, path: str) -> bool:
        is_device = path.startswith("/dev/") and not path.startswith("/dev/shm/")  # noqa: S108  # which holds files
        return is_device or path.startswith(self._left_out) or _BYTECODE in path

    def _part(self, path: str, way: _Way) -> None:
        """Part a path that is about to be written to from a file that is kept, of which it is another name."""
        kept = None if way == _link else self._kept_as(path)
        if kept is None or not os.access(path, os.W_OK):
            return
        if way == _move:
            os.unlink(path)
        else:
            _replace_by_copy(path, f"{kept.kept}.{uuid.uuid4().hex[:8]}")

    def _kept_as(self, path: str) -> Entry | None:
        try:
            found = os.lstat(path)
        except OSError:
            return None
        return self._journal.kept_as(found) if stat.S_ISREG(found.st_mode) else None

    def _settle(self, path: str) -> None:
        """Find out, in turn, whether a file that another process meant to keep is kept: it may have died before."""
        entry = self._journal.first.get(path)
        if entry is not None and entry.was == "file" and entry.kept not in self._settled:
            if os.path.lexists(entry.kept):
                self._settled.add(entry.kept)
            else:
                self._journal.forget(path)

    def _is_known(self, path: str) -> bool:
        entry = self._journal.first.get(path)
        if entry is not None:
            # The change log speaks of a file before it is kept; another thread may be about to.
            return entry.was != "file" or entry.kept in self._settled
        if self._is_of_ptxas(path):
            return os.path.lexists(path)
        folder = self._new_folder(path)
        # What lies in a folder that a run has made, and was not seen to be made, is of native code or of somebody else.
        # But before training changes data it is kept, like any file.
        return folder is not None and not (self.trains and folder.is_early) and os.path.lexists(path)

    def _is_of_ptxas(self, path: str) -> bool:
        """Return whether Triton's assembler has written it, unseen, beside a temporary file of the run's."""
        folder, name = os.path.split(path)
        return folder == self._temporary and _OF_PTXAS.match(name) is not None and self._is_new(path.removesuffix(".o"))

    def _is_new(self, path: str) -> bool:
        entry = self._journal.first.get(path)
        return entry is not None and entry.was == "absent"

    def _new_folder(self, path: str) -> Entry | None:
        """Return the entry of the innermost folder above a path that was not there before."""
        while (above := os.path.dirname(path)) != path:
            if self._is_new(above):
                return self._journal.first[above]
            path = above
        return None

    def _keep_file(self, path: str, way: _Way) -> None:
        problem: OSError | None = None
        # File systems have 255 bytes for a name.
        name = os.fsencode(os.path.basename(path))[:100].decode(errors="ignore")
        for place in self._places(path):
            kept = str(place / f"{uuid.uuid4().hex[:8]}-{name}")
            try:
                place.mkdir(exist_ok=True)
                self._journal.append(Entry(path, "file", kept, inode=os.lstat(path).st_ino))
                way(path, kept)
                self._settled.add(kept)
                return
            except OSError as error:
                problem = error
                with contextlib.suppress(OSError):
                    place.rmdir()
                if isinstance(error, _TooLargeError) or error.errno in _FULL:
                    break
        if problem is not None and problem.errno in _FULL:
            self._journal.forget(path)
            raise problem
        reason = str(problem.strerror or problem) if problem else "no place for it"
        self._journal.append(Entry(path, "unkept", reason, mtime_ns=os.lstat(path).st_mtime_ns))

    def _places(self, path: str) -> Iterator[Path]:
        """Yield the places for a file: our folder, else on its own file system, as far up as may be."""
        device = os.lstat(path).st_dev
        if os.lstat(self._folder).st_dev == device:
            yield self._folder / "aside"
        name = f".autotune-kept-{hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:8]}"
        for folder in reversed(Path(path).parents):
            if os.stat(folder).st_dev == device and os.access(folder, os.W_OK | os.X_OK):
                yield folder / name


def _move(path: str, kept: str) -> None:
    os.rename(path, kept)


def _link(path: str, kept: str) -> None:
    try:
        os.link(path, kept)
    except OSError as error:
        if error.errno == errno.EXDEV or not os.path.isfile(path):
            raise
        _copy(path, kept)  # a file system without links, or somebody else's file


def _copy(path: str, kept: str) -> None:
    _replace_by_copy(path, f"{kept}.copy", kept)


class _TooLargeError(OSError):
    pass


def _replace_by_copy(path: str, copy: str, kept: str = "") -> None:
    """Put a copy in the place of a file, which lies at ``kept`` then if that is given."""
    try:
        _clone(path, copy)
        shutil.copystat(path, copy)
        if kept:
            try:
                os.link(path, kept)
            except OSError:
                os.rename(path, kept)
        os.rename(copy, path)
    except OSError:
        Path(copy).unlink(missing_ok=True)
        raise


def _clone(path: str, copy: str) -> None:
    """Copy a file; up to a size where the file system cannot share blocks."""
    with Path(path).open("rb") as source, Path(copy).open("wb") as target:
        try:
            fcntl.ioctl(target, _CLONE, source.fileno())
        except OSError:
            if os.fstat(source.fileno()).st_size > _LARGEST_COPY_BYTES:
                raise _TooLargeError(
                    errno.EFBIG, f"changed in place, and larger than {_LARGEST_COPY_BYTES // 2**30} GiB"
                ) from None
            shutil.copyfileobj(source, target, 2**20)


def _outside(cache: str, own: Iterable[str], worked_in: Iterable[str]) -> list[str]:
    """Return a cache's folder, or its own folders inside where the user works in it."""

    def has_work(folder: str) -> bool:
        above = f"{os.path.realpath(folder)}{os.sep}"
        return any(f"{os.path.realpath(one)}{os.sep}".startswith(above) for one in worked_in)

    if not has_work(cache):
        return [cache]
    inside = [os.path.join(cache, name) for name in own]
    return [folder for folder in inside if not has_work(folder)]


def _only_reads(flags: int) -> bool:
    return flags & os.O_ACCMODE == os.O_RDONLY and not flags & (os.O_CREAT | os.O_TRUNC)


@functools.lru_cache(maxsize=1024)
def _folder(path: str) -> str:
    # Cached, as a script reads thousands of files from one folder.
    return os.path.realpath(path)


def _text(path: Any) -> str:
    return os.fsdecode(os.fspath(path))


def _located(path: Any, folder: Any) -> str:
    """Return the absolute path of a name, which may be relative to an open folder; no link at its end is followed."""
    text = _text(path)
    if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    above, name = os.path.split(os.path.abspath(text))
    return os.path.join(os.path.realpath(above), name)


def _tree(path: str) -> Iterator[str]:
    yield path
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, folders, files in os.walk(path):
            yield from (os.path.join(folder, name) for name in (*folders, *files))
