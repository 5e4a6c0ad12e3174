"""`autotune doctor`"""

from __future__ import annotations

import typer

from .command import make_app, print_json
from .options import CheckedPythonOption, JsonOption


def doctor(python: CheckedPythonOption = None, json: JsonOption = False) -> None:
    """Check this machine's GPU, NVML, torch, compiler, headers and memory limits, and say what they mean for tuning."""
    from ..machine.doctor import examine
    from ..machine.interpreter import find_interpreter
    from .tables import make_console, print_rows

    findings = examine(find_interpreter(python))
    if json:
        print_json([{"name": one.name, "found": one.found, "means": one.means, "good": one.good} for one in findings])
    else:
        rows = [(f"{'ok' if one.good else '--'} {one.name}", f"{one.found}. {one.means}") for one in findings]
        print_rows(make_console(stderr=False), rows)
    if not all(one.good for one in findings if one.required):
        raise typer.Exit(1)


app = make_app(doctor)
