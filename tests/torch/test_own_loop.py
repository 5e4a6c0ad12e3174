"""A bundle applied to a model of one's own loop: what it changes, what it leaves alone, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import json
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config
from torch import nn
from torch.utils.checkpoint import checkpoint

import autotune
from autotune.errors import BundleError, UsageError
from autotune.export.bundle import export_bundle
from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.engines import Engine
from autotune.records.fingerprint import ModelPrint
from autotune.records.plan import parse_plans
from autotune.records.study import StudySpec
from autotune.worker.describing.fingerprint import model_print
from tests.fakes.models import Gpt
from tests.fakes.planned import clean_torch, kept_bytes
from tests.fakes.study_record import ENVIRONMENT, FACTS, study_record

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

GELUS = ("gelu+:1:-1",)


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch():
        yield


Bundle = Callable[..., Path]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """``bundle(*plans)`` writes one as a study would."""

    def make(
        *plans: str,
        engine: Engine = "aot",
        variables: dict[str, str] | None = None,
        torch_version: str = torch.__version__,
        models: tuple[ModelPrint, ...] = (),
        occurrences: dict[str, int] | None = None,
        **fields: object,
    ) -> Path:
        configuration = Configuration(engine, parse_plans(plans), **fields)  # type: ignore[arg-type]
        environment = dataclasses.replace(ENVIRONMENT, variables=variables or {}, torch=torch_version)
        facts = dataclasses.replace(FACTS, environment=environment, models=models)
        record = study_record(spec=StudySpec(script="train.py"), facts=facts, trials=(), repeats=())
        written = export_bundle(record, tmp_path / "bundle", configuration=configuration)
        stack = json.loads((written / "stack.json").read_text())
        (written / "stack.json").write_text(json.dumps(stack | {"occurrences": occurrences or {}}))
        return written

    return make


class Net(nn.Module):
    """(batch, 16) to (batch, 16): two gelus and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 16)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.first(x))
        return self.last(self.dropout(nn.functional.gelu(self.second(x))))


class WithState(Net):
    """Its state is all that it has, as a LightningModule's is."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


class Looping(nn.Module):
    """A graph break in a loop, so that Dynamo leaves its blocks to themselves, and those are of a class of torch's."""

    def __init__(self) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(3))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
            if x.abs().max().item() > 1e3:
                x = x / 1e3
        return x


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def inputs(rows: int = 32) -> torch.Tensor:
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))


def gradients(model: nn.Module, call: Callable[[], torch.Tensor] | None = None) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(2)
    (model(inputs()) if call is None else call()).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def saved(model: nn.Module) -> int:
    x = inputs()
    return kept_bytes(lambda: model(x), [*model.parameters(), x])


# -- what it changes, and what it leaves alone


@pytest.mark.parametrize("kind", [Net, Looping])
def test_gradients_are_the_same_and_less_is_saved(kind: type[nn.Module], bundle: Bundle) -> None:
    model, plain = made(kind), made(kind)
    applied = autotune.apply(model, bundle(*GELUS))
    assert not applied.is_confirmed
    assert equal(gradients(model), gradients(plain))
    assert applied.is_confirmed
    assert saved(model) < saved(plain)
    if kind is Looping:  # what each of its gelus gives is saved for the layer behind it, and for nothing else
        assert saved(plain) - saved(model) == 3 * 4 * 32 * 64


def test_blocks_that_stand_behind_a_break_are_blocks_by_themselves(bundle: Bundle) -> None:
    model, plain = made(Looping), made(Looping)
    applied = autotune.apply(model, bundle("Sequential+:1:-1"))
    assert equal(gradients(model), gradients(plain))
    assert applied.is_confirmed
    assert saved(model) < saved(plain)


def test_a_batch_of_another_size_gets_the_same_plans(bundle: Bundle) -> None:
    model, other = made(Net), made(Net)
    for one in (model, other):
        autotune.apply(one, bundle("gelu+:1:1"))
    gradients(model, lambda: model(inputs(8)))
    assert equal(gradients(model), gradients(other))
    assert saved(model) == saved(other)


def test_a_smaller_batch_gets_plans_of_its_own(bundle: Bundle) -> None:
    model, other, plain = made(Net), made(Net), made(Net)
    for one, rows in ((model, 32), (other, 31)):
        autotune.apply(one, bundle("gelu+:1:-1", sized=(SizedPlans(((rows, 16),)),)))
    for one in (model, other):
        gradients(one)  # its first call has the plans of the largest
        assert equal(gradients(one), gradients(plain))
    assert saved(model) > saved(other)


@pytest.mark.parametrize("kind", [Net, WithState, Looping])
def test_the_model_stays_what_it_is(kind: type[nn.Module], bundle: Bundle) -> None:
    model, plain = made(kind), made(kind)
    forward = model.forward
    autotune.apply(model, bundle(*GELUS))
    gradients(model)
    assert type(model) is kind
    assert model.forward == forward
    assert list(model.state_dict()) == list(plain.state_dict())
    torch.save(model, io.BytesIO())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(module._compiled_call_impl is None for module in copied.modules())
        assert equal(gradients(copied), gradients(plain))
    x = inputs()
    with torch.no_grad():
        assert torch.equal(model.eval()(x), plain.eval()(x))


def test_evaluation_compiles_nothing(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle(*GELUS))
    model.eval()(inputs()).sum().backward()
    with torch.no_grad():
        model.train()(inputs())
    assert applied._planned._engine.graphs == []
    gradients(model)
    assert len(applied._planned._engine.graphs) == 1


@pytest.mark.parametrize("kind", [Net, Looping])
def test_a_model_given_in_evaluation_mode_trains_in_it_until_its_train_is_called(
    kind: type[nn.Module], bundle: Bundle
) -> None:
    model, plain = made(kind).eval(), made(kind).eval()
    applied = autotune.apply(model, bundle(*GELUS))
    assert equal(gradients(model), gradients(plain))
    assert applied.is_confirmed
    assert saved(model) < saved(plain)
    gradients(model.train())
    assert saved(model.eval()) == saved(plain)


def test_what_was_applied_can_be_taken_back(bundle: Bundle) -> None:
    model, plain = made(Looping), made(Looping)
    before, suppressed = dict(vars(model)), torch._dynamo.config.suppress_errors
    applied = autotune.apply(model, bundle(*GELUS))
    gradients(model)
    assert torch._dynamo.config.suppress_errors != suppressed
    applied.remove()
    applied.remove()
    assert vars(model) == before
    assert not any("_compiled_call_impl" in vars(module) for module in model.modules())
    assert torch._dynamo.config.suppress_errors == suppressed
    assert saved(model) == saved(plain)


def test_a_compilation_of_the_user_s_own_since_then_stays(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle(*GELUS))
    model.compile(backend="eager")
    own = model._compiled_call_impl
    applied.remove()
    assert model._compiled_call_impl is own


def test_settings_stay_until_the_last_of_several_models_is_as_it_was(bundle: Bundle) -> None:
    suppressed = torch._dynamo.config.suppress_errors
    models = made(Net), made(Looping)
    first, second = (autotune.apply(model, bundle(*GELUS)) for model in models)
    for model in models:
        gradients(model)
    first.remove()
    assert torch._dynamo.config.suppress_errors
    assert saved(models[1]) < saved(made(Looping))
    second.remove()
    assert torch._dynamo.config.suppress_errors == suppressed


def test_a_backward_may_come_after_it_was_taken_back(bundle: Bundle) -> None:
    model, plain = made(Net), made(Net)
    applied = autotune.apply(model, bundle(*GELUS))
    gradients(model)

    def call() -> torch.Tensor:
        result = model(inputs())
        applied.remove()
        return result

    assert equal(gradients(model, call), gradients(plain))


def test_what_was_taken_back_is_judged_no_more(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle("relu+:1:-1"))
    result = model(inputs())
    applied.remove()
    result.sum().backward()


def test_a_model_that_nobody_has_any_more_is_gone_at_once(bundle: Bundle) -> None:
    model = made(Looping)
    autotune.apply(model, bundle(*GELUS))
    gradients(model)
    reference = weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        del model
        assert reference() is None
    finally:
        gc.enable()


def test_a_root_that_the_loop_checkpoints_itself_runs_as_before(bundle: Bundle) -> None:
    model, plain = made(Net), made(Net)
    applied = autotune.apply(model, bundle(*GELUS))
    x = inputs().requires_grad_()
    found = [
        gradients(one, lambda one=one: checkpoint(one, x, use_reentrant=False))  # type: ignore[misc]
        for one in (model, plain)
    ]
    assert equal(*found)
    assert applied.is_confirmed


@pytest.mark.parametrize("has_hook", [False, True])
def test_a_step_that_is_compiled_as_a_whole_runs_without_plans(has_hook: bool, bundle: Bundle) -> None:
    model, plain = made(Net), made(Net)
    if has_hook:  # Dynamo goes through the whole of a module's call then
        model.register_forward_hook(lambda *_: None)
    applied = autotune.apply(model, bundle(*GELUS))
    step = torch.compile(lambda x: model(x).sum(), backend="eager")
    assert equal(gradients(model, lambda: step(inputs())), gradients(plain))
    assert not applied.is_confirmed
    assert applied._planned._engine.graphs == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_a_model_that_is_traced_is_traced_as_it_is(bundle: Bundle) -> None:
    model = made(Net)
    model.dropout.p = 0.0
    applied = autotune.apply(model, bundle(*GELUS))
    x = inputs()
    traced = torch.jit.trace(model, x, check_trace=False)
    assert torch.equal(traced(x), model(x))
    assert "gelu" in str(traced.inlined_graph)
    assert len(applied._planned._engine.graphs) == 1  # of the call outside of the trace


def test_a_wrapper_that_communicates_calls_what_was_applied(bundle: Bundle, tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, plain = made(Net), made(Net)
        wrapped = nn.parallel.DistributedDataParallel(model)
        applied = autotune.apply(wrapped, bundle(*GELUS))
        gradients(wrapped)
        assert applied.is_confirmed
        found = [parameter.grad.clone() for parameter in model.parameters()]
        assert equal(found, gradients(plain))
    finally:
        torch.distributed.destroy_process_group()


def test_blocks_are_recomputed_and_the_text_says_so(bundle: Bundle) -> None:
    torch.manual_seed(0)
    model, plain = Gpt(), Gpt()
    plain.load_state_dict(model.state_dict())
    ids = torch.randint(0, 50, (4, 24))
    applied = autotune.apply(model, bundle("GptBlock+:1:-1", batch_size=4))
    assert equal(*(gradients(one, lambda one=one: one(ids)) for one in (model, plain)))  # type: ignore[misc]
    assert kept_bytes(lambda: model(ids), model.parameters()) < kept_bytes(lambda: plain(ids), plain.parameters()) / 2
    assert (applied.engine, applied.plans, applied.batch_size) == ("aot", ("GptBlock+:1:-1",), 4)
    assert str(applied).startswith("In training the model recomputes ")
    assert "batch size is 4" in str(applied)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # of Inductor's own imports
def test_compiled_by_inductor(bundle: Bundle) -> None:
    model, plain = made(Net), made(Net)
    model.dropout.p = plain.dropout.p = 0.0  # Inductor draws other masks
    applied = autotune.apply(model, bundle("addmm+:1:1", engine="inductor"))
    found = gradients(model)
    assert applied.is_confirmed
    for ours, own in zip(found, gradients(plain), strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-4)


# -- choices


def test_a_choice_of_precision_is_made_around_the_model(bundle: Bundle) -> None:
    model = made(Net)
    seen: list[torch.dtype] = []
    model.first.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    applied = autotune.apply(model, bundle(engine="eager", choices=("bf16=1",)))
    result = model(inputs())
    result.sum().backward()
    assert seen == [torch.bfloat16]
    assert result.dtype == torch.float32
    assert applied.is_confirmed


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_a_model_that_goes_under_autocast_itself_gets_nothing_of_a_choice_of_precision(
    engine: Engine, bundle: Bundle
) -> None:
    class Own(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x)

    model, enter = made(Own), torch.autocast.__enter__
    autotune.apply(model, bundle(engine=engine, choices=("bf16=1",)))
    result = model(inputs())
    assert torch.autocast.__enter__ is enter, "it is watched in the model's calls only"
    with pytest.raises(BundleError, match="Own goes under autocast itself"):
        result.sum().backward()


def test_a_choice_of_optimizers_needs_the_optimizer(bundle: Bundle) -> None:
    chosen = bundle(engine="eager", choices=("fused-optimizer=1",))
    model = made(Net)
    autotune.apply(model, chosen)
    with pytest.raises(BundleError, match="fused-optimizer") as refused:
        model(inputs()).sum().backward()
    assert "applied.optimizer" in refused.value.hint

    applied = autotune.apply(model, chosen)
    optimizer = torch.optim.AdamW(model.parameters())
    assert applied.optimizer(optimizer) is optimizer
    model(inputs()).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["fused"] is True

    applied.remove()
    applied = autotune.apply(model, chosen)
    own = applied.optimizer(torch.optim.AdamW(model.parameters(), foreach=True))
    model(inputs()).sum().backward()
    with pytest.raises(BundleError, match="the script itself gives AdamW foreach=True"):
        own.step()


def test_hooks_of_the_script_s_own_that_come_after_ours_run(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle(engine="eager", choices=("fused-optimizer=1",)))
    optimizer = applied.optimizer(torch.optim.AdamW(model.parameters()))
    stepped: list[int] = []
    optimizer.register_step_post_hook(lambda *_: stepped.append(1))
    for _ in range(2):
        model(inputs()).sum().backward()
        optimizer.step()
    assert stepped == [1, 1]


@pytest.mark.parametrize("keyword", ["fused", "foreach"])
def test_an_optimizer_is_taken_back_too(keyword: str, bundle: Bundle) -> None:
    kind = torch.optim.AdamW if keyword == "fused" else torch.optim.RMSprop
    models = made(Net), made(Net)
    applied = autotune.apply(models[0], bundle(engine="eager", choices=(f"{keyword}-optimizer=1",)))
    ours, own = (kind(model.parameters()) for model in models)
    applied.optimizer(ours)
    for model, optimizer in zip(models, (ours, own), strict=True):
        gradients(model)
        optimizer.step()
    assert ours.param_groups[0][keyword] is True
    applied.remove()
    assert ours.defaults == own.defaults
    assert ours.state_dict()["param_groups"] == own.state_dict()["param_groups"]
    assert set(vars(ours)) - set(vars(own)) <= {"_need_device_dtype_check_for_fused"}
    applied.optimizer(ours)
    assert not ours._optimizer_step_pre_hooks
    assert not ours._optimizer_step_post_hooks
    ours.step()


@pytest.mark.parametrize("is_removed", [False, True])
def test_nothing_stays_on_a_parameter_that_the_model_gives(is_removed: bool, bundle: Bundle) -> None:
    class Giving(Net):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
            return super().forward(x), self.first.weight

    model = made(Giving)
    applied = autotune.apply(model, bundle(*GELUS))
    result = model(inputs())
    assert model.first.weight._backward_hooks
    applied.remove() if is_removed else sum(each.sum() for each in result).backward()
    assert not model.first.weight._backward_hooks
    assert applied.is_confirmed != is_removed


# -- what it refuses


def test_a_plan_that_the_model_does_not_have_is_refused_before_an_optimizer_steps(bundle: Bundle) -> None:
    model, plain = made(Net), made(Net)
    applied = autotune.apply(model, bundle("relu+:1:-1"))
    result = model(inputs())
    with pytest.raises(BundleError, match=r"cannot be applied to Net: .*no cluster relu\+:1.* gelu\+:1") as refused:
        result.sum().backward()
    assert "autotune run" in refused.value.hint
    assert not applied.is_confirmed
    assert equal(gradients(model), gradients(plain))
    assert saved(model) == saved(plain)


def test_a_model_whose_outputs_are_objects_is_judged_at_its_next_call(bundle: Bundle) -> None:
    class Wrapped(Net):
        def forward(self, x: torch.Tensor) -> object:  # type: ignore[override]
            return type("Output", (), {"value": super().forward(x)})()

    model = made(Wrapped)
    autotune.apply(model, bundle("relu+:1:-1"))
    model(inputs()).value.sum().backward()
    with pytest.raises(BundleError, match=r"no cluster relu\+:1"):
        model(inputs())


def over_two_gpus(model: nn.Module) -> nn.Module:
    wrapped = nn.DataParallel(model)
    wrapped.device_ids = [0, 1]
    return wrapped


def test_a_first_backward_that_fails_leaves_the_judgement_to_the_next(bundle: Bundle) -> None:
    def fail(_: torch.Tensor) -> None:
        raise RuntimeError("out of memory")

    models = made(Net), made(Net)
    right, wrong = autotune.apply(models[0], bundle(*GELUS)), autotune.apply(models[1], bundle("relu+:1:-1"))
    for model in models:
        failing = model.first.weight.register_hook(fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            gradients(model)
        failing.remove()
    assert equal(gradients(models[0]), gradients(made(Net)))
    assert right.is_confirmed
    with pytest.raises(BundleError, match=r"no cluster relu\+:1"):
        gradients(models[1])
    assert not wrong.is_confirmed


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda model: torch.compile(model, backend="eager"), "Net is compiled already"),
        (lambda model: model.compile(backend="eager") or model, "Net is compiled already"),
        (lambda model: model.requires_grad_(requires_grad=False), "Net has no parameter to train"),
        (over_two_gpus, "Net is in DataParallel over several GPUs"),
    ],
)
def test_a_model_that_takes_no_plans_is_refused_at_once(
    change: Callable[[nn.Module], nn.Module], cause: str, bundle: Bundle
) -> None:
    with pytest.raises(BundleError, match=cause):
        autotune.apply(change(made(Net)), bundle(*GELUS))


def test_a_model_has_one_bundle(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle(*GELUS))
    with pytest.raises(BundleError, match="compiled already") as refused:
        autotune.apply(model, bundle(*GELUS))
    assert "remove()" in refused.value.hint
    applied.remove()
    autotune.apply(model, bundle(*GELUS))


def test_an_error_of_the_model_itself_is_the_model_s(bundle: Bundle) -> None:
    model = made(Net)
    autotune.apply(model, bundle(*GELUS))
    with pytest.raises(RuntimeError, match="cannot be multiplied") as raised:
        model(torch.randn(3, 5))
    assert not isinstance(raised.value, BundleError)
    gradients(model)


def test_a_gradient_of_a_gradient_is_an_error_of_torchs(bundle: Bundle) -> None:
    model, x = made(Net), inputs().requires_grad_()
    autotune.apply(model, bundle(*GELUS))
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.pow(2).sum().backward()


def test_engine_ortmodule_is_refused_with_the_reason(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="engine 'ortmodule' replaces the model") as refused:
        autotune.apply(made(Net), bundle(*GELUS, engine="ortmodule"))
    assert "autotune launch" in refused.value.hint


def test_what_is_otherwise_here_is_said(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    applied = autotune.apply(made(Net), bundle(*GELUS, variables={"OMP_NUM_THREADS": "3", "MALLOC_ARENA_MAX": "2"}))
    arenas, threads = sorted(applied.notes)
    assert "OMP_NUM_THREADS=3, and here OMP_NUM_THREADS is '1'" in threads
    assert "MALLOC_ARENA_MAX=2, and here MALLOC_ARENA_MAX is not set" in arenas
    monkeypatch.setattr(torch, "__version__", "2.13.1")
    (note,) = autotune.apply(made(Net), bundle(*GELUS, torch_version="2.13.0")).notes
    assert note == "the bundle was measured with torch 2.13.0, and this is torch 2.13.1."


def test_another_release_of_torch_is_refused_where_its_graphs_matter(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    model, of_graphs = made(Net), bundle(*GELUS, torch_version="2.13.0")
    with pytest.raises(BundleError, match=r"was measured with torch 2\.13\.0, and this is torch 2\.11\.0") as refused:
        autotune.apply(model, of_graphs)
    assert "allow_stale=True" in refused.value.hint
    assert "_compiled_call_impl" not in vars(model)
    assert autotune.apply(model, of_graphs, allow_stale=True).notes


def test_another_model_is_refused_in_its_first_backward(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle(*GELUS, models=(model_print(nn.Linear(2, 2)),)))
    with pytest.raises(BundleError, match=r"the model Net \(Linear when it was measured\) has changed: ") as refused:
        gradients(model)
    assert "allow_stale=True" in refused.value.hint
    assert "_compiled_call_impl" not in vars(model)
    assert not applied.is_confirmed


def test_what_still_fits_is_applied_where_that_is_allowed(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    model = made(Net)
    stale = bundle(*GELUS, "tanh+:1:-1", models=(model_print(nn.Linear(2, 2)),), occurrences={GELUS[0]: 2})
    applied = autotune.apply(model, stale, allow_stale=True)
    gradients(model)
    gradients(model)
    said = capsys.readouterr().err
    assert said.count("autotune: note: the bundle is stale, and applied as far as it fits\n") == 1
    assert f"  applied: {GELUS[0]}, to 1 occurrence (2 when it was measured)\n" in said
    assert "  not applied: tanh+:1:-1\n" in said
    assert "_compiled_call_impl" in vars(model)
    assert not applied.is_confirmed


def test_the_model_of_a_bundle_is_known_again(bundle: Bundle) -> None:
    model = made(Net)
    applied = autotune.apply(model, bundle(*GELUS, models=(model_print(model),), occurrences={GELUS[0]: 1}))
    gradients(model)
    assert applied.is_confirmed


@pytest.mark.parametrize(("rows", "is_told"), [(32, False), (8, True)])
def test_another_batch_size_than_the_bundles_is_told(
    rows: int, is_told: bool, bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    model = made(Net)
    autotune.apply(model, bundle(*GELUS, batch_size=32))
    for _ in range(2):
        model(inputs(rows)).sum().backward()
    note = "autotune: note: the first batch has the shape (8, 16): the bundle's figures are of batches of 32\n"
    assert capsys.readouterr().err == note * is_told


def test_a_choice_that_the_environment_makes_has_to_be_made_there(bundle: Bundle) -> None:
    chosen = bundle(engine="eager", choices=("expandable-segments=1",))
    with pytest.raises(BundleError, match="which is read when a process starts") as refused:
        autotune.apply(made(Net), chosen)
    assert "env.sh" in refused.value.hint


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no bundle"):
        autotune.apply(made(Net), tmp_path / "none")


@pytest.mark.parametrize(
    ("model", "cause"), [(None, "not a NoneType"), ("model", "not a str"), (Net, "not the class Net")]
)
def test_what_is_no_module_is_refused(model: Any, cause: str, bundle: Bundle) -> None:
    for take in (lambda: autotune.apply(model, bundle(*GELUS)), lambda: autotune.memory_matrix(model)):
        with pytest.raises(UsageError, match=rf"takes a torch\.nn\.Module, {cause}"):
            take()
    with pytest.raises(UsageError, match=rf"autotune\.inspect_memory takes a torch\.nn\.Module, {cause}"):
        autotune.inspect_memory(model)


def test_what_is_no_folder_is_refused(bundle: Bundle) -> None:
    with pytest.raises(UsageError, match="a model and then a bundle's folder, not a Net"):
        autotune.apply(made(Net), made(Net))  # type: ignore[arg-type]
