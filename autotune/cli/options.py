"""Options that several commands share, what their values mean, and how commands are added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

__all__ = [
    "DEFAULT_STORAGE",
    "EXIT_CODES",
    "ArgumentsArgument",
    "BatchSizeOption",
    "BatchSizesOption",
    "DeviceOption",
    "EngineOption",
    "JsonOption",
    "MemoryLimitOption",
    "OutputOption",
    "PythonOption",
    "ScratchOption",
    "ScriptArgument",
    "StartTimeoutOption",
    "StorageOption",
    "StudyArgument",
    "TrialTimeoutOption",
    "add_command",
    "print_json",
]

DEFAULT_STORAGE = ".autotune/studies.db"
EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."

ScriptArgument = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script, unmodified.")]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name; `autotune studies` lists them.")]
ArgumentsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGUMENTS]", help="The script's own arguments; {batch_size:32} in them lets autotune set it."
    ),
]
StorageOption = Annotated[
    str,
    typer.Option(
        "--storage", metavar="URL", help="Database of studies: a file, or an SQLAlchemy URL such as postgresql://…"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="Where the bundle goes. Default: autotune-STUDY.")
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python", metavar="PATH", help="The interpreter that runs the script. Default: this one, or the engine's own."
    ),
]
BatchSizeOption = Annotated[
    int | None,
    typer.Option(
        "--batch-size", metavar="N", min=1, help="The script's own batch size, where its arguments hold {batch_size}."
    ),
]
BatchSizesOption = Annotated[
    str | None,
    typer.Option(
        "--batch-sizes",
        metavar="LOW:HIGH",
        help="Batch sizes to search. Default: half to 16 times the script's own; smaller ones for less memory.",
    ),
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", metavar="SIZE", help="Stay under this much memory, as in 24GiB. Default: what the device has."
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option("--devices", metavar="0", help="The GPU to run on. Default: as the script.")
]
StartTimeoutOption = Annotated[
    str,
    typer.Option(
        "--start-timeout", metavar="TIME", help="Give the script this long until its first training step ends."
    ),
]
TrialTimeoutOption = Annotated[
    str, typer.Option("--trial-timeout", metavar="TIME", help="Give the measurement this long from then on.")
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="aot|inductor|ortmodule|eager",
        help="What applies plans: 'aot' runs the model as it is, 'inductor' compiles it (each setting takes a while to "
        "start), 'ortmodule' runs it in ONNX Runtime (see `autotune engines`); 'eager' leaves the script alone: batch "
        "sizes only.",
    ),
]
ScratchOption = Annotated[
    bool,
    typer.Option(
        "--scratch",
        help="Run the script in the folder .autotune/scratch: a trial runs it for real, the files it writes included.",
    ),
]


class _Command(TyperCommand):
    """A command whose usage line reads as people write it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        del ctx
        arguments = (one for one in self.params if isinstance(one, TyperArgument))
        return ["[OPTIONS]", *(one.metavar or str(one.name).upper() for one in arguments)]


def add_command(
    app: typer.Typer, name: str, function: Callable[..., None], *, short: str, epilog: str = EXIT_CODES
) -> None:
    """Add a command; its docstring is its help, ``short`` its line in the list of commands."""
    app.command(name, cls=_Command, short_help=short, epilog=epilog)(function)


def print_json(document: Any) -> None:
    """Print a document on standard output."""
    import json

    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
