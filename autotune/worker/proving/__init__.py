"""Mode ``verify``: whether two runs compute the same bits, from the same seeds and with deterministic algorithms."""
