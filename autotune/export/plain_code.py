"""A setting as one file of plain PyTorch, for a repository without autotune: ``apply(model)`` before training."""

from __future__ import annotations

from dataclasses import replace

from ..records.configuration import Configuration
from ..records.facts import Facts, Located
from ..records.plan import NONE, Plan
from .expressing import Blocks, Expressed, Refusal
from .heading import Heading

USAGE = "call apply(model) once, before training"


def express(configuration: Configuration, facts: Facts, located: Located) -> Expressed:
    """Express plans for whole blocks, and refuse those for operators."""
    blocks: dict[str, Blocks] = {}
    refusals = []
    for plan in configuration.plans:
        if plan.strategy == NONE:
            continue
        found = _blocks_of(plan, facts, located)
        if isinstance(found, str):
            refusals.append(Refusal(found, str(plan)))
            continue
        before = blocks.get(found.class_name, found)
        blocks[found.class_name] = replace(found, chosen=tuple(sorted({*found.chosen, *before.chosen})))
    return Expressed(configuration, tuple(one for one in blocks.values() if one.chosen), tuple(refusals))


def render(said: Expressed, heading: Heading, located: Located) -> str:
    """Write the sizes as constants, and the function ``apply`` with what it needs."""
    choices = said.configuration.choices
    unset = [f"Measured with {' '.join(choices)}, which this file does not set."] if choices else []
    sizes = [
        f"BATCH_SIZE = {heading.batch_size}  # {heading.batch_size_note}",
        f"ACCUMULATION = {heading.accumulation:g}  # {heading.accumulation_note}",
    ]
    first, docstring = "\n".join(sizes), heading.docstring(USAGE, *unset)
    if not said.blocks:
        return f"{docstring}\n\n{first}\n{_NOTHING}"
    has_statistics = any(one.has_statistics for one in said.blocks)
    chosen = [f'    "{one.class_name}": ({one.number}, {_numbers(one)}),' for one in said.blocks]
    constants = "\n".join([first, "", _BLOCKS_NOTE, "BLOCKS = {", *chosen, "}"])
    top = "\n\n".join([docstring, _IMPORTS_FOR_NORMS if has_statistics else _IMPORTS, constants])
    checkpointed = _CHECKPOINTED_NORMS if has_statistics else _CHECKPOINTED
    apply = _APPLY.format(caches=_WITHOUT_CACHES if located.caches else "")
    return f"{top}\n{checkpointed}{apply}"


def _blocks_of(plan: Plan, facts: Facts, located: Located) -> Blocks | str:
    """The blocks that a plan recomputes, or why plain code cannot checkpoint them."""
    row, name = facts.cluster(plan.cluster), plan.cluster.removesuffix("+")
    if row is None or not row.is_layer:
        return "plain code checkpoints whole blocks, and no single operators"
    found = located.blocks_of(name)
    if found is None:
        return f"no module of class {name} repeats in the model as eager mode runs it"
    if sum(one.class_name == name for one in located.blocks) > 1:
        return f"several of the script's models have a {name}, and code for one cannot count those of another"
    if len(found.called) != row.frequency:
        return f"the plan counts {row.frequency} {name}, and eager mode calls {len(found.called)} modules of that class"
    chosen = found.called[plan.every - 1 :: plan.every][: plan.applies_to(row.frequency)]
    return Blocks(name, found.number, tuple(sorted(chosen)), found.has_statistics)


def _numbers(blocks: Blocks) -> str:
    chosen = blocks.chosen
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    as_range = range(chosen[0], chosen[-1] + 1, step)
    if len(chosen) < 3 or tuple(as_range) != chosen:
        return str(list(chosen))
    return f"range({chosen[0]}, {chosen[-1] + 1}{f', {step}' if step > 1 else ''})"


_IMPORTS = """\
import functools

import torch
from torch.utils.checkpoint import checkpoint"""
_IMPORTS_FOR_NORMS = f"import contextlib\nimport copy\n{_IMPORTS}"

_BLOCKS_NOTE = "# Of each class: how many modules of it the model has, and the numbers of those to recompute."

_CHECKPOINTED = '''

def recomputed(block, forward, *args, **kwargs):
    """Keep what a block is given, and run it again in the backward."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
'''

_CHECKPOINTED_NORMS = '''

class StatisticsKept:
    """While a block runs again, its norms update copies of their running statistics."""

    def __init__(self, block):
        norms = torch.nn.modules.batchnorm._NormBase
        self.norms = [module for module in block.modules() if isinstance(module, norms)]

    def __enter__(self):
        self.before = [norm._buffers for norm in self.norms]
        for norm in self.norms:
            norm._buffers = copy.deepcopy(norm._buffers)

    def __exit__(self, *error):
        for norm, buffers in zip(self.norms, self.before):
            norm._buffers = buffers


def recomputed(block, forward, *args, **kwargs):
    """Keep what a block is given, and run it again in the backward."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    contexts = lambda: (contextlib.nullcontext(), StatisticsKept(block))
    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)
'''

_NOTHING = '''

def apply(model):
    """Nothing is changed in the model: the setting is its batch size."""
'''

# All blocks are counted before anything is replaced, so that a model that is refused is as it was.
_APPLY = '''

def apply(model):
    """Recompute in the backward of training; evaluation, parameters and buffers stay as they are."""
    parallel = [module for module in model.modules() if isinstance(module, torch.nn.DataParallel)]
    if any(len(module.device_ids) > 1 for module in parallel):
        raise TypeError("replicas of DataParallel would run the forward of the original")
    blocks = []
    for name, (number, chosen) in BLOCKS.items():
        found = [module for module in model.modules() if type(module).__name__ == name]
        if len(found) != number:
            raise ValueError(f"the plan is for a model with {{number}} {{name}}, this one has {{len(found)}}")
        blocks += [found[place] for place in chosen]
{caches}    for block in blocks:
        # A partial and no closure, so that a copy of the model calls modules of its own.
        if getattr(block.forward, "func", None) is not recomputed:  # not a second time
            around = functools.partial(recomputed, block, block.forward)
            block.forward = functools.update_wrapper(around, block.forward)
'''

_WITHOUT_CACHES = """\
    for module in model.modules():
        if getattr(getattr(module, "config", None), "use_cache", False):
            module.config.use_cache = False  # a block that runs again would add to it twice
"""
