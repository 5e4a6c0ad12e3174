"""Construction of commands from functions, and the exit codes and JSON output that all commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."


class _Command(TyperCommand):
    """A command whose usage line reads as people write it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        del ctx
        arguments = (one for one in self.params if isinstance(one, TyperArgument))
        return ["[OPTIONS]", *(one.metavar or str(one.name).upper() for one in arguments)]


def make_app(function: Callable[..., None], *, epilog: str = EXIT_CODES) -> typer.Typer:
    """Make a command of a function: its name is the command's, its docstring the help."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    add_command(app, function, epilog=epilog)
    return app


def add_command(
    app: typer.Typer, function: Callable[..., None], *, short: str | None = None, epilog: str = EXIT_CODES
) -> None:
    """Add a command to a group; ``short`` is its line in the list of commands."""
    app.command(function.__name__, cls=_Command, short_help=short, epilog=epilog)(function)


def print_json(document: Any) -> None:
    """Print a document on standard output."""
    import json

    from ..records.codec import encodable

    typer.echo(encodable(json.dumps(document, indent=2, ensure_ascii=False)))
