"""The command line: each command parses, calls one function, renders and exits.

Progress and tables go to standard error, results to standard output. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import sys
import traceback
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperGroup

from ..errors import AutotuneError, UsageError, did_you_mean
from .command import EXIT_CODES, SETTINGS_TITLE, print_json_error, tell_origin
from .settings import project_settings

COMMANDS = {
    "run": "Find the fastest setting that fits your memory.",
    "resume": "Continue a study from its database.",
    "discover": "List what a script can recompute, and what that saves.",
    "fit": "Predict which batch sizes fit, and with which plans.",
    "explain": "Say where a script's GPU memory goes, by module and by line.",
    "audit": "Measure what a script's own checkpointing saves and costs.",
    "plans": "List the plans in an ONNX Runtime training log.",
    "studies": "List the studies of a database.",
    "show": "Show a study: its answer, plan table and trials.",
    "export": "Write a study's bundle again.",
    "dashboard": "Show studies in a browser, also while they run.",
    "launch": "Run a script with a bundle applied.",
    "verify": "Check that a bundle does not change what a script computes.",
    "gate": "Check whether a bundle has become slower or needs more memory.",
    "config": "Show the settings in force, and their sources.",
    "clean": "Remove compile caches of studies in this folder.",
    "doctor": "Check GPU, torch and memory limits of this machine.",
    "engines": "List the engines, and what they lack here.",
}
"""Each a module of this package, whose ``app`` is the command, with its line in the help; in the order of the help."""

# Click's error for a command line that it cannot read; typer has click in itself, or beside itself, by its version.
_MISTYPED: type[Exception] = cast("type[Exception]", typer.BadParameter.__bases__[0])

# Standard output, or error, goes to a file that cannot take more.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def load_command(name: str) -> Any:
    """The command of that name, with its parameters."""
    return typer.main.get_command(import_module(f"{__name__}.{name}").app)


class _Commands(TyperGroup):
    """Loads commands as they are used, and handles interruptions, of which typer's versions make different things."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _MISTYPED as error:
            raise _as_ours(error) from None
        except KeyboardInterrupt:
            sys.stderr.write("autotune: interrupted\n")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of our output went away, as `head` does; that is no failure. Python flushes once more at its
            # exit, and must find something that takes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _as_ours(error: Any) -> UsageError:
    """Return what is wrong with a command line in two lines, as all errors are told."""
    path = "autotune" if error.ctx is None else error.ctx.command_path
    hint = f"{path} --help"
    option = getattr(error, "option_name", "")
    if option:
        near = did_you_mean(option, error.possibilities or ()) or hint
        takes_script = error.ctx is not None and any(one.name == "arguments" for one in error.ctx.command.params)
        behind = f"; your script's own options stand behind --, as in -- {option}" if takes_script else ""
        return UsageError(f"{path} has no option {option}", hint=f"{near}{behind}")
    cause = error.__cause__
    if isinstance(cause, UsageError):  # of a function that reads an option's text
        ours = UsageError(f"{error.param.opts[-1]}: {cause}", hint=cause.hint or hint)
    else:
        ours = UsageError(error.format_message().rstrip("."), hint=hint)
    if error.ctx is not None:
        tell_origin(ours, error.ctx)
    return ours


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


@app.callback(invoke_without_command=True)
def _version(
    ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    if version:
        from .. import __version__

        print(__version__)
        raise typer.Exit
    name = ctx.invoked_subcommand
    if name is None:
        print(ctx.get_help())
        return
    settings = project_settings(COMMANDS, load_command)
    if settings.file is not None:
        ctx.meta[SETTINGS_TITLE] = settings.title
        ctx.default_map = {name: settings.of_command(name, load_command(name))}


def main() -> None:
    """Run the command line; errors become one line for the cause and one for the next step."""
    for stream in (sys.stdout, sys.stderr):
        # A name may have bytes that are no characters: what was measured is not to be lost over showing it.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="autotune")
    except AutotuneError as error:
        sys.stderr.write(_told(error))
        if "--json" in itertools.takewhile(lambda one: one != "--", sys.argv):
            print_json_error(error)
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
    """Return what to read first, then the cause, then the next step."""
    from ..records.printable import printable

    lines = [*(error.detail.split("\n") if error.detail else []), *([""] if error.detail else [])]
    lines += [f"autotune: {error}", *([f"  next: {error.hint}"] if error.hint else [])]
    return "".join(f"{printable(line.expandtabs())}\n" for line in lines)
