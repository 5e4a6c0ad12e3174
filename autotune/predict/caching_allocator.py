"""torch's caching allocator for CUDA, simulated: from allocations and frees to the memory reserved of the device.

It behaves as c10/cuda/CUDACachingAllocator.cpp does by default, with neither expandable segments nor a largest size of
blocks that are split.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass

_MIB = 1 << 20
_ROUND = 512
# Requests up to this size come from a pool of their own, of small segments.
_SMALL, _SMALL_SEGMENT = _MIB, 2 * _MIB
# Requests below this size share segments of one size; larger ones get a segment each, rounded up.
_OWN_SEGMENT, _LARGE_SEGMENT, _ROUND_SEGMENT = 10 * _MIB, 20 * _MIB, 2 * _MIB


@dataclass(frozen=True)
class Pool:
    """Names what blocks have in common that can be allocated in each other's place: a stream, and a kind of segment."""

    is_small: bool
    stream: int


@dataclass(eq=False)
class Block:
    """A part of a segment; ``before`` and ``behind`` are its neighbours in the segment."""

    address: int
    size: int
    pool: Pool
    is_free: bool = False
    before: Block | None = None
    behind: Block | None = None


class DeviceFullError(Exception):
    """Says that the device has no room for a segment, even with nothing cached."""


class CachingAllocator:
    """Allocates blocks of one device, which has so many bytes for it; room for everything by default.

    ``reserved`` and ``allocated`` are bytes now, ``peak_reserved`` and ``peak_allocated`` the most so far.
    """

    def __init__(self, limit_bytes: float = math.inf) -> None:
        self._limit_bytes = limit_bytes
        self.reserved = self.allocated = self.peak_reserved = self.peak_allocated = 0
        self._segments = 0
        # Free blocks by size, then address.
        self._free: defaultdict[Pool, list[tuple[int, int, Block]]] = defaultdict(list)

    def allocate(self, size: int, stream: int = 0) -> Block | None:
        """Allocate a block of at least so many bytes for a stream; None for no bytes.

        Raises:
            DeviceFullError: the device has no room for it.
        """
        if size <= 0:
            return None
        size = -(-size // _ROUND) * _ROUND
        pool = Pool(size <= _SMALL, stream)
        free = self._free[pool]
        place = bisect_left(free, (size, -1), key=lambda entry: entry[:2])
        block = free.pop(place)[2] if place < len(free) else self._new_segment(size, pool)
        self._split(block, size)
        block.is_free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: Block | None) -> None:
        """Free a block, which merges with free neighbours."""
        if block is None:
            return
        self.allocated -= block.size
        before, behind = block.before, block.behind
        if before is not None and before.is_free:
            self._take(before)
            before.size += block.size
            before.behind = behind
            if behind is not None:
                behind.before = before
            block = before
        if behind is not None and behind.is_free:
            self._take(behind)
            block.size += behind.size
            block.behind = behind.behind
            if block.behind is not None:
                block.behind.before = block
        self._put(block)

    def empty_cache(self) -> None:
        """Give segments back of which nothing is in use."""
        for pool, free in self._free.items():
            kept = [entry for entry in free if entry[2].before is not None or entry[2].behind is not None]
            self.reserved -= sum(entry[0] for entry in free) - sum(entry[0] for entry in kept)
            self._free[pool] = kept

    def _new_segment(self, size: int, pool: Pool) -> Block:
        if pool.is_small:
            length = _SMALL_SEGMENT
        else:
            length = _LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // _ROUND_SEGMENT) * _ROUND_SEGMENT
        if self.reserved + length > self._limit_bytes:
            self.empty_cache()
            if self.reserved + length > self._limit_bytes:
                raise DeviceFullError
        self.reserved += length
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self._segments += 1
        return Block(self._segments << 50, length, pool)

    def _split(self, block: Block, size: int) -> None:
        rest_bytes = block.size - size
        if rest_bytes < _ROUND if block.pool.is_small else rest_bytes <= _SMALL:
            return
        rest = Block(block.address + size, rest_bytes, block.pool, before=block, behind=block.behind)
        if rest.behind is not None:
            rest.behind.before = rest
        block.behind, block.size = rest, size
        self._put(rest)

    def _put(self, block: Block) -> None:
        block.is_free = True
        insort(self._free[block.pool], (block.size, block.address, block), key=lambda entry: entry[:2])

    def _take(self, block: Block) -> None:
        free = self._free[block.pool]
        del free[bisect_left(free, (block.size, block.address), key=lambda entry: entry[:2])]
