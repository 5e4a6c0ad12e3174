"""Options that several commands share, and how an option's text becomes a value.

A parameter that is named as a field of ``StudySpec``, or of its ``Objective``, sets that field (``spec.py``); its
default is the field's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from ..errors import UsageError, did_you_mean
from ..records.cards import read_cards
from ..records.engines import ENGINES, Engine, EngineProperties
from ..records.study import StudySpec
from ..records.units import format_duration, format_share, parse_bytes, parse_duration, parse_range, parse_share

DEFAULT_STORAGE = ".autotune/studies.db"


def as_typed(seconds: float) -> Any:
    """A default as one would type it: ``--help`` shows that, and it is read as what is typed."""
    return format_duration(seconds)


def _by_engine(field: str) -> str:
    """A default that is not the same for every engine, in words."""
    usual = getattr(EngineProperties, field)
    others = {name: getattr(engine, field) for name, engine in ENGINES.items() if getattr(engine, field) != usual}
    return ", ".join([format_duration(usual), *(f"{format_duration(s)} under {name}" for name, s in others.items())])


def parsed_by(parse: Callable[[str], Any], name: str, **settings: Any) -> Any:
    """Make an option whose text ``parse`` turns into its value; a UsageError of ``parse`` gets the option's name."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error

    return typer.Option(name, parser=read, **{"metavar": _METAVARS.get(parse), **settings})


def chosen_from(choices: Any, name: str, **settings: Any) -> Any:
    """Make an option that takes one of the names, or of the values of a ``Literal``."""
    names = choices if isinstance(choices, tuple) else get_args(choices)

    def parse(text: str) -> str:
        if text not in names:
            raise UsageError(f"not one of {', '.join(names)}: {text!r}", hint=did_you_mean(text, names))
        return text

    return parsed_by(parse, name, metavar="|".join(names), **settings)


def parse_devices(text: str) -> tuple[int, ...]:
    """Read indices of devices, ``0,1``, each once."""
    try:
        indices = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"not a list of devices: {text!r}", hint="indices with commas, as in --devices 0,1") from None
    if len(set(indices)) != len(indices):
        raise UsageError(f"a device is named twice: {text!r}", hint="name each once, as in --devices 0,1")
    return indices


def parse_python(text: str) -> str:
    """Find the interpreter that was named."""
    from ..machine.interpreter import find_interpreter

    return find_interpreter(text)


_METAVARS: dict[Callable[[str], Any], str] = {
    parse_bytes: "SIZE",
    parse_duration: "TIME",
    parse_python: "PATH",
    parse_range: "LOW:HIGH",
    parse_share: "SHARE",
}

_SCRIPT = typer.Argument(
    metavar="SCRIPT",
    help="The unmodified training script; or torchrun, accelerate or another Python program that starts it; or an "
    "ONNX model.",
)
ScriptArgument = Annotated[Path, _SCRIPT]
LaterScriptArgument = Annotated[str | None, _SCRIPT]  # behind an argument that may be left out
ModuleOption = Annotated[
    bool, typer.Option("-m", "--module", help="SCRIPT is the name of a module, as after `python -m`.")
]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name; `autotune studies` lists them.")]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `autotune run` wrote.")]
ArgumentsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGUMENTS]",
        help="The script's own arguments. autotune sets {batch_size:32} and {accumulation:4} in them; the numbers are "
        "the script's own.",
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="Size of a dimension of an ONNX model: seq=128, seq=16-512, or seq=128:0.8,512:0.2. May be repeated.",
    ),
]
InputsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Inputs of an ONNX model, as numpy.savez writes them.")
]
MaxErrorOption = Annotated[
    float | None,
    parsed_by(
        parse_share,
        "--max-error",
        help="If --allow converts an ONNX model: the largest error of an output, as a share of its largest value. "
        f"Default: {format_share(StudySpec.max_error)}.",
    ),
]
StorageOption = Annotated[
    str, typer.Option(metavar="URL", help="Database of studies: a file, or an SQLAlchemy URL such as postgresql://…")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder to write the bundle to. Default: autotune-STUDY.")
]
PythonOption = Annotated[
    str | None,
    parsed_by(
        parse_python, "--python", help="The interpreter that runs the script. Default: this one, or the engine's own."
    ),
]
CheckedPythonOption = Annotated[
    str | None, parsed_by(parse_python, "--python", help="The interpreter that will run the script. Default: this one.")
]
OwnBatchSizeOption = Annotated[
    int | None,
    typer.Option(
        "--batch-size", metavar="N", min=1, help="The script's own batch size, if its arguments contain {batch_size}."
    ),
]
BatchSizesOption = Annotated[
    Any,  # typer would have two values for a pair
    parsed_by(
        parse_range,
        "--batch-sizes",
        help="Batch sizes to search. Default: half to 16 times the script's own; smaller ones if less memory is asked "
        "for.",
    ),
]
MemoryLimitOption = Annotated[
    int | None,
    parsed_by(
        parse_bytes, "--memory-limit", help="Use at most this much memory, as in 24GiB. Default: all of the device."
    ),
]
CardsOption = Annotated[
    Any,
    parsed_by(
        read_cards,
        "--for",
        metavar="CARD,...",
        help="GPUs that this machine need not have, as in a100-40g,8xh100-80g or 48GiB: tell which batch sizes fit "
        "them, by sizes alone.",
    ),
]
CardOption = Annotated[
    Any,
    parsed_by(
        read_cards,
        "--for",
        metavar="CARD",
        help="The GPU to take it for, which this machine need not have, as in a100-40g or 8xh100-80g. "
        "Default: this machine's, or a100-80g.",
    ),
]
DeviceOption = Annotated[
    Any,
    parsed_by(
        parse_devices,
        "--devices",
        metavar="0,1",
        help="The GPUs to run on. Default: the script's choice.",
    ),
]
StartTimeoutOption = Annotated[
    float | None,
    parsed_by(
        parse_duration,
        "--start-timeout",
        help=f"Time limit for a run until its first training step ends. Default: {_by_engine('start_timeout_s')}.",
    ),
]
TrialTimeoutOption = Annotated[
    float | None,
    parsed_by(
        parse_duration,
        "--trial-timeout",
        help=f"Time limit for each measurement after that. Default: {_by_engine('trial_timeout_s')}.",
    ),
]
EngineOption = Annotated[
    Engine,
    chosen_from(
        Engine,
        "--engine",
        help="How the model runs and plans are applied: 'aot' with PyTorch's eager kernels, 'inductor' compiled (each "
        "setting starts slowly), 'ortmodule' in ONNX Runtime (see `autotune engines`), 'eager' without plans. An ONNX "
        "model always runs under 'onnxruntime'.",
    ),
]
StudyLookAheadOption = Annotated[
    int,
    typer.Option(
        "--look-ahead",
        metavar="N",
        min=0,
        help="Read up to N batches of the training loader first. Measure with the largest of them, and with a few that "
        "stand for the epoch. After a minute, no other batch is begun.",
    ),
]

LookAheadOption = Annotated[
    int,
    typer.Option(
        "--look-ahead",
        metavar="N",
        min=0,
        help="Without the GPU: read up to N batches of the training loader, and answer for all of them. After a "
        "minute, no other batch is begun.",
    ),
]
ScratchOption = Annotated[
    bool,
    typer.Option("--scratch", help="Run the script in the folder .autotune/scratch, and keep there what it writes."),
]
LeaveFilesOption = Annotated[
    bool,
    typer.Option(
        "--leave-files", help="Keep changes that the script's runs make to files. Default: undo them after each run."
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run trials on a Ray cluster: ray://HOST:10001, or HOST:PORT on one of its nodes; 'ray' starts a cluster "
        "of this machine. --devices says how many GPUs trials have at once, and Ray chooses them.",
    ),
]
ClusterFilesOption = Annotated[
    Literal["send", "shared"] | None,
    chosen_from(
        Literal["send", "shared"],
        "--cluster-files",
        help="'send' this folder to the nodes (at most 100 MiB), or use it as 'shared', under the same path on all "
        "nodes. Default: send; shared with --cluster ray.",
    ),
]
ClusterResourceOption = Annotated[
    str, typer.Option(metavar="NAME", help="Use only nodes with this Ray resource, as in accelerator_type:H100.")
]
