"""The command line without a script: its help, its exit codes, what it prints where, and what it refuses."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from autotune import __version__, pipeline
from autotune.cli import COMMANDS, gate, load_command, main, options, places, tables
from autotune.cli.cluster import Cluster, launcher_of
from autotune.cli.interruption import interruption
from autotune.cli.live import Display
from autotune.cli.live.marks import UNICODE
from autotune.cli.spec import check_same, default_study_name, spec_of, target_arguments
from autotune.cli.summary import how_to_go_on, how_to_launch, print_summary
from autotune.errors import RunError, UsageError
from autotune.launch import Event
from autotune.records import (
    AccumulationControl,
    BatchControl,
    CompiledRun,
    Configuration,
    InferenceFacts,
    InferenceMoment,
    InferencePhase,
    Objective,
    OperatorTime,
    OutOfMemory,
    Plan,
    ScriptError,
    StudySpec,
)
from autotune.records.sources import script_sha256
from autotune.records.words import brief_words
from autotune.report import describe_facts
from autotune.search import build_space
from autotune.store import open_store
from autotune.tuning.budget import Interruption
from tests.fakes.landscape import ENVIRONMENT, Landscape, measured
from tests.fakes.launcher import FakeLauncher
from tests.fakes.study_record import LAYERS, LIMIT_BYTES, WINNER, baseline_best, proof, study_record
from tests.fakes.watcher import FakeWatcher

ESCAPE = "\x1b"


@pytest.fixture
def autotune(monkeypatch, capsys):
    """``autotune("show", "x")`` runs the command line in this process; gives exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a database that holds one finished study, of a script that is a formula."""
    folder = tmp_path_factory.mktemp("finished")
    script = folder / "train.py"
    script.write_text("import torch\n")
    landscape = Landscape()
    facts = replace(landscape.facts, script_sha256=script_sha256(str(script)))
    spec = StudySpec(script=str(script), max_trials=5, python=sys.executable, working_directory=str(folder))
    failure = ScriptError("ValueError: odd", log_tail=("Traceback", "ValueError: odd"), advice="mend it")

    def outcome_of(configuration):
        return (
            failure
            if any(plan.cluster_id == "gelu+" for plan in configuration.plans)
            else landscape.measure(configuration)
        )

    with open_store(str(folder / "studies.db")) as store:
        pipeline.tune(
            store.create("formula", spec),
            store=store,
            launcher=FakeLauncher(outcome_of, environment=ENVIRONMENT, facts=facts, root=folder / "runs"),
            watcher=FakeWatcher(),
            interruption=Interruption(),
            runs=folder / "runs",
        )
    return folder


@pytest.fixture
def in_finished(finished, monkeypatch):
    monkeypatch.chdir(finished)
    return "--storage", "studies.db"


# -- help and version


@pytest.mark.process
def test_help_loads_neither_torch_nor_optuna_nor_the_database_and_of_the_commands_the_one_that_is_asked_for():
    heavy = {"torch", "optuna", "sqlalchemy", "alembic", "scipy", "jinja2", "numpy", "pynvml", "psutil"}
    ours = {"autotune.records", *(f"autotune.cli.{name}" for name in COMMANDS)}
    code = (
        "import sys; sys.argv = ['autotune', *sys.argv[1:]]\n"
        "from autotune.cli import main\n"
        "try: main()\n"
        f"finally: print(sorted({heavy | ours!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    used = ["autotune.cli.run", "autotune.records"]
    for arguments, loaded in ((["--help"], []), (["--version"], []), (["run", "--help"], used)):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0
        assert done.stderr.strip() == str(loaded), f"autotune {' '.join(arguments)} loads {done.stderr}"


def test_the_help_lists_every_command_and_the_exit_codes(autotune):
    code, output, errors = autotune("--help")
    assert (code, errors) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\S.*[^.]\.$", output, re.MULTILINE), f"{command} has no whole line"
    assert "0 done, 1 failed, 2 wrong usage, 130 interrupted" in output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_s_help_names_its_arguments_options_and_exit_codes(autotune, command):
    code, output, _ = autotune(command, "--help")
    assert code == 0
    assert re.search(r"Exit codes: .*2 wrong usage", output)
    assert "<" not in output.split("\n")[0], "the usage line is for people"
    for parameter in load_command(command).params:
        names = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
        assert all(name in output for name in names)


def test_help_is_what_no_arguments_give(autotune):
    code, output, errors = autotune()
    assert "Usage: autotune [OPTIONS] COMMAND" in output + errors
    assert code in (0, 2)


def test_version_is_the_package_s(autotune):
    assert autotune("--version") == (0, f"{__version__}\n", "")


# -- where things are printed


def test_tables_have_no_escape_codes_and_no_trailing_blanks_where_no_terminal_is(autotune, in_finished):
    for arguments in (("studies",), ("show", "formula"), ("show", "formula", "--trial", "1")):
        code, output, errors = autotune(*arguments, *in_finished)
        assert (code, errors) == (0, "")
        assert ESCAPE not in output
        assert not re.search(r"[ \t]$", output, re.MULTILINE)


def on_a_terminal(*arguments, folder, **environment):
    """What a command writes to a terminal."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "autotune", *arguments]
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    written = b""
    with contextlib.suppress(OSError):  # Linux reports an error when the last writer is gone
        while chunk := os.read(controller, 65536):
            written += chunk
    os.close(controller)
    assert process.wait(timeout=240) == 0
    return written.decode()


@pytest.mark.process
def test_no_color_is_respected_on_a_terminal(finished):
    arguments = ("show", "formula", "--storage", "studies.db")
    assert ESCAPE in on_a_terminal(*arguments, folder=finished, NO_COLOR="")
    assert ESCAPE not in on_a_terminal(*arguments, folder=finished, NO_COLOR="1")


def test_json_is_all_that_goes_to_standard_output(autotune, in_finished, tmp_path):
    for arguments in (
        ("studies",),
        ("show", "formula"),
        ("show", "formula", "--trial", "1"),
        ("export", "formula", "--output", tmp_path / "bundle"),
    ):
        code, output, _ = autotune(*arguments, "--json", *in_finished)
        assert code == 0
        assert json.loads(output)


def test_export_prints_where_it_wrote_and_the_command_that_runs_it(autotune, in_finished, tmp_path):
    code, output, errors = autotune("export", "formula", "--output", tmp_path / "bundle", *in_finished)
    assert code == 0
    assert Path(output.strip()) == tmp_path / "bundle"
    assert errors == f"autotune launch {tmp_path / 'bundle'} train.py\n"


@pytest.mark.process  # TensorBoard's package asks for the processor
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_study_is_sent_to_a_tracker_and_the_command_that_shows_it_is_printed(autotune, in_finished, tmp_path):
    code, output, errors = autotune(
        "export", "formula", *in_finished, "--to", "tensorboard", "--output", tmp_path / "runs/here"
    )
    assert (code, errors) == (0, f"tensorboard --logdir {tmp_path / 'runs/here'}\n")
    assert output == f"TensorBoard has formula in {tmp_path / 'runs/here'}; 6 trials were sent.\n"

    code, output, _ = autotune(
        "export", "formula", *in_finished, "--to", "tensorboard", "--output", tmp_path / "runs/here", "--json"
    )
    assert code == 0
    assert json.loads(output)["new_trials"] == 0


@pytest.mark.parametrize("option", [("--trial", "1"), ("--output", "x")])
def test_what_does_not_go_with_a_tracker_is_refused(autotune, in_finished, option):
    code, _, errors = autotune("export", "formula", *in_finished, "--to", "mlflow", *option)
    assert code == 2
    assert option[0] in errors


@pytest.mark.parametrize("to", [(), ("--to", "tensorboard")])
def test_a_bundle_that_goes_nowhere_is_refused(autotune, in_finished, to):
    code, output, errors = autotune("export", "formula", *in_finished, *to, "--with-bundle")
    assert (code, output) == (2, "")
    assert "--with-bundle" in errors


def test_a_trial_is_shown_with_its_figures_and_a_failed_one_with_its_cause_and_its_log(autotune, in_finished):
    numbers = {}
    with open_store("studies.db", create=False) as store:
        for trial in store.open("formula").record().trials:
            if trial.outcome is not None:
                numbers.setdefault(trial.outcome.kind, trial.number)
    _, output, _ = autotune("show", "formula", "--trial", numbers["measured"], *in_finished)
    assert re.search(r"Samples/s +[\d.,]+ \([\d.,]+ to [\d.,]+\)", output)
    _, output, _ = autotune("show", "formula", "--trial", numbers["script_error"], *in_finished)
    assert "ValueError: odd" in output
    assert "mend it" in output


def test_a_database_that_is_only_read_is_not_made(autotune, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (("show", "x"), ("export", "x"), ("resume", "x"), ("studies",)):
        code, _, errors = autotune(*arguments, "--storage", "typo.db")
        assert code == 2
        assert "no database" in errors
        assert "--storage" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_studies_says_how_to_make_one(autotune, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output, _ = autotune("studies")
    assert code == 0
    assert "autotune run" in output
    assert autotune("studies", "--json")[:2] == (0, "[]\n")
    assert list(tmp_path.iterdir()) == []


# -- errors


@pytest.mark.parametrize(
    ("options", "cause", "next_step"),
    [
        (["--memory-limit", "much"], "--memory-limit: not a size in bytes: 'much'", "24GiB"),
        (["--memory-limit", "5"], "--memory-limit: a size without a unit is in bytes: '5'", "did you mean 5GiB?"),
        (["--target-memory", "860"], "--target-memory: a size without a unit", "did you mean 860MiB?"),
        (["--time-budget", "10"], "--time-budget: a time without a unit: '10'", "did you mean 10m?"),
        (["--time-budget", "600"], "--time-budget: a time without a unit: '600'", "did you mean 600s?"),
        (["--engine", "inducter"], "--engine takes one of", "did you mean inductor?"),
        (["--objective", "Memory"], "--objective takes one of", "did you mean memory?"),
        (["--allow", "bf-16"], "--allow: engine 'aot' has no choice 'bf-16'", "did you mean bf16?"),
        (["--allow", "fused"], "--allow: engine 'aot' has no choice 'fused'", "did you mean fused-optimizer?"),
        (["--allow", "zzz"], "--allow: engine 'aot' has no choice 'zzz'", "it has "),
        (["--memory-limit", "0"], "--memory-limit: a size must be more than zero", "24GiB"),
        (["--time-budget", "soon"], "--time-budget: not a time: 'soon'", "10m"),
        (["--start-timeout", "-1s"], "--start-timeout: not a time", "90s"),
        (["--trial-timeout", "0s"], "--trial-timeout: a time must be more than zero", "90s"),
        (["--batch-sizes", "9:3"], "--batch-sizes: an empty range: '9:3'", "8:256"),
        (["--batch-sizes", "all"], "--batch-sizes: not a range: 'all'", "8:256"),
        (
            ["--engine", "warp"],
            "--engine takes one of aot, inductor, ortmodule, eager, onnxruntime, not 'warp'",
            "autotune run --help",
        ),
        (["--allow", "compute-optimizer"], "--allow: engine 'aot' has no choice 'compute-optimizer'", "bf16"),
        (["--allow", "bf16,fp16"], "--allow: 'fp16' cannot be had: small gradients become zero", "leave it out"),
        (
            ["--engine", "inductor", "--allow", "compile"],
            "--allow: 'compile' cannot be had: engine 'inductor' compiles every setting by itself",
            "leave it out",
        ),
        (["--engine", "ortmodule", "--allow", "compile"], "engine 'ortmodule' has no choice 'compile'", "it has "),
        (
            ["--engine", "ortmodule", "--allow", "fused-adam"],
            "--allow: 'fused-adam' cannot be had: it needs CUDA",
            "leave it out",
        ),
        (
            ["--sampler", "dice"],
            "--sampler takes one of model, tpe, random, not 'dice'",
            "autotune run --help",
        ),
        (["--objective", "both"], "--objective takes one of throughput, memory, not 'both'", "autotune run --help"),
        (["--objective", "memory", "--max-slowdown", "3"], "--max-slowdown: not a share below 100 %: '3'", "3%"),
        (["--max-slowdown", "3%"], "--max-slowdown goes with --objective memory", "add it"),
        (["--objective", "memory", "--target-memory", "2GiB"], "--target-memory asks for the fastest", "one of them"),
        (
            ["--target-memory", "3GiB", "--memory-limit", "2GiB"],
            "--target-memory 3 GiB is more than --memory-limit 2 GiB",
            "a lower target",
        ),
        (["--devices", "first"], "--devices: not a list of devices: 'first'", "--devices 0,1"),
        (["--devices", "0,0"], "--devices: a device is named twice", "--devices 0,1"),
        (["--python", "/no/such/python"], "no interpreter '/no/such/python'", "--python"),
        (["--study", ""], "bad study name ''", "--study"),
        (["--study", " x"], "bad study name ' x'", "--study"),
        (["--storage", "oracle://x/y"], "unknown kind of database 'oracle'", "postgresql://"),
        (["--storage", "/no/such/folder/x.db"], "no folder /no/such/folder", "mkdir -p"),
        (["--storage", "."], "is a folder, not a database", "study.db"),
        (["--", "--batch-size={batch_size}"], "not which size is the script's own", "{batch_size:32}"),
        (["--", "--accumulate={accumulation}"], "not which number is the script's own", "{accumulation:4}"),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_the_option_and_the_next_step(
    autotune, tmp_path, monkeypatch, options, cause, next_step
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    code, output, errors = autotune("run", "train.py", *options)
    assert (code, output) == (2, "")
    first, second = errors.splitlines()
    assert first.startswith("autotune: ")
    assert cause in first
    assert second.startswith("  next: ")
    assert next_step in second


@pytest.mark.parametrize(
    ("arguments", "cause", "step"),
    [
        (["run"], "Missing argument 'SCRIPT'", "autotune run --help"),
        (["nosuch"], "No such command 'nosuch'", "autotune --help"),
        (["run", "x.py", "--memory-limt", "9GiB"], "autotune run has no option --memory-limt", "mean --memory-limit?"),
        (["run", "x.py", "--epochs", "1"], "autotune run has no option --epochs", "stand behind --, as in -- --epochs"),
        (["run", "x.py", "--rounds", "0"], "Invalid value for '--rounds'", "autotune run --help"),
        (["show"], "Missing argument 'STUDY'", "autotune show --help"),
        (["launch", "x"], "Missing argument 'SCRIPT'", "autotune launch --help"),
        (["gate", "x"], "Missing argument 'SCRIPT'", "autotune gate --help"),
    ],
)
def test_a_command_line_that_does_not_parse_is_a_usage_error(autotune, arguments, cause, step):
    code, output, errors = autotune(*arguments)
    assert (code, output) == (2, "")
    first, second = errors.splitlines()
    assert first.startswith(f"autotune: {cause}")
    assert second.startswith("  next: ")
    assert step in second


def test_a_trials_bundle_does_not_replace_the_winners(autotune, in_finished):
    with open_store("studies.db") as store:
        number = next(one.number for one in store.open("formula").record().shown if one.measured is not None)
    said = [autotune("export", "formula", *more, *in_finished)[1] for more in ((), ("--trial", number))]
    assert [Path(one.strip()).name for one in said] == ["autotune-formula", f"autotune-formula-trial-{number}"]


def test_a_trial_that_failed_is_not_exported(autotune, in_finished):
    with open_store("studies.db") as store:
        failed = next(trial for trial in store.open("formula").record().trials if trial.measured is None)
    code, _, said = autotune("export", "formula", *in_finished, "--trial", failed.number)
    assert code == 2
    assert f"trial {failed.number} was not measured" in said
    assert f"autotune show formula --trial {failed.number}" in said


def test_a_password_is_never_printed():
    class Stored:
        url = "postgresql://me:***@db/studies"

    shown = places.shown_storage(Stored(), "postgresql://me:hunter2@db/studies")
    assert shown == Stored.url
    assert places.shown_storage(Stored(), ".autotune/studies.db") == ".autotune/studies.db"
    assert how_to_go_on(study_record(), shown).endswith("(with the password)")


def test_a_console_whose_reader_goes_away_falls_silent():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file:
        console = tables.make_console()
        console.file = file
        console.print("nobody reads this")
        console.print("nor this")
    assert console.quiet


def test_a_trial_that_is_not_there_is_not_exported(autotune, in_finished):
    code, _, said = autotune("export", "formula", *in_finished, "--trial", 99)
    assert code == 2
    assert "study 'formula' has no trial 99" in said


def test_an_unknown_study_and_an_unknown_trial_name_those_there_are(autotune, in_finished):
    code, _, errors = autotune("show", "formul", *in_finished)
    assert code == 2
    assert "did you mean 'formula'?" in errors
    code, _, errors = autotune("show", "formula", "--trial", "99", *in_finished)
    assert code == 2
    assert "it has 0, 1, 2" in errors


def test_what_there_is_to_read_comes_before_the_cause_and_the_next_step_last(autotune, monkeypatch):
    def fail(path, **_):
        raise RunError("it failed", hint="mend it", detail="Traceback: the script's own")

    monkeypatch.setattr("autotune.cli.spec.check_script", fail)
    code, _, errors = autotune("run", "train.py")
    assert code == 1
    assert errors == "Traceback: the script's own\n\nautotune: it failed\n  next: mend it\n"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "autotune: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "autotune: cannot write the output: No space left"),
        (ZeroDivisionError("ours"), 1, "a fault of autotune's own"),
    ],
)
def test_what_a_command_may_raise_becomes_an_exit_code(autotune, monkeypatch, raised, code, said):
    def fail(url, **_):
        raise raised

    monkeypatch.setattr("autotune.store.open_store", fail)
    ended, _, errors = autotune("show", "x")
    assert ended == code
    assert said in errors
    assert ("Traceback" in errors) is isinstance(raised, ZeroDivisionError)


@pytest.mark.process
def test_a_reader_that_goes_away_as_head_does_is_no_failure(finished):
    command = [sys.executable, "-m", "autotune", "show", "formula", "--json", "--storage", "studies.db"]
    process = subprocess.Popen(command, cwd=finished, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=240), errors) == (0, b"")


def test_elsewhere_than_on_linux_scripts_are_refused_with_a_way_out(autotune, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    monkeypatch.setattr(sys, "platform", "win32")
    for command in (["run"], ["discover"], ["fit"], ["launch", "."], ["verify", "."]):
        code, _, errors = autotune(*command, "train.py")
        assert code == 1
        assert "Linux only, this is 'win32'" in errors
        assert "WSL 2" in errors
    assert not Path(".autotune").exists()


def test_a_study_is_not_asked_for_something_else_than_it_measured(autotune, in_finished):
    code, _, errors = autotune("run", "train.py", "--study", "formula", "--memory-limit", "1GiB", *in_finished)
    assert code == 2
    assert "begun with another --memory-limit: none, not 1 GiB" in errors
    assert "autotune resume formula" in errors
    with open_store("studies.db", create=False) as store:
        assert store.open("formula").spec.memory_limit_bytes is None


def test_a_folder_that_a_bundle_may_not_replace_is_said_before_the_search(autotune, in_finished, tmp_path):
    (tmp_path / "thesis.tex").touch()
    code, _, errors = autotune("resume", "formula", "--output", tmp_path, *in_finished)
    assert code == 1
    assert "holds 'thesis.tex'" in errors
    assert "Study formula" not in errors


# -- what the options come to


def spec_from(command, *arguments, script="train.py"):
    """What `autotune COMMAND SCRIPT ARGUMENTS` asks for."""
    params = load_command(command).make_context(command, [script, *arguments]).params
    return spec_of({**params, "script": Path(script)})  # older typers make it a path as they call the command


def takes_size(typed):
    """Arguments of a script that go with an option: what the script's own batch size is said for."""
    return ("--", "{batch_size:8}") if typed.startswith("--batch-size=") else ()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a script in it."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    return tmp_path


@pytest.mark.parametrize("command", ["run", "discover", "fit"])
def test_without_options_a_study_asks_for_what_its_record_has_as_defaults(here, command):
    assert spec_from(command) == StudySpec(
        script=str(here / "train.py"), working_directory=str(here), python=sys.executable
    )


OPTIONS = {
    "--leave-files": {"leaves_files": True},
    "--memory-limit=24GiB": {"memory_limit_bytes": 24 * 2**30},
    "--objective=memory": {"objective": Objective("memory")},
    "--objective=memory --max-slowdown=5%": {"objective": Objective("memory", 0.05)},
    "--target-memory=1GiB": {"objective": Objective(target_memory_bytes=2**30)},
    "--time-budget=1h30m": {"time_budget_s": 5400.0},
    "--max-trials=7": {"max_trials": 7},
    "--batch-sizes=8:64": {"batch_sizes": (8, 64)},
    "--batch-sizes=8": {"batch_sizes": (8, 8)},
    "--batch-size=16": {"own_batch_size": 16},
    "--keep-global-batch": {"keep_global_batch": True},
    "--engine=inductor": {"engine": "inductor", "start_timeout_s": 900.0, "trial_timeout_s": 300.0},
    "--allow=bf16,expandable-segments,bf16": {"choices": ("bf16", "expandable-segments")},
    "--allow=compile": {"choices": ("compile",), "start_timeout_s": 900.0, "trial_timeout_s": 300.0},
    "--devices=1,0": {"devices": (1, 0)},
    "--sampler=tpe": {"sampler": "tpe"},
    "--seed=3": {"seed": 3},
    "--rounds=5": {"finalist_rounds": 5},
    "--start-timeout=90s": {"start_timeout_s": 90.0},
    "--trial-timeout=250ms": {"trial_timeout_s": 0.25},
    "--plans-from=mem_opt.json": {"plans_first": ("gelu+:1:-1",)},
    "--python=/bin/sh": {"python": "/bin/sh"},
    "-- --lr 1": {"arguments": ("--lr", "1")},
}


@pytest.mark.parametrize("typed", OPTIONS)
def test_an_option_sets_its_field_and_nothing_else(here, typed):
    (here / "mem_opt.json").write_text('["gelu+:1:-1"]')
    of_script = takes_size(typed)
    assert spec_from("run", *typed.split(), *of_script) == replace(spec_from("run", *of_script), **OPTIONS[typed])


def test_a_deadline_that_is_given_stands_before_the_engines_own(here):
    assert spec_from("run", "--engine=inductor", "--start-timeout=5m") == replace(
        spec_from("run", "--engine=inductor"), start_timeout_s=300.0
    )


def test_every_option_of_run_sets_something_of_the_spec_or_says_where_things_go(here):
    tried = {word.partition("=")[0] for typed in OPTIONS for word in typed.split()}
    for parameter in load_command("run").params:
        elsewhere = {"script", "arguments", "study", "storage", "output", "json", "scratch", "is_module"}
        elsewhere |= {"cluster", "cluster_files", "cluster_gpus", "cluster_resource"}
        elsewhere |= {"shapes", "inputs"}  # they are arguments of a model
        elsewhere |= {"max_error"}  # of a model that is converted
        assert parameter.name in elsewhere or set(parameter.opts) & tried, f"{parameter.opts} is not tried"


def test_what_a_model_is_fed_is_its_arguments_and_a_script_is_not_fed():
    words = target_arguments(Path("m.onnx"), ["--shape", "a=1"], ["seq=4-8", "b=2"], Path("x.npz"))
    assert words == ("--shape", "seq=4-8", "--shape", "b=2", "--inputs", "x.npz", "--shape", "a=1")
    assert target_arguments(Path("train.py"), ["--shape", "3"], None, None) == ("--shape", "3")
    with pytest.raises(UsageError, match="--shape is for ONNX models") as refused:
        target_arguments(Path("train.py"), None, ["3"], None)
    assert "behind --" in refused.value.hint


def test_how_far_outputs_may_be_off_is_of_models_that_are_converted(here):
    (here / "m.onnx").touch()
    typed = ("--allow=int8", "--max-error=1%")
    assert spec_from("run", *typed, script="m.onnx").max_error == 0.01
    for script, others in (("m.onnx", typed[1:]), ("train.py", ("--allow=bf16", typed[1]))):
        with pytest.raises(UsageError, match="--max-error is for a model that --allow converts"):
            spec_from("run", *others, script=script)


def test_how_to_use_a_cluster_is_refused_without_one(here):
    spec = spec_from("run")
    alone = Cluster(files="shared")
    with pytest.raises(UsageError, match="--cluster-files goes with --cluster"), launcher_of(spec, here, alone):
        pass


def test_a_script_outside_of_the_folder_that_is_sent_is_refused_before_anything_is_sent(here):
    spec = replace(spec_from("run"), script="/elsewhere/train.py")
    with pytest.raises(UsageError, match="is not in the folder"), launcher_of(spec, here, Cluster("host:6379")):
        pass


@pytest.mark.parametrize("command", ["discover", "fit"])
def test_an_option_that_another_command_has_means_the_same_there(here, command):
    names = {name for parameter in load_command(command).params for name in parameter.opts}
    shared = [typed for typed in OPTIONS if typed.partition("=")[0] in names]
    assert shared
    for typed in shared:
        of_script = takes_size(typed)
        assert spec_from(command, typed, *of_script) == spec_from("run", typed, *of_script)


@pytest.mark.parametrize("command", ["run", "discover", "fit"])
def test_a_batch_size_that_no_argument_takes_is_refused(here, command):
    with pytest.raises(UsageError, match="its arguments do not hold that") as refused:
        spec_from(command, "--batch-size=16", "--", "--layers", "2")
    assert "-- --batch {batch_size}" in refused.value.hint


@pytest.mark.process
@pytest.mark.parametrize("command", ["run", "discover", "fit"])
def test_a_module_is_stored_by_its_name_and_its_file(here, command):
    (here / "package").mkdir()
    (here / "package" / "train.py").touch()
    spec = spec_from(command, "-m", script="package.train")
    assert (spec.module, spec.script) == ("package.train", str(here / "package" / "train.py"))
    assert default_study_name(spec).startswith("package-")
    assert default_study_name(spec) != default_study_name(replace(spec, module=""))
    with pytest.raises(UsageError, match=r"begun with another -m: '', not 'package\.train'"):
        check_same("s", replace(spec, module=""), spec)


def test_a_study_goes_on_with_the_same_script_at_another_place_if_it_has_left_the_first(here):
    earlier, spec = replace(spec_from("run"), script="/gone/train.py"), spec_from("run")
    check_same("s", earlier, spec, script_sha256=spec.script_sha256())
    with pytest.raises(UsageError, match=r"begun with another SCRIPT: '/gone/train\.py'"):
        check_same("s", earlier, spec, script_sha256="of another script")
    (here / "copy.py").write_bytes(Path(spec.script).read_bytes())
    with pytest.raises(UsageError, match="begun with another SCRIPT"):
        check_same("s", replace(spec, script=str(here / "copy.py")), spec, script_sha256=spec.script_sha256())


def test_a_launcher_gives_the_study_the_name_of_what_it_starts(here):
    spec = StudySpec(script="/bin/torchrun", arguments=("--nproc-per-node", "2", "models/gpt.py"))
    (here / "torchrun").touch()
    assert default_study_name(replace(spec, script=str(here / "torchrun"))).startswith("gpt-")


def test_a_scratch_folder_is_made_for_the_script_to_run_in(here):
    assert spec_from("run", "--scratch").working_directory == str(here / ".autotune" / "scratch")
    assert (here / ".autotune" / "scratch").is_dir()


# -- names and folders


def test_the_same_command_finds_its_study_again_and_any_other_does_not(tmp_path):
    script = tmp_path / "gpt" / "train.py"
    script.parent.mkdir()
    script.write_text("1\n")
    spec = StudySpec(script=str(script), arguments=("--lr", "1"))
    name = default_study_name(spec)
    assert name.startswith("gpt-")
    assert default_study_name(replace(spec, time_budget_s=1.0, max_trials=1)) == name
    assert default_study_name(replace(spec, arguments=("--lr", "2"))) != name
    assert default_study_name(replace(spec, objective=Objective("memory"))) != name
    script.write_text("2\n")
    assert default_study_name(spec) != name


@pytest.mark.parametrize("name", [".", "..", "../../etc", "a/b", "/tmp", "gpt 2.1", "é", "調" * 100])
def test_any_study_name_is_one_folder_below_the_state_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert places.runs_of(name).resolve().parent == tmp_path / ".autotune" / "runs"
    places.runs_of(name).mkdir(parents=True)


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(".autotune").write_text("a file\n")
    with pytest.raises(UsageError, match=r"cannot make the folder .*File exists"):
        places.prepare_storage(options.DEFAULT_STORAGE)


# -- Ctrl-C


def test_the_first_ctrl_c_finishes_and_the_second_cancels(capfd):
    before = signal.getsignal(signal.SIGINT)
    with interruption() as state:
        signal.raise_signal(signal.SIGINT)
        assert (state.finish.is_set(), state.cancel.is_set()) == (True, False)
        assert "Ctrl-C again stops now" in capfd.readouterr().err
        signal.raise_signal(signal.SIGINT)
        assert state.cancel.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_cancels_at_once():
    with interruption() as state:
        signal.raise_signal(signal.SIGTERM)
        assert (state.finish.is_set(), state.cancel.is_set()) == (True, True)


# -- the live display

SPACE = build_space(study_record().facts, StudySpec(script="/x/train.py", batch_sizes=(16, 64)))


@pytest.fixture
def display():
    """A display that writes to ``display.written()``; the moving line is ``display.line()``."""
    file = io.StringIO()
    spec = StudySpec(script="/x/train.py", time_budget_s=600.0, memory_limit_bytes=2 * LIMIT_BYTES)
    shown = Display(Console(file=file, width=200), spec, Interruption())
    shown.written = file.getvalue
    shown.line = lambda: shown._line(with_best=True, marks=UNICODE)
    shown.interruption = shown._interruption
    return shown


def test_the_first_run_says_once_that_the_script_runs_for_real(display):
    display.discovering()
    assert display.written().count("runs your script for real") == 1
    assert "`finally:` blocks included" in display.written()
    assert "after each run files are as they were (--leave-files" in display.written()


def test_a_limit_above_what_there_is_is_pointed_out(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    assert "--memory-limit 48 GiB is more than there is: 24 GiB" in display.written()


def test_a_loss_that_is_not_a_number_is_flagged(display):
    record = study_record()
    nan = replace(record.baseline.outcome.measurement, nonfinite_loss=True)
    display.discovered(record.facts, replace(record.baseline.outcome, measurement=nan), LIMIT_BYTES)
    assert "loss is NaN or infinite" in display.written()


def test_each_trial_has_its_line_and_the_best_so_far_is_marked(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    display.trial_ended(1, WINNER, measured(400.0, 48, LIMIT_BYTES // 2))
    display.trial_ended(2, Configuration(batch_size=24), measured(100.0, 24, LIMIT_BYTES // 2))
    display.trial_ended(3, Configuration(batch_size=96), measured(900.0, 96, LIMIT_BYTES + 1))
    display.trial_ended(4, Configuration(batch_size=99), OutOfMemory("out of memory in backward", phase="backward"))
    first, second, third, fourth = display.written().splitlines()[-4:]
    assert "best so far" in first
    assert "best so far" not in second
    assert "over the limit" in third
    assert "best so far" not in third
    assert "out of memory in backward" in fourth


def test_a_cause_of_several_lines_takes_one_and_moves_no_cursor(display):
    display.trial_ended(3, Configuration("eager", (), 0, 16), ScriptError("first\nsecond\x1b[2J"))
    assert display.written().count("\n") == 1
    assert "first" in display.written()
    assert ESCAPE not in display.written()


def test_what_cannot_win_is_not_the_best_so_far(display):
    display.trial_ended(3, Configuration("eager", (), 0, 16), measured(900.0, 16, 1, allocator_retries=2))
    assert "best so far" not in display.written()


def test_what_a_round_rules_out_is_the_best_no_more_whatever_ruled_it_out(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    display.trial_ended(1, WINNER, measured(400.0, 48, LIMIT_BYTES // 2))
    display.repeated(WINNER, 0, measured(400.0, 48, LIMIT_BYTES // 2))
    assert "best 400.0/s" in display.line()
    display.repeated(WINNER, 1, measured(400.0, 48, LIMIT_BYTES // 2, allocator_retries=3))
    assert re.search(r"best 15[\d.]+/s", display.line())


def test_the_moving_line_says_what_runs_the_best_so_far_and_the_time_left(display):
    record = study_record()
    display.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    display.searching(SPACE)
    display.run_began(None, (WINNER,))
    display.event(None, Event("step", 0, 7, "forward", None, 1.0))
    line = display.line()
    assert f"step 7, {brief_words(WINNER, record.facts.clusters)}" in line
    assert re.search(r"best 15[\d.]+/s", line)
    assert re.search(r"(10m|9m59s) left", line)
    display.interruption.finish.set()
    assert "Ctrl-C again stops now" in display.line()


def test_the_baseline_is_no_setting_among_the_finalists(display):
    own, other = study_record().facts.baseline, WINNER
    display.discovered(study_record().facts, measured(400.0, 16, LIMIT_BYTES // 2), LIMIT_BYTES)
    display.repeating((own, other), 28)
    display.repeating((other,), 2)
    said = [line for line in display.written().splitlines() if line.startswith("Finalists: ")]
    assert said == [
        "Finalists: 1 setting beside your script, measured again in turns, at most 28 runs",
        "Finalists: 1 setting, measured again in turns, at most 2 runs",
    ]


def test_finalists_that_are_alike_in_words_are_told_apart_by_their_codes(display):
    first, second, third = (
        Configuration("aot", tuple(Plan(f"{name}+", 1, -1) for name in names), batch_size=16)
        for names in (("a", "b", "c"), ("a", "b", "d"), ("a",))
    )
    display.repeating((first, second, third), 4)
    for one in (first, second, third):
        display.repeated(one, 0, measured(400.0, 16, LIMIT_BYTES // 2))
    lines = display.written().splitlines()
    assert lines[-3].endswith("batch 16, a+:1:-1 b+:1:-1 c+:1:-1")
    assert lines[-2].endswith("batch 16, a+:1:-1 b+:1:-1 d+:1:-1")
    assert lines[-1].endswith("batch 16, recompute all a operators")


def test_a_search_is_told_in_batch_sizes_and_kinds(display):
    display.searching(SPACE)
    display.searching(replace(SPACE, batch_sizes=(16,), choices={"bf16": (0, 1)}))
    display.searching(replace(SPACE, batch_sizes=(32,), counts={}, clusters=()))
    display.searching(replace(SPACE, batch_sizes=(), counts={}, clusters=()))
    several, one, other, none = [line for line in display.written().splitlines() if line]
    sizes, kinds = len(SPACE.batch_sizes), len(SPACE.counts)
    assert several.startswith(f"Searching {sizes} batch sizes (16 to 64) and {kinds} kinds of plans: at most 60 trials")
    assert one.startswith(f"Searching {kinds} kinds of plans and bf16 at batch size 16: at most 60 trials")
    assert none == "There is nothing to search: there are no plans to try, and the batch size stays as it is."
    assert other.startswith("Searching nothing but the script at batch size 32: at most 60 trials")


def test_the_moving_line_names_each_device(display):
    display.searching(SPACE)
    for device in (0, 1):
        display.run_began(device, (WINNER,))
    assert "device 0: " in display.line()
    assert "device 1: " in display.line()
    assert "\n" not in display.line()


def test_a_resumed_search_says_what_is_done_already_and_goes_on_where_a_round_rules_the_best_out():
    record = study_record()
    file = io.StringIO()
    shown = Display(Console(file=file, width=200), record.spec, Interruption(), known=record.trials)
    shown.discovered(record.facts, record.baseline.outcome, LIMIT_BYTES)
    shown.searching(SPACE)
    shown.searching_again()
    assert f"{len(record.trials)} trials are done already, the best 18" in file.getvalue()
    assert "Search goes on, as a round rules out the best so far" in file.getvalue()


def test_a_loss_that_is_no_number_is_flagged_in_its_trials_line(display):
    display.trial_ended(1, WINNER, measured(400.0, 48, 1, nonfinite_loss=True))
    assert "the loss is NaN or infinite" in display.written()


def test_a_round_that_failed_says_of_what(display):
    display.repeated(WINNER, 2, OutOfMemory("out of memory in backward"))
    assert display.written().startswith("round 3  out of memory in backward  ")


def test_time_that_is_too_short_for_rounds_is_told_with_what_they_take(display):
    display.no_time(150.4)
    assert "rounds and proof take about 2m30s." in display.written()


def test_a_proof_is_told_at_once_only_where_it_does_not_hold(display):
    display.proved(proof())
    assert display.written() == ""
    display.proved(replace(proof(), answer="inexact", statement="Gradients differ."))
    assert display.written() == "Gradients differ.\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"leaves_files": True}, "files are left as it changes them (--leave-files)."),
        ({"working_directory": "/x/.autotune/scratch"}, "in /x/.autotune/scratch."),
    ],
)
def test_the_first_run_says_what_becomes_of_files(changes, said):
    file = io.StringIO()
    spec = replace(StudySpec(script="/x/train.py"), **changes)
    Display(Console(file=file, width=200), spec, Interruption()).discovering()
    assert f"blocks included; {said}\n" in file.getvalue()


def test_the_moving_line_says_how_long_discovery_takes_and_when_it_stops(display):
    display.discovering()
    assert re.search(r"Discovery · \d+s so far: starting the script", display.line())
    display.interruption.finish.set()
    display.interruption.cancel.set()
    assert " · stopping: " in display.line()


def test_a_baseline_that_failed_has_no_figures_to_print(display):
    display.discovered(study_record().facts, OutOfMemory("out of memory"), LIMIT_BYTES)
    assert "Baseline" not in display.written()


def test_of_many_plans_the_first_are_printed_and_the_rest_counted():
    facts = study_record().facts
    rows = tuple(replace(facts.clusters[1], cluster_id=f"op{number}+") for number in range(60))
    console = Console(file=io.StringIO(), width=200)
    tables.print_facts(console, describe_facts(replace(facts, clusters=rows, dimensions={}, calibration=None)))
    written = console.file.getvalue()
    shown = len(re.findall(r"^op\d+\+", written, re.MULTILINE))
    assert 0 < shown < 60
    assert f"\n… and {60 - shown} more\n" in written
    assert "savings do not add up" not in written, "there are no sizes that would be told with it"


def test_a_model_has_all_of_its_phases_printed_and_the_slowest_operators():
    moments = tuple(InferenceMoment(phase, 1 << 20, 1 << 20) for phase in get_args(InferencePhase))
    operators = tuple(OperatorTime(f"Kind{number}", 1, 1.0, 8) for number in range(9))
    facts = replace(study_record().facts, clusters=(), inference=InferenceFacts(8, moments, operators))
    console = Console(file=io.StringIO(), width=200)
    tables.print_facts(console, describe_facts(facts))
    written = console.file.getvalue()
    assert all(re.search(f"^{phase} ", written, re.MULTILINE) for phase in get_args(InferencePhase))
    assert "… and 3 more" in written


def test_facts_without_plans_say_why_and_what_is_left():
    def told(**changes):
        console = Console(file=io.StringIO(), width=300)
        tables.print_facts(console, describe_facts(replace(study_record().facts, clusters=(), **changes)))
        return console.file.getvalue()

    assert "No plans: nothing in this script can be recomputed." in told()
    undescribed = told(undescribed=OutOfMemory("out of memory"))
    assert "No plans" not in undescribed
    assert "could not be described: out of memory." in undescribed
    assert "Batch size is left alone: no loader." in told(batch_control=BatchControl("none", reason="no loader"))
    accumulates = AccumulationControl("none", 4)
    assert "Each optimizer step accumulates 4 micro-batches." in told(accumulation_control=accumulates)


# -- the summary


def summary_of(record, bundle=None, *, width=200):
    console = Console(file=io.StringIO(), width=width)
    print_summary(console, record, bundle)
    return console.file.getvalue()


def test_who_has_the_best_setting_already_is_told_to_keep_it(tmp_path):
    assert "Keep running your script as you do" in summary_of(baseline_best(), tmp_path)
    assert "Keep running" not in summary_of(study_record(), tmp_path)


def test_the_summary_counts_failures_and_shows_the_first_that_is_not_about_memory():
    written = summary_of(study_record())
    assert "4 of 17 trials failed: 2 out of memory, 1 timed out, 1 script error." in written
    assert "no training step within 120 s" in written
    assert "autotune show train-9f2c --trial 15" in written


def test_commands_in_the_summary_are_in_one_line_on_a_narrow_terminal_too(tmp_path):
    (tmp_path / "stack.json").touch()
    name = "a long 'name' " * 8

    lines = summary_of(replace(study_record(), name=name), tmp_path, width=60).splitlines()

    (show,) = [line for line in lines if "autotune show" in line]
    (run,) = [line for line in lines if "autotune launch" in line]
    assert shlex.split(show.partition("log: ")[2]) == ["autotune", "show", name, "--trial", "15"]
    assert shlex.split(run)[-4:] == ["--", "--data", "my books", "--epochs=3"]


def test_the_summary_says_after_the_finalists_what_was_proven_of_the_winner():
    record = study_record()
    written = summary_of(record)
    assert written.index("Finalist ") < written.index("In the first 3 steps at batch 48, with the same seeds")
    unproven = summary_of(replace(record, verdict=replace(record.verdict, proofs=())))
    assert "Not proven: its gradients were not compared yet." in unproven
    assert "roven" not in summary_of(baseline_best())


def compiled(outcome, **changes):
    record = study_record(**changes)
    run = CompiledRun("compile", WINNER, replace(WINNER, engine="inductor", plans=(LAYERS,)), outcome)
    return replace(record, verdict=replace(record.verdict, compiled=run))


def test_the_summary_says_what_compiling_would_bring_and_how_to_have_it():
    record = compiled(measured(262.0, 48, 20 << 30))
    assert (
        "Recomputing 4 of 12 Blocks at batch 48 compiled by Inductor gave about 1.4x as many samples per second as the "
        "answer (1 run): run the same command with --allow compile, in a study of its own, to look for the best of it."
    ) in " ".join(summary_of(record).split())
    spec = replace(record.spec, choices=("bf16",))
    assert "with --allow bf16,compile, in a study" in " ".join(summary_of(replace(record, spec=spec)).split())
    memory = replace(record, spec=replace(record.spec, objective=Objective("memory")))
    less = compiled(measured(190.0, 48, 11 << 30), spec=memory.spec)
    assert "needed about 0.5x the answer's memory (1 run)" in " ".join(summary_of(less).split())


def test_who_has_the_best_setting_but_for_compiling_keeps_it_unless_it_is_compiled(tmp_path):
    record, own = baseline_best(), study_record().facts.baseline
    run = CompiledRun("compile", own, replace(own, engine="inductor"), measured(262.0, 16, 10 << 30))
    record = replace(record, verdict=replace(record.verdict, compiled=run))
    assert "Unless you compile, keep running your script as you do" in summary_of(record, tmp_path)


def test_the_summary_is_silent_of_compiling_that_brings_nothing_or_failed():
    for outcome in (measured(187.0, 48, 20 << 30), ScriptError("BackendError: no ptxas"), OutOfMemory("out of memory")):
        assert "ompil" not in summary_of(compiled(outcome))


def test_an_unconfirmed_answer_is_not_called_a_winner():
    record = study_record()
    assert "Winner " in summary_of(record)
    unsure = summary_of(replace(record, verdict=replace(record.verdict, kind_of_answer="undecided")))
    assert "Winner " not in unsure
    assert "Best so far" in unsure


def test_the_command_shown_can_be_typed_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = study_record()
    here = replace(record, spec=replace(record.spec, script=str(tmp_path / "a b" / "train.py"), python=sys.executable))
    assert how_to_launch(here, Path("out")) == "autotune launch out 'a b/train.py' -- --data 'my books' --epochs=3"
    elsewhere = replace(record, spec=replace(record.spec, arguments=()))
    assert how_to_launch(elsewhere, Path("out")) == (
        "autotune launch out /home/ada/gpt/train.py --python /home/ada/venv/bin/python"
    )


def test_the_command_to_go_on_names_the_database_where_it_is_not_the_default():
    record = study_record()
    assert how_to_go_on(record, options.DEFAULT_STORAGE).endswith("autotune resume train-9f2c")
    assert how_to_go_on(record, "my.db").endswith("autotune resume train-9f2c --storage my.db")


def test_what_is_left_to_confirm_is_told_with_the_time_that_it_takes():
    record = study_record()
    record = replace(record, verdict=replace(record.verdict, kind_of_answer="undecided", needed_s=95.0))
    assert how_to_go_on(record, options.DEFAULT_STORAGE) == (
        "To confirm what was found takes about 1m35s: autotune resume train-9f2c --time-budget 2m"
    )


def test_a_study_that_made_all_its_trials_needs_more_of_them_to_go_on():
    record = study_record()
    record = replace(record, spec=replace(record.spec, max_trials=16))
    assert how_to_go_on(record, options.DEFAULT_STORAGE).endswith("autotune resume train-9f2c --max-trials 32")


def test_a_model_may_be_held_against_another_version_of_it_and_not_against_a_script(tmp_path):
    for name in ("model.onnx", "other.onnx", "train.py"):
        (tmp_path / name).touch()
    spec = replace(study_record().spec, script=str(tmp_path / "model.onnx"), engine="onnxruntime")
    assert gate._is_file(spec, is_module=False)
    other = gate._other_version(str(tmp_path / "other.onnx"), spec, is_module=False)
    assert other.script == str(tmp_path / "other.onnx")
    with pytest.raises(UsageError, match=r"no other version of model\.onnx"):
        gate._other_version(str(tmp_path / "train.py"), spec, is_module=False)
    assert not gate._is_file(replace(spec, script="/usr/bin/torchrun"), is_module=False)
