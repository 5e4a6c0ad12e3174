"""torch's caching allocator for CUDA, simulated: from allocations and frees to the memory reserved of the device.

It behaves as c10/cuda/CUDACachingAllocator.cpp does by default or with expandable segments, without a largest size of
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
_NO_END = 1 << 50


@dataclass(frozen=True)
class Pool:
    """Names what blocks have in common that can be allocated in each other's place: a stream, and a kind of segment."""

    is_small: bool
    stream: int


@dataclass(eq=False)
class Block:
    """A part of a segment; ``before`` and ``behind`` are its neighbours in the segment.

    Where it has no memory it is a range of addresses alone, in a segment that expands.
    """

    address: int
    size: int
    pool: Pool
    is_free: bool = False
    has_memory: bool = True
    before: Block | None = None
    behind: Block | None = None


class DeviceFullError(Exception):
    """Says that the device has no room for a segment, even with nothing cached."""


class CachingAllocator:
    """Allocates blocks of one device, which has so many bytes for it; room for everything by default.

    ``reserved`` and ``allocated`` are bytes now, ``peak_reserved`` and ``peak_allocated`` the most so far.
    """

    # The smallest remainder that is split off from a block of the large pool.
    _least_large_rest = _SMALL + 1

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
        block = self._take_free(size, pool)
        if block is None and (block := self._new_memory(size, pool)) is None:
            self.empty_cache()
            block = self._new_memory(size, pool)
        if block is None:
            raise DeviceFullError
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
        self._put(self._joined(block))

    def empty_cache(self) -> None:
        """Give segments back of which nothing is in use."""
        for pool, free in self._free.items():
            kept = [entry for entry in free if entry[2].before is not None or entry[2].behind is not None]
            self.reserved -= sum(entry[0] for entry in free) - sum(entry[0] for entry in kept)
            self._free[pool] = kept

    def _take_free(self, size: int, pool: Pool) -> Block | None:
        """Take the smallest free block of at least this size out of its pool; None if there is none."""
        free = self._free[pool]
        place = bisect_left(free, (size, -1), key=_size_and_address)
        return free.pop(place)[2] if place < len(free) else None

    def _new_memory(self, size: int, pool: Pool) -> Block | None:
        """Return a new segment of at least this size; None where the device has no room."""
        if pool.is_small:
            length = _SMALL_SEGMENT
        else:
            length = _LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // _ROUND_SEGMENT) * _ROUND_SEGMENT
        if not self._reserve(length):
            return None
        self._segments += 1
        return Block(self._segments << 50, length, pool)

    def _reserve(self, size: int) -> bool:
        if self.reserved + size > self._limit_bytes:
            return False
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _split(self, block: Block, size: int) -> None:
        least = _ROUND if block.pool.is_small else self._least_large_rest
        if block.size - size >= least:
            self._put(_cut(block, size))

    def _joined(self, block: Block) -> Block:
        """Join a block that becomes free with its free neighbours."""
        if block.before is not None and block.before.is_free:
            block = block.before
            self._take(block)
            _absorb(block)
        if block.behind is not None and block.behind.is_free:
            self._take(block.behind)
            _absorb(block)
        return block

    def _put(self, block: Block) -> None:
        block.is_free = True
        insort(self._free[block.pool], (block.size, block.address, block), key=_size_and_address)

    def _take(self, block: Block) -> None:
        free = self._free[block.pool]
        del free[bisect_left(free, (block.size, block.address), key=_size_and_address)]


class ExpandableAllocator(CachingAllocator):
    """Allocates blocks as torch does with ``expandable_segments:True``: each pool has one segment, which grows."""

    _least_large_rest = _ROUND

    def __init__(self, limit_bytes: float = math.inf) -> None:
        super().__init__(limit_bytes)
        # Ranges of addresses without memory, by pool; the last one has no end.
        self._bare: dict[Pool, list[Block]] = {}

    def empty_cache(self) -> None:
        """Give pages back of which nothing is in use."""
        for free in self._free.values():
            for _, _, block in list(free):
                self._unmap(block)

    def _take_free(self, size: int, pool: Pool) -> Block | None:
        free = self._free[pool]
        place = bisect_left(free, (size, -1), key=_size_and_address)
        # A block at the end of memory counts as large as it can grow.
        while place + 1 < len(free) and _room(free[place + 1][2]) < _room(free[place][2]):
            place += 1
        return free.pop(place)[2] if place < len(free) else None

    def _new_memory(self, size: int, pool: Pool) -> Block | None:
        bare = self._bare.setdefault(pool, [Block(0, _NO_END, pool, has_memory=False)])
        start = next(first for one in bare if _bytes_from(first := _first_of(one)) >= size)
        block = start if start.has_memory else self._map(start, size)
        while block is not None and block.size < size:
            assert block.behind is not None, "the last range has no end"
            block = self._map(block.behind, size - block.size)
        if block is None:
            return None
        self._take(block)
        return block

    def _map(self, bare: Block, size: int) -> Block | None:
        """Give memory to the first pages of a range; return the free block that they are part of, None without room."""
        page = _page(bare.pool)
        length = min(bare.size, -(-size // page) * page)
        if not self._reserve(length):
            return None
        ranges = self._bare[bare.pool]
        place = ranges.index(bare)
        ranges[place : place + 1] = [_cut(bare, length)] if length < bare.size else []
        bare.has_memory = True
        block = self._joined(bare)
        self._put(block)
        return block

    def _unmap(self, block: Block) -> None:
        page = _page(block.pool)
        start = -(-block.address // page) * page
        end = (block.address + block.size) // page * page
        if end <= start:
            return
        self._take(block)
        if start > block.address:
            whole, block = block, _cut(block, start - block.address)
            self._put(whole)
        if end - start < block.size:
            self._put(_cut(block, end - start))
        self.reserved -= block.size
        block.is_free = block.has_memory = False
        ranges = self._bare[block.pool]
        if block.behind is not None and not block.behind.has_memory:
            ranges.remove(block.behind)
            _absorb(block)
        if block.before is not None and not block.before.has_memory:
            block = block.before
            ranges.remove(block)
            _absorb(block)
        insort(ranges, block, key=lambda bare: bare.address)


def _size_and_address(entry: tuple[int, int, Block]) -> tuple[int, int]:
    return entry[:2]


def _page(pool: Pool) -> int:
    return _SMALL_SEGMENT if pool.is_small else _LARGE_SEGMENT


def _cut(block: Block, size: int) -> Block:
    """Cut a block down to a size, and return the rest of it."""
    rest = Block(
        block.address + size,
        block.size - size,
        block.pool,
        has_memory=block.has_memory,
        before=block,
        behind=block.behind,
    )
    if rest.behind is not None:
        rest.behind.before = rest
    block.behind, block.size = rest, size
    return rest


def _absorb(block: Block) -> None:
    """Make a block as large as itself and the one behind it."""
    gone = block.behind
    assert gone is not None, "it is in the same segment"
    block.size += gone.size
    block.behind = gone.behind
    if gone.behind is not None:
        gone.behind.before = block


def _first_of(bare: Block) -> Block:
    """Return what an allocation in a range would begin with: the free block before it, if there is one."""
    return bare.before if bare.before is not None and bare.before.is_free else bare


def _room(block: Block) -> int:
    """Return how large a free block can grow."""
    behind = block.behind
    return block.size + (behind.size if behind is not None and not behind.has_memory else 0)


def _bytes_from(block: Block | None) -> int:
    """Return the bytes that are free, or have no memory, from a block on."""
    found = 0
    while block is not None and (block.is_free or not block.has_memory):
        found += block.size
        block = block.behind
    return found
