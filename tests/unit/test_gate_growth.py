"""What a script holds at its peak against another version of it, and a script as of a revision."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from autotune.errors import UsageError
from autotune.files.revision import at_revision
from autotune.records.allocations import Place
from autotune.records.cards import CARDS
from autotune.records.codec import dumps, loads
from autotune.records.explanation import Explanation, HeldTensor, Kind, Leak, Moment
from autotune.records.gate import MemoryGate
from autotune.verdict.gate.growth import decide_by_lines
from autotune.verdict.gate.rendering import render_junit, render_markdown

MIB = 1 << 20


def held(mebibytes: int, line: str, code: str, *, module: str = "", kind: Kind = "saved activations") -> HeldTensor:
    moment = Moment(1, "forward", Place(module, line, line, "mm", code=code))
    return HeldTensor(kind, mebibytes * MIB, (mebibytes, 1024, 256), "float32", "", moment, None)


def explained(
    *tensors: HeldTensor, leaks: tuple[Leak, ...] = (), script: str = "train.py", size: int = 8, workspace: int = 0
) -> Explanation:
    peak = sum(one.bytes for one in tensors) + workspace
    card = CARDS["a100-40gb"]
    return Explanation(script, card, size, peak, peak, tensors[0].made, tensors, workspace, (), leaks)


def leak(size: int, code: str = "kept.append(f(x))", line: str = "train.py:9") -> Leak:
    return Leak(Place("", line, line, "sum", code=code), size)


LOSS = held(100, "train.py:9", "loss = f(x)", module="head")
WEIGHTS = held(40, "train.py:2", "model.cuda()", kind="parameters")


def decide(before: Explanation, now: Explanation, allowed: float = 0.03) -> MemoryGate:
    return decide_by_lines(before, now, against="main", allowed=allowed)


def test_a_line_that_holds_more_is_named_though_its_number_has_changed() -> None:
    moved = held(130, "src/train.py:12", "loss = f(x)", module="blocks.3.head")
    found = decide(explained(LOSS, WEIGHTS), explained(moved, WEIGHTS))
    assert found.answer == "regression"
    assert found.sentences == (
        "More memory than 'main': the step at batch size 8 holds 170 MiB at its peak, 30 MiB more.",
        "30 MiB more from src/train.py:12, in blocks.*.head: loss = f(x)",
    )
    (growth,) = found.growth
    assert (growth.before_bytes, growth.now_bytes) == (100 * MIB, 130 * MIB)


def test_a_new_line_and_the_model_s_state_are_named_in_their_order() -> None:
    copy = held(25, "train.py:10", "logits = logits.float()", module="head")
    larger = held(50, "train.py:2", "model.cuda()", kind="parameters")
    found = decide(explained(LOSS, WEIGHTS), explained(LOSS, larger, copy))
    assert found.sentences[1:] == (
        "25 MiB more from train.py:10, in head: logits = logits.float()",
        "10 MiB more of parameters.",
    )


def test_the_script_s_file_may_have_another_name() -> None:
    renamed = explained(held(100, "old_train.py:9", "loss = f(x)"), script="old_train.py")
    assert decide(renamed, explained(LOSS)).growth == ()
    library = [explained(held(100, f"{name}/loss.py:9", "f(x)")) for name in ("torch", "transformers")]
    assert decide(*library).growth == (), "a package may lie in another folder"


def test_the_same_line_twice_is_two_lines() -> None:
    first, second = held(10, "train.py:10", "x = act(x)", module="a"), held(12, "train.py:20", "x = act(x)", module="b")
    found = decide(explained(first), explained(first, second))
    assert "12 MiB more from train.py:20, in b: x = act(x)" in found.sentences


def test_a_tensor_without_a_line_is_said_to_have_none() -> None:
    found = decide(explained(LOSS), explained(LOSS, held(25, "", "")))
    assert "25 MiB more from a line that cannot be told." in found.sentences


def test_workspaces_are_told_in_their_order() -> None:
    found = decide(explained(LOSS), explained(LOSS, held(1, "train.py:3", "x"), workspace=900 * MIB))
    assert found.sentences[1:] == ("900 MiB more of workspaces and rounding.", "1 MiB more from train.py:3: x")


def test_a_few_bytes_are_not_told() -> None:
    assert decide(explained(LOSS), explained(LOSS, workspace=1000)).sentences[1:] == ()


def test_a_peak_in_another_part_of_the_step_and_another_batch_size_are_said() -> None:
    moment = replace(LOSS.made, phase="optimizer")
    found = decide(explained(LOSS, size=4), replace(explained(LOSS, LOSS), moment=moment))
    assert "the step at batch size 8, before 4, holds 200 MiB" in found.sentences[0]
    assert found.sentences[1] == "The peak is now in the part after the backward, and was in the forward."


@pytest.mark.parametrize(("allowed", "answer"), [(0.3, "pass"), (0.2, "regression")])
def test_growth_within_the_allowance_passes_and_is_told(allowed: float, answer: str) -> None:
    found = decide(explained(LOSS), explained(held(125, "train.py:9", "loss = f(x)")), allowed)
    assert found.answer == answer
    assert "25 MiB more from train.py:9" in found.reason


def test_what_each_step_keeps_may_not_grow_at_all() -> None:
    found = decide(explained(LOSS), explained(LOSS, leaks=(leak(4),)))
    assert found.answer == "regression"
    assert found.sentences == (
        "A leak that 'main' does not have: each step that was followed keeps more.",
        "As much memory as 'main': the step at batch size 8 holds 100 MiB at its peak.",
        "Each step keeps 4 B more from train.py:9: kept.append(f(x))",
    )


@pytest.mark.parametrize(
    ("before", "now", "answer"),
    [
        (leak(4), leak(4), "pass"),
        (leak(4), leak(4, code="kept += [f(x)]"), "pass"),
        (leak(4), leak(8), "regression"),
        (leak(8), leak(4), "pass"),
    ],
    ids=["the same", "written anew", "larger", "smaller"],
)
def test_a_leak_that_was_there_counts_by_its_bytes(before: Leak, now: Leak, answer: str) -> None:
    assert decide(explained(LOSS, leaks=(before,)), explained(LOSS, leaks=(now,))).answer == answer


def test_the_same_memory_and_less_of_it_pass() -> None:
    assert decide(explained(LOSS), explained(LOSS)).sentences == (
        "As much memory as 'main': the step at batch size 8 holds 100 MiB at its peak.",
    )
    less = decide(explained(LOSS, WEIGHTS), explained(LOSS))
    assert less.answer == "pass"
    assert less.sentences[0].startswith("Less memory than 'main': ")


def test_the_answer_is_written_for_ci() -> None:
    found = decide(explained(LOSS), explained(held(130, "train.py:9", "loss = f(x) | 2")))
    suite = ET.fromstring(render_junit(found, "train.py"))[0]
    assert suite.attrib["failures"] == "1"
    assert [case.attrib["name"] for case in suite] == ["memory"]
    written = render_markdown(found, "train.py")
    assert "### autotune gate: train.py: regression" in written
    assert "| loss = f(x) &#124; 2 | train.py:9 | 0 B | 130 MiB |" in written
    assert loads(MemoryGate, dumps(found)) == found


def git(folder: Path, *arguments: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *named, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that has a script of the same name further up, a link that leads nowhere, and hidden examples."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "train.py").write_text("another\n")
    (folder / "src" / "train.py").write_text("first\n")
    (folder / "data").symlink_to("/nowhere/at/all")
    (folder / ".gitattributes").write_text("src export-ignore\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    (folder / "src" / "train.py").write_text("second\n")
    return folder


@pytest.mark.process
def test_a_script_is_had_as_of_a_revision_and_nothing_of_the_repository_is_touched(repository: Path) -> None:
    files = {file: file.lstat().st_mtime_ns for file in repository.rglob("*")}
    with at_revision(repository / "src" / "train.py", "HEAD") as revision:
        assert revision.script.read_text() == "first\n"
        assert revision.repository == repository
        assert (revision.folder / "train.py").read_text() == "another\n"
    assert not revision.folder.exists()
    assert {file: file.lstat().st_mtime_ns for file in repository.rglob("*")} == files


@pytest.mark.process
def test_variables_of_git_do_not_count(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards hooks: git gives them its own, which name another folder than the script's."""
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / "index"))
    with at_revision(repository / "src" / "train.py", "HEAD") as revision:
        assert revision.script.read_text() == "first\n"


@pytest.mark.process
def test_a_link_to_the_script_is_followed(repository: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(repository / "src" / "train.py")
    with at_revision(link, "HEAD") as revision:
        assert revision.script.read_text() == "first\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "name", "cause"),
    [
        ("src/train.py", "no-such-branch", "neither a file nor a revision"),
        ("src/train.py", "--help", "neither a file nor a revision"),
        ("new.py", "HEAD", "there is no new.py at 'HEAD'"),
    ],
)
def test_what_git_does_not_have_is_said(script: str, name: str, cause: str, repository: Path) -> None:
    (repository / script).touch()
    with pytest.raises(UsageError, match=cause), at_revision(repository / script, name):
        pass


@pytest.mark.process
def test_a_script_outside_of_git_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is in no git repository"), at_revision(tmp_path / "train.py", "HEAD"):
        pass
