"""Rules for stating a setting without autotune: by plain code, or by the arguments of a framework.

The rules stand here alone, each with the reason that it gives where it refuses; the files are written elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

from ..errors import PredictionError, UsageError
from ..predict.prediction import Predictor
from ..records.chosen import made_choices
from ..records.configuration import Configuration
from ..records.engines import ENGINES
from ..records.facts import ClusterFacts, Facts
from ..records.located import Located
from ..records.plan import ALL, COMPROMISED, NONE, RECOMPUTE, Plan
from ..records.quota import Quota
from ..records.words import cut_names, joined

Kind = Literal["torch", "transformers"]
"""What can be written in the place of a bundle."""

FILE_NAMES: dict[Kind, str] = {"torch": "recompute.py", "transformers": "training_arguments.py"}

_NOTHING: Mapping[str, str] = MappingProxyType({})
_ONE_OUTPUT = re.compile(r"\[\d+\]$")


@dataclass(frozen=True)
class Blocks:
    """Modules of a class to be checkpointed: the ``chosen`` of ``number``, as ``model.modules()`` numbers them."""

    class_name: str
    number: int
    chosen: tuple[int, ...]
    has_statistics: bool = False


@dataclass(frozen=True)
class Chain:
    """Operators whose last result is made again: the first ``count`` of the ``number`` in a call of the model."""

    operators: tuple[str, ...]
    number: int
    count: int

    @property
    def cluster(self) -> str:
        """Its id in the plan table."""
        return "".join(f"{one}+" for one in self.operators)


@dataclass(frozen=True)
class Expressed:
    """The part of a setting that can be stated without autotune.

    ``configuration`` is the setting whose plans are stated. It is another one than was asked for where ``refusals``,
    one reason each, say what could not be stated. ``every_layer``: all blocks that transformers' own switch recomputes.
    """

    configuration: Configuration
    blocks: tuple[Blocks, ...] = ()
    chains: tuple[Chain, ...] = ()
    every_layer: bool = False
    caches: bool = False
    refusals: tuple[str, ...] = field(default=())

    @property
    def says_plans(self) -> bool:
        """Return whether anything is recomputed by it."""
        return bool(self.blocks or self.chains or self.every_layer)

    @property
    def as_run(self) -> Configuration:
        """The script with the file applied, as a configuration: the file takes the place of plans and engine."""
        return replace(self.configuration, engine="eager", plans=(), level=0)


def express(
    kind: Kind, configuration: Configuration, facts: Facts, located: Located, refused: Mapping[str, str] = _NOTHING
) -> Expressed:
    """Say a setting, or the nearest to it that can be said.

    Args:
        kind: how it is to be said.
        configuration: the setting.
        facts: the script's.
        located: where its blocks are.
        refused: clusters that eager mode was seen not to have as the plans count them, each with how.

    Raises:
        UsageError: nothing of this kind can be said of this script.
    """
    if kind == "transformers" and located.trainer_arguments is None:
        raise UsageError(
            "--as transformers writes arguments for transformers' Trainer, and the script does not train by one",
            hint="--as torch writes plain code for any model",
        )
    rules = partial(_by_code, refused=refused) if kind == "torch" else _by_switch
    reasons = [*_around(configuration, kind)]
    said = rules(configuration, facts, located)
    if isinstance(said, Expressed) and not reasons:
        return said
    reasons += [] if isinstance(said, Expressed) else said
    plain = replace(configuration, engine="aot", level=0, choices=_kept_choices(configuration, kind))
    if ENGINES[configuration.engine].worker != "worker" or configuration.engine == "ortmodule":
        plain = replace(plain, plans=())
    nearest = _nearest(plain, configuration, facts, lambda one: rules(one, facts, located))
    return replace(nearest, refusals=_by_reason(reasons))


def _by_reason(refusals: Iterable[str]) -> tuple[str, ...]:
    """Refusals of plans, ``plan: reason``, with what has one reason in one."""
    plans: dict[str, list[str]] = {}
    for refusal in refusals:
        head, between, reason = refusal.partition(": ")
        is_plan = bool(between) and head.count(":") == 2
        plans.setdefault(reason if is_plan else refusal, []).extend([cut_names(head)] if is_plan else [])
    return tuple(f"{joined(names)}: {reason}" if names else reason for reason, names in plans.items())


def _around(configuration: Configuration, kind: Kind) -> Iterator[str]:
    """Return what cannot be said of what is around the plans."""
    if configuration.engine == "inductor":
        yield "it is compiled by Inductor, and what is written runs in eager: `autotune launch` compiles it"
    if configuration.engine == "ortmodule":
        yield "it runs in ONNX Runtime, whose plans torch does not have: the bundle's README.txt says how it is put in"
    dropped = [one for one in configuration.choices if one not in _kept_choices(configuration, kind)]
    if dropped:
        yield f"{joined(dropped)} {'is' if len(dropped) == 1 else 'are'} no part of what is written"


def _kept_choices(configuration: Configuration, kind: Kind) -> tuple[str, ...]:
    """The choices that are left to the file's reader, who is told how they are made."""
    if kind != "torch":
        return ()
    try:
        made = made_choices("eager", configuration.choices)
    except UsageError:
        return ()
    return tuple(f"{choice.name}={value}" for choice, value in made.items() if choice.made_by and not choice.variables)


def _row(plan: Plan, facts: Facts) -> ClusterFacts | None:
    """The row of the plan table that a plan is of."""
    rows = (row for row in facts.clusters if (row.cluster_id, row.strategy) == (plan.cluster, plan.strategy))
    return next(rows, None)


# -- plain code


def _by_code(
    configuration: Configuration, facts: Facts, located: Located, *, refused: Mapping[str, str]
) -> Expressed | list[str]:
    """The setting as blocks and chains, or why it is not to be had so."""
    blocks: dict[str, Blocks] = {}
    chains: list[Chain] = []
    refusals = []
    for plan in configuration.plans:
        if plan.strategy == NONE:
            continue
        row = _row(plan, facts)
        if row is not None and row.is_layer:
            found = _blocks_of(plan, facts, located)
            if isinstance(found, Blocks):
                before = blocks.get(found.class_name)
                chosen = sorted({*found.chosen, *(before.chosen if before else ())})
                blocks[found.class_name] = replace(found, chosen=tuple(chosen))
            else:
                refusals.append(found)
            continue
        reason = refused.get(plan.cluster)
        chain = f"{plan}: {reason}" if reason else _chain_of(plan, configuration, facts)
        if isinstance(chain, Chain):
            chains.append(chain)
        else:
            refusals.append(chain)
    if refusals:
        return refusals
    return Expressed(
        configuration,
        tuple(one for one in blocks.values() if one.chosen),
        tuple(one for one in chains if one.count),
        caches=located.caches and bool(blocks),
    )


def _blocks_of(plan: Plan, facts: Facts, located: Located) -> Blocks | str:
    row = _row(plan, facts)
    assert row is not None
    name = plan.cluster.removesuffix("+")
    found = located.blocks_of(name)
    if found is None:
        return f"{plan}: no module of class {name} repeats in the model as eager mode runs it"
    if sum(one.class_name == name for one in located.blocks) > 1:
        return f"{plan}: several of the script's models have a {name}, and code for one cannot count those of another"
    if len(found.called) != row.frequency:
        return (
            f"{plan}: the plan counts {row.frequency} {name}, and eager mode calls {len(found.called)} modules of that "
            "class"
        )
    chosen = found.called[plan.every - 1 :: plan.every][: plan.applies_to(row.frequency)]
    return Blocks(name, found.number, tuple(sorted(chosen)), found.has_statistics)


def _chain_of(plan: Plan, configuration: Configuration, facts: Facts) -> Chain | str:
    row = _row(plan, facts)
    if row is None:
        return f"{plan}: the script has no {cut_names(plan.cluster)}"
    operators = tuple(filter(None, plan.cluster.split("+")))
    if plan.strategy == COMPROMISED:
        return (
            f"{plan}: a compromised plan keeps a smaller tensor in the place of one, which code around modules cannot"
        )
    if _ONE_OUTPUT.search(plan.cluster):
        return f"{plan}: autograd keeps the output of an operator for itself, and no code can take it back"
    if not facts.graphs:
        return f"{plan}: the script's graphs are not known, so that nobody knows how often hooks should see it"
    if plan.every > 1:
        return f"{plan}: hooks count the first occurrences and not every {plan.every}th"
    if any(_draws(one) for one in operators):
        return f"{plan}: it draws at random, and eager mode draws anew: blocks put the generator back, hooks do not"
    if any(one.startswith("scaled_dot_product") for one in operators):
        return f"{plan}: attention has another kernel in the forward than its backward can be given results of"
    if any("batch_norm" in one for one in operators):
        return f"{plan}: in eager mode BatchNorm updates its statistics where it computes, so that it would do so twice"
    seen = _outside_blocks(plan, configuration, facts)
    return f"{plan}: it begins inside of a checkpointed block" if seen is None else Chain(operators, *seen)


def _outside_blocks(plan: Plan, configuration: Configuration, facts: Facts) -> tuple[int, int] | None:
    """Return how often hooks see a chain beside the plans for blocks, and how many of these are chosen.

    What is in a checkpointed block is not saved, so that hooks do not see it. None where a chosen one is made of what
    is in there: the engine makes it again with the block, and eager mode keeps what leaves a block.
    """
    quota, number, count = Quota(configuration.plans), 0, 0
    for graph in facts.graphs:
        inside: set[int] = set()
        for layer in graph.layers:
            if quota.take(layer.cluster_id, RECOMPUTE):
                inside.update(layer.recompute)
        for each in graph.occurrences:
            is_chosen = quota.take(each.cluster_id, each.strategy)
            if (each.cluster_id, each.strategy) != (plan.cluster, plan.strategy) or each.nodes[-1] in inside:
                continue
            if inside.isdisjoint({*each.nodes, *(source for node in each.nodes for source in graph.inputs[node])}):
                number += 1
                count += is_chosen
            elif is_chosen:
                return None
    return number, count


def _draws(operator: str) -> bool:
    return any(word in operator for word in ("dropout", "bernoulli", "rand", "normal", "multinomial", "exponential"))


# -- transformers


def _by_switch(configuration: Configuration, facts: Facts, located: Located) -> Expressed | list[str]:
    """The setting by transformers' own switch, which recomputes every layer that its model checkpoints, or none."""
    plans = [plan for plan in configuration.plans if plan.strategy != NONE]
    if not plans:
        return Expressed(configuration)
    switched = {one.class_name: one for one in located.blocks if one.checkpoints}
    refusals = []
    for plan in plans:
        row = _row(plan, facts)
        name = plan.cluster.removesuffix("+")
        if row is None or name not in switched:
            refusals.append(f"{plan}: Trainer's checkpointing recomputes whole layers and nothing else")
        elif plan.applies_to(row.frequency) != len(switched[name].called):
            number = len(switched[name].called)
            refusals.append(f"{plan}: Trainer's checkpointing recomputes all {number} {name} or none")
    missing = [name for name in switched if not any(plan.cluster == f"{name}+" for plan in plans)]
    if missing and not refusals:
        refusals.append(f"Trainer's checkpointing recomputes {joined(missing)} too")
    return refusals or Expressed(configuration, every_layer=True, caches=located.caches)


# -- the nearest


def _nearest(
    plain: Configuration,
    wanted: Configuration,
    facts: Facts,
    say: Callable[[Configuration], Expressed | list[str]],
) -> Expressed:
    """Return what can be said with about the memory of the setting that was asked for, at the least cost.

    Tried are the plans that can be said by themselves, and beside them the first blocks of each class: as many as it
    takes by the simulation to need no more than what was asked for. Where nothing can be simulated, all blocks are
    taken in the place of what could not be said.
    """
    kept = tuple(plan for plan in plain.plans if isinstance(say(replace(plain, plans=(plan,))), Expressed))
    beside = list(_with_blocks(kept, facts))
    options = [replace(plain, plans=plans) for plans in dict.fromkeys([*beside, *_with_blocks((), facts)])]
    said = [one for one in map(say, options) if isinstance(one, Expressed)]
    assert said, "nothing but a batch size can always be said"
    try:
        predictor = Predictor(facts)
        target = predictor.predict(replace(wanted, engine="aot", level=0)).peak_bytes
        predicted = [(predictor.predict(one.configuration), one) for one in said]
    except PredictionError:
        wanted_plans = beside[0] if len(kept) == len(plain.plans) else beside[-1]
        return next((one for one in said if one.configuration.plans == wanted_plans), said[0])
    fitting = [(one, each) for one, each in predicted if one.peak_bytes <= target]
    if fitting:
        return min(fitting, key=lambda pair: pair[0].recompute_time_s)[1]
    return min(predicted, key=lambda pair: pair[0].peak_bytes)[1]


def _with_blocks(kept: tuple[Plan, ...], facts: Facts) -> Iterable[tuple[Plan, ...]]:
    """The plans by themselves, and beside them the first blocks of each class; all of a class last."""
    yield kept
    for row in facts.clusters:
        if row.is_layer:
            others = tuple(plan for plan in kept if plan.cluster != row.cluster_id)
            for count in (*range(1, row.frequency), ALL):
                yield (*others, Plan(row.cluster_id, RECOMPUTE, count))
