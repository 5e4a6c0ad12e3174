"""Modes of a run, which say what the run is for: one class for each mode of a request, driven by the conductor."""
