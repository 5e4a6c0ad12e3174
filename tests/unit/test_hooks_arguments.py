"""Options with whole numbers, seen as the script's own parser reads them, and on the command line."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from autotune.worker.hooks import arguments

click: Any = importlib.import_module("click") if importlib.util.find_spec("click") else None


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every parser that is installed watched."""
    monkeypatch.setattr(arguments, "seen", {})
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", argparse.ArgumentParser.parse_known_args)
    for module, watch in arguments.PARSERS.items():
        if module in sys.modules:
            if module != "argparse":
                command = importlib.import_module(module).Command
                monkeypatch.setattr(command, "make_context", command.make_context)
            watch()


def test_options_of_argparse() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--bs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("rows", type=int)
    parser.parse_args(["--threads", "4", "16"])
    assert arguments.seen == {"--bs": 8, "--threads": 4}


def test_options_of_typer() -> None:
    app = typer.Typer()

    @app.command()
    def train(batch_size: int = 8, threads: int = typer.Option(1, "-t", "--threads"), name: str = "a") -> None:
        del batch_size, threads, name

    assert CliRunner().invoke(app, ["--threads", "4"]).exit_code == 0
    assert arguments.seen == {"--batch-size": 8, "--threads": 4}


@pytest.mark.skipif(click is None, reason="click is not installed")
def test_options_of_click() -> None:
    @click.command()
    @click.option("-b", "--bs", default=8)
    @click.option("--name", default="a")
    @click.argument("rows", type=int)
    def train(bs: int, name: str, rows: int) -> None:
        del bs, name, rows

    assert train.main(["16"], standalone_mode=False) is None
    assert arguments.seen == {"--bs": 8}


def test_a_module_of_the_scripts_own_is_not_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "click.core", ModuleType("click.core"))
    arguments.PARSERS["click.core"]()


def test_options_of_the_command_line_whoever_reads_it() -> None:
    words = ["--bs=8", "--threads", "4", "train.batch_size=16", "+data.rows=3", "--lr=0.1", "-b", "7", "--amp", "--x=a"]
    assert arguments.on_command_line(words) == {"--bs": 8, "--threads": 4, "train.batch_size": 16}
