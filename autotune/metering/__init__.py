"""A worker's measurements of itself, whatever it runs: standard library only.

``results.py`` writes what a run leaves behind. ``trial_meter.py`` has a trial's clocks, and says when it is warm and
when it has been measured enough. ``host.py`` reads the memory of the process, and what machine it is on.
"""
