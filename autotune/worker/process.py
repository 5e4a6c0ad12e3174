"""One training process of a run: its rank and device, its progress, what it writes, and its end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from ..files.backup import note_training
from ..metering.results import ProgressFile, append_line, ranks_of_results
from ..records.configuration import Configuration
from ..records.facts import Preload
from ..records.outcome import Outcome, Phase
from ..records.run import STARTER_RANK, Ended, Line, Request, Result
from .device import cuda_device, device_uuid, limit_memory, outside_bytes, uses_cuda
from .environment import describe_environment
from .import_watch import ImportWatch

_NO_SEARCH = (
    "the script has Inductor search for kernels (max-autotune), which is left out here as that takes minutes: the "
    "confirmation and `autotune launch` have it, and may be faster"
)
# So often SystemExit is raised before the process is ended in any case.
_MOST_EXITS = 3


@dataclass(eq=False)
class TrainingProcess:
    """The training process that hooks, modes and descriptions work in.

    ``index`` is the configuration under way, ``steps`` are the training steps so far. ``device`` is the CUDA index of
    the device that is trained on, None on CPU. ``status`` is the exit status.
    """

    request: Request
    directory: Path
    _: KW_ONLY
    fork_refusal: str = ""
    imports: ImportWatch | None = None

    def __post_init__(self) -> None:
        self.index = 0
        self.steps = 0
        self.notes: list[str] = []
        self.has_result = False
        self.kernels_searched = True
        self.device: int | None = None
        self.rank, self.num_processes = 0, 1
        self.status = 0
        self._pid: int | None = None
        self._progress: ProgressFile | None = None
        self._memory_limited = False
        # How often the script was told to end, once the last line was written.
        self._exits = 0

    @property
    def preload(self) -> Preload:
        """Return what the script has imported before it trained."""
        return Preload() if self.imports is None else self.imports.preload()

    @property
    def configuration(self) -> Configuration:
        """The configuration under way."""
        return self.request.configurations[self.index]

    @property
    def phase(self) -> Phase:
        """Return where this process is in its training step."""
        return self._progress.phase if self._progress is not None else "start"

    @property
    def has_trained(self) -> bool:
        """Return whether this process, and not only one that it was forked from, made a training call."""
        return self._pid == os.getpid()

    def others_trained(self) -> bool:
        """Return whether only other processes of the run made training calls."""
        own = f"progress-{os.getpid()}"
        return not self.has_trained and any(path.name != own for path in self.directory.glob("progress-*"))

    def others_failed(self) -> bool:
        """Return whether a process that made no training call has written what it failed of."""
        return STARTER_RANK in ranks_of_results(self.directory)

    def note(self, text: str) -> None:
        """Keep a line for the outcome; each once, and at most 50."""
        if text not in self.notes and len(self.notes) < 50:
            self.notes.append(text)

    def leave_out_search(self) -> None:
        """Note that the script asked for kernels to be searched, and does not get it in this run."""
        self.kernels_searched = False
        self.note(_NO_SEARCH)

    def find_device(self, tensors: Iterable[torch.Tensor]) -> None:
        """Learn the device from the tensors of a training call; in a forked process anew."""
        if not self.has_trained:
            self.device = self._progress = None
        # A model may move itself to a device in its first forward. CUDA may also be awake without being trained on.
        if self.device is None and uses_cuda():
            self.device = cuda_device(tensors)
            self.progressed(device=device_uuid(self.device))

    @property
    def trains_on_cpu(self) -> bool:
        """Tell whether the script was seen to train, and not on CUDA."""
        return self.has_trained and self.device is None

    def begin(self) -> None:
        """Learn the rank at the first training call (torch.distributed is up by then), also after a fork."""
        self._pid = os.getpid()
        note_training()
        if self.imports is not None:
            self.imports.close()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.rank, self.num_processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if self.request.mode != "launch":
            self._progress = ProgressFile(self.directory, self.rank, self.num_processes, device_uuid(self.device))

    def limit_memory(self, *, anew: bool = False) -> None:
        """Have torch's allocator enforce the limit; ``anew``: reckon with what is held outside of it by now."""
        limit = self.request.memory_limit_bytes
        if limit is None or self.device is None or (self._memory_limited and not anew):
            return
        self._memory_limited = True
        limit_memory(limit, self.device, outside_bytes=self.outside_bytes() or 0)

    def outside_bytes(self) -> int | None:
        """Return what this process holds of its device outside torch's allocator; None where that cannot be told."""
        if self.device is None:
            return None
        uuid, request = device_uuid(self.device), self.request
        return outside_bytes(
            self.device,
            free_before=request.free_bytes.get(uuid),
            usable_bytes=request.usable_bytes.get(uuid),
            num_processes=self.num_processes,
        )

    def write(self, line: Line) -> None:
        """Append a line to the run's results."""
        append_line(self.directory, line)

    def finish_with(self, outcome: Outcome) -> None:
        """Write the outcome of the configuration under way."""
        environment = describe_environment(self.device, trains_on_cpu=self.trains_on_cpu)
        self.write(Result(self.index, outcome, environment, process=os.getpid(), rank=self.rank))
        self.has_result = True

    def give_up(self, failure: Outcome) -> NoReturn:
        """End the run with the configuration under way, which could not be applied."""
        self.finish_with(failure)
        self.end("the configuration could not be applied")

    def progressed(self, **changes: Any) -> None:
        """Tell the controller where this process is: fields of ``Progress``."""
        if self._progress is not None:
            self._progress.update(index=self.index, **changes)

    @property
    def has_ended(self) -> bool:
        """Return whether the run is over for this process: the script is only left to go."""
        return self._exits > 0

    def write_end(self, reason: str) -> None:
        """Write the last line, which no other follows."""
        self.close()
        self.write(Ended(process=os.getpid(), rank=self.rank, reason=reason))

    def close(self) -> None:
        """Write nothing more, not even a last line."""
        self._exits += 1

    def refuse(self, status: int) -> NoReturn:
        """End a launched script with an exit status, which says that it was not trained."""
        self.status = status
        self.close()
        self.end()

    def end(self, reason: str = "done") -> NoReturn:
        """Leave the script by ``SystemExit``, with a last line if it is the first time."""
        if self.has_ended:
            self._exits += 1
        else:
            self.write_end(reason)
        if self._exits > _MOST_EXITS:
            # The script swallows SystemExit at every step; nothing is left to lose.
            for child in multiprocessing.active_children():
                child.terminate()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(self.status)
        # Threads pass over SystemExit itself without a word, but not over a class derived from it.
        raise SystemExit(self.status)
