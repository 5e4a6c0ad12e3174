"""A project's settings of autotune's options, in its pyproject.toml or an autotune.toml.

A key is an option's long name. Its value is what one would type behind the option: ``true`` or ``false`` for a flag, a
list for several names. A key stands for every command that has the option. A table named as a command holds for that
command alone. An option that is typed wins.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UsageError, did_you_mean

_OWN_FILE = "autotune.toml"
_PROJECT_FILE = "pyproject.toml"
# What may name a file of the user's, and other things too.
_MAYBE_PATHS = frozenset({"--python", "--plans-from", "--against", "--baseline"})
_PATH_METAVARS = frozenset({"FILE", "DIR"})
# What is meant for one call: in a file a gate that only shows its history would pass for ever, and nothing that is
# typed takes it back.
_ONE_CALL = frozenset(
    {
        "json",
        "history",
        "update-baseline",
        "to",
        "trial",
        "study",
        "output",
        "module",
        "with-bundle",
        "help",
        "shape",
        "inputs",
    }
)


@dataclass(frozen=True)
class Settings:
    """The options that a file settles: ``shared`` for all commands that have them, ``own`` for one each."""

    file: Path | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The file as it is told: from the folder that the user is in."""
        assert self.file is not None
        return os.path.relpath(self.file)

    def of_command(self, name: str, command: Any) -> dict[str, Any]:
        """Return what the file settles of a command, by parameters' names; UsageError for what nobody could type."""
        options = settable(command)
        found = {**self.shared, **self.own.get(name, {})}
        return {
            options[key].name: self._typed(key, value, options[key]) for key, value in found.items() if key in options
        }

    def check(self, commands: Mapping[str, Any]) -> None:
        """Raise UsageError for a key that no command has, or that the command of its table does not have."""
        names = {name: tuple(settable(command)) for name, command in commands.items()}
        for command, table in self.own.items():
            for key in table:
                self._check_key(key, names[command], f" of `autotune {command}`", command)
        everywhere = sorted({one for each in names.values() for one in each})
        for key, value in self.shared.items():
            if key in names:
                head = f"[{key}]" if self.file and self.file.name == _OWN_FILE else f"[tool.autotune.{key}]"
                raise UsageError(f"{self.title}: {key!r} is a command, no option", hint=f"write a table: {head}")
            if isinstance(value, Mapping):
                near = did_you_mean(key, names) or "autotune --help"
                raise UsageError(f"{self.title}: there is no command {key!r} to have a table", hint=near)
            self._check_key(key, everywhere, "", "run")

    def _check_key(self, key: str, known: Sequence[str], of: str, listed: str) -> None:
        if key in _ONE_CALL:
            hint = f"leave it out, and type --{key}"
            raise UsageError(f"{self.title}: {key!r} is for one call, not for a project", hint=hint)
        if key not in known:
            near = did_you_mean(key, known) or f"`autotune config {listed}` lists them"
            raise UsageError(f"{self.title}: {key!r} is no option{of}", hint=near)

    def _typed(self, key: str, value: Any, option: Any) -> Any:
        if option.is_flag:
            if not isinstance(value, bool):
                raise UsageError(f"{self.title}: {key} is switched on or off, not {value!r}", hint=f"{key} = true")
            return value
        if isinstance(value, list) and value and all(type(one) in (str, int) for one in value):
            value = ",".join(map(str, value))
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(
                f"{self.title}: {key} = {value!r} is nothing that could be typed behind {option.opts[-1]}",
                hint=f'give it as text: {key} = "…"',
            )
        return self._located(str(value), option)

    def _located(self, value: str, option: Any) -> str:
        """A path is meant from the file's folder, wherever in the project somebody types a command."""
        assert self.file is not None
        is_path = (
            option.metavar in _PATH_METAVARS
            or (option.metavar == "URL" and "://" not in value)
            or (_MAYBE_PATHS.intersection(option.opts) and names_file(value))
        )
        return str(self.file.parent / Path(value).expanduser()) if is_path and value else value


def settable(command: Any) -> dict[str, Any]:
    """The options of a command that a file may settle, by their long names without dashes."""
    options = (one for one in command.params if one.param_type_name == "option")
    named = ((one.opts[-1].removeprefix("--"), one) for one in options)
    return {name: one for name, one in named if name not in _ONE_CALL}


def project_settings(commands: Collection[str], load: Callable[[str], Any]) -> Settings:
    """Return the settings of the nearest file that has some, up to the repository's top; UsageError if it is wrong."""
    settings = _read(commands)
    if settings.file is not None:
        settings.check({name: load(name) for name in commands})
    return settings


def _read(commands: Collection[str]) -> Settings:
    for file in _candidates():
        try:
            if file.exists() and not file.is_file():  # to read a pipe would be to wait for who writes into it
                raise UsageError(f"{str(file)!r} is no plain file", hint="move it away")
            document = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UsageError(f"{str(file)!r} cannot be read: {error.strerror}", hint="make it readable") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{str(file)!r} is no TOML: {error}", hint="mend that line") from None
        tools = document.get("tool")
        table = document if file.name == _OWN_FILE else tools.get("autotune") if isinstance(tools, dict) else None
        if table is None:
            continue
        if not isinstance(table, dict):
            raise UsageError(f"{str(file)!r}: tool.autotune is no table", hint="write [tool.autotune]")
        own = {
            key: _spelled(value, file) for key, value in table.items() if key in commands and isinstance(value, dict)
        }
        return Settings(file, _spelled({key: value for key, value in table.items() if key not in own}, file), own)
    return Settings()


def _candidates() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the folder is gone, which the command tells
        return
    for folder in (here, *here.parents):
        yield folder / _OWN_FILE
        yield folder / _PROJECT_FILE
        if (folder / ".git").exists():
            return


def _spelled(table: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The table with its keys spelled as options are; UsageError where a key is there in both spellings."""
    spelled = {key.replace("_", "-"): value for key, value in table.items()}
    if len(spelled) < len(table):
        twice = next(key for key in table if "_" in key and key.replace("_", "-") in table)
        raise UsageError(f"{str(file)!r} has {twice!r} in two spellings", hint=f"keep {twice.replace('_', '-')}")
    return spelled


def names_file(text: str) -> bool:
    """Return whether it is a path, where it may also be the name of something else."""
    return os.sep in text or text.startswith("~") or text.endswith((".json", ".py"))


def as_shown(value: Any) -> Any:
    """A value as it may be shown."""
    from ..records.printable import without_password  # not for every `--help`

    return without_password(value) if isinstance(value, str) else value
