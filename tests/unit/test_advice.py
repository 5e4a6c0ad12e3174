"""Commands and options that messages name: each of them is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import autotune
from autotune.cli import COMMANDS, load_command

PACKAGE = Path(autotune.__file__).parent
# Of a script in an example, of the worker, of the program itself.
FOREIGN = frozenset({"--batch", "--fork-server", "--help", "--version"})


def messages() -> Iterator[tuple[str, str]]:
    """Go through the texts of the package but docstrings, with the file of each; ``{}`` is what is filled in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                inside.add(id(node.value))  # a docstring
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield str(path.relative_to(PACKAGE)), "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield str(path.relative_to(PACKAGE)), node.value


def options_of(command: str) -> set[str]:
    return {name for parameter in load_command(command).params for name in (*parameter.opts, *parameter.secondary_opts)}


def named_commands() -> list[tuple[str, str]]:
    """Return the commands that messages name, each as far as it is written out: in backticks, or behind 'then'."""
    written = re.compile(r"`autotune ([^`{-][^`]*)`|then autotune (\S[^`;,.]*)")
    return [(path, one or other) for path, text in messages() for one, other in written.findall(text)]


def test_messages_name_commands() -> None:
    assert len(named_commands()) > 10


@pytest.mark.parametrize(("path", "command"), named_commands())
def test_a_command_that_a_message_names_can_be_run(path: str, command: str) -> None:
    name, *words = command.split()
    assert name in COMMANDS, path
    options = [word.partition("=")[0] for word in words if word.startswith("--") and len(word) > 2]
    assert set(options) <= options_of(name) | {"--help"}, path


def test_options_that_messages_name_belong_to_a_command() -> None:
    known = {option for command in COMMANDS for option in options_of(command)} | FOREIGN
    unknown = {
        (path, option)
        for path, text in messages()
        if path.startswith(("tuning", "launch", "verdict", "search", "cli", "pipeline", "records/facts", "worker/fail"))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+[a-z]", text)
        if option not in known
    }
    assert not unknown
