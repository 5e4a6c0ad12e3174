"""The search: the choice of what to try next.

``build_space`` chooses what may vary, ``Search`` asks for runs and learns from their outcomes, and ``fits_of`` tells
what should fit before any trial. The Optuna study and plain records come from outside; nothing here knows where they
are stored.

From bottom to top: ``space`` is what may be tried, ``candidates`` all of it as numbers, and a trial as it is seen here.
``cost`` is all that is believed of memory and speed, before trials and after them. ``standing`` holds
what is untried beside the best trial. ``knowledge`` says what is still worth a trial, and ``proposal`` chooses the next
run. ``optuna_trials`` is how configurations enter Optuna's study, and how trials are read from it.
"""
