"""`autotune dashboard` as somebody starts it, and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from autotune.store.database import open_store
from tests.fakes.stored_study import store_study
from tests.fakes.study_record import study_record

pytestmark = pytest.mark.process

DEADLINE_S = 60.0


@contextmanager
def dashboard(folder, *options, **variables):
    """The process, when it listens, and the address that it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    command = [sys.executable, "-P", "-m", "autotune", "dashboard", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment, **pipes) as process:
        try:
            yield process, process.stdout.readline().rpartition(": ")[2].strip()
        finally:
            process.kill()


def read(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def test_it_shows_the_studies_of_a_folder_until_ctrl_c_and_writes_nothing_else(tmp_path):
    with dashboard(tmp_path, "--port", "0") as (process, address):
        assert "There are no studies in this database yet" in read(address)
        with open_store(str(tmp_path / ".autotune" / "studies.db")) as store:
            store_study(store, study_record(name="one"))
        assert "Recompute 4 of 12 Blocks" in read(address)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
        said = process.stderr.read()
    assert process.returncode == 0
    assert said == "Ctrl-C ends it.\n"
    assert [path.name for path in tmp_path.iterdir()] == [".autotune"]


def test_for_other_machines_it_asks_for_the_token_that_it_prints(tmp_path):
    with dashboard(tmp_path, "--port", "0", "--host", "0.0.0.0") as (_, address):
        place, token = address.split("?token=")
        assert len(token) >= 32
        own = place.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(own)
        assert "Studies" in read(own, Authorization=f"Bearer {token}")


def test_a_token_of_ones_own_is_asked_for_here_too(tmp_path):
    with dashboard(tmp_path, "--port", "0", AUTOTUNE_DASHBOARD_TOKEN="mine") as (_, address):
        assert address.endswith("/?token=mine")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(address.partition("?")[0])


def test_a_port_that_is_taken_is_told_or_passed_over_where_none_was_named(tmp_path):
    with dashboard(tmp_path) as (_, first), dashboard(tmp_path) as (_, second):
        assert first != second
        port = first.rstrip("/").rpartition(":")[2]
        with dashboard(tmp_path, "--port", port) as (third, printed):
            said = third.stderr.read()
            third.wait(DEADLINE_S)
    assert printed == ""
    assert third.returncode == 2
    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in said
    assert "next: choose another one: --port N" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--host", "203.0.113.7"), "cannot listen at 203.0.113.7"),
        (("--host", "no such host"), "cannot listen at no such host"),
        (("--storage", "none.db"), "none.db"),
        (("--port", "70000"), "--port"),
    ],
)
def test_what_cannot_be_is_told_with_the_next_step(tmp_path, options, told):
    with dashboard(tmp_path, *options) as (process, _):
        process.wait(DEADLINE_S)
        said = process.stderr.read()
    assert process.returncode != 0
    assert told in said
    assert "next: " in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_somebody_who_says_nothing_does_not_keep_others_from_it(tmp_path):
    with dashboard(tmp_path, "--port", "0") as (_, address):
        port = int(address.rstrip("/").rpartition(":")[2])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        try:
            began = time.monotonic()
            assert "Studies" in read(address)
            assert time.monotonic() - began < DEADLINE_S
        finally:
            for one in silent:
                one.close()
