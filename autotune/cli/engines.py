"""`autotune engines`"""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from ..machine.environments import OWN_ENGINE
from ..records.codec import to_json
from ..records.units import format_duration
from .command import EXIT_CODES, add_command, print_json
from .options import CheckedPythonOption, JsonOption, parse_python, parsed_by

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
    rich_markup_mode=None,
    epilog=EXIT_CODES,
)


@app.callback()
def engines(context: typer.Context, python: CheckedPythonOption = None, json: JsonOption = False) -> None:
    """List the engines, and what they lack here."""
    if context.invoked_subcommand is not None:
        return
    from ..machine.engines import list_engines
    from ..machine.interpreter import find_interpreter
    from .tables import make_console, print_rows

    states = list_engines(find_interpreter(python))
    if json:
        print_json([to_json(one) for one in states])
        return
    rows = []
    for one in states:
        next_step = f" Next: {one.next_step}" if one.next_step else ""
        rows.append((f"{'ok' if one.usable else '--'} {one.name}", f"{one.does}. {one.found}.{next_step}"))
        rows += [("", f"--allow {name}: {does}") for name, does in one.choices.items()]
        rows += [("", f"{name}: {does}") for name, does in one.settings.items()]
        rows += [("", f"no {name}: {reason}") for name, reason in one.refused.items()]
    print_rows(make_console(stderr=False), rows)


def install(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help=f"The engine: {OWN_ENGINE}.")],
    python: Annotated[
        str | None,
        parsed_by(
            parse_python,
            "--python",
            help="The Python to use, of the version that the engine needs. Default: one on the PATH.",
        ),
    ] = None,
) -> None:
    """Make the Python environment of an engine that needs its own, in the cache folder.

    The command downloads some 350 MB and compiles for a minute. If interrupted, run it again. AUTOTUNE_CACHE names
    another cache folder.
    """
    import time

    from ..machine.host import check_platform
    from ..machine.install import install_engine
    from .tables import make_console

    check_platform()
    if engine != OWN_ENGINE:
        raise UsageError(
            f"there is nothing to install for engine {engine!r}",
            hint=f"`autotune engines` lists the engines; {OWN_ENGINE} needs an environment of its own",
        )
    console = make_console()
    began = time.monotonic()

    def say(step: str) -> None:
        console.say(f"{format_duration(time.monotonic() - began):>6}  {step}")

    found = install_engine(python=python, on_step=say)
    say("done")
    typer.echo(found)


add_command(app, install, short="Make the environment of an engine that needs its own.")
