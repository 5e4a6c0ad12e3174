"""Description of a script for discovery: the facts that every engine has, and a plan table for each engine.

``description.py`` collects what is the same for all engines, ``graph_description.py`` and ``ortmodule_description.py``
add their plan tables. ``calibration.py`` measures what the simulation of a graph cannot know, by running its halves
(``isolated_run.py``) and single operators (``workspace.py``) while ``allocations.py`` counts.
"""
