"""The report: one typed record of a study, as text for a terminal and as a page for a browser.

``build.py`` makes the record of ``record.py``. ``answer.py``, ``sentences.py`` and ``tables.py`` write it in words and
rows, which terminal and page share. ``page.py`` is the page, with drawings by ``chart.py`` and ``memory_chart.py``.
"""
