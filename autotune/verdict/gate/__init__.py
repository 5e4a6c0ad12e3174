"""The gate: a setting held against what it was, with an answer that CI can act on.

``weigh`` tells what rounds show of speed and memory, ``decide_gate`` the answer in sentences.
``baseline.py`` says what the setting came to before, and what to compare with on this device. ``rendering.py`` writes
the answer for CI. ``graphs.py`` decides without any rounds. Nothing here starts a run.
"""
