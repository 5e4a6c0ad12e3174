"""Checks on the script that need no run."""

from __future__ import annotations

import difflib
import io
import os
import shutil
import stat
from pathlib import Path

from ..errors import UsageError
from ..machine.interpreter import find_module
from ..records.command import as_operand, shell_word
from ..records.printable import is_unicode

MODEL_SUFFIX = ".onnx"

_NOTEBOOK = ".ipynb"


def check_script(path: Path, *, python: str) -> Path:
    """Give the script's absolute path; UsageError if it is not there, is no file, or does not parse."""
    mode = _mode(path)
    if mode is None:
        program = _program(path, python)
        if program is None:
            raise UsageError(f"there is no script {str(path)!r}", hint=_instead_of(path))
        if path.name.startswith("python"):
            raise UsageError(f"{path.name!r} is an interpreter", hint=f"leave it out: scripts are run with {python}")
        _check_parses(program, f"the program {str(program)!r} is not in Python", hint="give the script that it starts")
        return program
    if stat.S_ISDIR(mode):
        hint = "give the script inside it, as in " + str(path / next(iter(_python_files(path)), "train.py"))
        raise UsageError(f"{str(path)!r} is a folder", hint=hint)
    if not stat.S_ISREG(mode):
        # Each run reads it anew: a pipe would be empty by then, or keep us waiting for somebody who writes into it.
        raise UsageError(f"{str(path)!r} is no plain file", hint="give a Python script that lies on a disk")
    if path.suffix == _NOTEBOOK:
        notebook, script = (shell_word(as_operand(str(one))) for one in (path, path.with_suffix(".py")))
        raise UsageError(
            f"{str(path)!r} is a notebook, which Python does not run",
            hint=f"make a script of it: jupyter nbconvert --to script {notebook}; then autotune {script}",
        )
    _check_parses(path, f"{str(path)!r} is not Python source", hint="give a Python script")
    resolved = path.resolve()
    if not is_unicode(str(resolved)):
        raise UsageError(
            f"the name of {str(resolved)!r} is not UTF-8, and torch can't compile what is in such a file",
            hint="rename the script, or the folder that it is in",
        )
    return resolved


def check_model(path: Path) -> Path:
    """Give the absolute path of an ONNX model; UsageError if it is not there, or no file."""
    mode = _mode(path)
    if mode is None:
        near = difflib.get_close_matches(path.name, _files(path.parent, MODEL_SUFFIX), n=1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "give the path of an ONNX model"
        raise UsageError(f"there is no model {str(path)!r}", hint=hint)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{str(path)!r} is no plain file", hint="give an ONNX model that lies on a disk")
    return path.resolve()


def check_module(name: str, *, python: str) -> Path:
    """Give the absolute path of the file that ``python -m name`` runs from this folder; UsageError if there is none."""
    if name.endswith(".py") or "/" in name:
        module = ".".join(Path(name.removesuffix(".py")).parts)
        raise UsageError(f"-m takes the name of a module, not a file: {name!r}", hint=f"did you mean -m {module}?")
    found = find_module(name, python)
    if found.missing:
        raise UsageError(
            f"{python} finds no module {found.missing!r} from this folder",
            hint=f"start autotune where `python -m {name}` works, mostly the folder above the package",
        )
    _check_parses(Path(found.file), f"module {name!r} is not Python source", hint="give one that is")
    return Path(found.file)


def _mode(path: Path) -> int | None:
    """Return what the path is, links followed (``stat.S_ISREG`` and the like); None if nothing is there."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {error.strerror}", hint="check its name and permissions"
        ) from None


def _check_parses(path: Path, refusal: str, *, hint: str) -> None:
    try:
        with io.open_code(str(path)) as file:
            compile(file.read(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", hint="check its permissions") from None
    except SyntaxError as error:
        if path.suffix != ".py" and error.lineno in (None, 0, 1):
            raise UsageError(refusal, hint=hint) from None
        where = f"{path}, line {error.lineno}"
        line = (error.text or "").strip()
        raise UsageError(f"{where}: {error.msg}: {line}", hint="mend the script; `python` would say the same") from None
    except ValueError as error:
        raise UsageError(f"{refusal}: {error}", hint=hint) from None


def _program(name: Path, python: str) -> Path | None:
    """A program of the interpreter's environment, or one that a shell would find."""
    if name.parent != Path() or not name.name:
        return None
    beside = Path(python).with_name(name.name)
    found = str(beside) if beside.is_file() else shutil.which(name.name)
    # Not resolved: what is installed may be a link, and lies in its environment all the same.
    return None if found is None else Path(os.path.abspath(found))  # noqa: PTH100


def _instead_of(path: Path) -> str:
    near = difflib.get_close_matches(path.name, _python_files(path.parent), n=1)
    if near:
        return f"did you mean {path.parent / near[0]}?"
    if Path(*path.name.split(".")).with_suffix(".py").exists():
        return f"did you mean -m {path.name}?"
    return "give the path of a Python script, or -m and the name of a module"


def _python_files(folder: Path) -> list[str]:
    return _files(folder, ".py")


def _files(folder: Path, suffix: str) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.suffix == suffix)
    except OSError:
        return []
