"""Landscapes that come of executing training steps: kernels in a queue, and an allocator block by block.

A model is a list of operators with what they compute, move, keep and need as a workspace. A step issues its kernels
from one thread to a GPU that runs them in order: a kernel takes as long as its tiles need in whole waves, or as its
bytes need, whichever is more. The allocator is a caching one: sizes are rounded, blocks are split and merged, segments
are kept. Nothing of it is a formula of the search, and no plan's saving is additive.

Models, GPUs, own batch sizes and noise are drawn from a seed. There are two halves: ``OPEN`` seeds are for looking at,
``KEPT`` ones are run for figures only, and nobody looks at one of them while anything is changed. A third of each half
is ``is_tight``: memory ends while larger batches would still be faster, so that recomputing may pay.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from autotune.records.configuration import Configuration
from autotune.records.environment import Environment
from autotune.records.facts import BatchControl, ClusterFacts, Facts
from autotune.records.measurement import MemorySplit
from autotune.records.plan import ALL, Plan
from autotune.search.space import between

from .table import SCHEMA, Baseline, Cost, Entry, Landscape, NoiseKind

__all__ = ["KEPT", "OPEN", "Gpu", "Machine", "Model", "Operator", "draw", "is_tight", "landscape_of"]

OPEN, KEPT = range(100, 130), range(500, 530)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp).
_ROUND, _SMALL, _SMALL_SEGMENT, _MEDIUM, _MEDIUM_SEGMENT, _LARGE_ROUND = 512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 2 * MIB
_STATES = 4  # parameters, gradients, and two moments of Adam
_ROWS_OF_A_TILE, _COLUMNS_OF_A_TILE = 128, 128
_KERNEL_S = 2e-6
_LAYER = "Block+"
# Batch sizes that people take: powers of two, and one and a half of one.
_USUAL = tuple(sorted({int(2**octave * factor) for octave in range(11) for factor in (1.0, 1.5)}))


@dataclass(frozen=True)
class Gpu:
    """Rates that programs reach, not those of data sheets; ``issue_s`` is what a thread takes for an operator."""

    name: str
    flops: float
    bytes_per_s: float
    processors: int
    memory_bytes: int
    context_bytes: int
    issue_s: float


GPUS = (
    Gpu("H100", 420e12, 2.6e12, 132, 80 * GIB, 620 * MIB, 9e-6),
    Gpu("A100", 210e12, 1.4e12, 108, 40 * GIB, 520 * MIB, 11e-6),
    Gpu("RTX 4090", 120e12, 0.85e12, 128, 24 * GIB, 430 * MIB, 7e-6),
    Gpu("T4", 32e12, 0.25e12, 40, 16 * GIB, 360 * MIB, 14e-6),
)


@dataclass(frozen=True)
class Operator:
    """One operator of a block, for one sample.

    ``out_bytes`` is what it makes, which is kept for the backward where ``keeps``. ``flops`` and the (rows, columns) of
    its product tell how long it computes, ``moved_bytes`` how long it moves. ``workspace`` gives bytes for a batch.
    """

    cluster: str
    out_bytes: float
    moved_bytes: float
    flops: float = 0.0
    shape: tuple[float, int] = (0.0, 0)
    keeps: bool = True
    workspace: Callable[[int], int] = field(default=lambda batch: 0)


@dataclass(frozen=True)
class Model:
    """Blocks in order, each a list of operators; ``layer`` blocks may be recomputed whole, the head never is."""

    blocks: tuple[tuple[Operator, ...], ...]
    head: tuple[Operator, ...]
    parameter_bytes: int
    input_bytes: float
    has_layers: bool


@dataclass(frozen=True)
class Machine:
    """A GPU with what others hold of it, and how speeds scatter."""

    gpu: Gpu
    others_bytes: int
    noise_cv: float
    noise_kind: NoiseKind
    cost: Cost


class Allocator:
    """A caching allocator: what it has reserved so far is ``reserved_bytes``, and it never gives anything back."""

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self._number = itertools.count()
        # (size, number) of free blocks by pool, and of each block its (pool, size, before, after).
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[int, tuple[bool, int, int, int]] = {}
        self._is_free: set[int] = set()

    def take(self, wanted: float) -> int:
        """Give a block of so many bytes; a number stands for it."""
        size = max(_ROUND, math.ceil(wanted / _ROUND) * _ROUND)
        small = size <= _SMALL
        free = self._free[small]
        place = bisect_left(free, (size, -1))
        if place < len(free):
            found, block = free.pop(place)
            self._is_free.discard(block)
        else:
            found = self._segment(size)
            block = self._make(small, found, -1, -1)
            self.reserved_bytes += found
        rest = found - size
        if rest >= _ROUND if small else rest > _SMALL:
            _, _, before, after = self._blocks[block]
            other = self._make(small, rest, block, after)
            if after >= 0:
                self._blocks[after] = (*self._blocks[after][:2], other, self._blocks[after][3])
            self._blocks[block] = (small, size, before, other)
            self._put(other)
        return block

    def give(self, block: int) -> None:
        """Take a block back, and merge it with free neighbours."""
        small, size, before, after = self._blocks[block]
        if after in self._is_free:
            size += self._take_out(after)
            after = self._blocks.pop(after)[3]
        if before in self._is_free:
            size += self._take_out(before)
            before = self._blocks.pop(before)[2]
        for neighbour, place in ((before, 3), (after, 2)):
            if neighbour >= 0:
                entry = list(self._blocks[neighbour])
                entry[place] = block
                self._blocks[neighbour] = tuple(entry)  # type: ignore[assignment]
        self._blocks[block] = (small, size, before, after)
        self._put(block)

    @staticmethod
    def _segment(size: int) -> int:
        if size <= _SMALL:
            return _SMALL_SEGMENT
        return _MEDIUM_SEGMENT if size < _MEDIUM else math.ceil(size / _LARGE_ROUND) * _LARGE_ROUND

    def _make(self, small: bool, size: int, before: int, after: int) -> int:
        block = next(self._number)
        self._blocks[block] = (small, size, before, after)
        return block

    def _put(self, block: int) -> None:
        small, size, _, _ = self._blocks[block]
        insort(self._free[small], (size, block))
        self._is_free.add(block)

    def _take_out(self, block: int) -> int:
        small, size, _, _ = self._blocks[block]
        free = self._free[small]
        del free[bisect_left(free, (size, block))]
        self._is_free.discard(block)
        return size


@dataclass
class _Queue:
    """A thread that issues kernels, and a GPU that runs them in order; both in seconds."""

    gpu: Gpu
    issued_s: float = 0.0
    ready_s: float = 0.0

    def run(self, one: Operator, batch: int, times: float = 1.0) -> None:
        self.issued_s += self.gpu.issue_s
        self.ready_s = max(self.ready_s, self.issued_s) + times * kernel_s(one, batch, self.gpu)

    @property
    def step_s(self) -> float:
        return max(self.issued_s, self.ready_s)


def kernel_s(one: Operator, batch: int, gpu: Gpu) -> float:
    """How long an operator's kernel runs."""
    moved_s = one.moved_bytes * batch / gpu.bytes_per_s
    if not one.flops:
        return _KERNEL_S + moved_s
    rows, columns = one.shape
    tiles = math.ceil(rows * batch / _ROWS_OF_A_TILE) * math.ceil(columns / _COLUMNS_OF_A_TILE)
    waves = math.ceil(tiles / gpu.processors)
    of_tile = one.flops * batch / max(1e-9, rows * batch / _ROWS_OF_A_TILE * columns / _COLUMNS_OF_A_TILE)
    return _KERNEL_S + max(moved_s, waves * of_tile / (gpu.flops / gpu.processors))


class Step:
    """Training steps of a model at a batch size, with what is recomputed: seconds, and what is reserved.

    ``counts`` are occurrences recomputed by cluster, the first ones; of ``Block+`` whole blocks.
    """

    def __init__(self, model: Model, gpu: Gpu, batch: int, counts: Mapping[str, int]) -> None:
        self._model, self._gpu, self._batch = model, gpu, batch
        layers = counts.get(_LAYER, 0)
        seen: dict[str, int] = {}
        self._recomputed: list[tuple[bool, ...]] = []
        for number, block in enumerate(model.blocks):
            marks = []
            for one in block:
                seen[one.cluster] = seen.get(one.cluster, 0) + one.keeps
                marks.append(one.keeps and (number < layers or seen[one.cluster] <= counts.get(one.cluster, 0)))
            self._recomputed.append(tuple(marks))
        self._whole = [number < layers for number in range(len(model.blocks))]
        self.allocator = Allocator()
        state = model.parameter_bytes
        self._held = [self.allocator.take(state / 50) for _ in range(50 * 2)]
        self.seconds = 0.0
        for number in range(2):
            self.seconds = self._step(first=number == 0)

    @property
    def peak_bytes(self) -> int:
        """What is reserved after both steps."""
        return self.allocator.reserved_bytes

    def _step(self, *, first: bool) -> float:
        queue, take, give, batch = _Queue(self._gpu), self.allocator.take, self.allocator.give, self._batch
        kept: list[list[int]] = []
        given = take(self._model.input_bytes * batch)
        for block, marks in zip(self._model.blocks, self._recomputed, strict=True):
            own, passing = [take(block[0].out_bytes * batch)], []
            for one, mark in zip(block, marks, strict=True):
                self._work(queue, one)
                made = take(one.out_bytes * batch)
                (own if one.keeps and not mark else passing).append(made)
                if len(passing) > 2:
                    give(passing.pop(0))
            for made in passing:
                give(made)
            kept.append(own)
        head = []
        for one in self._model.head:
            self._work(queue, one)
            head.append(take(one.out_bytes * batch))
        for one, made in zip(reversed(self._model.head), reversed(head), strict=True):
            gradient = take(one.out_bytes * batch)
            self._work(queue, one, times=2.0)
            give(gradient)
            give(made)
        for number in reversed(range(len(self._model.blocks))):
            self._backward(queue, number, kept[number])
        give(given)
        if first:
            self._held += [take(self._model.parameter_bytes / 50) for _ in range(50 * (_STATES - 2))]
        optimizer = Operator("", 0.0, _STATES * 1.5 * self._model.parameter_bytes)
        queue.issued_s += 30 * self._gpu.issue_s
        queue.ready_s = max(queue.ready_s, queue.issued_s) + kernel_s(optimizer, 1, self._gpu)
        return queue.step_s

    def _backward(self, queue: _Queue, number: int, kept: list[int]) -> None:
        block, batch = self._model.blocks[number], self._batch
        again = []
        for one, mark in zip(block, self._recomputed[number], strict=True):
            if mark or self._whole[number]:
                self._work(queue, one)
                again.append(self.allocator.take(one.out_bytes * batch))
        before = self.allocator.take(block[-1].out_bytes * batch)
        for one in reversed(block):
            gradient = self.allocator.take(one.out_bytes * batch)
            self._work(queue, one, times=2.0)
            self.allocator.give(before)
            before = gradient
        for made in (before, *again, *kept):
            self.allocator.give(made)

    def _work(self, queue: _Queue, one: Operator, times: float = 1.0) -> None:
        queue.run(one, self._batch, times)
        if size := one.workspace(self._batch):
            self.allocator.give(self.allocator.take(size))


def transformer(chance: random.Random) -> Model:
    """Blocks of attention and a wide layer; the head's logits may be what is largest."""
    layers, width = chance.choice((6, 12, 24, 36)), chance.choice((384, 768, 1024, 2048))
    length = chance.choice((128, 256, 512, 1024, 2048))
    vocabulary = chance.choice((1_000, 8_000, 32_000, 50_000, 128_000))
    element, is_flash = chance.choice((2, 2, 4)), chance.random() < 0.5
    row = width * element * length
    scores = 0.0 if is_flash else width / 64 * length * length * element

    def product(name: str, columns: int, *, keeps: bool = True) -> Operator:
        size = row * columns / width
        return Operator(name, size, row + size, 2.0 * length * width * columns, (length, columns), keeps)

    block = [
        Operator("native_layer_norm+", row, 2 * row),
        product("addmm+", 3 * width),
        *([] if is_flash else [Operator("_softmax+", scores, 3 * scores)]),
        Operator("bmm+", row, 4 * row + scores, 4.0 * length * length * width, (length, width)),
        product("addmm+", width, keeps=False),
        Operator("native_dropout+", 1.25 * row, 2.5 * row),
        Operator("native_layer_norm+", row, 2 * row),
        product("addmm+", 4 * width),
        Operator("gelu+", 4 * row, 8 * row),
        product("addmm+", width, keeps=False),
        Operator("native_dropout+", 1.25 * row, 2.5 * row),
    ]
    logits = length * vocabulary * 4.0
    head = (
        Operator("", logits, logits, 2.0 * length * width * vocabulary, (length, vocabulary)),
        Operator("", logits, 2 * logits),
    )
    parameters = (12 * layers * width * width + vocabulary * width) * 4
    return Model((tuple(block),) * layers, head, parameters, 8.0 * length, has_layers=True)


def convolutional(chance: random.Random) -> Model:
    """Stages that halve the picture: the first ones hold most, and workspaces jump with the batch."""
    side, width, element = chance.choice((32, 64, 128, 224)), chance.choice((32, 64, 128)), chance.choice((2, 4))
    depth = chance.choice((2, 3, 4))
    jump_at, jump = chance.choice((24, 48, 96, 160)), chance.choice((0, 64 * MIB, 512 * MIB, 1536 * MIB))

    def workspace(batch: int) -> int:
        return 8 * MIB + (jump if batch >= jump_at else 0)

    blocks, parameters = [], 0
    for stage in range(4):
        pixels, channels = (side / 2**stage) ** 2, width * 2**stage
        size = pixels * channels * element
        for _ in range(depth):
            flops = 2.0 * pixels * channels * channels * 9
            parameters += channels * channels * 9 * 4
            convolution = Operator(
                "convolution+", size, 2 * size, flops, (pixels, channels), keeps=True, workspace=workspace
            )
            blocks.append(
                (
                    convolution,
                    Operator("native_batch_norm+", size, 3 * size),
                    Operator("relu+", size, 2 * size),
                    Operator("add+", size, 3 * size, keeps=False),
                )
            )
    head = (Operator("", 4000.0, 4000.0),)
    return Model(tuple(blocks), head, parameters, side * side * 3.0 * 4, has_layers=chance.random() < 0.5)


def recommender(chance: random.Random) -> Model:
    """Large tables under a small net: memory is the optimizer's, and a step mostly issues."""
    width, layers = chance.choice((256, 512, 1024)), chance.choice((4, 8, 16))
    tables = chance.choice((500 * MIB, 2 * GIB, 3 * GIB))
    row = width * 4.0
    block = (
        Operator("addmm+", row, 2 * row, 2.0 * width * width, (1.0, width)),
        Operator("relu+", row, 2 * row),
        Operator("native_dropout+", 1.25 * row, 2.5 * row),
    )
    cat = Operator("cat+", 26 * row, 52 * row)
    blocks = ((cat,), *(block,) * layers)
    return Model(blocks, (Operator("", 64.0, 64.0),), tables, 26 * 8.0, has_layers=False)


def is_tight(seed: int) -> bool:
    """Whether memory ends where larger batches would still be faster: the last third of each hundred's thirty."""
    return seed % 100 >= 20


def draw(seed: int) -> tuple[Model, Machine, random.Random]:
    """A model and a machine, by a seed, and what else is drawn with it."""
    chance = random.Random(f"physics {seed}")
    kinds_of_model = (transformer, transformer, convolutional, convolutional, recommender)
    # What a recommender holds does not grow with the batch, or hardly.
    model = chance.choice(kinds_of_model[:4] if is_tight(seed) else kinds_of_model)(chance)
    kinds: tuple[NoiseKind, ...] = ("even", "tails", "drift", "modes")
    start_s = chance.choice((12.0, 25.0, 40.0))
    machine = Machine(
        gpu=chance.choice(GPUS),
        others_bytes=chance.choice((0, 0, 0, 700 * MIB, 2 * GIB)),
        noise_cv=chance.choice((0.003, 0.006, 0.012, 0.025)),
        noise_kind=chance.choice(kinds),
        cost=Cost(start_s, start_s / chance.choice((4.0, 8.0, 14.0))),
    )
    return model, machine, chance


def landscape_of(seed: int, *, finer: bool = False) -> Landscape:
    """The landscape of a seed: its space is that of around ten batch sizes and of the clusters that hold most.

    A finer one has the batch sizes between those as well, and is the same else.
    """
    model, machine, chance = draw(seed)
    gpu = machine.gpu
    limit = gpu.memory_bytes - gpu.context_bytes - machine.others_bytes
    if is_tight(seed):
        own, limit = _tight(model, gpu, chance)
    else:
        own = _own_batch(model, gpu, limit * chance.choice((0.12, 0.3, 0.5, 0.7, 0.9, 1.3)))
    sizes = _around(own)
    finer_sizes = between(sizes) if finer else ()
    sizes = tuple(sorted((*sizes, *finer_sizes)))
    clusters = _clusters(model)
    facts = _facts(model, gpu, own, clusters, chance)
    table = tuple(_entries(model, gpu, own, sizes, clusters, limit))
    return Landscape(
        schema=SCHEMA,
        name=f"physics-{seed}",
        memory_limit_bytes=limit,
        noise_cv=machine.noise_cv,
        noise_kind=machine.noise_kind,
        facts=facts,
        cost=machine.cost,
        baseline=Baseline(own),
        table=table,
        between=finer_sizes,
    )


def _own_batch(model: Model, gpu: Gpu, wanted_bytes: float) -> int:
    """The batch size of a script whose author chose it for so much memory: a power of two, or one and a half."""
    fitting = [size for size in _USUAL if Step(model, gpu, size, {}).peak_bytes <= wanted_bytes]
    return max(fitting, default=1)


def _tight(model: Model, gpu: Gpu, chance: random.Random) -> tuple[int, int]:
    """The batch size of a script, and a limit in bytes that ends before the GPU is as fast as it could be.

    So it is where a model was chosen as large as its GPU holds, or where a part of a GPU is all there is.
    """
    per_s = {size: size / Step(model, gpu, size, {}).seconds for size in _USUAL}
    share = chance.uniform(0.4, 0.85)
    last = max((size for size, speed in per_s.items() if speed <= share * max(per_s.values())), default=1)
    limit = Step(model, gpu, last, {}).peak_bytes * chance.uniform(1.02, 1.15)
    return max(1, last // chance.choice((1, 2))), int(limit)


def _around(own: int) -> tuple[int, ...]:
    sizes = {int(own * 2.0**octave * factor) for octave in range(-1, 4) for factor in (1.0, 1.5)} | {own * 16}
    return tuple(sorted(size for size in sizes if size >= max(1, own / 2)))


def _clusters(model: Model) -> dict[str, tuple[int, ...]]:
    """The clusters that hold most, with the counts that are tried; layers in quarters."""
    held: dict[str, float] = {}
    number: dict[str, int] = {}
    for one in itertools.chain.from_iterable(model.blocks):
        if one.keeps:
            held[one.cluster] = held.get(one.cluster, 0.0) + one.out_bytes
            number[one.cluster] = number.get(one.cluster, 0) + 1
    most = sorted(held, key=lambda name: -held[name])[:4]
    counts = {name: (0, number[name]) for name in most}
    if model.has_layers:
        layers = len(model.blocks)
        counts[_LAYER] = tuple(sorted({0, layers // 2, layers}))
    else:
        counts[most[0]] = tuple(sorted({0, number[most[0]] // 2, number[most[0]]}))
    return counts


def _entries(
    model: Model, gpu: Gpu, own: int, sizes: tuple[int, ...], clusters: Mapping[str, tuple[int, ...]], limit: int
) -> Iterator[Entry]:
    known: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[float, int]] = {}
    for size, *values in itertools.product(sizes, *clusters.values()):
        counts = {name: value for name, value in zip(clusters, values, strict=True) if value}
        # All layers recomputed cover whatever is in them.
        true = {_LAYER: counts[_LAYER]} if counts.get(_LAYER) == len(model.blocks) else counts
        key = (size, tuple(sorted(true.items())))
        if key not in known:
            step = Step(model, gpu, size, true)
            known[key] = step.seconds, step.peak_bytes
        seconds, peak = known[key]
        plans = tuple(
            sorted(str(Plan(name, 1, ALL if count == clusters[name][-1] else count)) for name, count in counts.items())
        )
        if peak > limit and (size != own or plans):
            yield Entry(size, plans, 0, "out_of_memory")
        else:
            yield Entry(size, plans, 0, "measured", float(f"{size / seconds:.6g}"), peak)


def _facts(model: Model, gpu: Gpu, own: int, clusters: Mapping[str, tuple[int, ...]], chance: random.Random) -> Facts:
    """What discovery tells of it: bytes exact, times as kernels take by themselves, give or take."""
    kept = [one for block in model.blocks for one in block if one.keeps]
    rows = []
    for name in clusters:
        is_layer = name == _LAYER
        part = kept if is_layer else [one for one in kept if one.cluster == name]
        ran = [one for block in model.blocks for one in block] if is_layer else part
        bytes_each = sum(one.out_bytes for one in part)
        rows.append(
            ClusterFacts(
                cluster_id=name,
                strategy=1,
                frequency=len(model.blocks) if is_layer else clusters[name][-1],
                saving_bytes=int(bytes_each * own),
                saving_formula=f"{int(bytes_each)}*batch",
                recompute_time_s=sum(kernel_s(one, own, gpu) for one in ran) * math.exp(chance.gauss(0.0, 0.15)),
                is_layer=is_layer,
            )
        )
    state = model.parameter_bytes
    activations = int(own * sum(one.out_bytes for one in (*kept, *model.head)))
    environment = Environment("cuda", gpu.name, gpu.memory_bytes, 1, 8, "", "Linux", "3.12.0", "2.13.0", cuda="13.0")
    return Facts(
        baseline=Configuration(batch_size=own),
        batch_size=own,
        batch_control=BatchControl("loaders"),
        clusters=tuple(rows),
        dimensions={"batch": own},
        split=MemorySplit(state, state, 2 * state, 0, activations),
        roots=(),
        optimizers=(),
        precision=None,
        environment=environment,
        calls_per_step=1.0,
        script_sha256="0" * 64,
    )
