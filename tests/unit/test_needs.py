"""What tests find on a machine: nothing of its user's, and a last word on what they could not test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.machine.environments import MARKER, environment_folder, environment_python
from tests import needs

PLACES = ("HOME", "XDG_CACHE_HOME", "AUTOTUNE_CACHE")


@pytest.fixture(params=PLACES)
def planted(request, tmp_path, monkeypatch):
    """Plant what looks like a whole environment of engine ortmodule where that variable leads autotune to."""
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(request.param, str(tmp_path / "planted"))
    folder = environment_folder()
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to("/bin/sh")
    (folder / MARKER).touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "planted"


def test_what_a_user_has_in_the_cache_is_not_found_from_the_empty_home(planted, monkeypatch):
    assert environment_python(), "planted where it would be found"
    changed = dict(os.environ)
    home = needs.empty_home(changed)
    for name in PLACES:
        if name in changed:
            monkeypatch.setenv(name, changed[name])
        else:
            monkeypatch.delenv(name, raising=False)
    assert environment_python() is None
    assert Path.home() == home
    assert not [path for path in home.rglob("*") if not path.is_dir()]


def test_these_tests_themselves_see_no_home_but_the_empty_one():
    assert Path.home().name.startswith("home-")
    assert Path.home() in environment_folder().parents
    assert environment_python() is None


def test_what_was_skipped_is_counted_by_its_reason_and_a_service_named_with_its_target():
    browser, ray = (need for need in needs.NEEDS if need.name in ("browser", "ray"))
    reasons = [browser.reason, ray.reason, ray.reason, "no CUDA device"]
    skipped = [SimpleNamespace(longrepr=("test_x.py", 1, f"Skipped: {reason}")) for reason in reasons]
    assert needs.not_tested(skipped) == [
        "NOT TESTED: browser (1 test). Run: make test-browser",
        "NOT TESTED: ray (2 tests). Run: make test-ray",
        "SKIPPED: no CUDA device (1 test)",
    ]


def test_every_service_has_a_marker_and_a_target():
    root = needs.ROOT
    markers, targets = (root / "pyproject.toml").read_text(), (root / "Makefile").read_text()
    for need in needs.NEEDS:
        assert f'"{need.name}: needs' in markers
        _, recipe = targets.split(f"\n{need.target.removeprefix('make ')}:")
        assert f"-m {need.name} --require {need.name}" in recipe.split("\n")[1]


QUARTERS = [needs.Slice.parse(f"{number}/4") for number in (1, 2, 3, 4)]


def test_slices_have_every_test_once():
    names = [f"tests/unit/test_x.py::test_{number}" for number in range(100)]
    drawn = [{name for name in names if name in slice_} for slice_ in QUARTERS]
    assert sorted(name for one in drawn for name in one) == sorted(names)
    assert all(drawn)


def test_tests_that_share_their_parameters_are_in_one_slice():
    names = [f"tests/e2e/test_x.py::test_{number}[a::b]" for number in range(20)]
    assert sorted(sum(name in slice_ for name in names) for slice_ in QUARTERS) == [0, 0, 0, 20]
    others = [f"tests/e2e/test_x.py::test_1[{number}]" for number in range(20)]
    assert all(any(name in slice_ for name in others) for slice_ in QUARTERS)


@pytest.mark.parametrize("text", ["3", "0/4", "5/4", "a/b", "1/4/2"])
def test_what_is_no_slice_is_refused(text):
    with pytest.raises(pytest.UsageError, match="3/10 is the third of ten"):
        needs.Slice.parse(text)


def test_a_service_that_is_required_has_to_be_there(monkeypatch):
    there, missing = needs.Need("browser", lambda: True), needs.Need("ray", lambda: False)
    monkeypatch.setattr(needs, "NEEDS", (there, missing))
    needs.require(["browser"])
    with pytest.raises(pytest.UsageError, match="would all be skipped: make test-ray"):
        needs.require(["browser", "ray"])
    with pytest.raises(pytest.UsageError, match="'chromium' is none of browser, ray"):
        needs.require(["chromium"])


@pytest.mark.process
def test_a_run_that_requires_a_missing_service_ends_before_its_tests():
    command = (sys.executable, "-m", "pytest", "--require", "chromium", "--collect-only", __file__)
    done = subprocess.run(command, cwd=needs.ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "'chromium' is none of browser" in done.stderr


@pytest.mark.parametrize("all_of_them", [False, True])
def test_tests_of_a_service_are_skipped_where_it_is_missing_or_all_services_are_left_out(all_of_them, monkeypatch):
    there = needs.Need("browser", lambda: True)
    missing = needs.Need("ray", lambda: False)
    monkeypatch.setattr(needs, "NEEDS", (there, missing))
    skipped = []
    items = [
        SimpleNamespace(
            get_closest_marker=lambda name, own=own: name == own,
            add_marker=lambda mark, own=own: skipped.append((own, mark.kwargs["reason"])),
        )
        for own in ("browser", "ray", "quick")
    ]
    needs.skip_services(items, all_of_them=all_of_them)
    assert skipped == [("browser", there.reason)] * all_of_them + [("ray", missing.reason)]
