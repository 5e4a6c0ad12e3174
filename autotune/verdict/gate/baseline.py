"""Baselines of a setting: its earlier figures, in its bundle or in a file of its own that is kept in git."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from pathlib import Path

from ... import __version__
from ...errors import FormatError, RunError, UsageError
from ...records.codec import dumps, loads
from ...records.environment import Environment, device_differences
from ...records.gate import GATE_VERSION, Gate, GateBaseline, Reference
from ...records.stack import Stack
from ...records.study import StudySpec
from ...records.words import joined

_AGAIN = "`autotune gate BUNDLE SCRIPT --update-baseline --baseline FILE` writes one"
LEAST_REPETITIONS = 8
"""So many repetitions a baseline has: by fewer, later gates cannot tell a loss as large as is allowed from none
(``tests/benchmarks/gate.py``)."""


def baseline_of_bundle(stack: Stack, configuration: str) -> GateBaseline | None:
    """Return what the study measured of the setting that it exported; None if that is not in the bundle."""
    if stack.reading is None:
        return None
    return GateBaseline(
        version=GATE_VERSION,
        autotune=stack.autotune,
        taken_on="",
        configuration=configuration,
        script_name=stack.script_name,
        script_sha256=stack.script_sha256,
        environment=stack.environment,
        setting=stack.reading,
        script=stack.script_reading,
        arguments=stack.arguments,
        look_ahead=stack.look_ahead,
    )


def read_baseline(path: Path, configuration: str) -> GateBaseline:
    """Read a file that ``write_baseline`` wrote; UsageError if it is none, or of another setting."""
    try:
        baseline: GateBaseline = loads(GateBaseline, path.read_bytes(), where=str(path))
    except OSError as error:
        raise UsageError(f"the baseline {str(path)!r} cannot be read: {error.strerror}", hint=_AGAIN) from None
    except FormatError as error:
        raise UsageError(f"{str(path)!r} is no baseline of a gate: {error}", hint=_AGAIN) from None
    if baseline.version > GATE_VERSION:
        raise UsageError(
            f"the baseline {str(path)!r} is of a newer version ({baseline.version}) than this autotune reads "
            f"({GATE_VERSION})",
            hint="update autotune, or take a new baseline",
        )
    if baseline.configuration != configuration:
        raise UsageError(
            f"the baseline {str(path)!r} is of another setting than the bundle's",
            hint="name another --baseline FILE for this bundle, or remove that one and take it anew",
        )
    readings = [one for one in (baseline.setting, baseline.script) if one is not None]
    if not all(one.is_usable for one in readings) or len({len(one.samples_per_s) for one in readings}) > 1:
        raise UsageError(
            f"the baseline {str(path)!r} has repetitions without figures, or not as many of both", hint=_AGAIN
        )
    return baseline


def why_no_baseline(found: Gate) -> str:
    """Return why later gates may not be held against what this one measured, in a clause; empty if they may."""
    if found.answer not in ("pass", "improvement") or found.repetitions < LEAST_REPETITIONS:
        return f"it takes {LEAST_REPETITIONS} repetitions without a regression"
    if open_ones := joined([one.name for one in found.gauges if one.found == "open"]):
        return f"these repetitions do not decide about {open_ones}; use more of them, or a quieter machine"
    if found.reference == "stored" and any(one.name == "speed" and one.found == "better" for one in found.gauges):
        return "the machine may just be faster today. `--against script`, or another version's path, shows it"
    return ""


def write_baseline(path: Path, baseline: GateBaseline) -> None:
    """Write it whole or not at all; RunError if it cannot be written."""
    draft = path.with_name(f".{path.name[:64]}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(dumps(baseline, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise RunError(
            f"the baseline could not be written to {str(path)!r}: {error.strerror}",
            hint="make room, or name another --baseline FILE",
        ) from error


def new_baseline(gate: Gate, configuration: str, spec: StudySpec) -> GateBaseline:
    """Return what this sitting measured, as the baseline of later ones."""
    assert gate.reading is not None
    assert gate.environment is not None
    return GateBaseline(
        version=GATE_VERSION,
        autotune=__version__,
        taken_on=dt.datetime.now(dt.UTC).date().isoformat(),
        configuration=configuration,
        script_name=Path(spec.script).name,
        script_sha256=spec.script_sha256(),
        environment=gate.environment,
        setting=gate.reading,
        script=gate.script_reading,
        arguments=spec.arguments,
        look_ahead=spec.look_ahead,
    )


def reference_for(baseline: GateBaseline, environment: Environment) -> Reference | None:
    """Return what to compare with here: what was stored on such a device, else the script as it stands.

    None where the baseline has no repetitions of the script either.
    """
    if is_same_device(baseline, environment):
        return "stored"
    return None if baseline.script is None else "script"


def is_same_device(baseline: GateBaseline, environment: Environment) -> bool:
    """Tell whether the baseline was taken on a device like this one, so that the figures of both can be compared."""
    return not device_differences(baseline.environment, environment)


def differences(
    before: GateBaseline, environment: Environment, script_sha256: str, arguments: tuple[str, ...]
) -> tuple[str, ...]:
    """Return what is not as it was when the baseline was taken, in words; what is likeliest to matter first."""
    software = (
        _changed("torch", before.environment.torch, environment.torch),
        _changed("CUDA", before.environment.cuda, environment.cuda),
        _changed("driver", before.environment.driver, environment.driver),
        _changed("Python", before.environment.python, environment.python),
    )
    script = "the script" if script_sha256 != before.script_sha256 else ""
    given = "the script's arguments" if arguments != before.arguments else ""
    devices = [f"{what} {there} -> {here}" for what, there, here in device_differences(before.environment, environment)]
    return tuple(filter(None, (*devices, given, *software, script)))


def _changed(name: str, before: str | None, now: str | None) -> str:
    return "" if before == now else f"{name} {before or 'none'} -> {now or 'none'}"
