"""Construction of commands from functions, and the exit codes and JSON output that all commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand

from ..errors import AutotuneError, UsageError
from .settings import as_shown

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
SETTINGS_TITLE = f"{__name__}.settings"
"""The key of a context under which stands the file that has the project's settings."""


class _Command(TyperCommand):
    """A command whose usage line reads as people write it, and that knows a project's settings as its defaults."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        del ctx
        arguments = (one for one in self.params if isinstance(one, TyperArgument))
        return ["[OPTIONS]", *(one.metavar or str(one.name).upper() for one in arguments)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        ctx.default_map = {name: as_shown(value) for name, value in (ctx.default_map or {}).items()}
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            tell_origin(error, ctx)
            raise


def tell_origin(error: UsageError, context: Any) -> None:
    """Say of an option that is wrong, and that comes from the project's settings, which file has it."""
    sources = ((one.opts[-1], context.get_parameter_source(one.name)) for one in context.command.params)
    settled = (flag for flag, source in sources if source is not None and source.name == "DEFAULT_MAP")
    if any(re.search(rf"{flag}(?![\w-])", str(error)) for flag in settled):
        error.args = (f"{error} (set in {context.meta[SETTINGS_TITLE]})",)


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


# Whether standard output has a document already, which is to be the only one.
_has_document = False


def print_json(document: Any) -> None:
    """Print a document on standard output."""
    global _has_document  # noqa: PLW0603
    import json

    from ..records.codec import encodable

    _has_document = True
    typer.echo(encodable(json.dumps(document, indent=2, ensure_ascii=False)))


def print_json_error(error: AutotuneError) -> None:
    """Print an error on standard output, unless there is a document already."""
    if not _has_document:
        told = {"message": str(error), "hint": error.hint, "detail": error.detail}
        print_json({"error": told, "exit_code": error.exit_code})
