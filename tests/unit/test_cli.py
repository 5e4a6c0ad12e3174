"""The command line without a script: its help, its exit codes, what it prints where, and what it refuses."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import __version__, pipeline
from autotune.cli import COMMANDS, load_command, main, places, tables
from autotune.cli.local_launcher import interruption
from autotune.cli.summary import how_to_go_on
from autotune.errors import RunError
from autotune.launch.caches import CompileCaches
from autotune.records.fingerprint import script_sha256
from autotune.records.outcome import ScriptError
from autotune.records.study import StudySpec
from autotune.store.database import open_store
from autotune.tuning.budget import Interruption
from tests.documents import checked
from tests.fakes.landscape import ENVIRONMENT, Landscape
from tests.fakes.launcher import FakeLauncher
from tests.fakes.study_record import study_record
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
        (["--engine", "inducter"], "--engine: not one of", "did you mean inductor?"),
        (["--objective", "Memory"], "--objective: not one of", "did you mean memory?"),
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
            "--engine: not one of aot, inductor, ortmodule, eager, onnxruntime: 'warp'",
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
            "--sampler: not one of model, tpe, random: 'dice'",
            "autotune run --help",
        ),
        (["--objective", "both"], "--objective: not one of throughput, memory: 'both'", "autotune run --help"),
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
        (["--", "--batch-size={batch_size}"], "not the script's own size", "{batch_size:32}"),
        (["--", "--accumulate={accumulation}"], "not the script's own number", "{accumulation:4}"),
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
        (["run", "x.py", "--repetitions", "0"], "Invalid value for '--repetitions'", "autotune run --help"),
        (["show"], "Missing argument 'STUDY'", "autotune show --help"),
        (["launch", "x"], "Missing argument 'SCRIPT'", "autotune launch --help"),
        (["gate", "x"], "a gate takes a bundle and a script, and one of them is missing", "autotune gate BUNDLE"),
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
    assert "did you mean formula?" in errors
    code, _, errors = autotune("show", "formula", "--trial", "99", *in_finished)
    assert code == 2
    assert "it has 0, 1, 2" in errors


def test_what_there_is_to_read_comes_before_the_cause_and_the_next_step_last(autotune, monkeypatch):
    def fail(path, **_):
        raise RunError("it failed", hint="mend it", detail="Traceback: the script's own")

    monkeypatch.setattr("autotune.cli.spec.check_script", fail)
    monkeypatch.setattr("autotune.cli.command._has_document", False)
    code, _, errors = autotune("run", "train.py")
    assert code == 1
    told = "Traceback: the script's own\n\nautotune: it failed\n  next: mend it\n"
    assert errors == told
    code, output, errors = autotune("run", "train.py", "--json")
    error = {"message": "it failed", "hint": "mend it", "detail": "Traceback: the script's own"}
    assert (code, checked("error", output), errors) == (1, {"error": error, "exit_code": 1}, told)


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

    monkeypatch.setattr("autotune.store.database.open_store", fail)
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
    assert "contains 'thesis.tex'" in errors
    assert "Study formula" not in errors


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


def test_clean_removes_compile_caches_and_nothing_else(autotune, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert autotune("clean")[:2] == (0, "There are no compile caches to remove.\n")
    runs, kernels = tmp_path / ".autotune/runs", {}
    for study in ("one", "two"):
        loan = CompileCaches(runs / study / "caches").lend(())
        kernels[study] = Path(loan.variables["TORCHINDUCTOR_CACHE_DIR"]) / "kernel.so"
        kernels[study].write_bytes(b"\0" * 8192)
        if study == "one":
            loan.take_back(ended_well=True)
    log = runs / "one/discovery/stderr.log"
    log.parent.mkdir()
    log.write_text("a line")

    code, output, _ = autotune("clean", "--dry-run")
    assert code == 0
    assert re.search(r"^one +\S+ KiB would be removed$", output, re.MULTILINE)
    assert "two" not in output
    assert output.endswith("are in use, and stay: run `autotune clean` again afterwards.\n")
    assert kernels["one"].exists()

    (one, two) = json.loads(autotune("clean", "--json")[1])
    assert (one["study"], one["used_bytes"], two["study"], two["freed_bytes"]) == ("one", 0, "two", 0)
    assert one["freed_bytes"] >= 8192
    assert not kernels["one"].exists()
    assert kernels["two"].exists()
    assert log.exists()


def test_clean_follows_no_link(autotune, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "else").mkdir()
    (tmp_path / ".autotune/runs/one").mkdir(parents=True)
    (tmp_path / ".autotune/runs/one/caches").symlink_to(tmp_path / "else")
    code, _, errors = autotune("clean")
    assert code == 2
    assert "is a link" in errors
