"""A script's files on disk: kept aside before a run first changes them, and put back after the run.

Standard library only: ``backup.py`` is loaded into every Python process of a run. The controller uses
``backup_directory.py``.
"""
