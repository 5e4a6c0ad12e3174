"""A study at work between discovery and bundle: its trials, its finals, the winner's proof, and the time for them."""

from .budget import Budget, Interruption, RunCancel
from .context import Context, memory_of
from .finals import Finals
from .proving import prove
from .snapshot import Snapshot
from .stopwatch import Stopwatch
from .trials import Trials, open_search
from .watcher import Watcher

__all__ = [
    "Budget",
    "Context",
    "Finals",
    "Interruption",
    "RunCancel",
    "Snapshot",
    "Stopwatch",
    "Trials",
    "Watcher",
    "memory_of",
    "open_search",
    "prove",
]
