"""The interpreter that the user names is looked at before a run is spent on it."""

from __future__ import annotations

import json
import sys
from importlib import metadata

import pytest

from autotune.errors import UsageError
from autotune.machine.interpreter import ask_interpreter, check_worker_python, find_interpreter, look_at_torch


def answer(version, torch):
    """What an interpreter prints when it is asked."""
    return f"echo '{json.dumps({'version': version, 'torch': torch, 'has_headers': True})}'"


pytestmark = pytest.mark.process


@pytest.fixture
def stub(tmp_path):
    """Makes a program that answers as told, whatever it is asked."""

    def make(commands):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{commands}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_this_interpreter_will_do():
    check_worker_python(sys.executable)


def test_an_interpreter_says_its_version_and_its_torch_which_is_not_imported_for_that():
    found = ask_interpreter(sys.executable)
    assert found.version == sys.version_info[:3]
    assert found.torch == metadata.version("torch")


@pytest.mark.parametrize("torch", ["2.11.0", "2.11.0a0+git1234", "3.0", "of unknown version"])
def test_a_torch_that_is_new_enough_or_does_not_say_its_version_will_do(stub, torch):
    check_worker_python(stub(answer([3, 11, 7], torch)))


def test_it_is_asked_once(stub, tmp_path):
    python = stub(f"echo asked >> {tmp_path}/calls; {answer([3, 11, 7], '2.13.0')}")
    assert ask_interpreter(python) == ask_interpreter(python)
    check_worker_python(python)
    assert (tmp_path / "calls").read_text() == "asked\n"


def test_what_it_prints_before_it_answers_does_not_matter(stub):
    assert ask_interpreter(stub(f"echo hello; {answer([3, 11, 7], None)}")).torch is None


def test_a_torch_that_cannot_be_imported_says_why(stub):
    assert look_at_torch(stub("echo broken pipe dream >&2; exit 7")).problem.endswith("broken pipe dream")


def test_an_interpreter_is_named_by_its_path_or_found_on_the_path(stub, monkeypatch, tmp_path):
    python = stub("")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_interpreter("python") == find_interpreter(python) == python
    assert find_interpreter(None) == sys.executable
    with pytest.raises(UsageError, match="there is no interpreter 'nopython'"):
        find_interpreter("nopython")


@pytest.mark.parametrize(
    ("commands", "cause"),
    [
        (answer([3, 9, 1], "2.4.0"), "is Python 3.9, which is too old"),
        (answer([3, 11, 7], None), "has no torch"),
        (
            answer([3, 11, 7], "2.9.1+cu128"),
            r"has torch 2.9.1\+cu128, which is too old: autotune needs torch 2.11 or newer",
        ),
        ("echo hello", "does not answer as Python does: hello"),
        ("echo '{}'", "does not answer as Python does"),
        ("echo broken pipe dream >&2; exit 7", "does not answer as Python does: broken pipe dream"),
        ("exit 7", "it ended with status 7"),
    ],
)
def test_one_that_will_not_do_is_an_error_that_says_why(stub, commands, cause):
    with pytest.raises(UsageError, match=cause) as caught:
        check_worker_python(stub(commands))
    assert "--python" in caught.value.hint


def test_one_that_is_no_program_is_an_error(tmp_path):
    path = tmp_path / "python"
    path.write_text("not a program\n")
    with pytest.raises(UsageError, match="Permission denied"):
        check_worker_python(str(path))


def test_one_that_never_answers_is_an_error(stub, monkeypatch):
    monkeypatch.setattr("autotune.machine.interpreter._ANSWER_S", 0.2)
    with pytest.raises(UsageError, match="did not answer"):
        check_worker_python(stub("exec sleep 30"))
