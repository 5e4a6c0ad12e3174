"""That each setting of a session is in force, and what outputs are held against."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from autotune.inference.convert import compare, keep
from autotune.inference.session import Runner
from autotune.records.choices import choices_of, made_choices
from autotune.records.conversion import CONVERSIONS
from autotune.records.session import Session, session_of
from autotune.records.session_settings import SESSION_SETTINGS
from tests.fakes.onnx_models import branching, convolutional, picking, save
from tests.fakes.study_record import FACTS


def session_with(*choices):
    return session_of(made_choices("onnxruntime", choices).items())


def test_a_setting_has_the_value_that_was_asked_for(tmp_path):
    path = save(convolutional(), tmp_path / "m.onnx")
    settings = session_with(
        "cpu-arena=0", "mem-pattern=0", "mem-reuse=0", "optimization=1", "parallel=1", "intra-op-threads=1",
        "spinning=0", "prepacking=0", "weights-outside-arena=1", "inter-op-threads=2",
    )  # fmt: skip
    options = Runner(path, settings).session.get_session_options()
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert not options.enable_mem_reuse
    assert options.graph_optimization_level.name == "ORT_ENABLE_BASIC"
    assert options.execution_mode.name == "ORT_PARALLEL"
    assert options.intra_op_num_threads == 1
    assert options.inter_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    assert options.get_session_config_entry("session.use_device_allocator_for_initializers") == "1"


def test_what_others_wait_for_runs_first(tmp_path):
    path = save(convolutional(), tmp_path / "m.onnx")
    options = Runner(path, session_with("order=1")).session.get_session_options()
    assert options.execution_order.name == "PRIORITY_BASED"


def test_one_thread_for_operators_would_have_none_run_at_the_same_time(tmp_path):
    path = save(convolutional(), tmp_path / "m.onnx")
    options = Runner(path, session_with("parallel=1", "inter-op-threads=1")).session.get_session_options()
    assert options.execution_mode.name == "ORT_SEQUENTIAL"
    facts = replace(FACTS, environment=replace(FACTS.environment, num_threads=8))
    assert choices_of("onnxruntime")["inter-op-threads"].values_for(facts) == (0, 2, 4)
    assert choices_of("onnxruntime")["intra-op-threads"].values_for(facts) == (0, 1, 2, 4)


def test_every_setting_names_its_values(tmp_path):
    for setting in SESSION_SETTINGS:
        assert setting.takes(str(setting.default))
        assert not setting.takes("-1")
        assert not setting.takes("x")
    assert [one.name for one in (*SESSION_SETTINGS, *CONVERSIONS)] == list(choices_of("onnxruntime"))


@pytest.mark.parametrize("choice", ["arena-as-requested=1", "shrink-arena=1", "io-binding=1", "mem-reuse=0"])
@pytest.mark.parametrize("make", [convolutional, picking, branching])
def test_outputs_are_the_same_with_a_setting(tmp_path, choice, make):
    path = save(make(), tmp_path / "m.onnx")
    feeds = {
        "convolutional": {"image": np.ones((2, 3, 16, 16), np.float32)},
        "picking": {"words": np.ones((2, 5), np.int32), "mask": np.ones((2, 5, 1), bool)},
        "branching": {"x": np.ones((2, 4), np.float32)},
    }
    feed = feeds[make.__name__]
    # In a process of its own: an arena is one for all sessions of a process.
    program = (
        "import sys, json, numpy as np\n"
        "from pathlib import Path\n"
        "from autotune.inference.session import Runner\n"
        "from autotune.records.choices import made_choices\n"
        "from autotune.records.session import Session, session_of\n"
        "feed = dict(np.load(sys.argv[2]))\n"
        "plain = Runner(Path(sys.argv[1]), Session())\n"
        "own = Runner(Path(sys.argv[1]), session_of(made_choices('onnxruntime', [sys.argv[3]]).items()))\n"
        "for _ in range(3):\n"
        "    assert all(np.array_equal(a, b) for a, b in zip(plain.run(feed), own.run(feed), strict=True))\n"
        "print('same')\n"
    )
    np.savez(tmp_path / "feed.npz", **feed)
    done = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "feed.npz", choice], capture_output=True, text=True, check=True
    )
    assert done.stdout == "same\n"


def test_a_session_is_written_as_it_is_made():
    session = session_with("cpu-arena=0", "shrink-arena=1", "arena-as-requested=1", "io-binding=1", "spinning=0")
    assert session == Session(
        options={"enable_cpu_mem_arena": False},
        config={"session.intra_op.allow_spinning": "0"},
        run_config={"memory.enable_memory_arena_shrinkage": "cpu:0"},
        arena={"arena_extend_strategy": 1},
        io_binding=True,
    )
    json.dumps(session.options)


def test_outputs_that_differ_are_told_with_their_size(tmp_path):
    outputs = {"a": np.array([1.0, 4.0], np.float32), "b": np.array([1, 2])}
    keep(tmp_path, 1, outputs)
    assert compare(tmp_path, [outputs]).differing == 0
    found = compare(tmp_path, [{**outputs, "a": np.array([1.0, 3.0], np.float32)}])
    assert (found.compared, found.differing, found.name, found.step) == (2, 1, "a", 1)
    assert (found.absolute, found.relative) == (1.0, 0.25)


def test_an_output_is_held_against_its_own_largest_value(tmp_path):
    keep(tmp_path, 1, {"large": np.array([100.0]), "small": np.array([0.01])})
    found = compare(tmp_path, [{"large": np.array([100.0]), "small": np.array([0.02])}])
    assert (found.name, found.relative) == ("small", 1.0)


def test_a_number_that_is_none_has_no_distance(tmp_path):
    keep(tmp_path, 1, {"a": np.array([1.0])})
    found = compare(tmp_path, [{"a": np.array([np.nan])}])
    assert (found.differing, found.relative) == (1, None)
