"""Sittings: what is taken in which, and what is kept of one that is cut off."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import psutil
import pytest
from packaging.requirements import Requirement

from autotune.records.outcome import OutOfMemory
from autotune.records.units import parse_duration
from autotune.store.database import open_store
from tests.benchmarks.peers.record import Record, Run, Setting, read_record, write_record
from tests.fakes.session import Session
from tests.fingerprint import code_of
from trials import lines
from trials.run import GOES_ON
from trials.sittings import command, facts, sitting, wheels
from trials.sittings.folder import MOST_BYTES, Folder
from trials.sittings.landing import land
from trials.sittings.parts import FIRST_TESTS, PARTS, steps
from trials.sittings.sitting import Entry, Journal, Sitting, Step, end_what_was_left

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30


def step(name: str, code: str, *, least_s: float = 0.0, most_s: float = 60.0, arguments: tuple[str, ...] = ()):
    return Step(name, (sys.executable, "-c", code, *arguments), least_s, most_s)


def sit(state: Path, *steps_: Step, budget_s: float = 200.0, code: str = "one"):
    return {
        entry.step: entry for entry in Sitting(steps_, state, ends_at=time.monotonic() + budget_s, code=code).take()
    }


@pytest.mark.process
def test_a_finished_step_is_not_taken_again_and_one_that_goes_on_is(tmp_path):
    done, open_ = step("done", "pass"), step("goes on", f"raise SystemExit({GOES_ON})")
    first = sit(tmp_path, done, open_)
    assert {name: entry.status for name, entry in first.items()} == {"done": "finished", "goes on": "open"}
    assert list(sit(tmp_path, done, open_)) == ["goes on"]


@pytest.mark.process
def test_a_step_that_failed_is_taken_again_when_the_code_has_changed(tmp_path, capsys):
    fails = step("fails", "print('the cause'); raise SystemExit(1)")
    found = sit(tmp_path, fails)["fails"]
    assert (found.status, found.exit_status) == ("failed", 1)
    assert "the cause" in capsys.readouterr().out
    assert sit(tmp_path, fails) == {}
    assert sit(tmp_path, fails, code="two")["fails"].status == "failed"


@pytest.mark.process
def test_a_step_that_failed_is_taken_again_with_the_same_code_if_that_is_asked_for(tmp_path):
    fails, done = step("fails", "raise SystemExit(1)"), step("done", "pass")
    sit(tmp_path, fails, done)
    again = Sitting((fails, done), tmp_path, ends_at=time.monotonic() + 200.0, code="one", again=True).take()
    assert [entry.step for entry in again] == ["fails"]


@pytest.mark.process
def test_what_comes_after_another_step_waits_for_its_end_and_is_taken_again_when_that_was(tmp_path, capsys):
    def study(code: str, least_s: float = 0.0):
        return step("study", code, least_s=least_s)

    peers = dataclasses.replace(step("peers", "pass"), after="study")
    assert sit(tmp_path, study("pass", least_s=100.0), peers, budget_s=50.0) == {}
    assert "peers: left until 'study' has ended" in capsys.readouterr().out
    assert list(sit(tmp_path, study(f"raise SystemExit({GOES_ON})"), peers)) == ["study"]
    assert list(sit(tmp_path, study("raise SystemExit(1)"), peers)) == ["study", "peers"]
    assert sit(tmp_path, study("pass"), peers) == {}
    assert list(sit(tmp_path, study("pass"), peers, code="two")) == ["study", "peers"]
    assert sit(tmp_path, study("pass"), peers, code="three") == {}


@pytest.mark.process
def test_what_comes_after_a_beginning_waits_for_no_end(tmp_path):
    goes_on = step("study", f"raise SystemExit({GOES_ON})")
    peers = dataclasses.replace(step("peers", "pass"), after="study", is_after_end=False)
    assert list(sit(tmp_path, peers)) == []
    assert list(sit(tmp_path, goes_on, peers)) == ["study", "peers"]


@pytest.mark.process
def test_a_step_finds_our_packages_and_those_that_were_brought_along(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "brought"))
    code = "import os, sys; raise SystemExit(os.environ['PYTHONPATH'] != sys.argv[1])"
    expected = os.pathsep.join([str(ROOT), str(tmp_path / "brought")])
    assert sit(tmp_path, step("it: a/b", code, arguments=(expected,)))["it: a/b"].status == "finished"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["it-a-b.log"]


def names_of(tmp_path: Path, part: str | None, gib: float = 79.1) -> list[str]:
    return [one.name for one in steps(part, tmp_path, memory_bytes=int(gib * GIB))]


def test_parts_come_in_their_order_and_have_no_step_twice(tmp_path):
    found = names_of(tmp_path, None)
    assert len(set(found)) == len(found)
    in_turn = [name for part in PARTS for name in names_of(tmp_path, part)]
    assert list(dict.fromkeys(in_turn)) == found
    first = ["facts", "tests: first, side by side", "tests: first, alone", "discovery: gpt2"]
    assert names_of(tmp_path, "first") == first
    assert names_of(tmp_path, "peers") == ["study: deberta-24GB", "peers: deberta-24GB", "peers: gpt2-24GB"]


def test_studies_are_those_that_the_devices_memory_is_for(tmp_path):
    assert "study: gpt2-80GB" in names_of(tmp_path, None)
    on_a_small_one = names_of(tmp_path, None, 23.7)
    assert "study: gpt2-24GB" in on_a_small_one
    assert not any("40GB" in name or "80GB" in name for name in on_a_small_one)


def test_tests_side_by_side_leave_out_those_that_need_the_device_alone(tmp_path):
    of_tests = [one for one in steps(None, tmp_path, memory_bytes=80 * GIB) if "pytest" in one.command]
    beside = [one.command[-1] for one in of_tests if one.command[one.command.index("-n") + 1] != "0"]
    alone = [one.command[-1] for one in of_tests if one.command[one.command.index("-n") + 1] == "0"]
    assert set(beside) == {"gpu and not alone"}
    assert set(alone) == {"gpu and alone"}
    for one in of_tests:
        assert float(one.command[one.command.index("--timeout") + 1]) < one.most_s, "a test that hangs is remembered"


def test_a_few_peers_have_three_repetitions_before_the_others_and_more_repetitions(tmp_path):
    found = {one.name: one for one in steps(None, tmp_path, memory_bytes=80 * GIB)}
    first, more = (found[f"{what}peers: gpt2-24GB"] for what in ("", "more repetitions of "))
    assert first.command[: len(more.command)] == more.command
    assert first.command[len(more.command) :][:2] == ("--repetitions", "3")
    assert "--peer" in first.command
    assert "--peer" not in more.command
    assert (first.after, more.after) == ("study: gpt2-24GB", first.name)


@pytest.mark.process
def test_the_first_tests_are_there_and_each_test_for_a_gpu_has_its_turn():
    collect = (
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n",
        "0",
        "-o",
        "addopts=--import-mode=importlib",
    )

    def collected(*selection: str) -> set[str]:
        done = subprocess.run((*collect, *selection, "tests/gpu"), cwd=ROOT, capture_output=True, text=True, check=True)
        return {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}

    assert {name.partition("[")[0] for name in collected("-k", " or ".join(FIRST_TESTS))} == set(FIRST_TESTS)
    beside, alone = collected("-m", "gpu and not alone"), collected("-m", "gpu and alone")
    assert beside | alone == collected()
    assert beside
    assert alone


@pytest.mark.process
def test_tests_are_taken_again_when_the_code_has_changed_after_all_that_is_not_known(tmp_path):
    tests = dataclasses.replace(step("tests", "pass"), is_of_code=True)
    study = step("study", f"raise SystemExit({GOES_ON})")
    assert list(sit(tmp_path, tests, study)) == ["tests", "study"]
    assert list(sit(tmp_path, tests, study)) == ["study"]
    assert list(sit(tmp_path, tests, study, code="two")) == ["study", "tests"]
    found = steps("study", tmp_path, memory_bytes=80 * GIB)
    assert [one.name for one in found if one.is_of_code] == ["tests: side by side", "tests: alone"]


def test_every_step_has_a_time_in_which_it_is_begun_and_ends_in_a_sitting_of_its_part(tmp_path):
    for part, budget in PARTS.items():
        for one in steps(part, tmp_path, memory_bytes=80 * GIB):
            assert one.least_s <= parse_duration(budget) - sitting.TO_END_S, one.name
            assert one.least_s < one.most_s, one.name
    first = steps("first", tmp_path, memory_bytes=80 * GIB)
    assert sum(one.least_s for one in first) < parse_duration(PARTS["first"]) - sitting.TO_END_S


@pytest.mark.process
def test_a_step_is_told_its_time_and_asked_to_end_when_it_is_over(tmp_path):
    code = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1]).write_text(sys.argv[2])
    raise SystemExit(0)
signal.signal(signal.SIGINT, end)
time.sleep(60)
"""
    kept = tmp_path / "kept"
    slow = step("slow", code, most_s=9.0, arguments=(str(kept), "{seconds}"))
    assert sit(tmp_path, slow)["slow"].status == "finished"
    assert kept.read_text() == "4", "it should end by itself before it is asked to"


@pytest.mark.process
def test_a_step_that_does_not_end_when_asked_is_killed_with_what_it_started_and_goes_on_next_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sitting, "TO_END_S", 0.5)
    code = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""
    pid = tmp_path / "pid"
    stubborn = step("stubborn", code, most_s=8.0, arguments=(str(pid),))
    entry = sit(tmp_path, stubborn)["stubborn"]
    assert (entry.status, entry.exit_status) == ("open", None)
    deadline = time.monotonic() + 30
    while _lives(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(int(pid.read_text()))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.process
def test_what_a_step_has_started_is_asked_to_end_as_well(tmp_path):
    child = """
import pathlib, sys, time
try:
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1]).touch()
"""
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]])"
    told = tmp_path / "told"
    sit(tmp_path, step("starts", code, most_s=6.0, arguments=(str(told),)))
    assert told.exists()


@pytest.mark.process
def test_what_a_killed_sitting_has_left_running_is_ended_by_the_next_one(tmp_path):
    pid = tmp_path / "pid"
    waits = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    code = f"""
import pathlib, sys, time
from trials.sittings.sitting import Sitting, Step
step = Step("waits", (sys.executable, "-c", {waits!r}, {str(pid)!r}), 0.0, 60.0)
Sitting([step], pathlib.Path({str(tmp_path)!r}), ends_at=time.monotonic() + 100.0, code="one").take()
"""
    with subprocess.Popen((sys.executable, "-c", code), cwd=ROOT) as killed:
        deadline = time.monotonic() + 60
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        killed.kill()
    left = int(pid.read_text())
    assert _lives(left)
    end_what_was_left(tmp_path)
    deadline = time.monotonic() + 30
    while _lives(left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(left)


@pytest.mark.process
def test_what_has_no_time_is_left_and_what_comes_after_it_may_be_taken(tmp_path, capsys):
    long, short = step("long", "pass", least_s=100.0), step("short", "pass")
    assert list(sit(tmp_path, long, short, budget_s=50.0)) == ["short"]
    assert "long: left for a sitting with 100 s" in capsys.readouterr().out
    assert list(sit(tmp_path, long, short)) == ["long"]


def test_what_was_found_on_one_device_is_not_gone_on_with_on_another(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.device == ""
    journal.begin("a card")
    journal.begin("a card")
    assert (journal.device, journal.entries()) == ("a card", [])
    with pytest.raises(SystemExit, match="is of a card, and this is another card"):
        journal.begin("another card")


def test_on_another_device_a_sitting_begins_anew_unless_its_own_folder_is_of_that_one(tmp_path, capsys):
    folder, earlier, work = tmp_path / "folder", tmp_path / "earlier", tmp_path / "work"
    Journal(earlier / "journal.jsonl").begin("a card")

    def device_at_work(device: str) -> str:
        command._go_on(folder, earlier, device, work)
        return Journal(work / "journal.jsonl").device

    assert device_at_work("another card") == ""
    assert f"Begins anew: {earlier} is of a card, and this is another card" in capsys.readouterr().out
    assert device_at_work("a card") == "a card"
    Journal(folder / "journal.jsonl").begin("a third card")
    assert device_at_work("a card") == "a third card", "and the journal refuses it"


def test_a_line_that_was_cut_off_hides_no_other(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    one = Entry("one", "finished", 1.0, 0, "code")
    journal.add(one)
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"step": "two", "sta')
    assert journal.entries() == [one]
    journal.add(one)
    assert journal.entries() == [one, one]
    assert not journal.is_open(Step("one", (), 0, 0), "code")
    assert journal.is_open(Step("two", (), 0, 0), "code")


TESTS = """
import pytest

def test_passes():
    pass

@pytest.mark.skipif(True, reason="not here")
def test_is_skipped():
    pass

def test_fails():
    assert 1 == 2, "the cause"

@pytest.fixture
def breaks():
    yield
    raise OSError("on the way out")

def test_fails_in_teardown(breaks):
    pass

def test_kills(tmp_path_factory):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


def remembering(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder, and remember there what they come to."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.remembering")
    return subprocess.run(
        (*command, "--rootdir", str(folder), "--remember", str(folder / "tests.jsonl"), str(folder),
         *arguments),
        env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.process
def test_tests_that_passed_before_a_kill_are_not_run_again(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    remembered = tmp_path / "tests.jsonl"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return remembering(tmp_path, *arguments)

    assert run().returncode == -signal.SIGKILL
    kept = [line for line in lines.read(remembered) if line["outcome"] != "begun"]
    assert [(line["test"].rpartition("::")[2], line["outcome"]) for line in kept] == [
        ("test_passes", "passed"),
        ("test_is_skipped", "skipped"),
        ("test_fails", "failed"),
        ("test_fails_in_teardown", "failed"),
    ]
    assert "the cause" in kept[2]["why"]
    assert "on the way out" in kept[3]["why"]
    again = run("-k", "not kills")
    for part in ("1 skipped", "2 deselected", "1 failed", "1 error"):
        assert part in again.stdout


@pytest.mark.process
def test_tests_that_passed_are_run_again_when_their_file_or_the_package_has_changed(tmp_path):
    test = tmp_path / "test_some.py"
    test.write_text("def test_passes(): pass")
    assert "1 passed" in remembering(tmp_path).stdout
    assert remembering(tmp_path).returncode == 5
    test.write_text("def test_passes(): assert 1")
    assert "1 passed" in remembering(tmp_path).stdout
    (line, again) = (line for line in lines.read(tmp_path / "tests.jsonl") if line["outcome"] != "begun")
    assert line["code"] != again["code"]
    package, own = again["code"].split("-")
    assert (package, own) == (code_of(ROOT / "autotune"), code_of(test))
    (tmp_path / "tests.jsonl").write_text(json.dumps(again | {"code": f"another-{own}"}))
    assert "1 passed" in remembering(tmp_path).stdout


@pytest.mark.process
def test_tests_in_several_processes_are_remembered_once_each(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS.partition("def test_kills")[0])
    remembering(tmp_path, "-n", "2")
    kept = ended(tmp_path)
    assert sorted(kept) == [
        ("test_fails", "failed"),
        ("test_fails_in_teardown", "failed"),
        ("test_is_skipped", "skipped"),
        ("test_passes", "passed"),
    ]
    remembering(tmp_path, "-n", "2")
    again = [name for name, _ in ended(tmp_path)[len(kept) :]]
    assert sorted(again) == ["test_fails", "test_fails_in_teardown", "test_is_skipped"]


def ended(folder: Path) -> list[tuple[str, str]]:
    """The names of the tests that ended, and what they came to."""
    found = [line for line in lines.read(folder / "tests.jsonl") if line["outcome"] != "begun"]
    return [(line["test"].rpartition("::")[2], line["outcome"]) for line in found]


@pytest.mark.process
def test_a_test_that_takes_its_process_along_hinders_no_other_one(tmp_path):
    some = "".join(f"def test_{number}(): pass\n" for number in range(12))
    kills = "def test_kills():\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (tmp_path / "test_some.py").write_text(kills + some + kills.replace("kills", "kills_too"))
    remembering(tmp_path, "-n", "2")
    passed = {name for name, outcome in ended(tmp_path) if outcome == "passed"}
    assert passed == {f"test_{number}" for number in range(12)}
    assert {name for name, outcome in ended(tmp_path) if outcome == "failed"} == {"test_kills", "test_kills_too"}


@pytest.mark.process
def test_what_was_begun_and_did_not_end_comes_last_the_next_time(tmp_path):
    (tmp_path / "test_some.py").write_text("def test_hangs(): pass\ndef test_fails(): assert False\n")
    lines.append(tmp_path / "tests.jsonl", {"test": "test_some.py::test_hangs", "outcome": "begun"})
    remembering(tmp_path)
    assert [name for name, _ in ended(tmp_path)] == ["test_fails", "test_hangs"]


def test_code_is_another_one_when_a_file_below_has_changed_or_has_another_name(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "one.py").write_text("1")
    before = code_of(tmp_path)
    (tmp_path / "notes.txt").write_text("not code")
    assert code_of(tmp_path) == before
    (tmp_path / "part" / "one.py").write_text("2")
    assert code_of(tmp_path) != before
    (tmp_path / "part" / "one.py").write_text("1")
    (tmp_path / "part" / "one.py").rename(tmp_path / "part" / "two.py")
    assert code_of(tmp_path) != before


# Counts to 40 from where it was, in two of the files that are kept.
COUNTS = """
import pathlib, sqlite3, sys, time
from trials import lines
state = pathlib.Path(sys.argv[1])
database = sqlite3.connect(state / "studies.db")
database.execute("PRAGMA journal_mode=WAL")
database.execute("CREATE TABLE IF NOT EXISTS counted (number INTEGER PRIMARY KEY)")
for number in range(len(lines.read(state / "tests.jsonl")), 40):
    with database:
        database.execute("INSERT OR IGNORE INTO counted VALUES (?)", (number,))
    (state / "records").mkdir(exist_ok=True)
    (state / "records" / f"{number}.json").write_text("{}")
    lines.append(state / "tests.jsonl", {"number": number})
    time.sleep(0.1)
"""
SITS = """
import pathlib, sys, time
from trials.sittings.folder import Folder
from trials.sittings.sitting import Sitting, Step
folder, work = map(pathlib.Path, sys.argv[1:3])
kept = Folder(folder, work)
kept.unpack()
step = Step("counts", (sys.executable, "-c", sys.argv[3], str(work)), 0.0, 60.0)
Sitting([step], work, ends_at=time.monotonic() + 100.0, code="one", keep=kept.keep).take()
kept.keep(all_of_it=True)
"""


def counted(folder: Path) -> tuple[list[int], list[int], list[int]]:
    """Read what a folder has of the counting, by file."""
    numbers: list[int] = []
    records: list[int] = []
    if (folder / "studies.db").exists():
        with sqlite3.connect(folder / "studies.db") as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            numbers = [number for (number,) in database.execute("SELECT number FROM counted ORDER BY number")]
    if (folder / "records.tar.gz").exists():
        with tarfile.open(folder / "records.tar.gz") as archive:
            records = sorted(int(Path(name).stem) for name in archive.getnames())
    return [line["number"] for line in lines.read(folder / "tests.jsonl")], numbers, records


@pytest.mark.process
def test_a_sitting_that_is_cut_off_anywhere_goes_on_from_its_folder(tmp_path):
    folder, work = tmp_path / "folder", tmp_path / "work"
    command = (sys.executable, "-c", SITS, str(folder), str(work), COUNTS)
    random_ = random.Random(0)
    before = 0
    for _ in range(10):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as cut_off:
            deadline = time.monotonic() + 60
            while not (work / "records").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random_.uniform(0.0, 1.5))
            # All at once, as where a machine is gone.
            for one in [*psutil.Process(cut_off.pid).children(recursive=True), cut_off]:
                one.kill()
        in_lines, in_database, in_records = counted(folder)
        assert in_lines == list(range(len(in_lines)))
        assert in_database == list(range(len(in_database)))
        assert in_records == list(range(len(in_records)))
        assert len(in_lines) <= min(len(in_database), len(in_records)), "what is said to be found is there"
        assert len(in_lines) >= before, "what was kept is kept"
        before = len(in_lines)
        kept = {path.name for path in folder.iterdir() if path.suffix != ".new"} if folder.exists() else set()
        assert len(kept) <= 6
    assert before > 0, "no cut has hit anything"
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert counted(folder) == ([*range(40)],) * 3


def test_logs_that_are_too_much_for_a_file_lose_the_largest(tmp_path):
    work = tmp_path / "work"
    (work / "logs").mkdir(parents=True)
    random_ = random.Random(0)
    for number in range(12):
        (work / "logs" / f"{number}.log").write_bytes(random_.randbytes((number + 1) * 300_000))
    Folder(tmp_path / "folder", work).keep(all_of_it=True)
    archive = tmp_path / "folder" / "logs.tar.gz"
    assert archive.stat().st_size <= MOST_BYTES
    with tarfile.open(archive) as opened:
        kept = {int(Path(name).stem) for name in opened.getnames()}
    assert kept == set(range(len(kept)))
    assert len(kept) > 5


def test_what_compilers_made_is_no_log(tmp_path):
    work = tmp_path / "work"
    for name in ("logs/one.log", "peers/run/stderr.log", "peers/run/caches/x/kernel.cubin"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    Folder(tmp_path / "folder", work).keep(all_of_it=True)
    with tarfile.open(tmp_path / "folder" / "logs.tar.gz") as archive:
        assert archive.getnames() == ["logs/one.log", "peers/run/stderr.log"]


def test_a_fact_that_cannot_be_looked_at_stops_no_other(tmp_path, monkeypatch, capsys):
    def fails(_: facts.Device):
        before = json.loads((tmp_path / "facts.json").read_text())
        assert [(one["name"], one["holds"]) for one in before] == [("first", None), ("second", False)]
        raise OSError("no such thing")

    looks = [
        ("first", "", lambda _: ({"a": 1}, None)),
        ("second", "it works", fails),
        ("third", "", lambda _: (1, True)),
    ]
    monkeypatch.setattr(facts, "_LOOKS", looks)
    found = facts.look(tmp_path / "facts.json")
    assert [(fact.name, fact.seen, fact.holds) for fact in found] == [
        ("first", {"a": 1}, None),
        ("second", "OSError: no such thing", False),
        ("third", 1, True),
    ]
    assert "second: NOT as believed" in capsys.readouterr().out


def test_a_fact_that_took_its_process_along_is_told_and_not_looked_at_again(tmp_path, monkeypatch):
    def ends(_: facts.Device):
        raise SystemExit("gone")

    monkeypatch.setattr(facts, "_LOOKS", [("first", "", ends), ("second", "", lambda _: (2, True))])
    with pytest.raises(SystemExit):
        facts.look(tmp_path / "facts.json")
    found = facts.look(tmp_path / "facts.json")
    assert [(fact.name, fact.holds) for fact in found] == [("first", False), ("second", True)]
    assert "took its process along" in found[0].seen


@pytest.mark.process
def test_what_an_interpreter_lacks_is_installed_beside_it(tmp_path, monkeypatch):
    site, made = tmp_path / "site", tmp_path / "wheels"
    made.mkdir()
    with zipfile.ZipFile(made / "tiny_thing-1.0-py3-none-any.whl", "w") as wheel:
        info = "tiny_thing-1.0.dist-info"
        wheel.writestr("tiny_thing.py", "A = 1\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(wheels, "_wanted", lambda: [Requirement("tiny-thing>=1"), Requirement("pytest")])
    monkeypatch.syspath_prepend(str(site))
    wheels.install(site, made)
    assert [path.name for path in site.glob("*.py")] == ["tiny_thing.py"]
    written = (site / "tiny_thing.py").stat().st_mtime_ns
    wheels.install(site, made)
    assert (site / "tiny_thing.py").stat().st_mtime_ns == written, "it is there by now"


def test_what_an_interpreter_lacks_and_no_wheel_has_is_named_with_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "_is_here", lambda requirement: requirement.name != "optuna")
    with pytest.raises(SystemExit, match="has no optuna as autotune needs it"):
        wheels.install(tmp_path / "site", ROOT / "build/no-such-wheels")


def test_wheels_are_of_what_torch_and_transformers_do_not_bring():
    needed = wheels.names()
    assert {"optuna", "alembic", "mako", "sqlalchemy", "colorlog", "pytest-xdist", "execnet"} <= set(needed)
    assert not {"torch", "numpy", "scipy", "transformers", "jinja2", "sympy"} & set(needed)


def found_on(device: str, folder: Path) -> None:
    Journal(folder / "journal.jsonl").begin(device)
    seen = {"name": device, "uuid": "GPU-1", "said": f"no such file: {ROOT}/a.py"}
    fact = facts.Fact("NVML", "", seen, holds=True, seconds=0.1)
    (folder / "facts.json").write_text(json.dumps([dataclasses.asdict(fact)]))
    for outcome in ("begun", "failed"):
        lines.append(folder / "tests.jsonl", {"test": "a", "outcome": outcome, "why": f"File {ROOT}/secret.py"})


def test_what_was_found_lands_in_the_folder_of_its_device_without_what_tells_of_the_machine(tmp_path):
    folder, records = tmp_path / "folder", tmp_path / "records"
    found_on("NVIDIA H100 80GB HBM3", folder)
    landed = land(folder, records)
    assert [path.relative_to(records).as_posix() for path in landed] == [
        "nvidia-h100-80gb-hbm3/facts.json",
        "nvidia-h100-80gb-hbm3/tests.json",
    ]
    (fact,) = json.loads(landed[0].read_text())
    assert fact["seen"] == {"name": "NVIDIA H100 80GB HBM3", "uuid": None, "said": "no such file: /..."}
    assert json.loads(landed[1].read_text()) == [{"test": "a", "outcome": "failed"}]


def test_a_study_lands_with_what_was_foreseen_until_peers_were_measured_beside_it(tmp_path):
    folder, records = tmp_path / "folder", tmp_path / "records"
    found_on("a card", folder)
    with open_store(f"sqlite:///{folder / 'studies.db'}", create=True) as store:
        session = Session(tmp_path / "study")
        session.store, session.study = store, store.create("toy-24GB", session.spec)
        session.tune()
        study = store.open("toy-24GB").record()
    path = records / "a-card" / "study-toy-24GB.json"
    assert path in land(folder, records)
    landed = read_record(path)
    assert landed.study.verdict == study.verdict
    assert landed.foreseen_bytes == Record("", "", (), 1, (1, 1)).with_study(study).foreseen_bytes
    run = Run("own", Setting("", 0), OutOfMemory("no"), 1.0, "one", -1)
    write_record(records / "a-card" / "toy-24GB.json", dataclasses.replace(landed, runs=(run,)))
    assert path not in land(folder, records)
    assert not path.exists()


def test_neither_a_rehearsal_nor_an_empty_folder_lands(tmp_path):
    with pytest.raises(SystemExit, match="begin with `make gpu PART=first`"):
        land(tmp_path / "empty", tmp_path / "records")
    found_on("null GPU as NVIDIA H100 80GB HBM3", tmp_path / "rehearsal")
    with pytest.raises(SystemExit, match="of a rehearsal"):
        land(tmp_path / "rehearsal", tmp_path / "records")
