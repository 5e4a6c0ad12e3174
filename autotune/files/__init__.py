"""A script's files on disk: kept aside before a run first changes them, and put back after the run.

``keeper.py`` works in the processes of a run, ``shelf.py`` in the controller; both write and read ``journal.py``'s
journal. Standard library only: the keeper is loaded into every Python process that a script starts.
"""
