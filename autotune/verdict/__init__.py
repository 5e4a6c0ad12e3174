"""What may win, and what the answer is: the one place that compares settings by what was measured.

``Aim`` says what a setting is worth, ``memory_limit`` how much memory runs may take, ``flaws_of`` and ``is_feasible``
whether a measurement may be the answer, ``feasible_trials`` which trials may, ``front`` what each amount of memory
buys. ``to_confirm`` says who is measured again beside the baseline, ``awaited`` who of them has rounds that do not tell
yet, ``next_round`` in which order (``order_of_round``) and for how long, ``compare`` what the rounds show, ``decide``
gives the verdict with its sentences, ``gain_of`` tells a winner's gain in parts, and ``compiled_gain`` what compiling
the answer would bring where that was tried without leave. ``judge_audit`` says what a script's own checkpointing is
worth. Nothing here knows of Optuna, of a model of costs, or of where records are stored.
"""
