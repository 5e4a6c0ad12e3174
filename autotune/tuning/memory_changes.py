"""What changes of a script do to its simulated peak memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

from ..errors import DiscoveryError
from ..launch.port import RunResult
from ..launch.requests import trace_request
from ..predict.device_peak import outside_bytes, peak_of
from ..predict.epoch import with_epoch
from ..records.allocations import FirstTensor, Traced
from ..records.cards import Card
from ..records.memory_changes import ChangeEffect, ChangeName, UntriedChange, WorkerChange
from ..records.outcome import Fallback, Measured
from ..records.run import ALL_BLOCKS, Request
from ..records.study import StudySpec
from .card_fit import Run
from .side_by_side import SideBySide

# Of bitsandbytes: smaller tensors keep their type, and each block of values has a float32 besides.
_IN_BITSANDBYTES = frozenset({"Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Lion", "LAMB", "LARS"})
_LEAST_IN_8_BITS, _IN_A_BLOCK = 4096, 256


@dataclass(frozen=True)
class _Attempt:
    """A run of the changed script; ``parts`` of it make what a step of the script is without the change."""

    request: Request
    parts: int = 1


def try_changes(
    own: Traced,
    spec: StudySpec,
    card: Card,
    run: Run,
    *,
    at_once: int,
    progress: Callable[[int, int], None],
) -> tuple[list[ChangeEffect], list[UntriedChange]]:
    """Follow the script again with each change that it may take; return the effects, and which changes it refuses.

    Args:
        own: the trace of the script as it is, with places.
        spec: the script.
        card: what it takes for its GPU.
        run: makes a run in a folder of the name given, from several threads if ``at_once`` is above 1.
        at_once: how many runs go on at a time.
        progress: is told how many runs have ended, and how many were asked for.
    """
    reasons = dict(_reasons_against(own))
    attempts = {name: one for name, one in _attempts(own, spec, card).items() if name not in reasons}
    traces: dict[ChangeName, Traced] = {}
    with SideBySide[Traced](at_once, progress) as runs:

        def follow(name: ChangeName, request: Request) -> Future[Traced]:
            return runs.submit(lambda: _trace(run(request, name.replace(" ", "-"))))

        followed = {name: follow(name, attempt.request) for name, attempt in attempts.items()}
        for name, future in followed.items():
            try:
                traces[name] = future.result()
            except DiscoveryError as error:
                reasons[name] = str(error)
    of_others = _of_other_traces(own, traces.get("fused optimizer", own))
    traces |= {name: traced for name, traced in of_others.items() if name not in reasons}
    effects = [
        ChangeEffect(name, *_peaks(traced, card), *_prices(own, traced, attempts.get(name)))
        for name, traced in traces.items()
    ]
    return effects, [UntriedChange(name, reason) for name, reason in reasons.items()]


def _reasons_against(own: Traced) -> Iterator[tuple[ChangeName, str]]:
    """Yield the changes that need no run to be refused, each with the reason."""
    blocks, again = sum(own.blocks.values()), [place for place in own.trace.places if place.way == "recompute"]
    checkpoints = any(part.isdigit() for place in again for part in place.module.split("."))
    of_blocks: tuple[ChangeName, ...] = (
        "checkpoint all blocks",
        "checkpoint half of the blocks",
        "checkpoint all but products",
    )
    for name in of_blocks:
        if checkpoints:
            yield name, "the script checkpoints already, which `autotune audit` looks at"
        elif not blocks:
            yield name, "no module with others inside repeats in the model"
        elif blocks == 1 and name == "checkpoint half of the blocks":
            yield name, "the model has one block"
    if any(place.operator == "_log_softmax" for place in again):
        yield "chunk the loss", "the script checkpoints its loss already"
    if own.batch_size is None:
        yield "accumulate half batches", "the batch size could not be counted"
    elif not own.batch_control.can_set:
        yield "accumulate half batches", own.batch_control.reason or "the batch size cannot be set"
    elif own.batch_size % 2:
        yield "accumulate half batches", f"the batch size {own.batch_size} is odd"
    if unknown := [name for name in own.optimizers if name not in _IN_BITSANDBYTES]:
        yield "8-bit optimizer state", f"bitsandbytes has no {unknown[0]} of 8 bits"
    elif all(map(_is_kept, own.trace.tensors)):
        yield "8-bit optimizer state", f"no optimizer has state of {_LEAST_IN_8_BITS:,} values or more"
    if own.trace.expands:
        yield "expandable segments", "the environment has them already"
    if "e" not in own.trace.kinds:
        yield "leave empty_cache out", "the script does not call it"


def _trace(result: RunResult) -> Traced:
    if result.traced is not None:
        return result.traced
    failed = result.outcomes[0] or result.failure
    assert failed is not None, "an interrupted run raises"
    assert not isinstance(failed, Measured), "nothing is measured"
    raise DiscoveryError(failed.cause if isinstance(failed, Fallback) else f"the script fails with it: {failed.cause}")


def _attempts(own: Traced, spec: StudySpec, card: Card) -> dict[ChangeName, _Attempt]:
    # With half the batch size an epoch has twice as many batches.
    look_ahead = 2 * len(own.ahead.elements) + 1 if own.ahead and own.ahead.has_larger else 0

    def request(change: WorkerChange = "", *, blocks: int = 0, choice: str = "") -> Request:
        plain = trace_request(spec, card, checkpointed_blocks=blocks, look_ahead=look_ahead)
        configuration = plain.configurations[0]
        if choice:
            configuration = replace(configuration, choices=(*configuration.choices, f"{choice}=1"))
        return replace(plain, configurations=(configuration,), change=change, tells_places=True)

    own_blocks = sum(own.blocks.values())
    half_size = max(1, (own.batch_size or 0) // 2)
    half = trace_request(spec, card, batch_size=half_size, control=own.batch_control, look_ahead=look_ahead)
    return {
        "checkpoint all blocks": _Attempt(request(blocks=ALL_BLOCKS)),
        "checkpoint half of the blocks": _Attempt(request(blocks=max(1, own_blocks // 2))),
        "checkpoint all but products": _Attempt(request("selective checkpointing", blocks=ALL_BLOCKS)),
        "chunk the loss": _Attempt(request("chunked loss")),
        "offload activations": _Attempt(request("offloading")),
        "bfloat16 autocast": _Attempt(request(choice="bf16")),
        "fused optimizer": _Attempt(request(choice="fused-optimizer")),
        "free gradients early": _Attempt(request("early gradients")),
        "accumulate half batches": _Attempt(replace(half, change="accumulation", tells_places=True), parts=2),
    }


def _of_other_traces(own: Traced, fused: Traced) -> dict[ChangeName, Traced]:
    """Return the traces that follow from those that there are."""
    tensors = zip(fused.trace.tensors, fused.trace.storage_bytes, strict=True)
    sizes = tuple(size if _is_kept(tensor) else _in_8_bits(tensor) for tensor, size in tensors)
    pairs = zip(own.trace.kinds, own.trace.numbers, strict=True)
    kinds, numbers = zip(*(pair for pair in pairs if pair[0] != "e"), strict=True)
    return {
        "8-bit optimizer state": replace(fused, trace=replace(fused.trace, storage_bytes=sizes)),
        "expandable segments": replace(own, trace=replace(own.trace, expands=True)),
        "leave empty_cache out": replace(own, trace=replace(own.trace, kinds="".join(kinds), numbers=numbers)),
    }


def _is_kept(tensor: FirstTensor) -> bool:
    is_number = tensor.dtype in ("float32", "float16", "bfloat16")
    return tensor.role != "optimizer state" or not is_number or math.prod(tensor.shape) < _LEAST_IN_8_BITS


def _in_8_bits(tensor: FirstTensor) -> int:
    count = math.prod(tensor.shape)
    return count + 4 * -(-count // _IN_A_BLOCK)


def _prices(own: Traced, traced: Traced, attempt: _Attempt | None) -> tuple[float, int]:
    """Return the share of FLOPs, and the bytes between GPU and CPU, that a step has more."""
    parts = 1 if attempt is None else attempt.parts
    flops = parts * traced.step_flops / own.step_flops - 1 if own.step_flops else 0.0
    return flops, max(0, parts * traced.moved_bytes - own.moved_bytes)


def _peaks(traced: Traced, card: Card) -> tuple[int, int]:
    peak, epoch = peak_of(traced.trace, card), with_epoch(traced)
    reserved = peak.reserved if epoch is traced else peak_of(epoch.trace, card).reserved
    return peak.allocated, reserved + outside_bytes(traced.trace)
