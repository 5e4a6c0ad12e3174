"""Requests for runs: what a study's spec, facts and configurations mean for the worker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ..errors import UsageError
from ..records.cards import Card
from ..records.choices import HeapChoice, made_choices
from ..records.configuration import Configuration
from ..records.engines import ENGINES, Engine, plain_engine_of
from ..records.facts import AccumulationControl, BatchControl, Facts, Preload
from ..records.measuring import LONGEST_CYCLE, GpuMeasuring, Measuring
from ..records.run import Request, Searched, Verifying
from ..records.stack import Stack
from ..records.study import StudySpec

_PLACEHOLDER = re.compile(r"\{batch_size(?::(\d+))?\}")
_ACCUMULATION = re.compile(r"\{accumulation(?::(\d+))?\}")
# Nobody looks at the speed of a script that is described a second time, or for its graphs alone, or that is audited:
# an audit takes the time of steps of its own.
_AS_SHORT_AS_CAN_BE = Measuring(
    min_warmup_steps=1,
    max_warmup_steps=1,
    min_steps=3,
    max_steps=3,
    min_measure_s=0.0,
    on_gpu=GpuMeasuring(warmup_s=0.0, measure_s=0.0, steps=0),
)


def has_placeholder(arguments: Sequence[str]) -> bool:
    """Tell whether the script's arguments hold ``{batch_size}``, where the script's own size may follow a colon."""
    return any(_PLACEHOLDER.search(argument) for argument in arguments)


def own_batch_size(spec: StudySpec) -> int | None:
    """Return the script's own batch size as the user gave it: ``{batch_size:32}``, or ``--batch-size``; else None."""
    for argument in spec.arguments:
        match = _PLACEHOLDER.search(argument)
        if match is not None and match[1] is not None:
            return int(match[1])
    return spec.own_batch_size


def own_accumulation(arguments: Sequence[str]) -> int | None:
    """Return the script's own accumulation as ``{accumulation:4}`` says it; None where no argument says it.

    UsageError where it is there without a number.
    """
    found = [match for argument in arguments for match in _ACCUMULATION.finditer(argument)]
    if not found:
        return None
    numbers = {int(match[1] or 0) for match in found}
    if 0 in numbers or len(numbers) > 1:
        raise UsageError(
            "the script's arguments contain {accumulation}, but not the script's own number",
            hint="write it as {accumulation:4}, the number being that of micro-batches per optimizer step",
        )
    return numbers.pop()


def fill_arguments(
    arguments: Sequence[str], configuration: Configuration, *, own_accumulation: int | None = None
) -> tuple[str, ...]:
    """Put batch size and accumulation into ``{batch_size}`` and ``{accumulation}``, as far as they are known.

    Where a configuration leaves the accumulation alone, that is the number in the argument, else ``own_accumulation``.
    """
    size, set_to = configuration.batch_size, configuration.accumulation

    def accumulation(match: re.Match[str]) -> str:
        number = set_to or int(match[1] or 0) or own_accumulation
        return str(number) if number else match[0]

    filled = (_PLACEHOLDER.sub(str(size), argument) if size else argument for argument in arguments)
    return tuple(_ACCUMULATION.sub(accumulation, argument) for argument in filled)


def _request(spec: StudySpec, *configurations: Configuration) -> Request:
    """Make the request to measure configurations, which every other request about a study's script differs from."""
    return Request(
        mode="measure",
        script=spec.script,
        module=spec.module,
        arguments=fill_arguments(spec.arguments, configurations[0]),
        configurations=configurations,
        measuring=spec.measuring,
        look_ahead=spec.look_ahead,
    )


def searched_by(spec: StudySpec) -> tuple[Searched, ...]:
    """Return what a study tries besides the script as it stands, where the script allows it."""
    is_one_size = spec.batch_sizes is not None and spec.batch_sizes[0] == spec.batch_sizes[1]
    found: dict[Searched, bool] = {
        "plans": spec.engine != "eager",
        "batch_sizes": not is_one_size,
        "choices": bool(spec.choices),
    }
    return tuple(one for one, is_searched in found.items() if is_searched)


def discovery_request(spec: StudySpec, *, ends_at: float | None = None, searches: tuple[Searched, ...] = ()) -> Request:
    """Make the request to measure the baseline and to describe the script, in a study that ends at ``ends_at``.

    The study ``searches`` these in the time that is left then.

    No memory limit: the baseline is measured as it is, and then judged. But for the search for kernels: trials, which
    are compared with it, leave that out. UsageError if the arguments hold ``{batch_size}`` or ``{accumulation}`` and
    nobody said which number is the script's own.
    """
    size: int | None = None  # what the script does by itself is not known yet
    control: BatchControl | None = None
    if has_placeholder(spec.arguments):
        size, control = own_batch_size(spec), BatchControl("arguments")
        if size is None:
            raise UsageError(
                "the script's arguments contain {batch_size}, but not the script's own size",
                hint="write it as {batch_size:32}",
            )
    accumulation = own_accumulation(spec.arguments)
    configuration = Configuration(engine=plain_engine_of(spec.engine), batch_size=size)
    return replace(
        _request(spec, configuration),
        mode="discover",
        batch_control=control,
        accumulation_control=None if accumulation is None else AccumulationControl("arguments", accumulation),
        memory_matrix=True,
        kernel_search=False,
        describe_engine=_describing(spec.engine),
        ends_at=ends_at,
        searches=searches,
        choices=spec.choices,
        max_error=spec.max_error,
    )


def audit_request(spec: StudySpec) -> Request:
    """Make the request to measure the script as it stands, and to see what it does by itself to what it keeps."""
    request = discovery_request(spec)
    return replace(request, mode="audit", measuring=_AS_SHORT_AS_CAN_BE, memory_matrix=False, kernel_search=True)


def region_request(spec: StudySpec, verifying: Verifying) -> Request:
    """Make the request of the script's first steps as it stands, to compare its regions with none."""
    return replace(discovery_request(spec), mode="verify", verifying=verifying, memory_matrix=False)


def limit_request(spec: StudySpec, limit_bytes: int) -> Request:
    """Make the request to see whether the script as it stands stays below a memory limit in its first steps."""
    request = discovery_request(spec)
    return replace(
        request,
        mode="measure",
        measuring=_AS_SHORT_AS_CAN_BE,
        memory_matrix=False,
        kernel_search=True,
        memory_limit_bytes=limit_bytes,
    )


def description_request(
    spec: StudySpec,
    facts: Facts,
    batch_size: int | None,
    *,
    ends_at: float | None,
    searches: tuple[Searched, ...] = (),
) -> Request:
    """Make the request to describe a script whose baseline was measured, at another batch size than its own."""
    configuration = Configuration(engine=plain_engine_of(spec.engine), batch_size=batch_size)
    return replace(
        _request(spec, configuration),
        mode="discover",
        script_sha256=facts.script_sha256,
        measuring=_AS_SHORT_AS_CAN_BE,
        batch_control=facts.batch_control,
        kernel_search=False,
        describe_engine=_describing(spec.engine),
        ends_at=ends_at,
        searches=searches,
    )


def _describing(engine: Engine) -> Literal["aot", "inductor", "ortmodule", "onnxruntime"]:
    # Engine eager has no plans; they are described all the same, for who looks at them.
    return "aot" if engine == "eager" else engine


def locate_request(spec: StudySpec, facts: Facts) -> Request:
    """Make the request to see in one step of the script as it is which modules its blocks are."""
    return replace(
        _request(spec, facts.baseline),
        mode="locate",
        batch_control=facts.batch_control,
        accumulation_control=facts.accumulation_control,
    )


def trace_request(
    spec: StudySpec,
    card: Card,
    *,
    batch_size: int | None = None,
    control: BatchControl | None = None,
    checkpointed_blocks: int = 0,
    look_ahead: int = 0,
) -> Request:
    """Make the request to record what a script allocates on a card that is not there.

    Args:
        spec: the script and its arguments.
        card: what the script takes for its GPU.
        batch_size: what its batch size is set to; None for its own.
        control: how it is set, by an earlier trace; None where that is not known yet.
        checkpointed_blocks: how many of the blocks that repeat in the model are checkpointed, or ``ALL_BLOCKS``.
        look_ahead: how many batches are read ahead, to follow some that differ in size.
    """
    request = discovery_request(spec)
    own = request.configurations[0]
    configuration = own if batch_size is None else replace(own, batch_size=batch_size)
    return replace(
        request,
        mode="trace",
        arguments=fill_arguments(spec.arguments, configuration),
        configurations=(configuration,),
        batch_control=control or request.batch_control,
        memory_matrix=False,
        card=card,
        checkpointed_blocks=checkpointed_blocks,
        look_ahead=look_ahead,
    )


def with_setting(request: Request, spec: StudySpec, stack: Stack, setting: Configuration) -> Request:
    """Have a run of a script as it is apply a bundle's setting."""
    return replace(
        request,
        arguments=fill_arguments(spec.arguments, setting),
        configurations=(setting,),
        batch_control=stack.batch_control,
        accumulation_control=stack.accumulation_control,
    )


def launch_request(
    stack: Stack,
    configuration: Configuration,
    *,
    script: str,
    module: str,
    arguments: Sequence[str],
    allow_stale: bool,
    is_stale: bool,
) -> Request:
    """Make the request of a run to the script's own end with a bundle's setting.

    ``is_stale``: the files are no longer the bundle's, as is known before the run. ``allow_stale``: go on then.
    """
    accumulation = None if stack.accumulation_control is None else stack.accumulation_control.steps
    return Request(
        mode="launch",
        script=script,
        module=module,
        arguments=fill_arguments(arguments, configuration, own_accumulation=accumulation),
        configurations=(configuration,),
        batch_control=stack.batch_control,
        accumulation_control=stack.accumulation_control,
        expected=replace(stack.fingerprint, files=()),
        measured_batch=stack.measured_batch,
        allow_stale=allow_stale,
        is_stale=is_stale,
    )


def trial_request(
    spec: StudySpec,
    facts: Facts,
    configurations: Sequence[Configuration],
    limit_bytes: int,
    *,
    measuring: Measuring | None = None,
    may_fork: bool = False,
    kernel_search: bool = True,
    server: str = "",
) -> Request:
    """Make the request to measure configurations one after the other; they share a batch size and choices.

    ``measuring`` is how, the spec's unless given. ``may_fork``: it need not be a fresh process, where the script and
    the engine allow that. ``kernel_search`` and ``server``: see ``Request``.
    """
    forks = may_fork and can_fork(spec, facts, configurations[0])
    sizes = {configuration.batch_size for configuration in configurations}
    assert len(sizes) == 1, f"a run has one batch size, not {sizes}"
    assert len({configuration.choices for configuration in configurations}) == 1, "a run makes its choices once"
    return replace(
        _request(spec, *configurations),
        measuring=_within_steps(spec, measuring or spec.measuring, facts, configurations[0].batch_size),
        batch_control=facts.batch_control,
        accumulation_control=facts.accumulation_control,
        memory_limit_bytes=limit_bytes,
        kernel_search=kernel_search,
        may_fork=forks,
        preload=facts.preload if forks else Preload(),
        server=server if forks else "",
    )


def can_fork(spec: StudySpec, facts: Facts, configuration: Configuration) -> bool:
    """Return whether a run of a configuration may come out of a fork server, where it need not be a fresh process."""
    # Torch reads some choices while it is imported. A fork server has a heap of its own, by its variables.
    made = made_choices(configuration.engine, configuration.choices)
    are_read = any(not isinstance(choice, HeapChoice) for choice in made)
    return ENGINES[spec.engine].forks and not (facts.fork_refusal or are_read)


def _within_steps(spec: StudySpec, measuring: Measuring, facts: Facts, batch_size: int | None) -> Measuring:
    """Shorten the warm-up so that it leaves steps to measure, however much times scatter, where the script has few."""
    if facts.steps.in_all is None or not facts.batch_size or not batch_size:
        return measuring
    steps = facts.steps.in_all * facts.batch_size // batch_size
    most = steps - measuring.min_steps
    if spec.look_ahead:
        most = measuring.min_warmup_steps + (steps - measuring.least_steps_in_cycles) // LONGEST_CYCLE
    most = max(measuring.min_warmup_steps, most)
    return replace(measuring, max_warmup_steps=min(measuring.max_warmup_steps, most))


def repetition_request(
    spec: StudySpec,
    configuration: Configuration,
    *,
    batch_control: BatchControl,
    accumulation_control: AccumulationControl | None,
    measuring: Measuring | None = None,
) -> Request:
    """Make the request to measure one configuration of which nothing is known but how its sizes are set.

    ``measuring`` is how, the spec's unless given.
    """
    return replace(
        _request(spec, configuration),
        measuring=measuring or spec.measuring,
        batch_control=batch_control,
        accumulation_control=accumulation_control,
    )


def verify_request(
    spec: StudySpec,
    configuration: Configuration,
    verifying: Verifying,
    *,
    batch_control: BatchControl,
    accumulation_control: AccumulationControl | None = None,
    limit_bytes: int | None,
) -> Request:
    """Make the request of a configuration's first steps, to compare them with those of other runs."""
    return replace(
        _request(spec, configuration),
        mode="verify",
        batch_control=batch_control,
        accumulation_control=accumulation_control,
        verifying=verifying,
        memory_limit_bytes=limit_bytes,
        # Kernels that were chosen by their times round as chance has it.
        kernel_search=verifying.as_exported,
    )
