"""`autotune config`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..errors import UsageError, did_you_mean
from .command import make_app, print_json
from .options import JsonOption


def config(
    command: Annotated[
        str | None, typer.Argument(metavar="[COMMAND]", help="List all options of this command, with their defaults.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the settings in force, and their sources.

    Settings come from [tool.autotune] of the nearest pyproject.toml, or from an autotune.toml beside it. Options of the
    command line have precedence.
    """
    from ..report.tables import Table
    from . import COMMANDS, load_command
    from .settings import as_shown, project_settings, settable
    from .tables import make_console, print_table

    if command is not None and command not in COMMANDS:
        raise UsageError(f"there is no command {command!r}", hint=did_you_mean(command, COMMANDS) or "autotune --help")
    settings = project_settings(COMMANDS, load_command)
    rows: list[dict[str, Any]] = []
    for name in COMMANDS if command is None else (command,):
        settled = settings.of_command(name, load_command(name))
        for option in settable(load_command(name)).values():
            if option.name in settled:
                value, origin = settled[option.name], settings.title
            elif command is not None:
                value, origin = option.default, "default"
            else:
                continue
            shown = as_shown(value)
            rows.append({"command": name, "option": option.opts[-1], "value": shown, "from": origin})
    if json:
        print_json({"file": None if settings.file is None else str(settings.file), "options": rows})
        return
    if settings.file is None:
        typer.echo("No file has settings: no autotune.toml, nor [tool.autotune] in a pyproject.toml, here or above.")
    elif command is None and not rows:
        typer.echo(f"{settings.title} settles nothing.")
    if rows:
        cells = ((one["command"], one["option"], _shown(one["value"]), one["from"]) for one in rows)
        print_table(make_console(stderr=False), Table(("command", "option", "value", "from"), tuple(cells)))


def _shown(value: Any) -> str:
    if value is None or value is False:
        return "-"
    return "on" if value is True else str(value)


app = make_app(config)
