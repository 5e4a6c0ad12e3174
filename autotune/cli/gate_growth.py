"""`autotune gate SCRIPT --against`: what a script holds at its peak, against another version of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ..errors import DiscoveryError, FormatError, UsageError
from ..files.revision import Revision, at_revision
from ..records.codec import loads
from ..records.explanation import Explanation
from ..records.study import StudySpec
from ..tuning.checks import MODEL_SUFFIX
from .explain import card_of
from .gate_answer import EXITS, name_of, tell, write_reports
from .gate_limit import OF_BUNDLES, is_typed, names_script

# Options that this gate has no use for, by their parameters.
_UNUSED = {name: option for name, option in OF_BUNDLES.items() if name not in ("against", "allowed_growth")}
_UNUSED |= {"limit_bytes": "--limit", "devices": "--devices"}
_OF_BUNDLES_ALONE = ("stored", "script")


def compares_lines(context: typer.Context, positional: Sequence[str]) -> bool:
    """Return whether the options ask for two versions of a script to be compared without a bundle.

    What stands in the project's settings counts where no limit is asked for.

    Raises:
        UsageError: the options do not go together.
    """
    options, against = context.params, context.params["against"]
    if against is None or not positional or not names_script(positional[0], is_module=options["is_module"]):
        return False
    if not is_typed(context, "against") and (options["limit_bytes"] is not None or options["cards"] is not None):
        return False
    if against in _OF_BUNDLES_ALONE:
        raise UsageError(
            f"--against {against} compares the setting of a bundle, and there is none",
            hint="autotune gate BUNDLE train.py; or a revision of git: autotune gate train.py --against main",
        )
    for name, option in _UNUSED.items():
        if is_typed(context, name):
            raise UsageError(
                f"--against does not go together with {option} without a bundle", hint=f"leave {option} out"
            )
    return True


def gate_growth(options: Mapping[str, Any], positional: Sequence[str], reports: Mapping[str, Path | None]) -> None:
    """Compare what a script holds at its peak with what another version of it does; exit with the answer.

    Args:
        options: the command's, by parameter.
        positional: the script and its arguments.
        reports: the files to write, as of ``write_reports``.
    """
    from .. import pipeline
    from ..verdict.gate.growth import decide_by_lines
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes

    script, *arguments = positional
    spec = spec_of({**options, "script": script, "arguments": tuple(arguments), "devices": None}, engine="eager")
    against: str = options["against"]
    told = _read(Path(against)) if Path(against).suffix == ".json" else None
    card = card_of(options["cards"] or (None if told is None else [told.card]))
    if told is not None and told.card != card:
        raise UsageError(
            f"{against!r} is for {told.card.name}, and --for names {card.name}", hint=f"--for {told.card.name}"
        )
    with contextlib.nullcontext() if told is not None else _other(against, spec) as other:
        launcher, runs = prepare_one_run("gate", spec)
        console = make_console()
        console.print("Following the first steps by the sizes of their tensors", style="dim")
        with interruption() as interrupted:

            def explain(version: StudySpec, name: str) -> Explanation:
                where: Any = {"launcher": launcher, "interruption": interrupted, "runs": runs}
                where["look_ahead"] = options["look_ahead"]
                return pipeline.explain(version, card, name=name, **where)

            before = told or _explain_other(other, explain, against)
            now = explain(spec, "now")
        cautions = list(_shared_files(other, before, spec, against))
    print_changes(console, launcher.changes)
    found = decide_by_lines(before, now, against=against, allowed=options["allowed_growth"], cautions=cautions)
    tell(found, (), as_json=options["json"])
    write_reports(found, name_of(spec), reports, console)
    raise typer.Exit(EXITS[found.answer])


def is_file(spec: StudySpec) -> bool:
    """Return whether what is run is all in the file that was named, of which there may be another version."""
    return not spec.module and Path(spec.script).suffix in (".py", MODEL_SUFFIX)


def other_version(path: str, spec: StudySpec) -> StudySpec:
    """Return the spec of another version of a script; UsageError if the path is none."""
    from .spec import find_script

    if Path(path).suffix != Path(spec.script).suffix:
        raise UsageError(
            f"--against {path!r} is no other version of {Path(spec.script).name}",
            hint=f"name a file that ends in {Path(spec.script).suffix}",
        )
    script, _ = find_script(Path(path), is_module=False, python=spec.python)
    return replace(spec, script=script)


@contextlib.contextmanager
def _other(against: str, spec: StudySpec) -> Iterator[tuple[StudySpec, Revision | None]]:
    """Yield another version of a script, and its revision if it is as of one."""
    if not is_file(spec):
        raise UsageError(
            "--against takes another version of a script that is a file, and this is run as a module or by a launcher",
            hint="compare with an earlier output: autotune explain … --json > memory.json, and --against memory.json",
        )
    if Path(against).is_file():
        yield other_version(against, spec), None
        return
    with at_revision(Path(spec.script), against) as revision:
        yield replace(spec, script=str(revision.script)), revision


def _explain_other(other: Any, explain: Callable[[StudySpec, str], Explanation], against: str) -> Explanation:
    try:
        return explain(other[0], "before")
    except DiscoveryError as error:
        raise DiscoveryError(f"as of {against!r}, {error}", hint=error.hint, detail=error.detail) from error


def _shared_files(other: Any, before: Explanation, spec: StudySpec, against: str) -> Iterator[str]:
    """Say which file of the repository both versions have run as it is now: it is part of an installed package."""
    revision: Revision | None = None if other is None else other[1]
    if revision is None:
        return
    lines = (one.made.place.line for one in before.held)
    for file in dict.fromkeys(line.rpartition(":")[0] for line in lines):
        path = Path(spec.working_directory, file)
        if file and path.is_file() and path.resolve().is_relative_to(revision.repository):
            yield f"Both versions ran {file} as it is now: what is installed from the repository is not of {against!r}."


def _read(file: Path) -> Explanation:
    with contextlib.suppress(OSError, FormatError, UnicodeDecodeError):
        return loads(Explanation, file.read_text(encoding="utf-8"))
    raise UsageError(
        f"{str(file)!r} is no output of `autotune explain --json`",
        hint=f"write it with the version to compare with: autotune explain train.py --json > {file.name}",
    )
