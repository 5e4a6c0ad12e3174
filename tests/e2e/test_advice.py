"""Advice is followed: what a message tells a user to do is done, and then the command does what it was meant to.

That commands and options of messages exist is for ``tests/unit/test_advice.py``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from .inside import run_inside
from .processes import SCRIPTS, Finished

# One run of the search and no more repetitions than there must be.
SHORT = "--engine eager --max-trials 2 --repetitions 1 --time-budget 60m"


@dataclass(frozen=True)
class Advice:
    """Advice that a command gives, and the commands that follow it.

    Args:
        command: With ``SCRIPTS`` and ``SHORT`` in braces. Where there are several, the last gives the advice.
        says: A regular expression; its groups are in braces in ``then``.
        then: Each of these follows the advice and ends with status 0.
        gives: What the last of them says, as a regular expression.
    """

    name: str
    command: str | tuple[str, ...]
    says: str
    then: tuple[str, ...]
    gives: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        return (self.command,) if isinstance(self.command, str) else self.command


ADVICE = (
    Advice(
        "a study of another objective",
        (
            "run {SHORT} --study s {SCRIPTS}/loader_loop.py",
            "run {SHORT} --study s --objective memory {SCRIPTS}/loader_loop.py",
        ),
        r"choose another (--study) NAME, or go on as it was: autotune (resume s)",
        ("run {SHORT} --objective memory {0} other {SCRIPTS}/loader_loop.py", "{1}"),
        r"2 trials are done already",
    ),
    Advice(
        "a limit below every peak",
        "run {SHORT} --memory-limit 200MiB --batch-sizes 8:8 {SCRIPTS}/loader_loop.py",
        r"lowest peak was [\d.]+ MiB, .* Allow more with (--memory-limit), or smaller batches with (--batch-sizes)\.",
        ("run {SHORT} {0} 8GiB {SCRIPTS}/loader_loop.py",),
        r"Your script +[\d,.]+ samples/s",
    ),
    Advice(
        "an accumulation that cannot be set",
        "run {SHORT} --keep-global-batch {SCRIPTS}/loader_loop.py",
        r"leave (--keep-global-batch) out, or keep the batch size with (--batch-sizes 8:8)",
        (
            "run {SHORT} --keep-global-batch {1} {SCRIPTS}/loader_loop.py",
            "run {SHORT} {SCRIPTS}/loader_loop.py",
        ),
        r"Your script +[\d,.]+ samples/s",
    ),
    Advice(
        "batch sizes beyond the data",
        "run {SHORT} --batch-sizes 600:700 {SCRIPTS}/loader_loop.py",
        r"give a range that begins at (\d+) or below: a trial needs about 9 optimizer steps",
        ("run {SHORT} --batch-sizes {0}:700 {SCRIPTS}/loader_loop.py",),
        r"Your script +[\d,.]+ samples/s",
    ),
    Advice(
        "batches of the script's own making",
        "discover {SCRIPTS}/own_batches_globals.py",
        r"no DataLoader feeds training\. Pass the batch size as an option behind `--`, "
        r"as `--batch-size=(\{batch_size:8\})`",
        # The script's own name of the option has an underscore.
        ("run {SHORT} --batch-sizes 8:64 {SCRIPTS}/own_batches_globals.py -- --batch_size={0}",),
        r"Searching \d+ batch sizes",
    ),
    Advice(
        "a batch size that the script keeps elsewhere",
        (
            "run {SHORT} --study s --batch-sizes 8:16 {SCRIPTS}/keeps_batch_size.py -- state",
            "show s --trial 1",
        ),
        r"Pass the batch size as an option instead, behind `--`: `(--bs=\{batch_size:8\})`",
        ("run {SHORT} --batch-sizes 8:16 {SCRIPTS}/keeps_batch_size.py -- state {0}",),
        r"(?s)batch 16, (?!.*failed)",
    ),
    Advice(
        "a placeholder without a number",
        "run {SHORT} {SCRIPTS}/known_rate.py -- --batch-size={{batch_size}}",
        r"write it as \{batch_size:32\}, or add (--batch-size) 32",
        ("run {SHORT} {0} 16 {SCRIPTS}/known_rate.py -- --batch-size={{batch_size}}",),
        r"Your script +[\d,.]+ samples/s",
    ),
)


def run(command: str, folder: Path, *found: str) -> Finished:
    """Run a command of autotune with what is in braces filled in."""
    filled = [word.format(*found, SCRIPTS=SCRIPTS, SHORT=SHORT) for word in command.split()]
    return run_inside(*shlex.split(" ".join(filled)), folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("advice", ADVICE, ids=lambda advice: advice.name)
def test_what_is_advised_works(advice: Advice, tmp_path: Path) -> None:
    *_, last = [run(command, tmp_path) for command in advice.commands]
    said = " ".join((last.output.decode() + last.errors).split())
    found = re.search(advice.says, said)
    assert found, said

    *_, followed = dones = [run(command, tmp_path, *found.groups()) for command in advice.then]

    assert [done.status for done in dones] == [0] * len(dones), dones[-1].errors
    assert re.search(advice.gives, followed.output.decode() + followed.errors)
    assert not re.search(advice.says, followed.output.decode() + followed.errors)
