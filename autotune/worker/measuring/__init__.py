"""Time and memory of a trial, as the training process sees them.

``trial_meter.py`` says when a trial is warm and when it has been measured enough; it reads ``clocks.py`` and
``peaks.py``. ``memory_split.py`` tells what the memory holds between two steps, ``memory_matrix.py`` what it holds at
each phase of one.
"""
