"""The command line: each command parses, calls one function, renders and exits.

Progress and tables go to standard error, results to standard output. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from ..errors import AutotuneError
from . import discover, doctor, export, launch, resume, run, show, studies

__all__ = ["app", "main"]

app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Find out how a PyTorch training script should run: which activations to recompute and which batch size, "
        "for the most samples per second within your memory.\n\n"
        "Start with: autotune run train.py\n\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
    ),
)
for module in (run, resume, discover, studies, show, export, launch, doctor):
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
        app()
    except AutotuneError as error:
        sys.stderr.write(f"autotune: {error}\n")
        if error.hint:
            sys.stderr.write(f"  next: {error.hint}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("autotune: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does; that is no failure.
        sys.stderr.close()
        sys.exit(0)
