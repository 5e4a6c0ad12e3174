"""NVML as this process has it: loaded and opened at the first question, and kept open.

Where NVIDIA's persistence daemon does not run, the driver starts a card anew for whoever opens NVML, which takes
seconds. So it is opened once, for all lists and all meters. What it holds ends with the process: to close it is one
more call that may hang.
"""

from __future__ import annotations

import functools
from typing import Any


def module_of(nvml: Any = None) -> Any:
    """Return ``pynvml``, imported late, or the module that a test has in its place."""
    if nvml is None:
        import pynvml

        return pynvml
    return nvml


@functools.cache
def open_nvml(module: Any) -> None:
    """Open a module like ``pynvml``, once; its NVMLError where it cannot be opened, and the next call tries again.

    It may hang: ask with a deadline (``Questions``).
    """
    module.nvmlInit()
