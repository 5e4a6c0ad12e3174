"""A worker's measurements of itself, whatever it runs: standard library only."""
