"""`autotune doctor`"""

from __future__ import annotations

from typing import Annotated

import typer

from .options import JsonOption, add_command

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "doctor", doctor, short="Say what was found here of GPU, torch and memory limits.")


def doctor(
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter that will run the script. Default: this one.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say what was found here of GPU, NVML, torch, compiler and memory limits, and what it means."""
    from ..launch.checkup import examine
    from .options import print_json
    from .running import interpreter
    from .tables import make_console, print_rows

    findings = examine(interpreter(python))
    if json:
        print_json([{"name": one.name, "found": one.found, "means": one.means, "good": one.good} for one in findings])
    else:
        rows = [(f"{'ok' if one.good else '--'} {one.name}", f"{one.found}. {one.means}") for one in findings]
        print_rows(make_console(stderr=False), rows)
    if not all(one.good for one in findings if one.required):
        raise typer.Exit(1)
