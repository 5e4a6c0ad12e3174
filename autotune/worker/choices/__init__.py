"""Choices that torch has under any engine, made in a training process without touching the script.

There is a module for each kind of choice in ``records/choices.py``, which names its class there. What could not be made
is a problem, and the trial's outcome: nothing is left out in silence.
"""
