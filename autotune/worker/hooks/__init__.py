"""Hooks into an unmodified script. A hook never raises into the script: what it cannot do becomes a note."""
