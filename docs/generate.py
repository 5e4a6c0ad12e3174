"""Write the generated parts of the pages anew: ``python docs/generate.py`` (``make docs``).

``reference/commands.md`` and ``reference/python.md`` are generated as a whole, from the command line and the public
functions themselves. ``reference/json.md`` and the schemas that it names come from the records that commands print. In
``design/house.md`` the list of folders comes from the first sentence of each package's docstring, the layers from the
import contract in ``pyproject.toml``, and the targets from the Makefile. Tests hold the pages against what this module
gives, so that neither can go stale.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # this checkout's package, wherever it is started from

from docs.json_schemas import json_page, schemas  # noqa: E402  (below the line that finds it)
from docs.python_page import python_page  # noqa: E402

COMMANDS = "reference/commands.md"
PYTHON = "reference/python.md"
JSON = "reference/json.md"
HOUSE = "design/house.md"

# A folder whose modules are numbered one after the other has no docstring of its own.
_NUMBERED = {"versions": "One module per revision of the tables"}
_FIRST_SENTENCE = re.compile(r"(.+?)(?:\.\s|(?<=\?)\s|\.?\Z)", re.DOTALL)
_HIDDEN = frozenset({"--help", "-h"})


def pages() -> dict[str, str]:
    """Every page with something generated in it, by its path below ``docs/``, as it should be."""
    house = (DOCS / HOUSE).read_text(encoding="utf-8")
    house = _filled(house, "folders", _fenced(folders(ROOT / "autotune")))
    house = _filled(house, "layers", _fenced(layers()))
    house = _filled(house, "targets", _fenced(targets()))
    written = {COMMANDS: commands(), PYTHON: python_page(ROOT / "autotune"), JSON: json_page(), HOUSE: house}
    return written | schemas()


def commands() -> str:
    """The page of all commands: usage, arguments, options with their defaults, exit codes."""
    from autotune.cli import app

    top = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "This page is generated from the command line itself (`make docs`). `--help` behind a command prints the same.",
        "Commands that print facts take `--json`. Progress goes to standard error, results go to standard output.",
        "[Exit codes](exit-codes.md) has the exit codes of all commands.",
    ]
    for name, command in every_command(top, "autotune"):
        lines += ["", *_section(name, command)]
    return "\n".join(lines) + "\n"


def folders(package: Path) -> list[str]:
    """The folders of the package, one a line: an indented name, and the first sentence of its docstring."""
    found = sorted({path.parent for path in package.rglob("*.py")})
    named = [("  " * len(folder.relative_to(package).parts) + f"{folder.name}/", folder) for folder in found]
    width = max(len(name) for name, _ in named) + 2
    return [f"{name:{width}}{first_sentence(folder)}" for name, folder in named]


def first_sentence(folder: Path) -> str:
    """The first sentence of a folder's docstring: its ``__init__.py``'s, or that of the first module that has one."""
    if folder.name in _NUMBERED:
        return _NUMBERED[folder.name]
    for path in (folder / "__init__.py", *sorted(folder.glob("*.py"))):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else None
        sentence = _FIRST_SENTENCE.match(text or "")
        if sentence is not None:
            return re.sub(r"\s+", " ", sentence[1]).replace("``", "")
    raise ValueError(f"no module in {str(folder)!r} has a docstring; write one that says what belongs there")


def layers() -> list[str]:
    """The import layers, from top to bottom."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return next(list(one["layers"]) for one in tools["importlinter"]["contracts"] if one["type"] == "layers")


def targets() -> list[str]:
    """The targets of the Makefile, one a line, with what ``make help`` says of them."""
    found = re.findall(r"^([a-z0-9-]+):.*## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    width = max(len(name) for name, _ in found)
    return [f"make {name:{width}}  {does}" for name, does in found]


def every_command(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that can be typed, with its full name, groups before what is below them."""
    context = typer.Context(command)
    for child_name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        child = command.get_command(context, child_name)
        yield f"{name} {child_name}", child
        yield from every_command(child, f"{name} {child_name}")


def _section(name: str, command: Any) -> list[str]:
    shown = [one for one in command.params if not _HIDDEN.intersection(one.opts)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(str(one.metavar) for one in arguments)])
    lines = [f"## {name}", "", "```text", usage, "```", "", *_paragraphs(command.help or "")]
    if arguments:
        lines += ["", "Arguments:", "", *(f"- `{one.metavar}`: {_sentence(one.help)}" for one in arguments)]
    if options:
        lines += ["", "Options:", "", *(_option(one) for one in options)]
    return [*lines, "", *_paragraphs(command.epilog or "")]


def _paragraphs(text: str) -> list[str]:
    parts = (re.sub(r"\s+", " ", part).strip() for part in text.split("\n\n"))
    return "\n\n".join(filter(None, parts)).split("\n")


def _option(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or _values(option.type)}"
    has_default = not option.is_flag and option.default is not None and option.default != ""
    default = f" Default: `{_shown(option.default)}`." if has_default else ""
    return f"- `{option.opts[0]}{value}`: {_sentence(option.help)}{default}"


def _values(kind: Any) -> str:
    return "|".join(map(str, kind.choices)) if hasattr(kind, "choices") else str(kind.name).upper()


def _shown(default: Any) -> str:
    return str(getattr(default, "value", default))


def _sentence(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip()


def _fenced(lines: list[str]) -> str:
    return "\n".join(["```text", *lines, "```"])


def _filled(page: str, name: str, text: str) -> str:
    """A page with what stands between the marks of ``name`` replaced."""
    begin, end = f"<!-- {name}: written by make docs -->", f"<!-- {name} end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{HOUSE} has no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
