"""Which loops run as one: what is left out of the search for them changes nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from autotune.predict.groups import Groups, Kernel, Loops

# Of as many steps in several ways, as Inductor splits and reduces them, and of others.
RANGES: tuple[Loops, ...] = (((64,), ()), ((8, 8), ()), ((8,), (8,)), ((16,), (4,)), ((8,), ()), ((16,), ()))


class Plain(Groups):
    """Tries every pair of loops that share something, and looks for circles by going from group to group."""

    def _find(self, kernels: Sequence[Kernel], sizes: Sequence[int], storage_of: Sequence[int]) -> None:
        super()._find(kernels, sizes, storage_of)
        self._near, self._fed = [], []
        for place, kernel in enumerate(kernels):
            for other, earlier in enumerate(kernels[:place]):
                shared = {*kernel.seen} & {*earlier.seen, *earlier.writes}
                if kernel.ranges is None or earlier.ranges is None or not shared:
                    continue
                is_mixed = bool(kernel.ranges[1]) != bool(earlier.ranges[1])
                pair = is_mixed, -sum(sizes[each] for each in shared), place - other, other, place
                if steps(kernel.ranges) == steps(earlier.ranges):
                    self._near.append(pair)
                if not {*kernel.reads}.isdisjoint(earlier.writes):
                    self._fed.append(pair)

    def _have_circle(self, both: int, read: int) -> bool:
        pending, done = [place for place in range(len(self._of)) if read >> place & 1], set()
        while pending:
            group = self._of[pending.pop()]
            if self._reads[group] & both:
                return True
            if group not in done:
                done.add(group)
                pending += [place for place in range(len(self._of)) if self._reads[group] >> place & 1]
        return False


def steps(loops: Loops) -> int:
    """How many steps loops take."""
    count = 1
    for each in (*loops[0], *loops[1]):
        count *= each
    return count


def drawn(draw: random.Random, count: int) -> list[Kernel]:
    """Kernels at random, each with a storage of its own, behind four that are given; a few are operators."""
    kernels = []
    for place in range(count):
        reads = tuple(draw.sample(range(max(0, place - 8), place + 4), min(4, draw.randint(1, 3))))
        ranges = None if draw.random() < 0.15 else draw.choice(RANGES[: draw.choice((1, 3, 6))])
        kernels.append(Kernel(place, reads, (place + 4,), ranges, reads, draw.choice((0, 1))))
    return kernels


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_tried_would_not_run_as_one(seed: int) -> None:
    draw, left_out, fused = random.Random(seed), 0, 0
    for _ in range(100):
        kernels = drawn(draw, draw.randint(5, 40))
        sizes = [draw.choice((4, 8, 64)) for _ in range(len(kernels) + 4)]
        found, plain = (kind(kernels, [1] * len(kernels), sizes, range(len(sizes))) for kind in (Groups, Plain))
        tried = len(plain._near) + len(plain._fed)
        left_out += tried - len(found._near) - len(found._fed)
        found.fuse()
        plain.fuse()
        # First the groups: those that wait for each other have no order.
        assert found._of == plain._of
        assert found.ordered() == plain.ordered()
        fused += len(kernels) - len(found.ordered())
    assert left_out > 200
    assert fused > 200
