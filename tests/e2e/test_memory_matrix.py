"""The memory matrix of real scripts: in discovery, in each process of several, and asked for by the script itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured
from autotune.records.plan import parse_plans
from autotune.records.run import Request

from .conftest import Plain
from .inside import run_inside
from .processes import QUICK, SCRIPTS, in_worker

PHASES = ["pre_forward", "post_forward", "pre_backward", "post_backward"]
LINE = re.compile(
    rb"^rank-0 step (\d+) memory \(MiB\) \| phase: (\w+) \| allocated: \d+ \| max allocated: \d+ \|.*$", re.MULTILINE
)


def test_discovery_prints_the_lines_of_two_steps_and_says_where_the_peak_is(tmp_path: Path) -> None:
    shown = run_inside("discover", SCRIPTS / "loader_loop.py", "--memory-matrix", folder=tmp_path)

    assert shown.status == 0, shown.errors
    lines = LINE.findall(shown.output)
    assert [phase.decode() for _, phase in lines] == PHASES * 2
    assert len({step for step, _ in lines}) == 2
    assert re.search(rb"^Its peak +[\d.]+ [MG]iB resident", shown.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("loader_loop.py", ()),
        pytest.param("ddp.py", ("2",), marks=pytest.mark.slow),
        pytest.param("autocast_accumulate.py", (), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_every_trial_that_is_asked_for_it_has_one_row_for_each_phase(
    script: str, arguments: tuple[str, ...], engine: str, tmp_path: Path
) -> None:
    configuration = Configuration() if engine == "eager" else Configuration("aot", parse_plans(["gelu+:1:-1"]))
    script = str(SCRIPTS / script)
    request = Request("measure", script, arguments, (configuration,), QUICK, memory_matrix=True, may_fork=True)

    (outcome,) = in_worker(request, folder=tmp_path).result.outcomes

    assert isinstance(outcome, Measured), outcome
    rows = outcome.measurement.memory_matrix
    assert [row.phase for row in rows] == PHASES * 2
    assert {row.rank for row in rows} == {0}
    assert all(row.parameters > 0 for row in rows)
    assert rows[3].gradients == rows[3].parameters


@pytest.mark.slow
def test_a_script_that_asks_for_it_itself_computes_what_it_did(plain: Plain, tmp_path: Path) -> None:
    own = plain("prints_memory.py")
    script = str(SCRIPTS / "prints_memory.py")
    configuration = Configuration("aot", parse_plans(["gelu+:1:-1"]))
    run = in_worker(Request("measure", script, (), (configuration,), QUICK, may_fork=True), folder=tmp_path)

    assert own.status == 0, own.errors
    assert [phase.decode() for _, phase in LINE.findall(own.output)[:8]] == PHASES * 2
    assert isinstance(run.result.outcomes[0], Measured), run.result.outcomes
    assert len(run.losses) >= 8
    assert run.losses == own.losses[: len(run.losses)]
