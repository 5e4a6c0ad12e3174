"""NVML as this process has it: loaded and opened at the first question, and kept open.

Where NVIDIA's persistence daemon does not run, the driver starts a card anew for whoever opens NVML, which takes
seconds. So it is opened once, for all lists and all meters. What it holds ends with the process: to close it is one
more call that may hang.
"""

from __future__ import annotations

import threading
from typing import Any


class Library:
    """A module like ``pynvml``, opened once.

    Args:
        module: None imports ``pynvml`` when it is first asked for.
    """

    def __init__(self, module: Any = None) -> None:
        self._module = module
        self._is_open = False
        self._lock = threading.Lock()

    @property
    def module(self) -> Any:
        """The module, which may not be open: for its errors and constants."""
        if self._module is None:
            import pynvml

            self._module = pynvml
        return self._module

    def open(self) -> Any:
        """The module, open. Its NVMLError where it cannot be opened; the next question then tries again.

        Whoever asks while another thread's opening hangs, hangs as well: ask with a deadline (``Questions``).
        """
        module = self.module
        with self._lock:
            if not self._is_open:
                module.nvmlInit()
                self._is_open = True
        return module


_NVML = Library()


def library_of(nvml: Any) -> Library:
    """The one of this process, or for a module that stands for ``pynvml`` one of its own."""
    if nvml is None:
        return _NVML
    return nvml if isinstance(nvml, Library) else Library(nvml)
