"""The controller's side of runs that may change files."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from ..errors import RunError
from .change_log import ForeignLogError, open_lock, try_lock
from .changes import Changes
from .put_back import put_back

_ALIVE_S = 1.0


class BackupDirectory:
    """A folder that keeps files which runs change, and puts them back when no run is at work any more.

    Runs of several controllers may share a folder: the state that the first of them finds is the one that comes back.
    What is beside the folder is taken to be autotune's own, and not looked at.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changes = Changes()
        self._lock = threading.Lock()

    def recover(self) -> Changes:
        """Put back what runs that have died left behind; gives what that was. RunError if that fails."""
        return self._put_back(of_the_dead=True)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Watch a run, until no process of it is left.

        Raises:
            OSError: the folder can't be written.
            RunError: not all could be put back.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recover()
        descriptor, ended = open_lock(self.folder / "lock"), threading.Event()
        try_lock(descriptor, shared=True, wait=True)
        self._sign()
        thread = threading.Thread(target=self._live, args=(ended,), name="backups", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._sign()
            os.close(descriptor)
            with self._lock:
                self.changes.add(self._put_back(of_the_dead=False))

    def _put_back(self, *, of_the_dead: bool) -> Changes:
        if not (self.folder / "journal.jsonl").exists():
            return Changes()
        try:
            return put_back(self.folder, of_the_dead=of_the_dead) or Changes()
        except ForeignLogError as error:
            raise RunError(
                f"what {str(self.folder)!r} keeps is of runs in another folder"
                f"{error.written_in and f', {error.written_in!r}'}, and is not put back from here",
                hint="where that folder is still there, any run in it puts its files back. What was kept of them is in "
                f"{self.folder}: look at it, then remove it",
            ) from None
        except OSError as error:
            raise RunError(
                f"not all that a run has changed on disk could be put back: {error}",
                hint=f"the next command in this folder tries again; what is missing is named in {self.folder}",
            ) from error

    def _live(self, ended: threading.Event) -> None:
        while not ended.wait(_ALIVE_S):
            with contextlib.suppress(OSError):
                self._sign()

    def _sign(self) -> None:
        (self.folder / "alive").touch()
