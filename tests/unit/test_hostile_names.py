"""Names of any kind, wherever they are written: each reader takes them for the name that they are.

As names of files they are in ``test_files.py`` and ``test_launch_archive.py`` too, and on the command line in
``tests/e2e/test_hostile_names.py``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from autotune.cli import places
from autotune.cli.spec import default_study_name
from autotune.errors import AutotuneError, StorageError, UsageError
from autotune.export.bundle import export_bundle, read_bundle
from autotune.export.stack import build_stack
from autotune.records.codec import dumps, loads
from autotune.records.gate import Gate, Gauge, Reading
from autotune.records.printable import as_operand, launch_command, shell_line, shell_word
from autotune.records.study import StudyRecord, StudySpec
from autotune.report.build import build_report
from autotune.report.page import render_html
from autotune.store.connections import parse_location
from autotune.store.database import Store, open_store
from autotune.store.faults import translated
from autotune.tuning.checks import check_script
from autotune.verdict.gate.rendering import render_junit, render_markdown
from tests.fakes.hostile_names import HOSTILE_NAMES
from tests.fakes.study_record import WINNER, study_record
from tests.unit.test_report_page import Page

SHELLS = [shell for shell in ("bash", "zsh", "ksh", "busybox") if shutil.which(shell)]
each = pytest.mark.parametrize("what", HOSTILE_NAMES)


def pasted(command: str, folder: Path, shell: str = "bash") -> list[str]:
    """The words that a shell makes of a command line."""
    call = ["busybox", "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*call, "-c", f"printf '%s\\0' {command}"], cwd=folder, capture_output=True, check=True)
    assert done.stderr == b""
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def study_of(named: str, **changes: object) -> StudyRecord:
    record = study_record()
    spec = dataclasses.replace(record.spec, script=f"/x/{named}.py", arguments=(named, "--lr", named))
    return dataclasses.replace(record, spec=spec, **changes)


@each
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.process
def test_a_shell_reads_a_quoted_word_as_it_was_and_runs_nothing(what: str, shell: str, tmp_path: Path) -> None:
    name = HOSTILE_NAMES[what]

    assert shell_word(name).isprintable()
    assert pasted(shell_line(["a", name, f"7{name}7", "b"]), tmp_path, shell) == ["a", name, f"7{name}7", "b"]
    assert not list(tmp_path.iterdir())


@each
@pytest.mark.process
@pytest.mark.skipif(shutil.which("dash") is None, reason="needs dash, a shell that knows only the oldest quotes")
def test_the_plainest_shell_reads_every_word_that_prints(what: str, tmp_path: Path) -> None:
    name = HOSTILE_NAMES[what]
    if name.isprintable():
        assert pasted(shell_word(name), tmp_path, "dash") == [name]


def test_a_command_line_that_needs_no_quotes_has_none() -> None:
    command = launch_command("autotune-gpt", "train.py", ["--lr", "1e-3"])
    assert command == "autotune launch autotune-gpt train.py -- --lr 1e-3"


def test_a_path_is_no_option() -> None:
    assert launch_command("-b", "-rf.py", ["-x"]) == "autotune launch ./-b ./-rf.py -- -x"
    assert as_operand("a-b") == "a-b"


@each
@pytest.mark.process
def test_a_bundle_names_script_and_arguments_as_they_are(what: str, tmp_path: Path) -> None:
    name = HOSTILE_NAMES[what]
    bundle = export_bundle(study_of(name), tmp_path / name, report_html="")

    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert read_bundle(bundle).stack.arguments == (name, "--lr", name)
    readme = (bundle / "README.txt").read_text()
    assert readme.replace("\n", "").isprintable()
    command = readme.partition("How to run it\n-------------\n")[2].partition("\n\nwith the paths")[0]
    script, folder = as_operand(f"{name}.py"), as_operand(name)
    assert pasted(command, tmp_path) == ["autotune", "launch", folder, script, "--", name, "--lr", name]
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


@each
@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.process
def test_env_sh_is_read_from_a_folder_of_any_name(what: str, shell: str, tmp_path: Path) -> None:
    bundle = export_bundle(study_of("train"), tmp_path / HOSTILE_NAMES[what], report_html="")
    done = subprocess.run(
        [shell, "-c", '. ./env.sh && printf %s "$ORTMODULE_MEMORY_OPT_CONFIG"'],
        cwd=bundle,
        capture_output=True,
        check=False,
    )
    if HOSTILE_NAMES[what].endswith("\n"):  # a shell's substitution leaves newlines at its end out
        assert b"mem_opt.json is not in" in done.stderr
    else:
        assert (done.stderr, os.fsdecode(done.stdout)) == (b"", str(bundle / "mem_opt.json"))


@each
def test_the_page_shows_it_and_makes_nothing_of_it(what: str) -> None:
    name = HOSTILE_NAMES[what]
    plain = Page(render_html(build_report(study_record(), bundle="b")))
    html = render_html(build_report(study_of(name, name=name), bundle=name))
    page = Page(html)

    assert page.open == []
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert {key for _, attributes in page.elements for key in attributes} == {
        key for _, attributes in plain.elements for key in attributes
    }
    html.encode()
    command = html.partition('id="command">')[2].partition("</code>")[0]
    assert unescape(command) == launch_command(name, f"{name}.py", [name, "--lr", name])


@each
def test_records_come_back_as_they_were(what: str) -> None:
    spec = StudySpec(script=f"/x/{HOSTILE_NAMES[what]}.py", arguments=(HOSTILE_NAMES[what],))
    text = dumps(spec)

    assert loads(StudySpec, text.encode()) == spec
    assert build_stack(study_of(HOSTILE_NAMES[what]), WINNER).arguments[0] == HOSTILE_NAMES[what]


@each
def test_what_a_gate_writes_is_read_by_whoever_reads_such_files(what: str) -> None:
    name = HOSTILE_NAMES[what]
    gauge = Gauge("speed", before=2.0, now=1.0, change=0.5, low=0.4, high=0.6, allowed=0.05, found="worse")
    gate = Gate("regression", (f"It is slower: {name}.",), "stored", 3, (gauge,), reading=Reading((1.0,), (2,)))

    suite = ET.fromstring(render_junit(gate, name).encode())[0]
    markdown = render_markdown(gate, name)

    assert [case.tag for case in suite] == ["testcase"]
    assert str(suite.get("name")).isprintable()
    assert markdown.replace("\n", "").isprintable()
    heading, _, sentence, *_ = markdown.split("\n")
    for text in (heading.removeprefix("### "), sentence):
        assert not re.search(r"[`*_{}\[\]>#!<&|~]", re.sub(r"\\[\\`*_{}\[\]>#!]|&#\d+;", "", text)), text


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open one store for the studies of all names."""
    with open_store(str(tmp_path_factory.mktemp("store") / "x.db")) as opened:
        yield opened


@each
def test_a_study_of_that_name_is_one_folder_and_one_row_or_is_refused(
    what: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, spec = HOSTILE_NAMES[what], StudySpec(script="/x/train.py")
    monkeypatch.chdir(tmp_path)

    assert places.runs_of(name).parent == tmp_path / ".autotune/runs"
    assert len(places.bundle_of(name, None).parts) == len(places.logs_of(name, None).parts) - 1 == 1
    places.runs_of(name).mkdir(parents=True)
    before = store.names()
    if name.isprintable() and name == name.strip() and not name.startswith("-"):
        store.create(name, spec)
        assert store.open(name).record().name == name
        assert store.names() == (*before, name)
    else:
        with pytest.raises(StorageError, match="bad study name"):
            store.create(name, spec)
        with pytest.raises(StorageError, match=r"no study|not valid Unicode"):
            store.open(name)
        assert store.names() == before


@each
@pytest.mark.parametrize(("error", "advised"), [("SQLITE_BUSY", ["fuser", "-v"]), ("SQLITE_CORRUPT", ["sqlite3"])])
@pytest.mark.process
def test_what_is_advised_for_a_database_in_such_a_folder_can_be_pasted(
    error: str, advised: list[str], what: str, tmp_path: Path
) -> None:
    path = tmp_path / HOSTILE_NAMES[what] / "x.db"
    refused = sqlite3.OperationalError("as SQLite put it")
    refused.sqlite_errorname = error

    with pytest.raises(AutotuneError) as caught, translated(parse_location(str(path))):
        raise refused

    words = pasted(caught.value.hint.rpartition("`")[0].partition("`")[2], tmp_path)
    assert words[: len(advised) + 1] == [*advised, str(path)]


@each
@pytest.mark.process
def test_the_way_to_make_a_script_of_a_notebook_can_be_pasted(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = HOSTILE_NAMES[what]
    monkeypatch.chdir(tmp_path)
    notebook = Path(f"{name}.ipynb")
    notebook.touch()

    with pytest.raises(UsageError) as caught:
        check_script(notebook, python=sys.executable)

    make, run = caught.value.hint.removeprefix("make a script of it: ").rsplit("; then ", 1)
    assert pasted(make, tmp_path)[-1] == as_operand(f"{name}.ipynb")
    assert pasted(run, tmp_path) == ["autotune", "run", as_operand(f"{name}.py")]


@each
def test_a_script_of_that_name_has_a_study_of_its_own(what: str, store: Store, tmp_path: Path) -> None:
    for script in (tmp_path / f"{HOSTILE_NAMES[what]}.py", tmp_path / HOSTILE_NAMES[what] / "train.py"):
        script.parent.mkdir(exist_ok=True)
        script.touch()
        name = default_study_name(StudySpec(script=str(script), arguments=(HOSTILE_NAMES[what],)))
        store.create(name, StudySpec(script=str(script)))
        assert store.open(name).name == name
