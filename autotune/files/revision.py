"""A script as of a revision of its git repository, which stays as it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError

_TIMEOUT_S = 600.0
_OTHER_VERSION = "name another version of the script: --against PATH"


@dataclass(frozen=True)
class Revision:
    """The ``script`` in a ``folder`` with all files of a revision; ``repository`` has those of now."""

    script: Path
    folder: Path
    repository: Path


@contextlib.contextmanager
def at_revision(script: Path, name: str) -> Iterator[Revision]:
    """Yield a script as of a revision, in a folder that is removed afterwards.

    Files are written as git checks them out, but for submodules and for what git LFS would fetch.

    Raises:
        UsageError: git does not have the script as of that revision.
    """
    script = script.resolve()
    git = _Git(script.parent)
    repository = Path(git("rev-parse", "--show-toplevel", why=f"{str(script)!r} is in no git repository"))
    why = f"--against {name!r} is neither a file nor a revision of the script's repository"
    git = _Git(repository)
    tree = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{tree}}", why=why)
    # The name is one of those that answers about changed files leave out.
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve() / "files"
        git = _Git(repository, GIT_INDEX_FILE=f"{made}/index", GIT_LFS_SKIP_SMUDGE="1")
        why = f"git cannot write the files of {name!r}"
        git("read-tree", tree, why=why)
        git("checkout-index", "--all", f"--prefix={folder}/", why=why)
        inside = folder / script.relative_to(repository.resolve())
        if not inside.is_file():
            raise UsageError(f"there is no {script.name} at {name!r}", hint="name a later revision")
        yield Revision(inside, folder, repository)


class _Git:
    """Runs git in a folder; variables of its own, as hooks have them, do not count."""

    def __init__(self, folder: Path, **variables: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._folder, self._environment = folder, inherited | variables

    def __call__(self, *arguments: str, why: str) -> str:
        """Return what git prints, or raise a UsageError that begins with ``why``."""
        command = ("git", *arguments)
        try:
            ended = subprocess.run(
                command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"git does not answer: {error}", hint=_OTHER_VERSION) from error
        if ended.returncode:
            said = os.fsdecode(ended.stderr).strip()
            raise UsageError(why, hint=f"git says: {said}" if said else f"see `git log`, or {_OTHER_VERSION}")
        return os.fsdecode(ended.stdout).removesuffix("\n")
