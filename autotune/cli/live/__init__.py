"""The live display of a study.

``display.py`` is told what happens, prints the lines that stay, and keeps a record of what is known (``state.py``). On
a terminal a small block below them is drawn from that record by ``block.py``, with a sketch from ``front.py`` and bars
from ``bar.py``, in the characters of ``marks.py``: functions from the record to text. ``screen.py`` paints that text.
"""

from .display import Display, print_baseline

__all__ = ["Display", "print_baseline"]
