"""DataLoaders: which of them feed training, how many samples each batch has, and resizing them at construction."""

from __future__ import annotations

import functools
import hashlib
import os
import statistics
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch.utils.data
from torch.utils.data import dataloader

from ...records.facts import BatchControl, EpochFacts
from ...records.look_ahead import SeenBatch
from .epoch_sample import EpochSample
from .look_ahead import BatchReader, seen_batch

_TORCHDATA = "torchdata.stateful_dataloader.stateful_dataloader"
_STATEFUL = "StatefulDataLoader"
_PACKAGE = str(Path(__file__).resolve().parents[2])
# A sampler that draws the data set more often than this is there to never end; what it draws is no epoch.
_MOST_REPEATS = 100
_IN_ORDER: Any = (torch.utils.data.SequentialSampler, dataloader._InfiniteConstantSampler)


@dataclass
class _Loader:
    """A DataLoader of the script, by its ordinal in order of construction."""

    ordinal: int
    batch_size: int | None
    site: str
    # Why it cannot be resized.
    reason: str = ""
    trained: int = 0
    epoch: EpochFacts | None = None
    # How many batches a step takes from it; 0 while that is not known.
    per_step: int = 0
    # The seconds that the loader takes for each epoch's first batch, its start included, and for other batches.
    starts_s: list[float] = field(default_factory=list)
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=100))


@dataclass
class _Draws:
    """The numbers of samples of batches that one iterator has handed out and no root call has taken yet."""

    loader: _Loader
    role: Literal["training", "evaluation"] | None = None
    evaluated: bool = False
    order: int = 0
    # Beside each the batch, where its sizes are known.
    sizes: deque[tuple[int, SeenBatch | None]] = field(default_factory=deque)
    # Of index lists that were drawn ahead of their batches; None where a list does not tell.
    ahead: deque[int | None] = field(default_factory=deque)
    # What the start of an epoch has taken whose first batch is still to come; None where that is not known.
    start_s: float | None = None
    # Where batches may be read ahead.
    reader: BatchReader | None = None
    # Where an epoch may be read: the loader itself. One that a script names nowhere is gone else.
    made_by: Any = None
    # Where the batch under way is to be named: its epoch, how many batches of that were drawn, and the sizes of those
    # that may be under way, as a library may draw some ahead.
    epoch: int = 0
    drawn: int = 0
    under_way: deque[SeenBatch] = field(default_factory=lambda: deque(maxlen=8))
    # Gives the iterator itself.
    of: Callable[[], Any] = lambda: None
    # torchdata's loader keeps its last iterator.
    is_kept: bool = False

    def is_left(self) -> bool:
        """Return whether the script has let go of the iterator, as after a look at one batch."""
        iterator = self.of()
        # The loader has it, the name here, and what is called.
        return self.is_kept and iterator is not None and sys.getrefcount(iterator) <= 3


@dataclass(eq=False)
class LoaderHooks:
    """Patches ``DataLoader`` and its iterators.

    The sizes come from the index lists that an iterator draws, not from the batches: right under prefetch, custom
    collation and packed batches. A root call takes the oldest batch of each iterator that feeds calls of its kind.
    """

    batch_size: int | None  # resize to this; None leaves every loader alone
    control: BatchControl  # says which loaders to resize
    note: Callable[[str], None]  # with what the user should know
    _: KW_ONLY
    is_stale: bool = False  # the script's lines, and sites with them, may have moved since ``control`` was made

    def __post_init__(self) -> None:
        self._sites = set(self.control.sites)
        self._draws = 0
        self.make_reader: Callable[[], BatchReader] | None = None
        self.reading: BatchReader | None = None
        self.may_sample = False
        """Set where an epoch may be read, and batches be handed out that stand for it."""
        self.sample: EpochSample | None = None
        self._sampled: Any = None  # the loader that the sample is of
        self._made_before_sample = 0  # loaders
        self._is_aside = False
        self._most_waiting = 0  # batches that were drawn at a training call of the first step: a library draws ahead
        self.names_batches = False
        """Set where the sizes of batches are noted, to name the one under way in a step that fails."""
        self.on_batch: Callable[[SeenBatch, int], None] = lambda *_: None
        """Called with each batch that is noted, and with the number of its epoch."""
        self._under_way: _Draws | None = None
        self._epochs: Counter[str] = Counter()
        self._taken: list[tuple[_Loader, SeenBatch | None]] = []
        self.loaders: list[_Loader] = []
        self._own_sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._by_loader: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()
        self._open: dict[int, _Draws] = {}
        self._rests = False
        self._trained_sites: set[str] = set()

    def install(self) -> None:
        """Patch the classes; called once per process."""
        self.follow(torch.utils.data.DataLoader)
        self._patch_iterators()
        self._follow_torchdatas()

    def _follow_torchdatas(self) -> None:
        """Follow torchdata's loaders, which construct and begin by themselves what torch's would."""
        own: Any = torch.utils.data.DataLoader
        made_before = getattr(sys.modules.get(_TORCHDATA), _STATEFUL, None)
        if made_before is not None:
            self.follow(made_before)
            return

        # torchdata may be the first to import torch: its own class comes after that.
        def __init_subclass__(made: type[Any], /, **keywords: Any) -> None:  # noqa: N807
            super(own, made).__init_subclass__(**keywords)
            if (made.__module__, made.__name__) == (_TORCHDATA, _STATEFUL):
                self.follow(made)

        own.__init_subclass__ = classmethod(__init_subclass__)

    def follow(self, loaders: Any) -> None:
        """Patch a class's own way to construct loaders, and to begin their epochs."""
        if "__init__" in vars(loaders):
            loaders.__init__ = self._followed_construction(loaders.__init__)
        if "__iter__" in vars(loaders):
            loaders.__iter__ = self._followed_begin(loaders.__iter__)

    @property
    def are_resized(self) -> bool:
        """Return whether the batch size is that of loaders, and not a number that the script asks for."""
        return self.control.how == "loaders"

    def rest(self) -> None:
        """Follow no batches from here on, but for their sizes where those are noted; loaders are resized still."""
        self._rests = True
        self._trained_sites = {loader.site for loader in self.training_loaders()}
        for draws in self._open.values():
            draws.sizes.clear()

    def evaluation_call(self) -> None:
        """Take a batch for a call outside training, unless a training call (after a frozen module's) takes it later."""
        for draws in self._open.values():
            if draws.role == "evaluation" and draws.sizes:
                draws.sizes.popleft()
            elif draws.role is None and draws.sizes:
                draws.evaluated = True

    def training_call(self) -> int:
        """Return the samples that a training call takes from the loaders; 0 when no loader feeds it."""
        waiting = [
            draws
            for draws in self._open.values()
            if draws.sizes and draws.role != "evaluation" and (draws.role == "training" or not draws.is_left())
        ]
        feeding = [draws for draws in waiting if draws.role == "training" or not draws.evaluated]
        doubtful = [draws for draws in waiting if draws.role is None and draws.evaluated]
        if feeding:
            for draws in doubtful:
                draws.role = "evaluation"
        elif doubtful:
            feeding = [max(doubtful, key=lambda draws: draws.order)]
        taken = 0
        for draws in feeding:
            draws.role = "training"
            draws.loader.trained += 1
            if self.sample is None:
                self._most_waiting = max(self._most_waiting, len(draws.sizes))
            while self.sample is not None and len(draws.sizes) > self._most_waiting:
                draws.sizes.popleft()  # a batch that the script has left out
            size, seen = draws.sizes.popleft()
            taken += size
            self._taken += [(draws.loader, seen)] if self.make_reader or self.may_sample else []
        return taken

    def take_drawn(self) -> int:
        """Return the samples of every batch drawn and not taken, where no model call was seen."""
        taken = 0
        for draws in self._open.values():
            while draws.sizes and draws.role != "evaluation" and not draws.evaluated:
                taken += draws.sizes.popleft()[0]
                draws.loader.trained += 1
        return taken

    def training_loaders(self) -> list[_Loader]:
        """The loaders whose batches went into training calls."""
        return [loader for loader in self.loaders if loader.trained]

    def epoch(self, batch_size: int | None) -> EpochFacts | None:
        """Return an epoch of the loader that has fed training most; None where it does not say.

        Nor does it say where its batches are not those of ``batch_size``: its data set may make whole batches.
        """
        most = max(self.training_loaders(), key=lambda loader: loader.trained, default=None)
        return None if most is None or most.batch_size != batch_size else most.epoch

    def epoch_wait_s(self) -> float | None:
        """Return how much longer an epoch waits for its first batch than for others; None before a second epoch.

        It is that of the loader that has fed training most, or of those made anew at the same place. Their very first
        epoch does not count: it fills caches, and starts processes that may stay.
        """
        most = max(self.training_loaders(), key=lambda loader: loader.trained, default=None)
        alike = [] if most is None else [one for one in self.training_loaders() if one.site == most.site]
        starts_s = [seconds for one in alike for seconds in one.starts_s][1:]
        waits_s = [seconds for one in alike for seconds in one.waits_s]
        return max(0.0, statistics.median(starts_s) - statistics.median(waits_s)) if starts_s and waits_s else None

    def training_sites(self) -> tuple[str, ...]:
        """Return where loaders are made again and again, all of them for training."""
        by_site: dict[str, list[_Loader]] = {}
        for loader in self.loaders:
            by_site.setdefault(loader.site, []).append(loader)
        # The last one made may not have been used yet.
        return tuple(
            site for site, made in by_site.items() if made[0].trained and all(one.trained for one in made[:-1])
        )

    def step_took(self) -> tuple[SeenBatch | None, ...]:
        """Return the batches that a step has taken, None for those whose sizes were not noted.

        From the first such step on, others may be read ahead.
        """
        taken, self._taken = self._taken, []
        for loader, _ in taken:
            loader.per_step = loader.per_step or sum(one is loader for one, _ in taken)
        return tuple(seen for _, seen in taken)

    def read_epoch(self, most: int, *, keeps: bool) -> str:
        """Read an epoch of the loader that feeds training, up to so many batches, to hand out what stands for it.

        ``keeps``: other batches may be handed out as well. Returns why that cannot be; empty where it was read.
        """
        feeding = [one for one in self._open.values() if one.loader.trained and one.role == "training"]
        if len(self.training_loaders()) != 1 or len(feeding) != 1:
            return self.why_unread()
        (draws,) = feeding
        made_by = draws.made_by
        if any(hasattr(type(one), "__next__") for one in (made_by.dataset, made_by.sampler, made_by.batch_sampler)):
            return "its data can be read once only"
        draw = self._drawing_aside(made_by)
        sample = EpochSample(most, draw, per_step=draws.loader.per_step, keeps=keeps)
        if not sample.refusal:
            self.sample, self._sampled, self._made_before_sample = sample, made_by, len(self.loaders)
            self.begin_sample()
        return sample.refusal

    def begin_sample(self, *, then: Sequence[int] = ()) -> None:
        """Hand out the batches that stand for an epoch: the largest, those of the numbers ``then``, and cycles."""
        if self.sample is not None:
            drawn = max((len(one.sizes) for one in self._open.values() if one.role == "training"), default=0)
            self.sample.begin(drawn, then=then)

    def hand_next(self, numbers: Sequence[int]) -> None:
        """Hand out the batches of these numbers before the next ones that stand for an epoch."""
        if self.sample is not None:
            self.sample.hand_next(numbers)

    def _drawing_aside(self, loader: Any) -> Callable[[], tuple[Any, int]]:
        """Return what draws the batches of an epoch of its own from a loader, with the numbers of their samples."""
        self._is_aside = True
        try:
            iterator = loader._get_iterator()  # not `iter`: with persistent workers that would begin the script's anew
        finally:
            self._is_aside = False
        return lambda: (next(iterator), iterator._autotune_draws.sizes.pop()[0])

    def batch_under_way(self) -> tuple[SeenBatch, int] | None:
        """Return the batch that a step is under way with, and its epoch, from 1; None where no loader feeds it."""
        draws = self._under_way
        return (draws.under_way[0], draws.epoch) if draws is not None and draws.under_way else None

    def reader(self) -> BatchReader | None:
        """Return the reader of the batches that feed training; None where no loader feeds it."""
        feeding = [one.reader for one in self._open.values() if one.reader is not None and one.role == "training"]
        return self.reading or next(iter(feeding), None)

    def why_unread(self) -> str:
        """Say why no batch was read ahead."""
        loaders, reader = self.training_loaders(), self.reader()
        if len(loaders) == 1:
            return (reader and reader.refusal) or "its DataLoader brought no batch after the first step"
        return "several DataLoaders feed the model" if loaders else "no DataLoader feeds the model"

    def _note(self, draws: _Draws, batch: Any) -> None:
        draws.drawn += 1
        draws.under_way.append(seen_batch(draws.drawn, batch))
        if self._most_waiting and len(draws.under_way) > self._most_waiting:
            draws.under_way.popleft()
        self._under_way = draws
        self.on_batch(draws.under_way[-1], draws.epoch)

    def _sample_for(self, draws: _Draws) -> EpochSample | None:
        """Return what an iterator's batches are replaced by; None where they are not."""
        if self.sample is None or not self.sample.differs or draws.role == "evaluation" or draws.evaluated:
            return None
        # A script may make its loader anew for each epoch, with its data set. Its line may have made others before.
        is_new = draws.loader.ordinal >= self._made_before_sample
        is_alike = is_new and draws.loader.site == self._by_loader[self._sampled].site
        is_of_it = draws.made_by is self._sampled or (
            is_alike and type(draws.made_by.dataset) is type(self._sampled.dataset)
        )
        return self.sample if is_of_it else None

    def _followed_construction(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(  # noqa: N807
            loader: Any,
            dataset: Any,
            batch_size: int | None = 1,
            shuffle: bool | None = None,
            sampler: Any = None,
            batch_sampler: Any = None,
            *rest: Any,
            **keywords: Any,
        ) -> None:
            try:
                if loader not in self._by_loader:
                    batch_size = self._register(loader, batch_size, batch_sampler)
            except Exception as error:
                self.note(f"a DataLoader could not be followed: {error}")
            original(loader, dataset, batch_size, shuffle, sampler, batch_sampler, *rest, **keywords)

        return __init__

    def _register(self, loader: Any, batch_size: int | None, batch_sampler: Any) -> int | None:
        """Number a loader, and resize it if it is chosen; gives the batch size to construct it with."""
        ordinal = len(self.loaders)
        size: int | None = batch_size
        reason = ""
        samplers = _batch_samplers(batch_sampler)
        parts = _parts(batch_sampler)
        if samplers:
            # An earlier loader may have resized one of them.
            own = next((self._own_sizes[one] for one in samplers if one in self._own_sizes), batch_sampler.batch_size)
            size = own // parts
        elif batch_sampler is not None:
            size, reason = None, f"its {type(batch_sampler).__name__} has no batch_size"
        elif batch_size is None:
            reason = "its data set makes the batches (batch_size=None)"
        site = _call_site()
        chosen = ordinal in self.control.loaders or site in self._sites
        if self.is_stale and chosen and self._sites:
            self._sites.add(site)
        if self.batch_size is not None and size is not None and chosen:
            size = self._resized(size, self.batch_size)
            for one in samplers:
                self._own_sizes[one] = own
                one.batch_size = size * parts
            if batch_sampler is None:
                batch_size = size
        record = _Loader(ordinal, size, site, reason)
        self.loaders.append(record)
        self._by_loader[loader] = record
        return batch_size

    def _resized(self, own: int, batch_size: int) -> int:
        """Return the size of a loader's batches at a batch size: its part of that where several feed a call."""
        arrivals = self.control.arrivals
        if arrivals is None or own >= arrivals.batch_size:
            return batch_size
        return max(1, batch_size * own // arrivals.batch_size)

    def _patch_iterators(self) -> None:
        iterator = dataloader._BaseDataLoaderIter
        init, reset, next_index, advance = iterator.__init__, iterator._reset, iterator._next_index, iterator.__next__
        hooks = self

        def __init__(own: Any, loader: Any) -> None:  # noqa: N807
            record = hooks._by_loader.get(loader)
            if record is not None and hooks._rests and record.site in hooks._trained_sites:
                own._autotune_draws = _Draws(record)
            if record is not None and hooks._is_aside:
                own._autotune_draws = _Draws(replace(record, starts_s=[], waits_s=deque(maxlen=1)))
            elif record is not None and not hooks._rests:
                record.epoch = _epoch(loader, record.batch_size)
                own._autotune_draws = hooks._open[id(own)] = _Draws(record)
                own._autotune_draws.reader = hooks.make_reader and hooks.make_reader()
                if own._autotune_draws.reader is not None:
                    own._autotune_draws.reader.shuffles = not isinstance(loader.sampler, _IN_ORDER)
                own._autotune_draws.made_by = loader if hooks.may_sample else None
                weakref.finalize(own, hooks._open.pop, id(own), None)
            init(own, loader)

        def _reset(own: Any, *arguments: Any, **keywords: Any) -> Any:
            # With persistent workers one iterator serves every epoch; what an epoch left early had drawn ahead is gone.
            if hasattr(own, "_autotune_draws"):
                own._autotune_draws.ahead.clear()
                own._autotune_draws.sizes.clear()
            return reset(own, *arguments, **keywords)

        def _next_index(own: Any) -> Any:
            index = next_index(own)
            draws = getattr(own, "_autotune_draws", None)
            if draws is not None and not hooks._rests:
                draws.ahead.append(len(index) if isinstance(index, (list, tuple)) else None)
            return index

        def __next__(own: Any) -> Any:  # noqa: N807
            draws = getattr(own, "_autotune_draws", None)
            if draws is not None and draws.reader is not None:
                return read(own, draws)
            batch = draw(own)  # also where another takes its place: a step waits for the loader as in training
            sample = None if draws is None else hooks._sample_for(draws)
            if draws is None or sample is None:
                return batch
            handed = sample.next()
            if handed is not None:
                seen, (batch, size) = handed
                draws.sizes[-1] = size, seen
            return batch

        def read(own: Any, draws: _Draws) -> Any:
            assert draws.reader is not None
            may_read = hooks.reading in (None, draws.reader) and len(hooks.training_loaders()) == 1
            per_step = draws.loader.per_step if may_read else 0
            try:
                seen, (batch, size) = draws.reader.next(lambda: (draw(own), draws.sizes.pop()[0]), per_step)
            finally:
                hooks.reading = draws.reader if draws.reader.has_read else hooks.reading
            draws.sizes.append((size, seen))
            return batch

        def draw(own: Any) -> Any:
            asked_s = time.perf_counter()
            draws = getattr(own, "_autotune_draws", None)
            try:
                batch = advance(own)
            except Exception:  # also that an epoch has ended
                if draws is not None and draws.under_way:
                    draws.under_way.popleft()
                raise
            if draws is not None and hooks.names_batches and draws.role != "evaluation":
                hooks._note(draws, batch)
            if draws is not None and not hooks._rests:
                took_s = time.perf_counter() - asked_s
                if draws.start_s is not None:
                    draws.loader.starts_s.append(draws.start_s + took_s)
                    draws.start_s = None
                else:
                    draws.loader.waits_s.append(took_s)
                size = draws.ahead.popleft() if draws.ahead else None
                if size is None or own._dataset_kind == dataloader._DatasetKind.Iterable:
                    size = _leading_size(batch)
                hooks._draws += 1
                draws.order = hooks._draws
                draws.sizes.append((size, None))
            return batch

        iterator.__init__ = __init__  # type: ignore[method-assign,assignment]
        iterator._reset = _reset  # type: ignore[method-assign,assignment]
        iterator._next_index = _next_index  # type: ignore[method-assign]
        iterator.__next__ = __next__  # type: ignore[method-assign,assignment]

    def _followed_begin(self, begin: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(begin)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            began_s = time.perf_counter()
            made = begin(loader)
            draws = getattr(made, "_autotune_draws", None)
            if draws is None and self._rests:
                self._under_way = None  # an evaluation begins
            if draws is not None:
                draws.of = weakref.ref(made)
                draws.is_kept = getattr(loader, "_iterator", None) is made and not loader.persistent_workers
                draws.start_s = time.perf_counter() - began_s
                self._epochs[draws.loader.site] += 1
                draws.epoch, draws.drawn = self._epochs[draws.loader.site], 0
                if self._sample_for(draws) is self.sample is not None:
                    self.sample.begin_epoch(len(self._taken))
            return made

        return __iter__


def _call_site() -> str:
    """Return a hash of the script's lines on the call stack, without folders: equal after a move and in a launch."""
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            lines.append(f"{os.path.basename(name)}:{frame.f_lineno}")  # noqa: PTH119
        frame = frame.f_back  # type: ignore[assignment]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _batch_samplers(outermost: Any) -> list[Any]:
    """Return a batch sampler, and those of its size inside: Accelerate puts one of its own around the script's."""
    # A list of batches has no size, and a sampler's may be None.
    size = getattr(outermost, "batch_size", None)
    found: list[Any] = []
    while isinstance(size, int) and getattr(outermost, "batch_size", None) == size and outermost not in found:
        found.append(outermost)
        outermost = getattr(outermost, "batch_sampler", None)
    return found


def _parts(batch_sampler: Any) -> int:
    """Return how many processes share each batch of Accelerate's sampler, which it calls split_batches."""
    return getattr(batch_sampler, "num_processes", 1) if getattr(batch_sampler, "split_batches", False) else 1


def _epoch(loader: Any, batch_size: int | None) -> EpochFacts | None:
    sampler = loader.batch_sampler
    if sampler is None or not batch_size or loader._dataset_kind == dataloader._DatasetKind.Iterable:
        return None
    try:
        # torchdata has a class of its own for what torch's does.
        is_stock = type(sampler) is torch.utils.data.BatchSampler or type(sampler).__module__.startswith("torchdata.")
        samples = len(sampler.sampler) if is_stock else len(sampler) * batch_size
        held = len(loader.dataset) if hasattr(loader.dataset, "__len__") else samples
    except Exception:
        return None  # a sampler need not have a length
    if samples > _MOST_REPEATS * held:
        return None
    return EpochFacts(samples, drops_last=bool(getattr(sampler, "drop_last", False)))


def _leading_size(batch: Any) -> int:
    """Return the first tensor's first dimension, for a batch whose index list does not tell its samples."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    items = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for size in map(_leading_size, items) if size), 0)
