"""The pages: they are not stale, their links lead somewhere, and what they show can be typed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer

from autotune.cli import app
from autotune.records.outcome import Outcome
from autotune.records.study import RemarkCode, Verdict
from docs.generate import DOCS, ROOT, every_command, first_sentence, pages
from tests.docs.pages import FILES, FOR_USERS, PAGES, README, Shown, anchors, headings, links, name, shell_lines, shown

AUTOTUNE = [one for page in PAGES for one in shown(page, "autotune")]
MAKE = [one for page in PAGES for one in shown(page, "make")]
PROGRAMS = {"autotune", "make", "pip"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the files that command lines name."""
    monkeypatch.chdir(tmp_path)
    for name_of_file, text in FILES.items():
        Path(name_of_file).parent.mkdir(exist_ok=True)
        Path(name_of_file).write_text(text)


def resolved(words):
    """The command that the first words name, and the other words."""
    command, words = typer.main.get_command(app), list(words)
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        command = command.get_command(typer.Context(command), words.pop(0))
        assert command is not None, "there is no such command"
    return command, words


def parsed(words):
    """Have the real command line parse what stands behind ``autotune``; an exception says what is wrong with it."""
    command, rest = resolved(words)
    return command.make_context("autotune", rest)


def unknown_options(words):
    """The options that the command which is named does not have; its arguments may be left out."""
    command, rest = resolved(words)
    known = {option for one in command.params for option in one.opts} | {"--help"}
    own = rest[: rest.index("--")] if "--" in rest else rest
    return [word for word in own if word.startswith("-") and word.partition("=")[0] not in known]


# -- nothing is stale


@pytest.mark.parametrize("page", pages())
def test_what_is_generated_is_what_make_docs_would_write(page):
    assert (DOCS / page).read_text(encoding="utf-8") == pages()[page], f"docs/{page} is stale: `make docs`"


def test_the_reference_has_every_command_with_all_of_its_options():
    text = (DOCS / "reference/commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## autotune ([\w ]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    commands = dict(every_command(typer.main.get_command(app), "autotune"))
    assert {f"autotune {section}" for section in sections} == set(commands)
    for section, told in sections.items():
        options = [one for one in commands[f"autotune {section}"].params if one.param_type_name == "option"]
        assert [one.opts[0] for one in options if one.name != "help" and f"`{one.opts[0]}" not in told] == []


def test_every_folder_of_the_package_says_in_a_sentence_what_belongs_there():
    for folder in {path.parent for path in (ROOT / "autotune").rglob("*.py")}:
        assert 10 < len(first_sentence(folder)) < 130, folder


def test_modules_that_a_folder_of_the_package_names_are_there():
    package, missing, count = ROOT / "autotune", [], 0
    for path in package.rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for module in re.findall(r"``([\w/]+\.py)``", text):
            count += 1
            # One of another folder is named with its path in the package.
            if not ((package if "/" in module else path.parent) / module).exists():
                missing.append(f"{path.relative_to(ROOT)} names {module}")
    assert count > 40
    assert not missing


def test_every_way_for_a_trial_or_a_study_to_end_is_in_the_reference():
    text = (DOCS / "reference/outcomes.md").read_text(encoding="utf-8")
    answers = get_args(get_type_hints(Verdict)["kind_of_answer"])
    kinds = [outcome.kind for outcome in get_args(Outcome)]
    for word in (*kinds, *answers):
        assert f"| `{word}` |" in text, word
    for code in filter(None, get_args(RemarkCode)):
        assert f"`{code}`" in text, code


# -- they can be read


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_pages_and_headings_that_are_there(page):
    for link in links(page):
        assert (page.parent / link).exists(), f"{name(page)} links to {link}"
    for target, anchor in anchors(page):
        assert anchor in headings(target), f"{name(page)} links to #{anchor} of {target.name}"


def test_every_page_is_in_the_index():
    index = DOCS / "README.md"
    linked = {(DOCS / link).resolve() for link in links(index)}
    assert {page for page in PAGES if page not in (index, README)} <= linked


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_folders_that_a_page_names_are_there(page):
    named = re.findall(r"`((?:autotune|tests|trials|docs|dashboards|\.ci)/[\w./-]*)", page.read_text(encoding="utf-8"))
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


# -- what they show can be typed


@pytest.mark.parametrize("page", FOR_USERS, ids=name)
def test_blocks_without_a_language_hold_nothing_but_commands_that_are_known_here(page):
    unknown = [line for line in shell_lines(page) if line.split()[0] not in PROGRAMS]
    assert not unknown, "give a block that is not to be typed a language, as in ```text"


@pytest.mark.parametrize("command", AUTOTUNE, ids=str)
def test_a_command_line_parses(here, command):
    if command.is_line:
        parsed(command.words[1:])
    else:  # a sentence may name a command, and options of it, without its arguments
        assert unknown_options(command.words[1:]) == []


def test_a_command_line_that_does_not_parse_would_be_noticed(here):
    for text in (
        "autotune run train.py --nosuch 3",
        "autotune run",
        "autotune run train.py --repetitions few",
        "autotune engines install",
        "autotune doctor now",
    ):
        with pytest.raises(Exception, match=r"No such|Missing|valid|unexpected"):
            parsed(Shown(README, text, is_line=True).words[1:])
    with pytest.raises(AssertionError, match="no such command"):
        parsed(["nosuch", "train.py"])
    assert unknown_options(["show", "--trial", "N", "--nosuch"]) == ["--nosuch"]


@pytest.mark.parametrize("command", MAKE, ids=str)
def test_a_target_is_one_of_the_makefile_s(command):
    targets = set(re.findall(r"^([a-z0-9-]+)(?: [a-z0-9 -]+)?:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(command.words[1:]) <= targets
