"""A bundle is written whole or not at all, and read with suspicion."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import BundleError, ExportError
from autotune.export import bundle as bundle_module
from autotune.export.bundle import check_target, export_bundle, read_bundle
from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.plan import Plan
from tests.fakes.study_record import BASELINE, WINNER, baseline_best, study_record, unfinished


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return export_bundle(study_record(), tmp_path / "bundle", report_html="<p>report</p>")


def edit(folder: Path, **changes: object) -> None:
    """Change values of ``stack.json``; a value of None stays null."""
    path = folder / "stack.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# Writing


def test_a_bundle_reads_back_as_the_winner(folder):
    bundle = read_bundle(folder)
    assert {path.name for path in folder.iterdir()} == {
        "README.txt",
        "env.sh",
        "mem_opt.json",
        "report.html",
        "stack.json",
    }
    assert set(bundle.plans) == set(WINNER.plans)
    assert bundle.configuration.key == WINNER.key
    assert bundle.directory == folder
    assert bundle.environment == {
        "OMP_NUM_THREADS": "16",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "ORTMODULE_MEMORY_OPT_CONFIG": str(folder / "mem_opt.json"),
        "ORTMODULE_MEMORY_OPT_LEVEL": "0",
    }


def test_the_plans_of_smaller_batches_come_back(tmp_path):
    sized = (SizedPlans(((4, 225),)), SizedPlans(((4, 450),), WINNER.plans[:1]))
    made = dataclasses.replace(WINNER, sized=sized)
    folder = export_bundle(study_record(), tmp_path / "bundle", configuration=made)
    found = read_bundle(folder).configuration
    assert (found.sized, found.as_searched.key) == (sized, WINNER.key)
    readme = (folder / "README.txt").read_text()
    assert "nothing up to inputs of 4x225 and less up to 4x450" in " ".join(readme.split())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sized": [{"shapes": [[4, 225]], "plans": []}] * 4}, "too many, or for no batch"),
        ({"sized": [{"shapes": [[4, 0]], "plans": []}]}, "too many, or for no batch"),
        ({"sized": [{"shapes": [[4, "9"]], "plans": []}]}, "malformed"),
        ({"sized": [{"plans": []}]}, "malformed"),
        ({"sized": [{"shapes": [[4, 9]], "plans": []}], "engine": "inductor"}, "has the same plans for batches of all"),
    ],
)
def test_plans_of_smaller_batches_that_cannot_be_are_refused(folder, changes, words):
    edit(folder, **changes)
    with pytest.raises(BundleError, match=words):
        read_bundle(folder)


def test_the_script_as_it_stands_gets_no_variable_of_a_choice(tmp_path):
    made = dataclasses.replace(WINNER, choices=("expandable-segments=1",))
    bundle = read_bundle(export_bundle(study_record(), tmp_path / "bundle", configuration=made))
    assert bundle.environment.keys() - bundle.surroundings.keys() == {"PYTORCH_ALLOC_CONF"}
    assert bundle.surroundings["OMP_NUM_THREADS"] == "16"


def test_a_baseline_that_is_the_best_makes_a_bundle_without_plans(tmp_path):
    bundle = read_bundle(export_bundle(baseline_best(), tmp_path / "bundle"))
    assert bundle.plans == ()
    assert bundle.configuration == BASELINE
    assert (bundle.directory / "mem_opt.json").read_text() == "[]\n"
    assert not (bundle.directory / "report.html").exists()


def test_another_configuration_is_exported_on_request(tmp_path):
    configuration = Configuration("aot", (Plan("gelu+", 1, 3),), 0, 24)
    bundle = read_bundle(export_bundle(study_record(verdict=None), tmp_path / "b", configuration=configuration))
    assert bundle.configuration == configuration
    assert bundle.stack.figures is None


def test_a_study_without_an_answer_says_what_to_do(tmp_path):
    with pytest.raises(ExportError, match="no answer yet") as caught:
        export_bundle(unfinished(), tmp_path / "bundle")
    assert "autotune resume" in caught.value.hint
    verdict = dataclasses.replace(study_record().verdict, kind_of_answer="nothing_fits", winner=None)
    with pytest.raises(ExportError, match="no winner") as caught:
        export_bundle(study_record(verdict=verdict), tmp_path / "bundle")
    assert "--memory-limit" in caught.value.hint
    verdict = dataclasses.replace(verdict, kind_of_answer="undecided")
    with pytest.raises(ExportError, match="no winner") as caught:
        export_bundle(study_record(verdict=verdict), tmp_path / "bundle")
    assert "autotune resume" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_who_has_no_winner_as_samples_cannot_be_counted_is_not_told_to_go_on(tmp_path):
    study = study_record()
    verdict = dataclasses.replace(study.verdict, kind_of_answer="undecided", winner=None)
    own = study.baseline
    uncounted = dataclasses.replace(
        own.outcome.measurement, samples_per_step=(0,) * len(own.outcome.measurement.step_times_s)
    )
    unmeasured = dataclasses.replace(own, outcome=dataclasses.replace(own.outcome, measurement=uncounted))
    trials = tuple(unmeasured if one is own else one for one in study.trials)
    with pytest.raises(ExportError, match="no winner") as caught:
        export_bundle(dataclasses.replace(study, trials=trials, verdict=verdict), tmp_path / "bundle")
    assert caught.value.hint == "export one trial by its number with --trial"


def test_folders_above_are_made_and_a_relative_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert export_bundle(study_record(), Path("a/b/c")) == tmp_path / "a" / "b" / "c"


def test_a_folder_that_cannot_be_made_is_known_before_anything_is_measured(tmp_path, monkeypatch):
    def refuse(path):  # as below a folder that may not be entered
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "file").write_text("mine")
    with pytest.raises(ExportError, match="no bundle can be written") as caught:
        check_target(tmp_path / "file" / "bundle")
    assert "--output" in caught.value.hint
    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(ExportError, match="Permission denied"):
        check_target(tmp_path / "bundle")
    monkeypatch.undo()
    check_target(tmp_path / "a" / "b" / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_older_bundle_is_replaced_and_nothing_is_left_beside_it(folder):
    assert export_bundle(baseline_best(), folder) == folder
    assert read_bundle(folder).plans == ()
    assert not (folder / "report.html").exists(), "a page of the older study would contradict the new one"
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "bundle").mkdir()
    assert read_bundle(export_bundle(study_record(), tmp_path / "bundle"))


def test_a_folder_with_anything_else_in_it_is_left_alone(folder):
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ExportError, match=r"notes\.txt") as caught:
        export_bundle(baseline_best(), folder)
    assert "--output" in caught.value.hint
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_of_somebody_else_s_readme_is_left_alone(tmp_path):
    (tmp_path / "README.txt").write_text("mine")
    with pytest.raises(ExportError, match="only an older bundle"):
        export_bundle(study_record(), tmp_path)


def test_a_file_is_not_replaced(tmp_path):
    (tmp_path / "bundle").write_text("mine")
    with pytest.raises(ExportError, match="is not a folder"):
        export_bundle(study_record(), tmp_path / "bundle")
    assert (tmp_path / "bundle").read_text() == "mine"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_full_or_read_only_disk_leaves_the_older_bundle_as_it_was(folder, monkeypatch, number, call):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    real = os.rename

    def fail(*arguments: object, **_: object) -> None:
        # The older bundle may step aside and back; it is the new one that cannot take its place.
        if call == "rename" and (arguments[0] == folder or str(arguments[0]).endswith("-old")):
            real(*arguments)  # type: ignore[arg-type]
        else:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(ExportError, match=os.strerror(number)) as caught:
        export_bundle(baseline_best(), folder)
    monkeypatch.undo()
    assert "--output DIR" in caught.value.hint
    assert "the study is safe" in caught.value.hint
    assert ("make room" in caught.value.hint) is (number in (errno.ENOSPC, errno.EDQUOT))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


def test_a_place_that_takes_no_folders_is_named():
    with pytest.raises(ExportError, match="'/proc/autotune/bundle'"):
        export_bundle(study_record(), Path("/proc/autotune/bundle"))


def test_what_we_could_not_read_back_never_gets_the_name(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_module, "_MAX_BYTES", 100)
    with pytest.raises(ExportError, match="larger than 100 bytes"):
        export_bundle(study_record(), tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


# Reading somebody else's


def test_a_bundle_may_be_moved_and_reached_by_a_link(folder, tmp_path):
    moved = folder.rename(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(moved)
    assert read_bundle(tmp_path / "link").environment["ORTMODULE_MEMORY_OPT_CONFIG"] == str(moved / "mem_opt.json")


@pytest.mark.parametrize("path", ["nothing", "file", "nul\0byte"])
def test_what_is_not_a_folder_is_not_a_bundle(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="no bundle at") as caught:
        read_bundle(tmp_path / path)
    assert "autotune export" in caught.value.hint


@pytest.mark.parametrize("name", ["stack.json", "mem_opt.json"])
def test_links_are_not_followed(folder, tmp_path, name):
    outside = (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(outside)
    with pytest.raises(BundleError, match="links are not followed"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["stack.json", "mem_opt.json"])
def test_pipes_and_folders_are_refused_without_waiting(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(BundleError, match="not a plain file"):
        read_bundle(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(BundleError, match="not a plain file"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["stack.json", "mem_opt.json"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 500_000, "malformed"),
        (b"1" * 5000, "malformed|no version"),
        (b" " * (1 << 21), "larger than"),
        (b"{}", "no version|expected a list"),
        (b"null", "no version|expected a list"),
    ],
)
def test_other_contents_are_refused(folder, name, content, words):
    (folder / name).write_bytes(content)
    with pytest.raises(BundleError, match=words):
        read_bundle(folder)


def test_a_bundle_of_a_newer_autotune_asks_for_an_upgrade_whatever_else_is_in_it(folder):
    (folder / "stack.json").write_text('{"version": 3, "engine": {"name": "not known here"}}')
    with pytest.raises(BundleError, match="version 3; this autotune reads versions up to 2") as caught:
        read_bundle(folder)
    assert "pip install --upgrade" in caught.value.hint


def test_a_bundle_of_version_1_is_read_with_its_figures(folder):
    before, path = read_bundle(folder), folder / "stack.json"
    path.write_text(path.read_text().replace('"repetitions":', '"rounds":').replace('"version": 2', '"version": 1'))
    read = read_bundle(folder)
    assert (read.stack.version, read.stack.figures) == (1, before.stack.figures)


@pytest.mark.parametrize("version", [0, -1, True, "1", None, 1.0])
def test_a_version_that_is_none_is_refused(folder, version):
    edit(folder, version=version)
    with pytest.raises(BundleError, match="no version"):
        read_bundle(folder)


def test_a_bundle_with_a_library_that_may_be_preloaded_is_refused(folder):
    (folder / "libtcmalloc_minimal.so.4").write_bytes(b"")
    with pytest.raises(BundleError, match="which a loader could take for the system's"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LD_PRELOAD": "/home/eve/evil.so"}, "LD_PRELOAD to '/home/eve/evil.so', which is not a value it may have"),
        ({"PYTHONPATH": "."}, "'PYTHONPATH', which is not on the list"),
        ({"PYTORCH_KERNEL_CACHE_PATH": "/tmp"}, "not on the list"),
        ({"ORTMODULE_MEMORY_OPT_CONFIG": "/etc/passwd"}, "not a value it may have"),
        ({"ORTMODULE_MEMORY_OPT_CONFIG": "../mem_opt.json"}, "not a value it may have"),
        ({"PYTORCH_ALLOC_CONF": "a\u0000b"}, "control characters"),
        ({"OMP_NUM_THREADS": 4}, "malformed"),
    ],
)
def test_unknown_variables_and_unsafe_values_are_refused(folder, variables, words):
    edit(folder, variables=variables)
    with pytest.raises(BundleError, match=words):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plans": ["gelu+:1:-1"]}, "different plans"),
        ({"plans": ["gelu+:9:-1"]}, "malformed"),
        ({"plans": None}, "malformed"),
        ({"engine": "eager"}, "the script untouched"),
        ({"engine": "shell"}, "malformed"),
        ({"level": 7}, "level 7"),
        ({"choices": ["compute-optimizer=0"]}, "engine 'aot' has no choice 'compute-optimizer'"),
        ({"choices": ["fp16=1"]}, "'fp16' cannot be had"),
        ({"choices": ["compile=1"]}, "choice 'compile' has no value '1'"),
        ({"choices": ["bf16=2"]}, "choice 'bf16' has no value '2'"),
        ({"choices": ["fused-optimizer=1", "foreach-optimizer=1"]}, "exclude each other"),
        ({"batch_size": 0}, "not above zero"),
        ({"batch_size": True}, "malformed"),
        ({"accumulation_set": -1}, "accumulation -1 is negative"),
        ({"memory_limit_bytes": -1}, "negative"),
        ({"accumulation": float("nan")}, "malformed"),
        ({"recomputed": "\x1b[2J"}, "control characters"),
        ({"verdict": "\ud800"}, "control characters"),
    ],
)
def test_stacks_that_make_no_sense_are_refused(folder, changes, words):
    edit(folder, **changes)
    with pytest.raises(BundleError, match=words):
        read_bundle(folder)


def test_plans_that_differ_in_the_two_files_are_refused(folder):
    (folder / "mem_opt.json").write_text('["gelu+:1:-1"]')
    with pytest.raises(BundleError, match="different plans"):
        read_bundle(folder)


def test_plans_in_another_order_or_joined_by_commas_are_the_same_plans(folder):
    (folder / "mem_opt.json").write_text('["gelu+:1:-1,Block+:1:4"]')
    assert set(read_bundle(folder).plans) == set(WINNER.plans)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_the_stack_it_is_a_bundle_or_a_bundle_error(folder, data):
    good = (folder / "stack.json").read_text()
    field = data.draw(st.sampled_from(sorted(json.loads(good))))
    edit(folder, **{field: data.draw(ANYTHING)})
    try:
        read_bundle(folder)
    except BundleError:
        pass
    finally:
        (folder / "stack.json").write_text(good)
