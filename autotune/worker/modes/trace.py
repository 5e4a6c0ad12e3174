"""Tracing of what a script allocates on a GPU that is not there."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from ...metering.trial_meter import Window
from ...records.allocations import Traced
from ...records.arrivals import Arrivals
from ...records.cards import Card
from ...records.facts import BatchControl
from ...records.look_ahead import READING_S, SeenBatch
from ...records.outcome import Fallback
from ...records.run import ALL_BLOCKS, FOLLOWED_TEST
from ..absent.allocator import expands, workspaces
from ..absent.changes import checkpoint_block, make_change
from ..absent.communication import is_launched
from ..absent.cuda_in_cpp import CannotPretendError
from ..absent.places import Places
from ..absent.pretence import pretend
from ..absent.recorder import AllocationRecorder, GraphRecorder
from ..describing.arriving import ArrivingData
from ..describing.description import batch_control_of
from ..describing.root_inputs import RootCall
from ..failure import ON_THE_GPU
from ..hooks.look_ahead import BatchReader
from ..plans.layers import class_name_of, repeated_modules
from ..proving.seeds import SEED
from .base import Mode

# Optimizers make their state in their first step. Where there are several, the others may step after the leading one.
_STEPS, _STEPS_OF_SEVERAL = 2, 3
_SEVERAL = "Give the script itself, without a launcher, and its GPUs by their number, as in --for {}xh100-80gb."
# Batches that a library has drawn before the reading come first. A script may take no step with a batch.
_MOST_STEPS_UNREAD, _MOST_STEPS = 8, 32


@dataclass(frozen=True)
class _LastStep:
    window: Window
    flops: int
    moved_bytes: int


class TraceMode(Mode):
    """Records what the script allocates on a card, from the import of torch to the end of the steps that it needs."""

    counts_if_failed = False

    def __post_init__(self) -> None:
        self._places = Places() if self._process.request.tells_places else None
        make_recorder = AllocationRecorder if self._applied.engine is None else GraphRecorder
        self._recorder = make_recorder(self._places)
        self._arriving = ArrivingData()
        self._stepped_in_backward = False
        self._counts = (0, 0)  # until the last step
        self._last: _LastStep | None = None  # with a whole batch: the last one of an epoch may be smaller
        self._steps, self._test = 0, os.environ.get(FOLLOWED_TEST, "")
        self._of_steps: list[tuple[SeenBatch, ...]] = []
        self._blocks: dict[nn.Module, list[nn.Module]] = {}

    @property
    def _card(self) -> Card:
        card = self._process.request.card
        assert card is not None, "a request to trace names a card"
        return card

    @property
    def least_steps(self) -> int:
        """Return the number of steps, though a script whose places are told may have fewer."""
        return _STEPS_OF_SEVERAL

    def installed(self) -> None:
        """Put the card in the place of this process's GPU."""
        torch.manual_seed(SEED)  # runs of one command are compared, and a script may shuffle
        self._recorder.draws = self._process.request.look_ahead > 0
        process = self._process
        if self._card.number > 1 and is_launched():
            self._refuse_several(int(os.environ["WORLD_SIZE"]))
        self._script.loaders.make_reader = lambda: BatchReader(process.request.look_ahead, READING_S, self._recorder)
        try:
            pretend(self._card, self._recorder, process.note)
        except CannotPretendError as error:
            process.give_up(Fallback(cause=str(error), advice=ON_THE_GPU))
        if self._places is not None:
            self._places.install()
        self._change = make_change(process.request.change, self._recorder)

    def _refuse_several(self, processes: int) -> None:
        cause = f"the script trains in {processes} processes, and only the first can be followed, without the others"
        self._process.give_up(Fallback(cause=cause, advice=_SEVERAL.format(processes)))

    def ready(self) -> None:
        """Begin a forward: the training call is about to be made."""
        process = self._process
        if process.num_processes > 1 and self._card.number == 1:
            self._refuse_several(process.num_processes)
        self._recorder.begin("forward")

    def inputs(self, call: RootCall) -> None:
        """Count what a call brings; checkpoint as many of a root's blocks as the request says, in its first call."""
        self._arriving.see(call)
        if call.root not in self._blocks:
            seen = sum(map(len, self._blocks.values()))
            blocks = self._blocks[call.root] = checkpointed_blocks(call.root)
            wanted = self._process.request.checkpointed_blocks
            for block in blocks if wanted == ALL_BLOCKS else blocks[: max(0, wanted - seen)]:
                checkpoint_block(block, keeps_products=self._process.request.change == "selective checkpointing")

    def backward_begins(self, loss: Any) -> None:
        """Begin a backward."""
        del loss
        self._change.backward_begins()
        self._recorder.begin("backward")

    def backward_done(self) -> None:
        """Go on with the script's own part of the step."""
        self._recorder.begin("start" if self._stepped_in_backward else "optimizer")
        self._stepped_in_backward = False
        self._note_roles()

    def step(self, window: Window) -> None:
        """End with the last step that is needed; a test is followed to its end."""
        if self._test and os.environ.get("PYTEST_CURRENT_TEST") != f"{self._test} (call)":
            return  # a fixture trains
        self._note_roles()
        several = len(self._script.steps.optimizers) > 1
        # What every step leaves shows as soon as a step without anything new has left it, too.
        steps = (_STEPS_OF_SEVERAL if several else _STEPS) + (self._places is not None)
        counts = (self._recorder.flops, self._recorder.moved_bytes)
        if self._last is None or (window.batch_size or 0) >= (self._last.window.batch_size or 0):
            self._last = _LastStep(window, *(now - before for now, before in zip(counts, self._counts, strict=True)))
        self._counts = counts
        self._steps += 1
        reads_on = self._reads_on()
        if self._steps < steps or self._test or reads_on:
            native: Any = torch._C
            self._stepped_in_backward = native._current_graph_task_id() != -1
            if not self._stepped_in_backward:
                self._recorder.begin("start")
            return
        self._write(self._last)
        self._process.end()

    def _reads_on(self) -> bool:
        """Return whether batches are still to be read ahead, or to be followed."""
        loaders = self._script.loaders
        self._of_steps.append(tuple(filter(None, loaders.step_took())))
        if not self._process.request.look_ahead or self._steps >= _MOST_STEPS:
            return False
        if loaders.reading is None:
            return self._steps < _MOST_STEPS_UNREAD
        return loaders.reading.differs and loaders.reading.last not in self._of_steps[-1]

    def ended_early(self) -> bool:
        """Write what a script holds that is done before: it has no later step that could hold more."""
        is_enough = self._places is not None or (self._process.request.look_ahead and self._steps >= _STEPS)
        if self._last is None or not is_enough:
            return False
        self._recorder.take_back_start()
        self._process.note(f"the script ended after {self._steps} training step{'' if self._steps == 1 else 's'}")
        self._write(self._last)
        return True

    def _write(self, last: _LastStep) -> None:
        process, window = self._process, last.window
        if reason := self._change.problem():
            process.give_up(Fallback(cause=reason, advice="Leave the change out."))
        problem = self._applied.problem() or self._applied.batch_problem(
            window.batch_size, window.micro_batches, self._arriving.arrived()
        )
        if problem is not None:
            process.give_up(problem)
        if process.num_processes < self._card.number:
            process.note(f"the script trained in one process: it makes no process group for {self._card.number} GPUs")
        reader = self._script.loaders.reader()
        ahead = None if reader is None else reader.found(self._of_steps)
        if process.request.look_ahead and (ahead is None or not ahead.was_read):
            process.note(f"no batch was read ahead: {self._script.loaders.why_unread()}")
            ahead = None
        elif ahead is not None and ahead.has_larger and all(ahead.largest not in step for step in ahead.followed):
            process.note(f"no step was seen with the largest batch, {ahead.largest.number}: it may need more")
        if ahead is not None and ahead.has_larger and self._recorder.left_to_draw < 0:
            drawn = "the random numbers of the model's weights were not all drawn"
            process.note(f"{drawn}: a script that sets a seed may shuffle in another order")
        trace = replace(self._recorder.trace(), expands=expands(process.note), workspaces=workspaces())
        process.write(
            Traced(
                trace=trace,
                batch_size=window.batch_size,
                batch_control=self._batch_control(window.batch_size),
                blocks=Counter(class_name_of(block) for blocks in self._blocks.values() for block in blocks),
                steps=self._steps,
                step_flops=last.flops,
                moved_bytes=last.moved_bytes,
                optimizers=tuple(type(one).__name__ for one in self._script.steps.optimizers),
                asked=tuple(self._recorder.asked),
                asked_integers=tuple(self._recorder.asked_integers),
                notes=tuple(process.notes),
                ahead=ahead,
                process=os.getpid(),
                rank=process.rank,
            )
        )
        process.has_result = True

    def _batch_control(self, observed: int | None) -> BatchControl:
        control = batch_control_of(self._process.request, self._script, observed, ())
        if observed and control.arrivals is None:
            # Two steps are too few to tell how much data a batch brings where batches vary.
            return replace(control, arrivals=Arrivals(observed, ()))
        return control

    def _note_roles(self) -> None:
        """Note what belongs to the models and their optimizers."""
        if self._places is None:
            return
        names: dict[torch.Tensor, str] = {}
        for role, path, tensor in self._places.tensors():
            name = names.setdefault(tensor, path)
            self._recorder.note_role(role, name, tensor)
            if role == "parameter":
                self._recorder.note_role("gradient", name, tensor.grad)
        for optimizer in self._script.steps.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter not in names:  # of no module
                        self._recorder.note_role("parameter", "", parameter)
                        self._recorder.note_role("gradient", "", parameter.grad)
            for parameter, state in optimizer.state.items():
                for value in tree_leaves(state):
                    if isinstance(value, torch.Tensor):
                        self._recorder.note_role("optimizer state", names.get(parameter, ""), value)


def checkpointed_blocks(root: nn.Module) -> list[nn.Module]:
    """List the modules of a root that repeat and have modules inside, but for those inside of another such module."""
    found = [module for module in dict.fromkeys(repeated_modules(root)) if next(module.children(), None) is not None]
    inside = {inner for outer in found for inner in outer.modules() if inner is not outer}
    return [module for module in found if module not in inside]
