"""The exceptions that autotune raises on purpose.

::

    AutotuneError
    ├── UsageError          an option, a file or a value given by the user is wrong (exit code 2)
    │   ├── PlanError       a plan that is malformed or names a cluster the script does not have
    │   ├── BundleError     a bundle that cannot be read, or cannot be applied here
    │   ├── FormatError     a record's JSON, or a line of a log, that does not have the expected shape
    │   └── StorageError    a storage URL that cannot be used, or a study that is not in it
    │       └── NotPermittedError  the database does not let its user do this
    ├── RunError            the work itself failed (exit code 1)
    │   ├── DiscoveryError  the script did not give the facts a search needs
    │   ├── ExportError     a bundle, or another file of a setting, could not be written
    │   └── PredictionError the needs of a configuration cannot be predicted from the facts
    └── InterruptionError   the user stopped it before there was anything to show (exit code 130)

Every error says what failed, shows the value, and names the next thing to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AutotuneError(Exception):
    """Base of all errors.

    ``hint`` is the next thing the user can do. ``detail`` is text to read before the message: the script's own
    traceback, or its last lines. Both may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.detail = detail


class UsageError(AutotuneError, ValueError):
    """A wrong option, file or value given by the user."""

    exit_code = 2


class PlanError(UsageError):
    """A plan that is malformed, or names a cluster that the script does not have."""


class BundleError(UsageError):
    """A bundle that cannot be read, or cannot be applied here."""


class FormatError(UsageError):
    """A record's JSON, or a line of a log, that does not have the expected shape."""


class StorageError(UsageError):
    """A storage URL that cannot be used, or a study that is not in the storage."""


class NotPermittedError(StorageError):
    """An operation that the database does not permit its user."""


class RunError(AutotuneError):
    """A failure of the work itself."""


class DiscoveryError(RunError):
    """A script that did not give the facts that a search needs."""


class ExportError(RunError):
    """A bundle, or another file of a setting, that could not be written."""


class PredictionError(RunError):
    """A configuration whose needs cannot be predicted: the facts were measured elsewhere, or say too little."""


class InterruptionError(AutotuneError):
    """A stop by the user before there was anything to show."""

    exit_code = 130


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question for the next step of an error about a misspelt word; empty where nothing known is like it."""
    names = list(known)
    lowered = word.lower().replace("_", "-")
    near = [name for name in names if lowered and name.startswith(lowered)]
    near += difflib.get_close_matches(lowered, names, n=1)
    return f"did you mean {near[0]}?" if near else ""
