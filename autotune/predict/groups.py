"""Which of Inductor's loops run as one.

Source: ``torch/_inductor/scheduler.py: fuse_nodes, get_possible_fusions, can_fuse, will_fusion_create_cycle`` and
``codegen/cpp.py: CppScheduling``.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Groups", "Kernel", "Loops", "Ranges", "Storages"]

# torch._inductor.config.max_fusion_size and cpp.max_horizontal_fusion_size, the distance of
# Scheduler.are_long_distant_nodes, and the rounds of Scheduler.fuse_nodes.
_MOST_FUSED, _MOST_FUSED_SIDEWAYS, _FARTHEST, _MOST_ROUNDS = 64, 16, 64, 10
# The shape of a group whose loops are of several.
_SEVERAL = -1

Storages = tuple[int, ...]
Ranges = tuple[int, ...]
Loops = tuple[Ranges, Ranges]
# Whether just one of two loops is a reduction, the bytes that they share, negative, their distance, and their numbers.
_Pair = tuple[bool, int, int, int, int]


class Kernel(NamedTuple):
    """What computes one node: the storages that it reads, in that order, and makes; for a loop, over which ranges.

    ``ranges`` are those of the results and, for a reduction, those that each result is reduced over. ``seen`` are what
    loops have in common that read the same: storages, and parts of storages by numbers behind those. ``changes`` are
    storages that it writes to places in, and ``is_copy`` tells of a loop that only lays out anew what it reads. Loops
    of the same ``shape`` have results of one shape, before neighbouring dimensions become one.
    """

    node: int
    reads: Storages
    writes: Storages
    ranges: Loops | None = None
    seen: Storages = ()
    shape: int = 0
    changes: Storages = ()
    is_copy: bool = False


class _Found(enum.Enum):
    """What came of two groups: nothing, as they are not of a kind; one; or a circle, would they be one."""

    NOTHING = enum.auto()
    FUSED = enum.auto()
    CIRCLE = enum.auto()


class Groups:
    """Kernels, each in a group of its own at first; a group goes by the number of one of its kernels.

    Args:
        kernels: in the order of their nodes.
        num_nodes: how many nodes Inductor counts for each.
        sizes: bytes of each storage; what two loops share most of is fused first.
        storage_of: the storage that a number in ``Kernel.seen`` is, or is a part of.
    """

    def __init__(
        self, kernels: Sequence[Kernel], num_nodes: Sequence[int], sizes: Sequence[int], storage_of: Sequence[int]
    ) -> None:
        count = len(kernels)
        self._of = list(range(count))
        self._changed: set[int] = set()
        # Of groups of several.
        self._members: dict[int, list[int]] = {}
        self._counts = [1] * count
        # As bits: the kernels of a group, those that it reads, and all that have to run before the ones or the others.
        self._bits = [1 << place for place in range(count)]
        self._reads: list[int] = []
        self._before: list[int] = []
        # As bits, the kernels in groups of several, and those that some group has kernels before and not before.
        self._joined = self._spanned = 0
        self._ranges = [kernel.ranges or ((), ()) for kernel in kernels]
        self._shapes = [kernel.shape for kernel in kernels]
        # Where only the outer ranges are shared: how many, and the ranges of the last loop.
        self._depth = [0] * count
        self._last = list(self._ranges)
        ends = [*itertools.accumulate(num_nodes)]
        self._first_node = [end - number for end, number in zip(ends, num_nodes, strict=True)]
        self._last_node = [end - 1 for end in ends]
        # Pairs of loops that share a storage: of as many steps and not far apart, or of which one reads the other; and
        # those of which one does, of any steps. Sorted they are in the order in which they are tried.
        self._near: list[_Pair] = []
        self._fed: list[_Pair] = []
        self._find(kernels, sizes, storage_of)

    def _find(self, kernels: Sequence[Kernel], sizes: Sequence[int], storage_of: Sequence[int]) -> None:
        """Find what kernels read of each other, and the pairs.

        Two loops with an operator between them never become one, nor does a reduction with a loop of as many steps that
        reads it.
        """
        bits, all_before, near, fed = self._bits, self._before, self._near, self._fed
        steps = [math.prod(own + reduced) for own, reduced in self._ranges]
        reduces = [bool(reduced) for _, reduced in self._ranges]
        makers: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        # As bits, what comes before an operator that comes before a kernel.
        all_apart: list[int] = []
        for place, (_, reads, writes, ranges, seen, _, changes, _) in enumerate(kernels):
            sources = {makers[storage] for storage in reads if storage in makers}
            direct = before = apart = 0
            for each in sources:
                direct |= bits[each]
                before |= all_before[each]
                apart |= all_apart[each]
            before |= direct
            self._reads.append(direct)
            all_before.append(before)
            all_apart.append(before if ranges is None else apart)
            for storage in writes:
                makers.setdefault(storage, place)
            for storage in changes:
                makers[storage] = place
            if ranges is None:
                continue
            own_steps, is_reduction = steps[place], reduces[place]
            # What it shares with others, in bytes.
            shared: dict[int, int] = {}
            for storage in seen:
                if storage not in readers:
                    readers[storage] = [place]
                    continue
                others, size = readers[storage], sizes[storage_of[storage]]
                for each in reversed(others):
                    if place - each > _FARTHEST:
                        break
                    if steps[each] == own_steps or each in sources:
                        shared[each] = shared.get(each, 0) + size
                # The first is what makes it, if a loop does.
                if place - others[0] > _FARTHEST and others[0] in sources:
                    shared[others[0]] = shared.get(others[0], 0) + size
                others.append(place)
            for storage in writes:
                readers[storage] = [place]
            for each, size in shared.items():
                if apart >> each & 1:
                    continue
                pair = is_reduction != reduces[each], -size, place - each, each, place
                feeds = each in sources
                if feeds:
                    fed.append(pair)
                if steps[each] == own_steps and not (feeds and reduces[each]):
                    near.append(pair)

    def fuse(self) -> None:
        """Put loops together that run as one: first such over equal ranges, then such as share the outer ones.

        Inductor comes to the latter only when it finds none of the former. Two that would wait for each other by what
        is between them it finds again and again, and leaves it at that.
        """
        near, of, changed = sorted(self._near), self._of, self._changed
        for _ in range(_MOST_ROUNDS):
            changed.clear()
            left = []
            has_circle = False
            for pair in near:
                one, other = of[pair[3]], of[pair[4]]
                if one != other:
                    what = self._fuse(one, other)
                    if what is not _Found.FUSED:
                        left.append((pair, what is _Found.CIRCLE))
                        has_circle = has_circle or what is _Found.CIRCLE
            if not changed:
                if not has_circle:
                    for *_, one, other in sorted([pair for pair in self._fed if of[pair[3]] != of[pair[4]]]):
                        self._fuse_outer(of[one], of[other])
                return
            # The others would come to the same again.
            near = [pair for pair, is_circle in left if is_circle or of[pair[3]] in changed or of[pair[4]] in changed]

    def _fuse(self, one: int, other: int) -> _Found:
        """Fuse two groups, if they run over the same ranges."""
        is_same = self._are_same(one, other)
        if not is_same and not (self._ranges[one][1] and self._are_same(other, one)):
            return _Found.NOTHING
        number = self._counts[one] + self._counts[other]
        if number > _MOST_FUSED:
            return _Found.NOTHING
        feeds = bool(self._bits[one] & self._before[other])
        if self._bits[other] & self._before[one]:
            if feeds:
                return _Found.NOTHING
            one, other, feeds = other, one, True
            is_same = self._are_same(one, other)
        if feeds and (self._ranges[one][1] or not is_same or self._have_between(one, other)):
            return _Found.NOTHING
        if not feeds and (number > _MOST_FUSED_SIDEWAYS or self._distance(one, other) > _FARTHEST):
            return _Found.NOTHING
        if not self._join(one, other):
            return _Found.CIRCLE
        taken, kept = self._ranges[other], self._ranges[one]
        if (bool(taken[1]), len(taken[0])) > (bool(kept[1]), len(kept[0])):
            self._ranges[one] = taken
        self._last[one] = self._ranges[one]
        return _Found.FUSED

    def _fuse_outer(self, one: int, other: int) -> None:
        """Fuse a group with one that reads it, if they share their outer ranges."""
        if one == other or self._counts[one] + self._counts[other] > _MOST_FUSED:
            return
        depth, own = self._depth[one], self._depth[other]
        if not (depth and own):
            first, second = self._last[one][0], self._ranges[other][0]
            shared = min(len(first), len(second))
            if first[:shared] != second[:shared]:
                return
            depth, own = depth or shared, own or shared
        if depth and depth == own and self._join(one, other):
            self._depth[one] = depth
            self._last[one] = self._last[other]

    def ordered(self) -> list[list[int]]:
        """The groups in the order of their first kernels, each behind what it reads."""
        done = 0
        order: list[list[int]] = []
        for group in self._of:
            pending = [group]
            while pending:
                each = pending[-1]
                missing = self._reads[each] & ~done
                if self._bits[each] & done:
                    pending.pop()
                elif missing:
                    pending += sorted({self._of[kernel] for kernel in _places(missing)}, reverse=True)
                else:
                    done |= self._bits[each]
                    order.append(sorted(self._members[each]) if each in self._members else [each])
        return order

    def _have_between(self, one: int, other: int) -> bool:
        """Whether a group reads what others make that read another group."""
        own = self._bits[one]
        others = self._reads[other] & ~own
        while others:
            group = self._of[others.bit_length() - 1]
            if own & self._before[group]:
                return True
            others &= ~self._bits[group]
        return False

    def _are_same(self, one: int, other: int) -> bool:
        """Whether two groups of as many steps run over equal ranges, or the first over all that the other reduces."""
        first, second = self._ranges[one], self._ranges[other]
        if first == second:
            return True
        if first[1]:
            return False
        if second[1]:
            return first[0] == second[0] + second[1]
        if self._shapes[one] != self._shapes[other]:
            return False
        # A single loop over one range can be split as others of its shape are; fused ones stay as they are.
        return (len(first[0]) == self._counts[one] == 1) or (len(second[0]) == self._counts[other] == 1)

    def _distance(self, one: int, other: int) -> int:
        return max(self._last_node[one] - self._first_node[other], self._last_node[other] - self._first_node[one])

    def _join(self, one: int, other: int) -> bool:
        """Make two groups one, unless others would have to run between them."""
        bits, reads, of = self._bits, self._reads, self._of
        both = bits[one] | bits[other]
        read = (reads[one] | reads[other]) & ~both
        if self._have_circle(both, read):
            return False
        taken = self._members.pop(other, [other])
        for kernel in taken:
            of[kernel] = one
        self._changed.add(one)
        self._members.setdefault(one, [one]).extend(taken)
        self._counts[one] += len(taken)
        if self._shapes[one] != self._shapes[other]:
            self._shapes[one] = _SEVERAL
        self._first_node[one] = min(self._first_node[one], self._first_node[other])
        self._last_node[one] = max(self._last_node[one], self._last_node[other])
        bits[one], reads[one] = both, read
        self._before[one] = (self._before[one] | self._before[other]) & ~both
        self._joined |= both
        self._spanned |= (1 << both.bit_length()) - 2 * (both & -both)
        return True

    def _have_circle(self, both: int, read: int) -> bool:
        """Whether any of the kernels that a group reads would have to wait for that group itself.

        It would if it did by itself, or if one did that is in a group with another that it waits for. No kernel waits
        for a later one, so that need not be followed down past where no group has kernels on both sides.
        """
        before, of, bits = self._before, self._of, self._bits
        past = (both & -both) * 2 - 1 & ~self._spanned
        earlier = (1 << past.bit_length()) // 2 - 1
        pending, done = read & ~earlier, earlier
        while pending:
            group = of[pending.bit_length() - 1]
            if before[group] & both:
                return True
            done |= bits[group]
            pending = (pending | before[group] & self._joined) & ~done
        return False


def _places(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
