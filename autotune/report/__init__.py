"""The report: one typed record of a study, as text for a terminal and as a page for a browser.

``record.py`` is the record, ``build.py`` makes it. ``answer.py`` and ``sentences.py`` say it in words, ``tables.py`` in
rows, which every place that shows it shares. ``page.py`` is the page, with the drawings of ``chart.py`` and
``area.py``. ``foresight.py`` is what discovery alone tells, ``tree.py`` the model as a tree of what its parts keep,
``gates.py`` what gates said,
``audit.py`` what an audit found.
"""
