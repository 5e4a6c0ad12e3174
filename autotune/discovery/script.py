"""Checks on the script that need no run."""

from __future__ import annotations

import difflib
import hashlib
import io
from pathlib import Path

from ..errors import UsageError

__all__ = ["check_script", "script_sha256"]


def check_script(path: Path) -> Path:
    """Give the script's absolute path; UsageError if it is not there, is no file, or does not parse."""
    if not path.exists():
        near = difflib.get_close_matches(path.name, _python_files(path.parent), n=1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "give the path of a Python script"
        raise UsageError(f"there is no script {str(path)!r}", hint=hint)
    if path.is_dir():
        hint = "give the script inside it, as in " + str(path / next(iter(_python_files(path)), "train.py"))
        raise UsageError(f"{str(path)!r} is a folder", hint=hint)
    try:
        with io.open_code(str(path)) as file:
            compile(file.read(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", hint="check its permissions") from None
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}"
        line = (error.text or "").strip()
        raise UsageError(f"{where}: {error.msg}: {line}", hint="mend the script; `python` would say the same") from None
    except ValueError as error:
        raise UsageError(f"{str(path)!r} is not Python source: {error}", hint="give a Python script") from None
    return path.resolve()


def script_sha256(path: Path) -> str:
    """The script's content as a hash: a study belongs to one version of its script."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _python_files(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".py")
    except OSError:
        return []
