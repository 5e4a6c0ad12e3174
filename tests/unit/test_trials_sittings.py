"""Sittings: what is taken in which, and what is kept of one that is cut off."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fingerprint import code_of
from tests.remembering import NOTHING_RAN
from trials.run import GOES_ON

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "trials/sittings.py"


@pytest.fixture(scope="module")
def sittings():
    spec = importlib.util.spec_from_file_location("sittings_of_trials", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def step(
    sittings, name: str, code: str, *, least_s: float = 0.0, most_s: float = 60.0, arguments: tuple[str, ...] = ()
):
    return sittings.Step(name, (sys.executable, "-c", code, *arguments), least_s, most_s)


def sit(sittings, state: Path, *steps, budget_s: float = 200.0, code: str = "one"):
    return {entry.step: entry for entry in sittings.Sitting(steps, state, budget_s=budget_s, code=code).take()}


@pytest.mark.process
def test_a_finished_step_is_not_taken_again_and_one_that_goes_on_is(sittings, tmp_path):
    done, open_ = step(sittings, "done", "pass"), step(sittings, "goes on", f"raise SystemExit({sittings.GOES_ON})")
    first = sit(sittings, tmp_path, done, open_)
    assert {name: entry.status for name, entry in first.items()} == {"done": "finished", "goes on": "open"}
    assert list(sit(sittings, tmp_path, done, open_)) == ["goes on"]


@pytest.mark.process
def test_a_step_that_failed_is_taken_again_when_the_code_has_changed(sittings, tmp_path, capsys):
    fails = step(sittings, "fails", "print('the cause'); raise SystemExit(1)")
    found = sit(sittings, tmp_path, fails)["fails"]
    assert (found.status, found.exit_status) == ("failed", 1)
    assert "the cause" in capsys.readouterr().out
    assert sit(sittings, tmp_path, fails) == {}
    assert sit(sittings, tmp_path, fails, code="two")["fails"].status == "failed"


@pytest.mark.process
def test_a_step_that_failed_is_taken_again_with_the_same_code_if_that_is_asked_for(sittings, tmp_path):
    fails, done = step(sittings, "fails", "raise SystemExit(1)"), step(sittings, "done", "pass")
    sit(sittings, tmp_path, fails, done)
    again = sittings.Sitting((fails, done), tmp_path, budget_s=200.0, code="one", again=True).take()
    assert [entry.step for entry in again] == ["fails"]


@pytest.mark.process
def test_what_comes_after_another_step_waits_for_its_end_and_is_taken_again_when_that_was(sittings, tmp_path, capsys):
    def study(code: str, least_s: float = 0.0):
        return step(sittings, "study", code, least_s=least_s)

    peers = dataclasses.replace(step(sittings, "peers", "pass"), after="study")
    assert sit(sittings, tmp_path, study("pass", least_s=100.0), peers, budget_s=50.0) == {}
    assert "peers: left until 'study' has ended" in capsys.readouterr().out
    assert list(sit(sittings, tmp_path, study(f"raise SystemExit({sittings.GOES_ON})"), peers)) == ["study"]
    assert list(sit(sittings, tmp_path, study("raise SystemExit(1)"), peers)) == ["study", "peers"]
    assert sit(sittings, tmp_path, study("pass"), peers) == {}
    assert list(sit(sittings, tmp_path, study("pass"), peers, code="two")) == ["study", "peers"]
    assert sit(sittings, tmp_path, study("pass"), peers, code="three") == {}


@pytest.mark.process
def test_a_step_finds_our_packages_and_those_that_were_brought_along(sittings, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "brought"))
    code = "import os, sys; raise SystemExit(os.environ['PYTHONPATH'] != sys.argv[1])"
    expected = os.pathsep.join([str(ROOT), str(tmp_path / "brought")])
    assert (
        sit(sittings, tmp_path, step(sittings, "it: a/b", code, arguments=(expected,)))["it: a/b"].status == "finished"
    )
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["it-a-b.log"]


def test_steps_are_those_that_the_devices_memory_is_for_and_the_most_telling_come_first(sittings, tmp_path):
    def names(gib: float) -> list[str]:
        return [one.name for one in sittings.steps(tmp_path, tmp_path, memory_bytes=int(gib * 2**30))]

    found = names(79.1)
    assert len(set(found)) == len(found)
    assert [name.partition(":")[0] for name in found[:3]] == ["tests", "tests", "noise"]
    number = sum(name.startswith("study: ") for name in found)
    assert found[3:6] == [f"study: {case}" for case in sittings.FIRST]
    cases = [name.removeprefix("study: ") for name in found[3 : 3 + number]]
    after = [f"peers: {case}" for case in cases]
    assert found[3 + number :] == [*after, "landscape: gpt2", *(f"more rounds of {name}" for name in after)]
    assert not any("40GB" in name or "80GB" in name for name in names(23.7))


def test_peers_have_three_rounds_before_any_has_more_and_these_come_after_the_first(sittings, tmp_path):
    found = {one.name: one for one in sittings.steps(tmp_path, tmp_path, memory_bytes=80 * 2**30)}
    first, more = (found[f"{what}peers: gpt2-24GB"] for what in ("", "more rounds of "))
    assert first.command == (*more.command, "--rounds", "3")
    assert (first.after, more.after) == ("study: gpt2-24GB", first.name)


@pytest.mark.process
def test_tests_are_taken_again_when_the_code_has_changed_after_all_that_is_not_known(sittings, tmp_path):
    tests = dataclasses.replace(step(sittings, "tests", "pass"), is_of_code=True)
    study = step(sittings, "study", f"raise SystemExit({sittings.GOES_ON})")
    assert list(sit(sittings, tmp_path, tests, study)) == ["tests", "study"]
    assert list(sit(sittings, tmp_path, tests, study)) == ["study"]
    assert list(sit(sittings, tmp_path, tests, study, code="two")) == ["study", "tests"]
    assert [one.name for one in sittings.steps(tmp_path, tmp_path, memory_bytes=80 * 2**30) if one.is_of_code] == [
        "tests: fork server and NVML",
        "tests: plans and gradients",
    ]


def test_every_step_has_a_time_in_which_it_is_begun_and_ends_in_a_sitting(sittings, tmp_path):
    for memory_bytes in (None, 80 * 2**30):
        for one in sittings.steps(tmp_path, tmp_path, memory_bytes=memory_bytes):
            assert one.least_s <= 9 * 60 - sittings.TO_END_S, one.name
            assert one.least_s < one.most_s, one.name


@pytest.mark.process
def test_a_step_is_told_its_time_and_asked_to_end_when_it_is_over(sittings, tmp_path):
    code = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1]).write_text(sys.argv[2])
    raise SystemExit(0)
signal.signal(signal.SIGINT, end)
time.sleep(60)
"""
    kept = tmp_path / "kept"
    slow = step(sittings, "slow", code, most_s=2.0, arguments=(str(kept), "{seconds}"))
    assert sit(sittings, tmp_path, slow)["slow"].status == "finished"
    assert kept.read_text() == "2"


@pytest.mark.process
def test_a_step_that_does_not_end_when_asked_is_killed_with_what_it_started_and_goes_on_next_time(
    sittings, tmp_path, monkeypatch
):
    monkeypatch.setattr(sittings, "TO_END_S", 0.5)
    code = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""
    pid = tmp_path / "pid"
    stubborn = step(sittings, "stubborn", code, most_s=3.0, arguments=(str(pid),))
    entry = sit(sittings, tmp_path, stubborn)["stubborn"]
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
def test_what_a_killed_sitting_has_left_running_is_ended_by_the_next_one(sittings, tmp_path):
    pid = tmp_path / "pid"
    waits = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    code = f"""
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("sittings", {str(PATH)!r})
module = sys.modules["sittings"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
step = module.Step("waits", (sys.executable, "-c", {waits!r}, {str(pid)!r}), 0.0, 60.0)
module.Sitting([step], pathlib.Path({str(tmp_path)!r}), budget_s=100.0, code="one").take()
"""
    with subprocess.Popen((sys.executable, "-c", code), cwd=ROOT) as sitting:
        deadline = time.monotonic() + 60
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        sitting.kill()
    left = int(pid.read_text())
    assert _lives(left)
    assert sit(sittings, tmp_path, step(sittings, "another", "pass"))["another"].status == "finished"
    deadline = time.monotonic() + 30
    while _lives(left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(left)


@pytest.mark.process
def test_what_has_no_time_is_left_and_what_comes_after_it_may_be_taken(sittings, tmp_path, capsys):
    long, short = step(sittings, "long", "pass", least_s=100.0), step(sittings, "short", "pass")
    assert list(sit(sittings, tmp_path, long, short, budget_s=50.0)) == ["short"]
    assert "long: left for a sitting with 100 s" in capsys.readouterr().out
    assert list(sit(sittings, tmp_path, long, short)) == ["long"]


def test_a_line_that_was_cut_off_hides_no_other(sittings, tmp_path):
    journal = sittings.Journal(tmp_path / "journal.jsonl")
    one = sittings.Entry("one", "finished", 1.0, 0, "code")
    journal.add(one)
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"step": "two", "sta')
    assert journal.entries() == [one]
    journal.add(one)
    assert journal.entries() == [one, one]
    assert not journal.is_open(sittings.Step("one", (), 0, 0), "code")
    assert journal.is_open(sittings.Step("two", (), 0, 0), "code")


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

def test_hangs():
    import time
    time.sleep(100)

def test_kills(tmp_path_factory):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


def remembering(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder, and remember there what they come to."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.remembering")
    return subprocess.run(
        (*command, "--rootdir", str(folder), "--remember", str(folder / "tests.jsonl"), "--longest", "2", str(folder),
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
    lines = [json.loads(line) for line in remembered.read_text().splitlines()]
    assert [(line["test"].rpartition("::")[2], line["outcome"]) for line in lines] == [
        ("test_passes", "passed"),
        ("test_is_skipped", "skipped"),
        ("test_fails", "failed"),
        ("test_fails_in_teardown", "failed"),
        ("test_hangs", "failed"),
    ]
    assert "the cause" in lines[2]["why"]
    assert "on the way out" in lines[3]["why"]
    assert "it took more than 2 s" in lines[4]["why"]
    again = run("-k", "not kills")
    for part in ("1 skipped", "2 deselected", "2 failed", "1 error"):
        assert part in again.stdout


@pytest.mark.process
def test_tests_that_passed_are_run_again_when_their_file_or_the_package_has_changed(tmp_path):
    test = tmp_path / "test_some.py"
    test.write_text("def test_passes(): pass")
    assert "1 passed" in remembering(tmp_path).stdout
    assert remembering(tmp_path).returncode == 5
    test.write_text("def test_passes(): assert 1")
    assert "1 passed" in remembering(tmp_path).stdout
    (line, again) = (json.loads(line) for line in (tmp_path / "tests.jsonl").read_text().splitlines())
    assert line["code"] != again["code"]
    package, own = again["code"].split("-")
    assert (package, own) == (code_of(ROOT / "autotune"), code_of(test))
    (tmp_path / "tests.jsonl").write_text(json.dumps(again | {"code": f"another-{own}"}))
    assert "1 passed" in remembering(tmp_path).stdout


@pytest.mark.process
def test_where_all_tests_are_skipped_nothing_was_found_out(tmp_path):
    skipped = "import pytest\n@pytest.mark.skip\ndef test_is_skipped(): pass\n"
    passes = "def test_passes(): pass\n"
    test = tmp_path / "test_some.py"
    assert NOTHING_RAN == GOES_ON, "a sitting takes it again"
    test.write_text(skipped)
    assert [remembering(tmp_path).returncode for _ in range(2)] == [NOTHING_RAN] * 2
    test.write_text(skipped + passes)
    assert [remembering(tmp_path).returncode for _ in range(2)] == [0, 0], "one passes, and has passed"
    assert remembering(tmp_path, "-k", "skipped").returncode == NOTHING_RAN, "nobody asked for the other one"


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


@pytest.mark.process
def test_an_interpreter_without_our_plugins_collects_the_tests_of_gpus():
    """``make gpu`` installs nothing: an option of pytest-timeout in our settings stopped it at once."""
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "gpu", "tests/contract/test_memory_meter.py"),
        cwd=ROOT, env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
