"""What changes of a script do to its simulated peak memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

from ..errors import DiscoveryError
from ..launch.port import RunResult
from ..launch.requests import trace_request
from ..predict.device_peak import outside_bytes, peak_of
from ..records.allocations import AllocationTrace, FirstTensor, Traced
from ..records.cards import Card
from ..records.memory_changes import ChangeEffect, ChangeName, UntriedChange, WorkerChange
from ..records.outcome import Measured
from ..records.run import ALL_BLOCKS, Request
from ..records.study import StudySpec
from .card_fit import Run
from .side_by_side import SideBySide

# Of bitsandbytes: smaller tensors keep 32 bits, and each block of values has a float32 besides.
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
    effects, untried = [], []
    with SideBySide[Traced](at_once, progress) as runs:

        def follow(name: ChangeName, request: Request) -> Future[Traced]:
            return runs.submit(lambda: _trace(run(request, name.replace(" ", "-"))))

        attempts = dict(_attempts(own, spec, card))
        followed = {name: follow(name, attempt.request) for name, attempt in attempts.items()}
        traces: dict[ChangeName, Traced] = {}
        for name, future in followed.items():
            try:
                traces[name] = future.result()
            except DiscoveryError as error:
                untried.append(UntriedChange(name, str(error)))
    derived = _of_other_traces(own, traces.get("fused optimizer", own))
    for name, traced in (traces | dict(derived)).items():
        parts = attempts[name].parts if name in attempts else 1
        effects.append(
            ChangeEffect(
                name,
                *_peaks(traced.trace, card),
                more_flops=parts * traced.step_flops / own.step_flops - 1 if own.step_flops else 0.0,
                moved_bytes=max(0, parts * traced.moved_bytes - own.moved_bytes),
            )
        )
    return effects, untried


def _trace(result: RunResult) -> Traced:
    if result.traced is not None:
        return result.traced
    failed = result.outcomes[0] or result.failure
    assert failed is not None, "an interrupted run raises"
    raise DiscoveryError("" if isinstance(failed, Measured) else failed.cause)


def _attempts(own: Traced, spec: StudySpec, card: Card) -> Iterator[tuple[ChangeName, _Attempt]]:
    def request(change: WorkerChange = "", *, blocks: int = 0, choice: str = "") -> Request:
        plain = trace_request(spec, card, checkpointed_blocks=blocks)
        configuration = plain.configurations[0]
        if choice:
            configuration = replace(configuration, choices=(*configuration.choices, f"{choice}=1"))
        return replace(plain, configurations=(configuration,), change=change, tells_places=True)

    blocks = sum(own.blocks.values())
    if blocks:
        yield "checkpoint all blocks", _Attempt(request(blocks=ALL_BLOCKS))
        yield "checkpoint all but products", _Attempt(request("selective checkpointing", blocks=ALL_BLOCKS))
    if blocks > 1:
        yield "checkpoint half of the blocks", _Attempt(request(blocks=blocks // 2))
    yield "chunk the loss", _Attempt(request("chunked loss"))
    yield "offload activations", _Attempt(request("offloading"))
    yield "bfloat16 autocast", _Attempt(request(choice="bf16"))
    yield "fused optimizer", _Attempt(request(choice="fused-optimizer"))
    yield "free gradients early", _Attempt(request("early gradients"))
    if own.batch_size and own.batch_size % 2 == 0 and own.batch_control.can_set:
        half = trace_request(spec, card, batch_size=own.batch_size // 2, control=own.batch_control)
        yield "accumulate half batches", _Attempt(replace(half, change="accumulation", tells_places=True), parts=2)


def _of_other_traces(own: Traced, fused: Traced) -> Iterator[tuple[ChangeName, Traced]]:
    """Yield the traces that follow from those that there are."""
    tensors = zip(fused.trace.tensors, fused.trace.storage_bytes, strict=True)
    sizes = tuple(_in_8_bits(tensor, size) for tensor, size in tensors)
    if sizes != fused.trace.storage_bytes:
        yield "8-bit optimizer state", replace(fused, trace=replace(fused.trace, storage_bytes=sizes))
    if not own.trace.expands:
        yield "expandable segments", replace(own, trace=replace(own.trace, expands=True))
    if "e" in own.trace.kinds:
        pairs = zip(own.trace.kinds, own.trace.numbers, strict=True)
        kinds, numbers = zip(*(pair for pair in pairs if pair[0] != "e"), strict=True)
        yield "leave empty_cache out", replace(own, trace=replace(own.trace, kinds="".join(kinds), numbers=numbers))


def _in_8_bits(tensor: FirstTensor, size: int) -> int:
    count = size // 4
    if tensor.role != "optimizer state" or tensor.dtype != "float32" or count < _LEAST_IN_8_BITS:
        return size
    return count + 4 * -(-count // _IN_A_BLOCK)


def _peaks(trace: AllocationTrace, card: Card) -> tuple[int, int]:
    peak = peak_of(trace, card)
    return peak.allocated, peak.reserved + outside_bytes(trace)
