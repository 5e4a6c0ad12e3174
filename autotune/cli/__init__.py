"""The command line: each command parses, calls one function, renders and exits.

Progress and tables go to standard error, results to standard output. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import AutotuneError
from . import discover, doctor, engines, export, fit, launch, plans, resume, run, show, studies, verify
from .options import EXIT_CODES

__all__ = ["app", "main"]

# Standard output, or error, goes to a file that cannot take more.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


class _Commands(TyperGroup):
    """Interruptions and closed pipes are handled here, because typer's versions differ in what they make of them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write("autotune: interrupted\n")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of our output went away, as `head` does; that is no failure. Python flushes once more at its
            # exit, and must find something that takes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


app = typer.Typer(
    name="autotune",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help=(
        "Find out how a PyTorch training script should run: which activations to recompute and which batch size, "
        "for the most samples per second within your memory.\n\n"
        "Start with: autotune run train.py"
    ),
    epilog=EXIT_CODES,
)
for module in (run, resume, discover, fit, plans, studies, show, export, launch, verify, engines, doctor):
    module.register(app)


@app.callback(invoke_without_command=True)
def _version(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from .. import __version__

        print(__version__)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def main() -> None:
    """Run the command line; errors become one line for the cause and one for the next step."""
    try:
        app(prog_name="autotune")
    except AutotuneError as error:
        sys.stderr.write(_told(error))
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            sys.stderr.write(f"autotune: cannot write the output: {error.strerror}\n  next: make room for it\n")
            sys.exit(1)
        traceback.print_exc()
        sys.stderr.write(
            "autotune: the error above is a fault of autotune's own; please report it with these lines.\n"
            "  next: finished trials are stored, `autotune studies` lists the studies and `autotune resume` goes on\n"
        )
        sys.exit(1)


def _told(error: AutotuneError) -> str:
    """What to read first, then the cause, then the next step."""
    lines = [*([error.detail, ""] if error.detail else []), f"autotune: {error}"]
    lines += [f"  next: {error.hint}"] if error.hint else []
    return "\n".join(lines) + "\n"
