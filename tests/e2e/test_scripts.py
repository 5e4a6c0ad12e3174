"""Scripts that must work unmodified, one of each kind: nothing in them changes but the memory they take.

For each: plain Python, a discovery run, and a run with every plan of its table applied. What a script prints tells
every bit of its losses, so a sample, a dropout mask or a gradient that differs shows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.predict.prediction import Predictor
from autotune.records.configuration import Configuration
from autotune.records.outcome import Fallback, Measured
from autotune.records.plan import ALL, Plan
from autotune.records.run import Request

from .conftest import Discover, Once, Plain
from .inside import run_inside
from .processes import QUICK, SCRIPTS, Finished, WorkerRun, in_worker, measure

NORM = {"native_layer_norm+", "native_layer_norm+[1]", "native_layer_norm+[2]"}
TOY = {"gelu+", *NORM}
# Without dropout there is no generator state to keep, so that recomputing whole blocks of a toy pays.
TOY_LAYERS = {"Block+", *TOY}
# What a model that is not called by `nn.Module.__call__` leaves to see: its parts.
OWN_CALL = ("Linear", "Block", "Block", "Block", "Linear")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A script and what is known about it.

    ``applied_by`` says how its last root gets its plans. ``switches``: another set of plans can be applied in the same
    process. ``like_plain``: AOTAutograd computes what the script without it computes. ``gives_up``: Dynamo compiles
    the model anew at every step, until it gives up.
    """

    script: str
    arguments: tuple[str, ...] = ()
    needs: str = ""
    roots: tuple[str, ...] = ("ToyNet",)
    applied_by: str = "aot"
    clusters: frozenset[str] | set[str] = frozenset(TOY)
    batch_size: int = 8
    samples_per_step: tuple[int, ...] = (8,)
    calls_per_step: float = 1
    num_processes: int = 1
    guessed: bool = False
    control: str = "loaders"
    autocast: str | None = None
    grad_scaler: bool = False
    switches: bool = True
    like_plain: bool = True
    gives_up: bool = False


CASES = {
    "loader-loop": Case(script="loader_loop.py"),
    "model-returns-loss": Case(script="loss_in_model.py", roots=("Regressor",)),
    "own-batches-from-globals": Case(
        script="own_batches_globals.py",
        arguments=("--batch_size=16",),
        batch_size=16,
        samples_per_step=(16,),
        clusters=TOY_LAYERS,
        control="none",
    ),
    "asks-for-batch-size": Case(script="asks_batch_size.py", control="function"),
    "compiles-with-inductor": Case(
        script="compiled_by_script.py",
        applied_by="the script's own compilation",
        clusters={"Block+", "gelu+", "native_layer_norm+"},
        switches=False,
    ),
    "compiles-with-aot-eager": Case(script="compiled_aot_eager.py", applied_by="the script's own compilation"),
    "compiles-in-place": Case(script="compiled_in_place.py", applied_by="the script's own compilation"),
    "compiles-late": Case(script="late_compile.py", applied_by="the script's own compilation"),
    "compiles-its-loss": Case(script="compiled_loss_function.py", roots=(), calls_per_step=0),
    "autocast-scaler-accumulation-clipping": Case(
        script="autocast_accumulate.py",
        samples_per_step=(16,),
        calls_per_step=2,
        autocast="bfloat16",
        grad_scaler=True,
        like_plain=False,
        clusters={"_to_copy+", *TOY},
    ),
    "sequential-root": Case(
        script="sequential_root.py",
        roots=("Sequential",),
        batch_size=64,
        samples_per_step=(64,),
        clusters={"gelu+native_dropout+"},
    ),
    "transformer-encoder-root": Case(
        script="transformer_encoder_root.py",
        roots=("TransformerEncoder", "Linear"),
        calls_per_step=2,
        clusters={"TransformerEncoderLayer+", "gelu+native_dropout+", "native_layer_norm+"},
    ),
    "masked-encoder": Case(
        script="masked_encoder.py",
        roots=("Tagger",),
        clusters={"TransformerEncoderLayer+", "gelu+native_dropout+", "native_layer_norm+"},
    ),
    "gan": Case(script="gan.py", switches=False, roots=("Generator", "ToyNet"), calls_per_step=4),
    "lbfgs": Case(script="lbfgs.py", calls_per_step=4, clusters=TOY_LAYERS),
    "no-optimizer": Case(script="no_optimizer.py", samples_per_step=(16,), calls_per_step=2),
    "graph-break": Case(script="graph_break.py", roots=("Net",), clusters={"abs+", "max+"}),
    "smaller-last-batch": Case(script="smaller_last_batch.py", samples_per_step=(8, 6), switches=False),
    "frozen-backbone": Case(script="frozen_backbone.py", roots=("FineTuned",)),
    "frozen-called-apart": Case(script="frozen_called_apart.py"),
    "tied-weights": Case(script="tied_weights.py", roots=("Tied",), clusters={"embedding+"}),
    "ddp-one-process": Case(script="ddp.py"),
    "ddp-two-processes": Case(script="ddp.py", arguments=("2",), num_processes=2, samples_per_step=(16,)),
    "ddp-with-options": Case(
        script="ddp_options.py",
        roots=("Branched",),
        num_processes=2,
        samples_per_step=(32,),
        calls_per_step=2,
        clusters={"Block+", "gelu+"},
    ),
    "loader-workers": Case(script="loader_workers.py"),
    "own-modules-and-argparse": Case(script="with_own_modules/train.py", roots=("Net",), clusters={"gelu+"}),
    "heavy-printing": Case(script="noisy.py"),
    "evaluates-first": Case(script="evaluate_first.py"),
    "hugging-face-trainer": Case(
        script="hf_trainer.py",
        needs="transformers",
        roots=("GPT2LMHeadModel",),
        clusters={"GPT2Block+", "native_layer_norm+"},
        batch_size=4,
        samples_per_step=(8,),
        calls_per_step=2,
    ),
    "lightning": Case(script="lightning_script.py", needs="lightning"),
    "accelerate": Case(script="accelerate_script.py", needs="accelerate", samples_per_step=(16,), calls_per_step=2),
    "generates-while-training": Case(
        script="generates_in_training.py",
        needs="transformers",
        roots=("GPT2LMHeadModel",),
        clusters={"GPT2Block+", "native_layer_norm+"},
        batch_size=4,
        samples_per_step=(4,),
        guessed=True,
        control="none",
    ),
    "checkpointed-blocks": Case(script="checkpointed_blocks.py", roots=("Checkpointed",), clusters=set()),
    "checkpointed-reentrant": Case(script="checkpointed_reentrant.py", roots=("Checkpointed",), clusters=set()),
    "copies-and-pickles": Case(script="ema_copies.py"),
    "finally-block": Case(script="finally_block.py"),
    "forward-hooks": Case(script="forward_hooks.py", gives_up=True),
    "forwards-in-threads": Case(
        script="forwards_in_threads.py", roots=("ToyNet", "ToyNet"), calls_per_step=2, clusters=TOY_LAYERS
    ),
    "functional-calls": Case(script="functional_calls.py", clusters=TOY_LAYERS),
    "iterable-dataset": Case(script="iterable_dataset.py", batch_size=16, samples_per_step=(16,), clusters=TOY_LAYERS),
    "ready-made-batches": Case(script="ready_made_batches.py", batch_size=6, samples_per_step=(6,), control="none"),
    "root-in-bigger-root": Case(script="root_in_bigger_root.py", roots=("Sum",)),
    "swallows-exit": Case(script="swallows_exit.py"),
    "trains-in-a-thread": Case(script="trains_in_thread.py"),
    "unusual-calls": Case(
        script="unusual_calls.py",
        roots=(*OWN_CALL, "WrappedCall", *OWN_CALL, "TopLevelTracedModule"),
        applied_by="",
        calls_per_step=12,
    ),
}


# Compilers and processes take long; the others are like kinds that are not here.
SLOW = {
    *("compiles-with-inductor", "compiles-in-place", "compiles-late", "compiles-its-loss", "ddp-with-options"),
    *("generates-while-training", "unusual-calls", "functional-calls", "checkpointed-reentrant", "copies-and-pickles"),
    *("frozen-called-apart", "root-in-bigger-root", "ready-made-batches", "evaluates-first", "heavy-printing"),
    *("no-optimizer", "iterable-dataset", "own-modules-and-argparse", "accelerate", "model-returns-loss"),
    *(
        "lightning",
        "lbfgs",
        "frozen-backbone",
        "own-batches-from-globals",
        "asks-for-batch-size",
        "checkpointed-blocks",
    ),
    *("ddp-one-process", "ddp-two-processes", "finally-block", "forward-hooks", "forwards-in-threads", "graph-break"),
    *("sequential-root", "tied-weights", "transformer-encoder-root", "gan", "trains-in-a-thread", "smaller-last-batch"),
    *("loader-workers", "swallows-exit", "hugging-face-trainer", "masked-encoder", "compiles-with-aot-eager"),
}

# Of several graphs, of several roots, or of a graph that a message would break.
PREDICTED_TOGETHER = {"graph-break", "hugging-face-trainer", "masked-encoder", "transformer-encoder-root"}
# Their graphs run for some calls only, or several times in one.
RUN_OTHERWISE = {"graph-break", "ddp-with-options"}
# Why some of them get no predictions.
NOT_PREDICTED = {
    "compiles-with-inductor": "compiles with Inductor",
    "forwards-in-threads": "another thread",
    "trains-in-a-thread": "another thread",
}


@dataclass(frozen=True)
class Evidence:
    """What happened to one script. ``planned`` holds the runs with all plans, and with none, of the engine."""

    plain: Finished
    discovery: WorkerRun
    planned: tuple[WorkerRun, ...]


def gather(case: Case, folder: Path, plain: Plain, discovered: Discover) -> Evidence:
    """Run a script plainly, in discovery, with all its plans, and with none."""
    plainly, discovery = (run(case.script, *case.arguments) for run in (plain, discovered))
    size, control = discovery.facts.baseline.batch_size, discovery.facts.batch_control
    plans = {row.cluster_id: Plan(row.cluster_id, row.strategy, ALL) for row in discovery.facts.clusters}
    with_plans = Configuration("aot", tuple(sorted(plans.values())), batch_size=size)
    without = Configuration("aot", batch_size=size)

    def run(*configurations: Configuration) -> WorkerRun:
        return measure(
            SCRIPTS / case.script,
            *case.arguments,
            configurations=configurations,
            folder=folder,
            control=control,
            may_fork=not discovery.facts.fork_refusal,
        )

    if not plans:
        return Evidence(plainly, discovery, (run(without),))
    if case.switches and case.like_plain:
        return Evidence(plainly, discovery, (run(with_plans, without),))
    return Evidence(plainly, discovery, (run(with_plans), run(without)))


@pytest.fixture(scope="session")
def evidence_of(once: Once, plain: Plain, discovered: Discover) -> Callable[[str], Evidence]:
    """Runs a script for the first of the tests that look at it."""
    return lambda kind: once(lambda folder: gather(CASES[kind], folder, plain, discovered), "evidence", kind)


def missing(package: str) -> bool:
    return bool(package) and importlib.util.find_spec(package) is None


def marks_of(kind: str) -> list[pytest.MarkDecorator]:
    needs = CASES[kind].needs
    skip = pytest.mark.skipif(missing(needs), reason=f"needs {needs}")
    return [skip, pytest.mark.slow] if kind in SLOW else [skip]


each_kind = pytest.mark.parametrize("kind", [pytest.param(kind, marks=marks_of(kind)) for kind in CASES])


@each_kind
def test_discovery_leaves_the_losses_as_they_are(kind: str, evidence_of: Callable[[str], Evidence]) -> None:
    case, evidence = CASES[kind], evidence_of(kind)

    assert evidence.plain.status == 0, evidence.plain.errors
    losses = evidence.discovery.losses
    if not case.like_plain:
        # After the baseline, discovery looks at some steps under the engine.
        baseline = evidence.discovery.measurement()
        losses = losses[: int((baseline.warmup_steps + len(baseline.step_times_s)) * case.calls_per_step)]
    assert len(losses) >= 8
    assert losses == evidence.plain.losses[: len(losses)]


@each_kind
def test_steps_samples_and_calls_are_counted(kind: str, evidence_of: Callable[[str], Evidence]) -> None:
    case = CASES[kind]

    measurement = evidence_of(kind).discovery.measurement()

    assert set(measurement.samples_per_step) == set(case.samples_per_step)
    assert measurement.batch_size == case.batch_size
    assert measurement.calls_per_step == case.calls_per_step
    assert measurement.samples_are_guessed == case.guessed
    assert measurement.num_processes == case.num_processes
    assert measurement.peaks.resident > 0


@each_kind
def test_the_facts_tell_what_the_script_has(kind: str, evidence_of: Callable[[str], Evidence]) -> None:
    case = CASES[kind]

    facts = evidence_of(kind).discovery.facts

    assert tuple(root.name for root in facts.roots) == case.roots
    assert all(root.applied_by == case.applied_by for root in facts.roots[-1:])
    assert facts.batch_size == case.batch_size
    assert facts.batch_control.how == case.control
    assert bool(facts.batch_control.reason) == (case.control == "none"), "what cannot be controlled is said"
    assert facts.baseline.batch_size == case.batch_size
    assert {row.cluster_id for row in facts.clusters} >= case.clusters
    assert all(row.saving_bytes > 0 for row in facts.clusters)
    if len(case.roots) == 1 and kind not in RUN_OTHERWISE:
        assert {row.calls_per_step for row in facts.clusters} <= {case.calls_per_step}
    if facts.precision is not None:
        assert (facts.precision.parameters, facts.precision.autocast) == ("float32", case.autocast)
        assert facts.precision.grad_scaler == case.grad_scaler


@each_kind
def test_plans_change_the_memory_and_not_one_bit_of_the_losses(
    kind: str, evidence_of: Callable[[str], Evidence]
) -> None:
    case, evidence = CASES[kind], evidence_of(kind)

    outcomes = [outcome for run in evidence.planned for outcome in run.result.outcomes]
    if case.gives_up:
        assert isinstance(outcomes[0], Fallback), "what ran without the plans is no measurement of them"
        assert "Dynamo gave up on the model" in outcomes[0].cause
        assert outcomes[1:] == [None]
        return
    assert [type(outcome) for outcome in outcomes] == [Measured] * len(outcomes), outcomes
    saved = [outcome.measurement.saved_bytes for outcome in outcomes]
    if evidence.discovery.facts.clusters:
        with_plans, without = saved
        assert 0 < with_plans < without
    losses = [run.losses for run in evidence.planned]
    assert min(map(len, losses)) >= 8
    if case.like_plain:
        losses.append(evidence.plain.losses)
    common = min(map(len, losses))
    assert all(one[:common] == losses[0][:common] for one in losses)


@each_kind
def test_what_plans_save_is_predicted_without_torch_or_refused(
    kind: str, evidence_of: Callable[[str], Evidence]
) -> None:
    case, evidence = CASES[kind], evidence_of(kind)
    facts = evidence.discovery.facts
    assert facts.calibration is not None
    if facts.calibration.error is None:
        assert kind not in PREDICTED_TOGETHER, facts.calibration.reason
        assert facts.calibration.reason
        assert NOT_PREDICTED.get(kind, "") in facts.calibration.reason
        return
    assert kind not in NOT_PREDICTED
    if case.gives_up or len(set(case.samples_per_step)) > 1 or kind == "root-in-bigger-root":
        # What was measured last is the graph of an epoch's smaller last batch then, or of the model that it went on to.
        return
    plans = {row.cluster_id: Plan(row.cluster_id, row.strategy, ALL) for row in facts.clusters}
    configurations = [Configuration("aot", tuple(sorted(plans.values()))), Configuration("aot")]
    measured = [run.measurement(index) for run in evidence.planned for index in range(len(run.result.outcomes))]
    predictor = Predictor(facts)
    for configuration, measurement in zip(configurations[-len(measured) :], measured, strict=True):
        assert predictor.predict(configuration).saved_bytes == measurement.saved_bytes


# What cannot be traced


@pytest.mark.slow
def test_a_recurrent_model_gets_no_plans_and_is_not_measured_as_if_it_had(
    plain: Plain, discovered: Discover, tmp_path: Path
) -> None:
    run = discovered("lstm.py")
    with_plan = Configuration("aot", (Plan("gelu+", 1, -1),))
    trial = measure(SCRIPTS / "lstm.py", configurations=(with_plan,), folder=tmp_path, may_fork=True)

    assert run.losses == plain("lstm.py").losses[: len(run.losses)]
    assert len(run.losses) >= 12
    measurement = run.measurement()
    assert (measurement.batch_size, set(measurement.samples_per_step)) == (10, {10})
    assert run.facts.clusters == ()
    assert "recurrent layers (nn.RNN, LSTM, GRU) are not traced by Dynamo: they get no plans" in run.facts.notes
    (outcome,) = trial.result.outcomes
    assert isinstance(outcome, Fallback)
    assert outcome.cause == NO_GRAPH
    assert outcome.advice


NO_GRAPH = "no graph of the model was captured, so there is nothing to recompute"


@pytest.mark.parametrize(
    ("script", "environment", "cause"),
    [
        ("scripted_root.py", {}, NO_GRAPH),
        pytest.param("loader_loop.py", {"TORCH_COMPILE_DISABLE": "1"}, NO_GRAPH, marks=pytest.mark.slow),
        pytest.param(
            "gradient_penalty.py",
            {},
            "torch.compile with aot_autograd does not currently support double backward",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_script_that_the_engine_cannot_run_is_refused_with_the_reason_and_described_without_plans(
    script: str, environment: dict[str, str], cause: str, plain: Plain, tmp_path: Path
) -> None:
    """Guards both ends: no silent measurement without the plans, and a search over batch sizes all the same."""
    may_fork = not environment
    discovery = Request("discover", str(SCRIPTS / script), (), (Configuration(),), QUICK, may_fork=may_fork)
    with_plan = Configuration("aot", (Plan("gelu+", 1, ALL),))
    configurations = (with_plan, Configuration("aot"))
    trial = Request("measure", str(SCRIPTS / script), (), configurations, QUICK, may_fork=may_fork)

    found = in_worker(discovery, folder=tmp_path, environment=environment)
    refused = in_worker(trial, folder=tmp_path, environment=environment)

    assert len(found.measurement().step_times_s) >= 6
    assert found.losses == plain(script).losses[: len(found.losses)]
    assert found.facts.clusters == ()
    assert found.facts.batch_control.how == "loaders"
    assert isinstance(found.facts.undescribed, Fallback)
    assert cause in found.facts.undescribed.cause
    assert found.facts.graphs == ()
    # Where the engine's first step already fails, no step is left to calibrate in.
    assert found.facts.calibration is None or cause in found.facts.calibration.reason
    first, second = refused.result.outcomes
    assert isinstance(first, Fallback), first
    assert cause in first.cause
    assert "eager" in first.advice
    assert second is None


def test_the_screen_says_where_graphs_have_another_attention_than_the_script(tmp_path: Path) -> None:
    shown = run_inside("discover", SCRIPTS / "asks_whether_traced.py", folder=tmp_path)

    assert shown.status == 0, shown.errors
    said = " ".join(shown.output.decode().split())
    assert "flash_attention_for_cpu with a mask in the graphs, flash_attention_for_cpu (causal) in eager" in said


def test_the_screen_says_why_a_recurrent_model_gets_no_plans(tmp_path: Path) -> None:
    shown = run_inside("discover", SCRIPTS / "lstm.py", folder=tmp_path)

    assert shown.status == 0, shown.errors
    assert "recurrent layers (nn.RNN, LSTM, GRU) are not traced by Dynamo" in " ".join(shown.output.decode().split())
