"""Engine ``ortmodule`` away from ONNX Runtime: what its tables mean, what is refused, and what the script keeps."""

from __future__ import annotations

import gc
import json
import os
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch
from torch import nn

from autotune.records.configuration import Configuration
from autotune.records.plan import Plan, parse_plan
from autotune.records.run import Request
from autotune.worker.describing.ortmodule_description import plan_rows, size_names
from autotune.worker.engines import ortmodule, ortmodule_compat, ortmodule_plans
from autotune.worker.engines.ortmodule import OrtModuleEngine
from autotune.worker.engines.ortmodule_compat import refusal
from autotune.worker.engines.ortmodule_plans import Builds, Opportunities, Opportunity
from autotune.worker.hooks.compilation import _hand_over
from autotune.worker.registry import engine_of

TABLE = """
MemoryInsight Summary - User config: Gelu+:1:-1
===================================================================
|Freq   | Memory Optimization Opportunities (Clustered by node-level activation patterns)     |
|4      |For each row options are mutually exclusive, only one of them can be enabled.        |
|       |                                                                                     |
|       |>>Option 1     : Recompute subgraph Gelu+                                            |
|       |  Status       : {status} |
|       |  Stashed Activations:                                                               |
|       |   - Output 0  : [((ids_dim0)*(ids_dim1)*(1024))], byte/elem: 4, 100% saved          |
|1      |For each row options are mutually exclusive, only one of them can be enabled.        |
|       |                                                                                     |
|       |>>Option 1     : Recompute subgraph Reshape+                                         |
|       |  Status       : Disabled.                                                           |
|       |>>Option 2     : RecomputeWithCompromise subgraph Cast+                              |
|       |  Status       : Disabled.                                                           |
"""
ON = "Enabled, requested count=-1, actual applied count=4"
OFF = "Disabled."
SIZES = {"ids_dim0": 8, "ids_dim1": 128, "labels_dim0": 8}
SAVINGS = {
    "Gelu+:1:-1": (4, "16384.0*ids_dim0*ids_dim1"),
    "Reshape+:1:-1": (1, "8.0*labels_dim0*ids_dim1"),
    "Cast+:1:-1,Reshape+:1:-1": (1, "4.0*labels_dim0"),
}


class FakeOrtModule:
    """Stands in the place of ORTModule: runs the root, and builds what is watched.

    ``settings`` are the environment variables at its construction, ``plans`` those in the file that they name.
    """

    made: list[FakeOrtModule]
    status = ON
    recomputes = ("Gelu", "Gelu")
    fails_with: Exception | None = None
    refuses_with: Exception | None = None

    def __init__(self, root: nn.Module, _: Any) -> None:
        if self.refuses_with is not None:
            raise self.refuses_with
        self._root = root
        self.settings = {name: value for name, value in os.environ.items() if name.startswith("ORTMODULE_")}
        path = self.settings.get("ORTMODULE_MEMORY_OPT_CONFIG")
        self.plans = None if path is None else json.loads(Path(path).read_text())
        self._manager = FakeManager(self.status, self.recomputes)
        self._torch_module = SimpleNamespace(_execution_manager=lambda training: self._manager)
        self.made.append(self)

    def __call__(self, *arguments: Any) -> Any:
        if self.fails_with is not None:
            raise self.fails_with
        self._manager.forward()
        return self._root(*arguments)


class Attributes(list[Any]):
    """Of a node of a graph, as protobuf has them."""

    def add(self) -> Any:
        self.append(SimpleNamespace(INT=2))
        return self[-1]


class FakeManager:
    """Builds a session at the first forward, as ORTModule's execution manager does: one to look at, one to train."""

    def __init__(self, status: str = OFF, recomputes: tuple[str, ...] = ()) -> None:
        self._status = status
        self._recomputes = recomputes
        self._is_built = False
        self.seeds: list[int | None] = []
        self._symbols = {name: sympy.Symbol(name) for name in SIZES}
        self._runtime_options = SimpleNamespace(memory_optimizer_config_file_path="", recompute_probe_config="1:0")
        observer = SimpleNamespace(
            cluster_id_combination_to_saving_symbolics_map={},
            symbolic_dim_name_to_value_map={self._symbols[name]: size for name, size in SIZES.items()},
            find_memory_optimization_opportunity=self._find,
        )
        self._runtime_inspector = SimpleNamespace(memory_ob=observer)

    def forward(self) -> None:
        if not self._is_built:
            nodes = [SimpleNamespace(op_type=name, attribute=Attributes()) for name in ("Dropout", "Gelu", "Dropout")]
            model = SimpleNamespace(graph=SimpleNamespace(node=nodes))
            self._initialize_graph_builder(SimpleNamespace(_post_export_processed_model=model))
            self._create_execution_agent()
        self._is_built = True

    def _initialize_graph_builder(self, exported: Any) -> None:
        for node in exported._post_export_processed_model.graph.node:
            self.seeds.append(next((one.i for one in node.attribute if one.name == "seed"), None))

    def _find(self, agent: Any, options: Any) -> None:
        self._runtime_inspector.memory_ob.cluster_id_combination_to_saving_symbolics_map |= {
            key: SimpleNamespace(
                freq=count, simplified_symbolic_saving_expr=sympy.sympify(saving, locals=self._symbols)
            )
            for key, (count, saving) in SAVINGS.items()
        }

    def _get_session_config(self) -> Any:
        return SimpleNamespace(optimized_model_filepath=""), [], []

    def _create_execution_agent(self) -> None:
        options, _, _ = self._get_session_config()
        agent = SimpleNamespace(
            get_serialized_ortmodule_memory_stat=lambda path, probe, whole: (TABLE.format(status=self._status), {})
        )
        self._runtime_inspector.memory_ob.find_memory_optimization_opportunity(agent, self._runtime_options)
        Path(options.optimized_model_filepath).write_text(" ".join(self._recomputes))


def built(status: str, *recomputes: str) -> Opportunities:
    """What is read from a session."""
    manager = FakeManager(status, recomputes)
    builds = Builds(manager)
    manager.forward()
    assert builds.last is not None
    return builds.last


@pytest.fixture(autouse=True)
def graphs_are_words(monkeypatch):
    """The fake writes the operators that run again in the place of a graph."""
    monkeypatch.setattr(ortmodule_plans, "_recomputed", lambda path: Counter(path.read_text().split()))


@pytest.fixture
def fake(monkeypatch):
    """ORTModule's place is taken by a class that is thrown away after the test."""

    class Own(FakeOrtModule):
        pass

    Own.made = []
    module = SimpleNamespace(
        ORTModule=Own,
        DebugOptions=lambda log_level: log_level,
        LogLevel=SimpleNamespace(ERROR="error"),
    )
    monkeypatch.setattr(ortmodule, "import_ortmodule", lambda: module)
    return Own


def run(*plans: str, level: int = 0, calls: int = 1) -> OrtModuleEngine:
    """An engine after training calls of one root."""
    engine = OrtModuleEngine()
    assert engine.use(Configuration("ortmodule", tuple(map(parse_plan, plans)), level)) is None
    call = engine.compile_root(nn.Linear(3, 3))
    for _ in range(calls):
        assert call(torch.ones(2, 3)).shape == (2, 3), "whatever the engine thinks of it, the script goes on"
    return engine


def test_a_session_tells_which_plans_there_are_and_which_are_on():
    found = built(ON, "Gelu")
    assert found.known == {("Gelu+", 1), ("Reshape+", 1), ("Cast+", 1)}
    assert found.frequencies == {("Gelu+", 1): 4, ("Reshape+", 1): 1}
    assert found.applied == {("Gelu+", 1)}
    assert built(OFF).applied == frozenset()


def test_a_plan_is_on_only_where_its_operators_run_again():
    assert built(ON).applied == frozenset()
    assert built(ON, "Reshape").applied == frozenset()


def test_the_plans_are_in_a_file_that_ortmodule_reads_and_fallback_is_off(fake):
    run("Gelu+:1:-1")
    (made,) = fake.made
    assert made.plans == ["Gelu+:1:-1"]
    assert made.settings["ORTMODULE_FALLBACK_POLICY"] == "FALLBACK_DISABLE"
    assert made.settings["ORTMODULE_MEMORY_OPT_LEVEL"] == "0"


def test_the_file_goes_with_the_engine(fake):
    engine = run("Gelu+:1:-1")
    path = Path(fake.made[0].settings["ORTMODULE_MEMORY_OPT_CONFIG"])
    assert path.exists()
    del engine
    gc.collect()
    assert not path.exists()


def test_settings_of_the_script_s_own_neither_count_nor_get_lost(fake, monkeypatch):
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", "/of/the/script.json")
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", "2")
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY", raising=False)
    run()
    (made,) = fake.made
    assert "ORTMODULE_MEMORY_OPT_CONFIG" not in made.settings
    assert made.settings["ORTMODULE_MEMORY_OPT_LEVEL"] == "0"
    assert os.environ["ORTMODULE_MEMORY_OPT_CONFIG"] == "/of/the/script.json"
    assert os.environ["ORTMODULE_MEMORY_OPT_LEVEL"] == "2"
    assert "ORTMODULE_FALLBACK_POLICY" not in os.environ


def test_choices_are_variables_that_ortmodule_reads_and_the_others_stay_as_they_are(fake, monkeypatch):
    monkeypatch.delenv("ORTMODULE_ENABLE_COMPUTE_OPTIMIZER", raising=False)
    engine = OrtModuleEngine()
    engine.use(Configuration("ortmodule", choices=("compute-optimizer=0",)))
    engine.compile_root(nn.Linear(3, 3))
    assert fake.made[0].settings["ORTMODULE_ENABLE_COMPUTE_OPTIMIZER"] == "0"
    assert "ORTMODULE_ENABLE_EMBEDDING_SPARSE_OPTIMIZER" not in fake.made[0].settings
    assert "ORTMODULE_ENABLE_COMPUTE_OPTIMIZER" not in os.environ


@pytest.mark.parametrize(("mode", "seeds"), [("verify", [1, None, 3]), ("measure", [None, None, None])])
def test_in_a_proof_each_dropout_draws_by_itself_and_otherwise_as_ever(fake, mode, seeds):
    configuration = Configuration("ortmodule")
    engine = engine_of(Request(mode, "train.py", (), (configuration,)))
    assert isinstance(engine, OrtModuleEngine)
    engine.use(configuration)
    engine.compile_root(nn.Linear(3, 3))(torch.ones(2, 3))
    assert fake.made[0]._manager.seeds == seeds


def test_what_was_applied_is_no_problem(fake):
    assert run("Gelu+:1:-1").problem() is None


def test_a_plan_that_onnx_runtime_would_pass_over_in_silence_is_invalid(fake):
    problem = run("Nope+:1:-1").problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"
    assert problem.cause == "the script has no cluster Nope+:1; it has Cast+:1, Gelu+:1, Reshape+:1"


def test_a_plan_that_was_not_applied_is_a_fallback(fake):
    fake.status = OFF
    problem = run("Gelu+:1:-1").problem()
    assert problem is not None
    assert (problem.kind, problem.cause) == ("fallback", "ONNX Runtime did not apply Gelu+:1:-1")


def test_a_plan_that_nobody_asked_for_is_a_fallback(fake):
    problem = run().problem()
    assert problem is not None
    assert "not asked for: Gelu+:1" in problem.cause


@pytest.mark.parametrize("plan", ["Gelu+:0:-1", "Gelu+:1:0"])
def test_a_plan_that_recomputes_nothing_need_not_be_on(fake, plan):
    fake.status, fake.recomputes = OFF, ()
    assert run(plan).problem() is None
    assert fake.made[0].plans is None, "a count of 0 would be all but one"


@pytest.mark.parametrize("count", [1, 3])
def test_a_plan_for_some_occurrences_is_invalid_as_it_would_be_applied_to_all(fake, count):
    problem = run(f"Gelu+:1:{count}").problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"
    assert f"whatever its count: Gelu+:1:{count}" in problem.cause


def test_as_many_as_there_are_is_all(fake):
    assert run("Gelu+:1:4").problem() is None


def test_a_level_is_applied_by_itself(fake):
    engine = run(level=1)
    assert fake.made[0].settings["ORTMODULE_MEMORY_OPT_LEVEL"] == "1"
    assert engine.problem() is None


def test_a_level_that_finds_no_layer_is_a_fallback(fake):
    fake.status = OFF
    problem = run(level=1).problem()
    assert problem is not None
    assert problem.kind == "fallback"


def test_plans_at_a_level_are_invalid(fake):
    problem = run("Gelu+:1:-1", level=2).problem()
    assert problem is not None
    assert problem.kind == "invalid_plan"


def test_a_root_that_cannot_be_wrapped_runs_as_it_is_and_is_reported(fake):
    fake.refuses_with = ImportError("No module named 'onnxruntime'")
    problem = run().problem()
    assert problem is not None
    assert "ORTModule cannot wrap Linear: ImportError: No module named 'onnxruntime'" in problem.cause


def test_a_root_that_cannot_be_exported_runs_as_it_is_and_is_reported(fake):
    fake.fails_with = RuntimeError("exporting failed:\n\nTraceback\n  a line\nTypeError: aten::odd is not exported\n\n")
    engine = run(calls=3)
    problem = engine.problem()
    assert problem is not None
    assert "ORTModule cannot run Linear: TypeError: aten::odd is not exported" in problem.cause
    assert engine.num_compiled == 0


def test_a_root_inside_of_a_wrapper_is_exported_as_it_is(fake):
    engine, root = OrtModuleEngine(), nn.Linear(3, 3)
    engine.use(Configuration("ortmodule"))
    root._compiled_call_impl = engine.compile_root(root)
    assert root(torch.ones(2, 3)).shape == (2, 3)
    assert engine.num_compiled == 1


def test_running_out_of_memory_is_the_script_s_own_end(fake):
    fake.fails_with = RuntimeError("Failed to allocate memory: out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        run()


def test_graphs_are_counted_as_they_are_built(fake):
    engine = run(calls=3)
    assert engine.num_compiled == 1
    assert engine.is_compiled


def test_another_set_of_plans_takes_another_process(fake):
    engine = run()
    assert engine.use(Configuration("ortmodule", (Plan("Reshape+", 1, -1),))) is not None


def test_without_a_root_there_is_a_reason():
    engine = OrtModuleEngine()
    engine.use(Configuration("ortmodule"))
    engine.without_plans.append("the script compiles with 'inductor'")
    problem = engine.problem()
    assert problem is not None
    assert "the script compiles with 'inductor'" in problem.cause


@pytest.mark.parametrize("options", [{}, {"backend": "aot_eager"}])
def test_a_script_that_compiles_itself_keeps_its_own_options(options):
    engine, notes, keywords = OrtModuleEngine(), [], dict(options)
    _hand_over(engine, keywords, notes.append)
    assert keywords == options
    assert "takes no plans of engine 'ortmodule'" in notes[0]


def test_rows_have_bytes_formulas_and_the_sum_over_graphs():
    found = built(OFF)
    names, values = size_names(found.sizes, {(0, 8): "batch", (1, 128): "seq_len"})
    assert values == {"batch": 8, "seq_len": 128}
    rows, notes = plan_rows([found, found], names, values)
    assert [(row.cluster_id, row.strategy, row.frequency, row.saving_bytes) for row in rows] == [
        ("Gelu+", 1, 8, 2 * 16384 * 8 * 128),
        ("Reshape+", 1, 2, 2 * 8 * 8 * 128),
    ]
    assert rows[0].saving_formula == "32768*batch*seq_len"
    assert [row.excludes for row in rows] == [(), ("Cast+",)]
    assert any("Cast+ with Reshape+" in note for note in notes)


def test_sizes_that_nobody_named_keep_ortmodule_s_names():
    found = Opportunities(
        (Opportunity((Plan("Gelu+", 1, -1),), 1, 4 * sympy.Symbol("x_dim2")),), {sympy.Symbol("x_dim2"): 7}
    )
    names, values = size_names(found.sizes, {(0, 7): "batch"})
    assert values == {"x_dim2": 7}
    assert plan_rows([found], names, values)[0][0].saving_formula == "4*x_dim2"


@pytest.mark.parametrize(
    ("torch_version", "onnxruntime_version", "reason"),
    [("2.13.0+cpu", "1.19.2", ""), ("2.12.1", "1.19.2", "2.12.1"), ("2.13.0", "1.20.0", "this is 1.20.0")],
)
def test_releases_that_were_not_seen_to_work_are_refused(torch_version, onnxruntime_version, reason):
    said = refusal(torch_version, onnxruntime_version)
    assert reason in said
    assert bool(said) is bool(reason)


def test_every_repair_says_what_it_mends_and_since_when():
    for repair in (*ortmodule_compat.REPAIRS_BEFORE_IMPORT, *ortmodule_compat.REPAIRS_AFTER_IMPORT):
        assert re.match(r"Since torch \d+\.\d+: \w+", repair.__doc__ or "")
