"""The interpreter that the user names is looked at before a run is spent on it."""

from __future__ import annotations

import sys

import pytest

from autotune.errors import UsageError
from autotune.launch import check_interpreter


@pytest.fixture
def stub(tmp_path):
    """Makes a program that answers as told, whatever it is asked."""

    def make(answer):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{answer}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_this_interpreter_will_do():
    check_interpreter(sys.executable)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("echo 3 9 True", "is Python 3.9, which is too old"),
        ("echo 3 11 False", "has no torch"),
        ("echo hello", "does not answer as Python does"),
        ("echo broken pipe dream >&2; exit 7", "does not answer as Python does: broken pipe dream"),
        ("exit 7", "it ended with status 7"),
    ],
)
def test_one_that_will_not_do_is_an_error_that_says_why(stub, answer, cause):
    with pytest.raises(UsageError, match=cause) as caught:
        check_interpreter(stub(answer))
    assert "--python" in caught.value.hint


def test_one_that_is_no_program_is_an_error(tmp_path):
    path = tmp_path / "python"
    path.write_text("not a program\n")
    with pytest.raises(UsageError, match="Permission denied"):
        check_interpreter(str(path))


def test_one_that_never_answers_is_an_error(stub, monkeypatch):
    monkeypatch.setattr("autotune.launch.interpreter._TIMEOUT_S", 0.2)
    with pytest.raises(UsageError, match="did not answer"):
        check_interpreter(stub("exec sleep 30"))
