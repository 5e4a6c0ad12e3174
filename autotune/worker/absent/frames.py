"""The lines that a recorded operator comes from."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

# The script may go elsewhere, and its lines are named as seen from where it began.
_FOLDER = f"{Path.cwd()}/"
_HERE = str(Path(__file__).parent.parent.parent)
_TORCH = f"{Path(torch.__file__).parent}/"
# Between an operator's caller and the recorder stand private modules of torch alone.
_RECORDING = (_HERE, f"{_TORCH}_", f"{_TORCH}utils/_")
_LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib"))
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
# torch has two between the script and the recorder.
_FRAMES_OF_A_WAY = 6

Line = tuple[str, int]  # the whole path of a file, and a number


def way_here() -> tuple[Line, ...]:
    """Return files and lines of the innermost frames that are not autotune's."""
    frame: Any = sys._getframe(1)
    way: list[Line] = []
    while frame is not None and len(way) < _FRAMES_OF_A_WAY:
        if not frame.f_code.co_filename.startswith(_HERE):
            way.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(way)


def lines_here() -> tuple[Line | None, Line | None]:
    """Return the innermost line outside of torch, and the innermost one of the script's own; None where none is."""
    frame: Any = sys._getframe(1)
    outside: Line | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HERE, "<")):
            if not file.startswith(_LIBRARIES) and not _PACKAGES.match(file):
                line = file, frame.f_lineno
                return outside or line, line
            if outside is None and _PACKAGES.match(file) and not file.startswith(_TORCH):
                outside = file, frame.f_lineno
        frame = frame.f_back
    return outside, None


def is_in_engine() -> bool:
    """Return whether autograd's engine runs an operator of its own, and no Python code that it has called."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_RECORDING):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_engine_run_backward"


def told(line: Line | None) -> str:
    """Write a line as ``file:number``, as seen from the script's folder or that of its packages; empty for None."""
    return "" if line is None else f"{_PACKAGES.sub('', line[0]).removeprefix(_FOLDER)}:{line[1]}"


def asking_line() -> str:
    """Return the innermost line of the script's own; failing that, of a library other than torch."""
    outside, own = lines_here()
    return told(own or outside) or "a line that cannot be told"
