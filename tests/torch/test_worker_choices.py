"""Choices in a training process: they are made before the first step, and what they could not change is said."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from autotune.errors import UsageError
from autotune.export.readme import render_readme
from autotune.export.stack import build_stack
from autotune.records.choice_types import Choice, StackLine
from autotune.records.choices import (
    ENGINES_CHOICES,
    TORCH_CHOICES,
    AutocastChoice,
    OptimizerChoice,
    choices_of,
    made_choices,
)
from autotune.records.configuration import Configuration
from autotune.records.engines import Engine
from autotune.records.facts import Facts
from autotune.records.outcome import Fallback, Measured, Outcome
from autotune.records.stack import StackLayer
from autotune.tuning.checks import check_choices
from autotune.worker import environment
from autotune.worker.choices import precision
from autotune.worker.choices.made import MadeChoice, MadeChoices
from autotune.worker.choices.optimizers import OptimizerKeyword
from autotune.worker.choices.precision import Autocast
from tests.fakes.hooked import restored_torch
from tests.fakes.planned import clean_torch
from tests.fakes.study_record import FACTS, study_record
from tests.fakes.training_process import TrainingProcess, train

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

KEYWORDS = {one.keyword: one for one in choices_of("eager").values() if isinstance(one, OptimizerChoice)}
(BF16,) = (one for one in choices_of("eager").values() if isinstance(one, AutocastChoice))


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch(), restored_torch():
        yield


def outcome_of(folder: Path, *choices: str, engine: Engine = "eager", **script: Any) -> Outcome:
    """How a trial with choices made ends."""
    process = TrainingProcess(folder, Configuration(engine, choices=choices))
    process.run(lambda: train(**script))
    (outcome,) = process.outcomes()
    return outcome


def refused(folder: Path, choice: str, **script: Any) -> str:
    outcome = outcome_of(folder, choice, **script)
    assert isinstance(outcome, Fallback), outcome
    assert outcome.cause.startswith(f"{choice} changed nothing: ")
    return outcome.cause


class Kept:
    """Makes an optimizer and keeps it, to be looked at behind the trial."""

    def __init__(self, kind: Callable[..., Optimizer], **keywords: Any) -> None:
        self._kind, self._keywords = kind, keywords
        self.optimizer: Optimizer | None = None

    def __call__(self, parameters: Any, lr: float) -> Optimizer:
        self.optimizer = self._kind(parameters, lr=lr, **self._keywords)
        return self.optimizer

    @property
    def group(self) -> dict[str, Any]:
        assert self.optimizer is not None
        group: dict[str, Any] = self.optimizer.param_groups[0]
        return group


class NamesOperators(torch.overrides.TorchFunctionMode):
    """Writes down which functions of torch are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("engine", ["eager", "aot"])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_optimizers_that_have_a_fused_kernel_take_it(kind: Any, engine: Engine, tmp_path: Path) -> None:
    kept = Kept(kind)
    assert isinstance(outcome_of(tmp_path, "fused-optimizer=1", engine=engine, optimizer=kept), Measured)
    assert kept.group["fused"] is True
    assert kept.optimizer is not None
    assert kept.optimizer.defaults["fused"] is True, "groups that are added later take it from there"
    assert kept.optimizer._step_supports_amp_scaling


def prepared(keyword: str, optimizer: Optimizer) -> OptimizerKeyword:
    choice = OptimizerKeyword(KEYWORDS[keyword], lambda _: None)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    choice.before_step(optimizer)
    return choice


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_it_is_the_fused_kernel_that_runs_and_it_computes_the_same_but_for_rounding(kind: Any) -> None:
    torch.manual_seed(0)
    start = torch.randn(5, 4)
    ends = []
    for is_fused in (False, True):
        parameter = nn.Parameter(start.clone())
        optimizer = kind([parameter], lr=0.1)
        with NamesOperators() as called:
            for step in range(4):
                parameter.grad = torch.full_like(parameter, 0.1 * (step + 1))
                # The second step on, as after loading a checkpoint of a run without it.
                if is_fused and step:
                    OptimizerKeyword(KEYWORDS["fused"], lambda _: None).before_step(optimizer)
                optimizer.step()
        ends.append(parameter.detach())
        assert any(name.startswith("_fused_") for name in called.names) == is_fused
    torch.testing.assert_close(*ends)


def test_what_a_checkpoint_brings_back_is_changed_again() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    before = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = torch.ones(3)
    before.step()
    after = torch.optim.Adam([parameter], lr=0.1)
    choice = prepared("fused", after)
    after.load_state_dict(before.state_dict())
    assert after.param_groups[0]["fused"] is None
    choice.before_step(after)
    assert after.param_groups[0]["fused"] is True
    after.step()
    assert float(after.state[parameter]["step"]) == 2.0


@pytest.mark.parametrize("keyword", ["fused", "foreach"])
@pytest.mark.parametrize("own", [{"foreach": False}, {"foreach": True}, {"fused": False}, {"fused": True}])
def test_what_the_script_says_stays(keyword: str, own: dict[str, bool], tmp_path: Path) -> None:
    kept = Kept(torch.optim.AdamW, **own)
    cause = refused(tmp_path, f"{keyword}-optimizer=1", optimizer=kept)
    ((name, value),) = own.items()
    assert f"the script itself gives AdamW {name}={value}" in cause
    assert {name: kept.group[name] for name in ("foreach", "fused")} == {"foreach": None, "fused": None} | own


def test_an_optimizer_without_the_kernel_is_a_fallback_with_the_reason(tmp_path: Path) -> None:
    assert "RMSprop has no 'fused'" in refused(tmp_path, "fused-optimizer=1", optimizer=torch.optim.RMSprop)


def test_an_optimizer_with_a_step_of_its_own_is_left_alone(tmp_path: Path) -> None:
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            return None

    assert "Own has no 'fused'" in refused(tmp_path, "fused-optimizer=1", optimizer=Own)


def test_sparse_gradients_have_no_fused_kernel(tmp_path: Path) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 2, sparse=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.embedding(x.long().clamp(0, 4))

    assert "SGD has sparse gradients" in refused(tmp_path, "fused-optimizer=1", make=Words)


def test_a_type_without_the_kernel_is_left_alone() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2, dtype=torch.complex64))], lr=0.1)
    assert "the type of a parameter of SGD" in prepared("fused", optimizer).problem()
    assert optimizer.param_groups[0]["fused"] is None


def test_an_optimizer_that_steps_over_lists_does_so_where_it_is_not_torchs_way(tmp_path: Path) -> None:
    kept = Kept(torch.optim.RMSprop)
    assert isinstance(outcome_of(tmp_path, "foreach-optimizer=1", optimizer=kept), Measured)
    assert kept.group["foreach"] is True


def test_it_is_lists_of_tensors_that_the_optimizer_then_steps_over() -> None:
    optimizer = torch.optim.RMSprop([nn.Parameter(torch.zeros(2))], lr=0.1)
    assert prepared("foreach", optimizer).problem() == ""
    with NamesOperators() as called:
        optimizer.step()
    assert any(name.startswith("_foreach_") for name in called.names)


def test_of_two_optimizers_the_one_that_can_is_enough_and_the_other_is_noted() -> None:
    notes: list[str] = []
    choice = OptimizerKeyword(KEYWORDS["fused"], notes.append)
    for kind in (torch.optim.RMSprop, torch.optim.SGD):
        choice.before_step(kind([nn.Parameter(torch.zeros(2))], lr=0.1))
    assert choice.problem() == ""
    assert len(notes) == 1
    assert "RMSprop" in notes[0]


class Casting(nn.Module):
    """Two layers; keeps the types that it computes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.types: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        self.types.append(out.dtype)
        return {"out": out, "whole": torch.ones(2, dtype=torch.long)}


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_a_training_forward_is_computed_in_bfloat16_and_its_loss_and_evaluation_are_not(
    engine: Engine, tmp_path: Path
) -> None:
    process = TrainingProcess(tmp_path, Configuration(engine, choices=("bf16=1",)))
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    seen: dict[str, Any] = {"training": [], "loss": [], "evaluation": []}

    def script() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(0)
        x = torch.randn(8, 3)
        for _ in range(8):
            model.train()
            out = model(x)
            seen["training"].append(out.detach())
            loss = out.pow(2).mean()
            seen["loss"].append(loss.dtype)
            seen["gradient"] = loss.backward() or model[0].weight.grad.dtype
            optimizer.step()
            model.eval()
            with torch.no_grad():
                seen["evaluation"].append((model(x), torch.relu(model[0](x))))

    process.run(script)

    assert isinstance(process.outcomes()[0], Measured)
    assert set(seen["loss"]) == {torch.float32} == {out.dtype for out in seen["training"]}
    assert all(torch.equal(out, out.bfloat16().float()) for out in seen["training"])
    assert all(torch.equal(*both) for both in seen["evaluation"])
    assert seen["gradient"] == torch.float32


def test_outputs_of_the_smaller_type_are_widened_wherever_they_are_and_others_stay() -> None:
    model = Casting()
    choice = Autocast(BF16, lambda _: None)
    result = choice.around(model, model)(torch.randn(4, 3))
    assert model.types == [torch.bfloat16]
    assert {name: value.dtype for name, value in result.items()} == {"out": torch.float32, "whole": torch.long}
    assert choice.problem() == ""


@dataclasses.dataclass(frozen=True)
class Out:
    """What a model may return."""

    hidden: tuple[torch.Tensor, ...]
    count: int = 3


def test_outputs_in_a_dataclass_are_widened_too_and_those_of_other_classes_are_told() -> None:
    class Kept:
        """No container that torch knows."""

        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    notes: list[str] = []
    choice, model = Autocast(BF16, notes.append), torch.nn.Linear(3, 3)
    found = choice.around(model, lambda value: Out((model(value),)))(torch.randn(4, 3))
    assert (found.hidden[0].dtype, found.count, notes) == (torch.float32, 3, [])
    assert choice.around(model, lambda value: Kept(model(value)))(torch.randn(4, 3)).value.dtype == torch.bfloat16
    assert notes == ["outputs of class Kept keep bfloat16"]


def test_a_choice_made_as_it_is_by_default_changes_nothing_and_none_is_made_twice() -> None:
    assert made_choices("aot", ["bf16=0"]) == {}
    call = MadeChoices(Configuration("aot", choices=("bf16=0",)), print).around(torch.nn.Linear(3, 3), print)
    assert call is print
    with pytest.raises(UsageError, match="'bf16' is chosen twice"):
        made_choices("aot", ["bf16=1", "bf16=0"])


def test_a_script_under_autocast_is_told_apart(tmp_path: Path) -> None:
    class Outside:
        """Calls its model under autocast, as scripts do."""

        def __call__(self, outputs: torch.Tensor) -> None:
            outputs.float().pow(2).mean().backward()

    process = TrainingProcess(tmp_path, Configuration(choices=("bf16=1",)))

    def script() -> None:
        with torch.autocast("cpu", torch.float16):
            train(backward=Outside())

    process.run(script)
    (outcome,) = process.outcomes()
    assert isinstance(outcome, Fallback)
    assert "calls Linear under autocast already (float16)" in outcome.cause


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_a_model_that_goes_under_autocast_itself_is_told_apart(engine: Engine, tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.layer(x)

    assert "Own goes under autocast itself (bfloat16)" in refused(tmp_path, "bf16=1", make=Own, engine=engine)


def test_parts_that_a_model_keeps_in_float32_do_not_count_as_autocast_of_its_own(tmp_path: Path) -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                return self.layer(x)

    assert isinstance(outcome_of(tmp_path, "bf16=1", make=Part), Measured)


def test_a_model_without_a_float32_matrix_is_told_apart(tmp_path: Path) -> None:
    cause = refused(
        tmp_path,
        "bf16=1",
        make=lambda: nn.Linear(3, 2).bfloat16(),
        inputs=lambda: torch.randn(8, 3).bfloat16(),
    )
    assert "Linear has no float32 parameter" in cause


def test_a_setting_of_the_allocator_for_gpus_is_no_setting_on_cpu(tmp_path: Path) -> None:
    assert "the script trains on CPU" in refused(tmp_path, "expandable-segments=1")


def test_a_process_that_was_started_without_the_library_has_the_usual_heap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libtcmalloc_minimal.so.4")  # too late
    assert "the loader has not found libtcmalloc_minimal.so.4" in refused(tmp_path, "tcmalloc=1")


def test_a_process_without_its_variable_has_the_heaps_own_threshold(tmp_path: Path) -> None:
    assert "started without MALLOC_MMAP_THRESHOLD_=262144" in refused(tmp_path, "mmap-threshold=1")


def test_the_loader_says_which_libraries_it_can_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "heap_libraries", lambda: ("libc.so.6", "libnobody_has_it.so.1"))
    assert environment.found_heap_libraries() == ("libc.so.6",)


def test_a_trial_without_choices_leaves_the_optimizer_alone(tmp_path: Path) -> None:
    kept = Kept(torch.optim.AdamW)
    assert isinstance(outcome_of(tmp_path, optimizer=kept), Measured)
    assert (kept.group["fused"], kept.group["foreach"]) == (None, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],max_split_size_mb:64"},
            {
                "PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],max_split_size_mb:64,"
                "expandable_segments:True"
            },
        ),
        (
            {"PYTORCH_ALLOC_CONF": "expandable_segments:False", "PYTORCH_CUDA_ALLOC_CONF": ""},
            {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        ),
    ],
)
def test_a_setting_joins_those_that_the_variables_hold(before: dict[str, str], after: dict[str, str]) -> None:
    assert choices_of("eager")["expandable-segments"].variables_for("1", before) == after
    assert choices_of("eager")["expandable-segments"].variables_for("1", after) == after, "and stands there once"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledChoice(Choice):
    """A kind that nobody has heard of: the training forward gets its samples in another order."""

    made_by = "shuffled.Shuffled"

    def refusal_for(self, facts: Facts) -> str:
        return "" if facts.optimizers else "the script does not train"

    @property
    def by_hand(self) -> str:
        return "Shuffle each batch."

    def stack_line(self, value: str) -> StackLine:
        return StackLine("model", {"order": "random"}, layer="shuffled")


class Shuffled(MadeChoice):
    """Its side of the worker."""

    calls = 0

    def around(self, root: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        def shuffled(inputs: torch.Tensor) -> Any:
            self.calls += 1
            return call(inputs[torch.randperm(len(inputs))])

        return shuffled

    def problem(self) -> str:
        return "" if self.calls else "no training call of a model was seen"


def test_a_new_kind_of_choice_needs_its_two_classes_and_an_entry_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ShuffledChoice(name="shuffled", does="samples in another order", changes="each sum is in another order.")
    monkeypatch.setitem(ENGINES_CHOICES, "eager", (*ENGINES_CHOICES["eager"], entry))
    monkeypatch.setitem(sys.modules, "autotune.worker.choices.shuffled", SimpleNamespace(Shuffled=Shuffled))

    check_choices("eager", ("shuffled",), FACTS)
    with pytest.raises(UsageError, match="'shuffled' cannot be had: the script does not train"):
        check_choices("eager", ("shuffled",), dataclasses.replace(FACTS, optimizers=()))
    assert isinstance(outcome_of(tmp_path, "shuffled=1"), Measured)
    stack = build_stack(study_record(), Configuration(choices=("shuffled=1",)))
    assert stack.layers[0] == StackLayer("shuffled", applies=True, settings={"order": "random"})
    words = render_readme(stack, "bundle", ())
    assert "shuffled changes what is computed: each sum is in another order." in words
    assert "Shuffle each batch." in words


@pytest.mark.parametrize("choice", [one for one in TORCH_CHOICES if isinstance(one, Choice)], ids=lambda one: one.name)
def test_what_torch_has_is_made_by_the_class_that_its_kind_names_and_says_so_where_nothing_trained(
    choice: Choice,
) -> None:
    problem = MadeChoices(Configuration(choices=(f"{choice.name}=1",)), print).problem()
    assert problem is not None
    assert problem.cause.startswith(f"{choice.name}=1 changed nothing: ")


def test_calls_in_several_threads_that_overlap_leave_autocast_as_it_was() -> None:
    enter, seen = torch.autocast.__enter__, list[torch.autocast]()
    first, second = (precision._entering.told(seen.append) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.autocast.__enter__ is not enter
    second.__exit__(None, None, None)
    assert torch.autocast.__enter__ is enter
