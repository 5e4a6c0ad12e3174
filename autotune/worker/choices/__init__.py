"""Choices that torch has under any engine, made in a training process without touching the script.

``optimizers.py`` has torch's optimizers step in another way, ``precision.py`` puts autocast around the training
forward, ``allocator.py`` looks whether a setting of torch's allocator took: a module for each kind of choice in
``records/choices.py``, which names its class there. What could not be made is a problem, and the trial's outcome:
nothing is left out in silence.
"""
