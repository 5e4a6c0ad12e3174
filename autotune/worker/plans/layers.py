"""Repeated blocks of a model as clusters: ``Block+`` is every call of the class ``Block`` inside a list of its kind.

The module tree tells the blocks apart; the joint graph's nodes carry the module that made them
(``nn_module_stack``). Recomputing a layer keeps what enters it and what leaves it, and recomputes the rest: what
hand-written ``torch.utils.checkpoint`` around the block does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx, nn

from .joint import is_checkpointed, is_tensor
from .repeatable import Repeatable

# A child of a ModuleList or Sequential ends in its index: `blocks.3`, `L['self'].blocks[3]`, `_modules['3']`.
_INDEX = re.compile(r"""(?:\.|\[)['"]?(\d+)['"]?\]?$""")


_SHARDING = "torch.distributed."
_CHECKPOINTED = "_checkpoint_wrapped_module"


@dataclass(frozen=True)
class Layer:
    """One call of a repeated block: its forward nodes, those that a plan recomputes, and those that others read.

    The path is empty where all of the graph is a call of the block, or a part of such a call.
    """

    cluster_id: str
    path: str
    nodes: tuple[str, ...]
    recompute: tuple[str, ...]
    keep: tuple[str, ...]


def repeated_modules(root: nn.Module) -> Iterator[nn.Module]:
    """Give the modules that repeat inside of a root: two or more of a class, under one parent at different indices."""
    for parent in root.modules():
        # One that is at several places counts at each.
        indexed = [child for name, child in parent._modules.items() if name.isdigit() and child is not None]
        number = Counter(map(_class_of_block, indexed))
        yield from (child for child in indexed if number[_class_of_block(child)] > 1)


def block_of(root: nn.Module, module: nn.Module) -> Block | None:
    """Return a module as a block if it repeats inside of a root."""
    return Block(block_name_of(module)) if any(one is module for one in repeated_modules(root)) else None


def outermost_blocks(root: nn.Module) -> list[nn.Module]:
    """List the modules of a root that repeat, but for those inside of another one of their own class."""
    found = dict.fromkeys(repeated_modules(root))
    inside = {inner: outer for outer in found for inner in outer.modules() if inner is not outer}
    return [one for one in found if type(inside.get(one)) is not type(one)]


def class_name_of(module: nn.Module) -> str:
    """Return the name of a module's class as a cluster id has it."""
    return _in_cluster_id(own_class(module).__name__)


def block_name_of(module: nn.Module) -> str:
    """Return the name that plans have for a repeated module: of one in torch's wrapper for checkpoints, its own."""
    return _in_cluster_id(_class_of_block(module).__name__)


def own_class(module: nn.Module) -> type:
    """Return the class that the script gave a module: `fully_shard` makes another one of it and of `FSDPModule`."""
    made, *of = type(module).__bases__[:2]
    return of[0] if of and made.__module__.startswith(_SHARDING) else type(module)


def _class_of_block(module: nn.Module) -> type:
    """Return the class of a module, or of that inside torch's wrapper for checkpoints."""
    inner = module._modules.get(_CHECKPOINTED)
    return own_class(module if inner is None else inner)


def _in_cluster_id(class_name: str) -> str:
    return class_name.rpartition(".")[2].replace(":", "_").replace(",", "_")


@dataclass(frozen=True)
class Block:
    """The repeated block that a graph was compiled for by itself, or for a part of it: the class of the block."""

    class_name: str


def find_layers(
    joint: fx.GraphModule, forward_names: set[str], repeatable: Repeatable, block: Block | None = None
) -> list[Layer]:
    """List the repeated blocks of a joint graph in execution order, the outermost repetition of each class.

    All of the graph is one more where it was compiled for a ``block``.
    """
    nodes = [node for node in joint.graph.nodes if node.name in forward_names and node.op == "call_function"]
    stacks = {node: _indexed_modules(node) for node in nodes}
    members: dict[tuple[str, str], list[fx.Node]] = {}
    for node in nodes:
        for parent, index, class_name in stacks[node]:
            members.setdefault((class_name, f"{parent}#{index}"), []).append(node)
    parents = Counter((class_name, path.rpartition("#")[0]) for class_name, path in members)
    layers: dict[tuple[str, str], list[fx.Node]] = {}
    claimed: dict[str, set[fx.Node]] = {}
    for (class_name, path), own in members.items():
        known = claimed.setdefault(class_name, set())
        if parents[class_name, path.rpartition("#")[0]] > 1 and known.isdisjoint(own):
            layers[class_name, path] = own
            known.update(own)
    _adopt_orphans(nodes, layers)
    if block:
        layers = {key: own for key, own in layers.items() if key[0] != block.class_name}
        layers[block.class_name, ""] = nodes
    place = {node.name: position for position, node in enumerate(joint.graph.nodes)}
    found = []
    for (class_name, path), own in layers.items():
        in_order = sorted(own, key=lambda node: place[node.name])
        recompute, keep = _tags(in_order, forward_names, repeatable)
        # A checkpoint of the script's own leaves nothing to a plan.
        is_spared = all(is_checkpointed(node) for node in in_order if node.name in recompute)
        if (recompute or keep) and not (recompute and is_spared):
            found.append(Layer(f"{class_name}+", path, tuple(node.name for node in in_order), recompute, keep))
    return sorted(found, key=lambda layer: place[layer.nodes[0]])


def _tags(
    nodes: list[fx.Node], forward_names: set[str], repeatable: Repeatable
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a layer's nodes into those to recompute and those to save because the rest of the forward reads them."""
    inside = set(nodes)
    recompute: list[str] = []
    save: list[str] = []
    for node in nodes:
        if not repeatable(node, heavy=True):
            continue
        leaves = any(user.name in forward_names and user not in inside for user in node.users)
        is_output = any(user.op == "output" for user in node.users)
        (save if (leaves or is_output) and is_tensor(node) else recompute).append(node.name)
    return tuple(recompute), tuple(save)


def _indexed_modules(node: fx.Node) -> list[tuple[str, int, str]]:
    """List the modules with an index around a node, outermost first: (parent path, index, class name)."""
    found = []
    for path, module_class in (node.meta.get("nn_module_stack") or {}).values():
        match = _INDEX.search(str(path))
        if match:
            name = module_class if isinstance(module_class, str) else getattr(module_class, "__name__", "")
            parent = str(path)[: match.start()]
            found.append((parent, int(match.group(1)), _in_cluster_id(name)))
    return found


def _adopt_orphans(nodes: list[fx.Node], layers: dict[tuple[str, str], list[fx.Node]]) -> None:
    """Give nodes without a module (made by functionalization) to the layer whose nodes alone surround them."""
    owner: dict[tuple[str, fx.Node], str] = {}
    for (class_name, path), own in layers.items():
        for node in own:
            owner[class_name, node] = path
    forward = set(nodes)
    for class_name in {class_name for class_name, _ in layers}:
        for node in nodes:
            if node.meta.get("nn_module_stack") or (class_name, node) in owner:
                continue
            if any(user.op == "output" for user in node.users):
                # What the root does to the last block's result before it returns it.
                continue
            sources = {owner.get((class_name, source)) for source in node.all_input_nodes if source in forward}
            users = {owner.get((class_name, user)) for user in node.users if user in forward}
            around = sources - {None}
            if len(around) == 1 and users <= around:
                (around_path,) = around
                assert around_path is not None
                owner[class_name, node] = around_path
                layers[class_name, around_path].append(node)
