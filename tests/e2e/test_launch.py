"""``autotune launch BUNDLE SCRIPT``: the script runs to its own end with the bundle's setting, or not at all."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.plan import Plan

from .conftest import MakeBundle, Plain
from .inside import run_inside
from .processes import (
    DEADLINE_S,
    SCRIPTS,
    autotune_command,
    losses_in,
    run_autotune,
    run_warm,
    variables,
    without_notes,
)

LOADER_LOOP = SCRIPTS / "loader_loop.py"
PLANS = (Plan("gelu+", 1, -1), Plan("native_layer_norm+", 1, 2))
NOTHING = BatchControl("none", reason="not asked")


@pytest.mark.parametrize(
    "plans",
    [
        pytest.param((), id="no plans", marks=pytest.mark.slow),
        pytest.param(PLANS, id="operator plans", marks=pytest.mark.slow),
        pytest.param((Plan("Block+", 1, -1),), id="whole layers"),
    ],
)
def test_output_and_losses_are_those_of_plain_python_and_nothing_is_left_behind(
    plans: tuple[Plan, ...], plain: Plain, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    folder, temporary = tmp_path / "here", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    bundle = make_bundle(LOADER_LOOP, Configuration("aot", plans, batch_size=8))

    launched = run_autotune("launch", bundle, LOADER_LOOP, folder=folder, environment={"TMPDIR": str(temporary)})

    assert launched.errors == "autotune: note: the batch size is the bundle's, 8, instead of 16\n"
    assert (launched.status, without_notes(launched.errors)) == (0, "")
    assert launched.output == plain("loader_loop.py").output
    assert len(launched.losses) == 256
    assert not list(folder.iterdir())
    assert not [path for path in temporary.iterdir() if "autotune" in path.name]


def test_the_bundles_batch_size_reaches_the_loader(tmp_path: Path, make_bundle: MakeBundle) -> None:
    wanted = tmp_path / "toy.py"
    wanted.write_text((SCRIPTS / "toy.py").read_text())
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(LOADER_LOOP.read_text().replace("batch_size=8", "batch_size=32"))
    plain = run_warm(by_hand, folder=tmp_path)

    launched = run_inside(
        "launch", make_bundle(LOADER_LOOP, Configuration("aot", PLANS, batch_size=32)), LOADER_LOOP, folder=tmp_path
    )

    assert len(plain.losses) == 4 * 512 // 32
    assert (launched.status, launched.output) == (0, plain.output)


def test_what_the_script_would_do_wrong_with_the_batch_size_is_said_before_it_starts(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(LOADER_LOOP, Configuration("aot", PLANS, batch_size=32))
    stack = json.loads((bundle / "stack.json").read_text())
    (bundle / "stack.json").write_text(json.dumps(stack | {"cautions": ["Your OneCycleLR is made for 256 steps."]}))

    launched = run_inside("launch", bundle, LOADER_LOOP, folder=tmp_path)

    assert "autotune: note: Your OneCycleLR is made for 256 steps.\n" in launched.errors


def test_the_bundles_batch_size_fills_the_arguments(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "own_batches_globals.py"
    plain = run_warm(script, "--batch_size=16", "--steps=40", folder=tmp_path)
    bundle = make_bundle(script, Configuration("aot", PLANS, batch_size=16), control=BatchControl("arguments"))

    launched = run_inside("launch", bundle, script, "--", "--batch_size={batch_size:8}", "--steps=40", folder=tmp_path)

    assert len(plain.losses) == 40
    assert (launched.status, launched.output) == (0, plain.output)


@pytest.mark.slow
def test_a_script_that_asks_is_told_the_bundles_batch_size(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "asks_batch_size.py"
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(script.read_text().replace("autotune.batch_size(8)", "16"))
    shutil.copy(SCRIPTS / "toy.py", tmp_path)
    plain = run_warm(by_hand, folder=tmp_path)
    bundle = make_bundle(script, Configuration("aot", PLANS, batch_size=16), control=BatchControl("function"))

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    assert len(plain.losses) == 300
    assert (launched.status, launched.output) == (0, plain.output)


@pytest.mark.slow
def test_processes_that_the_script_spawns_get_the_plans(plain: Plain, tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "counts_gelus.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("gelu+", 1, -1),)), control=NOTHING)

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    def gelus(output: bytes) -> list[bytes]:
        return sorted(line for line in output.splitlines() if line.startswith(b"RANK"))

    assert launched.status == 0, launched.errors
    assert gelus(plain("counts_gelus.py").output) == [b"RANK 0 GELUS 3", b"RANK 1 GELUS 3"]
    assert gelus(launched.output) == [b"RANK 0 GELUS 6", b"RANK 1 GELUS 6"]
    assert launched.losses == plain("counts_gelus.py").losses


@pytest.mark.slow
def test_ddp_trains_to_its_own_end(plain: Plain, tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "ddp.py"
    bundle = make_bundle(script, Configuration("aot", PLANS, batch_size=8))

    launched = run_inside("launch", bundle, script, "--", "2", folder=tmp_path)

    assert (launched.status, launched.output) == (0, plain("ddp.py", "2").output), launched.errors
    assert "Traceback" not in launched.errors


@pytest.mark.slow
def test_processes_that_the_script_spawns_are_refused_once(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "ddp.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("relu+", 1, -1),), batch_size=8))

    launched = run_inside("launch", bundle, script, "--", "2", folder=tmp_path)

    assert launched.status == 3
    assert launched.errors.count("autotune: the bundle cannot be applied to this script: ") == 1
    assert "Traceback" not in launched.errors, "the script's own says no more than that a process has ended"
    assert len(launched.losses) <= 1


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="transformers is not installed")
def test_a_batch_size_that_the_trainer_does_not_know_is_pointed_out(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "hf_trainer.py"
    bundle = make_bundle(script, Configuration(batch_size=8))

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    assert launched.status == 0, launched.errors
    assert launched.errors.count("transformers' Trainer tells a batch size of 4 (in its log, ") == 1
    assert launched.errors.count("; it trains with 8\n") == 1


# Refusals


@pytest.mark.parametrize(
    ("configuration", "control", "reason"),
    [
        (Configuration("aot", (Plan("relu+", 1, -1),)), NOTHING, "the script has no cluster relu+:1; it has "),
        pytest.param(
            *(Configuration("aot", (Plan("gelu+", 2, -1),)), NOTHING, "the script has no cluster gelu+:2; it has "),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(Configuration("aot", (), 1), NOTHING, "level 1 recomputes layers, and the model has no repeated blocks"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Configuration("aot", (), batch_size=16),
            BatchControl("loaders", (5,)),
            "batch size 16 was asked for, but the batches of the training steps have 8 samples",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["unknown cluster", "unknown strategy", "no layers", "batch size not set"],
)
def test_a_bundle_that_does_not_fit_the_script_is_refused(
    configuration: Configuration, control: BatchControl, reason: str, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    script = SCRIPTS / ("tied_weights.py" if configuration.level else "loader_loop.py")

    launched = run_inside("launch", make_bundle(script, configuration, control=control), script, folder=tmp_path)

    assert launched.status == 3
    assert f"autotune: the bundle cannot be applied to this script: {reason}" in launched.errors
    assert "Traceback" not in launched.errors
    assert b"done" not in launched.output
    assert len(launched.losses) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swallows_exit.py", "trains_in_thread.py"])
def test_a_script_that_does_not_see_the_refusal_is_ended_all_the_same(
    name: str, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    script = SCRIPTS / name
    bundle = make_bundle(script, Configuration("aot", (Plan("relu+", 1, -1),)), control=NOTHING)

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    assert launched.status == 3
    assert launched.errors.count("the bundle cannot be applied to this script") == 1
    assert len(launched.losses) <= 3


def test_a_script_that_cannot_be_traced_is_refused_plans(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "lstm.py"
    bundle = make_bundle(script, Configuration("aot", PLANS), control=NOTHING)

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    assert launched.status == 3
    assert "no graph of the model was captured, so there is nothing to recompute" in launched.errors


def edit_stack(**changes: object) -> Callable[[Path], None]:
    def edit(bundle: Path) -> None:
        path = bundle / "stack.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def link(name: str, target: str) -> Callable[[Path], None]:
    def edit(bundle: Path) -> None:
        (bundle / name).unlink()
        (bundle / name).symlink_to(target)

    return edit


def pipe(name: str) -> Callable[[Path], None]:
    def edit(bundle: Path) -> None:
        (bundle / name).unlink()
        os.mkfifo(bundle / name)

    return edit


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (edit_stack(variables={"LD_PRELOAD": "/home/eve/evil.so"}), "not a value it may have"),
        (edit_stack(variables={"PYTHONPATH": "."}), "'PYTHONPATH', which is not on the list"),
        (edit_stack(variables={"ORTMODULE_CACHE_DIR": "/tmp"}), "'ORTMODULE_CACHE_DIR', which is not on the list"),
        (edit_stack(variables={"OMP_NUM_THREADS": "$(touch ran)"}), "not a value it may have"),
        (edit_stack(variables={"ORTMODULE_MEMORY_OPT_CONFIG": "../mem_opt.json"}), "not a value it may have"),
        (edit_stack(variables={"ORTMODULE_MEMORY_OPT_CONFIG": "/etc/passwd"}), "not a value it may have"),
        (edit_stack(engine="sh"), "engine"),
        (edit_stack(files=[{"path": "../secret.py", "sha256": "0"}]), "does not lie below the script's folder"),
        (edit_stack(files=[{"path": "/etc/passwd", "sha256": "0"}]), "does not lie below the script's folder"),
        (edit_stack(version=99), "version"),
        (link("mem_opt.json", "/etc/passwd"), "links are not followed"),
        (link("stack.json", "../outside.json"), "links are not followed"),
        (pipe("mem_opt.json"), "is not a plain file"),
        (lambda bundle: (bundle / "mem_opt.json").write_text('["relu+:1:-1"]'), "name different plans"),
        (lambda bundle: (bundle / "mem_opt.json").write_text("{"), "not JSON"),
        (lambda bundle: (bundle / "stack.json").unlink(), "the bundle has no stack.json"),
    ],
    ids=[
        "loads a library",
        "leads to other modules",
        "names a folder of kernels",
        "a command as a value",
        "a path out of the bundle",
        "an absolute path",
        "an unknown engine",
        "a file above the script",
        "a file of the system",
        "a newer version",
        "a link to a file of the system",
        "a link out of the bundle",
        "a pipe",
        "files that disagree",
        "no JSON",
        "no stack",
    ],
)
def test_a_hostile_or_broken_bundle_is_refused_and_nothing_runs(
    spoil: Callable[[Path], object], reason: str, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    script = tmp_path / "script.py"
    script.write_text("open('ran', 'w').close()")
    bundle = make_bundle(script)
    (tmp_path / "outside.json").write_text((bundle / "stack.json").read_text())
    spoil(bundle)

    launched = run_inside("launch", bundle, script, folder=tmp_path)

    assert launched.status == 2
    assert launched.output == b""
    assert reason in launched.errors
    assert "Traceback" not in launched.errors
    assert "root:" not in launched.errors, "what a link led to must not be shown"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("path", ["missing", "script.py"], ids=["not there", "a file"])
def test_what_is_no_bundle_is_named(path: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("open('ran', 'w').close()")

    launched = run_inside("launch", path, script, folder=tmp_path)

    assert launched.status == 2
    assert re.search(rf"no bundle at '{re.escape(path)}'", launched.errors)
    assert not (tmp_path / "ran").exists()


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_script(number: signal.Signals, tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, signal, sys, time

            def handle(number, frame):
                os.write(1, f"got {{number}}\\n".encode())  # the signal may come amid a print
                sys.exit(40 + number)

            signal.signal({int(number)}, handle)
            print("ready", flush=True)
            time.sleep(60)
            """
        )
    )
    command = autotune_command("launch", make_bundle(script), script)

    with subprocess.Popen(command, cwd=tmp_path, env=variables(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(number)
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()

    assert output == f"got {int(number)}\n".encode()
    assert process.returncode == 40 + number


@pytest.mark.slow
def test_an_interrupted_training_leaves_the_losses_so_far(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "known_rate.py"
    bundle = make_bundle(script, Configuration("aot", (Plan("gelu+", 1, -1),), batch_size=16))
    command = autotune_command("launch", bundle, script, "--", "--steps", "1000000")

    with subprocess.Popen(
        command, cwd=tmp_path, env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()

    assert losses_in(first + output)
    assert process.returncode == -signal.SIGINT
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
    assert "/autotune/worker/" not in errors.decode()


def test_another_interpreter_runs_the_script(tmp_path: Path, make_bundle: MakeBundle) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nINTERPRETER=another exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    script = tmp_path / "script.py"
    script.write_text("import os; print(os.environ['INTERPRETER'])")

    launched = run_inside("launch", "--python", python, make_bundle(script), script, folder=tmp_path)

    assert (launched.status, launched.output) == (0, b"another\n"), launched.errors
