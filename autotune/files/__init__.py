"""What a script had on disk: kept aside before a run first changes it, and put back after the run.

``keeper.py`` works in the processes of a run, ``shelf.py`` in the controller, ``journal.py`` is what both write and
read. Standard library only: the keeper is loaded into every Python process that a script starts.
"""
