"""The answer to ``autotune.batch_size(default)`` in the script."""

from __future__ import annotations

# One answer for a whole process: a script may ask anywhere, also before torch is imported.
_answer: int | None = None
asked: list[int] = []


def set_answer(batch_size: int | None) -> None:
    """Choose what scripts are told; None tells them their default."""
    global _answer  # noqa: PLW0603
    _answer = batch_size


def requested(default: int) -> int:
    """Give the trial's batch size, or the script's default; remember that it asked."""
    asked.append(default)
    return default if _answer is None else _answer
