"""Verdicts of studies: the one place that compares settings by what was measured, and decides which may win.

``Aim`` says what a setting is worth, ``memory_limit`` how much memory runs may take. ``flaws_of`` and ``is_feasible``
tell whether a measurement may be the answer, ``feasible_trials`` which trials may. ``front`` tells what each amount of
memory buys. ``to_confirm`` chooses the settings to measure again beside the baseline. ``awaited`` finds the one of them
whose rounds do not tell yet. ``next_round`` says in which order (``order_of_round``) and for how long they are
measured, ``compare`` what the rounds show. ``decide`` gives the verdict with its sentences. ``gain_of`` tells a
winner's gain in parts. ``compiled_gain`` tells what compiling the answer would bring where that was tried without
leave. ``judge_audit`` says what a script's own checkpointing is worth. Nothing here knows of Optuna, of a model of
costs, or of where records are stored.
"""
