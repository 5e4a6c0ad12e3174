"""Requests for runs: what a study's spec, facts and configurations mean for the worker."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import UsageError
from ..records import ENGINES, BatchControl, Configuration, Facts, Measuring, Request, StudySpec, Verifying

__all__ = ["discovery_request", "fill_arguments", "has_placeholder", "trial_request", "verify_request"]

_PLACEHOLDER = re.compile(r"\{batch_size(?::(\d+))?\}")


def has_placeholder(arguments: Sequence[str]) -> bool:
    """Whether the script's arguments hold ``{batch_size}``, with or without the script's own size behind a colon."""
    return any(_PLACEHOLDER.search(argument) for argument in arguments)


def own_batch_size(spec: StudySpec) -> int | None:
    """The script's own batch size as the user gave it: ``{batch_size:32}``, or ``--batch-size``; else None."""
    for argument in spec.arguments:
        match = _PLACEHOLDER.search(argument)
        if match is not None and match[1] is not None:
            return int(match[1])
    return spec.own_batch_size


def fill_arguments(arguments: Sequence[str], batch_size: int | None) -> tuple[str, ...]:
    """Put a batch size into ``{batch_size}``."""
    if batch_size is None:
        return tuple(arguments)
    return tuple(_PLACEHOLDER.sub(str(batch_size), argument) for argument in arguments)


def discovery_request(spec: StudySpec) -> Request:
    """The run that measures the baseline and describes the script.

    No memory limit: the baseline is measured as it is, and then judged. UsageError if the arguments hold
    ``{batch_size}`` and nobody said which size is the script's own.
    """
    size, control = None, None
    if has_placeholder(spec.arguments):
        size, control = own_batch_size(spec), BatchControl("arguments")
        if size is None:
            raise UsageError(
                "the script's arguments hold {batch_size}, but not which size is the script's own",
                hint="write it as {batch_size:32}, or add --batch-size 32",
            )
    return Request(
        mode="discover",
        script=spec.script,
        arguments=fill_arguments(spec.arguments, size),
        configurations=(Configuration(batch_size=size),),
        measuring=spec.measuring,
        batch_control=control,
        memory_matrix=True,
        # Engine eager has no plans; they are described all the same, for who looks at them.
        describe_engine="aot" if spec.engine == "eager" else spec.engine,
    )


def trial_request(
    spec: StudySpec,
    facts: Facts,
    configurations: Sequence[Configuration],
    limit_bytes: int,
    *,
    measuring: Measuring | None = None,
    may_fork: bool = False,
) -> Request:
    """The run that measures configurations one after the other; they share a batch size and choices.

    ``measuring`` is how, the spec's unless given. ``may_fork``: it need not be a fresh process, where the script and
    the engine allow that.
    """
    sizes = {configuration.batch_size for configuration in configurations}
    assert len(sizes) == 1, f"a run has one batch size, not {sizes}"
    assert len({configuration.choices for configuration in configurations}) == 1, "a run makes its choices once"
    return Request(
        mode="measure",
        script=spec.script,
        arguments=fill_arguments(spec.arguments, configurations[0].batch_size),
        configurations=tuple(configurations),
        measuring=measuring or spec.measuring,
        batch_control=facts.batch_control,
        memory_limit_bytes=limit_bytes,
        # Torch reads some choices while it is imported.
        may_fork=may_fork and ENGINES[spec.engine].forks and not (facts.fork_refusal or configurations[0].choices),
    )


def verify_request(
    script: str,
    arguments: Sequence[str],
    configuration: Configuration,
    verifying: Verifying,
    *,
    batch_control: BatchControl,
    limit_bytes: int | None,
) -> Request:
    """The run of a configuration's first steps, to compare them with those of other runs."""
    return Request(
        mode="verify",
        script=script,
        arguments=fill_arguments(arguments, configuration.batch_size),
        configurations=(configuration,),
        batch_control=batch_control,
        verifying=verifying,
        memory_limit_bytes=limit_bytes,
    )
