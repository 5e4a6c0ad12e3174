"""`autotune gate SCRIPT --against`: lines that take more memory than in another version of a script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.documents import checked

from .inside import run_inside
from .processes import SCRIPTS
from .told import check_told

LOSS = "        loss = nn.functional.cross_entropy(model(x) * scale, y)\n"


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """A script for a GPU in a git repository."""
    script = tmp_path / "train.py"
    script.write_text((SCRIPTS / "cuda_outright.py").read_text())
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "first"]):
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", tmp_path, *named, *arguments], check=True, capture_output=True)
    return script


@pytest.mark.parametrize(
    ("planted", "names"),
    [
        ("        spare = model[0](x).float().relu()\n", "MiB more from "),
        ("        kept.append(model[0](x).float())\n", "Each step keeps 4.12 MiB more from "),
    ],
)
def test_a_line_that_takes_more_memory_than_at_a_revision_is_named(planted: str, names: str, committed: Path) -> None:
    text = committed.read_text().replace("import torch\n", "kept = []\nimport torch\n", 1).replace(LOSS, planted + LOSS)
    text = text.replace("import argparse\n\n", "import argparse\n", 1)
    committed.write_text(text)
    run = run_inside("gate", "train.py", "--against", "HEAD", "--for", "a100-40g", folder=committed.parent)

    assert run.status == 3, run.errors
    said = run.output.decode()
    assert "More memory than 'HEAD': the step at batch size 256 holds " in said
    line = next(line for line in said.splitlines() if names in line)
    assert f"train.py:{text[: text.index(planted)].count(chr(10)) + 1}" in line
    assert planted.strip() in line


def test_a_script_as_of_its_revision_and_as_a_file_says_needs_no_more_memory(committed: Path) -> None:
    told = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=committed.parent)
    (committed.parent / "memory.json").write_bytes(told.output)
    for against in ("HEAD", "memory.json"):
        run = run_inside("gate", "train.py", "--against", against, "--for", "a100-40g", folder=committed.parent)
        assert run.status == 0, run.errors
        assert run.output.decode().startswith(f"As much memory as {against!r}: the step at batch size 256 ")
    run = run_inside("gate", "train.py", "--against", "memory.json", "--json", folder=committed.parent)
    assert checked("gate", run.output)["sentences"][0].startswith("As much memory as 'memory.json': ")


def test_an_unknown_version_is_refused_before_anything_runs(committed: Path) -> None:
    for against, cause, next_step in (
        ("no-such", "neither a file nor a revision", "see `git log`"),
        ("no.json", "is no output of `autotune explain --json`", "autotune explain train.py --json > no.json"),
    ):
        run = run_inside("gate", "train.py", "--against", against, folder=committed.parent)
        check_told(run, status=2, cause=cause, next_step=next_step)


@pytest.mark.parametrize(
    ("arguments", "cause", "next_step"),
    [
        (("--against", "script"), "compares the setting of a bundle, and there is none", "autotune gate BUNDLE"),
        (("--against", "HEAD", "--limit", "1GiB"), "does not go together with --limit", "leave --limit out"),
        (("--against", "HEAD", "--history"), "does not go together with --history", "leave --history out"),
        (("-m", "train", "--against", "train.py"), "run as a module or by a launcher", "--against memory.json"),
        (("--against", "README"), "is no other version of train.py", "name a file that ends in .py"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arguments: tuple[str, ...], cause: str, next_step: str, committed: Path
) -> None:
    (committed.parent / "README").touch()
    script = () if "-m" in arguments else ("train.py",)
    run = run_inside("gate", *script, *arguments, folder=committed.parent)
    check_told(run, status=2, cause=cause, next_step=next_step)


def test_an_earlier_output_is_for_its_card(committed: Path) -> None:
    told = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=committed.parent)
    (committed.parent / "memory.json").write_bytes(told.output)
    compared = ("gate", "train.py", "--against", "memory.json")
    run = run_inside(*compared, "--for", "t4-16g", folder=committed.parent)
    check_told(run, status=2, cause="'memory.json' is for a100-40gb, and --for names t4-16gb", next_step="--for a100-")
    assert run_inside(*compared, folder=committed.parent).status == 0


def test_a_version_that_fails_is_named(committed: Path) -> None:
    broken = committed.with_name("broken.py")
    broken.write_text("raise ValueError('not yet')\n")
    run = run_inside("gate", "train.py", "--against", "broken.py", folder=committed.parent)
    check_told(run, status=1, cause="as of 'broken.py', the script cannot be followed", next_step="Run the script")


def test_a_package_of_the_repository_that_is_installed_is_said_to_be_of_now(committed: Path) -> None:
    package = committed.parent / "src" / "layers.py"
    package.parent.mkdir()
    package.write_text("import torch\n\ndef double(x):\n    return torch.cat([x, x])[: len(x)]\n")
    text = committed.read_text().replace("import torch\n", "import torch\nfrom layers import double\n", 1)
    committed.write_text(text.replace(LOSS, "        x = double(x)\n" + LOSS))
    for arguments in (["add", "."], ["commit", "--quiet", "--message", "second"]):
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", committed.parent, *named, *arguments], check=True, capture_output=True)
    environment = {"PYTHONPATH": str(package.parent)}
    run = run_inside("gate", "train.py", "--against", "HEAD", folder=committed.parent, environment=environment)
    assert run.status == 0, run.errors
    said = run.output.decode().replace(f"{committed.parent}/", "")
    assert "Both versions ran src/layers.py as it is now: what is installed" in said


def test_a_bundle_that_is_mistyped_is_named(committed: Path) -> None:
    run = run_inside("gate", "bundel", "train.py", "--against", "stored", folder=committed.parent)
    check_told(run, status=2, cause="bundel", next_step="autotune")


def test_what_the_settings_compare_with_does_not_stand_in_the_way_of_a_limit(committed: Path) -> None:
    (committed.parent / "autotune.toml").write_text('[gate]\nagainst = "script"\n')
    run = run_inside("gate", "train.py", "--for", "a100-40g", folder=committed.parent)
    assert run.status == 0, run.errors
    assert run.output.decode().startswith("Within the limit: ")
