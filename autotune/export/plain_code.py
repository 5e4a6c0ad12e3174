"""A setting as one file of plain PyTorch, for a repository without autotune: ``apply(model)`` before training.

Blocks are checkpointed on their instances. Chains of operators are made again by hooks on what autograd saves: their
last result is not kept, but what their first operators were given. The file is put together from the parts below, of
which it has those that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from .expressing import Blocks, Expressed
from .heading import Heading


def render_plain_code(said: Expressed, heading: Heading, *, counts: bool = False) -> str:
    """The file's contents; with ``counts`` it lists in ``SEEN`` how often it sees each chain, and compares nothing."""
    head = [_docstring(said, heading), _imports(said), _constants(said, heading)]
    parts = ["\n\n".join(filter(None, head))]
    norms = any(one.has_statistics for one in said.blocks)
    if said.blocks:
        parts += [_CHECKPOINTED_NORMS if norms else _CHECKPOINTED]
    if said.chains:
        parts += [_CHAINS, _COUNTED if counts else _COMPARED]
    return "\n\n\n".join(part.strip("\n") for part in [*parts, _apply(said)]) + "\n"


def _docstring(said: Expressed, heading: Heading) -> str:
    first = f'"""{heading.title}: call apply(model) once, before training.'
    return "\n\n".join([first, *heading.paragraphs, *_by_hand(said)]) + '\n"""'


def _by_hand(said: Expressed) -> Iterator[str]:
    if said.configuration.choices:
        yield f"Measured with {' '.join(said.configuration.choices)}, which this file does not set."


def _imports(said: Expressed) -> str:
    lines = []
    if any(one.has_statistics for one in said.blocks):
        lines += ["import contextlib", "import copy"]
    if said.blocks or said.chains:
        lines += ["import functools", "", "import torch"]
    if said.chains:
        lines += [
            "from torch.multiprocessing.reductions import StorageWeakRef",
            "from torch.utils._python_dispatch import TorchDispatchMode",
            "from torch.utils._pytree import tree_leaves, tree_map",
        ]
    if said.blocks:
        lines += ["from torch.utils.checkpoint import checkpoint"]
    return "\n".join(lines)


def _constants(said: Expressed, heading: Heading) -> str:
    lines = [f"BATCH_SIZE = {heading.batch_size}  # {heading.batch_size_note}"]
    lines += [f"ACCUMULATION = {heading.accumulation:g}  # {heading.accumulation_note}"]
    if said.blocks:
        lines += ["", "# Of each class: how many modules of it the model has, and the numbers of those to recompute."]
        lines += [
            "BLOCKS = {",
            *(f'    "{one.class_name}": ({one.number}, {_numbers(one)}),' for one in said.blocks),
            "}",
        ]
    if said.chains:
        lines += [
            "",
            "# Operators one after the other: how often a call of the model has them, and how many of the first of",
        ]
        lines += ["# these results are made again in the backward."]
        chains = (
            f"    ({', '.join(map(_quoted, one.operators))},): ({one.number}, {one.count})," for one in said.chains
        )
        lines += ["CHAINS = {", *chains, "}"]
    return "\n".join(lines)


def _numbers(blocks: Blocks) -> str:
    chosen = blocks.chosen
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    as_range = range(chosen[0], chosen[-1] + 1, step)
    if len(chosen) < 3 or tuple(as_range) != chosen:
        return str(list(chosen))
    return f"range({chosen[0]}, {chosen[-1] + 1}{f', {step}' if step > 1 else ''})"


def _quoted(text: str) -> str:
    return f'"{text}"'


_CHECKPOINTED = '''
def recomputed(block, forward, *args, **kwargs):
    """Keep what a block is given, and run it again in the backward."""
    if not (block.training and torch.is_grad_enabled()):
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
    if not (block.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    contexts = lambda: (contextlib.nullcontext(), StatisticsKept(block))
    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)
'''

_CHAINS = '''
class Recipe:
    """How a result is made again. In the backward it is held from its first use to its last."""

    def __init__(self, operator, given, dtype):
        self.operator, self.given, self.dtype = operator, given, dtype
        self.uses, self.value = 0, None

    def make(self, device, *geometry):
        if self.value is None:
            args, kwargs = tree_map(lambda one: one() if isinstance(one, functools.partial) else one, self.given)
            with torch.no_grad(), torch.autocast(device, enabled=False):
                result = self.operator(*args, **kwargs)
            self.value = result[0] if isinstance(result, tuple) else result
        value, self.uses = self.value, self.uses - 1
        if self.uses <= 0:
            self.value = None
        return value.detach().as_strided(*geometry)


def in_place_of(tensor, recipe):
    """What is kept for a tensor: a use of its recipe. Without one, and for a view of another type: the tensor."""
    if recipe is None or tensor.dtype != recipe.dtype or tensor.is_conj() or tensor.is_neg():
        # Without its graph, which may hold what is kept here: neither would ever be freed. A parameter has none.
        return functools.partial(unchanged, tensor if tensor.is_leaf else tensor.detach(), tensor._version)
    recipe.uses += 1
    return functools.partial(recipe.make, tensor.device.type, tensor.shape, tensor.stride(), tensor.storage_offset())


def unchanged(tensor, version):
    if tensor._version != version:
        raise RuntimeError(f"a tensor of shape {tuple(tensor.shape)} that the backward needs was changed in place")
    return tensor


class Made:
    """What made a storage: an operator, what it was given, and in which storages that lies."""

    def __init__(self, tensor, name, inputs, call):
        self.storage = StorageWeakRef(tensor.untyped_storage())
        self.version, self.dtype = tensor._version, tensor.dtype
        self.name, self.inputs, self.call = name, inputs, call
        self.is_kept, self.recipe = False, None


class MakesAgain(TorchDispatchMode):
    """Watches one call of the model: autograd keeps recipes in the place of the chosen results."""

    def __init__(self):
        super().__init__()
        self.made, self.seen = {}, dict.fromkeys(CHAINS, 0)
        self.names = {name for chain in CHAINS for name in chain}
        self.chains = {tuple(sorted(chain)): chain for chain in CHAINS}
        self.longest = max(map(len, CHAINS))

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        name = operator.overloadpacket.__name__
        given = [storage_of(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if name in self.names:  # what is gone need not be made again, and lets go of what it was made of
            self.made = {number: made for number, made in self.made.items() if not made.storage.expired()}
        call = (operator, args, kwargs) if name in self.names else None
        for place, output in enumerate(result if isinstance(result, (tuple, list)) else [result]):
            if isinstance(output, torch.Tensor) and (operator._schema.is_mutable or storage_of(output) not in given):
                named = f"{name}[{place}]" if place else name
                self.made[storage_of(output)] = Made(output, named, given, None if place else call)
        return result

    def known(self, tensor):
        made = self.made.get(storage_of(tensor))
        return made if made and made.version == tensor._version else None

    def pack(self, tensor):
        made = self.known(tensor)
        if made and not made.is_kept:
            chain = self.chains.get(tuple(sorted(self.way(storage_of(tensor), {}))))
            if chain:
                self.seen[chain] += 1
                if self.seen[chain] <= CHAINS[chain][1]:
                    made.recipe = self.recipe(made, {})
            made.is_kept, made.call = True, None
        return in_place_of(tensor, made and made.recipe)

    def way(self, number, seen):
        """The operators from what autograd keeps, or the model was given, to a storage."""
        made = self.made.get(number)
        if made and not made.is_kept and number not in seen and len(seen) <= self.longest:
            seen[number] = made.name
            for one in made.inputs:
                self.way(one, seen)
        return seen.values()

    def recipe(self, made, parts):
        def part(one):
            if not isinstance(one, torch.Tensor):
                return one
            own = self.known(one)
            if own and not own.is_kept and own not in parts:
                parts[own] = self.recipe(own, parts)
            return in_place_of(one, own and parts.get(own, own.recipe))

        operator, args, kwargs = made.call
        return Recipe(operator, tree_map(part, (args, kwargs)), made.dtype)


def storage_of(tensor):
    return tensor.untyped_storage()._cdata


def watched(model, forward, *args, **kwargs):
    """Have the chosen results made again in the backward of this call."""
    if not (model.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    mode = MakesAgain()
    try:
        with torch.autograd.graph.saved_tensors_hooks(mode.pack, lambda kept: kept()), mode:
            result = forward(*args, **kwargs)
    finally:
        mode.made.clear()
    compare(mode.seen)
    return result
'''

_COMPARED = """
def compare(seen):
    if any(seen[chain] != number for chain, (number, _) in CHAINS.items()):
        raise RuntimeError(f"the plan is for {CHAINS}, and this call of the model has {seen}")
"""

_COUNTED = """
SEEN = []
compare = SEEN.append
"""


def _apply(said: Expressed) -> str:
    if not (said.blocks or said.chains):
        return 'def apply(model):\n    """Nothing is changed in the model: the setting is its batch size."""'
    body = ['"""Recompute in the backward of training; evaluation, parameters and buffers stay as they are."""']
    body += [*_CHECKS, *(_FIND_BLOCKS if said.blocks else [])]
    body += _WITHOUT_CACHES if said.caches else []
    body += _REPLACE_BLOCKS if said.blocks else []
    body += ["replace_forward(model, watched)"] if said.chains else []
    return "\n".join([_REPLACE.strip("\n"), "", "", "def apply(model):", *(f"    {line}" for line in body)])


_REPLACE = """
def replace_forward(module, around):
    # A partial and no closure, so that a copy of the model calls modules of its own.
    if getattr(module.forward, "func", None) is not around:  # not a second time
        module.forward = functools.update_wrapper(functools.partial(around, module, module.forward), module.forward)
"""

_CHECKS = [
    "parallel = [module for module in model.modules() if isinstance(module, torch.nn.DataParallel)]",
    "if any(len(module.device_ids) > 1 for module in parallel):",
    '    raise TypeError("replicas of DataParallel would run the forward of the original")',
]

# All are counted before anything is replaced, so that a model that is refused is as it was.
_FIND_BLOCKS = [
    "blocks = []",
    "for name, (number, chosen) in BLOCKS.items():",
    "    found = [module for module in model.modules() if type(module).__name__ == name]",
    "    if len(found) != number:",
    '        raise ValueError(f"the plan is for a model with {number} {name}, this one has {len(found)}")',
    "    blocks += [found[place] for place in chosen]",
]

_WITHOUT_CACHES = [
    "for module in model.modules():",
    '    if getattr(getattr(module, "config", None), "use_cache", False):',
    "        module.config.use_cache = False  # a block that runs again would add to it twice",
]

_REPLACE_BLOCKS = ["for block in blocks:", "    replace_forward(block, recomputed)"]
