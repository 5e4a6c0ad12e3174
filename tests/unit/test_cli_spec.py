"""What the options of a command come to: the spec of a study, its name, its folders, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.cli import load_command, options, places
from autotune.cli.cluster import check_gpus, launcher_of
from autotune.cli.spec import check_same, default_study_name, spec_of, target_arguments
from autotune.errors import UsageError
from autotune.launch import ray as launch_ray
from autotune.records.study import Objective, StudySpec


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
    "--look-ahead=1000": {"look_ahead": 1000},
    "--allow=bf16,expandable-segments,bf16": {"choices": ("bf16", "expandable-segments")},
    "--allow=compile": {"choices": ("compile",), "start_timeout_s": 900.0, "trial_timeout_s": 300.0},
    "--devices=1,0": {"devices": (1, 0)},
    "--devices=1,0 --gpus-per-run=2": {"devices": (1, 0), "gpus_per_run": 2},
    "--sampler=tpe": {"sampler": "tpe"},
    "--seed=3": {"seed": 3},
    "--repetitions=5": {"finalist_repetitions": 5},
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


@pytest.mark.parametrize("command", ["discover", "fit"])
def test_a_command_that_makes_one_run_gives_it_all_devices(here, command):
    assert spec_from(command, "--devices=1,0").devices_of_runs == ((1, 0),)
    assert spec_from(command).devices_of_runs == ((),)


def test_devices_that_do_not_come_out_even_are_refused(here):
    for typed in ("--devices=0,1,2", "--devices=0"):
        with pytest.raises(UsageError, match=r"names [13] devices?, and each run has 2 GPUs") as refused:
            spec_from("run", typed, "--gpus-per-run=2")
        assert "a multiple of 2" in refused.value.hint


def test_a_number_of_gpus_is_of_a_cluster_or_of_devices_that_are_named(here):
    for typed in (["--gpus-per-run=2"], ["--gpus-per-run=0"], ["--gpus-per-run=0", "--devices=0"]):
        spec = spec_from("run", *typed)
        check_gpus(spec, "ray")
        with pytest.raises(UsageError, match=r"--gpus-per-run [02] goes with --cluster, or with --devices"):
            check_gpus(spec, None)
    check_gpus(spec_from("run", "--gpus-per-run=2", "--devices=0,1"), None)
    check_gpus(spec_from("run"), None)


@pytest.mark.parametrize(
    ("typed", "there", "gpus"),
    [
        ((), 8, 1),
        ((), 0, 0),
        (("--gpus-per-run=2",), 8, 2),
        (("--gpus-per-run=2",), 0, 2),
        (("--gpus-per-run=0",), 8, 0),
    ],
)
def test_a_run_on_a_cluster_asks_for_the_gpus_that_were_named(here, monkeypatch, typed, there, gpus):
    asked = []

    class Launcher:
        def __init__(self, ray, terms, **settings):
            asked.append((terms.gpus, settings["num_posts"]))

        def close(self):
            pass

    cluster = SimpleNamespace(cluster_resources=lambda: {"GPU": there}, shutdown=lambda: None)
    monkeypatch.setattr(launch_ray, "connect", lambda address: cluster)
    monkeypatch.setattr(launch_ray, "RayLauncher", Launcher)
    with launcher_of(spec_from("run", "--devices=0,1", *typed), here, "ray"):
        pass
    assert asked == [(gpus, 1 if gpus == 2 else 2)]


def test_one_study_has_one_number_of_gpus_in_each_run(here):
    (here / "torchrun").touch()
    spec = replace(spec_from("run"), script=str(here / "torchrun"), arguments=("--nproc-per-node", "gpu", "train.py"))
    with pytest.raises(UsageError, match="another --gpus-per-run: 2, not 4"):
        check_same("study", replace(spec, devices=(0, 1)), replace(spec, devices=(0, 1, 2, 3)))


def test_another_number_of_gpus_is_another_study(here):
    one, two = spec_from("run"), spec_from("run", "--gpus-per-run=2")
    assert default_study_name(one) != default_study_name(two)
    with pytest.raises(UsageError, match="another --gpus-per-run: 1, not 2"):
        check_same("study", one, two)


def test_a_deadline_that_is_given_stands_before_the_engines_own(here):
    assert spec_from("run", "--engine=inductor", "--start-timeout=5m") == replace(
        spec_from("run", "--engine=inductor"), start_timeout_s=300.0
    )


def test_every_option_of_run_sets_something_of_the_spec_or_says_where_things_go(here):
    tried = {word.partition("=")[0] for typed in OPTIONS for word in typed.split()}
    for parameter in load_command("run").params:
        elsewhere = {"script", "arguments", "study", "storage", "output", "json", "scratch", "is_module"}
        elsewhere |= {"cluster", "cluster_files", "cluster_resource"}
        elsewhere |= {"shapes", "inputs"}  # they are arguments of a model
        elsewhere |= {"max_error"}  # of a model that is converted
        assert parameter.name in elsewhere or set(parameter.opts) & tried, f"{parameter.opts} is not tried"


def test_a_study_of_epochs_has_a_name_of_its_own(here):
    plain, ahead = spec_from("run"), spec_from("run", "--look-ahead=9")
    assert default_study_name(plain) != default_study_name(ahead)
    with pytest.raises(UsageError, match="another --look-ahead: 0, not 9"):
        check_same("study", plain, ahead)


def test_batches_are_read_ahead_of_scripts_only(here):
    Path("m.onnx").write_text("")
    with pytest.raises(UsageError, match="is a model"):
        spec_from("run", "--look-ahead=9", script="m.onnx")


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
    refused = pytest.raises(UsageError, match="--cluster-files goes with --cluster")
    with refused, launcher_of(spec, here, None, files="shared"):
        pass


def test_a_script_outside_of_the_folder_that_is_sent_is_refused_before_anything_is_sent(here):
    spec = replace(spec_from("run"), script="/elsewhere/train.py")
    with pytest.raises(UsageError, match="is not in the folder"), launcher_of(spec, here, "host:6379"):
        pass


@pytest.mark.parametrize("command", ["discover", "fit"])
def test_an_option_that_another_command_has_means_the_same_there(here, command):
    names = {name for parameter in load_command(command).params for name in parameter.opts}
    # A command that makes one run gives it all devices.
    shared = [typed for typed in OPTIONS if typed.partition("=")[0] in names - {"--devices"}]
    assert shared
    for typed in shared:
        of_script = takes_size(typed)
        assert spec_from(command, typed, *of_script) == spec_from("run", typed, *of_script)


@pytest.mark.parametrize("command", ["run", "discover", "fit"])
def test_a_batch_size_that_no_argument_takes_is_refused(here, command):
    with pytest.raises(UsageError, match="its arguments do not contain that") as refused:
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
