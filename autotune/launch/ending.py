"""Reasons for the end of a run, and the failure that each means for a configuration under way without a result."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from ..machine.meters.run_meter import Sample
from ..records.outcome import Died, HostOutOfMemory, Outcome, OutOfMemory, Phase, TimedOut
from ..records.units import format_bytes

# The signals at which faulthandler writes the stacks. Source: the Python documentation, faulthandler.enable.
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL})


@dataclass(frozen=True)
class Ending:
    """The reason why the launcher stopped watching a run.

    ``exited``: the run's main process ended. ``finished``: a grace time has passed after all was written, or after a
    rank failed and the others did not follow. ``over_limit``: the memory that the run took passed the limit, as
    ``sample`` shows. The other values name what happened. ``index`` is the configuration that was under way, or the
    number of configurations when all were done.
    """

    how: Literal[
        "exited", "finished", "start_timeout", "trial_timeout", "describing_timeout", "over_limit", "cancelled"
    ]
    index: int
    sample: Sample | None = None


@dataclass(frozen=True)
class Patience:
    """The time limits of a run, in seconds.

    ``start_timeout_s`` is for the time until the run's first training step ends, ``trial_timeout_s`` for each trial
    from then on. ``grace_s`` is for the run to end by itself once everything is written. It is also for the other ranks
    to follow one that failed.
    """

    start_timeout_s: float
    trial_timeout_s: float
    grace_s: float = 10.0


def failure_of(
    ending: Ending,
    *,
    status: int,
    place: str,
    phase: Phase,
    steps: int,
    reason: str,
    patience: Patience,
    describing_s: float | None,
    limit_bytes: int | None,
    oom_kills: int | None,
) -> Outcome:
    """Name the failure; its log lines are for the caller to put in.

    ``status`` is the main process's return code as ``subprocess`` gives it: negative is a signal. ``place`` says in
    words that follow "killed" where the run was, after ``steps`` of all its trials together. ``reason`` is the worker's
    last word. ``describing_s`` is what a description may take in all; None where none is under way. ``oom_kills`` is
    the number of processes that the kernel killed for memory meanwhile; None where it does not say.
    """
    where = f"{place}, after step {steps}" if steps else place
    killed_inside = ending.how == "exited" and (status == -signal.SIGKILL or status > 0)
    # Where a deadline passed, others may have waited for the one that was killed.
    if (oom_kills and (killed_inside or ending.how.endswith("timeout"))) or (
        oom_kills is None and ending.how == "exited" and status == -signal.SIGKILL
    ):
        killer = "the kernel" if oom_kills else "something, most likely the kernel,"
        return HostOutOfMemory(
            cause=f"{killer} killed the run for the host's memory {where}",
            advice="Leave the host some room with --memory-limit, or allow smaller batches with --batch-sizes.",
            phase=phase,
        )
    if ending.how == "start_timeout":
        return TimedOut(
            cause=f"no training step ended within {patience.start_timeout_s:g} s: killed {place}",
            advice="If it was still loading or compiling, allow more with --start-timeout.",
            phase=phase,
        )
    if ending.how == "trial_timeout":
        return TimedOut(
            cause=f"the trial was not measured within {patience.trial_timeout_s:g} s: killed {where}",
            advice="If its steps are slow, allow more with --trial-timeout. The end of its log shows where it hung.",
            phase=phase,
        )
    if ending.how == "describing_timeout":
        assert describing_s is not None
        return TimedOut(
            cause=f"describing the script took longer than the {describing_s:.0f} s that it may take: killed {where}",
            advice="A larger --time-budget gives it more time.",
            phase=phase,
        )
    if ending.how == "over_limit":
        assert limit_bytes is not None
        assert ending.sample is not None
        assert ending.sample.used_bytes is not None
        what = "the resident set" if ending.sample.kind == "resident" else "what the run holds on the GPU"
        reached, limit = format_bytes(ending.sample.used_bytes), format_bytes(limit_bytes)
        return OutOfMemory(
            cause=f"{what} reached {reached} {place}, the limit is {limit}",
            advice="Allow more with --memory-limit, or smaller batches with --batch-sizes.",
            phase=phase,
            limit_bytes=limit_bytes,
            needed_bytes=ending.sample.used_bytes,
        )
    if ending.how == "finished" or (reason and status == 0):
        return Died(
            cause=f"the worker left without a result {where}: {reason}",
            advice="The end of its log has the script's last lines.",
            exit_status=status if ending.how == "exited" else None,
            phase=phase,
        )
    if status == -signal.SIGKILL:
        return Died(
            cause=f"killed by SIGKILL {where}",
            advice="The kernel counts no kill for memory: look for a job scheduler or a memory watchdog that did it.",
            signal="SIGKILL",
            phase=phase,
        )
    if status < 0:
        name = _signal_name(-status)
        shown = "The end of its log shows which line crashed. " if -status in _CRASHES else ""
        return Died(
            cause=f"killed by {name} {where}",
            advice=f"{shown}Run the script by itself with the same batch size; if that works, leave plans out: "
            "--engine eager.",
            signal=name,
            phase=phase,
        )
    return Died(
        cause=f"ended with status {status} and without a result {where}",
        advice="Run the script by itself with the same arguments. The end of its log has its last lines.",
        exit_status=status,
        phase=phase,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal
