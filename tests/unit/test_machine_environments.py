"""The environment of an engine is made once, whole or not at all, and whatever fails names its cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autotune.errors import RunError, UsageError
from autotune.machine import install
from autotune.machine.engines import list_engines
from autotune.machine.environments import (
    MARKER,
    REQUIREMENTS,
    TORCH,
    cache_folder,
    engine_interpreter,
    environment_folder,
)
from autotune.machine.install import find_python, install_engine
from autotune.machine.interpreter import ask_interpreter
from autotune.records.engines import ENGINES

pytestmark = pytest.mark.process

# Answers as Python 3.11 does, and does what pip, venv and the compiler do as far as it shows from outside. Each call
# leaves a line in `calls`; a file `do-WORD` beside it holds what a call with that word does instead.
PYTHON = """#!/bin/bash
state={state}
echo "$*" >> $state/calls
for own in $state/do-*; do
    word=${{own##*do-}}
    if [[ -e $own && "$*" == *$word* ]]; then source $own; fi
done
case "$*" in
    -c*) echo '{{"version": [3, 11, 7], "torch": "2.13.0", "has_headers": true}}' ;;
    *venv*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *setup.py*) mkdir -p "$4/lib.here" && touch "$4/lib.here/aten_op_executor.so" ;;
    *onnxruntime*) mkdir -p {site}/onnxruntime/training/ortmodule/torch_cpp_extensions/cpu/aten_op_executor ;;
esac
"""

INSTALL = """
import sys
from autotune.machine.install import install_engine
install_engine(python=sys.argv[1], on_step=print)
"""


class Machine:
    """A Python 3.11 that acts, and a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self.python = folder / "python3.11"
        self.environment = environment_folder()
        self.python.write_text(PYTHON.format(state=self.state, site=self.environment / "lib/python3.11/site-packages"))
        self.python.chmod(0o755)
        self.steps: list[str] = []

    def install(self) -> str:
        return install_engine(python=str(self.python), on_step=self.steps.append)

    def act(self, word: str, commands: str) -> None:
        (self.state / f"do-{word}").write_text(commands + "\n")

    def behave(self) -> None:
        for path in self.state.glob("do-*"):
            path.unlink()

    @property
    def calls(self) -> list[str]:
        return (self.state / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    return Machine(tmp_path)


def test_the_cache_folder_is_autotunes_own_variable_then_xdgs_then_the_home_folders(monkeypatch):
    monkeypatch.setenv("HOME", "/home/one")
    assert cache_folder({"AUTOTUNE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/autotune")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path("/home/one/.cache/autotune")
    assert cache_folder({}) == Path("/home/one/.cache/autotune")


def test_an_environment_is_made_once_and_then_found(machine):
    python = machine.install()
    assert python == str(machine.environment / "bin/python") == engine_interpreter("ortmodule")
    assert (machine.environment / "lib/python3.11/site-packages/onnxruntime/training/ortmodule/torch_cpp_extensions"
            / "aten_op_executor.so").exists()  # fmt: skip
    done, steps = len(machine.calls), len(machine.steps)
    assert machine.install() == python
    assert (len(machine.calls), len(machine.steps)) == (done, steps), "it is there: nothing is to be done"


def test_packages_are_pinned_to_what_was_seen_to_work(machine):
    machine.install()
    packages = next(call for call in machine.calls if "onnxruntime-training-cpu" in call)
    for requirement in (TORCH, *REQUIREMENTS):
        assert requirement in packages.split()
    assert "+cpu" in TORCH, "no gigabytes of CUDA"
    assert "--find-links https://download.pytorch.org" in packages, "which the package index does not have"


def test_before_it_is_made_the_engine_says_how(machine):
    with pytest.raises(UsageError) as caught:
        engine_interpreter("ortmodule")
    assert "autotune engines install ortmodule" in caught.value.hint
    assert engine_interpreter("aot") == sys.executable, "runs where autotune does, unless told otherwise"
    assert engine_interpreter("ortmodule", named=str(machine.python)) == str(machine.python)


@pytest.mark.parametrize("word", ["venv", "pip", "setup.py", "-P"])
def test_a_step_that_fails_leaves_no_environment_and_says_why(machine, word):
    machine.act(word, "echo the disk is full >&2; exit 3")
    with pytest.raises(RunError, match="ended with status 3") as caught:
        machine.install()
    assert "the disk is full" in caught.value.detail
    log = next(machine.environment.parent.glob("*.log"))
    assert str(log) in caught.value.hint
    with pytest.raises(UsageError):
        engine_interpreter("ortmodule")
    machine.behave()
    assert machine.install()


def test_a_step_that_hangs_is_ended_with_all_its_processes(machine, monkeypatch):
    machine.act("pip", f"sleep 300 & echo $! > {machine.state}/sleeper; wait")
    monkeypatch.setattr(install, "_LONGEST_S", 0.5)
    with pytest.raises(RunError, match="took longer than"):
        machine.install()
    assert_gone(int((machine.state / "sleeper").read_text()))


def test_ctrl_c_ends_it_and_the_next_call_makes_it_anew(machine):
    machine.act("pip", f"sleep 300 & echo $! > {machine.state}/sleeper; wait")
    threading.Thread(target=interrupt_when, args=(machine.state / "sleeper",)).start()
    with pytest.raises(KeyboardInterrupt):
        machine.install()
    assert_gone(int((machine.state / "sleeper").read_text()))
    (machine.environment / "half").touch()
    machine.behave()
    machine.install()
    assert not (machine.environment / "half").exists()


def test_what_a_killed_installation_left_running_is_waited_for(machine):
    """The lock is held by every program that works on the folder, so that two never do."""
    told = f"{machine.state}/worker"
    machine.act("pip", f"echo $$ > {told}.part; mv {told}.part {told}; exec sleep 300")
    with subprocess.Popen([sys.executable, "-c", INSTALL, str(machine.python)], stdout=subprocess.DEVNULL) as killed:
        wait_for(machine.state / "worker")
        killed.kill()
    worker = int((machine.state / "worker").read_text())
    machine.behave()
    with pytest.raises(RunError, match="another process is making"):
        machine.install()
    os.kill(worker, signal.SIGKILL)
    assert_gone(worker)
    machine.install()


def test_an_environment_without_its_marker_or_its_python_is_none(machine):
    machine.install()
    marker = machine.environment / MARKER
    marker.unlink()
    with pytest.raises(UsageError):
        engine_interpreter("ortmodule")
    marker.touch()
    assert engine_interpreter("ortmodule")
    (machine.environment / "bin/python").unlink()
    with pytest.raises(UsageError):
        engine_interpreter("ortmodule")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"version": [3, 12, 1], "torch": null, "has_headers": true}', "is Python 3.12"),
        ('{"version": [3, 11, 7], "torch": null, "has_headers": false}', "no headers"),
        ("hello", "does not answer as Python does"),
    ],
)
def test_a_python_that_will_not_do_says_why(tmp_path, answer, problem):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    with pytest.raises(UsageError, match=problem) as caught:
        find_python(str(path))
    assert "Python 3.11" in caught.value.hint


def test_one_on_the_path_is_found(machine, monkeypatch):
    monkeypatch.setenv("PATH", f"{machine.python.parent}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert find_python(None) == str(machine.python)


def test_every_engine_is_listed_with_what_it_is_missing(machine):
    states = {state.name: state for state in list_engines(str(machine.python))}
    assert set(states) == set(ENGINES)
    assert not states["ortmodule"].usable
    assert "autotune engines install ortmodule" in states["ortmodule"].next_step
    machine.install()
    states = {state.name: state for state in list_engines(str(machine.python))}
    assert states["ortmodule"].usable
    assert states["ortmodule"].python == str(machine.environment / "bin/python")


def test_without_a_compiler_what_generates_code_runs_on_gpus_only(machine, monkeypatch):
    monkeypatch.setenv("PATH", str(machine.state))
    monkeypatch.delenv("CXX", raising=False)
    states = {state.name: state for state in list_engines(str(machine.python))}
    assert states["inductor"].found == "torch 2.13.0; no C++ compiler: on GPUs only"
    assert states["aot"].found == "torch 2.13.0"
    with pytest.raises(UsageError, match="there is no C\\+\\+ compiler"):
        machine.install()
    (machine.state / "my-compiler").touch(mode=0o755)
    monkeypatch.setenv("CXX", "my-compiler")
    states = {state.name: state for state in list_engines(str(machine.python))}
    assert states["inductor"].found == "torch 2.13.0"


def test_an_interpreter_without_torch_runs_no_engine(tmp_path):
    path = tmp_path / "python"
    for answer, found, next_step in (
        ('echo \'{"version": [3, 11, 7], "torch": null, "has_headers": true}\'', "has no torch", "install torch"),
        ("exit 1", "does not answer as Python does", "--python"),
    ):
        ask_interpreter.cache_clear()
        path.write_text(f"#!/bin/sh\n{answer}\n")
        path.chmod(0o755)
        states = {state.name: state for state in list_engines(str(path))}
        assert not states["aot"].usable
        assert found in states["aot"].found
        assert next_step in states["aot"].next_step


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 240
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def interrupt_when(path: Path) -> None:
    wait_for(path)
    os.kill(os.getpid(), signal.SIGINT)


def assert_gone(pid: int) -> None:
    """A killed process may still be there for a moment, until somebody has taken its status."""
    deadline = time.monotonic() + 240
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
