"""Whether a study can be had: the script before a run, what discovery brought back, choices, the limit."""
