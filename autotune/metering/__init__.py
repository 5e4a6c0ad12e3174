"""A worker's measurements of itself, whatever it runs: standard library only.

``results.py`` writes what a run leaves behind, ``trial_meter.py`` says when a trial is warm and when it has been
measured enough. ``trial_meter.py`` reads ``clocks.py`` and ``resident.py``. ``host.py`` is about the process and its
machine.
"""
