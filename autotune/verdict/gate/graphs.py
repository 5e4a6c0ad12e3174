"""The gate of memory on graphs alone: nothing is timed, no GPU is needed, and nothing scatters."""

from __future__ import annotations

from ...records.gate import Gate, GateAnswer, Gauge, GaugeFound, GraphReading, Reference
from ...records.outcome import Outcome
from ...records.units import format_bytes, format_share
from ...records.words import sentence
from ..sequential import LEAST_GAIN
from .decision import cause_of, not_comparable

# A part is named as what has grown if it is at least so much of the whole growth.
_MOST_OF_IT = 0.5


def decide_by_graphs(now: GraphReading, before: GraphReading, reference: Reference, *, allowed: float) -> Gate:
    """Hold what is simulated now against what was simulated before."""
    if unlike := _unlike(now, before, reference):
        return not_comparable(f"The stored simulation is not comparable: {unlike}.", reference, (unlike,), None)
    change = now.peak_bytes / before.peak_bytes
    share = format_share(abs(change - 1))
    answer: GateAnswer = "pass"
    found: GaugeFound = "within"
    than = "before" if reference == "stored" else "the other version of the script"
    first = "No regression of memory."
    if change >= 1 + allowed and change > 1:
        answer, found = "regression", "worse"
        first = f"Regression: {share} more memory than {than}."
    elif change <= 1 / LEAST_GAIN:
        answer, found = "improvement", "better"
        first = f"Improvement: {share} less memory than {than}."
    gauge = Gauge("memory", before.peak_bytes, now.peak_bytes, change, change, change, allowed, found)
    peak = f"Peak {format_bytes(now.peak_bytes)}, {format_bytes(before.peak_bytes)} before"
    last = (
        f"{peak}; {format_share(allowed)} more is allowed. It is simulated from the script's graphs; nothing was timed."
    )
    sentences = tuple(filter(None, (first, _what_changed(now, before), last)))
    return Gate(answer, sentences, reference, repetitions=0, gauges=(gauge,), graph=now)


def graphs_failed(script: str, failure: Outcome | None, reason: str, reference: Reference) -> Gate:
    """Return the answer where a script's graphs say nothing."""
    told = f"Memory can't be simulated from the graphs of {script}: {reason.rstrip('.')}."
    if failure is not None:
        told = f"{sentence(script)} could not be described: {cause_of(failure)}."
    return Gate("failed", (told,), reference, repetitions=0)


def _unlike(now: GraphReading, before: GraphReading, reference: Reference) -> str:
    places = (
        ("torch", before.torch, now.torch),
        ("device", before.device_name, now.device_name),
        ("number of threads", before.num_threads, now.num_threads),
    )
    # Two versions of a script in one sitting may differ in anything: that is what was edited.
    held = (*places, ("batch size", before.batch_size, now.batch_size)) if reference == "stored" else ()
    return next((f"{name} {there} -> {here}" for name, there, here in held if there != here), "")


def _what_changed(now: GraphReading, before: GraphReading) -> str:
    lasting, step = now.lasting_bytes - before.lasting_bytes, now.step_bytes - before.step_bytes
    if not lasting and not step:
        return ""
    told = [f"{_signed(lasting)} between steps (parameters, buffers, optimizer state)"] if lasting else []
    if step:
        cluster = _cluster_behind(step, now, before)
        told.append(f"{_signed(step)} at the highest point of a step" + (f", in `{cluster}`" if cluster else ""))
    where = "" if now.batch_size is None else f" at batch {now.batch_size}"
    return f"The script's change{where}: {' and '.join(told)}."


def _cluster_behind(step: int, now: GraphReading, before: GraphReading) -> str:
    """Return the cluster whose stash tells most of what a step holds more, or less; empty if none does."""
    changes = {
        cluster: now.stashes.get(cluster, 0) - before.stashes.get(cluster, 0)
        for cluster in {*now.stashes, *before.stashes}
    }
    likely = {cluster: change for cluster, change in changes.items() if change / step >= _MOST_OF_IT}
    return max(likely, key=lambda cluster: (likely[cluster] / step, cluster), default="")


def _signed(size: int) -> str:
    return f"{'+' if size > 0 else ''}{format_bytes(size)}"
