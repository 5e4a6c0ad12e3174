"""Peers on a real script: libraries' finders, and a small record from its first run to its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.records.outcome import Measured
from tests.benchmarks.peers import finders
from tests.benchmarks.peers.record import NOTHING, Setting, read_record

pytestmark = pytest.mark.slow  # guards benchmarks, and nothing that is shipped

ROOT = Path(__file__).resolve().parents[2]


def ask(name, first, most, fits):
    """What a library's finder tries, and its last word, where so many samples fit."""
    command = (sys.executable, "-P", finders.__file__, name, str(first), str(most))
    tried = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            said = json.loads(line)
            if "try" not in said:
                process.kill()
                return tried, said
            tried.append(said["try"])
            process.stdin.write("fits\n" if said["try"] <= fits else "out of memory\n")
            process.stdin.flush()
    raise AssertionError("it ended without a word")


def test_accelerate_goes_down_from_what_does_not_fit():
    pytest.importorskip("accelerate")
    tried, said = ask("accelerate", 8, 32, fits=27)
    assert tried[0] == 32
    assert tried == sorted(tried, reverse=True)
    assert said["found"] == tried[-1] <= 27 < tried[-2]
    assert said["version"]


def test_lightning_doubles_and_stays_below_the_most_there_may_be():
    pytest.importorskip("lightning")
    tried, said = ask("lightning", 8, 64, fits=27)
    assert (tried, said["found"]) == ([8, 16, 32], 16)
    tried, said = ask("lightning", 8, 64, fits=1000)
    assert (tried, said["found"]) == ([8, 16, 32, 64], 64)


def test_lightning_looks_between_as_well():
    pytest.importorskip("lightning")
    tried, said = ask("lightning-binsearch", 8, 64, fits=27)
    assert max(size for size in tried if size <= 27) == 27
    assert 27 * 0.9 <= said["found"] <= 27  # it keeps a margin


def test_a_library_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setitem(finders.FINDERS, "nothing", ("no_such_library", None))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.benchmarks.peers import finders; "
        "finders.FINDERS['nothing'] = ('no_such_library', None); finders.main('nothing', 8, 64)"
    )
    done = subprocess.run((sys.executable, "-c", code, str(ROOT)), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"failed": "no_such_library is not installed"}


def test_a_record_of_a_real_script_in_two_sittings(tmp_path):
    def sit(*options, status):
        command = [sys.executable, "-m", "tests.benchmarks.peers", "charlm", "--cpu", "--json", "--seconds", "0.2"]
        command += ["--records", str(tmp_path / "records"), "--runs", str(tmp_path / "runs"), "--limit", "8GiB"]
        command += ["--batch-sizes", "1:8", "--repetitions", "1", "--peer", "checkpoint all", "--peer", "transformers"]
        command += [*options, "--", "--layers", "2", "--width", "16", "--block-size", "16", "--max-chars", "20000"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    first = sit("--tasks", "2", status=75)
    before = read_record(Path(first["file"]))
    assert [run.setting for run in before.runs] == [Setting(NOTHING, 0), Setting(NOTHING, 8)]
    last = sit(status=0)
    record = read_record(Path(last["file"]))
    assert record.runs[:2] == before.runs
    assert record.own_batch_size == 16
    best, checkpointed, transformers = last["rows"]
    assert (best["peer"], best["batch_size"], best["ratio"], best["repetitions"]) == ("best batch", 8, 1.0, 1)
    assert (checkpointed["batch_size"], checkpointed["gradients"]) == (8, "equal bits")
    assert checkpointed["ratio"] > 0
    assert transformers["why_not"] == "CharTransformer is no model of transformers"
    repetitions = [run for run in record.runs if run.purpose == "repetition"]
    assert all(
        isinstance(run.outcome, Measured) and len(run.outcome.measurement.step_times_s) >= 3 for run in repetitions
    )
