"""Checks that a study can be had: of the script before a run, the findings of discovery, choices, and the limit."""
