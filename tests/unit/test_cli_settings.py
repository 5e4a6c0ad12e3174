"""Settings of a project: which file counts, what it may say, and that what is typed wins."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from autotune.cli import COMMANDS, load_command, main
from autotune.cli.settings import project_settings
from autotune.errors import UsageError


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes the project's settings; the user is in a folder of it."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def write(text, name="pyproject.toml", folder=tmp_path):
        head = "[project]\nname = 'x'\n[tool.autotune]\n" if name == "pyproject.toml" else ""
        (folder / name).write_text(head + text)
        return folder / name

    return write


@pytest.fixture
def autotune(monkeypatch, capsys):
    """Runs the command line in this process; gives exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def settled(command):
    """What the file settles of a command, by flag."""
    loaded = load_command(command)
    found = project_settings(COMMANDS, load_command).of_command(command, loaded)
    return {one.opts[-1]: found[one.name] for one in loaded.params if one.name in found}


def in_force(autotune, command):
    """What `autotune config` says, by flag: the value and where it is from."""
    code, output, _ = autotune("config", command, "--json")
    assert code == 0
    return {one["option"]: (one["value"], one["from"]) for one in json.loads(output)["options"]}


def test_a_key_stands_for_every_command_that_has_the_option_and_a_table_for_one(project):
    project('time-budget = "2m"\n[tool.autotune.gate]\nrepetitions = 12\n')

    assert settled("run") == {"--time-budget": "2m"}
    assert settled("gate") == {"--time-budget": "2m", "--repetitions": "12"}
    assert settled("doctor") == {}


def test_a_table_wins_over_what_stands_for_all(project):
    project('time-budget = "2m"\n[tool.autotune.gate]\ntime_budget = "20m"\n')

    assert settled("gate") == {"--time-budget": "20m"}


def test_what_is_settled_is_read_as_if_it_were_typed_and_what_is_typed_wins(project):
    project(
        'storage = "sqlite:////none/a.db"\nrepetitions = 5\n'
        'allow = ["a", "b"]\ndevices = [0, 1]\nkeep-global-batch = true\n'
    )
    command = load_command("run")
    values = project_settings(COMMANDS, load_command).of_command("run", command)

    context = command.make_context("run", ["--repetitions", "7", "train.py"], default_map=values)

    assert context.params["finalist_repetitions"] == 7
    assert context.params["choices"] == ("a", "b")
    assert context.params["devices"] == (0, 1)
    assert context.params["keep_global_batch"] is True
    assert context.params["storage"] == "sqlite:////none/a.db"


def test_the_command_line_takes_them(project, autotune, tmp_path):
    project('storage = "none.db"\n')

    code, _, errors = autotune("studies")
    assert (code, "none.db" in errors) == (2, True)

    code, _, errors = autotune("studies", "--storage", "other.db")
    assert (code, "other.db" in errors, "none.db" in errors) == (2, True, False)


def test_paths_are_meant_from_the_folder_of_the_file(project, tmp_path):
    project('storage = "studies.db"\npython = "env/bin/python"\nbaseline = "gate.json"\nplans-from = "logs/one"\n')

    assert settled("run") == {
        "--storage": str(tmp_path / "studies.db"),
        "--python": str(tmp_path / "env/bin/python"),
        "--plans-from": str(tmp_path / "logs/one"),
    }
    assert settled("gate")["--baseline"] == str(tmp_path / "gate.json")


def test_a_path_stays_one_and_the_users_home_is_meant_by_a_tilde(project, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    project('storage = "~/x.db"\npython = "./python3"\n')

    assert settled("run") == {"--storage": "/home/someone/x.db", "--python": str(tmp_path / "python3")}


@pytest.mark.parametrize("value", ["python3.12", "postgresql://me@host/studies"])
def test_what_is_no_path_stays(project, value):
    key = "storage" if "://" in value else "python"
    project(f'{key} = "{value}"\n')

    assert settled("run") == {f"--{key}": value}


def test_the_nearest_file_counts_and_nothing_above_the_repository(project, tmp_path):
    above = tmp_path / "work" / ".git"
    project("seed = 1\n")
    assert settled("run") == {"--seed": "1"}

    above.mkdir()
    assert settled("run") == {}

    project("seed = 2\n", folder=Path())
    assert settled("run") == {"--seed": "2"}

    project("seed = 3\n", name="autotune.toml", folder=Path())
    assert settled("run") == {"--seed": "3"}


def test_a_project_without_our_table_settles_nothing_and_is_passed_over(project, tmp_path):
    project("seed = 1\n")
    Path("pyproject.toml").write_text("[tool.other]\nseed = 2\n")

    assert settled("run") == {"--seed": "1"}


@pytest.mark.parametrize(
    ("text", "cause", "step"),
    [
        ('time-buget = "2m"', "'time-buget' is no option", "did you mean time-budget?"),
        (
            "[tool.autotune.gate]\nsampler = 'random'",
            "'sampler' is no option of `autotune gate`",
            "autotune config gate",
        ),
        ("keep-global-batch = 'yes'", "keep-global-batch is switched on or off, not 'yes'", "keep-global-batch = true"),
        ("seed = true", "seed = True is nothing that could be typed behind --seed", 'seed = "…"'),
        ("seed = []", "seed = [] is nothing that could be typed behind --seed", 'seed = "…"'),
        ("gate = 3", "'gate' is a command, no option", "[tool.autotune.gate]"),
        ("[tool.autotune.gat]\nseed = 1", "there is no command 'gat'", "did you mean gate?"),
        ("seed = ", "is no TOML", "mend that line"),
        ("history = true", "'history' is for one call, not for a project", "type --history"),
        ("[tool.autotune.export]\nto = 'mlflow'", "'to' is for one call", "type --to"),
        ("memory_limit = '1g'\nmemory-limit = '2g'", "has 'memory_limit' in two spellings", "keep memory-limit"),
        ("allow = [true]", "allow = [True] is nothing that could be typed", 'allow = "…"'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_next_step(project, text, cause, step):
    project(text)

    with pytest.raises(UsageError) as refused:
        settled("run")

    assert cause in str(refused.value)
    assert "pyproject.toml" in str(refused.value)
    assert step in refused.value.hint


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_plain_file_is_refused_and_nobody_waits_for_it(project, make):
    project("seed = 1\n").unlink()
    make("pyproject.toml")

    with pytest.raises(UsageError, match="is no plain file"):
        settled("run")


def test_a_file_that_cannot_be_read_is_refused(project, monkeypatch):
    def refuse(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    project("seed = 1\n")
    monkeypatch.setattr(Path, "read_text", refuse)

    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        settled("run")


@pytest.mark.parametrize(
    ("text", "cause"),
    [('time-budget = "2x"', "--time-budget: not a time: '2x'"), ("repetitions = 2", "'--repetitions': ")],
)
def test_a_wrong_value_tells_which_file_it_is_from(project, autotune, text, cause):
    project(f"[tool.autotune.gate]\n{text}\n")

    code, _, errors = autotune("gate", "bundle", "train.py")

    assert code == 2
    assert cause in errors
    assert "(set in ../pyproject.toml)" in errors


@pytest.mark.parametrize("typed", [["--time-budget", "3x"], ["--time-budget=3x"]])
def test_a_wrong_value_that_was_typed_is_not_laid_to_the_file(project, autotune, typed):
    project('time-budget = "2m"\n')

    code, _, errors = autotune("gate", *typed, "bundle", "train.py")

    assert code == 2
    assert "'3x'" in errors
    assert "set in" not in errors


def test_options_of_the_script_do_not_count_as_typed(project, autotune):
    project('time-budget = "2x"\n')

    _, _, errors = autotune("run", "train.py", "--", "--time-budget", "1")

    assert "(set in ../pyproject.toml)" in errors


def test_config_says_what_is_in_force_and_where_from(project, autotune):
    project('time-budget = "2m"\n')

    assert in_force(autotune, "run")["--time-budget"] == ("2m", "../pyproject.toml")
    assert in_force(autotune, "run")["--seed"] == (0, "default")
    code, output, _ = autotune("config")
    assert code == 0
    assert [line.split()[:2] for line in output.splitlines()[1:]] == [
        [name, "--time-budget"] for name in ("run", "resume", "gate")
    ]


def test_config_without_a_file_says_where_it_looked(project, autotune):
    code, output, _ = autotune("config")

    assert code == 0
    assert "no autotune.toml" in output


def test_config_of_an_unknown_command_is_refused(project, autotune):
    code, _, errors = autotune("config", "gat")

    assert code == 2
    assert "did you mean gate?" in errors


def test_help_shows_what_the_project_has_settled_as_the_default(project, autotune):
    project("seed = 41\n")

    _, output, _ = autotune("run", "--help")

    assert "[default: 41]" in output


def test_the_guide_s_example_can_be_used_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs/guides/settings.md"
    Path("pyproject.toml").write_text(re.search(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)[1])
    settings = project_settings(COMMANDS, load_command)

    for name, words in (("run", ["train.py"]), ("gate", ["bundle", "train.py"])):
        command = load_command(name)
        values = settings.of_command(name, command)
        assert values
        command.make_context(name, words, default_map=values)


def test_a_file_with_an_odd_table_of_tools_is_passed_over(project, tmp_path):
    project("seed = 1\n")
    Path("pyproject.toml").write_text("tool = 1\n")

    assert settled("run") == {"--seed": "1"}


def test_a_commands_table_wins_whatever_the_spelling(project):
    project('memory-limit = "1GiB"\n[tool.autotune.run]\nmemory_limit = "4GiB"\n')

    assert settled("run") == {"--memory-limit": "4GiB"}


@pytest.mark.parametrize("words", [("config",), ("config", "run", "--json"), ("studies", "--help")])
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@host/studies", "me:***@host"),
        ("postgresql://me@tenant:s3cret@host/studies", "me@tenant:***@host"),
        ("postgresql://host/studies?password=s3cret", "password=***"),
    ],
)
def test_a_password_in_the_file_is_not_shown(project, autotune, words, url, shown):
    project(f'storage = "{url}"\n')

    code, output, errors = autotune(*words)

    assert code == 0
    assert shown in output.replace("\n", "")
    assert "s3cret" not in output + errors
