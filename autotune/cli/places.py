"""Where things are kept: in ``.autotune`` of the folder that the user is in, unless named otherwise."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import UsageError
from .options import DEFAULT_STORAGE

if TYPE_CHECKING:
    from ..store import Store

__all__ = [
    "bundle_of",
    "kept_files",
    "logs_of",
    "prepare_state_folder",
    "prepare_storage",
    "runs_of",
    "shown_storage",
    "working_directory",
]

_LONGEST_FOLDER = 160  # of the 255 that file systems have; names of more than ASCII are quoted, three for one


def runs_of(study: str) -> Path:
    """Where a study's runs keep their requests, results and logs."""
    return _state_folder() / "runs" / _folder_of(study)


def bundle_of(study: str, named: Path | None, *, trial: int | None = None) -> Path:
    """Where a study's bundle goes, unless another folder was named; that of a trial is beside the winner's."""
    return named or Path(f"autotune-{_folder_of(study)}" + ("" if trial is None else f"-trial-{trial}"))


def logs_of(study: str, named: Path | None) -> Path:
    """Where a study's event files go, unless another folder was named: where TensorBoard's users look for them."""
    return named or Path("runs") / _folder_of(study)


def kept_files() -> Path:
    """Where files that runs change are kept aside, whatever the study: its neighbours may change the same ones."""
    return _state_folder() / "kept"


def prepare_state_folder() -> None:
    """Make the folder of all this, which git passes over."""
    ignored = _made(_state_folder()) / ".gitignore"
    if not ignored.exists():
        with contextlib.suppress(OSError):  # whoever writes next meets the same failure, and tells
            ignored.write_text("*\n")


def working_directory(*, scratch: bool) -> Path:
    """Where the script runs: in the folder that the user is in, or in one that is made for what it writes."""
    if not scratch:
        return _here()
    prepare_state_folder()
    return _made(_state_folder() / "scratch")


def prepare_storage(url: str) -> str:
    """Make the folder of the default database; any other location is the user's to make."""
    if url == DEFAULT_STORAGE:
        prepare_state_folder()
    return url


def shown_storage(store: Store, storage: str) -> str:
    """The database as it was typed, but for a password in it."""
    return storage if "://" not in storage else store.url


def _folder_of(study: str) -> str:
    """A study's name as the name of one folder."""
    folder = quote(study, safe=" +,=@").replace("..", "%2E%2E")
    if len(folder) > _LONGEST_FOLDER:
        folder = f"{folder[:_LONGEST_FOLDER]}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"
    return folder


def _state_folder() -> Path:
    return _here() / ".autotune"


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the folder you are in is gone: {error.strerror}", hint="change to one that is there"
        ) from None


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}",
            hint="run from a folder you can write to: logs and the default database go to .autotune in it",
        ) from None
    return folder
