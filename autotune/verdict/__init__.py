"""What may win, and what the answer is: the one place that compares settings by what was measured.

``Aim`` says what a setting is worth, ``memory_limit`` how much memory runs may take, ``flaws_of`` and ``is_feasible``
whether a measurement may be the answer, ``feasible_trials`` which trials may, ``front`` what each amount of memory
buys. ``to_confirm`` says who is measured again beside the baseline, ``awaited`` who of them has rounds that do not tell
yet, ``next_round`` in which order (``order_of_round``) and for how long, ``compare`` what the rounds show, ``decide``
gives the verdict with its sentences, ``gain_of`` tells a winner's gain in parts, and ``compiled_gain`` what compiling
the answer would bring where that was tried without leave. ``judge_audit`` says what a script's own checkpointing is
worth. Nothing here knows of Optuna, of a model of costs, or of where records are stored.
"""

from .aim import Aim
from .auditing import blocks_would_free, judge_audit
from .decision import allowed, decide, nothing_else_tells
from .feasible import Flaw, flaws_of, is_feasible
from .finalists import awaited, baseline_is_finite, doubtful, feasible_trials, finalists, to_confirm
from .front import front
from .memory_limit import answer_limit_of, limit_of, memory_limit, passed
from .offers import compiled_gain
from .parts import Gain, Kind, gain_of
from .rounds import compare, holds, is_beaten, next_round, order_of_round
from .search_end import EVEN_CHANCE, NOTHING_BELIEVED, STOPPED_FOR_TIME, Believed, SearchEnd
from .sequential import FIRST_LOOK, LEAST_GAIN, LEAST_NOISE, error_quantile

__all__ = [
    "EVEN_CHANCE",
    "FIRST_LOOK",
    "LEAST_GAIN",
    "LEAST_NOISE",
    "NOTHING_BELIEVED",
    "STOPPED_FOR_TIME",
    "Aim",
    "Believed",
    "Flaw",
    "Gain",
    "Kind",
    "SearchEnd",
    "allowed",
    "answer_limit_of",
    "awaited",
    "baseline_is_finite",
    "blocks_would_free",
    "compare",
    "compiled_gain",
    "decide",
    "doubtful",
    "error_quantile",
    "feasible_trials",
    "finalists",
    "flaws_of",
    "front",
    "gain_of",
    "holds",
    "is_beaten",
    "is_feasible",
    "judge_audit",
    "limit_of",
    "memory_limit",
    "next_round",
    "nothing_else_tells",
    "order_of_round",
    "passed",
    "to_confirm",
]
