"""Checks that a study can be had: of the script before a run, of what discovery found, of choices and the limit."""

from __future__ import annotations

import difflib
import io
import math
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from ..errors import DiscoveryError, FormatError, InterruptionError, RunError, UsageError
from ..machine.interpreter import find_module
from ..predict.formulas import Formula
from ..records.audit import Audit
from ..records.choices import choices_of
from ..records.engines import Engine, Target
from ..records.facts import ClusterFacts, Facts
from ..records.inference import InferenceFacts
from ..records.outcome import Measured, Outcome, OutOfMemory, ScriptError
from ..records.printable import as_operand, first_line, is_unicode, shell_word
from ..records.study import StudySpec
from ..records.units import format_bytes

Found = TypeVar("Found", Facts, Audit)


# What a description finds, beside the activations and notes.
_DESCRIBED = ("clusters", "dimensions", "graphs", "traces", "calibration", "per_sample", "roots", "outside")
# Torch traces no smaller batch than 2 as a symbol.
_LEAST = 4


def judge(
    facts: Found | None,
    baseline: Outcome | None,
    failure: Outcome | None,
    *,
    reason: str,
    directory: Path,
    target: Target = "script",
    wanted: Literal["described", "audited"] = "described",
) -> Found:
    """Return the facts, or the audit, or say why there are none.

    Raises:
        DiscoveryError: with the script's traceback or its last lines, the cause and what to do.
        InterruptionError: the run was ended before it had a result.
    """
    if isinstance(baseline, Measured) and facts is not None:
        return facts
    outcome = failure if isinstance(baseline, Measured) else baseline
    if outcome is None and reason:
        raise DiscoveryError(
            f"the {target} was measured, but not {wanted}: {reason}", hint=f"Its whole output is in {directory}"
        )
    if outcome is None or isinstance(outcome, Measured):
        stopped = "discovery" if wanted == "described" else "the audit"
        raise InterruptionError(f"{stopped} was stopped", hint="the same command again starts it anew")
    raise DiscoveryError(
        f"the unmodified {target} could not be measured: {outcome.cause}",
        hint=f"{_hint(outcome, target)} Its whole output is in {directory}",
        detail=detail_of(outcome),
    )


def detail_of(outcome: Outcome) -> str:
    """Return what a script printed of its failure: its traceback, or its last lines; empty if it was measured."""
    if isinstance(outcome, Measured):
        return ""
    return (outcome.traceback if isinstance(outcome, ScriptError) else "\n".join(outcome.log_tail)).rstrip()


def smaller_to_describe(facts: Facts) -> int | None:
    """Return the batch size at which to describe a script for which memory ran out at its own; None without one."""
    if not facts.batch_control.can_set or facts.batch_size is None or facts.batch_size < _LEAST:
        return None
    return facts.batch_size // 2 if facts.undescribed is not None and facts.undescribed.for_memory else None


def described_at_smaller(facts: Facts, smaller: Facts) -> Facts:
    """Return a script's facts with the plans that were found at another batch size, scaled to the script's own."""
    failure = facts.undescribed
    assert failure is not None
    assert not isinstance(failure, Measured)
    if not smaller.knows_plans:
        again = smaller.undescribed
        assert again is not None
        assert not isinstance(again, Measured)
        cause = f"{failure.cause}; at batch size {smaller.batch_size} as well: {first_line(again.cause)}"
        return replace(facts, undescribed=replace(failure, cause=cause))
    if facts.batch_size is None or not smaller.batch_size:
        return facts
    scale = facts.batch_size / smaller.batch_size
    follows = "batch" in smaller.dimensions or bool(smaller.per_sample)
    dimensions = {name: facts.batch_size if name == "batch" else size for name, size in smaller.dimensions.items()}
    dimensions |= {name: math.ceil(share * facts.batch_size) for name, share in smaller.per_sample.items()}
    rows = tuple(
        replace(
            row,
            saving_bytes=_saving_at(row, dimensions if follows else {}, scale),
            recompute_time_s=scale * row.recompute_time_s,
        )
        for row in smaller.clusters
    )
    calibration = smaller.calibration
    if calibration is not None and not follows:
        reason = f"the graphs are known at batch size {smaller.batch_size} only"
        calibration = replace(calibration, error=None, reason=reason)
    graphs = tuple(
        replace(graph, times_ns=tuple(round(scale * each) for each in graph.times_ns)) for graph in smaller.graphs
    )
    note = (
        f"described at batch size {smaller.batch_size}, since at the script's own that failed: "
        f"{first_line(failure.cause)}"
    )
    return replace(
        described_later(facts, smaller),
        clusters=rows,
        dimensions=dimensions,
        split=facts.split,
        graphs=graphs if follows else (),
        traces=smaller.traces if follows else (),
        calibration=calibration,
        outside=tuple(replace(one, saved_bytes=round(scale * one.saved_bytes)) for one in smaller.outside),
        notes=tuple(dict.fromkeys([*facts.notes, *smaller.notes, note])),
    )


def described_later(facts: Facts, later: Facts) -> Facts:
    """Return a script's facts with the description of a later run at the same batch size."""
    split = facts.split
    if split is not None and later.split is not None:
        split = replace(split, activations=later.split.activations)
    notes = tuple(dict.fromkeys([*facts.notes, *later.notes]))
    described = {name: getattr(later, name) for name in _DESCRIBED}
    return replace(facts, **described, split=split, notes=notes, undescribed=later.undescribed)


def _saving_at(row: ClusterFacts, dimensions: dict[str, int], scale: float) -> int:
    """Return what a row saves at other dimensions; in proportion to the batch where its formula does not tell."""
    try:
        if dimensions:
            return Formula(row.saving_formula)(dimensions)
    except FormatError:
        pass
    return round(scale * row.saving_bytes)


def check_choices(engine: Engine, names: Iterable[str], facts: Facts) -> None:
    """Raise UsageError for the first choice that would change nothing in the script, or that the script rules out."""
    for name in names:
        reason = choices_of(engine)[name].refusal_for(facts)
        if reason:
            raise UsageError(f"{name!r} cannot be had: {reason}", hint="leave it out of --allow")


def check_batch_sizes(spec: StudySpec, facts: Facts) -> None:
    """Raise UsageError where the script's data has no step at any batch size of a range that was asked for."""
    own = facts.batch_size
    if spec.batch_sizes is None or own is None or not facts.batch_control.can_set:
        return
    low, largest, least = spec.batch_sizes[0], facts.steps.largest_batch(own), spec.least_steps
    if low > max(own, largest):
        raise UsageError(
            f"--batch-sizes: at batch size {own} a pass over the script's training data has {facts.steps.in_pass:g} "
            f"optimizer steps, too few for one at {low}",
            hint=f"give a range that begins at {math.floor(max(own, largest / least))} or below: a trial needs about "
            f"{least} optimizer steps",
        )


def check_global_batch(spec: StudySpec, facts: Facts) -> None:
    """Raise UsageError where a study has to keep the script's global batch and cannot set its accumulation."""
    control, own = facts.accumulation_control, facts.batch_size
    varies = facts.batch_control.can_set and spec.batch_sizes != (own, own)
    if spec.keep_global_batch and varies and own and not (control.can_set and control.steps):
        raise UsageError(
            f"--keep-global-batch: the script's accumulation cannot be set: {control.reason}",
            hint=f"leave --keep-global-batch out, or keep the batch size with --batch-sizes {own}:{own}",
        )
    if spec.keep_global_batch and spec.batch_sizes is not None and own and control.steps:
        low, high = spec.batch_sizes
        if all(own * control.steps % size for size in range(low, high + 1)):
            raise UsageError(
                f"--keep-global-batch: none of the batch sizes {low} to {high} divides {own * control.steps}, which is "
                "what a process of the script takes per optimizer step",
                hint="give a range with a divisor in it",
            )


def _hint(outcome: Outcome, target: Target) -> str:
    assert not isinstance(outcome, Measured)
    if isinstance(outcome, OutOfMemory) and target == "model":
        return "Begin with a smaller batch or smaller sizes (--shape)."
    if isinstance(outcome, OutOfMemory):
        return "Discovery needs one batch size that fits: pass the script a smaller one, larger ones are tried later."
    if isinstance(outcome, ScriptError) and "No module named 'torch'" in outcome.cause:
        return "Choose an interpreter that has torch with --python PATH."
    return outcome.advice


def check_limit(facts: Facts, limit_bytes: int, *, name: str = "limit") -> None:
    """Raise RunError if parameters, gradients and optimizer state, or a model's weights, pass the limit alone."""
    if facts.inference is not None:
        _check_model(facts.inference, limit_bytes, name)
        return
    fixed = 0 if facts.split is None else facts.split.state
    if fixed > limit_bytes:
        raise RunError(
            f"parameters, gradients and optimizer state alone need {format_bytes(fixed)}, "
            f"{format_bytes(fixed - limit_bytes)} more than the {name} of {format_bytes(limit_bytes)}",
            hint="recompute plans and batch size only change activations; give a higher --memory-limit "
            "or --target-memory",
        )


def _check_model(inference: InferenceFacts, limit_bytes: int, name: str) -> None:
    """Count the weights of the smallest model that was allowed, on top of the memory before the session."""
    converted = [one.bytes for one in inference.conversions if not one.refusal]
    weights = min([inference.weight_bytes, *converted])
    before = next((one.resident for one in inference.moments if one.phase == "before"), 0)
    if before + weights > limit_bytes:
        raise RunError(
            f"the model's weights alone need {format_bytes(weights)}, and Python with ONNX Runtime "
            f"{format_bytes(before)}: {format_bytes(before + weights - limit_bytes)} more than the {name} of "
            f"{format_bytes(limit_bytes)}",
            hint="give a higher --memory-limit or --target-memory, or allow smaller weights with --allow int8",
        )


MODEL_SUFFIX = ".onnx"


def check_script(path: Path, *, python: str) -> Path:
    """Return the script's absolute path; raise UsageError if it is not there, is no file, or does not parse."""
    mode = _mode(path)
    if mode is None:
        program = _program(path, python)
        if program is None:
            hint = _near(path, ".py")
            if not hint and Path(*path.name.split(".")).with_suffix(".py").exists():
                hint = f"did you mean -m {path.name}?"
            hint = hint or "give the path of a Python script, or -m and the name of a module"
            raise UsageError(f"there is no script {str(path)!r}", hint=hint)
        if path.name.startswith("python"):
            raise UsageError(f"{path.name!r} is an interpreter", hint=f"leave it out: scripts are run with {python}")
        _check_parses(program, f"the program {str(program)!r} is not in Python", hint="give the script that it starts")
        return program
    if stat.S_ISDIR(mode):
        example = path / next(iter(_files(path, ".py")), "train.py")
        raise UsageError(f"{str(path)!r} is a folder", hint=f"give the script inside it, as in {example}")
    if not stat.S_ISREG(mode):
        # Each run reads it anew: a pipe would be empty by then, or keep us waiting for somebody who writes into it.
        raise UsageError(f"{str(path)!r} is no plain file", hint="give a Python script that lies on a disk")
    if path.suffix == ".ipynb":
        notebook, script = (shell_word(as_operand(str(one))) for one in (path, path.with_suffix(".py")))
        raise UsageError(
            f"{str(path)!r} is a notebook, which Python does not run",
            hint=f"make a script of it: jupyter nbconvert --to script {notebook}; then autotune run {script}",
        )
    _check_parses(path, f"{str(path)!r} is not Python source", hint="give a Python script")
    resolved = path.resolve()
    if not is_unicode(str(resolved)):
        raise UsageError(
            f"the name of {str(resolved)!r} is not UTF-8, and torch can't compile what is in such a file",
            hint="rename the script, or the folder that it is in",
        )
    return resolved


def check_model(path: Path) -> Path:
    """Return the absolute path of an ONNX model; raise UsageError if it is not there, or no file."""
    mode = _mode(path)
    if mode is None:
        hint = _near(path, MODEL_SUFFIX) or "give the path of an ONNX model"
        raise UsageError(f"there is no model {str(path)!r}", hint=hint)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{str(path)!r} is no plain file", hint="give an ONNX model that lies on a disk")
    return path.resolve()


def check_module(name: str, *, python: str) -> Path:
    """Return the absolute path of what ``python -m name`` runs from this folder; raise UsageError if there is none."""
    if name.endswith(".py") or "/" in name:
        module = ".".join(Path(name.removesuffix(".py")).parts)
        raise UsageError(f"-m takes the name of a module, not a file: {name!r}", hint=f"did you mean -m {module}?")
    found = find_module(name, python)
    if found.missing:
        raise UsageError(
            f"{python} finds no module {found.missing!r} from this folder",
            hint=f"start autotune where `python -m {name}` works, mostly the folder above the package",
        )
    _check_parses(Path(found.file), f"module {name!r} is not Python source", hint="give one that is")
    return Path(found.file)


def _mode(path: Path) -> int | None:
    """Return the path's ``st_mode``, links followed; None if nothing is there."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        hint = "check its name and permissions"
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", hint=hint) from None


def _check_parses(path: Path, refusal: str, *, hint: str) -> None:
    try:
        with io.open_code(str(path)) as file:
            compile(file.read(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", hint="check its permissions") from None
    except SyntaxError as error:
        if path.suffix != ".py" and error.lineno in (None, 0, 1):
            raise UsageError(refusal, hint=hint) from None
        where = f"{path}, line {error.lineno}"
        line = (error.text or "").strip()
        raise UsageError(f"{where}: {error.msg}: {line}", hint="mend the script; `python` would say the same") from None
    except ValueError as error:
        raise UsageError(f"{refusal}: {error}", hint=hint) from None


def _program(name: Path, python: str) -> Path | None:
    """Return a program of the interpreter's environment, or one that a shell would find."""
    if name.parent != Path() or not name.name:
        return None
    beside = Path(python).with_name(name.name)
    found = str(beside) if beside.is_file() else shutil.which(name.name)
    # Not resolved: what is installed may be a link, and lies in its environment all the same.
    return None if found is None else Path(os.path.abspath(found))  # noqa: PTH100


def _near(path: Path, suffix: str) -> str:
    """Return a hint that names the file beside it with the nearest name; empty without one."""
    near = difflib.get_close_matches(path.name, _files(path.parent, suffix), n=1)
    return f"did you mean {path.parent / near[0]}?" if near else ""


def _files(folder: Path, suffix: str) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.suffix == suffix)
    except OSError:
        return []
