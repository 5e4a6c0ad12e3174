"""The gate: a setting held against what it was, with an answer that CI can act on. Nothing here starts a run."""
