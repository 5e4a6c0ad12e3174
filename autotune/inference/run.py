"""A run, from ``request.json`` to its last line; the protocol is that of ``worker/__main__.py``."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import traceback
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import onnxruntime

from ..errors import FormatError, UsageError
from ..metering.host import die_with_parent, show_stacks
from ..metering.results import ProgressFile, append_line
from ..records.choices import choices_of, made_choices
from ..records.codec import loads
from ..records.configuration import Configuration
from ..records.conversion import ConversionChoice
from ..records.facts import BatchControl, Facts, RootFacts
from ..records.fingerprint import script_sha256
from ..records.inference import Conversion, Converted, InferenceFacts
from ..records.measurement import Measurement, MemorySplit
from ..records.measuring import Measuring
from ..records.outcome import Fallback, Measured, Outcome, OutOfMemory, ScriptError
from ..records.run import PROTOCOL_VERSION, Compared, Described, Ended, Request, Result, Verifying
from ..records.session import converted_folder, session_of
from ..records.units import format_bytes, format_rate, format_share, format_speed
from .convert import compare, convert, keep
from .feeds import make_feeds, other_feeds, read_shapes
from .gpu import Gpu, describe_environment, find_gpu
from .model import ModelError, read_model
from .profile import idle_settings, profile
from .trial import PhasedMemory, Trial

# What ONNX Runtime and its libraries say of memory that ran out.
_OUT_OF_MEMORY = (
    "Failed to allocate memory",
    "bad_alloc",
    "bad allocation",
    "Arena alloc failed",  # what reads the file
    "out of memory",
    "is smaller than requested bytes of",  # an arena that has a limit
    "CUDA_ERROR_OUT_OF_MEMORY",
)
# A model is run at twice its batch where its peak is no more than this share of the device's memory.
_ROOM = 0.2
# What it says of a model that it does not take, and what to do then.
_REFUSALS = {
    "NOT_IMPLEMENTED": "Export the model with operators that ONNX Runtime has for this type, or install a newer one.",
    "INVALID_GRAPH": "Export the model with ONNX's own operators; `onnx.checker.check_model` says more.",
    "INVALID_ARGUMENT": "Feed what the model takes: try other sizes with --shape, or other --inputs.",
    "opset": "Export the model with an older opset, or install a newer ONNX Runtime.",
}
_NO_PROVIDER = (
    "a GPU is there, and this ONNX Runtime has no provider for it: it runs on the CPU (pip has onnxruntime-gpu)"
)
_FELL_BACK = (
    "CUDA's provider needs the libraries of CUDA and cuDNN that this onnxruntime-gpu was built for: pip install "
    "'onnxruntime-gpu[cuda,cudnn]'. With CUDA_VISIBLE_DEVICES= the model runs on the CPU."
)
_ADVICE = "Check the model with `onnx.checker.check_model`."
_CUDA = "CUDAExecutionProvider"
_NO_BATCH = "the model's batch dimension is fixed: export it with a dynamic one"


def main(run_directory: str) -> int:
    """Follow the protocol; 2 where the request cannot be read, else 0 whatever the outcome."""
    directory = Path(run_directory)
    try:
        request: Request = loads(Request, (directory / "request.json").read_text(), where="request.json")
        if request.protocol != PROTOCOL_VERSION:
            raise FormatError(f"request.json speaks protocol {request.protocol}, this worker {PROTOCOL_VERSION}")
    except (OSError, FormatError) as error:
        sys.stderr.write(f"autotune worker: {error}\n")
        return 2
    if request.mode == "launch":
        shutil.rmtree(directory, ignore_errors=True)  # everything is in memory now
        return _launch(request)
    die_with_parent()
    show_stacks()
    gpu = _usable_gpu()
    progress = ProgressFile(directory, 0, 1, "" if gpu is None else gpu.uuid)
    try:
        reason = _follow(request, progress, directory, gpu)
    except Exception as error:
        traceback.print_exc()
        _finish(directory, gpu, _failure_of(error, request.memory_limit_bytes))
        reason = "failed"
    append_line(directory, Ended(process=os.getpid(), rank=0, reason=reason))
    return 0


def _launch(request: Request) -> int:
    """Run the model for as long as a measurement takes, and say on standard output what that came to."""
    with tempfile.TemporaryDirectory(prefix="autotune-launch-") as folder:
        try:
            progress = ProgressFile(Path(folder), 0, 1, "")
            prepared = _Prepared(request, progress, Path(folder) / "run", _usable_gpu())
            if fallback := prepared.runner.fallback():
                raise ModelError(f"ONNX Runtime runs the model with {fallback}", _FELL_BACK)
            measurement = prepared.measure(request.measuring)
        except Exception as error:
            outcome = _failure_of(error, None)
            sys.stderr.write(f"autotune: {outcome.cause}\n  next: {outcome.advice}\n")
            return 1
    low, high = measurement.samples_per_s_interval
    peak = measurement.peaks.fit_bytes
    sys.stdout.write(
        f"{Path(request.script).name}: {format_speed(measurement.samples_per_s)} ({format_rate(low)} to "
        f"{format_rate(high)}, 95 %) at batch {prepared.batch_size}, peak {format_bytes(peak or 0)}\n"
    )
    return 0


class _Prepared:
    """A model with its inputs and its session; ModelError where it cannot be run.

    Discovery converts it first, as it may be later on.
    """

    def __init__(self, request: Request, progress: ProgressFile, directory: Path, gpu: Gpu | None = None) -> None:
        self._request, self._converted_folder, self._path = request, converted_folder(directory), Path(request.script)
        self._gpu = gpu
        (configuration,) = request.configurations
        self._model, self._shapes = read_model(self._path), read_shapes(request.arguments)
        own = self._shapes.fixed.get(self._model.batch, 1)
        self.batch_size = (configuration.batch_size or own) if self._model.batch else self._model.fixed_batch
        self.feeds = make_feeds(self._model, self._shapes, self.batch_size)
        settings = session_of(made_choices(configuration.engine, configuration.choices).items())
        self._conversions = tuple(
            self._tried(choice.conversion)
            for choice in (choices_of(configuration.engine)[name] for name in request.choices)
            if isinstance(choice, ConversionChoice)
        )
        if settings.conversion is not None:
            self._path, _ = self._convert(settings.conversion)
        free_before = None if gpu is None else gpu.free_before(request.free_bytes, request.usable_bytes)
        self._trial = Trial(self._path, self._model, settings, progress, PhasedMemory(gpu, free_before))
        self.runner = self._trial.runner

    def _convert(self, conversion: Conversion) -> tuple[Path, Converted]:
        key = " ".join([script_sha256(self._request.script), *self._request.arguments])
        return convert(self._path, self._model, conversion, self._shapes, self._converted_folder, key=key)

    def _tried(self, conversion: Conversion) -> Converted:
        """Return what a conversion comes to; its refusal where it cannot be had."""
        try:
            _, found = self._convert(conversion)
        except ModelError as error:
            return Converted(conversion, refusal=str(error))
        most = self._request.max_error
        if found.error is not None and found.error > most:
            off = f"its outputs are up to {format_share(found.error)} of the largest value off"
            return replace(found, refusal=f"{off}, and --max-error is {format_share(most)}")
        return found

    def measure(self, measuring: Measuring) -> Measurement:
        """Run it until it was measured enough."""
        others = other_feeds(self._model, self._shapes, self.batch_size)
        return self._trial.measure(self.feeds, others, self.batch_size, measuring)

    def facts(self) -> Facts:
        """Return the facts of discovery, once the model was measured."""
        request, model, path, feed = self._request, self._model, self._path, self.feeds[0]
        on_gpu = self._gpu is not None
        growing_bytes = self._doubled()
        self.runner.shrink(feed)
        self._trial.memory.end("shrunk")
        operators, tensors = profile(path, feed, on_gpu=on_gpu)
        idle = idle_settings(path, model, feed, on_gpu=on_gpu, has_one_shape=not self._shapes.several)
        moments = tuple(self._trial.memory.moments)
        notes = [f"{one.name} is not tried: {one.refusal}" for one in self._conversions if one.refusal]
        notes += [f"{one.setting}={' or '.join(map(str, one.values))} is not tried: {one.reason}" for one in idle]
        return Facts(
            baseline=Configuration(engine=request.configurations[0].engine, batch_size=self.batch_size),
            batch_size=self.batch_size,
            batch_control=BatchControl("inputs") if model.batch else BatchControl("none", reason=_NO_BATCH),
            clusters=(),
            dimensions={},
            split=MemorySplit(model.weight_bytes, 0, 0, 0, activations=growing_bytes),
            roots=(RootFacts(Path(request.script).stem, model.num_parameters, 0, 1),),
            optimizers=(),
            precision=None,
            environment=describe_environment(self._gpu),
            calls_per_step=1.0,
            script_sha256=request.script_sha256,
            inference=InferenceFacts(model.weight_bytes, moments, operators, tensors, self._conversions, idle),
            fork_refusal="a model has nothing to import",
            notes=(*([] if on_gpu or find_gpu() is None else [_NO_PROVIDER]), *notes),
        )

    def _doubled(self) -> int | None:
        """Return by how many bytes the peak grows if each shape is run at twice the batch.

        None where the model has no batch dimension, or where the peak is above ``_ROOM`` of the device's memory.
        """
        moments = self._trial.memory.moments
        peak = max(one.peak for one in moments)
        if not self._model.batch or peak > _ROOM * describe_environment(self._gpu).device_memory_bytes:
            return None
        feeds = make_feeds(self._model, self._shapes, 2 * self.batch_size)
        for feed in [*feeds, *feeds]:  # what is allocated in one piece is known from the second run on
            self.runner.run(feed)
        self._trial.memory.end("twice the batch")
        return max(0, moments[-1].peak - peak)


def _finish(directory: Path, gpu: Gpu | None, outcome: Outcome) -> None:
    """Write the outcome of the one configuration."""
    append_line(directory, Result(0, outcome, describe_environment(gpu), process=os.getpid()))


def _follow(request: Request, progress: ProgressFile, directory: Path, gpu: Gpu | None) -> str:
    """Do what the request asks; gives the reason for the end."""
    prepared = _Prepared(request, progress, directory, gpu)
    if fallback := prepared.runner.fallback():
        _finish(directory, gpu, Fallback(cause=f"ONNX Runtime runs the model with {fallback}", advice=_FELL_BACK))
        return "the provider fell back"
    if request.mode == "verify":
        _verify(request.verifying, prepared, directory)
        return "done"
    _finish(directory, gpu, Measured(prepared.measure(request.measuring)))
    if request.mode == "discover":
        append_line(directory, Described(prepared.facts(), process=os.getpid()))
    return "done"


def _verify(rules: Verifying, prepared: _Prepared, directory: Path) -> None:
    names = [one.name for one in prepared.runner.session.get_outputs()]
    steps = []
    for number, feed in enumerate(islice(cycle(prepared.feeds), rules.steps), start=1):
        steps.append(dict(zip(names, prepared.runner.outputs(feed), strict=True)))
        if rules.is_reference:
            keep(directory, number, steps[-1])
    differences = tuple((compare(Path(one), steps),) for one in rules.references)
    append_line(directory, Compared(rules.steps, differences, process=os.getpid(), is_compiled=True))


def _usable_gpu() -> Gpu | None:
    """Return what the model runs on: a GPU, where there is one and ONNX Runtime has its provider; else the CPU."""
    return find_gpu() if _CUDA in onnxruntime.get_available_providers() else None


def _in_words(text: str) -> str:
    """Return what ONNX Runtime says, without error number, the model's path and the line of its source."""
    found = re.fullmatch(r"\[ONNXRuntimeError\] : \d+ : (\w+) : (?:Load model from \S+ failed: ?)?(.*)", text)
    if found is None:
        return text
    said = re.sub(r"^/\S+:\d+ .*?\) (?=[A-Z])", "", found[2])
    return f"ONNX Runtime {onnxruntime.__version__} does not take it ({found[1]}): {said}"


def _failure_of(error: Exception, limit_bytes: int | None) -> OutOfMemory | ScriptError:
    text = _in_words(" ".join(str(error).split()))
    if isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY):
        return OutOfMemory(
            cause=f"out of memory: {text[:400]}",
            advice="A smaller batch or a higher --memory-limit would fit.",
            phase="forward",
            limit_bytes=limit_bytes,
        )
    advice = next((advice for sign, advice in _REFUSALS.items() if sign in text), _ADVICE)
    if isinstance(error, ModelError):
        advice = error.advice
    elif isinstance(error, UsageError):
        advice = error.hint or advice
    return ScriptError(cause=text[:500], advice=f"{advice[:1].upper()}{advice[1:]}.".replace("..", "."))
