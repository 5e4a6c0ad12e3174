"""A study at work between discovery and bundle: its trials, its finals, the winner's proof, and the time for them."""

from .budget import Budget, Interruption
from .context import Context, memory_limit
from .finals import Finals
from .proving import prove
from .trials import Trials, open_search
from .watcher import Watcher

__all__ = [
    "Budget",
    "Context",
    "Finals",
    "Interruption",
    "Trials",
    "Watcher",
    "memory_limit",
    "open_search",
    "prove",
]
