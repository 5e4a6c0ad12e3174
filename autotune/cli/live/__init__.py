"""The live display of a study.

``display.py`` is told what happens, prints the lines that stay (some of them made in ``lines.py``), and keeps a record
of what is known (``state.py``). On a terminal ``block.py`` draws a small block below them from that record, with a
sketch from ``front.py`` and bars from ``bar.py``, in the characters of ``marks.py``: functions from the record to text.
``screen.py`` paints that text.
"""
