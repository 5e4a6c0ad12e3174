"""The script's own trials: it happens to spell like somebody else's."""

LEARNING_RATES = [1e-2, 1e-3]
