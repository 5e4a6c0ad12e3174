"""Python interface in place of the command line: bundles in a loop of one's own, and studies as functions.

``applying.py`` applies a bundle to a model, ``tuning.py`` tunes a script or a function in a process of its own.
``source.py`` writes a function as a script. The package's own ``__init__.py`` loads them when they are called.
"""
