"""The search: the choice of what to try next.

``build_space`` chooses what may vary, ``Search`` asks for runs and learns from their outcomes, and ``fits_of`` tells
what should fit before any trial. From bottom to top: ``space`` is what may be tried, and ``candidates`` all of it as
numbers. ``cost`` is all that is believed of memory and speed. ``acquisition`` holds untried candidates beside the
best trial. ``knowledge`` says what is still worth a trial, and ``proposal`` chooses the next run. ``optuna_trials``
writes and reads the trials of Optuna's study.
"""
