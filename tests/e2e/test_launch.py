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
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from autotune import __version__
from autotune.records.codec import to_json
from autotune.records.configuration import Configuration
from autotune.records.facts import BatchControl
from autotune.records.measurement import Peaks
from autotune.records.plan import Plan
from autotune.records.stack import Figures
from tests.fakes.study_record import LIMIT_BYTES

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


# Metrics


def metrics_in(file: Path) -> dict[str, float]:
    """Each sample's value by its name, without our prefix, and its kind."""
    samples = [sample for family in read_openmetrics(file.read_text()) for sample in family.samples]
    assert {sample.labels["run"] for sample in samples} == {file.stem}
    return {
        " ".join([one.name.removeprefix("autotune_launch_"), one.labels.get("kind", "")]).strip(): one.value
        for one in samples
    }


@pytest.mark.slow
def test_the_metrics_of_a_run_are_those_of_its_steps(plain: Plain, tmp_path: Path, make_bundle: MakeBundle) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    bundle = make_bundle(LOADER_LOOP, Configuration("aot", PLANS, batch_size=8))

    launched = run_inside("launch", bundle, LOADER_LOOP, "--metrics", "metrics/toy.prom", folder=tmp_path)

    assert (launched.status, launched.output) == (0, plain("loader_loop.py").output), launched.errors
    assert without_notes(launched.errors) == ""
    assert [path.name for path in folder.iterdir()] == ["toy.prom"]
    found = metrics_in(folder / "toy.prom")
    assert found["steps_total"] == len(launched.losses) == 256
    assert found["samples_total"] == 8 * 256
    assert found["samples_per_second"] > 0
    assert time.time() - DEADLINE_S < found["last_step_timestamp_seconds"] < time.time()
    assert 1 << 20 < found["peak_memory_bytes resident"] < 1 << 40
    assert found["memory_limit_bytes"] == LIMIT_BYTES
    (info,) = (one for one in read_openmetrics((folder / "toy.prom").read_text()) if one.name.endswith("_info"))
    labels = info.samples[0].labels
    assert (labels["script"], labels["autotune"]) == (str(LOADER_LOOP), __version__)
    assert "gelu+:1:-1" in labels["configuration"]


def test_the_metrics_hold_what_the_bundle_says_was_measured(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "script.py"
    script.write_text("print(open('run.prom').read())")
    bundle = make_bundle(script)
    stack = json.loads((bundle / "stack.json").read_text())
    figures = to_json(Figures(187.5, 185.0, 190.25, 0.256, Peaks(resident=5 << 30), 3))
    (bundle / "stack.json").write_text(json.dumps(stack | {"figures": figures}))

    launched = run_inside("launch", bundle, script, "--metrics", "run.prom", folder=tmp_path)

    assert launched.status == 0, launched.errors
    assert launched.output.decode() == (tmp_path / "run.prom").read_text() + "\n", "it is there before the first step"
    found = metrics_in(tmp_path / "run.prom")
    assert (found["steps_total"], found["expected_samples_per_second"]) == (0, 187.5)
    assert found["expected_peak_memory_bytes resident"] == 5 << 30


@pytest.mark.slow
def test_metrics_that_cannot_be_written_are_told_and_stop_nothing(
    plain: Plain, tmp_path: Path, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(LOADER_LOOP, Configuration("aot", PLANS, batch_size=8))

    launched = run_inside("launch", bundle, LOADER_LOOP, "--metrics", "missing/toy.prom", folder=tmp_path)

    assert (launched.status, launched.output) == (0, plain("loader_loop.py").output)
    assert launched.errors.count("could not be written") == 1
    assert f"{str(tmp_path / 'missing/toy.prom')!r}: No such file or directory" in launched.errors
    assert not (tmp_path / "missing").exists()


@pytest.mark.slow
def test_of_processes_that_train_together_one_writes_the_metrics(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = SCRIPTS / "ddp.py"
    bundle = make_bundle(script, Configuration("aot", PLANS, batch_size=8))

    launched = run_inside("launch", bundle, script, "--metrics", "toy.prom", "--", "2", folder=tmp_path)

    assert launched.status == 0, launched.errors
    found = metrics_in(tmp_path / "toy.prom")
    assert found["processes"] == 2
    assert found["steps_total"] > 1
    assert found["samples_total"] == 2 * 8 * found["steps_total"]
    assert [path.name for path in tmp_path.glob("*toy.prom*")] == ["toy.prom"]


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
            "batch size 16 was asked for, but the batches of the training steps hold 8 samples",
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
        (edit_stack(variables={"LD_PRELOAD": "/tmp/evil.so"}), "'LD_PRELOAD', which is not on the list"),
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
