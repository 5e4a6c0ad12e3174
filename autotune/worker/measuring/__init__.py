"""Time and memory of a trial, as the training process sees them.

``meter.py`` makes what ``metering/`` measures trials with out of ``clocks.py`` and ``peaks.py``. ``memory_split.py``
tells what the memory holds between two steps, ``memory_matrix.py`` what it holds at each phase of one.
"""
