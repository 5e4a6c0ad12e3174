"""DataLoaders: which of them feed training, how many samples each batch has, and resizing them at construction."""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch.utils.data
from torch.utils.data import dataloader

from ...records.facts import BatchControl, EpochFacts

_PACKAGE = str(Path(__file__).resolve().parents[2])


@dataclass
class _Loader:
    """A DataLoader of the script, by its ordinal in order of construction."""

    ordinal: int
    batch_size: int | None
    resizable: bool
    site: str
    reason: str = ""
    trained: int = 0
    epoch: EpochFacts | None = None


@dataclass
class _Draws:
    """Batches that one iterator has handed out and no root call has taken yet, by their number of samples."""

    loader: _Loader
    role: Literal["training", "evaluation"] | None = None
    evaluated: bool = False
    order: int = 0
    sizes: collections.deque[int] = field(default_factory=collections.deque)


class LoaderHooks:
    """Patches ``DataLoader`` and its iterators.

    The sizes come from the index lists that an iterator draws, not from the batches: right under prefetch, custom
    collation and packed batches. A root call takes the oldest batch of each iterator that feeds calls of its kind.

    Args:
        batch_size: resize to this, or None to leave every loader alone.
        control: which loaders to resize.
        note: called with what the user should know.
        is_stale: the script's lines may have moved since ``control`` was made, and its sites with them.
    """

    def __init__(
        self,
        batch_size: int | None,
        control: BatchControl,
        note: Callable[[str], None],
        *,
        is_stale: bool = False,
    ) -> None:
        self._is_stale = is_stale
        self._sites = set(control.sites)
        self._batch_size = batch_size
        self._control = control
        self._draws = 0
        self._note = note
        self.loaders: list[_Loader] = []
        self._by_loader: weakref.WeakKeyDictionary[Any, _Loader] = weakref.WeakKeyDictionary()
        self._open: dict[int, _Draws] = {}
        self._rests = False

    def install(self) -> None:
        """Patch the classes; called once per process."""
        self._patch_construction()
        self._patch_iteration()

    def rest(self) -> None:
        """Follow no batches from here on; loaders are resized still."""
        self._rests = True
        for draws in self._open.values():
            draws.sizes.clear()

    def evaluation_call(self) -> None:
        """A call outside training: it takes a batch, unless a training call takes the same one later.

        A frozen module called before the trained one looks like evaluation; only what follows tells them apart.
        """
        for draws in self._open.values():
            if draws.role == "evaluation" and draws.sizes:
                draws.sizes.popleft()
            elif draws.role is None and draws.sizes:
                draws.evaluated = True

    def training_call(self) -> int:
        """The samples that a training call takes from the loaders; 0 when no loader feeds it."""
        waiting = [draws for draws in self._open.values() if draws.sizes and draws.role != "evaluation"]
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
            taken += draws.sizes.popleft()
        return taken

    def take_drawn(self) -> int:
        """The samples of every batch drawn and not taken: for scripts whose model calls cannot be seen."""
        taken = 0
        for draws in self._open.values():
            if draws.role == "evaluation" or draws.evaluated:
                continue
            while draws.sizes:
                taken += draws.sizes.popleft()
                draws.loader.trained += 1
        return taken

    def training_loaders(self) -> list[_Loader]:
        """The loaders whose batches went into training calls."""
        return [loader for loader in self.loaders if loader.trained]

    def epoch(self) -> EpochFacts | None:
        """An epoch of the loader that has fed training most; None where it does not say."""
        feeding = self.training_loaders()
        return max(feeding, key=lambda loader: loader.trained).epoch if feeding else None

    def training_sites(self) -> tuple[str, ...]:
        """Return where loaders are made again and again, all of them for training."""
        by_site: dict[str, list[_Loader]] = {}
        for loader in self.loaders:
            by_site.setdefault(loader.site, []).append(loader)
        # The last one made may not have been used yet.
        return tuple(
            site for site, made in by_site.items() if made[0].trained and all(one.trained for one in made[:-1])
        )

    def _patch_construction(self) -> None:
        original = torch.utils.data.DataLoader.__init__

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
                batch_size = self._register(loader, batch_size, batch_sampler)
            except Exception as error:
                self._note(f"a DataLoader could not be followed: {error}")
            original(loader, dataset, batch_size, shuffle, sampler, batch_sampler, *rest, **keywords)

        torch.utils.data.DataLoader.__init__ = __init__  # type: ignore[method-assign,assignment]

    def _register(self, loader: Any, batch_size: int | None, batch_sampler: Any) -> int | None:
        """Number a loader as it is made, and resize it if it is to be; gives the batch size to construct it with."""
        ordinal = len(self.loaders)
        size: int | None = batch_size
        resizable, reason = True, ""
        if batch_sampler is not None:
            own = getattr(batch_sampler, "batch_size", None)
            size = own if isinstance(own, int) else None
            resizable = isinstance(own, int)
            reason = "" if resizable else f"its {type(batch_sampler).__name__} has no batch_size"
        elif batch_size is None:
            resizable, reason = False, "its data set makes the batches (batch_size=None)"
        site = _call_site()
        chosen = ordinal in self._control.loaders or site in self._sites
        if self._is_stale and chosen and self._sites:
            self._sites.add(site)
        if self._batch_size is not None and chosen and resizable:
            size = self._batch_size
            if batch_sampler is not None:
                batch_sampler.batch_size = self._batch_size
            else:
                batch_size = self._batch_size
        record = _Loader(ordinal, size, resizable, site, reason)
        self.loaders.append(record)
        self._by_loader[loader] = record
        return batch_size

    def _patch_iteration(self) -> None:
        iterator = dataloader._BaseDataLoaderIter
        init, reset, next_index, advance = iterator.__init__, iterator._reset, iterator._next_index, iterator.__next__
        hooks = self

        def __init__(own: Any, loader: Any) -> None:  # noqa: N807
            record = hooks._by_loader.get(loader)
            if record is not None and not hooks._rests:
                record.epoch = _epoch(loader, record.batch_size)
                own._autotune_sizes = collections.deque()
                own._autotune_draws = hooks._open[id(own)] = _Draws(record)
                weakref.finalize(own, hooks._open.pop, id(own), None)
            init(own, loader)

        def _reset(own: Any, *arguments: Any, **keywords: Any) -> Any:
            # With persistent workers one iterator serves every epoch; what an epoch left early had drawn ahead is gone.
            if hasattr(own, "_autotune_sizes"):
                own._autotune_sizes.clear()
                own._autotune_draws.sizes.clear()
            return reset(own, *arguments, **keywords)

        def _next_index(own: Any) -> Any:
            index = next_index(own)
            if hooks._rests:
                return index
            sizes = getattr(own, "_autotune_sizes", None)
            if sizes is not None:
                sizes.append(len(index) if isinstance(index, (list, tuple)) else None)
            return index

        def __next__(own: Any) -> Any:  # noqa: N807
            batch = advance(own)
            if hooks._rests:
                return batch
            draws = getattr(own, "_autotune_draws", None)
            if draws is not None:
                size = own._autotune_sizes.popleft() if own._autotune_sizes else None
                if size is None or own._dataset_kind == dataloader._DatasetKind.Iterable:
                    size = _leading_size(batch)
                hooks._draws += 1
                draws.order = hooks._draws
                draws.sizes.append(size)
            return batch

        iterator.__init__ = __init__  # type: ignore[method-assign,assignment]
        iterator._reset = _reset  # type: ignore[method-assign,assignment]
        iterator._next_index = _next_index  # type: ignore[method-assign]
        iterator.__next__ = __next__  # type: ignore[method-assign,assignment]


def _call_site() -> str:
    """The call stack's lines as a short hash: equal for a loader made anew at the same place of the script.

    Without our own frames and without folders, so that it is the same in a trial, in a launch, and after a move.
    """
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            lines.append(f"{os.path.basename(name)}:{frame.f_lineno}")  # noqa: PTH119
        frame = frame.f_back  # type: ignore[assignment]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _epoch(loader: Any, batch_size: int | None) -> EpochFacts | None:
    """Return what a loader takes from its data set in an epoch; None where it draws no indices, or does not know."""
    sampler = loader.batch_sampler
    if sampler is None or not batch_size or loader._dataset_kind == dataloader._DatasetKind.Iterable:
        return None
    try:
        is_stock = type(sampler) is torch.utils.data.BatchSampler
        samples = len(sampler.sampler) if is_stock else len(sampler) * batch_size
    except Exception:
        return None  # a sampler need not have a length
    return EpochFacts(samples, drops_last=bool(getattr(sampler, "drop_last", False)))


def _leading_size(batch: Any) -> int:
    """Samples in a batch whose index list does not tell: the first tensor's first dimension."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    items = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for size in map(_leading_size, items) if size), 0)
