"""A script that the worker runs sees what it would see as ``python script.py arguments``."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, NoTrainingStep, ScriptError
from autotune.records.plan import Plan

from .conftest import Discover, MakeBundle
from .processes import QUICK, SCRIPTS, Finished, Request, in_worker, measure, run_autotune, run_plain

WITNESS = SCRIPTS / "what_it_sees.py"
# What the worker says to processes that the script starts, and the run's own compile caches.
OURS = {
    "PYTHONPATH",
    "AUTOTUNE_RUN",
    "AUTOTUNE_REFUSAL",
    "AUTOTUNE_REQUEST",
    "AUTOTUNE_PROCESS_MARK",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A ``PYTHONPATH`` of the user's own, with a module and a ``sitecustomize`` in it."""
    folder = tmp_path_factory.mktemp("user's python path")
    (folder / "marker.py").touch()
    (folder / "sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    return {"PYTHONPATH": str(folder)}


def seen(output: bytes) -> dict[str, Any]:
    (line,) = (line for line in output.splitlines() if line.startswith(b"SEEN "))
    found: dict[str, Any] = json.loads(line.removeprefix(b"SEEN "))
    return found


def compare(plain: dict[str, Any], under_us: dict[str, Any]) -> None:
    """Assert that a script sees the same but for the variables that lead its children to us."""
    ours, own = under_us.pop("python path"), plain.pop("python path")
    assert ours.split(os.pathsep)[1:] == [own]
    for found in (plain, under_us):
        found["variables"] = {name: value for name, value in found["variables"].items() if name not in OURS}
    assert under_us == plain


def test_a_measured_script_sees_what_plain_python_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    arguments = ("--flag", "two words", "--", "-x", "")
    plain = run_plain(WITNESS, *arguments, folder=tmp_path, environment=environment)
    request = Request("measure", str(WITNESS), arguments, (Configuration(),), QUICK)

    run = in_worker(request, folder=tmp_path, environment=environment)

    assert isinstance(run.result.outcomes[0], Measured), run.errors
    expected = seen(plain.output)
    assert expected["sitecustomize ran"]
    assert expected["child's sitecustomize ran"] == "True"
    compare(expected, seen(run.output))
    assert run.losses == plain.losses[: len(run.losses)]


def test_a_launched_script_sees_what_plain_python_shows(
    tmp_path: Path, environment: dict[str, str], make_bundle: MakeBundle
) -> None:
    arguments = ("--flag", "two words", "--", "-x", "")
    plain = run_plain(WITNESS, *arguments, folder=tmp_path, environment=environment)
    bundle = make_bundle(WITNESS)

    launched = run_autotune("launch", bundle, WITNESS, "--", *arguments, folder=tmp_path, environment=environment)

    assert launched.status == 0, launched.errors
    found = seen(launched.output)
    from_bundle = {name for name in found["variables"] if name.startswith("ORTMODULE_")}
    assert from_bundle == {"ORTMODULE_MEMORY_OPT_CONFIG", "ORTMODULE_MEMORY_OPT_LEVEL"}
    for name in from_bundle:
        del found["variables"][name]
    compare(seen(plain.output), found)
    assert launched.losses == plain.losses


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1], ids=["alone", "with-a-spawned-loader-worker"])
def test_modules_named_like_ours_are_the_scripts_own(tmp_path: Path, workers: int) -> None:
    script = SCRIPTS / "with_own_modules" / "train.py"
    arguments = ("--name", "a b", "--spawned-workers", str(workers))
    plain = run_plain(script, *arguments, folder=tmp_path)
    configurations = (Configuration("aot", (Plan("gelu+", 1, -1),)),)

    run = measure(script, *arguments, configurations=configurations, folder=tmp_path)

    assert isinstance(run.result.outcomes[0], Measured), run.errors
    assert b"name 'a b' batch size 8" in run.output
    assert len(run.losses) >= 8
    assert run.losses == plain.losses[: len(run.losses)]


@pytest.mark.slow
def test_a_finally_block_runs_and_except_exception_does_not_see_the_end(discovered: Discover) -> None:
    run = discovered("finally_block.py")

    assert run.output.splitlines()[-1] == b"finally"
    assert b"training failed" not in run.output


@pytest.mark.slow
def test_the_main_thread_goes_on_when_training_in_a_thread_was_ended(discovered: Discover) -> None:
    run = discovered("trains_in_thread.py")

    assert run.output.splitlines()[-1] == b"main thread goes on"
    assert "Traceback" not in run.errors


def test_a_script_that_swallows_the_end_is_ended_all_the_same(discovered: Discover) -> None:
    run = discovered("swallows_exit.py")

    assert isinstance(run.result.outcomes[0], Measured)
    assert run.result.reason == "done"
    assert 1 <= run.output.count(b"swallowed") <= 3


@pytest.mark.slow
def test_heavy_printing_is_kept_byte_for_byte(tmp_path: Path, discovered: Discover) -> None:
    plain = run_plain(SCRIPTS / "noisy.py", folder=tmp_path)

    output = discovered("noisy.py").output

    # The last step was ended in the middle: what it had printed by then is what plain Python prints there.
    assert output.count(b"not text") >= 12
    assert plain.output.startswith(output)


def write(folder: Path, text: str) -> Path:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return script


def launch(script: Path, make_bundle: MakeBundle, folder: Path) -> Finished:
    return run_autotune("launch", make_bundle(script), script, folder=folder)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('a last word')", 1),
        ("raise SystemExit(256 + 3)", 3),
        ("os._exit(9)", 9),
        ("deeper()", 1),
        ("int('x') if False else {}['missing']", 1),
        ("os.kill(os.getpid(), 15)", -15),
        ("raise KeyboardInterrupt", -2),
        ("os.kill(os.getpid(), 2); time.sleep(9)", -2),
        ("sys.excepthook = lambda *_: print('own hook'); deeper()", 1),
        ("threading.Thread(target=deeper).start()", 0),
    ],
)
def test_a_launched_script_ends_as_it_does_by_itself(
    end: str, status: int, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    script = write(
        tmp_path,
        f"""
        import atexit, os, sys, threading, time

        def deeper():
            try:
                int("no number")
            except ValueError as error:
                raise RuntimeError("from deeper") from error

        atexit.register(print, "at exit")
        print("on standard output", flush=True)
        print("on standard error", file=sys.stderr, flush=True)
        {end}
        """,
    )
    plain = run_plain(script, folder=tmp_path)

    launched = launch(script, make_bundle, tmp_path)

    assert plain.status == status
    assert launched == plain


@pytest.mark.slow
def test_a_traceback_through_the_model_is_the_scripts_own(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = write(
        tmp_path,
        """
        import torch
        from torch import nn

        class Fails(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(2, 2)

            def forward(self, x):
                raise LookupError("in forward")

        Fails()(torch.zeros(1, 2))
        """,
    )
    plain = run_plain(script, folder=tmp_path)

    launched = launch(script, make_bundle, tmp_path)
    measured = measure(script, configurations=(Configuration(),), folder=tmp_path).result.outcomes[0]

    assert "LookupError: in forward" in plain.errors
    assert launched == plain
    assert isinstance(measured, ScriptError)
    assert measured.cause == "LookupError: in forward"
    assert measured.traceback == plain.errors


def test_a_script_in_another_encoding_is_read_as_python_reads_it(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "script.py"
    script.write_bytes("# -*- coding: latin-1 -*-\nprint(ascii('ä'))\n".encode("latin-1"))

    launched = launch(script, make_bundle, tmp_path)

    assert (launched.status, launched.output) == (0, b"'\\xe4'\n")


def test_a_script_reached_through_a_link_imports_what_lies_beside_the_file(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "sibling.py").write_text("word = 'found'\n")
    real = write(tmp_path / "real", "import sibling, sys; print(sibling.word, sys.path[0])")
    (tmp_path / "link.py").symlink_to(real)
    plain = run_plain(tmp_path / "link.py", folder=tmp_path)

    launched = run_autotune("launch", make_bundle(real), tmp_path / "link.py", folder=tmp_path)

    assert launched == plain
    assert plain.output.startswith(b"found")


def test_a_script_without_torch_is_told_so(tmp_path: Path) -> None:
    script = write(tmp_path, "print('no torch here')")

    run = measure(script, configurations=(Configuration(),), folder=tmp_path)

    (outcome,) = run.result.outcomes
    assert isinstance(outcome, NoTrainingStep)
    assert outcome.cause == "the script ended without importing torch"
