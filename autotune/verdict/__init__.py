"""Verdicts of studies: the one place that compares settings by what was measured, and decides which may win.

``Aim`` says what a setting is worth, ``memory_limit`` how much memory runs may take. ``flaws_of`` tells why a
measurement may not be the answer, ``feasible_trials`` which trials may. ``to_confirm`` chooses the settings to measure
again beside the baseline, ``next_repetition`` their order, ``compare`` tells what the repetitions show. ``decide``
gives the verdict, ``gain_of`` a winner's gain in parts. Nothing here knows of Optuna, of a model of costs, or of where
records are stored.
"""
