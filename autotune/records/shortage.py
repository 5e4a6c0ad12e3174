"""A launch that may run out of memory, or did: with which batch, and what to do next."""

from __future__ import annotations

from .look_ahead import SeenBatch

OUT_OF_MEMORY_STATUS = 4
"""The exit status of a launch whose script ran out of memory."""

_NEXT = {
    "elsewhere": "no batch was under way that its training has drawn: the lines above say where it was",
    "unread": "a study that reads batches ahead measures with the largest: `autotune run --look-ahead 1000`",
    "larger": "a study that reads more batches ahead measures with it: `autotune run --look-ahead N`",
    "measured": "a batch as large was measured: look whether other programs use the GPU; if none does, report this",
}


def larger_text(batch: SeenBatch, epoch: int, *, measured: SeenBatch) -> str:
    """Say that a ``batch`` is larger than the largest that was ``measured``, before a step takes it."""
    return (
        f"autotune: note: batch {batch.number} of epoch {epoch} is larger than any that was measured, "
        f"and memory may run out: {batch.sizes} after {measured.sizes}\n"
    )


def shortage_text(batch: SeenBatch | None, epoch: int, *, measured: SeenBatch | None) -> str:
    """Say with which ``batch`` of which ``epoch`` memory ran out, and what to do.

    ``measured`` is the largest batch that the setting was measured with, None where its study read none ahead.
    """
    where = "" if batch is None else f" with batch {batch.number} of epoch {epoch}: {batch.sizes}"
    told = ""
    if batch is None:
        case = "elsewhere"
    elif measured is None:
        case = "unread"
    elif batch.elements <= measured.elements:
        case = "measured"
    else:
        case, told = "larger", f". The largest that was measured has {measured.sizes}"
    return f"autotune: out of memory{where}{told}\n  next: {_NEXT[case]}\n"
