"""A script that calls ``torch.compile`` itself keeps its own options and gets the plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..engines.inductor import make_partitioner, without_kernel_search
from ..engines.plan_engine import PlanEngine
from ..engines.port import Engine

_AOT_BACKENDS = ("aot_eager", "aot_eager_default_partitioner")


def watch_compile(
    engine: Engine | None,
    shim: Any,
    note: Callable[[str], None],
    own: Iterable[Callable[..., Any]] = (),
    *,
    leave_out_search: Callable[[], None] | None = None,
) -> None:
    """Replace ``torch.compile`` by a version that hands the engine's partitioner to the script's backend.

    Dynamo is told to leave alone the ``shim`` of ``nn.Module.__call__`` and our ``own`` functions, once the script
    needs it. If given, ``leave_out_search`` is called where the script asks for a kernel search, which is left out.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile_(model: Any = None, *arguments: Any, **keywords: Any) -> Any:
        from torch._dynamo.eval_frame import skip_code

        skip_code(shim.__code__)
        for function in own:
            keep_out(function)
        if model is None:
            # Used as a decorator with options: come back with the function, so that they are looked at once.
            return functools.partial(compile_, *arguments, **keywords)
        if leave_out_search is not None and keywords.get("backend", "inductor") == "inductor":
            asked, keywords = keywords, without_kernel_search(keywords)
            if keywords is not asked:
                leave_out_search()
        if engine is not None:
            _hand_over(engine, keywords, note)
        return original(model, *arguments, **keywords)

    torch.compile = compile_


def keep_out(function: Any) -> None:
    """Have Dynamo trace neither a function of ours nor what it calls."""
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

    plain = getattr(function, "__func__", function)
    plain._torchdynamo_disable = True
    set_code_exec_strategy(plain.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def _hand_over(engine: Engine, keywords: dict[str, Any], note: Callable[[str], None]) -> None:
    backend = keywords.get("backend", "inductor")
    if not isinstance(engine, PlanEngine) or backend not in (*_AOT_BACKENDS, "inductor"):
        engine.take_no_plans(f"the script compiles with {backend!r}")
        of_engine = "" if isinstance(engine, PlanEngine) else f" of engine {engine.name!r}"
        note(f"the script compiles with {backend!r}, which takes no plans{of_engine}")
    elif backend in _AOT_BACKENDS:
        keywords["backend"] = engine.aot_backend()
        note(f"the script compiles with {backend!r}: its graphs get the plans")
    else:
        import torch._functorch.config
        import torch._inductor.config

        # As long as no plan is current the partitioner does what the stock one does. A cache hit would skip it, and
        # with it the plans; being without that cache costs time in compilation only.
        # Libraries compile functions that a script may never train with: those are nothing to tell.
        tell = functools.partial(
            note, "the script compiles with 'inductor': its graphs get the plans, each set of plans in a run of its own"
        )
        partitioner = make_partitioner(engine, "compiled unseen", is_asked=tell)
        torch._inductor.config.custom_partitioner_fn = partitioner
        torch._functorch.config.enable_autograd_cache = False
