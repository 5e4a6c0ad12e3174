"""Places of autotune's files. All but bundles and event files lie in ``.autotune`` of the current folder by default."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import UsageError
from ..records.printable import is_unicode
from ..records.study import StudyRecord
from .options import DEFAULT_STORAGE

if TYPE_CHECKING:
    from ..store.database import Store

# What is in the folder of all this.
_DATABASE_NAMES = [f"studies.db{end}" for end in ("", "-journal", "-shm", "-wal")]
_OWN_NAMES = frozenset({".gitignore", "functions", "kept", "runs", "scratch", *_DATABASE_NAMES})
_LONGEST_FOLDER = 160  # of the 255 that file systems have; names of more than ASCII are quoted, three for one


def runs_of(study: str) -> Path:
    """Return where a study's runs keep their requests, results and logs."""
    folder = _state_folder() / "runs" / _folder_of(study)
    _check_within(folder)
    return folder


def bundle_of(study: str, named: Path | None, *, trial: int | None = None) -> Path:
    """Return where a study's bundle goes, unless another folder was named; that of a trial is beside the winner's."""
    if named is not None:
        return _storable(named)
    folder = Path(f"autotune-{_folder_of(study)}" + ("" if trial is None else f"-trial-{trial}"))
    if folder.is_symlink():
        raise _leads_out(folder, "remove it, or name the folder that is meant with --output DIR")
    return folder


def logs_of(study: str, named: Path | None) -> Path:
    """Return the folder for a study's event files: ``named``, else one in ``runs``, where TensorBoard's users look."""
    return named or Path("runs") / _folder_of(study)


def caches_of_studies() -> dict[str, Path]:
    """Return the folders of the studies' compile caches, by the names of the studies' folders."""
    found = sorted((_state_folder() / "runs").glob("*/caches"))
    for folder in found:
        _check_within(folder.parent)
        _check_within(folder)
    return {folder.parent.name: folder for folder in found if folder.is_dir()}


def kept_files() -> Path:
    """Return where files that runs change are kept aside: once for all studies, which may change the same files."""
    return _state_folder() / "kept"


def prepare_state_folder() -> None:
    """Make the folder of all this, which git passes over."""
    ignored = _made(_state_folder()) / ".gitignore"
    if not ignored.exists():
        with contextlib.suppress(OSError):  # whoever writes next meets the same failure, and tells
            ignored.write_text("*\n")


def working_directory(*, scratch: bool) -> Path:
    """Return where the script runs: in the folder that the user is in, or in one that is made for what it writes."""
    if not scratch:
        return _here()
    prepare_state_folder()
    return _made(_state_folder() / "scratch")


def function_script(name: str, text: str) -> Path:
    """Write a function's script where the same function's was before, so that its study is found again."""
    prepare_state_folder()
    folder = _made(_state_folder() / "functions")
    _check_within(folder)
    script = folder / f"{name}_function.py"
    try:
        script.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the function's script cannot be written to {str(script)!r}: {error.strerror}", hint="make room for it"
        ) from None
    return script


def prepare_storage(url: str) -> str:
    """Make the folder of the default database; any other location is the user's to make."""
    if url == DEFAULT_STORAGE:
        prepare_state_folder()
    return url


def open_known(url: str) -> Store:
    """Open the database of a command that only reads; UsageError if the default one is not autotune's own."""
    from ..store.database import open_store

    if url == DEFAULT_STORAGE:
        _state_folder()
    return open_store(url, create=False)


def stored_record(study: str, storage: str) -> StudyRecord:
    """Read a study; UsageError where there is no such database, or no such study in it."""
    with open_known(storage) as store:
        return store.open(study).record()


def shown_storage(store: Store, storage: str) -> str:
    """The database as it was typed, but for a password in it, and the place that a link leads to."""
    if storage == DEFAULT_STORAGE and _state_folder().is_symlink():
        return str(_state_folder().resolve() / Path(storage).name)
    return storage if "://" not in storage else store.url


def _folder_of(study: str) -> str:
    folder = quote(study, safe=" +,=@", errors="surrogateescape")
    folder = "%2E" if folder == "." else folder.replace("..", "%2E%2E")
    if len(folder) > _LONGEST_FOLDER:
        folder = f"{folder[:_LONGEST_FOLDER]}-{hashlib.sha256(os.fsencode(study)).hexdigest()[:8]}"
    return folder


def _state_folder() -> Path:
    """Return ``.autotune``; UsageError if writing there would change what somebody else has put there."""
    folder = _here() / ".autotune"
    if folder.is_symlink():
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else None
        if names is None or not names <= _OWN_NAMES:
            what = "leads nowhere" if names is None else f"contains {min(names - _OWN_NAMES)!r}"
            raise _leads_out(folder, f"remove it, or have it lead to an empty folder: that one {what}")
    _check_within(folder)
    _check_within(folder / "runs")
    _check_within(folder / "kept")
    database = folder / Path(DEFAULT_STORAGE).name
    if database.exists() and not database.is_file():
        raise UsageError(f"{str(database)!r} is no plain file", hint="remove it, or name another one with --storage")
    return folder


def _check_within(folder: Path) -> None:
    """UsageError for a link in one of our folders: we make none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise _leads_out(Path(entry.path), "remove it; for a database elsewhere: --storage URL")


def _leads_out(link: Path, hint: str) -> UsageError:
    return UsageError(
        f"{str(link)!r} is a link to {os.readlink(link)!r}, and autotune does not write through it",  # noqa: PTH115
        hint=hint,
    )


def _here() -> Path:
    try:
        return _storable(Path.cwd())
    except OSError as error:
        raise UsageError(
            f"the folder you are in is gone: {error.strerror}", hint="change to one that is there"
        ) from None


def _storable(path: Path) -> Path:
    """UsageError for a path that no database, and no JSON, can hold."""
    if not is_unicode(str(path)):
        raise UsageError(
            f"the name of {str(path)!r} is not UTF-8, and a database can't store it", hint="rename it, or take another"
        )
    return path


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}",
            hint="run from a folder you can write to: logs and the default database go to .autotune in it",
        ) from None
    return folder
