"""What to try next, and what the answer is.

``build_space`` chooses what may vary, ``Search`` asks for runs and learns from their outcomes, ``finalists`` says who
is measured again beside the baseline, and ``decide`` gives the verdict. ``fits_of`` tells what should fit before any of
that. The Optuna study and plain records come from outside; nothing here knows where they are stored.
"""

from .aim import Aim
from .finalists import baseline_is_finite, feasible_trials, finalists
from .fit import fits_of
from .given import Given
from .rounds import compare, holds, is_beaten, is_lost, tells
from .search import Asked, Search
from .space import Space, build_space
from .verdict import allowed, decide

__all__ = [
    "Aim",
    "Asked",
    "Given",
    "Search",
    "Space",
    "allowed",
    "baseline_is_finite",
    "build_space",
    "compare",
    "decide",
    "feasible_trials",
    "finalists",
    "fits_of",
    "holds",
    "is_beaten",
    "is_lost",
    "tells",
]
