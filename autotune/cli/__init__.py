"""The command line: each command parses, calls one function, renders and exits.

Progress and tables go to standard error, results to standard output. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import traceback
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import AutotuneError, UsageError, did_you_mean
from .command import EXIT_CODES
from .settings import as_shown, project_settings

COMMANDS = {
    "run": "Find the fastest setting that fits your memory.",
    "resume": "Go on with a study from its database alone.",
    "discover": "List what a script could recompute, and what that saves.",
    "fit": "Tell which batch sizes should fit, and with which plans.",
    "audit": "Tell what a script's own checkpointing saves and costs.",
    "plans": "List the plans in a training log of ONNX Runtime.",
    "studies": "List the studies of a database.",
    "show": "Show a study: its answer, plan table and trials.",
    "export": "Write a study's bundle again.",
    "dashboard": "Look at studies in a browser, while they run too.",
    "launch": "Run a script to its end with a bundle applied.",
    "verify": "Prove that a bundle trains a script as it is.",
    "gate": "Tell whether a bundle has become slower or needs more memory.",
    "config": "Say which settings are in force, and where they are from.",
    "doctor": "Say what was found here of GPU, torch and memory limits.",
    "engines": "List the engines: what is usable here, and what is missing.",
}
"""Each a module of this package, whose ``app`` is the command; in the order of the help."""

# Click's error for a command line that it cannot read; typer has click in itself, or beside itself, by its version.
_MISTYPED: type[Exception] = cast("type[Exception]", typer.BadParameter.__bases__[0])

# Where a context keeps what a file of settings has given it.
_USED = f"{__name__}.used"

# Standard output, or error, goes to a file that cannot take more.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def load_command(name: str) -> Any:
    """The command of that name, with its parameters."""
    return typer.main.get_command(import_module(f"{__name__}.{name}").app)


class _Unloaded(TyperCommand):
    """Stands for a command whose module nobody needs before that command is used: its line in the help is known."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        name = str(self.name)
        command = load_command(name)
        if extra.get("resilient_parsing"):  # somebody asks what there is, and runs nothing
            return command.make_context(info_name, args, parent, **extra)
        settings = project_settings(COMMANDS, load_command)
        settled = settings.of_command(name, command)
        own = args[: args.index("--")] if "--" in args else args
        typed = {one.partition("=")[0] for one in own}
        used = {one.flag: one.value for one in settled.values() if one.flag not in typed}
        if parent is not None and used:
            parent.meta[_USED] = settings.title, used
        is_shown = bool(typed & {"--help", "-h"})  # as defaults, and nothing is done with them
        values = {name: as_shown(one.value) if is_shown else one.value for name, one in settled.items()}
        return command.make_context(info_name, args, parent, default_map=values, **extra)


class _Commands(TyperGroup):
    """Interruptions and closed pipes are handled here, because typer's versions differ in what they make of them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            except _MISTYPED as error:
                raise _as_ours(error) from None
        except UsageError as error:
            _tell_origin(error, ctx)
            raise
        except KeyboardInterrupt:
            sys.stderr.write("autotune: interrupted\n")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of our output went away, as `head` does; that is no failure. Python flushes once more at its
            # exit, and must find something that takes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _tell_origin(error: UsageError, context: Any) -> None:
    """Say of an option that is wrong, and that nobody has typed, which file it is from."""
    title, used = context.meta.get(_USED, ("", ()))
    if any(re.search(rf"{flag}(?![\w-])", str(error)) for flag in used):
        error.args = (f"{error} (set in {title})",)


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
    return UsageError(error.format_message().rstrip("."), hint=hint)


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
for name, short_help in COMMANDS.items():
    app.command(name, cls=_Unloaded, short_help=short_help)(lambda: None)


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
    for stream in (sys.stdout, sys.stderr):
        # A name may have bytes that are no characters: what was measured is not to be lost over showing it.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
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
    """Return what to read first, then the cause, then the next step."""
    from ..records.printable import printable

    lines = [*(error.detail.split("\n") if error.detail else []), *([""] if error.detail else [])]
    lines += [f"autotune: {error}", *([f"  next: {error.hint}"] if error.hint else [])]
    return "".join(f"{printable(line.expandtabs())}\n" for line in lines)
