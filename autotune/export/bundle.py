"""The bundle as a folder: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import BundleError, ExportError, UsageError
from ..records.choices import choice_settings, heap_libraries, made_choices
from ..records.codec import from_json, to_json
from ..records.configuration import Configuration
from ..records.engines import ENGINES, PLAIN_ENGINES, SWITCHING_ENGINES
from ..records.measuring import MOST_SIZED
from ..records.plan import Plan, dump_mem_opt, load_mem_opt, parse_plans
from ..records.printable import printable_strings, shell_word
from ..records.stack import STACK_VERSION, Stack
from ..records.study import StudyRecord
from . import variables
from .atomic_file import write_synced
from .readme import FILES, README_NAME, REPORT_NAME, render_readme
from .session import CONVERTED_NAME, SESSION_JSON_NAME, converted_files, session_files
from .stack import AS_TYPED, STACK_NAME, build_stack, choose_configuration, render_stack
from .variables import ENV_SH_NAME, MEM_OPT_NAME, MEM_OPT_VARIABLE, render_env_sh

_NAMES = frozenset({*FILES, README_NAME, f"{CONVERTED_NAME}.data"})

# A plan table of thousands of rows fits many times over; what is larger was not written by us.
_MAX_BYTES = 1 << 20

_AGAIN = "`autotune export STUDY` writes a new bundle"


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read and found in order. Paths in ``environment`` and ``directory`` are absolute."""

    stack: Stack
    plans: tuple[Plan, ...]
    environment: dict[str, str]
    directory: Path

    @property
    def configuration(self) -> Configuration:
        """Return what to run."""
        stack = self.stack
        return Configuration(
            stack.engine,
            self.plans,
            stack.level,
            stack.batch_size,
            stack.choices,
            stack.accumulation_set,
            stack.sized,
        )

    @property
    def surroundings(self) -> dict[str, str]:
        """Return the variables without those of choices: a run sets these, and the script as it stands has none."""
        chosen = choice_settings(self.stack.engine, self.stack.choices, self.environment)
        return {name: value for name, value in self.environment.items() if name not in chosen}


def export_bundle(
    record: StudyRecord, directory: Path, *, configuration: Configuration | None = None, report_html: str | None = None
) -> Path:
    """Write a bundle of ``configuration``, else of the verdict's winner; return its absolute path, links resolved.

    The files are written to a new folder beside ``directory``, which then takes its name, so that a reader never sees
    half a bundle. An older bundle there is replaced, anything else is left alone. ExportError where there is nothing to
    export, or it could not be written; nothing was changed then.
    """
    chosen = choose_configuration(record, configuration)
    stack = build_stack(record, chosen)
    target = Path(os.path.realpath(directory))
    files, copied = {STACK_NAME: render_stack(stack)}, converted_files(record, chosen)
    if ENGINES[stack.engine].target == "model":
        files |= session_files(stack, next(iter(copied), None))
    else:
        files |= {MEM_OPT_NAME: dump_mem_opt(parse_plans(stack.plans)), ENV_SH_NAME: render_env_sh(stack)}
    if report_html is not None:
        files[REPORT_NAME] = report_html
    files[README_NAME] = render_readme(stack, target.name, [*files, *(one.name for one in copied)])
    try:
        _check_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name[:64]}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent, ignore_cleanup_errors=True) as made:
            folder = Path(made)
            folder.chmod(0o755)  # a temporary folder can be entered by its owner only
            for name, text in files.items():
                write_synced(folder / name, text)
            for file in copied:
                shutil.copy2(file, folder)
            read_bundle(folder)  # what we could not read ourselves must not get the name
            _take_name(folder, target)
    except BundleError as error:
        raise ExportError(f"study {record.name!r} does not make a bundle that can be read: {error}") from error
    except OSError as error:
        room = "make room, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise ExportError(
            f"the bundle could not be written to {str(target)!r}: {error.strerror or error}",
            hint=f"{room}choose another folder with --output DIR; the study is safe, and "
            f"`autotune export {shell_word(record.name)} --output DIR` writes the bundle again",
        ) from error
    return target


def read_bundle(directory: Path) -> Bundle:
    """Read a bundle, which may come from somebody else. Nothing in it is run, and no link in it is followed.

    Raises:
        BundleError: It is not there, not whole, too large, of a newer version, malformed, sets a variable that is
            not on the list, has a library, or its two lists of plans differ.
    """
    stack_text, mem_opt_text = _read_texts(directory)
    try:
        data = json.loads(stack_text)
        _check_version(data)
        for figures in (data.get("figures"), data.get("baseline_figures")):
            if isinstance(figures, dict) and "rounds" in figures:  # version 1's word
                figures["repetitions"] = figures.pop("rounds")
        shown = {name: value for name, value in data.items() if name not in AS_TYPED}
        if printable_strings(shown) != shown:
            raise BundleError(f"{STACK_NAME}: a string in it contains control characters")
        stack: Stack = from_json(Stack, data, where=STACK_NAME)
        to_json(stack)  # raises for numbers that are not finite, which json.loads lets through
        plans = load_mem_opt(mem_opt_text)
        _check_stack(stack, plans)
        _check_files(directory)
    except BundleError as error:
        error.hint = error.hint or _AGAIN
        raise
    except UsageError as error:
        raise BundleError(f"the bundle {str(directory)!r} is malformed: {error}", hint=error.hint or _AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the bundle {str(directory)!r} is malformed: not JSON: {error}", hint=_AGAIN) from error
    absolute, environment = Path(os.path.realpath(directory)), dict(stack.variables)
    if MEM_OPT_VARIABLE in environment:
        environment[MEM_OPT_VARIABLE] = str(absolute / MEM_OPT_NAME)
    return Bundle(stack, plans, environment, absolute)


def _check_version(data: Any) -> None:
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(f"{STACK_NAME}: no version in it; is it a bundle?")
    if version > STACK_VERSION:
        raise BundleError(
            f"{STACK_NAME} has version {version}; this autotune reads versions up to {STACK_VERSION}",
            hint="upgrade it: pip install --upgrade autotune-memory",
        )


def _check_stack(stack: Stack, plans: tuple[Plan, ...]) -> None:
    if parse_plans(stack.plans) != plans:
        raise BundleError(
            f"{STACK_NAME} and {MEM_OPT_NAME} name different plans",
            hint="export the bundle again; after a change by hand, make the same change in both files",
        )
    if stack.level not in (0, 1, 2):
        raise BundleError(f"{STACK_NAME}: level {stack.level!r} is none of 0, 1, 2")
    if stack.sized and stack.engine not in SWITCHING_ENGINES:
        raise BundleError(f"{STACK_NAME}: engine {stack.engine!r} has the same plans for batches of all sizes")
    if len(stack.sized) > MOST_SIZED or any(min(shape, default=1) < 1 for one in stack.sized for shape in one.shapes):
        raise BundleError(f"{STACK_NAME}: the plans for smaller batches are too many, or for no batch")
    if stack.engine in PLAIN_ENGINES and (plans or stack.level):
        raise BundleError(
            f"{STACK_NAME}: engine {stack.engine!r} is the script untouched: it takes neither plans nor a level"
        )
    if stack.batch_size is not None and stack.batch_size < 1:
        raise BundleError(f"{STACK_NAME}: batch size {stack.batch_size!r} is not above zero")
    if stack.accumulation_set < 0:
        raise BundleError(f"{STACK_NAME}: accumulation {stack.accumulation_set!r} is negative")
    if stack.memory_limit_bytes < 0:
        raise BundleError(f"{STACK_NAME}: memory limit {stack.memory_limit_bytes!r} is negative")
    for one in stack.files:
        if ".." in PurePosixPath(one.path).parts or PurePosixPath(one.path).is_absolute():
            raise BundleError(f"{STACK_NAME}: {one.path!r} does not lie below the script's folder")
    try:
        made_choices(stack.engine, stack.choices)
    except UsageError as error:
        raise BundleError(f"{STACK_NAME}: {error}") from error
    variables.check(stack.variables)


def _check_files(directory: Path) -> None:
    for library in heap_libraries():
        if os.path.lexists(directory / library):
            raise BundleError(
                f"the bundle {str(directory)!r} has a file {library!r}, which a loader could take for the system's",
                hint="remove it, unless you know where it comes from",
            )


def _read_texts(directory: Path) -> tuple[str, str]:
    """Return what ``stack.json`` and ``mem_opt.json`` hold; a model has no plans, and so not the second."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise BundleError(
            f"there is no bundle at {str(directory)!r}: {getattr(error, 'strerror', None) or error}",
            hint="`autotune export STUDY` writes one",
        ) from error
    try:
        names = os.listdir(folder)  # noqa: PTH208 (of a descriptor)
        is_model = SESSION_JSON_NAME in names and MEM_OPT_NAME not in names
        return _read_text(folder, STACK_NAME), "[]" if is_model else _read_text(folder, MEM_OPT_NAME)
    finally:
        os.close(folder)


def _read_text(folder: int, name: str) -> str:
    # Without O_NONBLOCK, opening a pipe that somebody put there would wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BundleError(f"{name} of the bundle is not a plain file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise BundleError(f"the bundle has no {name}", hint=_AGAIN) from error
    except OSError as error:
        raise BundleError(
            f"{name} of the bundle cannot be read (links are not followed): {error.strerror}", hint=_AGAIN
        ) from error
    if len(data) > _MAX_BYTES:
        raise BundleError(f"{name} of the bundle is larger than {_MAX_BYTES} bytes, so it was not written by autotune")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{name} of the bundle is not UTF-8: {error.reason} at byte {error.start}") from error


def check_target(target: Path) -> None:
    """ExportError unless a bundle can be written there, as far as that is known before: its folder is tried."""
    try:
        above = next(one for one in Path(os.path.realpath(target)).parents if one.exists())
        tempfile.TemporaryFile(dir=above).close()
    except OSError as error:
        raise ExportError(
            f"no bundle can be written to {str(target)!r}: {error.strerror or error}",
            hint="choose another folder with --output DIR",
        ) from error
    _check_replaceable(target)


def _check_replaceable(target: Path) -> None:
    """ExportError unless a bundle may be written there: over nothing, an empty folder, or an older bundle."""
    if not os.path.lexists(target):
        return
    try:
        names = {path.name for path in target.iterdir()} if target.is_dir() else None
    except OSError as error:
        raise ExportError(
            f"{str(target)!r} cannot be read: {error.strerror}", hint="choose another folder with --output DIR"
        ) from error
    if names is not None and (not names or (STACK_NAME in names and names <= _NAMES)):
        return
    what = "is not a folder" if names is None else f"contains {min(names - _NAMES, default='other files')!r}"
    raise ExportError(
        f"{str(target)!r} {what}: only an older bundle with nothing else in it is replaced",
        hint="choose another folder with --output DIR, or move that one away",
    )


def _take_name(folder: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``; an older bundle steps aside first, and back if that fails."""
    aside = folder.with_name(folder.name + "-old")
    replaces = target.exists()
    if replaces:
        target.rename(aside)
    try:
        folder.rename(target)
    except OSError:
        if replaces:
            aside.rename(target)
        raise
    if replaces:
        shutil.rmtree(aside, ignore_errors=True)
